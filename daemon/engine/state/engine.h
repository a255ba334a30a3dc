/* clang-format off */
/*
 * The engine: makes the scheduler's decision true. It owns the apps' chunk tables and gates, asks
 * core/sched whom to run and core/plan what to move, tells the shims to drain, map and unmap, and
 * feeds the mover. One per GPU; machine.h has them all. Runs on the libuv loop thread only.
 *
 *   server/session -> engine -> core/{sched, plan, table}
 *                            -> frames, hostpool, mover -> cuda
 */
/* clang-format on */
#ifndef GM_DAEMON_ENGINE_STATE_ENGINE_H
#define GM_DAEMON_ENGINE_STATE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/wire.h"
#include "common/classes.h"
#include "common/settings.h"
#include "daemon/core/why.h"

struct gm_engine;

/* The engine only hands these on. */
struct gm_event;
struct gm_host;
struct gm_journal;
struct gm_kept;
struct gm_rules;
struct gm_session;
struct gm_sched_policy;

/*
 * What the engine calls of the rooms above it. It knows none of them by name: main puts their
 * functions here. Called on the loop thread only.
 */
struct gm_engine_outlet {
    /*
     * Send one message, with gm_wire_encode's arguments; `fds` stay the engine's. Returns 0 (sent
     * or queued) or -errno, and then the session is ending: gm_engine_leave follows from the loop,
     * never from inside this call.
     */
    int (*send)(struct gm_session *session, enum gm_msg_type type, const void *body,
                const void *entries, uint32_t count, const int *fds, int n_fds);
    /* End the session: `text` is logged and sent with REFUSED. gm_engine_leave follows from the
     * loop, never from inside this call. */
    void (*end)(struct gm_session *session, enum gm_refusal reason, const char *text);
    /* The process of the session has ended. If another one has a copy of its connection, the
     * session ends likewise; returns a descriptor of the connection, which hangs up with the last
     * copy. -1: there is none, and the end of the session follows. NULL: as if there were none. */
    int (*keep)(struct gm_session *session);
    /* The settings of the rule for a program that asks for a class (enum gm_sched_class), and the
     * rule as it was written. False: none. */
    bool (*rule)(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                 struct gm_settings *settings, char *text, size_t size);
    /* What all programs of a user may have together. */
    void (*totals)(const struct gm_rules *rules, uid_t uid, struct gm_user_totals *totals);
    /* Whether all that rules say of the user is known. It may be too strict until then. NULL: it
     * is. */
    bool (*is_sure)(const struct gm_rules *rules, uid_t uid);
    /* The rule that bounds their GPU memory, as it was written. False: none does. */
    bool (*total_rule)(const struct gm_rules *rules, uid_t uid, char *text, size_t size);
    /* The name of a user, or its number. Returns `name`. */
    const char *(*user)(uid_t uid, char name[64]);
    /* Whom the use of a uid is counted for: of a container's, the user who has it. NULL: itself. */
    uid_t (*owner)(uid_t uid);
    /* Whether a process stands still, and why: STOPPED, TRACED, FROZEN or NONE. NULL: none does. */
    enum gm_why (*stop_of)(pid_t pid);
    /* A process of the user, started no earlier than `since` (as `started` counts), that has the
     * other end of this socket. 0: none is found. NULL: nobody can look. */
    pid_t (*holder)(uid_t uid, uint64_t since, int socket);
    /* When a process was started, as the system counts; 0: it is gone, or cannot be looked at. */
    uint64_t (*started)(pid_t pid);
    /* What happens in the engine (common/events.def). NULL: nobody reads it. */
    void (*event)(struct gm_journal *journal, const struct gm_event *event);
};

/* What is done for latency-critical programs beside others: the words of --latency-mode. */
enum gm_latency_mode {
    GM_LATENCY_OFF,
    GM_LATENCY_TIMESLICE, /* the GPU's own timeslices, by class */
    GM_LATENCY_HINT,      /* ... and others are held for what programs announce */
};

