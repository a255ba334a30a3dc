/*
 * Records a trace (--record) as lines of trace/trace.h in a file, which tests/sim can replay. Owns
 * struct gm_record and its file. main opens and closes it, tape.c calls it; it calls trace.c. Loop
 * thread only.
 *
 * Lines stay in memory for up to a second; then a thread writes them (common/writer.h), so the loop
 * never waits for the disk. If the file cannot be written, is full, or is much too slow, only the
 * recording ends.
 */
#ifndef GM_DAEMON_VIEWS_RECORD_H
#define GM_DAEMON_VIEWS_RECORD_H

#include <uv.h>

#include "daemon/trace/trace.h"

struct gm_record;

/*
 * Create the file, readable for this user only. An older trace becomes PATH.old; any other file is
 * refused. The recording ends before the file exceeds `most` bytes; keeping the end instead of the
 * beginning would give nothing that can be replayed. Returns 0; or -errno with one line in `why`,
 * and then nothing is left behind.
 */
int gm_record_open(struct gm_record **record, uv_loop_t *loop, const char *path, uint64_t most,
                   char *why, size_t why_size);

/* Whether what is at the path is no obstacle to that. 0, or -errno with one line in `why`. */
int gm_record_try(const char *path, char *why, size_t why_size);

/* Record what the scheduler accepted, in that order. `record` may be NULL in all of these. */
void gm_record_config(struct gm_record *record, const struct gm_sched_config *config);
void gm_record_event(struct gm_record *record, uint64_t now, const struct gm_sched_event *event);
void gm_record_policy(struct gm_record *record, uint64_t now, uint32_t app,
                      const struct gm_sched_policy *policy);
void gm_record_view(struct gm_record *record, uint64_t now, const struct gm_trace_view *view);

/* Write the rest and close; a disk that hangs is not waited for. The loop must run once more. */
void gm_record_close(struct gm_record *record);

#endif
