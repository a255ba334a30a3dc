#include "shim/link/link.h"

#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/appname.h"
#include "common/chunk.h"
#include "common/classes.h"
#include "common/clock.h"
#include "common/locks.h"
#include "common/log.h"
#include "common/settings.h"
#include "common/sock.h"
#include "common/threads.h"
#include "common/windows.h"
#include "common/wishes.h"
#include "shim/driver/real.h"
#include "shim/gate/drain.h"
#include "shim/gate/park.h"
#include "shim/link/comeback.h"
#include "shim/link/files.h"
#include "shim/link/greet.h"
#include "shim/link/post.h"
#include "shim/link/work.h"

#define GM_LINK_LOOK_NS (5 * GM_S) /* the longest poll */
#define GM_LINK_MARK_NS GM_S       /* between looks whether to mark */
/* A daemon that gave no sign for so long is named in the log; it gives one each second. */
#define GM_LINK_SILENCE_NS (10 * GM_SLOW * GM_S)

static const struct gm_link_calls *gm_link_calls; /* written before the thread starts */
static const struct gm_ctl *gm_link_ctl;
static struct gm_stat *gm_link_stat;
static struct gm_comeback gm_link_comeback; /* the link thread's */
static int gm_link_again = -1;              /* REJOIN: the connection to the next daemon */
static bool gm_link_is_new;                 /* ... a daemon has just taken the program over */
static bool gm_link_was_quiet;              /* ... what it was told */
static bool gm_link_is_full_told;           /* ... that it can have no more files */
static bool gm_link_is_ended;               /* the link thread's: the daemon ended the session */
static uint32_t gm_link_gpus;
static uint64_t gm_link_budgets[GM_GPUS_MAX]; /* from WELCOME */
static _Atomic bool gm_link_has_signal;       /* a signal came to a thread of a paused program */

/* Whose memory this program has imported, in order; 0: no more. The daemon may die before it has
 * read of them, or be away: the next one is told of all again. Those for which there is no room are
 * told once. */
#define GM_LINK_EXPORTERS 64u
static _Atomic pid_t gm_link_exporters[GM_LINK_EXPORTERS];

/* Link thread: chunks were mapped since the gate closed. The daemon may still be copying into them,
 * so their data may not be complete. */
static bool gm_link_has_mapped;

/* Of boot, then of the link thread. */
static uint64_t gm_link_buffer[GM_WIRE_MAX / sizeof(uint64_t)];

/* ---- opening ---- */

int gm_link_open(struct gm_link_welcome *welcome, char *why, size_t why_size)
{
    const int fd = gm_greet_open(welcome, why, why_size);
    if (fd < 0)
        return fd;
    gm_files_reserve();
    gm_post_open(fd);
    gm_link_ctl = welcome->ctl;
    gm_link_stat = welcome->stat;
    gm_link_comeback.limit_ns = welcome->rejoin_ns;
    gm_link_gpus = welcome->n_gpus;
    for (uint32_t gpu = 0; gpu < gm_link_gpus; gpu++)
        gm_link_budgets[gpu] = welcome->gpu[gpu].budget;
    return 0;
}

void gm_link_shut(void)
{
    gm_greet_shut();
    gm_link_close();
}

/* ---- what others tell the daemon ---- */

void gm_link_expect(uint64_t after_us, uint64_t for_us)
{
    const struct gm_msg_expect expect = {.after_us = after_us, .for_us = for_us};
    gm_post_tell(GM_MSG_EXPECT, &expect);
}

void gm_link_want(bool is_hurried)
{
    const struct gm_msg_want want = {.is_hurried = is_hurried};
    if (!gm_link_has_daemon())
        return;
    gm_post_tell(GM_MSG_WANT, &want);
    if (is_hurried && atomic_load_explicit(&gm_link_ctl->is_paused, memory_order_relaxed) != 0) {
        atomic_store(&gm_link_has_signal,
                     true); /* the link thread says it: this may be a handler */
        gm_work_knock();
    }
}

void gm_link_drained(const struct gm_msg_drained *drained)
{
    gm_post_send(GM_MSG_DRAINED, drained);
}

