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
#include "shim/gate/hold.h"
#include "shim/gate/park.h"
#include "shim/link/files.h"
#include "shim/link/post.h"
#include "shim/link/work.h"

#define GM_LINK_PATIENCE (2 * GM_SLOW * GM_S) /* for WELCOME */
#define GM_LINK_LOOK_NS (5 * GM_S)            /* the longest poll */
#define GM_LINK_MARK_NS GM_S                  /* between looks whether to mark */
/* A daemon that gave no sign for so long is named in the log; it gives one each second. */
#define GM_LINK_SILENCE_NS (10 * GM_SLOW * GM_S)

static const struct gm_link_calls *gm_link_calls; /* written before the thread starts */
static const struct gm_ctl *gm_link_ctl;
static struct gm_stat *gm_link_stat;
static uint32_t gm_link_gpus;
static uint64_t gm_link_budgets[GM_GPUS_MAX]; /* from WELCOME */
static _Atomic bool gm_link_has_signal;       /* a signal came to a thread of a paused program */

/* Link thread: chunks were mapped since the gate closed. The daemon may still be copying into them,
 * so their data may not be complete. */
static bool gm_link_has_mapped;

/* Of boot, then of the link thread. */
static uint64_t gm_link_buffer[GM_WIRE_MAX / sizeof(uint64_t)];

/* ---- opening ---- */

static bool gm_link_wait_readable(int fd, uint64_t until)
{
    for (;;) {
        uint64_t now = gm_now();
        if (now >= until)
            return false;
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = poll(&wait, 1, (int)((until - now) / GM_MS) + 1);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

/* Map the first `size` bytes of an area that has `whole`. */
static void *gm_link_map(int fd, size_t size, size_t whole, int protection)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)whole)
        return MAP_FAILED;
    return mmap(NULL, size, protection, MAP_SHARED, fd, 0);
}

/* Map the two areas of WELCOME. */
static int gm_link_take_areas(const int *fds)
{
    struct gm_ctl *ctl = gm_link_map(fds[0], sizeof(*ctl), sizeof(*ctl), PROT_READ);
    if (ctl == MAP_FAILED)
        return -EPROTO;
    struct gm_stat *stat =
        gm_link_map(fds[1], sizeof(*stat), GM_STAT_BYTES, PROT_READ | PROT_WRITE);
    if (stat == MAP_FAILED)
        goto unmap_ctl;
    if (ctl->magic != GM_SHM_MAGIC || ctl->version != GM_SHM_VERSION ||
        stat->magic != GM_SHM_MAGIC || stat->version != GM_SHM_VERSION)
        goto unmap_stat;
    gm_link_ctl = ctl;
    gm_link_stat = stat;
    return 0;

unmap_stat:
    munmap(stat, sizeof(*stat));
unmap_ctl:
    munmap(ctl, sizeof(*ctl));
    return -EPROTO;
}

/* GPUMUX_GROUP for HELLO. */
static void gm_link_group(char group[64])
{
    const char *name = secure_getenv("GPUMUX_GROUP");
    if (name == NULL)
        return;
    if (strlen(name) < 64)
        strcpy(group, name);
    else
        gm_log(GM_LOG_WARN, "GPUMUX_GROUP is longer than 63 bytes: going on without it");
}

static int gm_link_shake_hands(int fd, struct gm_link_welcome *welcome, char *why, size_t why_size)
{
    struct gm_msg_hello hello = {.role = GM_ROLE_APP};
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS];
    int n_fds = 0;

    gm_appname_own((char *)gm_link_buffer, sizeof(gm_link_buffer), hello.name);
    gm_link_group(hello.group);
    gm_wishes_read(secure_getenv, &hello);
    int error = gm_sock_send_message(fd, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0);
    if (error != 0) {
        snprintf(why, why_size, "cannot send to the daemon: %s", strerror(-error));
        return error;
    }
    if (!gm_link_wait_readable(fd, gm_now() + GM_LINK_PATIENCE)) {
        snprintf(why, why_size, "the daemon does not answer");
        return -ETIMEDOUT;
    }
    ssize_t length = gm_sock_receive(fd, gm_link_buffer, sizeof(gm_link_buffer), fds, &n_fds);
    if (length <= 0) {
        snprintf(why, why_size, "the daemon closed the connection");
        return length < 0 ? (int)length : -ECONNRESET;
    }
    enum gm_wire_fault fault =
        gm_wire_decode(gm_link_buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_NEW, &message);
    error = -EPROTO;
    if (fault != GM_WIRE_OK) {
        snprintf(why, why_size, "cannot read the daemon's answer, is it of another version? %s",
                 gm_wire_fault_text(fault));
    } else if (message.type == GM_MSG_REFUSED) {
        const struct gm_msg_refused *refused = message.body;
        snprintf(why, why_size, "the daemon refused: %.*s", (int)sizeof(refused->text),
                 refused->text);
    } else if (message.type != GM_MSG_WELCOME || n_fds != 2 || message.count == 0 ||
               gm_link_take_areas(fds) != 0) {
        snprintf(why, why_size, "the daemon's answer is invalid");
    } else {
        const struct gm_msg_welcome *body = message.body;
        welcome->ctl = gm_link_ctl;
        welcome->stat = gm_link_stat;
        welcome->app = body->app;
        welcome->n_gpus = message.count < GM_GPUS_MAX ? message.count : GM_GPUS_MAX;
        memcpy(welcome->gpu, message.entries, welcome->n_gpus * sizeof(welcome->gpu[0]));
        error = 0;
    }
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    return error;
}

