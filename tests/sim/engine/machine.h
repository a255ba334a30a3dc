/* clang-format off */
/*
 * The real engine in a simulated machine, of one GPU or two; of up to four for jobs. daemon/engine and daemon/core are
 * linked as they are, and so are the pinned tier, the frames and the pages of daemon/memory. What
 * acts is fake:
 *
 *   machine.c    virtual time: a queue of events. One event is one step of the engine
 *   cuda.c       the driver: memory, handles, addresses
 *   mover.c      copies between the GPU and pinned memory, both ways; clearing
 *   hasher.c     hashes of chunks on the GPU
 *   stores.c     paged memory and disk, with the copies from and to them
 *   uv.c         libuv: the timer, the worker, the end of a process
 *   system.c     the clock, limits, the claim, system calls
 *   program*.c   programs with their shims: they answer, work, allocate, share, stop and die; on
 *                one GPU or both, by themselves or in a group whose members wait for one another
 *   scenario.c   one seed: the machine's size, who comes and goes, settings, the end
 *   jobs.c       beside the seeds: jobs of several programs on several GPUs
 *   turns.c      beside the seeds: how much of the GPU's time is used in turns
 *   events.c     what the engines tell: every change of a state has a row; wrong events are planted
 *   checks*.c    what must hold after every step
 *   stays.c      ... and what working sets must not cost
 *   ledger.c     ... and that a new daemon would find all memory, wherever this one dies
 *   deaths.c     beside the seeds: it dies, and another one comes
 *   kept.c       the keeper
 *
 * Everything is drawn from one seed, so a failure can be replayed. Virtual time passes only between
 * steps. A fake only queues work and never calls the engine from inside a call: what the engine asks
 * for ends in an event of its own, after a time that is drawn. While `is_faulty` each fake fails at
 * times, by the rates in `faults`.
 *
 * Contents. No byte is copied. A page of 2 MiB, wherever it lies, has a tag. Fresh memory has 0. A
 * program that writes a page gives it a tag that was never used before, and remembers it. Copies
 * copy tags when they end; until then the page that is written holds GARBAGE. A page also counts who
 * reads and who writes it now. So a lost, stale, mixed-up or half-copied page shows at the next
 * check, and so does a copy that does not wait for another.
 *
 * To add a fake: write what the engine calls in a file of its own, let it end in machine_at(), fail
 * by machine_fails(), and use page_read() and the like for memory. To add a check: see checks.c.
 */
/* clang-format on */
#ifndef GM_TESTS_SIM_MACHINE_H
#define GM_TESTS_SIM_MACHINE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/engine/state/engine.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/machine.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/state/state.h"
#include "common/sums.h"
#include "tests/sim/chance.h"
#include "tests/sim/watch.h"

/* What can fail. The rates of the first ones are those of each GPU, so that one fails and the other
 * does not. */
#define FAULTS(X)                                                                                  \
    X(CREATE)     /* cuMemCreate and what follows it: no memory for a frame */                     \
    X(COPY_IN)    /* the driver refuses a copy to the GPU, or clearing */                          \
    X(COPY_OUT)   /* ... from the GPU */                                                           \
    X(HASH)       /* the GPU does not hash, at all or any more */                                  \
    X(PIN)        /* no host memory */                                                             \
    X(RELEASE)    /* host memory is not released */                                                \
    X(DISK_WRITE) /* ENOSPC or EIO */                                                              \
    X(DISK_READ)  /* EIO */                                                                        \
    X(MAP)        /* a program cannot map */                                                       \
    X(DRAIN)      /* a program does not drain in time */                                           \
    X(SLOW)       /* anything takes a hundred times as long */
enum fault {
#define FAULT(NAME) FAULT_##NAME,
    FAULTS(FAULT)
#undef FAULT
        FAULT_KINDS,
    FAULT_GPU_KINDS = FAULT_PIN
};

/* ---- memory ---- */

#define GARBAGE (1ull << 63)

struct page {
    uint64_t tag;
    uint16_t readers, writers; /* copies under way */
    uint8_t vain;              /* copies to it, one after the other, that changed nothing */
    bool is_back;              /* of the GPU: was zero, and is as it was before that */
    uint32_t takes, taken;     /* of the host: how often it was taken; when it was copied to last */
};

/* Numbers that no file has: closing one does nothing. */
enum { FIRST_FD = 1 << 20 };
enum { HANDLE_PAGES = 16, HANDLES = 4096, NO_HANDLE = 0 };

