/*
 * The recording of what the scheduler is told (--record): lines of trace.h in a file, which
 * tests/sim can replay. The engine calls it through its outlet, main opens and closes it.
 *
 * Lines stay in memory for up to a second. A file that cannot be written, or has reached its
 * largest size, ends the recording and nothing else. Loop thread only.
 */
#ifndef GM_DAEMON_VIEWS_RECORD_H
#define GM_DAEMON_VIEWS_RECORD_H

#include <uv.h>

#include "daemon/views/trace.h"

struct gm_record;

/*
 * Make the file, for this user alone. A trace that is there becomes PATH.old; any other file there
 * is left alone and refused. With the first line that would make it larger than `most` bytes the
 * recording ends: what came before decides as it did, a part from the middle could not. Returns 0,
 * or -errno with one line in `why` and nothing left behind.
 */
int gm_record_open(struct gm_record **record, uv_loop_t *loop, const char *path, uint64_t most,
                   char *why, size_t why_size);

/* What was accepted by the scheduler, in that order. `record` may be NULL: nothing is recorded. */
void gm_record_config(struct gm_record *record, const struct gm_sched_config *config);
void gm_record_event(struct gm_record *record, uint64_t now, const struct gm_sched_event *event);
void gm_record_policy(struct gm_record *record, uint64_t now, uint32_t app,
                      const struct gm_sched_policy *policy);

/* Write what is kept in memory now. NULL: nothing. */
void gm_record_flush(struct gm_record *record);

/* Write the rest and close. The loop must run once more. NULL: nothing. */
void gm_record_close(struct gm_record *record);

#endif