void gm_link_quiet(const struct gm_msg_quiet *quiet)
{
    gm_post_send(GM_MSG_QUIET, quiet);
}

void gm_link_exported(void)
{
    if (gm_link_has_daemon())
        atomic_fetch_add(&gm_link_stat->exports, 1);
}

static void gm_link_tell_import(pid_t exporter)
{
    const struct gm_msg_imported imported = {.exporter = exporter};
    gm_post_send(GM_MSG_IMPORTED, &imported);
}

/* Before it is told: a daemon that comes between is told twice, which changes nothing. */
void gm_link_imported(pid_t exporter)
{
    pid_t known = 0;
    for (uint32_t i = 0; i < GM_LINK_EXPORTERS && known != exporter; i++) {
        known = 0;
        if (atomic_compare_exchange_strong(&gm_link_exporters[i], &known, exporter))
            break;
    }
    gm_link_tell_import(exporter);
}

pid_t gm_link_daemon(void)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    return getsockopt(gm_post_fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

uint32_t gm_link_app(void)
{
    return gm_link_ctl->app;
}

uint64_t gm_link_budget(uint32_t gpu)
{
    if (gpu >= gm_link_gpus)
        return 0;
    uint64_t budget = __atomic_load_n(&gm_link_ctl->budget[gpu], __ATOMIC_RELAXED);
    return budget != 0 ? budget : gm_link_budgets[gpu];
}

uint64_t gm_link_room(uint32_t gpu)
{
    return gpu < gm_link_gpus ? __atomic_load_n(&gm_link_ctl->room[gpu], __ATOMIC_RELAXED) : 0;
}

/* ---- the link thread ---- */

static void gm_link_done(uint64_t batch, CUresult result)
{
    struct gm_msg_done done = {.batch = batch, .result = (int32_t)result};
    if (result != CUDA_SUCCESS)
        gm_log(GM_LOG_WARN, "cannot map or unmap batch %llu: CUresult %d",
               (unsigned long long)batch, (int)result);
    gm_post_send(GM_MSG_DONE, &done);
}

/*
 * Before calls of the driver. They may wait for a lock of libcuda whose owner waits for the GPU, as
 * a thread that loads a module does. Only this thread would end the hold.
 */
static void gm_link_end_hold(void)
{
    gm_hold_end(gm_link_calls->resume);
}

/* Whether a MAP maps memory of other programs: nothing is copied into that. */
static bool gm_link_is_of_others(const struct gm_wire_message *message)
{
    const struct gm_map_entry *entry = message->entries;
    return message->count > 0 && (entry[0].flags & GM_MAP_IS_SHARED) != 0;
}

/* Do what a message says. Consumes `fds`. False: the message makes no sense. */
static bool gm_link_obey(const struct gm_wire_message *message, const int *fds)
{
    const void *body = message->body;
    switch (message->type) {
    case GM_MSG_TAKEN:
        gm_link_end_hold();
        return gm_link_calls->taken(((const struct gm_msg_taken *)body)->va);
    case GM_MSG_CLOSE: {
        const struct gm_msg_close *closing = body;
        gm_hold_forget();
        gm_link_has_mapped = false; /* the gate was open: all data was in place */
        gm_drain_close(closing->epoch, closing->grace_ns, closing->deadline_ns, gm_now());
        return true;
    }
    case GM_MSG_RESUME:
        gm_drain_resume();
        return true;
    case GM_MSG_HOLD: {
        const struct gm_msg_hold *hold = body;
        if (hold->for_ns == 0)
            gm_link_end_hold();
        else
            gm_hold(gm_now(), hold->for_ns);
        return true;
    }
    case GM_MSG_TIMESLICE:
        gm_link_calls->timeslice(((const struct gm_msg_timeslice *)body)->us);
        return true;
    case GM_MSG_QUERY:
        gm_drain_query(((const struct gm_msg_query *)body)->query);
        return true;
    case GM_MSG_MAP:
        if (atomic_load(&gm_link_ctl->gate) != GM_GATE_OPEN && !gm_link_is_of_others(message))
            gm_link_has_mapped = true;
        gm_link_end_hold();
        gm_link_done(((const struct gm_msg_map *)body)->batch,
                     gm_link_calls->map(message->entries, message->count, fds, message->n_fds));
        return true;
    case GM_MSG_UNMAP:
        gm_link_end_hold();
        gm_link_done(((const struct gm_msg_unmap *)body)->batch,
                     gm_link_calls->unmap(message->entries, message->count));
        return true;
    case GM_MSG_DROP:
        gm_link_end_hold();
        gm_link_done(((const struct gm_msg_drop *)body)->batch,
                     gm_link_calls->drop(message->entries, message->count));
        return true;
    case GM_MSG_REFUSED:
        gm_log(GM_LOG_WARN, "the daemon ended the session: %.*s",
               (int)sizeof(((const struct gm_msg_refused *)body)->text),
               ((const struct gm_msg_refused *)body)->text);
        gm_link_is_ended = true;
        return false;
    default:
        return gm_requests_answer(message);
    }
}

/* Receive and obey one message. False: the connection is lost. */
static bool gm_link_receive(void)
{
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS];
    int n_fds = 0;
    bool has_lost;
    uint64_t batch;
    ssize_t length = gm_sock_receive_part(gm_post_fd(), gm_link_buffer, sizeof(gm_link_buffer), fds,
                                          &n_fds, &has_lost);
    if (length == -EAGAIN)
        return true;
    if (length <= 0)
        return false;
    if (has_lost && gm_files_lost(gm_link_buffer, (size_t)length, &batch)) {
        gm_link_done(batch, CUDA_ERROR_OPERATING_SYSTEM); /* the daemon tries again */
        return true;
    }
    enum gm_wire_fault fault =
        gm_wire_decode(gm_link_buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_APP, &message);
    if (fault != GM_WIRE_OK) {
        gm_log(GM_LOG_WARN, "invalid message from the daemon: %s", gm_wire_fault_text(fault));
        for (int i = 0; i < n_fds; i++)
            close(fds[i]);
        return false;
    }
    return gm_link_obey(&message, fds);
}

