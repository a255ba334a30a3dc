/*
 * The engine's state, for daemon/engine only. Each struct says which file owns it.
 */
#ifndef GM_DAEMON_ENGINE_STATE_STATE_H
#define GM_DAEMON_ENGINE_STATE_STATE_H

#include "common/clock.h"
#include "common/shm.h"
#include "daemon/core/admit.h"
#include "daemon/core/backoff.h"
#include "daemon/core/check.h"
#include "daemon/core/events.h"
#include "daemon/core/hint.h"
#include "daemon/core/need.h"
#include "daemon/core/parts.h"
#include "daemon/core/layout.h"
#include "daemon/core/plan.h"
#include "daemon/core/room.h"
#include "daemon/core/saving.h"
#include "daemon/core/sched.h"
#include "daemon/core/table.h"
#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"
#include "daemon/core/why.h"
#include "daemon/core/working.h"
#include "daemon/engine/state/engine.h"
#include "daemon/memory/alarm.h"
#include "daemon/memory/claim.h"
#include "daemon/memory/cuda.h"
#include "daemon/memory/frames.h"
#include "daemon/memory/hash.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/meter.h"
#include "daemon/memory/mover.h"
#include "daemon/memory/stores.h"

#define GM_BATCH_MAX ((uint32_t)GM_ENTRIES_DROP)
_Static_assert((int)GM_ENTRIES_MAP <= (int)GM_ENTRIES_DROP &&
                   (int)GM_ENTRIES_UNMAP <= (int)GM_ENTRIES_DROP,
               "a batch of DROP has most items");

/* One MAP, UNMAP or DROP message: being filled, or sent and not yet answered. */
struct gm_batch {
    struct gm_batch *next;
    uint64_t id;
    uint64_t sent_at;
    enum gm_batch_kind kind;
    uint32_t n;
    uint32_t items[GM_BATCH_MAX]; /* chunks (MAP, UNMAP), frames (DROP) or places (OPEN, SHUT) */
    struct gm_open *open;         /* OPEN, SHUT: whose places; void once its app is gone */
    uint8_t had_fd[GM_BATCH_MAX / 8]; /* MAP: the fd was sent along */
};

/* A copy of the mover, or a clear, that has not ended. */
struct gm_copying {
    uint32_t chunk; /* GM_NONE: of none */
    uint64_t bytes; /* over the link */
};

/* ... that has. */
struct gm_ended {
    enum gm_way way;
    uint64_t number;
    CUresult result;
    const char *error; /* the driver's name of it, if it is one */
};

/* What came of making a frame. */
struct gm_made {
    CUresult result;
    const char *error; /* the driver's name of it, if it is one */
    bool is_short_of_files;
};

/* Frames that are asked for, or to be destroyed, at a time: programs on all GPUs wait for so many.
 * Making one takes 0.06 ms, and up to 90 while other processes open and close contexts: the driver
 * serves one after the other. Destroying one takes 0.1 to 0.6, and up to 100: if nobody waits for
 * room, it is one at a time. */
#define GM_CREATE_AT_ONCE 8
#define GM_REAP_AT_ONCE 8
/* ... and host frames; they go into a few messages. */
#define GM_ADOPT_AT_ONCE 64
/* Free frames that are made for an allocation ahead, in some 8 ms. */
#define GM_AHEAD_FRAMES 16

/* A hash that has ended. */
struct gm_ended_hash {
    CUresult result;
    const char *error; /* as of a copy */
    struct gm_hashed hashed;
};

/* Copies that are submitted as soon as their chunks are hashed. */
struct gm_coming {
    uint32_t copies;
    uint64_t bytes;
};

/* Running sums from which a switch is the difference of two moments. */
struct gm_moment {
    uint64_t at;
    uint64_t part_ns[GM_PARTS], way_ns[GM_WAYS], link_ns; /* see core/parts.h */
    uint64_t bytes[GM_WAYS];                              /* submitted */
    uint64_t lowered, raised; /* bytes copied from pinned memory down, and up to it */
    uint64_t clean, zero;     /* bytes evicted without a copy: not changed, and all zero */
};

