/*
 * A thread that writes to one file, so that whoever has something to write never waits for the
 * file: a terminal may be stopped, a pipe have no reader, a disk be slow. Only the daemon has some;
 * in a program there is no thread for its log (log.h).
 *
 * Pieces are whole lines. A piece for which there is no room is dropped whole, and counted. Any
 * thread may call. Calls common/ only.
 */
#ifndef GM_COMMON_WRITER_H
#define GM_COMMON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_writer;

/* Build the line that says that so many are lost. At most `size` bytes; returns its length. */
#define GM_WRITER_NOTICE 512u
typedef size_t gm_writer_notice(char *line, size_t size, uint64_t lost);

/*
 * `room`: bytes that may wait. With `notice` lines whose write fails are lost like those that were
 * dropped, and behind the next that are written stands how many. Without it the first error ends
 * the writer, and the file is cut behind its last whole line. The writer takes over `fd`. Returns
 * NULL, and has not, without memory or threads.
 */
struct gm_writer *gm_writer_open(int fd, size_t room, gm_writer_notice *notice, const char *name);

/* Hand over a piece. False: dropped. If nothing else waited, wait up to `patience_ns` until it is
 * written. */
bool gm_writer_put(struct gm_writer *writer, const char *lines, size_t length,
                   uint64_t patience_ns);

/* The -errno of the write that ended it, or 0. */
int gm_writer_error(struct gm_writer *writer);

/* Wait up to `patience_ns` until all is written. Whether it is. */
bool gm_writer_flush(struct gm_writer *writer, uint64_t patience_ns);

/* The same; then close the file. If the file takes nothing, the thread stays behind with it.
 * Returns 0; -ETIMEDOUT; or the error that ended it. */
int gm_writer_close(struct gm_writer *writer, uint64_t patience_ns);

#endif