/* A physical memory handle, of the GPU or of the host. It lives while somebody has it: the daemon,
 * an fd on its way, a program's import. */
struct handle {
    bool is_used, is_held; /* by the daemon */
    bool is_host;
    bool is_exported; /* an fd of it was made */
    bool was_sent;    /* ... to a program */
    bool was_mapped;  /* by the daemon */
    bool is_shared;   /* a program shares it on purpose */
    uint32_t gpu;     /* whose memory it is; of host memory, who pinned it */
    uint32_t pages;   /* of 2 MiB */
    uint32_t refs;    /* imports and fds on their way */
    uint32_t kept;    /* by the keeper */
    uint32_t program; /* that has it mapped; 0: none */
    uint32_t uid;     /* of whoever mapped it first; 0: nobody yet */
    uint32_t maps;
    struct page page[HANDLE_PAGES];
};

/* cuda.c */
int handle_of_fd(int fd);
struct handle *handle_at(int handle);
/* The memory that a page is of; NULL: of none that has a handle. */
const struct handle *handle_of_page(const struct page *page);
/* Some host memory that is no frame is mapped by somebody: the pool may give it to others. */
bool handle_is_mapped_in_pool(const bool is_frame[HANDLES]);
void handle_ref(int handle);
void handle_unref(int handle);
void handle_keep(int handle, bool is_kept);
/* The page at an address of the daemon's, which must be mapped. */
struct page *page_at(CUdeviceptr va);
/* Page number `i` of a frame, which the daemon may have mapped or not. */
struct page *page_of_frame(const struct gm_frame_handle *frame, uint32_t i);
/* The same, of memory that that GPU's engine has made, there or on the host. */
struct page *page_of(CUdeviceptr va, uint32_t gpu);
uint64_t device_used(uint32_t gpu); /* bytes of handles on it that live */
uint64_t host_used(void);           /* bytes that the daemon pins */
/* The GPU that a context is of. */
uint32_t gpu_of(CUcontext context);

void page_begin_read(struct page *page, const char *who);
void page_begin_write(struct page *page, const char *who);
void page_end_read(struct page *page);
void page_end_copy(struct page *to, struct page *from);   /* the tag, too */
void page_end_broken(struct page *to, struct page *from); /* ... or not */
void page_end_clear(struct page *to, bool is_broken);
/* The pages of a chain in the pinned tier, up to `most`. Returns how many. */
uint32_t pinned_pages(const struct gm_hostpool *pool, uint32_t page, struct page **pages,
                      uint32_t most);
/* stores.c: of a chain in paged memory or on disk. */
uint32_t stored_pages(const struct gm_stores *stores, enum gm_tier tier, uint32_t page,
                      struct page **pages, uint32_t most);
/* ... of any tier below the GPU. */
const struct gm_pages *pages_in(const struct gm_stores *stores, enum gm_tier tier);

/* ---- programs ---- */

enum {
    PROGRAMS = 12,
    PROGRAM_PAGES = 512,
    REGIONS = 24,
    IMPORTS = 512,
    NO_REGION = 255,
    SHARED_PAGES = 2
};
enum { GPUS = 4, GROUPS = 2, TEAMS = GROUPS + 1 + PROGRAMS + 1 };

/* What a program wrote: the tags of an allocation, which programs that share it have together; and
 * behind them those before the last write. */
struct content {
    uint32_t refs, pages;
    uint64_t tag[];
};

enum region_state {
    REGION_NONE,
    REGION_WANTED,   /* ALLOC is not answered */
    REGION_HELD,     /* the program uses it */
    REGION_SPARE,    /* freed, and listed in gm_stat.spares */
    REGION_FREED,    /* FREE is not answered, or TAKEN not yet here */
    REGION_OPENING,  /* another program's: OPEN is not answered */
    REGION_OPEN,     /* the program uses it */
    REGION_SHUTTING, /* SHUT is not answered */
};
struct region {
    enum region_state state;
    uint32_t gpu;
    uint32_t first, pages;
    uint64_t cookie;
    struct content *content;
    bool is_asked_to_share; /* SHARE is not answered */
    bool is_filled;         /* it wrote all of it once, if it is so */
    uint64_t works;         /* of the program, when it asked for it */
    bool is_misnamed;       /* OPENING: it asked with a wrong nonce */
    struct gm_msg_open ask; /* ... what */
    uint32_t share;         /* its number; 0: not shared */
    uint64_t nonce[2];
    uint32_t spare; /* which word of gm_stat.spares, */
    uint64_t word;  /* ... and what it says */
};

