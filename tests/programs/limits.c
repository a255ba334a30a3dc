/*
 * Says each number of the protocol and of the shared memory at its limits: nothing, one, what is
 * just no chunk, a chunk, no multiple of one, the numbers of the command line (the budget, say),
 * the largest. It answers what it is asked, and maps nothing.
 *
 *   gm_limits [BYTES...]   ends with 0 and a line that counts; 1: the daemon does not answer
 */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/classes.h"
#include "common/shm.h"
#include "common/sock.h"

#define VA (1ull << 40)
#define NO_VA (3ull << 40) /* nothing is ever there */
#define PATIENCE_MS 60000

static int fd = -1;
static struct gm_stat *stat;
static uint64_t cookie, said, joined, refused;

static _Noreturn void gone(const char *what)
{
    printf("the daemon does not answer: %s\n", what);
    exit(1);
}

static void leave(void)
{
    if (fd >= 0)
        close(fd);
    if (stat)
        munmap(stat, sizeof *stat);
    fd = -1;
    stat = NULL;
}

static void tell(enum gm_msg_type type, const void *body, const void *entries, uint32_t n)
{
    said++;
    if (fd >= 0 && gm_sock_send_message(fd, type, body, entries, n, NULL, 0) != 0)
        leave();
}

/* The next message; false: the connection has ended. */
static bool hear(enum gm_session_state state, uint8_t bytes[GM_WIRE_MAX],
                 struct gm_wire_message *message, int fds[GM_WIRE_FDS], int *n_fds)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (fd < 0)
        return false;
    if (poll(&poll_fd, 1, PATIENCE_MS) != 1)
        gone("nothing comes");
    const ssize_t n = gm_sock_receive(fd, bytes, GM_WIRE_MAX, fds, n_fds);
    if (n > 0 && gm_wire_decode(bytes, (size_t)n, *n_fds, GM_DOWN, state, message) == 0 &&
        message->type != GM_MSG_REFUSED)
        return true;
    for (int i = 0; n > 0 && i < *n_fds; i++)
        close(fds[i]);
    refused++;
    leave();
    return false;
}

static void join(const struct gm_msg_hello *wishes)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    struct gm_msg_hello hello = *wishes;
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS], n_fds = 0;
    leave();
    fd = gm_sock_connect_any(NULL, 0);
    if (fd < 0)
        gone("it takes no connection");
    hello.role = GM_ROLE_APP;
    snprintf(hello.name, sizeof hello.name, "limits");
    tell(GM_MSG_HELLO, &hello, NULL, 0);
    if (!hear(GM_SESSION_NEW, bytes, &message, fds, &n_fds))
        return;
    joined++;
    stat = mmap(NULL, sizeof *stat, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    while (n_fds > 0)
        close(fds[--n_fds]);
    if (stat == MAP_FAILED)
        gone("no shared memory");
}

static void answer(const struct gm_wire_message *message)
{
    const uint64_t number = *(const uint64_t *)message->body;
    const struct gm_msg_done done = {.batch = number};
    const struct gm_msg_drained drained = {.epoch = number};
    const struct gm_msg_quiet quiet = {.query = number, .is_quiet = 1};
    if (message->type == GM_MSG_MAP || message->type == GM_MSG_UNMAP ||
        message->type == GM_MSG_DROP)
        tell(GM_MSG_DONE, &done, NULL, 0);
    else if (message->type == GM_MSG_CLOSE)
        tell(GM_MSG_DRAINED, &drained, NULL, 0);
    else if (message->type == GM_MSG_QUERY)
        tell(GM_MSG_QUIET, &quiet, NULL, 0);
}

/* Until all that was said is heard: freeing what is not there is answered at once. */
static void sync_once(void)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS], n_fds = 0;
    const struct gm_msg_free nothing = {.cookie = ++cookie, .va = NO_VA};
    tell(GM_MSG_FREE, &nothing, NULL, 0);
    while (hear(GM_SESSION_APP, bytes, &message, fds, &n_fds)) {
        for (int i = 0; i < n_fds; i++)
            close(fds[i]);
        if (message.type == GM_MSG_FREED &&
            ((const struct gm_msg_freed *)message.body)->cookie == cookie)
            return;
        answer(&message);
    }
}

