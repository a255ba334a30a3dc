/*
 * What a trace shows, from events: the scheduler's input, and rows of trace/trace.def. For mux-ctl
 * trace, which asks for what has come since it asked last. Owns struct gm_tape. Called by journal.c
 * and service/control.c; calls trace/ and why.c. Loop thread only.
 *
 * Lines are kept from the first question on, GM_TAPE_BYTES at most, and for GM_TAPE_KEPT_NS after
 * the last. A trace whose first question came before the first program is whole: it can be
 * replayed. Copies are told as spans, not one by one, and are counted whether somebody asks or not:
 * those under way outlive a recording.
 */
#ifndef GM_DAEMON_VIEWS_TAPE_H
#define GM_DAEMON_VIEWS_TAPE_H

#include <cjson/cJSON.h>

#include "common/shm.h"
#include "daemon/core/events.h"

struct gm_snapshot;

enum gm_tape_way { GM_TAPE_IN, GM_TAPE_OUT, GM_TAPE_DOWN, GM_TAPE_UP, GM_TAPE_WAYS };

struct gm_tape {
    struct gm_tape_gpu {
        struct gm_sched_config config;
        struct gm_tape_span {
            uint32_t n;          /* copies under way */
            uint64_t begin, end; /* of the first, and of the last that has ended; 0: no span */
            uint64_t bytes;      /* of those that have ended */
        } span[GM_TAPE_WAYS];
    } gpu[GM_GPUS_MAX]; /* by the engine's index */

    bool has_begun;      /* a scheduler has had an app */
    char *text;          /* whole lines; NULL: nobody asks */
    uint64_t begin, end; /* of the text, in bytes since the first question, from 1 on */
    uint64_t asked;      /* when somebody asked last */
    uint64_t tiers_at;   /* when it had tiers last */
};

void gm_tape_event(struct gm_tape *tape, const struct gm_event *event);

/*
 * What has come since byte `since`: {"next":..., "text":...}; ask for what follows since `next`. Of
 * 0: who is there, and how it is. What is lost is a row. The caller owns it; NULL: out of memory.
 */
cJSON *gm_tape_ask(struct gm_tape *tape, const struct gm_snapshot *snapshot, uint64_t since,
                   uint64_t now, uint64_t wall);
void gm_tape_close(struct gm_tape *tape);

#endif