/* Where a page of a program's addresses lies. */
struct mapping {
    uint16_t handle; /* NO_HANDLE: nowhere */
    uint8_t page, region;
};

struct gm_session {
    struct program *program;
    uint64_t life; /* of the program when the session began */
    bool is_void;  /* its daemon has died */
};

struct program {
    uint32_t number; /* 1 and up */
    uint64_t
        life; /* changes when it dies or executes another program; events of another are void */
    bool is_there; /* there is a process */
    bool is_connected;
    bool is_joined; /* WELCOME came */
    bool is_dying;  /* its process ends soon */
    bool is_active; /* its work may use memory: gate open, or closed and not drained */
    bool is_parked;
    bool is_inside;            /* ... and its threads wait for that work: they ask for nothing */
    bool has_copies;           /* another process has copies of what it has open, and survives it */
    bool is_lying;             /* it answered what it was not asked */
    uint64_t deaf_until;       /* its link stands still, and nobody sees that: it answers nothing */
    uint64_t unmappable_until; /* ... and then it maps nothing for a while */
    uint64_t frozen_until;     /* stopped: it does and answers nothing, */
    uint64_t frozen_at;        /* ... since then */
    uint64_t ran[GPUS];        /* as the scheduler charged it when it was found stopped */
    bool was_stopped[GPUS];
    uint32_t unit[GPUS]; /* ... and as what it was charged */
    pid_t pid;
    uint32_t uid, app;
    struct gm_session *session; /* the daemon's handle of it */
    bool has_said_hello;
    bool is_losing;     /* its daemon has died, and it has not noticed */
    bool is_lost;       /* its daemon has died, and none has taken it over */
    bool is_gone;       /* ... and none will */
    int stat_fd;        /* of `stat`, as the keeper has it; 0: none */
    uint64_t is_trying; /* ... of that daemon it will ask: one more than its number */
    uint64_t link;      /* which connection of its life this is */
    struct gm_ctl *ctl; /* as the program maps them */
    struct gm_stat *stat;
    struct mail *inbox, *inbox_end;
    uint64_t down_at, up_at; /* when the newest message each way arrives */
    uint64_t epoch;          /* of the newest CLOSE */
    uint64_t wanted_epoch, wanted_at;
    uint64_t query;
    struct region regions[REGIONS];
    struct mapping map[PROGRAM_PAGES];
    struct {
        uint32_t frame, handle; /* frame 0: free */
    } imports[IMPORTS];
    uint32_t unanswered; /* threads that wait for an answer about memory */
    uint64_t cookie;
    /* What it does. */
    uint64_t work; /* touches to go; 0: it thinks */
    uint64_t think_until;
    uint32_t most_pages[GPUS]; /* that it wants */
    struct gm_wishes wishes;
    bool was_oversize; /* it could have more than the budget once */
    bool may_share, may_park, may_spare, is_lazy, is_hog;
    bool is_swinging; /* of what it wrote it writes the last but one again */
    bool is_filling;  /* it writes all of its memory at first */
    bool is_partial;  /* for seconds it works on a part of its memory, and keeps that all */
    bool is_copying;  /* it copies to and from the host, and does nothing else */
    bool is_steady;   /* turns.c: it has all its memory from the start, and never rests */
    bool is_asleep;   /* since the end began: it never has work again, and keeps its memory */
    uint64_t touches, turns; /* since the end began */
    uint64_t turns_alone;    /* of these, before it ran with those of its team */
    uint64_t touched_at;     /* when it last used its memory */
    bool is_quiet;           /* it said so, and did nothing since */
    uint64_t works_at[GPUS]; /* when it last worked or could not, or was known to be idle */
    uint64_t own[GPUS];      /* bytes of frames that it had after the step before */
    uint64_t device[GPUS];   /* ... that it and its group had */
    uint64_t members[GPUS];  /* ... who these were, a bit each */
    uint64_t above_at[GPUS]; /* since when it has been above its cap; 0: it is not */
    uint64_t refusals[GPUS]; /* that it had heard of after the step before */
    bool was_open;
    uint32_t gpus;  /* a bit each: that it uses */
    uint32_t group; /* whose name it says, 1 and up; 0: of none */
    uint32_t team;  /* with whom it runs: its group, or else itself; and whom they share with */
    bool was_quiet; /* after the step before */
    bool is_stuck;  /* a kernel of it waits for another program of its group */
    /* What it marks (common/windows.h). */
    bool is_marking;
    bool is_garbling;               /* it marks what it does not touch, too */
    uint64_t works;                 /* how often it marked anything */
    uint32_t marked[PROGRAM_PAGES]; /* in which window it last did; 0: never */
    uint32_t hid_in;                /* the last window in which it said that it did not mark all */
    uint32_t window[GPUS];          /* as the engine had it after the step before; 0: it had none */
    uint32_t begun_hidden[GPUS];    /* one that began after it had said so in it */
};

