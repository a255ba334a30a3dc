/* clang-format off */
/*
 * The engine's insides, shared by the files of this folder only.
 *
 *   engine.c         opening, closing, the run loop: decision -> app states -> moves -> gates
 *   apps.c           messages of the shims: join, leave, ALLOC, FREE, WANT, DRAINED, DONE
 *   client.c         programs on all their GPUs: shared memory, and the gate
 *   groups.c         what runs together
 *   machine.c        the engines of all GPUs
 *   waiting.c        allocations for which there is no room now
 *   spares.c         freed memory that programs keep: taken back when room is wanted
 *   room.c           what programs can still allocate
 *   refusals.c       refusals of memory, and why
 *   idle.c           which apps are idle
 *   moves.c          planning, and carrying plans out
 *   shadows.c        unchanged chunks are not copied out: shadows and hashes
 *   chunks.c         the ends of copies, maps and unmaps; the end of freed chunks
 *   frames.c         making, passing on and destroying frames
 *   memory.c         how much memory is made, kept and given back; the budget
 *   batches.c        MAP, UNMAP and DROP messages and their answers
 *   places.c         what of programs is resident and what is mapped on the host
 *   caps.c           the most device memory that an app may occupy
 *   saving.c         the end of the daemon: giving programs their memory back
 *   shares.c         memory that several programs map: SHARE, OPEN, SHUT
 *   timeslices.c     how long each program's kernels keep the GPU
 *   turns.c          best-effort programs take turns beside a latency-critical one
 *   hints.c          holding others for a request that is announced
 *   deadlines.c      the timer: answers that do not come, retries
 *   feed.c           what the scheduler is told, and what it decided
 *   policy.c         settings of programs
 *   switches.c       how long switches took
 *   log.c            notes of decisions
 *   events.c         what happens: counted, and handed to the views
 *
 * daemon/views reads this state, too, and changes nothing.
 *
 * Every event (a message, a timer, the end of a copy) changes the state and ends with
 * gm_engine_run, which goes round until nothing more can be done now. It never blocks.
 */
/* clang-format on */
#ifndef GM_DAEMON_ENGINE_STATE_H
#define GM_DAEMON_ENGINE_STATE_H

#include "common/clock.h"
#include "common/shm.h"
#include "daemon/memory/claim.h"
#include "daemon/core/admit.h"
#include "daemon/core/budget.h"
#include "daemon/core/events.h"
#include "daemon/core/hint.h"
#include "daemon/core/need.h"
#include "daemon/core/place.h"
#include "daemon/core/plan.h"
#include "daemon/core/saving.h"
#include "daemon/core/sched.h"
#include "daemon/core/table.h"
#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"
#include "daemon/memory/cuda.h"
#include "daemon/engine/client.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/groups.h"
#include "daemon/memory/frames.h"
#include "daemon/memory/hash.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/mover.h"
#include "daemon/memory/stores.h"

/* OPEN and SHUT: MAP and UNMAP of what another program shares; never built up, sent at once. */
enum gm_batch_kind {
    GM_BATCH_MAP,
    GM_BATCH_UNMAP,
    GM_BATCH_DROP,
    GM_BATCH_KINDS,
    GM_BATCH_OPEN = GM_BATCH_KINDS,
    GM_BATCH_SHUT,
};
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

/* Copies that are submitted as soon as their chunks are unmapped. */
struct gm_coming {
    uint32_t copies;
    uint64_t bytes;
};

/* Running sums from which a switch is the difference of two moments. */
struct gm_moment {
    uint64_t at;
    uint64_t plan_ns, lower_ns, pinned_ns;
    uint64_t bytes[GM_WAYS];  /* submitted */
    uint64_t lowered, raised; /* bytes copied from pinned memory down, and up to it */
    uint64_t clean, zero;     /* bytes evicted without a copy: not changed, and all zero */
};

/* Why an allocation was refused: its word in the log. */
#define GM_REFUSALS(X)                                                                             \
    X(NONE, "none")                                                                                \
    X(BUDGET, "budget")     /* no program gets more */                                             \
    X(PINNED, "pinned")     /* what is beyond the budget has no room in pinned memory */           \
    X(USER, "user")         /* the programs of its user have all that a rule gives them */         \
    X(LIMIT, "limit")       /* a variable of its environment says how much it may have in all */   \
    X(FULL, "full")         /* all tiers are */                                                    \
    X(DEADLOCK, "deadlock") /* it waited for others that waited for it */                          \
    X(HOST, "host")         /* the system gives no host memory */                                  \
    X(MAP, "map")           /* the program could not map it */                                     \
    X(DRIVER, "driver")     /* the driver's own memory: gpumux was not asked */
enum gm_refusal_reason {
#define GM_REFUSAL(NAME, name) GM_REFUSED_##NAME,
    GM_REFUSALS(GM_REFUSAL)
#undef GM_REFUSAL
};
/* An allocation that was refused, as things were then. */
struct gm_alloc_refusal {
    enum gm_refusal_reason reason;
    uint64_t bytes, held;  /* what was asked for, and what the program had */
    uint64_t limit;        /* budget, pinned memory or all tiers: the reason says which */
    uint64_t taken;        /* of it */
    bool is_unswappable;   /* pinned memory is too small to swap anything */
    bool is_host_mappable; /* the GPU can read host memory */
};

struct gm_app {
    enum gm_app_state state;
    struct gm_client *client;
    struct gm_session *session; /* NULL when gone */
    pid_t pid;
    uid_t uid;
    char name[64];
    struct gm_ctl *ctl;
    struct gm_stat *stat;

    /* Each struct is of the file that it names: no other writes it, but for what it says. */

