/* The socket is shut down after a loss and never closed: another thread may be about to send on it,
 * and its number must not become somebody else's file. */
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
#include "shim/link/work.h"

#define GM_LINK_PATIENCE (2 * GM_SLOW * GM_S) /* for WELCOME */
#define GM_LINK_LOOK_NS (5 * GM_S)            /* the longest poll */
#define GM_LINK_MARK_NS GM_S                  /* between looks whether to mark */
/* A daemon that gave no sign for so long is named in the log; it gives one each second. */
#define GM_LINK_SILENCE_NS (10 * GM_SLOW * GM_S)

/* A message for which the socket had no room. */
struct gm_letter {
    struct gm_letter *next;
    size_t length;
    uint64_t bytes[16]; /* no message without entries is longer */
};

enum gm_request_state { GM_REQUEST_WAITING, GM_REQUEST_ANSWERED, GM_REQUEST_LOST };

/* On the stack of the thread that waits; linked while it waits. */
struct gm_request {
    uint64_t cookie;
    enum gm_msg_type answer; /* the message that answers it */
    enum gm_request_state state;
    int32_t result;
    struct gm_msg_shared *shared; /* gets SHARED; NULL for other requests */
    pthread_cond_t is_done;
    struct gm_request *next;
};

static int gm_link_fd = -1;
static const struct gm_link_calls *gm_link_calls; /* written before the thread starts */
static const struct gm_ctl *gm_link_ctl;
static struct gm_stat *gm_link_stat;
static uint32_t gm_link_gpus;
static uint64_t gm_link_budgets[GM_GPUS_MAX]; /* from WELCOME */
static _Atomic bool gm_link_is_connected;
static _Atomic bool gm_link_has_signal; /* a signal came to a thread of a paused program */

/* Guards what follows. */
static struct gm_lock gm_link_lock = GM_LOCK_INITIALIZER(GM_LOCK_LINK);
static struct gm_request *gm_link_requests;
static uint64_t gm_link_cookie;
static bool gm_link_is_lost;
static struct gm_letter *gm_link_outbox; /* in order; the link thread sends it */
static struct gm_letter **gm_link_outbox_end = &gm_link_outbox;
/* Open requests of gm_link_alloc_ahead. */
static struct gm_link_ahead {
    uint64_t cookie; /* 0: none */
    uint64_t va, bytes;
} gm_link_aheads[GM_LINK_AHEAD];

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
    gm_link_fd = fd;
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

/* ---- requests ---- */

bool gm_link_is_up(void)
{
    return atomic_load_explicit(&gm_link_is_connected, memory_order_acquire);
}

/* Any thread: give the connection up. The link thread sees it and ends every request. */
static void gm_link_break(void)
{
    shutdown(gm_link_fd, SHUT_RDWR);
}

/* The socket is full: the daemon does not read now, or the kernel has no memory for more. */
static bool gm_link_is_full(int error)
{
    return error == -EAGAIN || error == -ENOBUFS || error == -ENOMEM;
}

/* With the lock: keep a message until the socket has room. 0 or -errno. */
static int gm_link_keep(enum gm_msg_type type, const void *body)
{
    struct gm_letter *letter = malloc(sizeof(*letter));
    if (letter == NULL)
        return -ENOMEM;
    letter->next = NULL;
    letter->length = gm_wire_encode(letter->bytes, sizeof(letter->bytes), type, body, NULL, 0);
    *gm_link_outbox_end = letter;
    gm_link_outbox_end = &letter->next;
    return 0;
}

/* Send a message that must not get lost. Never waits: the link thread sends later what has to. */
static void gm_link_send(enum gm_msg_type type, const void *body)
{
    int error = -EAGAIN;
    gm_lock(&gm_link_lock);
    const bool is_first = gm_link_outbox == NULL;
    if (is_first)
        error = gm_sock_send_message(gm_link_fd, type, body, NULL, 0, NULL, 0);
    const bool is_kept = gm_link_is_full(error);
    if (is_kept && !gm_link_is_lost)
        error = gm_link_keep(type, body);
    gm_unlock(&gm_link_lock);
    if (error != 0)
        gm_link_break();
    else if (is_kept && is_first)
        gm_work_knock();
}