/* program*.c */
void program_start(struct program *program, bool has_executed);
/* It works without a pause, as `uid`, on `mib` MiB that it allocates by machine.unit; of those
 * `cap` MiB may be on the GPU; 0: all. It neither parks nor shares. */
void program_start_steady(struct program *program, uint32_t uid, uint64_t mib, uint64_t cap);
void program_die(struct program *program);
void program_leave(struct program *program);    /* end itself well */
void program_end_well(struct program *program); /* ... and wait until it has */
void program_execute(struct program *program);  /* another one, whose HELLO comes soon */
void programs_look(void);                       /* after each step: gates that opened */
/* It is parked: whether it could be enabled by anybody, as nobody has marked it as moving. */
bool program_may_go_on(const struct program *program);
struct page *program_page(const struct program *program, uint32_t page); /* NULL: unmapped */
int program_send(struct gm_session *session, enum gm_msg_type type, const void *body,
                 const void *entries, uint32_t count, const int *fds, int n_fds);
void program_end(struct gm_session *session, enum gm_refusal reason, const char *text);
enum gm_why program_stop(pid_t pid);
int program_keep(struct gm_session *session); /* gm_engine_outlet.keep */
/* program_again.c: the daemon is dead; and another one is there. */
void programs_lose(void);
void programs_try_again(void);
#define PROGRAM_BASE 0x7f0000000000ull
static inline uint64_t program_va(uint32_t page)
{
    return PROGRAM_BASE + ((uint64_t)page << GM_CHUNK_SHIFT);
}

/* ---- the machine ---- */

struct gpu {
    uint64_t bytes, beside; /* of it; of them used by others */
    uint16_t faults[FAULT_GPU_KINDS];
    struct watch watch;
    uint64_t offered;     /* the budget that programs are told, after the step before */
    uint32_t ahead;       /* allocations on their way that nobody waits for */
    uint64_t unserved_at; /* since when somebody waits for memory in vain; 0: not so */
    uint64_t
        kept_at[PROGRAMS]; /* by app: since when it keeps the GPU and does not run; 0: not so */
};

#define AWAY_MOST (6 * GM_S) /* how long a program is deaf, or stopped */

enum { USERS = 3 };

struct machine {
    uint64_t seed, now, steps;
    uint64_t hash; /* of everything that happened */
    struct chance chance;
    bool is_verbose;
    bool is_faulty;
    bool is_full;  /* most memory is on the disk */
    bool is_kept;  /* programs seldom free anything */
    uint32_t unit; /* allocations are so many pages, or a multiple */
    bool is_calm;  /* nothing fails, nobody stops, the budget stays: waits have bounds */
    bool is_timed; /* ... and it is long: memory is looked at after each 16th step */
    uint16_t faults[FAULT_KINDS]; /* of a thousand; of the first ones see `gpus` */
    uint64_t moved_at;            /* when anything that takes memory somewhere began or ended */
    unsigned clock_reads;         /* in this step */