/* The daemon is lost for good. Decide how the program goes on. */
static void gm_link_lose(void)
{
    gm_files_give_back();
    gm_greet_close();
    gm_requests_lose();
    gm_post_cut();
    gm_link_calls->mark(false, NULL);
    gm_drain_cancel();

    bool is_open = atomic_load(&gm_link_ctl->gate) == GM_GATE_OPEN;
    bool is_whole = is_open || (!gm_link_has_mapped && gm_link_calls->is_whole());
    /* Before a waiting thread gets its error, of which the program may end. */
    gm_log(GM_LOG_WARN, "the daemon is lost: %s",
           is_whole ? "running on without it"
                    : "swapped-out memory is gone, and CUDA calls return error 46 "
                      "(CUDA_ERROR_DEVICE_UNAVAILABLE)");
    gm_gate_lost(is_whole);
    if (!is_whole)
        gm_link_calls->forget();
    gm_park_take_back();
    gm_hold_end(gm_link_calls->resume);
    gm_drain_resume(); /* even without its memory: see the head of link.h */
    gm_link_calls->timeslice(0);

    gm_requests_end();
    gm_link_calls->lost();
}

/* ---- a daemon that comes back ---- */

/* The gate is closed, and since then this program has answered that it is quiet or parked. */
static bool gm_link_is_quiet(void)
{
    return atomic_load(&gm_link_ctl->gate) != GM_GATE_OPEN &&
           gm_drain_answered() == atomic_load(&gm_link_ctl->epoch);
}

/* What the next daemon is told of this program. */
static void gm_link_introduce(void)
{
    const bool is_open = atomic_load(&gm_link_ctl->gate) == GM_GATE_OPEN;
    gm_link_was_quiet = gm_link_is_quiet();
    const struct gm_msg_rejoin rejoin = {
        .flags = (is_open ? GM_REJOIN_IS_OPEN : 0) | (gm_park_is_on() ? GM_REJOIN_IS_PARKED : 0) |
                 (gm_link_was_quiet ? GM_REJOIN_IS_QUIET : 0),
        .epoch = gm_drain_answered(),
        .cookie = gm_requests_cookie(),
    };
    gm_greet_again(gm_link_again, &rejoin, gm_link_calls->holds);
}