int gm_link_open(struct gm_link_welcome *welcome, char *why, size_t why_size)
{
    int fd = gm_sock_connect_any(NULL, 0);
    if (fd < 0) {
        snprintf(why, why_size, "no daemon: %s", strerror(-fd));
        return fd;
    }
    fd = gm_files_lift(fd);
    fcntl(fd, F_SETFL, O_NONBLOCK); /* nobody waits to send */
    int error = gm_link_shake_hands(fd, welcome, why, why_size);
    if (error != 0) {
        close(fd);
        return error;
    }
    gm_files_reserve();
    gm_post_open(fd);
    gm_link_gpus = welcome->n_gpus;
    for (uint32_t gpu = 0; gpu < gm_link_gpus; gpu++)
        gm_link_budgets[gpu] = welcome->gpu[gpu].budget;
    return 0;
}

void gm_link_shut(void)
{
    munmap((void *)(uintptr_t)gm_link_ctl, sizeof(*gm_link_ctl));
    munmap(gm_link_stat, sizeof(*gm_link_stat));
    gm_link_close();
}

/* ---- what others tell the daemon ---- */

void gm_link_expect(uint64_t after_us, uint64_t for_us)
{
    const struct gm_msg_expect expect = {.after_us = after_us, .for_us = for_us};
    if (gm_link_is_up())
        gm_post_tell(GM_MSG_EXPECT, &expect);
}

void gm_link_want(bool is_hurried)
{
    const struct gm_msg_want want = {.is_hurried = is_hurried};
    if (!gm_link_is_up())
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
    if (!gm_link_is_up())
        return;
    gm_post_send(GM_MSG_DRAINED, drained);
}

void gm_link_quiet(const struct gm_msg_quiet *quiet)
{
    if (gm_link_is_up())
        gm_post_send(GM_MSG_QUIET, quiet);
}

void gm_link_exported(void)
{
    if (gm_link_is_up())
        atomic_fetch_add(&gm_link_stat->exports, 1);
}

void gm_link_imported(pid_t exporter)
{
    const struct gm_msg_imported imported = {.exporter = exporter};
    if (gm_link_is_up())
        gm_post_send(GM_MSG_IMPORTED, &imported);
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

/* The daemon is lost. Decide how the program goes on. */
static void gm_link_lose(void)
{
    gm_files_give_back();
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
    if (at == 0 || beat != last) {
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

static void *gm_link_main(void *unused)
{
    (void)unused;
    /* Captures in other threads do not forbid our calls. */
    gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);

    for (;;) {
        uint64_t now = gm_now();
        uint64_t deadline = gm_drain_expire(now), due = gm_link_follow_marking(now);
        if (due < deadline)
            deadline = due;
        due = gm_hold_look(now, gm_link_calls->hold, gm_link_calls->resume);
        if (due < deadline)
            deadline = due;
        due = gm_link_listen(now);
        if (due < deadline)
            deadline = due;
        gm_link_say_paused();
        now = gm_now(); /* that may have taken a while */
        const uint64_t wait_ns = deadline > now ? deadline - now : 0;
        const struct timespec longest = gm_link_duration(wait_ns);
        const short ways = gm_post_has_letters() ? POLLIN | POLLOUT : POLLIN;
        struct pollfd wait[2] = {{.fd = gm_post_fd(), .events = ways},
                                 {.fd = gm_work_fd(), .events = POLLIN}};
        int ready = ppoll(wait, 2, &longest, NULL);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        if (ready < 0 || (wait[1].revents & ~POLLIN) != 0) /* the program closed the wake socket */
            break;
        if (wait[1].revents != 0) {
            gm_link_end_hold();
            gm_work_some();
        }
        if ((wait[0].revents & POLLOUT) != 0 && !gm_post_flush())
            break;
        if ((wait[0].revents & ~POLLOUT) == 0)
            continue;
        gm_files_make_room(gm_post_fd());
        bool is_obeyed = gm_link_receive();
        gm_files_reserve();
        if (!is_obeyed)
            break;
    }
    gm_link_lose();
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
    gm_post_close();
    gm_work_close();
}