    struct gm_machine daemon;
    bool is_up;           /* the daemon is */
    bool has_deaths;      /* it dies at times, */
    bool is_down;         /* ... is dead now, */
    bool is_coming;       /* ... or adopts what the one before had */
    uint64_t daemon_life; /* changes when it dies */
    uint64_t back_at;     /* when a program was last taken over */
    const void *records;  /* of the clients of the one before */
    jmp_buf death_point;
    struct chance death;  /* of its own */
    bool has_ghosts;      /* ... and programs end while it is away */
    struct chance ghosts; /* of their own, so that other seeds stay as they are */
    struct gm_engine_config config;
    uv_loop_t loop;
    uint32_t n_gpus;
    struct gpu gpus[GPUS];
    bool has_host_handles;
    unsigned mover_room; /* copies each way */
    uint64_t page_ns;    /* that a copy takes for a page, on average */
    uint32_t users;
    struct {
        uint32_t uid;
        bool is_tied;       /* its programs work only while all of them do, as with NCCL */
        uint64_t split_at;  /* since when a part of it runs without the rest; 0: none does */
        uint64_t united_in; /* by the daemon of that life it was made of others */
    } groups[TEAMS];        /* by team: first those with names, then one for each program */
    bool has_sharing, has_groups;
    bool has_jobs;        /* jobs.c: programs begin with a piece that they may share */
    bool has_sizes;       /* rules and programs say who may be larger than the GPU */
    struct chance sizes;  /* ... of its own, so that other machines stay as they are */
    bool has_hogs;        /* some latency-critical programs on the second GPU work all the time */
    struct chance hogs;   /* likewise */
    struct chance host;   /* host memory of several GPUs; likewise */
    bool has_caps;        /* programs have caps, which change */
    struct chance caps;   /* likewise */
    struct chance odd;    /* likewise, of what few programs do */
    struct chance memory; /* likewise, of messages that there is no memory for */
    struct chance parts;  /* likewise, of programs that work on a part of their memory */
    bool has_sleepers;    /* in the end some programs never have work again */
    struct chance sleep;  /* likewise, of these */
    struct chance tight;  /* likewise, of machines that are little larger than what programs have */
    struct gm_user_totals totals[USERS]; /* of user 1000 and up */
    uint8_t rule[PROGRAMS];              /* 0 none, 1 refuse, 2 host */
    bool has_quiet_link;                 /* nothing crosses it that nobody knows of */
    uint64_t next_tag;
    pid_t next_pid;
    bool is_ending; /* nobody comes and nothing fails any more */
    bool is_lost, is_saving, is_saved;

    struct program programs[PROGRAMS];
    uint32_t n_programs;

    struct {
        uint64_t joins, deaths, turns, copies, clears, clean, lowered, faults, allocs, opens, parks;
        uint64_t doubles; /* machines of two GPUs */
        uint64_t unions;  /* of groups, as programs share memory */
        uint64_t planted; /* events that were not legal */
        uint64_t disk_errors, failed_maps, deaf, lies, inside, copied;
        uint64_t windows;       /* that ended, */
        uint64_t lasting;       /* ... places of work that lasted longer */
        uint64_t marks;         /* ... and what was read of them */
        uint64_t guilty, tries; /* steps of the check */
        uint64_t ledgers;       /* that a new daemon could read */
        uint64_t holds;         /* gates that were closed so that memory can move */
        uint64_t kills, comings, back, hostile, ghosts; /* deaths.c */
    } sums;
};
extern struct machine machine;

typedef void machine_event(void *arg, uint64_t a, uint64_t b);
/* Call fn(arg, a, b) at that time. Of events at one time the first comes first. */
void machine_at(uint64_t at, machine_event *fn, void *arg, uint64_t a, uint64_t b);
/* One step: the next event, unless it is later than `until`. False: there is none. */
bool machine_step(uint64_t until);
void machine_run(uint64_t time); /* all events of so long */
void machine_clear(void);        /* forget all events */

static inline uint64_t chance_below(uint64_t below)
{
    return draw(&machine.chance, below);
}
static inline bool chance_percent(unsigned percent)
{
    return draw_percent(&machine.chance, percent);
}
/* A time in which something ends: mostly about `usual`, at times much longer. */
uint64_t chance_time(uint64_t usual);
bool machine_fails(enum fault fault);
bool gpu_fails(uint32_t gpu, enum fault fault);
/* What engine number `gpu` knows of a program; NULL: it is no app there. */
static inline const struct gm_app *app_of(const struct program *p, uint32_t gpu)
{
    const struct gm_app *app = &machine.daemon.engines[gpu]->apps[p->app];
    return p->session && app->session == p->session ? app : NULL;
}

/* Pinned memory has room for more of the app that is beyond its cap. A program that joins a group
 * with a cap is not asked for it: without room the group may have what it needs in order to run. */
static inline bool has_cap_room(const struct gm_engine *engine, uint32_t app)
{
    const struct gm_room_input input = gm_engine_room_input(engine, app);
    const uint64_t taken = gm_room_on_host(input.host_taken + input.own.beyond,
                                           input.host_programs + input.own.programs);
    return gm_room_for_capped(&input) + input.host_aside >= taken + GM_CHUNK_MIN;
}