/* What is left alone for a while after it failed (backoff.c). */
enum gm_retry {
    GM_RETRY_COPY,   /* between the GPU and pinned memory; nothing is evicted meanwhile */
    GM_RETRY_BELOW,  /* writing to the disk */
    GM_RETRY_FRAME,  /* making a frame */
    GM_RETRY_PINNED, /* growing pinned memory */
    GM_RETRIES
};

struct gm_action;
struct gm_action_block;
struct gm_group;
struct gm_copies;

/* One connected program on all its GPUs: client.h. Owned by client.c, but for what it says. */
struct gm_client {
    struct gm_session *session; /* NULL once it has left, or as long as it is lost */
    uint64_t lost_at; /* of a daemon before: its program has yet to come back, since then; 0 */
    struct gm_ctl *ctl;
    struct gm_stat *stat;
    int fds[2];           /* of both areas; -1. That of `ctl` until WELCOME is sent */
    struct gm_kept *kept; /* has the stat area and the lease; NULL: they end with the daemon */
    int lease;            /* pidfd of its process; -1: the system gives none */
    uv_poll_t *exit;      /* on it; NULL: the process has ended, or nobody can tell */
    void (*on_exit)(void *arg, struct gm_client *client);
    void *exit_arg;
    uint32_t id;
    pid_t pid;
    uint64_t started; /* ... its process: struct gm_newcomer */
    uid_t uid;
    uid_t owner;       /* ... and whom it counts for: gm_engine_outlet.owner */
    bool is_admin;     /* its user is one here: struct gm_newcomer */
    uint16_t version;  /* ... likewise */
    uint64_t nonce[2]; /* random: only this program knows it */
    char name[64];
    struct gm_wishes wishes;
    bool is_oversize; /* as rules and wishes have it: set.c */
    uint32_t refs;    /* its apps, and who made it */
    void (*on_end)(void *arg, const struct gm_client *client); /* it is in no group any more */
    void *arg;
    struct gm_engine *engines[GM_GPUS_MAX]; /* by index: where it is an app; NULL: not there */
    struct gm_group *group;
    struct gm_client *next; /* of its group, in the order of ids */

    uint32_t shut;  /* a bit an engine: it wants the gate closed */
    uint64_t epoch; /* of the newest CLOSE */
    bool is_cut;    /* lost, and it cannot come back: absents.c */
    uint64_t again; /* requests up to this cookie may come again: it was told to another daemon */
    enum gm_client_state state;
    bool is_parked;           /* its work stands still on the GPU */
    uint64_t query;           /* number of the newest QUERY */
    uint64_t timeslice_us;    /* as it was told; 0: the driver's own */
    struct gm_copies *copies; /* of its connection, since its process ended; NULL: there are none */
    enum gm_why stop;         /* why it stands still: gates.c */
    enum gm_why stop_seen;    /* ... as it was at the last look, */
    uint64_t stop_calls;      /* ... and how many calls had returned */
    uint32_t owes;            /* a bit for each engine to which an answer of it is overdue */
    uint64_t refused_told;    /* of gm_stat.refused, what the log has */
    uint64_t driver_refused_told; /* ... and of driver_refused */
};

struct gm_app {
    enum gm_app_state state;
    struct gm_client *client;
    struct gm_session *session; /* NULL when gone */
    bool is_cut_off;            /* say.c: the session ends: nothing more is said in it */
    pid_t pid;
    uid_t uid;
    char name[64];
    struct gm_ctl *ctl;
    struct gm_stat *stat;

    /* Each struct is of the file that it names: no other writes it, but for what it says. */