    struct {             /* apps.c */
        uv_poll_t *poll; /* on its pidfd; NULL: it has exited, or cannot be watched */
        int pidfd;
        uint64_t left_at; /* when its connection ended */
        bool is_late;     /* it was waited for long enough: only host frames wait for it now */
    } exit;
    struct {                   /* apps.c, waiting.c, ahead.c: ALLOCs that are not answered yet */
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
    struct {         /* engine.c */
        uint64_t epoch;
        uint32_t opens; /* how often it was opened: shadows.c */
        uint64_t closed_at;
        bool is_late;         /* no answer to CLOSE long after the deadline */
        bool is_parked;       /* PAUSED, LOADING: its work stands still on the GPU */
        uint32_t busy_reason; /* enum gm_drain_reason of the last refused drain, 0 if it drained
                                 since */
    } gate;
    struct {                  /* idle.c; engine.c: active_at */
        bool is_idle;         /* told the scheduler so */
        uint64_t calls;       /* at the last sample */
        uint64_t active_at;   /* when it last did something */
        bool is_asked;        /* whether its GPU work is over: a QUERY, which it has not answered */
        uint64_t query;       /* number of the newest QUERY */
        uint64_t asked_epoch; /* the gate's epoch then */
        uint64_t quiet_at;    /* when it answered, and it did nothing since; 0: it did */
        uint64_t ask_at;      /* do not ask before: it could not tell */
        uint64_t ask_wait;    /* ... how long that was after its answer */
        uint64_t want_at;     /* deadlines.c: it is parked and gave its turn back: it asks again
                                 then; 0: no need */
    } idle;
    struct { /* batches.c */
        struct gm_batch *building[GM_BATCH_KINDS];
        struct gm_batch *sent, **sent_tail;
        uint8_t *imports;     /* a bit a frame index: it holds an import of that frame */
        uint64_t answered_at; /* when it last answered one, or CLOSE */
        uint64_t ping;        /* must be answered before memory is moved for it; 0: none */
        uint32_t unanswered_maps;
    } batches;
    struct { /* moves.c, chunks.c, batches.c, places.c */
        struct gm_coming coming[GM_WAYS];
        uint64_t progress_at; /* while LOADING: when its memory last came nearer */
        uint64_t retry_at;    /* do not load before: a mapping, or a copy from a lower tier, failed
                               */
        int raise_error;      /* -errno of the copy; 0: one from the disk ended well since, or a
                                 mapping failed */
    } moves;
    struct {                        /* places.c; engine.c: is_held */
        bool is_held;               /* its gate is closed for exchanges only: it keeps its turn */
        bool is_wanted;             /* its chunks are to get new places as soon as it is quiet */
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
    struct {                  /* caps.c */
        uint64_t bytes;       /* the most device memory; 0: no such limit */
        uint64_t user_gpu;    /* that all apps of its user may occupy there; 0: no such limit */
        uint64_t user_pinned; /* ... and may need of pinned memory */
        uint64_t bend;        /* bytes that it may occupy for now beyond what it needs to run */
    } cap;
    struct {                    /* switches.c */
        struct gm_moment begin; /* when it was last chosen to run */
        /* ... and what had happened since, when the next one was chosen beside it */
        uint64_t first_copy_at[GM_WAYS], last_drain_at;
    } chosen;
    struct {                          /* spares.c */
        uint64_t seen[GM_SPARES_MAX]; /* gm_stat.spares at the last look */
        uint64_t look_at;             /* when the next one is due */
    } spares;
    struct {                            /* refusals.c */
        struct gm_alloc_refusal newest; /* reason NONE: none since the log */
        uint64_t told_at;               /* when it was last told; 0: never */
        uint64_t due;                   /* look again then; 0: no need to */
    } refusal;
    struct {                 /* hints.c */
        struct gm_hold hint; /* whose time has not come; end 0: none */
        struct gm_hint_rate rate;
        struct gm_hold_account account;
        uint64_t n, n_ignored; /* of its own */
        uint64_t holds;        /* times that it was held for others' */
    } hints;
    uint64_t short_turns;              /* turns.c: that it had */
    struct {                           /* policy.c; timeslices.c, log.c */
        struct gm_settings admin, own; /* what was said of it, by whom */
        bool is_limited;               /* its share of the GPU's time is */
        uint64_t timeslice_us;         /* as it was told; 0: the driver's own */
        uint32_t level;                /* as the log last told it */
    } policy;
    bool is_given_up; /* it cannot be saved, and was told: saving.c */

    uint64_t counts[GM_EVENTS]; /* of those that are about it: events.c */
};

/* An ALLOC that waits until the tiers can hold it. */
struct gm_waiting_alloc {
    struct gm_admit_request ask; /* first: the list links these */
    struct gm_msg_alloc alloc;
};

/* How long one switch took and where the time went: from the decision to let the app run to its
 * open gate. Times in nanoseconds; copying in and out overlaps with both waits. */
struct gm_switch {
    uint64_t seq;
    uint32_t app;
    pid_t pid;
    uint64_t at; /* when its gate opened */
    uint64_t total_ns;
    uint64_t drain_ns; /* until the last app that had to yield was quiet */
    uint64_t plan_ns;  /* in the planner: processor time */
    uint64_t copy_ns;  /* from the first copy submitted to the last one ended, both ways */
    uint64_t way_ns[GM_WAYS];
    uint64_t map_ns;    /* after the last copy: for the shims */
    uint64_t lower_ns;  /* with a copy between host tiers under way */
    uint64_t pinned_ns; /* without: waiting for pinned room, which copies in give back */
    uint64_t bytes[GM_WAYS];
    uint64_t lowered, raised; /* bytes copied from pinned memory down, and up to it, meanwhile */
    uint64_t clean, zero;     /* bytes evicted without a copy, meanwhile */
};

/* The log (log.c): a program as it was when something was decided. */
struct gm_party {
    uint32_t app;
    pid_t pid;
    char name[64];
    uint32_t level;
    const char *why; /* one word */
};
struct gm_note {
    /* These are the journal's (views/journal.c). */
    int gpu;
    uint64_t seq;            /* 1 and up */
    uint64_t at;             /* gm_now() */
    uint64_t wall;           /* the same, nanoseconds since 1970 */
    enum gm_event_kind kind; /* SWITCH, LEVEL, SET or REFUSED */