/* For the trace, which a failure prints: what happens, with three numbers. */
void trace(const char *what, uint64_t a, uint64_t b, uint64_t c);
_Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...);
#define require(what, ...)                                                                         \
    do {                                                                                           \
        if (!(what))                                                                               \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

/* ---- fakes that the scenario sets up and takes down ---- */
void cuda_begin(void);
void cuda_end(void);   /* nothing is left */
void cuda_leave(void); /* no context is current: an engine enters its own in each step */
void uv_fake_begin(void);
void uv_fake_end(void);
/* The process has ended: who watches it is told. */
void uv_fake_exit(pid_t pid);
int uv_fake_pidfd(pid_t pid);
/* The other end of a connection, until it hangs up. */
int uv_fake_connection(void);
void uv_fake_hang_up(int fd);
void mover_lose_context(uint32_t gpu);
/* The daemon's process has ended. */
void mover_die(void);
void hasher_die(void);
void meter_die(void);
void stores_die(void);
void uv_fake_die(void);
void cuda_die(void);

/* kept.c: a new one; all that it has is of a daemon before now; and it has nothing. */
struct gm_kept *kept_begin(void);
void kept_survive(void);
void kept_end(void);

/* deaths.c: here the daemon may die, if deaths_enter said so. */
void deaths_may_come(const char *where);
void deaths_enter(bool is_inside);
void deaths_died(void);
void deaths_begin(void);
void deaths_end(void);
void deaths_program_ended(const struct program *p);
/* If it has yet to come back, its process has executed another one. */
void deaths_program_says_hello(const struct program *p);
void deaths_soon(void); /* between two steps, or at a store of one of the next */
void deaths_kill(void); /* now, between two steps; another daemon will come */
/* So many seeds; not 0: some failed. */
int deaths_run(uint64_t n, uint64_t from, bool goes_on);
void scenario_run_deaths(uint64_t seed, bool is_verbose);

/* program_team.c: two run together from now on, as the daemon says. */
void program_unite(const struct program *p, const struct program *owner);
/* Somebody runs with it. */
bool program_has_team(const struct program *p);

/* mover.c: copies out that have ended, as the GPU knows it. */
uint64_t mover_ended(uint32_t gpu);

/* ledger.c: when the engines have started; after each step; and when they have ended. */
void ledger_begin(void);
void ledger_run(uint32_t gpu);
void ledger_run_clients(void);
void ledger_end(void);

/* events.c: takes what happens in an engine; and what it does after each step. */
void events_take(struct gm_journal *journal, const struct gm_event *event);
void events_run(struct gm_engine *engine);
/* It has adopted what the daemon before had. */
void events_adopted(uint32_t gpu);

/* stays.c: when the engines have started; what happens in one of them; and after each step. */
void stays_begin(void);
void stays_turn(uint32_t gpu, const struct gm_turn *turn);
void stays_look(const struct gm_engine *engine);

/* checks.c: after each step. */
void checks_run(void);
/* Everybody is gone, and so is all memory. */
void checks_nothing_left(void);

/* scenario.c: one seed. */
void scenario_run(uint64_t seed, bool is_verbose);
/* ... and its parts. */
void scenario_begin(uint64_t seed, bool is_verbose);
/* A calm machine with one GPU and so many programs to come, for scenes that are written down:
 * `config` says how large it is, and what differs from one scene to another. */
void scenario_begin_calm(const struct gm_engine_config *config, uint32_t programs);
void scenario_open(void);
void scenario_close(void);
/* What the engine calls of the rooms above it. */
extern const struct gm_engine_outlet scenario_outlet;

/* sleepers.c: programs that sleep keep nobody from working. */
void sleepers_run(void);
/* evicts.c */
void evicts_run(void);
/* full.c */
void full_run(void);
/* anew.c and kin.c: how many of their scenes fail. */
void anew_ended(const struct program *p); /* its process has */
int anew_run(uint64_t n, uint64_t from);  /* n is 0: as they are written; else so many seeds */
int kin_run(void);

/* program_asks.c, for jobs.c: it has all the memory that it is to have. */
bool program_has_all(const struct program *p);
/* A signal came to it, and it waits at its gate. */
void program_hurry(struct program *p);
/* One opens a small piece of the other: a step of that. True: it has. */
bool program_meet(struct program *owner, struct program *opener);

/* ... of several GPUs, where programs may be of jobs. */
void scenario_begin_jobs(const struct gm_engine_config *config, uint64_t seed, uint32_t gpus,
                         uint32_t programs);

/* jobs.c: so many seeds. */
void jobs_run(uint64_t n, uint64_t from);
/* ... in which the daemon dies, each in a process of its own: how many fail. */
uint64_t jobs_run_deaths(uint64_t n, uint64_t from);

/* turns.c: how much of the GPU's time is used when programs that never rest take turns. */
void turns_run(void);

#endif