    struct {              /* exits.c */
        bool is_awaited;  /* what it has mapped may wait for the end of its process */
        uint64_t left_at; /* when its connection ended, */
        bool has_hung_up; /* ... whether nobody has that any more, */
        bool was_idle;    /* ... and whether no work of it was on the GPU then */
        bool is_late;     /* it was waited for long enough: only what others would use waits now */
    } exit;
    struct {                   /* allocs.c; waiting.c: waiting. ALLOCs that are not answered yet */
        uint32_t pending;      /* committed */
        uint32_t ahead;        /* ... of which nobody waits for */
        uint32_t ahead_chunks; /* ... and their chunks */
        uint32_t waiting;      /* for room in the tiers */
    } allocs;
    struct {            /* groups.c */
        uint64_t round; /* the last in which it yielded, or opened */
        bool is_called; /* its group wants its turn */
    } group;
    uint32_t unit;   /* feed.c: its number in the scheduler */
    bool is_wanting; /* ... it wants its turn */
    struct {         /* gates.c */
        uint64_t epoch;
        uint32_t opens; /* how often it was opened: shadows.c */
        uint64_t closed_at;
        uint64_t answered_at; /* when it last answered CLOSE, or a batch */
        bool is_parked;       /* PAUSED, LOADING: its work stands still on the GPU */
        uint32_t busy_reason; /* enum gm_drain_reason of the last refused drain, 0 if it drained
                                 since */
    } gate;
    struct {                  /* gates.c */
        bool is_idle;         /* told the scheduler so */
        uint64_t calls;       /* at the last sample */
        uint64_t active_at;   /* when it last submitted something, or had work */
        bool is_asked;        /* whether its GPU work is over: a QUERY, which it has not answered */
        uint64_t query;       /* number of the newest QUERY */
        uint64_t asked_epoch; /* the gate's epoch then, */
        uint64_t asked_at;    /* ... and the time */
        uint32_t n_unused;    /* answers that told of no work; */
        uint64_t used_calls;  /* ... calls as of the newest one */
        uint64_t quiet_at;    /* when it answered, and it did nothing since; 0: it did */
        uint64_t ask_at;      /* do not ask before: it could not tell */
        uint64_t ask_wait;    /* ... how long that was after its answer */
        uint64_t want_at;     /* step.c: it is parked and gave its turn back: it asks again
                                 then; 0: no need */
    } idle;
    struct { /* batches.c */
        struct gm_batch *building[GM_BATCH_KINDS];
        struct gm_batch *sent, **sent_tail;
        uint64_t ping; /* must be answered before memory is moved for it; 0: none */
        uint32_t unanswered_maps;
    } batches;
    struct {                 /* apps.c: level, charged_ns, run_ns, wait_ns */
        uint32_t unanswered; /* batches of what it has, and should not */
        bool is_running;     /* work of it may run */
        uint32_t level;      /* ... of the scheduler, as the daemon before had it */
        uint64_t charged_ns;
        uint64_t run_ns, wait_ns; /* under the daemons before */
    } back;
    bool is_lost_told;       /* step.c: ... that it stays LOST */
    uint64_t progress_at;    /* step.c: while LOADING, when its memory last came nearer */
    struct gm_backoff retry; /* backoff.c: it does not load before: a mapping failed, or a copy from
                                a lower tier */
    struct {                 /* step.c, chunks.c */
        int raise_error;     /* -errno of the copy; 0: one from the disk ended well since, or a
                                mapping failed */
    } moves;
    struct {                        /* places.c; gates.c: is_held */
        bool is_held;               /* its gate is closed for exchanges only: it keeps its turn */
        bool is_wanted;             /* its chunks are to get new places as soon as it is quiet */
        bool is_stale;              /* ... or before its next turn */
        bool is_urgent;             /* ... as memory waits for that */
        uint32_t newest;            /* ... the allocation that waits; GM_NONE */
        uint64_t wanted_at;         /* ... since when */
        uint64_t until;             /* LOADING: when the gate opens though chunks have yet to leave
                                     */
        uint64_t exchanged;         /* bytes brought to the GPU from the host's places */
        uint64_t hold_at;           /* do not close its gate for exchanges before */
        uint64_t hold_failed_until; /* ... nor for memory that waits */
        uint64_t hold_wait;         /* ... how long that was after the last refusal */
        uint64_t told;              /* bytes mapped on the host, as the log last told */
        uint64_t tell_at;           /* ... do not tell again before */
    } places;
    struct {             /* windows.c */
        bool is_on;      /* it has windows, */
        uint32_t number; /* ... of which this is the one now */
        bool is_whole;   /* ... all that it touched in the last of them is known */
        uint64_t ran;    /* how long it has run in the one now, */
        uint64_t since;  /* ... up to this time; 0: it does not run */
        uint64_t unseen; /* gm_stat.unseen when it began */
    } windows;
    struct {                  /* caps.c */
        uint64_t bytes;       /* the most device memory; 0: no such limit */
        uint64_t user_gpu;    /* that all apps of its user may occupy there; 0: no such limit */
        uint64_t user_pinned; /* ... and may need of pinned memory */
        uint64_t bend;        /* bytes that it may occupy for now beyond what it needs to run */
    } cap;
    struct gm_working working; /* places.c */
    struct {                   /* windows.c */
        bool is_known;         /* to core/check */
        bool has_stopped;      /* its turn has ended since the last look */
        bool was_running;      /* as was what follows, at the last look */
        uint64_t on_host;
    } check;
    uint64_t driver;            /* room.c: what the driver keeps for it, as it said */
    uint64_t aside;             /* ... what of its group is beyond and could be on the GPU; of its
                                   first member */
    struct {                    /* log.c */
        struct gm_moment begin; /* when it was last chosen to run */
    } chosen;
    struct {                          /* allocs.c */
        uint64_t seen[GM_SPARES_MAX]; /* gm_stat.spares at the last look */
        uint64_t look_at;             /* when the next one is due */
    } spares;
    struct {                     /* memory.c */
        struct gm_reason newest; /* the daemon's own last one */
        uint64_t n;              /* of these, that the program did not count yet */
        uint64_t told_at;        /* when it was last told; 0: never */
        uint64_t due;            /* look again then; 0: no need to */
    } refusal;
    struct {                 /* turns.c */
        struct gm_hold hint; /* whose time has not come; end 0: none */
        struct gm_hint_rate rate;
        struct gm_hold_account account;
    } hints;
    uint64_t turn_at;     /* turns.c: when the last one began, or when it was first to have one */
    uint64_t held_until;  /* turns.c: until when it stands still for those of others */
    bool is_stopped;      /* gates.c: its process stands still, and the scheduler was told */
    bool is_part_stopped; /* ... or that of another one of its group */
    struct {              /* feed.c, and where a file is named, that one */
        struct gm_settings admin, own; /* what was said of it, by whom */
        uint32_t said;         /* what an administrator said of it: a rule says no more of that */
        bool is_limited;       /* feed.c: its share of the GPU's time is */
        uint64_t timeslice_us; /* turns.c: as it was told; 0: the driver's own */
        uint64_t part_us;  /* ... and as its part of the GPU beside others, if nobody is critical */
        char ignored[384]; /* set.c: what its environment asked for in vain; "": nothing */
        uid_t pauser;      /* the administrator who paused it, */
        bool is_paused_by_rule; /* ... or a rule */
        bool has_called;        /* a rule's pause until its next call is over */
        bool is_ahead;          /* set.c: its memory was asked for ahead of its turn, */
        uint64_t ahead_run_ns;  /* ... when it had run for so long */
        bool has_part;          /* set.c: it shares by MPS, and has a part of the GPU by a rule */
        bool is_unsure;         /* set.c: they may be less strict once more is known of its user */
    } policy;
    uint32_t level_noted; /* log.c: as it last told it */
    bool is_vacating;     /* budget.c: as long as it is paused its memory is to leave the GPU */
    bool is_given_up;     /* it cannot be saved, and was told: budget.c */

