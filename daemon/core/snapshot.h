/*
 * What status shows of the machine, as plain numbers: a copy, which points to nothing of the
 * engine. engine/snapshot.c makes it, the service hands it on, and daemon/views formats it.
 * Sizes in bytes, times in nanoseconds.
 */
#ifndef GM_CORE_SNAPSHOT_H
#define GM_CORE_SNAPSHOT_H

#include "daemon/core/bind.h"
#include "daemon/core/events.h"

/* How an app is, in one word: enum gm_app_state, but for these. */
#define GM_SHOWN_STATES(X)                                                                         \
    X(IDLE, "idle")       /* it does nothing, its gate open or not */                              \
    X(WAITING, "waiting") /* for its turn */                                                       \
    X(PAUSED, "paused")   /* by a setting */                                                       \
    X(STOPPED, "stopped") /* its process stands still */                                           \
    X(LOST, "lost")       /* of the daemon before: its process lives, and is not back */           \
    X(LOADING, "loading") X(RUNNING, "running") X(DRAINING, "draining") X(GONE, "gone")
enum gm_shown_state {
#define GM_SHOWN(NAME, name) GM_SHOWN_##NAME,
    GM_SHOWN_STATES(GM_SHOWN)
#undef GM_SHOWN
};

struct gm_snapshot_app {
    uint32_t id;
    int32_t device; /* CUDA number of its GPU */
    int32_t pid;
    uint32_t uid;
    char name[64];
    char group[64]; /* "": none */
    enum gm_shown_state state;
    bool is_running;      /* its gate is open */
    bool is_part_stopped; /* a process of its group stands still */
    bool is_oversize;
    bool is_parked;
    uint32_t pause; /* enum gm_set_paused (common/wire.h): how its group is paused */

    enum gm_why placed; /* BIND_...: why it is on this GPU; NONE: it did not ask */
    uint64_t need;      /* ... and what it was expected to need, by whom */
    enum gm_need_from need_from;

    struct gm_reason why; /* why it does not run, or is not all on the GPU */
    char by[600];         /* ... by whom or by which rule: "alice", "the rule command=train*" */

    struct gm_sched_account account;
    uint64_t waiting_ns; /* so far */

    uint64_t resident, total, cached, pinned, shadow, on_host, exchanged, cap, on_device;
    uint64_t needed, cold; /* what it is promised on the GPU; what it did not touch lately */
    uint64_t shared, opened;

    /* What only the driver can move, as the program says; `small` includes `real`. */
    uint64_t unswappable, small, real, managed, arrays, graphs, driver;

    uint64_t counts[GM_EVENTS];
    uint64_t timeslice_us;
    uint64_t refused_allocs;  /* as the program counts them */
    uint32_t waiting_threads; /* likewise */
    uint32_t features_off;    /* enum gm_feature */
    char ignored[384];        /* what its environment asked for in vain */
};

struct gm_snapshot_gpu {
    uint32_t index;
    int32_t device; /* CUDA number */
    uint64_t now;   /* of its engine */
    char name[96];
    uint8_t uuid[16];

    uint64_t budget, budget_most, usable, used, cached, free, committed, available, shared;
    uint64_t device_total, device_free;
    uint32_t frames;

    struct {
        uint64_t gpu;
        uint64_t pinned, pinned_cap, pinned_used, pinned_shadow, pinned_cached;
        uint64_t paged, paged_used, paged_cap;
        uint64_t disk_used, disk_cap;
        uint64_t on_host;
        bool is_registered; /* pinned memory cannot be mapped by programs */
    } tiers;
    uint64_t moved[GM_TIERS][GM_TIERS]; /* copied below the GPU, from tier to tier */

    uint64_t bytes[GM_WAYS];
    uint64_t clean, zero; /* evicted without a copy */
    bool is_hashing;
    uint64_t hashed, hash_ns;
    char unchecked[160]; /* why what crosses the link is not counted; "": it is, or can be */

    uint64_t counts[GM_EVENTS];
    uint32_t n_history;
    struct gm_switch history[GM_HISTORY]; /* oldest first */
};

struct gm_snapshot {
    uint32_t n_gpus, n_apps;
    struct gm_snapshot_gpu *gpus; /* both in the same memory as this */
    struct gm_snapshot_app *apps; /* by id, and by GPU */
    uint64_t bytes[GM_WAYS];      /* of all GPUs, as are these */
    uint64_t counts[GM_EVENTS];
};

#endif
