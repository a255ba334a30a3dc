/*
 * PLACE: which of its GPUs a program is to have first. Gathers what its environment, rules and
 * options say, and what its list of devices names; the machine chooses (engine/binds.h).
 *
 * The order stays as it is where nobody could know better, or somebody does: where the program, a
 * rule or the option says so, where a launcher or a group gives it a device by number, where it may
 * see other devices than the daemon, and where one GPU is shared.
 *
 * Owns what the daemon sees itself (struct gm_view). Called by session.c; calls the machine, rules
 * and past.c. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_PLACING_H
#define GM_DAEMON_SERVICE_PLACING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"
#include "daemon/service/control.h"

/* How the daemon sees the machine's GPUs. */
struct gm_view {
    uint64_t nodes;
    bool is_part;   /* CUDA_VISIBLE_DEVICES is set */
    bool is_by_bus; /* CUDA_DEVICE_ORDER=PCI_BUS_ID */
};

struct gm_placing {
    pid_t pid;
    uid_t uid, owner; /* ... of gm_users_owner */
    const struct gm_msg_place *body;
    const struct gm_token_entry *tokens;
    uint32_t n;
};

/* As this process sees them, by its environment. */
struct gm_view gm_view_own(void);

/* What is known of a program that asks. Returns whether it is to wait until a GPU has room for it:
 * then the caller keeps the request, or lets it begin. */
bool gm_placing_read(struct gm_control *control, const struct gm_view *view,
                     const struct gm_placing *who, struct gm_place_request *request);

/* Whether a rule or the option has it share the multiprocessors by MPS (mps.h). *part: how much of
 * them a rule gives it (share=), in thousandths; 0: no rule says. */
bool gm_placing_shares(const struct gm_control *control, const struct gm_placing *who,
                       uint32_t *part);

/* Place it. Returns how many entries the answer has. */
uint32_t gm_placing(struct gm_control *control, const char *name,
                    const struct gm_place_request *request, struct gm_msg_placed *answer,
                    struct gm_place_entry entries[GM_DEVICES_VISIBLE]);

#endif