    uint64_t counts[GM_EVENTS]; /* of those that are about it: events.c */
};

/* An ALLOC that waits until the tiers can hold it. */
struct gm_waiting_alloc {
    struct gm_admit_request ask; /* first: the list links these */
    struct gm_msg_alloc alloc;
    enum gm_why reason; /* why it could not be had at the last try; NONE: no room in the
                                      tiers */
};

/* What the driver says of the memory of the GPU, when it was last asked. */
struct gm_device_room {
    bool is_known;
    uint64_t free_bytes, total;
};

/* Memory below the GPU that is wanted, and nobody has been told of it (actions.c). */
struct gm_wants {
    bool has_pinned, has_paged, has_units;
    uint64_t pinned, paged;
};

/* Actions in their order, and the memory that they lie in (actions.h). */
struct gm_actions {
    struct gm_action *first, *last;
    struct gm_action_block *blocks, *reserve;
};

/* What comes next of a run (step.c). */
enum gm_stage {
    GM_STAGE_NONE, /* none is under way */
    GM_STAGE_BEGIN,
    GM_STAGE_FOLLOW,
    GM_STAGE_ROUND,
    GM_STAGE_END,
};

/* Who yielded lately, until a switch takes its place (log.c). */
struct gm_leaver {
    struct gm_party party;
    uint64_t at; /* 0: free */
    bool has_left;
};