/* The daemon has taken the program over. */
static void gm_link_go_on(void)
{
    const int fd = gm_link_again;
    gm_link_again = -1;
    if (gm_link_was_quiet) /* no thread has passed a gate since */
        gm_drain_stays(gm_greet_epoch());
    gm_post_open(fd);
    gm_link_is_new = true;
    gm_link_is_full_told = false;
    gm_log(GM_LOG_WARN, "gpumuxd is back (pid %d): going on with it", (int)gm_link_daemon());
    gm_requests_go_on();
    for (uint32_t i = 0; i < GM_LINK_EXPORTERS && atomic_load(&gm_link_exporters[i]) != 0; i++)
        gm_link_tell_import(atomic_load(&gm_link_exporters[i]));
    if (atomic_load(&gm_link_stat->waiting) > 0)
        gm_link_want(false);
}

/* Once for each loss. */
static void gm_link_say_full(void)
{
    if (!gm_link_is_full_told)
        gm_log(GM_LOG_WARN, "this program is at its limit of open files (ulimit -n): it goes on "
                            "with gpumuxd when it has closed some");
    gm_link_is_full_told = true;
}

static void gm_link_turn(enum gm_link_event event)
{
    const unsigned actions = gm_comeback_step(&gm_link_comeback, event, gm_now());
    if ((actions & GM_LINK_DO_PART) != 0) {
        gm_requests_await();
        gm_post_cut();
        gm_drain_cancel();
    }
    if ((actions & GM_LINK_DO_HANG_UP) != 0 && gm_link_again >= 0) {
        close(gm_link_again);
        gm_link_again = -1;
    }
    if ((actions & GM_LINK_DO_TELL) != 0)
        gm_log(GM_LOG_WARN, "the daemon is lost: waiting for the next one");
    if ((actions & GM_LINK_DO_REFUSE) != 0) {
        gm_log(GM_LOG_WARN, "no daemon for %llu s: allocations are refused until there is one",
               (unsigned long long)(gm_link_comeback.limit_ns / GM_S));
        gm_requests_refuse();
    }
    if ((actions & GM_LINK_DO_GO_ON) != 0)
        gm_link_go_on();
    if ((actions & GM_LINK_DO_GIVE_UP) != 0)
        gm_link_lose();
    if ((actions & GM_LINK_DO_CONNECT) != 0) {
        gm_link_again = gm_greet_connect();
        if (gm_link_again == -EMFILE)
            gm_link_say_full();
        if (gm_link_again < 0)
            return;
        gm_link_turn(GM_LINK_EV_CONNECTED);
        gm_link_introduce();
    }
}

/* What came of REJOIN. */
static void gm_link_hear(void)
{
    char why[256] = "";
    const enum gm_link_event event = gm_greet_hear(gm_link_again, why, sizeof(why));
    if (event == GM_LINK_EV_REFUSED)
        gm_log(GM_LOG_WARN, "the new daemon does not take this program over: %s", why);
    if (event == GM_LINK_EV_NO_FILES)
        gm_link_say_full();
    gm_link_turn(event);
}

/*
 * The words behind the stat area. Few programs ever mark, so they are mapped for the first that
 * does: by a second mapping of what the area is a mapping of (mremap(2), with an old size of 0), as
 * its descriptor is closed. A core dump leaves them out. Of a program that locks its memory
 * (mlockall) the area is unlocked before: a second mapping of locked memory is locked, too, and the
 * system would allocate all words at once. NULL: they cannot be mapped.
 */
static _Atomic uint64_t *gm_link_words(void)
{
    static char *area;
    if (area != NULL)
        return (_Atomic uint64_t *)(void *)(area + GM_WINDOW_WORDS_AT);
    munlock(gm_link_stat, sizeof(*gm_link_stat));
    void *mapped = mremap(gm_link_stat, 0, GM_STAT_BYTES, MREMAP_MAYMOVE);
    if (mapped == MAP_FAILED)
        return NULL;
    madvise(mapped, GM_STAT_BYTES, MADV_DONTDUMP);
    area = mapped;
    return gm_link_words();
}