/* Link thread: send what was kept, as far as there is room. False: the connection is lost. */
static bool gm_link_post(void)
{
    int error = 0;
    gm_lock(&gm_link_lock);
    while (gm_link_outbox != NULL && error == 0) {
        struct gm_letter *letter = gm_link_outbox;
        error = gm_sock_send(gm_link_fd, letter->bytes, letter->length, NULL, 0);
        if (error != 0)
            break;
        gm_link_outbox = letter->next;
        if (gm_link_outbox == NULL)
            gm_link_outbox_end = &gm_link_outbox;
        free(letter);
    }
    gm_unlock(&gm_link_lock);
    return error == 0 || gm_link_is_full(error);
}

/* Link thread. */
static bool gm_link_has_letters(void)
{
    gm_lock(&gm_link_lock);
    const bool has = gm_link_outbox != NULL;
    gm_unlock(&gm_link_lock);
    return has;
}

/* Send a message that may get lost: while the daemon does not read, it is. Any signal handler. */
static void gm_link_tell(enum gm_msg_type type, const void *body, const void *entries, uint32_t n)
{
    gm_sock_send_message(gm_link_fd, type, body, entries, n, NULL, 0);
}

void gm_link_expect(uint64_t after_us, uint64_t for_us)
{
    const struct gm_msg_expect expect = {.after_us = after_us, .for_us = for_us};
    if (gm_link_is_up())
        gm_link_tell(GM_MSG_EXPECT, &expect, NULL, 0);
}

void gm_link_want(bool is_hurried)
{
    const struct gm_msg_want want = {.is_hurried = is_hurried};
    if (!gm_link_is_up())
        return;
    gm_link_tell(GM_MSG_WANT, &want, NULL, 0);
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
    gm_link_send(GM_MSG_DRAINED, drained);
}

void gm_link_quiet(const struct gm_msg_quiet *quiet)
{
    if (gm_link_is_up())
        gm_link_send(GM_MSG_QUIET, quiet);
}

/* Put the request on the list. False: lost. */
static bool gm_request_begin(struct gm_request *request, enum gm_msg_type answer,
                             struct gm_msg_shared *shared)
{
    *request = (struct gm_request){.answer = answer, .state = GM_REQUEST_WAITING, .shared = shared};
    pthread_cond_init(&request->is_done, NULL);
    gm_lock(&gm_link_lock);
    bool is_on = gm_link_is_up() && !gm_link_is_lost;
    if (is_on) {
        request->cookie = ++gm_link_cookie;
        request->next = gm_link_requests;
        gm_link_requests = request;
    }
    gm_unlock(&gm_link_lock);
    if (!is_on)
        pthread_cond_destroy(&request->is_done);
    return is_on;
}

/* Wait for the answer to a request that was sent. 0, a CUresult, or -ENOTCONN. */
static int gm_request_end(struct gm_request *request)
{
    gm_lock(&gm_link_lock);
    while (request->state == GM_REQUEST_WAITING)
        gm_lock_wait(&request->is_done, &gm_link_lock);
    gm_unlock(&gm_link_lock);
    pthread_cond_destroy(&request->is_done);
    if (request->state == GM_REQUEST_LOST)
        return -ENOTCONN;
    return request->result >= 0 ? request->result : CUDA_ERROR_UNKNOWN;
}

/* Link thread: the answer to a request came. False: there is no such request. */
static bool gm_request_answer(enum gm_msg_type answer, uint64_t cookie, int32_t result,
                              const struct gm_msg_shared *shared)
{
    bool is_known = false;
    gm_lock(&gm_link_lock);
    for (struct gm_request **place = &gm_link_requests; *place != NULL; place = &(*place)->next) {
        struct gm_request *request = *place;
        if (request->cookie != cookie || request->answer != answer)
            continue;
        *place = request->next;
        request->result = result;
        if (request->shared != NULL && shared != NULL)
            *request->shared = *shared;
        request->state = GM_REQUEST_ANSWERED;
        pthread_cond_signal(&request->is_done); /* with the lock: then the request is gone */
        is_known = true;
        break;
    }
    gm_unlock(&gm_link_lock);
    return is_known;
}