/* The daemon is about to end (budget.c). */
struct gm_stopping {
    bool is_on, is_over;
    uint64_t until; /* then it ends, whoever is saved */
    uint32_t host;  /* app whose rest is being mapped on the host; GM_NONE: none */
    struct gm_saving *apps;
    uint32_t *set; /* whose gates are to be open: the decision's */
    void (*on_saved)(void *arg);
    void *arg;
};

/* A chunk of it, by address. */
struct gm_share_place {
    uint64_t offset, bytes;
    uint32_t frame; /* GM_NONE: condemned, once nobody has it open */
};

/* An allocation that others may open (shares.c). It lives until its owner freed it, or
 * ended, and nobody has it open. */
struct gm_share {
    struct gm_share *next;
    uint64_t nonce[2];
    uint64_t va, bytes; /* of the owner */
    uint32_t id;
    uint32_t owner; /* app; GM_NONE: it freed the memory, or is gone: nobody can open it any more */
    uid_t uid;
    uint32_t opens;
    uint32_t left;    /* frames that the owner still holds */
    uint32_t left_at; /* where the next one that it gives up is likely to be */
    uint32_t n;
    struct gm_share_place places[];
};

enum gm_open_stage {
    GM_OPEN_OPENING, /* the MAPs are sent, one after the other */
    GM_OPEN_OPEN,
    GM_OPEN_FAILING, /* a MAP failed: what others mapped is unmapped again */
    GM_OPEN_SHUTTING,
};
struct gm_open {
    struct gm_open *next;
    struct gm_share *share;
    uint64_t va, cookie;
    uint32_t app;
    uint32_t asked;      /* places below it were asked for, to be mapped or unmapped */
    uint32_t unanswered; /* batches */
    int32_t result;
    enum gm_open_stage stage;
    uint8_t is_mapped[]; /* a bit a place */
};

/* What the scheduler knows as one app (feed.c), as it was told. */
struct gm_unit {
    bool is_used, is_wanting, is_open;
    bool is_tied;    /* it waits for its turns on other GPUs, too */
    bool is_paused;  /* by its settings, not for one that stands still */
    bool is_evicted; /* ... and its memory is to leave the GPU */
    bool is_asked;   /* set.c: in this run, whether it is called */
    bool is_called;  /* ... the answer */
    uint32_t member; /* one of its apps */
    uint64_t bytes;
};

/* room.c: of the apps of a user, as the last round found it. */
struct gm_user {
    uid_t owner; /* whom the uid counts for, as others may */
    uint64_t driver;
    uint64_t left[2]; /* by ended programs, for ever or as others have copies: GPU, host */
};

struct gm_engine {
    uv_loop_t *loop;
    struct gm_engine_config config;
    struct gm_cuda cuda;
    CUdevice device;
    CUcontext context;
    CUuuid uuid;
    struct gm_claim *claim; /* on the GPU with it; NULL: another daemon has it */
    char gpu_name[96];
    uint64_t device_bytes;