/* Follow gm_ctl.is_counting. Returns when to look again if no message comes before. */
static uint64_t gm_link_follow_marking(uint64_t now)
{
    const uint32_t word = atomic_load_explicit(&gm_link_ctl->is_counting, memory_order_relaxed);
    const bool is_on = (word & ~GM_MAY_COUNT) != 0;
    gm_link_calls->note_graphs(word != 0);
    gm_link_calls->mark(is_on, is_on ? gm_link_words() : NULL);
    return word != 0 ? now + GM_LINK_MARK_NS : UINT64_MAX;
}

/* How long to poll, in parts of a millisecond: a hold lasts for a few. */
static struct timespec gm_link_duration(uint64_t ns)
{
    if (ns > GM_LINK_LOOK_NS)
        ns = GM_LINK_LOOK_NS;
    return (struct timespec){.tv_sec = (time_t)(ns / GM_S), .tv_nsec = (long)(ns % GM_S)};
}

/* What the system says of the daemon's process, for a line of the log. Its socket is open, so its
 * number is nobody else's. */
static const char *gm_link_state(void)
{
    char path[32], text[512];
    const pid_t pid = gm_link_daemon();
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return "";
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *state = strrchr(text, ')'); /* behind the name, which may hold anything */
    if (state == NULL || state[1] != ' ')
        return "";
    return state[2] == 'T' || state[2] == 't' ? ": its process is stopped"
                                              : ": its process is alive";
}

/*
 * Say if the daemon gives no sign, and when it does again. It is waited for: only its socket says
 * that it is gone. Time in which this program does not run itself (a debugger, a frozen machine)
 * counts as one look. Returns when to listen again.
 */
static uint64_t gm_link_listen(uint64_t now)
{
    static uint64_t at, silence;
    static uint32_t last;
    static bool is_told;
    const uint32_t beat = atomic_load_explicit(&gm_link_ctl->beat, memory_order_relaxed);
    const uint64_t passed = now - at;
    if (gm_link_is_new) /* the silence was another daemon's */
        is_told = false;
    if (at == 0 || beat != last || gm_link_is_new) {
        gm_link_is_new = false;
        if (is_told)
            gm_log(GM_LOG_WARN, "gpumuxd (pid %d) answers again", (int)gm_link_daemon());
        at = now;
        silence = 0;
        last = beat;
        is_told = false;
        return now + GM_LINK_LOOK_NS;
    }
    at = now;
    silence += passed < GM_LINK_LOOK_NS ? passed : GM_LINK_LOOK_NS;
    if (silence >= GM_LINK_SILENCE_NS && !is_told) {
        gm_log(GM_LOG_WARN, "gpumuxd (pid %d) has not answered for %llu s: waiting for it%s",
               (int)gm_link_daemon(), (unsigned long long)(silence / GM_S), gm_link_state());
        is_told = true;
    }
    return now + GM_S;
}

/* A signal came while the program is paused: say once why it does not end. */
static void gm_link_say_paused(void)
{
    static bool is_told;
    const bool has_signal = atomic_exchange(&gm_link_has_signal, false);
    if (atomic_load_explicit(&gm_link_ctl->is_paused, memory_order_relaxed) == 0)
        is_told = false;
    else if (has_signal && !is_told) {
        gm_log(GM_LOG_WARN,
               "a signal came while this program is paused: the CUDA call that it interrupted "
               "returns after \"mux-ctl resume %d\"",
               (int)getpid());
        is_told = true;
    }
}

/* Do what is due. Returns when to look again. */
static uint64_t gm_link_tend(uint64_t now)
{
    const uint64_t due[] = {
        gm_drain_expire(now),
        gm_link_follow_marking(now),
        gm_hold_look(now, gm_link_calls->hold, gm_link_calls->resume),
        gm_link_comeback.state == GM_LINK_UP ? gm_link_listen(now) : UINT64_MAX,
        gm_comeback_due(&gm_link_comeback),
    };
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < sizeof(due) / sizeof(*due); i++)
        first = due[i] < first ? due[i] : first;
    gm_link_say_paused();
    return first;
}