static void sync_all(void)
{
    for (int i = 0; i < 4; i++) /* answers lead to questions */
        sync_once();
}

/* mux-ctl's messages, on a connection of their own. */
static void ask(enum gm_msg_type type, const void *body)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    struct gm_msg_hello hello = {.role = GM_ROLE_CONTROL, .name = "limits"};
    struct pollfd poll_fd = {.fd = gm_sock_connect_any(NULL, 0), .events = POLLIN};
    int fds[GM_WIRE_FDS], n_fds = 0;
    if (poll_fd.fd < 0)
        gone("it takes no connection");
    said++;
    if (gm_sock_send_message(poll_fd.fd, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0) != 0 ||
        gm_sock_send_message(poll_fd.fd, type, body, NULL, 0, NULL, 0) != 0 ||
        poll(&poll_fd, 1, PATIENCE_MS) != 1)
        gone("nothing comes from a question");
    gm_sock_receive(poll_fd.fd, bytes, sizeof bytes, fds, &n_fds);
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    close(poll_fd.fd);
}

static void allocate(uint64_t va, uint64_t bytes, uint32_t gpu, uint32_t flags)
{
    const struct gm_msg_alloc alloc = {
        .cookie = ++cookie, .va = va, .bytes = bytes, .gpu = gpu, .flags = flags};
    tell(GM_MSG_ALLOC, &alloc, NULL, 0);
    sync_all();
}

/* Small pieces before, between and after large ones, with a cap that it says itself or is given. */
static void try_cap(uint32_t cap_is, uint64_t cap)
{
    const struct gm_msg_hello hello = {
        .cap_is = cap_is, .cap = cap, .class = (uint32_t)cap, .oversize = (uint32_t)cap};
    struct gm_msg_set set = {.selects = GM_SET_PID,
                             .pid = getpid(),
                             .settings = GM_SET_CAP,
                             .cap = cap_is == GM_HELLO_CAP_UNSAID ? cap : GM_CHUNK_MIN};
    const struct gm_msg_free free_it = {.cookie = ++cookie, .va = VA};
    const uint64_t pieces[] = {100000, GM_CHUNK_MIN - 1, cap, 0};
    join(&hello);
    if (fd < 0)
        return;
    atomic_store(&stat->small_bytes, 100000);
    allocate(VA, GM_CHUNK_MAX, 0, 0);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces && fd >= 0; i++) {
        atomic_store(i % 2 ? &stat->array_bytes : &stat->small_bytes, pieces[i]);
        sync_all();
        allocate(VA + (2 + i) * GM_CHUNK_MAX, GM_CHUNK_MIN, 0, 0);
        if (i % 2 == 0)
            ask(GM_MSG_SET, &set);
    }
    if (fd < 0)
        return;
    tell(GM_MSG_FREE, &free_it, NULL, 0);
    sync_all();
    set.cap = 0;
    ask(GM_MSG_SET, &set);
    sync_all();
}

static void try_settings(uint64_t n)
{
    const struct gm_msg_hello hello = {0};
    struct gm_msg_set set = {.selects = GM_SET_PID,
                             .pid = getpid(),
                             .class = (uint32_t)n,
                             .weight = (uint32_t)n,
                             .share = (uint32_t)n,
                             .paused = (uint32_t)n,
                             .is_oversize = (uint32_t)n,
                             .cap = n};
    const struct gm_msg_log log = {.since = n};
    const struct gm_msg_reserve reserve = {.is_required = (uint32_t)n};
    join(&hello);
    allocate(VA, GM_CHUNK_MAX, 0, 0);
    for (set.settings = 1; set.settings <= GM_SET_SETTINGS; set.settings *= 2)
        ask(GM_MSG_SET, &set);
    set.settings = (uint32_t)n;
    ask(GM_MSG_SET, &set);
    set.settings = GM_SET_WEIGHT;
    set.selects = (uint32_t)n;
    ask(GM_MSG_SET, &set);
    set.selects = GM_SET_PID | GM_SET_UID;
    set.pid = (int32_t)n;
    set.uid = (uint32_t)n;
    ask(GM_MSG_SET, &set);
    ask(GM_MSG_LOG, &log);
    ask(GM_MSG_RESERVE, &reserve);
    sync_all();
}