    void *table_memory, *sched_memory;
    struct gm_table *table;
    struct gm_sched *sched;
    struct gm_sched_decision decided;  /* as the scheduler made it, */
    struct gm_sched_decision decision; /* ... and with each member of groups: feed.c */
    uint32_t *set;                     /* ... its memory */
    struct gm_unit *units;             /* by number in the scheduler */
    struct gm_frames frames;
    struct gm_hostpool pool;
    struct gm_stores *stores;
    struct gm_host *host;
    uint64_t pinned_limit;   /* memory.c: as it last was */
    int lower_error;         /* -errno of that, 0 if it could be written since */
    uint32_t host_copies;    /* copies between host tiers under way */
    uint64_t host_bytes;     /* ... and what they copy in memory */
    uint64_t disk_bytes;     /* ... and from and to the disk */
    bool is_short_of_pages;  /* an eviction found no pinned room in this round */
    bool is_stuck_for_pages; /* ... and nothing under way gives any back */
    bool is_lower_used;      /* as pinned memory was last asked for: something lies below it */
    bool is_pinned_full;     /* layout.c: who is to run waits for pinned memory, so others' data
                                comes to the GPU */
    uint64_t reserve;        /* of pinned memory, as of the plan: core/plan.h */
    uint32_t short_from;     /* of the layout's targets: those from here on ... */
    uint32_t short_to;       /* ... up to here lack room on a disk that cannot be written */
    bool is_waiting_below;   /* ... and copies to or from the tiers below are under way */
    struct gm_admit_request *waiting, **waiting_tail; /* each a gm_waiting_alloc's */
    struct gm_admit admit;
    struct gm_admit_app *admit_apps; /* by app id; filled for each step */
    uint64_t waiting_wake_at;        /* time alone may bring about something for one of them */
    struct gm_mover *mover;
    struct { /* act/ledger.c */
        int fd;
        void *memory; /* NULL: there is none */
        size_t bytes;
        uint64_t generation; /* how many there were before it */
        struct gm_ledger is;
    } ledger;
    struct gm_hasher *hasher;          /* NULL: nothing is hashed */
    bool is_hashing_off;               /* the GPU refused it since */
    uint32_t hash_ring[GM_HASH_DEPTH]; /* chunk of hash n: [n % GM_HASH_DEPTH] */
    uint64_t hashes_submitted;         /* that were posted, */
    uint64_t hashes_taken;             /* ... and whose end was taken over */
    struct gm_coming hashing;          /* chunks that are hashed now */
    struct gm_meter *meter;            /* NULL: there is none */
    bool is_metering;                  /* it takes samples */
    struct gm_check check;             /* windows.c, as what follows */
    struct gm_check_app *check_apps;   /* ... its memory */
    struct gm_check_part *check_parts; /* filled for each sample */
    struct {
        uint64_t since;     /* samples that began before do not count */
        uint64_t heard_at;  /* the last sample came */
        uint64_t kept_from; /* since when the same programs run, with what they have on the host */
        uint64_t copies_since; /* the daemon has copied without a pause; 0: it does not */
        bool is_kept;          /* free for a trial: nothing comes ahead of its turn */
        bool was_copying;      /* at the last look */
        bool is_told;          /* the log has that there is no meter */
    } link;
    uint64_t shadows_told; /* gm_engine_wanted_shadows when memory.c last asked */
    struct gm_alarm alarm;
    uint64_t alarm_at; /* when it is due; 0: never */
    /* Deadlines count from here at the earliest: until then the daemon did not run (it was stopped,
     * or the machine was busy), and could not see that a program answered. */
    uint64_t awake_at;

    struct gm_app *apps;   /* by app id */
    struct gm_user *users; /* by the table's pool */
    uint64_t left_on_host; /* room.c: bytes that ended programs may have mapped on the host */
    uint32_t n_apps;       /* in use */
    struct gm_copying *ring[GM_WAYS]; /* copy n: ring[n % GM_WAY_DEPTH] */
    uint64_t submitted[GM_WAYS];      /* copies that were posted */
    uint64_t taken[GM_WAYS];          /* ... and whose end was taken over */
    uint64_t copying[GM_WAYS];        /* bytes of the others */
    uint32_t *late;                   /* unmapped chunks that wait for room in the mover */
    uint32_t n_late;
    uint32_t *failed; /* chunks whose copy in, or mapping, must be tried again */
    uint32_t n_failed;
    uint32_t *unsent; /* chunks whose MAP or UNMAP is in no batch: their apps' sessions end */
    uint32_t n_unsent;

