/*
 * A thread that writes to one file, so that whoever has something to write never waits for the
 * file: a terminal may be stopped, a pipe have no reader, a disk be slow. Only the daemon has one;
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
 * `room`: bytes that may wait. Lines whose write fails are lost like those that were dropped, and
 * behind the next that are written stands how many. It writes to `fd` until the process ends.
 * Returns NULL without memory or threads.
 */
struct gm_writer *gm_writer_open(int fd, size_t room, gm_writer_notice *notice, const char *name);

/* Hand over a piece. False: dropped. If nothing else waited, wait up to `patience_ns` until it is
 * written. */
bool gm_writer_put(struct gm_writer *writer, const char *lines, size_t length,
                   uint64_t patience_ns);

/* Wait up to `patience_ns` until all is written. Whether it is. */
bool gm_writer_flush(struct gm_writer *writer, uint64_t patience_ns);

#endif