void gm_link_enter(int gpu)
{
    static _Atomic bool has_entered[GM_GPUS_MAX];
    struct gm_request request;
    if (gm_link_gpus < 2 || gpu < 0 || gpu >= (int)gm_link_gpus ||
        atomic_load_explicit(&has_entered[gpu], memory_order_acquire) ||
        !gm_request_begin(&request, GM_MSG_ENTERED, NULL))
        return;
    struct gm_msg_enter enter = {.cookie = request.cookie, .gpu = (uint32_t)gpu};
    gm_link_send(GM_MSG_ENTER, &enter);
    if (gm_request_end(&request) == 0)
        atomic_store_explicit(&has_entered[gpu], true, memory_order_release);
}

int gm_link_alloc(uint64_t va, uint64_t bytes, uint32_t gpu)
{
    struct gm_request request;
    if (!gm_request_begin(&request, GM_MSG_ALLOCATED, NULL))
        return -ENOTCONN;
    struct gm_msg_alloc alloc = {.cookie = request.cookie, .va = va, .bytes = bytes, .gpu = gpu};
    gm_link_send(GM_MSG_ALLOC, &alloc);
    return gm_request_end(&request);
}

int gm_link_alloc_ahead(uint64_t va, uint64_t bytes, uint32_t gpu)
{
    struct gm_msg_alloc alloc = {.va = va, .bytes = bytes, .gpu = gpu, .flags = GM_ALLOC_AHEAD};
    gm_lock(&gm_link_lock);
    struct gm_link_ahead *ahead = gm_link_aheads;
    while (ahead < gm_link_aheads + GM_LINK_AHEAD && ahead->cookie != 0)
        ahead++;
    bool is_on = gm_link_is_up() && !gm_link_is_lost && ahead < gm_link_aheads + GM_LINK_AHEAD;
    if (is_on) {
        alloc.cookie = ++gm_link_cookie;
        *ahead = (struct gm_link_ahead){alloc.cookie, va, bytes};
    }
    gm_unlock(&gm_link_lock);
    if (!is_on)
        return -ENOTCONN;
    gm_link_send(GM_MSG_ALLOC, &alloc); /* the link thread tells the result */
    return 0;
}

/* Link thread: the answer to the request ahead *cookie (NULL: any) came. False: there is none. */
static bool gm_link_end_ahead(const uint64_t *cookie, int result)
{
    struct gm_link_ahead found = {0};
    gm_lock(&gm_link_lock);
    for (uint32_t i = 0; i < GM_LINK_AHEAD && found.cookie == 0; i++) {
        struct gm_link_ahead *ahead = &gm_link_aheads[i];
        if (ahead->cookie == 0 || (cookie != NULL && ahead->cookie != *cookie))
            continue;
        found = *ahead;
        ahead->cookie = 0;
    }
    gm_unlock(&gm_link_lock);
    if (found.cookie == 0)
        return false;
    gm_link_calls->ahead_came(found.va, found.bytes, result);
    return true;
}

struct gm_link_range {
    uint64_t va;
    uint64_t bytes;
};

static CUresult gm_link_release(void *argument)
{
    const struct gm_link_range *range = argument;
    return gm_link_calls->release(range->va, range->bytes);
}

int gm_link_free(uint64_t va, uint64_t bytes)
{
    struct gm_request request;
    if (gm_request_begin(&request, GM_MSG_FREED, NULL)) {
        struct gm_msg_free message = {.cookie = request.cookie, .va = va};
        gm_link_send(GM_MSG_FREE, &message);
        int result = gm_request_end(&request);
        if (result != -ENOTCONN)
            return result;
    }
    struct gm_link_range range = {.va = va, .bytes = bytes};
    return (int)gm_work_run(gm_link_release, &range);
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
        gm_link_send(GM_MSG_IMPORTED, &imported);
}

int gm_link_share(uint64_t va, struct gm_msg_shared *shared)
{
    struct gm_request request;
    if (!gm_request_begin(&request, GM_MSG_SHARED, shared))
        return -ENOTCONN;
    struct gm_msg_share share = {.cookie = request.cookie, .va = va};
    gm_link_send(GM_MSG_SHARE, &share);
    return gm_request_end(&request);
}

int gm_link_open_share(uint64_t va, const struct gm_share_name *name)
{
    struct gm_request request;
    if (!gm_request_begin(&request, GM_MSG_OPENED, NULL))
        return -ENOTCONN;
    struct gm_msg_open open = {.cookie = request.cookie,
                               .va = va,
                               .bytes = name->bytes,
                               .nonce = {name->nonce[0], name->nonce[1]},
                               .share = name->share,
                               .gpu = name->gpu};
    gm_link_send(GM_MSG_OPEN, &open);
    return gm_request_end(&request);
}

