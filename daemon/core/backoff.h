/*
 * When to try again what failed: one rule for all of it. After a failure it is left alone for
 * GM_RETRY_NS, twice as long after each further one, up to GM_RETRY_MOST_NS. What fails while it is
 * left alone had begun before, and does not count.
 */
#ifndef GM_DAEMON_CORE_BACKOFF_H
#define GM_DAEMON_CORE_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

/* All 0: it may be tried. Times in nanoseconds. */
struct gm_backoff {
    uint64_t at;   /* not before; 0: now */
    uint64_t wait; /* ... how long that was after the last failure; 0: it went well since */
};

void gm_backoff_fail(struct gm_backoff *backoff, uint64_t now);
/* What went well had begun before the last failure, if it is left alone still. */
void gm_backoff_go_well(struct gm_backoff *backoff, uint64_t now);
/* True once: the time to try again has come. */
bool gm_backoff_come(struct gm_backoff *backoff, uint64_t now);

#endif