static void try_message(unsigned which, uint64_t n)
{
    const uint32_t small = (uint32_t)n;
    const struct gm_msg_enter enter = {.gpu = small};
    const struct gm_msg_free free_it = {.va = n};
    const struct gm_msg_share share = {.va = n};
    const struct gm_msg_shut shut = {.va = n};
    const struct gm_msg_open open = {.va = n, .bytes = n, .share = small, .gpu = small};
    const struct gm_msg_open open_it = {.va = VA, .bytes = n, .share = small};
    const struct gm_msg_done done = {.batch = n, .result = (int32_t)small};
    const struct gm_msg_drained drained = {.epoch = n, .status = small, .drain_ns = n};
    const struct gm_msg_quiet quiet = {.query = n, .is_quiet = small};
    const struct gm_msg_expect expect = {.after_us = n, .for_us = n};
    const struct {
        enum gm_msg_type type;
        const void *body;
    } says[] = {{GM_MSG_ENTER, &enter},  {GM_MSG_FREE, &free_it}, {GM_MSG_SHARE, &share},
                {GM_MSG_SHUT, &shut},    {GM_MSG_OPEN, &open},    {GM_MSG_OPEN, &open_it},
                {GM_MSG_DONE, &done},    {GM_MSG_QUIET, &quiet},  {GM_MSG_DRAINED, &drained},
                {GM_MSG_EXPECT, &expect}};
    tell(says[which].type, says[which].body, NULL, 0);
    sync_all();
}

enum { MESSAGES = 10 };

/* Whatever ends the session: the next one begins another. */
static void try_sizes(uint64_t n)
{
    const struct gm_msg_hello hello = {.class = GM_CLASS_LATENCY + 1};
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (fd < 0 || i == 0)
            join(&hello);
        try_message(i, n);
    }
    for (unsigned i = 0; i < 6; i++) {
        if (fd < 0)
            join(&hello);
        const uint64_t va = i == 1 ? n : i == 2 ? 0 - n : VA;
        const uint64_t bytes = i == 0 || i == 3 ? n : i == 2 ? n : GM_CHUNK_MIN;
        allocate(va, bytes, i == 4 ? (uint32_t)n : 0, i == 5 ? (uint32_t)n : i == 3);
    }
    if (fd < 0)
        join(&hello);
    allocate(VA, GM_CHUNK_MIN, 0, 0);
    if (fd < 0)
        return;
    atomic_store(&stat->spares[0], n);
    atomic_store(&stat->spares[1], VA + n);
    atomic_store(&stat->refused, n);
    atomic_store(&stat->driver_refused_bytes, n);
    atomic_store(&stat->features_off, (uint32_t)n);
    sync_all();
    atomic_store(&stat->refused, 0);
    atomic_store(&stat->driver_refused, n);
    sync_all();
}

static void try_all(uint64_t n)
{
    const struct gm_msg_status status = {0};
    for (uint32_t cap_is = 0; cap_is < 5; cap_is++)
        try_cap(cap_is < 4 ? cap_is : (uint32_t)n, n);
    try_sizes(n);
    try_settings(n);
    ask(GM_MSG_STATUS, &status);
    leave();
}

int main(int argc, char **argv)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       100000,
                                       GM_CHUNK_MIN - 1,
                                       GM_CHUNK_MIN,
                                       GM_CHUNK_MIN + 1,
                                       3 * GM_CHUNK_MIN,
                                       GM_CHUNK_MAX,
                                       GM_CHUNK_MAX + GM_CHUNK_MIN,
                                       INT64_MAX,
                                       1ull << 63,
                                       0 - 2 * GM_CHUNK_MIN,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        try_all(numbers[i]);
    for (int i = 1; i < argc; i++)
        try_all(strtoull(argv[i], NULL, 10));
    printf("joined=%llu said=%llu refused=%llu\n", (unsigned long long)joined,
           (unsigned long long)said, (unsigned long long)refused);
    return 0;
}