    struct gm_actions posted, carried; /* actions.c */
    struct gm_wants wants;             /* ... likewise */
    enum gm_stage stage;               /* step.c */
    struct gm_device_room seen;        /* step.c: if the input or an answer told of it just now */
    uint32_t rounds;                   /* step.c: that were begun for the newest event */
    struct gm_plan plan;
    bool plan_is_stale;
    uint32_t plan_from;           /* moves before it are done */
    uint32_t plan_evicts;         /* evictions of it that are not */
    struct gm_layout layout;      /* what the plan is to bring about */
    struct gm_layout_app *stands; /* filled for each layout */
    bool *in_set;
    uint32_t *leaving;                /* room.c: who is gone, and whose process is not */
    struct gm_timeslice_app *running; /* filled for each decision on timeslices */
    uint32_t n_running;
    struct gm_turns turns; /* turns.c */
    uint64_t parts_at;     /* turns.c: when the GPU is divided anew */
    bool reap_more;        /* condemned frames could be destroyed at once, but it takes long */
    struct gm_backoff retries[GM_RETRIES];
    CUresult pool_refusal; /* ... why, as it was logged */
    uint64_t room;         /* as the scheduler was told */
    uint64_t aside;        /* room.c: the sum of the apps' */
    bool is_short_of_room; /* caps.c: the GPU is not large enough for all; what is cold goes beyond
                            */
    uint64_t first_budget; /* at the start */
    bool is_budget_auto;   /* it follows what the device has; else it was given */
    uint64_t grace_ns;     /* how long a drain may take before the app is parked: open.c */
    uint64_t device_reserve;  /* of the device, that is left to others: core/room.h */
    uint64_t budget_check_at; /* look then what the device has; 0: no need to */
    struct gm_lately frames_lately, pinned_lately; /* bytes that were needed */
    uint32_t created;                              /* frames that were asked for in this run; */
    uint32_t made[GM_CREATE_AT_ONCE];              /* those that came, and have yet to be taken */
    uint32_t n_made;
    uint32_t ending[GM_REAP_AT_ONCE]; /* condemned frames that are being destroyed */
    uint32_t n_ending;
    struct gm_action *adopting[GM_ADOPT_AT_ONCE]; /* host frames that were asked for */
    uint32_t n_adopting;
    uint32_t clear_at;          /* frame at which the next round of clearing begins */
    bool create_more;           /* more could be made at once, but it takes long */
    CUresult create_error;      /* why the last frame could not be made */
    enum gm_why create_refused; /* ... which the budget is yet to follow; NONE: it has */

    uint64_t now; /* read once an entry */
    uint64_t sample_at;
    struct { /* gates.c */
        uint64_t look_at;
        uint32_t next; /* who is looked at first then */
    } stops;
    uint64_t next_batch;
    bool is_deciding;     /* round.c: scheduler or planner are asked in this part of the step, */
    bool is_planning;     /* ... the planner is */
    uint64_t deciding_ns; /* ... of the parts in which they were, for the newest event */
    bool again;           /* go round once more */
    bool is_running;      /* a run is under way */
    bool is_called;       /* gm_engine_call, since that began */
    uint64_t wake_at;     /* an event of its own is to come then, if none comes before */
    bool is_closing;

    bool is_short_of_units;    /* a chunk that is to be mapped on the host found none */
    bool is_out_of_units;      /* ... and pinned memory is as large as it may be */
    bool is_cut_up;            /* ... though as much is free, in parts of slabs */
    uint64_t empty_at;         /* moves.c: no slab is emptied before */
    bool short_told, out_told; /* ... when units were made last */
    struct gm_stopping stopping;
    struct gm_share *shares;
    struct gm_open *opens;
    uint32_t next_share;
    struct gm_moment sums;
    struct gm_parts parts;
    struct gm_switch history[GM_HISTORY];
    uint64_t n_history;     /* switches recorded since the start */
    uint32_t features_told; /* enum gm_feature: which the log has */
    struct gm_leaver leavers[GM_LEAVERS];
    uint64_t decisions;         /* feed.c: how often the scheduler was asked */
    uint64_t levels_noted;      /* log.c: levels may have changed since that decision */
    uint64_t counts[GM_EVENTS]; /* events since the start: events.c */
};

static inline uint64_t gm_chunk_bytes(const struct gm_chunk *chunk)
{
    return gm_class_bytes(chunk->class);
}

#endif