struct gm_engine_config {
    int lifeline; /* for WELCOME, the reading end (service/main.c); 0: there is none */
    struct gm_engine_outlet outlet;
    struct gm_host *host;    /* host.h: for all GPUs */
    struct gm_kept *kept;    /* memory/kept.h: what outlives the daemon; NULL: nothing does */
    int gpu;                 /* CUDA ordinal of the GPU to share */
    uint32_t engines;        /* of the daemon, which share what is for all of them; 0: this one */
    uint32_t index;          /* of the engine among the daemon's, by which programs know the GPU */
    uint64_t budget;         /* bytes of frames on that GPU; 0: all that is free less a reserve */
    unsigned budget_percent; /* 1..100: of the device, instead of `budget`; 0: unused */
    uint64_t pinned;         /* bytes of pinned host memory of all GPUs; 0: half of what there is */
    uint64_t paged;          /* bytes of paged host memory below it; 0: none */
    const char *disk_dir;    /* folder of the disk tier; NULL or "": none */
    uint64_t disk;           /* bytes of it */
    bool is_oversize;        /* of programs of which nothing else is said: they may exceed the
                              * budget, by what the GPU reads over the link */
    bool has_bending_caps;   /* an app may exceed its cap while nobody else wants the room */
    bool is_waiting_when_full; /* an allocation that the tiers cannot hold waits instead of failing
                                */
    bool is_fair_by_program;   /* programs share the time, whosever they are; else users do */
    uint64_t slice_ns, patience_ns; /* of the scheduler: core/sched.h */
    const struct gm_rules *rules;   /* for outlet.rule and outlet.totals; NULL: none */
    enum gm_sched_class best_class; /* that users may take for their own programs */
    struct gm_journal *journal;     /* for outlet.event */
    uint64_t idle_ns;               /* an app that returned from no call for this long is idle */
    enum gm_latency_mode latency_mode;
    uint32_t max_apps;
    /* The daemon's CUDA context is lost, and every program was told: it must end. From the loop. */
    void (*on_lost)(void *arg);
    void *arg;
};

/* What of the options changes while the daemon runs: as the members of gm_engine_config. So do the
 * rules, in their place. */
struct gm_engine_tuning {
    enum gm_sched_class best_class;
    uint64_t idle_ns;
};

/* What a program asks for itself, as HELLO told it: not checked. */
struct gm_wishes {
    uint32_t class;    /* 0 not said, 1 + enum gm_sched_class */
    uint32_t weight;   /* thousandths; 0 not said */
    uint32_t oversize; /* enum gm_hello_oversize */
    uint32_t cap_is;   /* enum gm_hello_cap */
    uint64_t cap;      /* bytes */
    bool has_part;     /* no wish: a rule gives it a part of the GPU, if it shares by MPS */
};

/* A program that said HELLO. */
struct gm_newcomer {
    struct gm_session *session;
    pid_t pid;
    uint64_t started; /* its process, as the system counts: tells it from a later one of that pid */
    uid_t uid;
    bool is_admin;    /* rules do not bound what it may wish for */
    uint16_t version; /* of the protocol, that it and this daemon speak */
    const char *name;
    struct gm_wishes wishes;
};

/* What a trim gives back, in bytes. */
struct gm_trimmed {
    uint64_t gpu, pinned, paged;
};

/* SET: the programs that all of `selects` select, what to change, and who asks. */
struct gm_set_request {
    uint32_t selects; /* enum gm_set_select, at least one */
    pid_t pid;
    uid_t uid;
    const char *command;
    struct gm_settings settings; /* legal, at least one */
    uid_t asker;
    bool is_admin; /* it may set what others' programs do */
};

/* What SET has done. */
struct gm_set_done {
    uint32_t changed;       /* programs */
    struct gm_reason later; /* LATER: a program that stands still; NONE: all holds now */
};

#endif