/* UP: the socket says something. */
static void gm_link_serve(short what)
{
    bool is_there = (what & POLLOUT) == 0 || gm_post_flush();
    if (is_there && (what & ~POLLOUT) != 0) {
        gm_files_make_room(gm_post_fd());
        is_there = gm_link_receive();
        gm_files_reserve();
    }
    if (!is_there)
        gm_link_turn(gm_link_is_ended ? GM_LINK_EV_ENDED : GM_LINK_EV_HANG_UP);
}

/* REJOIN: the same. */
static void gm_link_serve_again(short what)
{
    if ((what & ~POLLOUT) != 0)
        gm_link_hear();
    else
        gm_greet_more(gm_link_again);
}

/* The socket to poll, and for what. */
static struct pollfd gm_link_watched(void)
{
    switch (gm_link_comeback.state) {
    case GM_LINK_UP:
        return (struct pollfd){.fd = gm_post_fd(),
                               .events = gm_post_has_letters() ? POLLIN | POLLOUT : POLLIN};
    case GM_LINK_REJOIN:
        return (struct pollfd){.fd = gm_link_comeback.is_deaf ? -1 : gm_link_again,
                               .events = gm_greet_has_more() ? POLLIN | POLLOUT : POLLIN};
    default:
        return (struct pollfd){.fd = -1};
    }
}

/* Whether somebody still has this program's memory. */
static bool gm_link_has_keeper(void)
{
    struct pollfd look = {.fd = gm_greet_lifeline()};
    return look.fd >= 0 && poll(&look, 1, 0) == 0;
}

/* One round: wait, and serve whoever says something. False: the program closed the wake socket. */
static bool gm_link_round(void)
{
    const bool is_up = gm_link_comeback.state == GM_LINK_UP;
    uint64_t now = gm_now();
    if (!is_up && !gm_link_has_keeper()) {
        gm_link_turn(GM_LINK_EV_NOBODY);
        return true;
    }
    if (now >= gm_comeback_due(&gm_link_comeback))
        gm_link_turn(GM_LINK_EV_TIME);
    const uint64_t deadline = gm_link_tend(now);
    now = gm_now(); /* that may have taken a while */
    const struct timespec longest = gm_link_duration(deadline > now ? deadline - now : 0);
    struct pollfd wait[3] = {gm_link_watched(),
                             {.fd = gm_work_fd(), .events = POLLIN},
                             {.fd = is_up ? -1 : gm_greet_lifeline()}}; /* the next round sees it */
    const int ready = ppoll(wait, 3, &longest, NULL);
    if (ready < 0 && errno == EINTR)
        return true;
    if (ready < 0 || (wait[1].revents & ~POLLIN) != 0)
        return false;
    if (wait[1].revents != 0) {
        gm_link_end_hold();
        gm_work_some();
    }
    if (wait[0].revents != 0)
        is_up ? gm_link_serve(wait[0].revents) : gm_link_serve_again(wait[0].revents);
    return true;
}

static void *gm_link_main(void *unused)
{
    (void)unused;
    /* Captures in other threads do not forbid our calls. */
    gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    while (gm_link_comeback.state != GM_LINK_GONE)
        if (!gm_link_round())
            gm_link_turn(gm_link_comeback.state == GM_LINK_UP ? GM_LINK_EV_ENDED
                                                              : GM_LINK_EV_NOBODY);
    gm_work_forever();
}

int gm_link_start(const struct gm_link_calls *calls)
{
    int error = gm_work_open();
    if (error != 0)
        return error;
    gm_link_calls = calls;
    gm_requests_open(&calls->request, gm_link_gpus);
    error = gm_thread_start(gm_link_main, "gpumux-link");
    if (error != 0)
        gm_requests_close();
    return error;
}

/* Without memory for it the words stay the parent's. */
void gm_link_part(void)
{
    if (gm_link_stat != NULL)
        mmap(gm_link_stat, sizeof(*gm_link_stat), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void gm_link_close(void)
{
    gm_requests_close();
    if (gm_link_calls != NULL)
        gm_link_calls->mark(false, NULL);
    gm_files_give_back();
    gm_greet_close();
    if (gm_link_again >= 0)
        close(gm_link_again);
    gm_link_again = -1;
    gm_post_close();
    gm_work_close();
}
