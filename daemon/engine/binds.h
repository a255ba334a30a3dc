/*
 * Which GPU each program is bound to. A program asks at its first cuInit, before it connects
 * (PLACE): core/bind decides, by what the programs on each GPU need and by those that are on their
 * way there. What was decided holds for the life of the process and is shown by the status.
 *
 * What a program was bound with counts on its GPU for GM_BIND_WAY_NS, or if it has more memory
 * there by then, that; later what it has counts alone. Anybody may say anything: so a program
 * counts as one GPU's budget at most, and of another user's programs that are on their way to a GPU
 * one. Nor do a user's programs together keep others waiting for longer than that by what they say
 * and do not take: then what they have counts alone, and that time comes back slowly.
 *
 * The machine owns it. Called by the service; calls the engines. Loop thread only.
 */
#ifndef GM_DAEMON_ENGINE_BINDS_H
#define GM_DAEMON_ENGINE_BINDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/shm.h"
#include "common/visible.h"
#include "daemon/core/bind.h"

struct gm_engine;
struct gm_snapshot_app;

struct gm_binding {
    pid_t pid;
    uint64_t family; /* processes of one program have the same */
    uid_t uid;
    uid_t owner;  /* whom it counts for: gm_client.owner */
    uint32_t gpu; /* an index of the machine's; GM_BIND_NONE: none that is shared */
    uint64_t at;
    enum gm_why why;
    uint32_t n; /* devices that it sees, by their numbers on the machine, in its order */
    uint8_t device[GM_DEVICES_VISIBLE];
    struct gm_bind_program program;
    enum gm_need_from need_from;
    bool is_there;  /* it is on a GPU: as it was last looked at, */
    bool is_coming; /* ... or on its way to one; */
    bool is_held;   /* more than half of what counts for it is said and not taken; */
    bool has_run;   /* it had a turn */
};

/* A user whose programs held room while others waited. */
struct gm_bind_owing {
    uid_t owner;
    uint64_t until; /* when none of it is left */
    uint64_t charged_at;
};

struct gm_binds {
    struct gm_engine *const *engines; /* the machine's */
    uint32_t n_engines, max_apps;
    uint32_t n, max;
    struct gm_binding *bound;  /* in no order */
    struct gm_devices devices; /* all that the machine has, shared or not */
    struct gm_bind_chip chips[GM_GPUS_MAX];
    struct gm_bind_owing owing[GM_BIND_OWING];
    uint64_t looked_at; /* when who waits was last looked at */
};

/* When the engines are open. 0 or -ENOMEM. */
int gm_binds_open(struct gm_binds *binds, struct gm_engine *const *engines, uint32_t n_engines,
                  uint32_t max_apps);
void gm_binds_close(struct gm_binds *binds);

struct gm_place_request {
    pid_t pid;
    uint64_t family;
    uid_t uid;
    uid_t owner;
    enum gm_why as_is; /* NONE: its GPUs may be put into another order */
    uint32_t n;        /* devices that it sees, by their numbers on the machine, in its order */
    uint32_t device[GM_DEVICES_VISIBLE];
    struct gm_bind_program program;
    enum gm_need_from need_from;
};

struct gm_place_answer {
    bool is_changed;                    /* the order is another one than the program's */
    uint32_t order[GM_DEVICES_VISIBLE]; /* of the request's devices, by their place in it */
    uint32_t gpu; /* which of the machine's the program is bound to; GM_BIND_NONE: none */
    int device;   /* its number on the machine */
    enum gm_why why;
};

/* Bind a program. */
void gm_binds_place(struct gm_binds *binds, const struct gm_place_request *request,
                    struct gm_place_answer *answer);

/* Of programs that wait until a GPU has room, in the order in which they came since `since`: which
 * is to be placed now (gm_bind_next). GM_BIND_NONE: none. */
struct gm_waiting {
    struct gm_place_request request;
    uint64_t since;
    uint64_t fits_since; /* as it was last looked at; 0: it does not */
};
uint32_t gm_binds_next(struct gm_binds *binds, struct gm_waiting *waiting, uint32_t n,
                       uint64_t patience_ns);

/* The program of this process has left: what it was bound with is free, whether or not its parent
 * has taken note of its end. */
void gm_binds_leave(struct gm_binds *binds, pid_t pid);

/* Whether others of its program are bound already: it does not wait, as they may wait for it. */
bool gm_binds_has_family(const struct gm_binds *binds, const struct gm_place_request *request);

/* What the app has needed so far, on the GPU where it had most: bytes that it had at any time, what
 * of that it needs there as it is now, thousandths of the time that it wanted, and how long it was
 * there without waiting. */
struct gm_bind_usage {
    uint64_t most, needed;
    uint32_t time;
    uint64_t took_ns;
};
void gm_binds_usage(const struct gm_binds *binds, uint32_t id, struct gm_bind_usage *usage);

/* Why the program is on the GPU of this index. */
void gm_binds_show(const struct gm_binds *binds, uint32_t gpu, struct gm_snapshot_app *app);

#endif