    struct gm_party app;
    /* SWITCH: whose place it took, and after what wait. */
    struct gm_switch took;
    uint64_t wait_ns;
    struct gm_party leavers[GM_NOTE_LEAVERS];
    uint32_t n_leavers; /* there may be more than are named */
    /* LEVEL: where it was before. */
    uint32_t from;
    /* SET */
    uid_t by;
    struct gm_settings said;       /* what was changed */
    struct gm_sched_policy policy; /* what holds now */
    /* REFUSED: the last one, and how many there were since the entry before. */
    struct gm_alloc_refusal refusal;
    uint64_t n_refused;
};

/* Who yielded lately, until a switch takes its place (log.c). */
struct gm_leaver {
    struct gm_party party;
    uint64_t at; /* 0: free */
    bool has_left;
};

/* The daemon is about to end (saving.c). */
struct gm_stopping {
    bool is_on, is_over;
    uint64_t until; /* then it ends, whoever is saved */
    uint32_t host;  /* app whose rest is being mapped on the host; GM_NONE: none */
    struct gm_saving *apps;
    uint32_t *set; /* whose gates are to be open: the decision's */
    void (*on_saved)(void *arg);
    void *arg;
};

/* What the engine knows of a frame beyond the table. */
struct gm_frame_state_more {
    uint32_t drops;         /* DROPs not yet confirmed, while condemned */
    uint32_t silent;        /* ... of those, owed by apps that do not answer */
    bool is_counted;        /* in the table's `ending` bytes */
    uint32_t exit_of;       /* app whose process must have exited first; GM_NONE: none */
    struct gm_share *share; /* that it is part of, NULL: none */
    uint32_t page;          /* host frame: its unit, which is freed with it */
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
    uint32_t maker; /* app and process that the owner is, or was */
    pid_t pid;
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
    uint32_t member; /* one of its apps */
    uint64_t bytes;
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
    bool has_lower;            /* there are tiers below pinned memory */
    uint64_t window;           /* pinned bytes that stay free for streaming */
    uint64_t reserve;          /* ... of which evictions leave this much: gm_plan_reserve */
    uint64_t ending[GM_TIERS]; /* bytes that copies under way give back in their tier */
    uint64_t lower_retry_at;   /* the disk could not be written: do not try before */
    int lower_error;           /* -errno of that, 0 if it could be written since */
    uint32_t host_copies;      /* copies between host tiers under way */
    uint64_t host_bytes;       /* ... and what they copy in memory */
    uint64_t disk_bytes;       /* ... and from and to the disk */
    bool is_short_of_pages;    /* an eviction found no pinned room in this round */
    bool is_stuck_for_pages;   /* ... and nothing under way gives any back */
    bool is_lower_used;        /* as pinned memory was last asked for: something lies below it */
    uint32_t short_from;       /* of `targets`: those from here on ... */
    uint32_t short_to;         /* ... up to here lack room on a disk that cannot be written */
    uint64_t lower_since;      /* when the wait for lower tiers began, 0: it does not wait */
    uint64_t pinned_since;     /* ... for pinned room alone */
    struct gm_admit_request *waiting, **waiting_tail; /* each a gm_waiting_alloc's */
    struct gm_admit admit;
    struct gm_admit_app *admit_apps; /* by app id; filled for each step */
    uint64_t waiting_wake_at;        /* time alone may bring about something for one of them */
    struct gm_mover *mover;
    struct gm_hasher *hasher;          /* NULL: nothing is hashed */
    bool is_hashing_off;               /* the GPU refused it since */
    uint32_t hash_ring[GM_HASH_DEPTH]; /* chunk of hash n: [n % GM_HASH_DEPTH] */
    uint64_t hashes_taken;             /* hashes whose end was taken over */
    struct gm_coming hashing;          /* chunks that are hashed now */
    uint64_t shadows_told;             /* gm_engine_wanted_shadows when memory.c last asked */
    uv_timer_t timer;

    struct gm_app *apps; /* by app id */
    uint32_t n_apps;     /* in use */
    struct gm_frame_state_more *frame_more;
    uint32_t *ring[GM_WAYS]; /* chunk of copy n: ring[n % GM_WAY_DEPTH]; GM_NONE: of none */
    uint64_t taken[GM_WAYS]; /* copies whose end was taken over */
    struct gm_coming coming[GM_WAYS]; /* of all apps that answer */
    uint32_t *late;                   /* unmapped chunks that wait for room in the mover */
    uint32_t n_late;
    uint32_t *failed; /* chunks whose copy in, or mapping, must be tried again */
    uint32_t n_failed;
    uint64_t copy_retry_at; /* ... then, and nothing is evicted before; 0: now */
    uint64_t copy_wait; /* ... how long that was after the last failure; 0: it went well since */
    uint32_t *unsent;   /* chunks whose MAP or UNMAP is in no batch: their apps' sessions end */
    uint32_t n_unsent;

    struct gm_plan plan;
    bool plan_is_stale;
    bool plan_is_prefetch; /* the plan is for apps that come next; nobody waits for it */
    uint32_t plan_from;    /* moves before it are done */
    uint32_t plan_evicts;  /* evictions of it that are not */
    uint32_t *targets, *victims, *donors;
    bool *in_set;
    struct gm_timeslice_app *running; /* filled for each decision on timeslices */
    uint32_t n_running;
    struct { /* turns.c; timeslices.c: are_on */
        bool are_on;
        uint32_t whose; /* the app that had the last one */
        uint64_t until; /* 0: nobody has one */
    } turns;
    uint32_t *condemned;
    uint32_t n_condemned;
    bool reap_more; /* condemned frames could be destroyed at once, but it takes long */
    uint64_t create_retry_at;
    uint64_t pool_retry_at;   /* pinned memory was refused: ask again then */
    CUresult pool_refusal;    /* ... why, as it was logged */
    uint64_t room;            /* as the scheduler was told */
    uint64_t first_budget;    /* at the start */
    bool is_budget_auto;      /* it follows what the device has; else it was given */
    uint64_t device_reserve;  /* of the device, that is left to others: core/budget.h */
    uint64_t budget_check_at; /* look then what the device has; 0: no need to */
    struct gm_lately frames_lately, pinned_lately; /* bytes that were needed */
    uint32_t created;                              /* frames made in this round */
    uint32_t clear_at;          /* frame at which the next round of clearing begins */
    bool create_more;           /* more could be made at once, but it takes long */
    CUresult create_error;      /* why the last frame could not be made */
    const char *create_refused; /* ... which the budget is yet to follow; NULL: it has */