int gm_link_shut_share(uint64_t va, uint64_t bytes)
{
    struct gm_request request;
    if (gm_request_begin(&request, GM_MSG_SHUT_IS, NULL)) {
        struct gm_msg_shut message = {.cookie = request.cookie, .va = va};
        gm_link_send(GM_MSG_SHUT, &message);
        int result = gm_request_end(&request);
        if (result != -ENOTCONN)
            return result;
    }
    struct gm_link_range range = {.va = va, .bytes = bytes};
    return (int)gm_work_run(gm_link_release, &range);
}

pid_t gm_link_daemon(void)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    return getsockopt(gm_link_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
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
    gm_link_send(GM_MSG_DONE, &done);
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
    case GM_MSG_ALLOCATED: {
        const struct gm_msg_allocated *allocated = body;
        const int result = allocated->result >= 0 ? allocated->result : CUDA_ERROR_UNKNOWN;
        if (gm_link_end_ahead(&allocated->cookie, result))
            return true;
        return gm_request_answer(GM_MSG_ALLOCATED, allocated->cookie, allocated->result, NULL);
    }
    case GM_MSG_ENTERED: {
        const struct gm_msg_entered *entered = body;
        return gm_request_answer(GM_MSG_ENTERED, entered->cookie, entered->result, NULL);
    }
    case GM_MSG_FREED: {
        const struct gm_msg_freed *freed = body;
        return gm_request_answer(GM_MSG_FREED, freed->cookie, freed->result, NULL);
    }
    case GM_MSG_TAKEN:
        gm_link_end_hold();
        return gm_link_calls->taken(((const struct gm_msg_taken *)body)->va);
    case GM_MSG_SHARED: {
        const struct gm_msg_shared *shared = body;
        return gm_request_answer(GM_MSG_SHARED, shared->cookie, shared->result, shared);
    }
    case GM_MSG_OPENED: {
        const struct gm_msg_opened *opened = body;
        return gm_request_answer(GM_MSG_OPENED, opened->cookie, opened->result, NULL);
    }
    case GM_MSG_SHUT_IS: {
        const struct gm_msg_shut_is *shut = body;
        return gm_request_answer(GM_MSG_SHUT_IS, shut->cookie, shut->result, NULL);
    }
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
        return false;
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
    ssize_t length = gm_sock_receive_part(gm_link_fd, gm_link_buffer, sizeof(gm_link_buffer), fds,
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
    atomic_store(&gm_link_is_connected, false);
    shutdown(gm_link_fd, SHUT_RDWR);
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
    gm_hold_end(gm_link_calls->resume);
    gm_drain_resume(); /* even without its memory: see the head of link.h */
    gm_link_calls->timeslice(0);

    gm_lock(&gm_link_lock);
    gm_link_is_lost = true;
    for (struct gm_letter *next, *letter = gm_link_outbox; letter != NULL; letter = next) {
        next = letter->next;
        free(letter);
    }
    gm_link_outbox = NULL;
    gm_link_outbox_end = &gm_link_outbox;
    while (gm_link_requests != NULL) {
        struct gm_request *request = gm_link_requests;
        gm_link_requests = request->next;
        request->state = GM_REQUEST_LOST;
        pthread_cond_signal(&request->is_done);
    }
    gm_unlock(&gm_link_lock);
    while (gm_link_end_ahead(NULL, -ENOTCONN))
        continue;
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
        const short ways = gm_link_has_letters() ? POLLIN | POLLOUT : POLLIN;
        struct pollfd wait[2] = {{.fd = gm_link_fd, .events = ways},
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
        if ((wait[0].revents & POLLOUT) != 0 && !gm_link_post())
            break;
        if ((wait[0].revents & ~POLLOUT) == 0)
            continue;
        gm_files_make_room(gm_link_fd);
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
    atomic_store(&gm_link_is_connected, true);
    error = gm_thread_start(gm_link_main, "gpumux-link");
    if (error != 0)
        atomic_store(&gm_link_is_connected, false);
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
    atomic_store(&gm_link_is_connected, false);
    if (gm_link_calls != NULL)
        gm_link_calls->mark(false, NULL);
    gm_files_give_back();
    if (gm_link_fd >= 0)
        close(gm_link_fd);
    gm_link_fd = -1;
    gm_work_close();
}