    uint64_t now; /* read once an entry */
    uint64_t sample_at;
    uint64_t settings_since; /* of users: n_settings since then */
    uint32_t n_settings;
    uint64_t next_batch;
    bool again;      /* go round once more */
    bool is_running; /* inside gm_engine_run */
    bool is_called;  /* gm_engine_call, since that began */
    bool is_closing;

    uint32_t *unit_frame;   /* by the first page of a unit: its host frame; GM_NONE: none */
    bool is_short_of_units; /* a chunk that is to be mapped on the host found none */
    bool is_out_of_units;   /* ... and pinned memory is as large as it may be */
    struct gm_stopping stopping;
    struct gm_share *shares;
    struct gm_open *opens;
    uint32_t next_share;
    uint64_t told_fixed, told_budget; /* that the budgets on the ctl pages follow from */
    struct gm_moment sums;
    uint64_t first_copy_at[GM_WAYS], last_copy_at[GM_WAYS], last_drain_at;
    struct gm_switch history[GM_HISTORY];
    uint64_t n_history;     /* switches recorded since the start */
    uint32_t features_told; /* enum gm_feature: which the log has */
    struct gm_leaver leavers[GM_LEAVERS];
    bool has_decided;           /* the scheduler was asked: levels may have changed */
    uint64_t counts[GM_EVENTS]; /* events since the start: events.c */
};

static inline uint64_t gm_chunk_bytes(const struct gm_chunk *chunk)
{
    return gm_class_bytes(chunk->class);
}

/* engine.c */
void gm_engine_run(struct gm_engine *engine);
/* The one setter of app states; false when the event is not legal in the app's state. */
bool gm_engine_turn(struct gm_engine *engine, uint32_t app, enum gm_app_event event);
/* Numbers of batches of engine n begin at n times this. */
#define GM_ENGINE_BATCHES (1ull << 56)
/* Go round soon: something in another engine has changed. */
void gm_engine_call(struct gm_engine *engine);
/* Close the gate of a running app, and ask for its answer. */
void gm_engine_close_gate(struct gm_engine *engine, uint32_t app);
const char *gm_engine_tier_text(enum gm_tier tier);
/* The answer to CLOSE; NULL: none came in time. */
void gm_engine_drained(struct gm_engine *engine, uint32_t app,
                       const struct gm_msg_drained *drained);
/* Close the gate of a running app for exchanges; the scheduler is not told. */
void gm_engine_hold(struct gm_engine *engine, uint32_t app);
/* Bytes that all apps together may commit: what the tiers hold less the room a swap needs. */
uint64_t gm_engine_capacity(const struct gm_engine *engine);
/* Bytes that programs together can have mapped on the host: pinned memory less the streaming
 * window. */
uint64_t gm_engine_host_room(const struct gm_engine *engine);

/* A copy failed: no more of that for a while. */
void gm_engine_back_off(struct gm_engine *engine);

/* apps.c */
/* Bytes that the app needs on the GPU to run, beside those that stay there whoever runs. */
uint64_t gm_engine_movable(const struct gm_engine *engine, uint32_t app);
/* Answer ALLOC of a pending allocation, once. On failure the allocation is taken back. */
void gm_engine_answer_alloc(struct gm_engine *engine, uint32_t allocation, CUresult result);
void gm_engine_answer_allocs(struct gm_engine *engine, uint32_t app);
/* Commit what an ALLOC asks for. False: the tiers cannot hold it now; how many bytes they lack. */
bool gm_engine_commit(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
/* Whether a program could have `bytes` more if it were alone. */
bool gm_engine_can_ever_have(const struct gm_engine *engine, uint32_t app, uint64_t bytes);
void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t app, uint64_t cookie);
/* A spare of its program's is the daemon's again: as if FREE had come, but TAKEN is the answer. */
void gm_engine_take_back(struct gm_engine *engine, uint32_t allocation);
/* End the slots of GONE apps of which nothing is left. */
void gm_engine_bury(struct gm_engine *engine);
/* The process of a GONE app has ended, or is taken to have. */
void gm_engine_exited(struct gm_engine *engine, uint32_t app);
/* It has not, and was waited for long enough. */
void gm_engine_exit_late(struct gm_engine *engine, uint32_t app);
/* Whether a process that has yet to end may have the frame mapped. */
static inline bool gm_engine_may_reach(const struct gm_app *app, uint32_t frame)
{
    return app->state == GM_APP_GONE && app->exit.poll &&
           (app->batches.imports[frame / 8] >> (frame % 8) & 1);
}
/* Release an app's shared memory, batches and watch; its table entries are not touched. */
void gm_engine_free_app(struct gm_engine *engine, uint32_t app);

/* ahead.c */
/* An allocation that nobody waits for (GM_ALLOC_AHEAD). False: refused, nothing changed. */
bool gm_engine_admit_ahead(struct gm_engine *engine, uint32_t app,
                           const struct gm_msg_alloc *alloc);
/* Those of `app` that are not there yet are refused. */
void gm_engine_call_off_ahead(struct gm_engine *engine, uint32_t app);

/* What one app may have on the GPU, beside what is fixed there. */
uint64_t gm_engine_gpu_limit(const struct gm_engine *engine);
/* What `app` can still be given. What it has is taken, and what others keep on the GPU for good
 * because it is shared. */
uint64_t gm_engine_room_for(const struct gm_engine *engine, uint32_t app);
/* What it could still be given of the budget, on the GPU or not. */
uint64_t gm_engine_budget_room_for(const struct gm_engine *engine, uint32_t app);
/* What of gm_engine_room_for is on the GPU. */
uint64_t gm_engine_gpu_room_for(const struct gm_engine *engine, uint32_t app);

/* spares.c */
/* Bytes that `app` freed and keeps, as it says. */
uint64_t gm_engine_spare_bytes(const struct gm_engine *engine, uint32_t app);
/* Take back as many of them as make `least` bytes, or all. Returns how many bytes. */
uint64_t gm_engine_take_spares(struct gm_engine *engine, uint32_t app, uint64_t least);
void gm_engine_take_all_spares(struct gm_engine *engine);
/* Take those back that were there when GM_SPARES_KEEP_NS ago somebody looked. */
void gm_engine_age_spares(struct gm_engine *engine, uint32_t app);
/* `asker` is about to have `bytes`: take back the spares that are in the way. */
void gm_engine_make_room(struct gm_engine *engine, uint32_t asker, uint64_t bytes);

/* waiting.c */
/* What an ALLOC asks for: have it, wait for it, or be refused. */
void gm_engine_admit(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
/* Retry the allocations that wait for room. */
void gm_engine_admit_waiting(struct gm_engine *engine);
bool gm_engine_is_waiting_at(const struct gm_engine *engine, uint32_t app, uint64_t va);
/* `app` is gone. */
void gm_engine_forget_waiting(struct gm_engine *engine, uint32_t app);

/* features.c: put into the log what programs do without, each feature once. */
void gm_engine_note_features(struct gm_engine *engine);

/* refusals.c */
/* An allocation of `app` is refused. GM_REFUSED_NONE: for want of room, which may be of any kind.
 */
void gm_engine_refused(struct gm_engine *engine, uint32_t app, uint64_t bytes,
                       enum gm_refusal_reason reason);
/* Put into the log what programs were refused, once a second each. */
void gm_engine_note_refusals(struct gm_engine *engine);
/* `app` leaves: what is not in the log yet. */
void gm_engine_note_last_refusal(struct gm_engine *engine, uint32_t app);
/* When gm_engine_note_refusals has something to do though nothing happens. */
uint64_t gm_engine_refusals_due(const struct gm_engine *engine);
/* "all tiers together hold 3.0G, and 2.9G are taken", and which options to raise. */
const char *gm_engine_refusal_text(const struct gm_alloc_refusal *refusal, char *text, size_t size);
const char *gm_engine_refusal_raise(const struct gm_alloc_refusal *refusal);
const char *gm_engine_refusal_word(enum gm_refusal_reason reason);

/* room.c */
/* Put on the ctl pages what each program could allocate now. After every change of what is
 * committed, before the program hears of it. */
void gm_engine_tell_room(struct gm_engine *engine);
/* What all tiers can still hold. */
uint64_t gm_engine_left(const struct gm_engine *engine);
/* What a program that has nothing yet could allocate now. */
uint64_t gm_engine_newcomer_room(const struct gm_engine *engine, bool is_oversize);
/* What programs are told the GPU to have: the budget, and if they may be larger what of them can be
 * mapped on the host. */
uint64_t gm_engine_total(const struct gm_engine *engine, bool is_oversize);

/* idle.c */
/* Look which apps do something, and ask those running ones that seem not to. */
void gm_engine_sample(struct gm_engine *engine);
/* An app began to run, or was paused: its idleness is noticed in time although all were idle. */
void gm_engine_sample_soon(struct gm_engine *engine);
/* A thread of it waits at the closed gate. */
void gm_engine_wants(struct gm_engine *engine, uint32_t app);
/* The answer to QUERY. */
void gm_engine_quiet(struct gm_engine *engine, uint32_t app, const struct gm_msg_quiet *quiet);

/* moves.c */
/* Whether one more copy can be submitted that way, beside those to come. */
bool gm_engine_has_room(const struct gm_engine *engine, enum gm_way way);
/* A copy of the chunk is to come that way, as soon as the chunk is unmapped; and now it comes, or
 * is not needed any more. */
void gm_engine_expect_copy(struct gm_engine *engine, enum gm_way way, uint32_t chunk);
void gm_engine_copy_comes(struct gm_engine *engine, enum gm_way way, uint32_t chunk);
/* The app does not answer, or does again: no room in the mover is kept for what it has yet to
 * unmap, or it is. */
void gm_engine_count_silence(struct gm_engine *engine, uint32_t app, bool is_silent);
/* The chunk is being evicted and its owner has unmapped it: copy it out and free its frame. Late
 * answers may find no room in the mover: those chunks wait, as if their copies were under way. */
void gm_engine_copy_out(struct gm_engine *engine, uint32_t chunk);
/* Clear free frames that held data, while no plan is being carried out: memory that a program has
 * not written reads as zero, and an allocation is not to wait for that. */
void gm_engine_clear_frames(struct gm_engine *engine);
/* Once more: copy the chunk from pinned memory to the frame that it has, or clear that. */
void gm_engine_copy_in(struct gm_engine *engine, uint32_t chunk);
/* Clear the pages of the chunk, which is CLEARING. */
void gm_engine_clear_pages(struct gm_engine *engine, uint32_t chunk);
/* Begin to copy the chunk, settled below the GPU, to the pages at `to_page` of `to`. */
void gm_engine_copy_below(struct gm_engine *engine, uint32_t chunk, enum gm_tier to,
                          uint32_t to_page);
/* In which of the two sums copies between these tiers are, which are below the GPU. */
static inline uint64_t *gm_engine_copied_below(struct gm_engine *engine, unsigned from, unsigned to)
{
    return from == GM_TIER_DISK || to == GM_TIER_DISK ? &engine->disk_bytes : &engine->host_bytes;
}

void gm_engine_plan(struct gm_engine *engine);
void gm_engine_move(struct gm_engine *engine);

/* shadows.c */
void gm_engine_open_hasher(struct gm_engine *engine);
/* Pinned bytes that hold data, without shadows. */
uint64_t gm_engine_pinned_used(const struct gm_engine *engine);
/* Take pinned pages for `bytes`, of shadows if need be; GM_NONE: there are too few. */
uint32_t gm_engine_take_pinned(struct gm_engine *engine, uint64_t bytes);
/* Drop the shadow that is used last. False: there is none. */
bool gm_engine_yield_shadow(struct gm_engine *engine);
/* Bytes for which shadows are to have pages: those that are kept, and that are lost. */
uint64_t gm_engine_wanted_shadows(const struct gm_engine *engine);
/* Drop the shadow of a chunk, those of an allocation or an app, all. */
void gm_engine_drop_shadow(struct gm_engine *engine, uint32_t chunk);
void gm_engine_drop_shadows(struct gm_engine *engine, uint32_t allocation);
void gm_engine_drop_shadows_of(struct gm_engine *engine, uint32_t app);
void gm_engine_drop_all_shadows(struct gm_engine *engine);
/* Pinned memory is not to grow by what is lost. */
void gm_engine_forget_lost(struct gm_engine *engine);
/* The chunk has settled on the GPU and its pages are of no other use: keep them, if they are of
 * this. */
void gm_engine_keep_shadow(struct gm_engine *engine, uint32_t chunk);
/* The chunk's eviction begins: it goes where its shadow is. False: it has none. */
bool gm_engine_claim_shadow(struct gm_engine *engine, uint32_t chunk);
/* The chunk's pages are its copy, or are freed now. One that is kept is dropped. */
void gm_engine_end_shadow(struct gm_engine *engine, uint32_t chunk);
/* The app's gate opens: what it has on the GPU may change. */
void gm_engine_opened(struct gm_engine *engine, uint32_t app);
/* The chunk is being evicted, its owner has unmapped it and it has pages: copy it out, if it has
 * changed. */
void gm_engine_vacate(struct gm_engine *engine, uint32_t chunk);
/* The hashes that have ended since. */
void gm_engine_take_hashes(struct gm_engine *engine);

/* chunks.c */
/* Tell the chunk's app to map the frame it has, or to unmap it. */
void gm_engine_map(struct gm_engine *engine, uint32_t chunk);
void gm_engine_unmap(struct gm_engine *engine, uint32_t chunk);
/* A copy, a map or an unmap of the chunk has ended: take the steps this allows. */
void gm_engine_settle(struct gm_engine *engine, uint32_t chunk);
/* The chunk's frame is nobody's any more; it is mapped nowhere, or its app is gone. */
void gm_engine_give_up_frame(struct gm_engine *engine, uint32_t chunk);
/* A chunk whose allocation is freed, or whose app is gone, is put away as far as possible now. */
void gm_engine_retire(struct gm_engine *engine, uint32_t chunk);
/* The chunk's app does not answer. If the chunk waits to be unmapped and copied out, the pinned
 * pages that were set aside for it are others' now. When it is unmapped after all, it is mapped
 * again. */
void gm_engine_forgo_pages(struct gm_engine *engine, uint32_t chunk);
/* The mover's copies that have ended since. */
void gm_engine_take_copies(struct gm_engine *engine);
/* Try again what failed of copies in and mappings, if it is time. */
void gm_engine_try_failed(struct gm_engine *engine);
/* A copy between host tiers ended: gm_stores_done. */
void gm_engine_host_copied(void *engine, uint32_t chunk, int error);

/* frames.c */
/* A free frame more in `pool`, if that is easily had. */
bool gm_engine_make_free_frame(struct gm_engine *engine, uint32_t pool, unsigned class);
/* A new frame in the budget for `chunk`, used by nobody; GM_NONE: not now. */
uint32_t gm_engine_make_frame(struct gm_engine *engine, const struct gm_chunk *chunk);
/* `frame` is nobody's any more and ends as soon as no copy reads it, no shim holds an import and,
 * if `exit_of` is an app, that app's process is gone with whatever it still ran on the GPU. */
void gm_engine_condemn(struct gm_engine *engine, uint32_t frame, uint32_t exit_of);
/* One DROP of `frame` is answered by `app`, or void. */
void gm_engine_drop_done(struct gm_engine *engine, uint32_t app, uint32_t frame);
/* Tell the scheduler what room there is: the budget, less what programs keep that do not answer. */
void gm_engine_update_room(struct gm_engine *engine);
/* Condemn free frames as long as more than `kept` bytes of frames are there to stay. */
void gm_engine_give_back_frames(struct gm_engine *engine, uint64_t kept);
/* Destroy condemned frames that nothing holds back. */
void gm_engine_reap(struct gm_engine *engine);
/* Keep the table's `ending` bytes right: after any change to what a condemned frame waits for. */
void gm_engine_count_ending(struct gm_engine *engine, uint32_t frame);
/* Destroy the free frames of users that have no app any more: their pools are needed. */
void gm_engine_drop_idle_pools(struct gm_engine *engine);

/* memory.c */
/* The budget of the GPU as programs are told it, and as allocations are admitted by it. One that
 * was given is an upper limit, of which the device may have less now. */
static inline uint64_t gm_engine_offered(const struct gm_engine *engine)
{
    return engine->is_budget_auto ? engine->table->budget : engine->config.budget;
}
/* Have memory made as it is needed now; after any change of what is committed or of the budget. */
void gm_engine_want_memory(struct gm_engine *engine);
/* Give back what was not needed lately; and when there may be some without any event. */
void gm_engine_give_back(struct gm_engine *engine);
uint64_t gm_engine_give_back_at(const struct gm_engine *engine);
/* One app needs so much of the budget, whatever the device has. */
void gm_engine_need_budget(struct gm_engine *engine, uint64_t bytes);
/* Let the budget follow what the device has. `refused`: why no more frames can be made than there
 * are, for the log; NULL: they can. */
#define GM_ENGINE_USED_BESIDE "programs beside gpumux use the GPU's memory"
void gm_engine_follow_budget(struct gm_engine *engine, const char *refused);
/* The same for a frame that was refused in a move, when the moves are made: it frees spares, which
 * the plan still names. */
void gm_engine_follow_refusal(struct gm_engine *engine);
/* ... if it is time to. */
void gm_engine_check_budget(struct gm_engine *engine);
/* From now on the budget is all that the device has left, whatever the option says. */
void gm_engine_take_device(struct gm_engine *engine);

/* batches.c */
/* Into the batch of this kind: a chunk (MAP, UNMAP) or a frame (DROP). */
void gm_engine_batch(struct gm_engine *engine, uint32_t app, enum gm_batch_kind kind,
                     uint32_t item);
/* Send what is in the batches. */
void gm_engine_flush(struct gm_engine *engine);
/* Have the app show that it is there, with an empty batch: memory moved for a stopped one is stuck.
 */
void gm_engine_ping(struct gm_engine *engine, uint32_t app);
/* Have `app` map (OPEN) or unmap (SHUT) `n` places of what it opens. */
void gm_engine_send_places(struct gm_engine *engine, enum gm_batch_kind kind, struct gm_open *open,
                           const uint32_t *places, uint32_t n);
void gm_engine_batch_done(struct gm_engine *engine, uint32_t app, uint64_t batch, int32_t result);
/* The connection of `app` ended: its unanswered batches are void. */
void gm_engine_void_batches(struct gm_engine *engine, uint32_t app);
/* Frames for whose DROP `app` owes an answer will not end while it is silent; and its evictions do
 * not keep pinned memory from others. */
void gm_engine_note_silence(struct gm_engine *engine, uint32_t app, bool is_silent);

/* shares.c */
/* What a program asks. */
void gm_engine_share(struct gm_engine *engine, uint32_t app, const struct gm_msg_share *share);
void gm_engine_open_share(struct gm_engine *engine, uint32_t app, const struct gm_msg_open *open);
/* Whether `app` has opened something at `va`. */
bool gm_engine_has_open(const struct gm_engine *engine, uint32_t app, uint64_t va);
void gm_engine_shut(struct gm_engine *engine, uint32_t app, const struct gm_msg_shut *shut);
/* A batch of places is answered. */
void gm_engine_places_done(struct gm_engine *engine, const struct gm_batch *batch, int32_t result);
/* The owner frees the allocation at `va`, or is gone: nobody can open it any more. */
void gm_engine_unshare(struct gm_engine *engine, uint32_t owner, uint64_t va);
/* The owner's chunk has given `frame` up, which is part of a share. */
void gm_engine_leave_share(struct gm_engine *engine, uint32_t frame);
/* `app` is gone, with all that it had opened. */
void gm_engine_forget_opens(struct gm_engine *engine, uint32_t app);
/* Bytes on the GPU that are nobody's any more, but that others have open. */
uint64_t gm_engine_orphaned(const struct gm_engine *engine);
/* Bytes that the app shares, and that it has open of others'. */
uint64_t gm_engine_shared_bytes(const struct gm_engine *engine, uint32_t app);
uint64_t gm_engine_opened_bytes(const struct gm_engine *engine, uint32_t app);
/* Put on the ctl pages what each program may take, if what is shared has changed. */
void gm_engine_tell_budgets(struct gm_engine *engine);
void gm_engine_close_shares(struct gm_engine *engine);

/* deadlines.c */
void gm_engine_check_deadlines(struct gm_engine *engine);
/* Set the timer to the next thing that time alone brings about. */
void gm_engine_arm_timer(struct gm_engine *engine);

/* feed.c */
/* Make the scheduler. 0, -ENOMEM or -EINVAL; its memory is freed with the tables. */
int gm_engine_open_sched(struct gm_engine *engine);
/* Tell the scheduler what happened. */
void gm_engine_feed(struct gm_engine *engine, enum gm_sched_event_kind kind, uint32_t app,
                    uint64_t bytes);
/* The app is idle, and was for `ago_ns` already. */
void gm_engine_feed_idle(struct gm_engine *engine, uint32_t app, uint64_t ago_ns);
/* What holds for it now. */
void gm_engine_feed_policy(struct gm_engine *engine, uint32_t app,
                           const struct gm_sched_policy *policy);
/* As the functions of core/sched.h: of the unit of the app; `ahead` names an app. */
bool gm_engine_account(const struct gm_engine *engine, uint32_t app,
                       struct gm_sched_account *account);
uint64_t gm_engine_expected(const struct gm_engine *engine, uint32_t app);
bool gm_engine_is_later(const struct gm_engine *engine, uint32_t a, uint32_t b);

/* policy.c */
/* Have the scheduler know what holds for the app. Returns that. */
struct gm_sched_policy gm_engine_apply_policy(struct gm_engine *engine, uint32_t app);
/* The class that holds for it. */
enum gm_sched_class gm_engine_class(const struct gm_engine *engine, uint32_t app);
/* A new app's policy, known to the scheduler: what rules say of it, and its own wishes. */
void gm_engine_first_policy(struct gm_engine *engine, uint32_t app, const struct gm_wishes *wishes);
/* Set whether a new client may have more memory than the budget, as rules and its wishes have it.
 */
void gm_engine_judge_oversize(const struct gm_engine *engine, struct gm_client *client);
/* Whether the app may now. False where the GPU cannot map host memory. */
bool gm_engine_is_oversize(const struct gm_engine *engine, uint32_t app);
/* "app 3 (pid 812, python3)". Returns `text`. */
char *gm_engine_name(const struct gm_engine *engine, uint32_t app, char *text, size_t size);

/* events.c */
/* Something happened: count it and hand it to the views. */
void gm_engine_emit(struct gm_engine *engine, const struct gm_event *event);
/* ... of an event without fields. */
void gm_engine_happened(struct gm_engine *engine, uint32_t app, enum gm_event_kind kind);
/* What changes in the table is emitted. */
void gm_engine_watch_table(struct gm_engine *engine);

/* log.c */
/* `app` does not run any more: it yielded, or ended (`has_left`). */
void gm_engine_note_leaver(struct gm_engine *engine, uint32_t app, bool has_left);
/* `app` is about to run; `took`: if that is a switch, else NULL. */
void gm_engine_note_switch(struct gm_engine *engine, uint32_t app, const struct gm_switch *took);
/* `app` was refused memory, `n` times since the last note of that. */
void gm_engine_note_refusal(struct gm_engine *engine, uint32_t app,
                            const struct gm_alloc_refusal *refusal, uint64_t n);
/* Levels that changed by themselves. */
void gm_engine_note_levels(struct gm_engine *engine);
/* `by` changed what is said of `app`; its level now is no news. */
void gm_engine_note_set(struct gm_engine *engine, uint32_t app, uid_t by,
                        const struct gm_settings *said, const struct gm_sched_policy *policy);

/* switches.c */
/* `app` was chosen: its switch begins. */
void gm_engine_begin_switch(struct gm_engine *engine, uint32_t app);
/* Its gate opens: write down where the time went. */
void gm_engine_record_switch(struct gm_engine *engine, uint32_t app);

/* places.c */
/* What an app's launches used. */
void gm_engine_uses(struct gm_engine *engine, uint32_t app, const struct gm_use_entry *entries,
                    uint32_t n);
/* Places for the chunks of a new allocation. */
void gm_engine_place_new(struct gm_engine *engine, uint32_t allocation);
/* The app is quiet or will soon be: its chunks are to get new places then. */
void gm_engine_want_places(struct gm_engine *engine, uint32_t app);
/* The app may have less on the GPU than it has: it has freed memory on the host, and another member
 * of its group has the room. It gets new places at once. */
void gm_engine_fit_places(struct gm_engine *engine, uint32_t app);
/* Each round: new places for who is quiet, gates that close for that, and the next step of chunks
 * that are to be mapped on the host. */
void gm_engine_place(struct gm_engine *engine);
void gm_engine_map_on_host(struct gm_engine *engine);
/* Tell what of programs that run is read over the link, when that has changed. */
void gm_engine_note_places(struct gm_engine *engine);
/* Whether the gate of a loaded app waits for chunks that leave. */
bool gm_engine_is_placing(const struct gm_engine *engine, uint32_t app);
/* The app's gate opens, or it is paused: what has not got to its new place stays. `is_over`: its
 * turn is over. */
void gm_engine_end_placing(struct gm_engine *engine, uint32_t app, bool is_over);
/* When the gate of a loaded app opens in any case. */
uint64_t gm_engine_placing_due(const struct gm_engine *engine, uint32_t app);
/* An app whose gate was closed for exchanges did not drain. */
void gm_engine_hold_failed(struct gm_engine *engine, uint32_t app);
/* Pinned pages for a chunk that leaves the GPU; GM_NONE: none now. */
uint32_t gm_engine_take_pages(struct gm_engine *engine, const struct gm_chunk *chunk);

/* Bytes that the app has on the GPU or is to have there, and that it may have, beside what is
 * fixed.
 */
uint64_t gm_engine_bytes_for_gpu(const struct gm_engine *engine, uint32_t app);
uint64_t gm_engine_places_room(const struct gm_engine *engine, uint32_t app);

/* caps.c */
/* The cap that counts for the app; 0: none. */
uint64_t gm_engine_cap(const struct gm_engine *engine, uint32_t app);
/* Bytes that programs with caps can have mapped on the host: a part of gm_engine_host_room. */
uint64_t gm_engine_cap_room(const struct gm_engine *engine);
/* Whether it may occupy less of the GPU than the budget, by a cap or a total for its user. */
bool gm_engine_is_capped(const struct gm_engine *engine, uint32_t app);
/* Bytes that the members of the app may have on the GPU by that, beside what stays there anyway;
 * UINT64_MAX: it is not capped. */
uint64_t gm_engine_cap_limit(const struct gm_engine *engine, uint32_t app);
/* What the total of pinned memory for its user leaves; UINT64_MAX: there is none. */
uint64_t gm_engine_user_room(const struct gm_engine *engine, uint32_t app);
/* Whether a chunk of it may come to the GPU now. */
bool gm_engine_may_occupy(const struct gm_engine *engine, uint32_t app, uint64_t bytes);
/* Bytes of it that must leave the GPU. */
uint64_t gm_engine_above_cap(const struct gm_engine *engine, uint32_t app);
/* What of the app is beyond the GPU follows from its memory and its cap: after a change of either.
 */
void gm_engine_fit(struct gm_engine *engine, uint32_t app);
/* Each round: what changes without an event. */
void gm_engine_follow_caps(struct gm_engine *engine);
/* Its cap is `bytes` from now on; 0: it has none. */
void gm_engine_set_cap(struct gm_engine *engine, uint32_t app, uint64_t bytes);
/* Whether it can have that cap: 0, or -errno with one line in `why`. */
int gm_engine_check_cap(const struct gm_engine *engine, uint32_t app, uint64_t bytes, char *why,
                        size_t why_size);
/* Whether pinned memory has room for what is beyond that cap of all `selected` apps (by id), in
 * whole groups. Likewise. */
int gm_engine_check_room(const struct gm_engine *engine, const bool *selected, uint64_t bytes,
                         char *why, size_t why_size);

/* saving.c */
/* While the daemon is about to end: decide whose gates are to be open. */
void gm_engine_choose_saved(struct gm_engine *engine);
/* When it must be looked at again, whatever happens. */
uint64_t gm_engine_saving_due(const struct gm_engine *engine);

/* timeslices.c */
/* Tell programs their timeslices, as far as these are others now. */
void gm_engine_tell_timeslices(struct gm_engine *engine);

/* turns.c */
/* Give the next best-effort program its turn, if it is time. */
void gm_engine_take_turns(struct gm_engine *engine);
uint64_t gm_engine_turn_due(const struct gm_engine *engine);

/* hints.c */
/* Whether the work of a running program can be made to stand still; and do so, in `in_ns` for
 * `for_ns`. */
bool gm_engine_can_hold(const struct gm_engine *engine, uint32_t app);
void gm_engine_send_hold(struct gm_engine *engine, uint32_t app, uint64_t in_ns, uint64_t for_ns);
/* EXPECT. True: the engine must look again at gm_engine_hints_due. */
bool gm_engine_expect(struct gm_engine *engine, uint32_t app, const struct gm_msg_expect *expect);
/* Hold programs for the hints whose time has come. */
void gm_engine_follow_hints(struct gm_engine *engine);
uint64_t gm_engine_hints_due(const struct gm_engine *engine);

#endif
