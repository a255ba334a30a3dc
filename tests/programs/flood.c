/* clang-format off */
/*
 * A user who asks for more than anybody needs:
 *
 *   gm_flood ask --seconds S    many connections, as many STATUS and LOG in each as its socket takes
 *   gm_flood deaf --seconds S   the same, and two programs that ask for memory; nobody reads an
 *                               answer. It ends once one of the two was cut
 *   gm_flood wait --seconds S   programs whose allocations wait, thousands each (--when-full wait)
 *   gm_flood set --seconds S    SET for a program of its own, as fast as can be
 *   gm_flood set --count N      the same so often, and who is refused is counted
 *
 * It maps nothing and answers no question. It ends with 0 and a line "PASS silence=MS ...": the
 * longest time between two beats of the daemon. With --ready FILE, FILE is there once all are at it.
 */
/* clang-format on */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/shm.h"
#include "common/sock.h"

#define MIB (1ull << 20)
#define CONTROLS 60u
#define APPS 40u
#define WAITING 4000u /* of each program */

struct peer {
    int fd;             /* -1: not connected */
    struct gm_ctl *ctl; /* of a program */
    struct gm_stat *stat;
    uint32_t sent; /* allocations asked for */
};

static struct peer controls[CONTROLS], apps[APPS];
static uint64_t sent, read_, cut, longest, last_beat_at;
static uint32_t last_beat;
static bool is_deaf, is_app_cut;

static void drop(struct peer *peer)
{
    if (peer->fd >= 0) {
        close(peer->fd);
        cut++;
    }
    if (peer->ctl)
        munmap(peer->ctl, sizeof *peer->ctl);
    if (peer->stat)
        munmap(peer->stat, sizeof *peer->stat);
    *peer = (struct peer){.fd = -1};
}

/* -1: not now. */
static int connect_as(enum gm_role role)
{
    struct gm_msg_hello hello = {.role = role, .name = "flood\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\""};
    int fd = gm_sock_connect_any(NULL, 0);
    if (fd < 0)
        return -1;
    if (gm_sock_send_message(fd, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool join(struct peer *peer)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    int fds[GM_WIRE_FDS], n_fds = 0;
    *peer = (struct peer){.fd = connect_as(GM_ROLE_APP)};
    if (peer->fd < 0)
        return false;
    if (gm_sock_receive(peer->fd, bytes, sizeof bytes, fds, &n_fds) <= 0 || n_fds < 2) {
        close(peer->fd);
        peer->fd = -1;
        return false;
    }
    void *ctl = mmap(NULL, sizeof *peer->ctl, PROT_READ, MAP_SHARED, fds[0], 0);
    void *stat = mmap(NULL, sizeof *peer->stat, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    peer->ctl = ctl == MAP_FAILED ? NULL : ctl;
    peer->stat = stat == MAP_FAILED ? NULL : stat;
    while (n_fds > 0)
        close(fds[--n_fds]);
    fcntl(peer->fd, F_SETFL, O_NONBLOCK);
    return peer->ctl && peer->stat;
}

/* Whether the socket takes one more; a peer that was cut is dropped. */
static bool tell(struct peer *peer, enum gm_msg_type type, const void *body)
{
    if (peer->fd < 0)
        return false;
    const int error = gm_sock_send_message(peer->fd, type, body, NULL, 0, NULL, 0);
    sent += error == 0;
    if (error != 0 && error != -EAGAIN)
        drop(peer);
    return error == 0;
}

static void hear(struct peer *peer)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    int fds[GM_WIRE_FDS], n_fds;
    ssize_t n = 1;
    while (peer->fd >= 0 && n > 0) {
        n = gm_sock_receive(peer->fd, bytes, sizeof bytes, fds, &n_fds);
        while (n > 0 && n_fds > 0)
            close(fds[--n_fds]);
        read_ += n > 0;
        if (n <= 0 && n != -EAGAIN)
            drop(peer);
    }
}

/* The daemon's sign of life, as every program sees it. */
static void watch_beat(void)
{
    for (unsigned i = 0; i < APPS; i++) {
        if (!apps[i].ctl)
            continue;
        const uint64_t now = gm_now();
        const uint32_t beat = atomic_load(&apps[i].ctl->beat) + (i << 24);
        if (beat == last_beat && now - last_beat_at > longest)
            longest = now - last_beat_at;
        if (beat != last_beat)
            last_beat_at = now;
        last_beat = beat;
        return;
    }
}

static void ask_all(void)
{
    for (unsigned i = 0; i < CONTROLS; i++) {
        struct peer *peer = &controls[i];
        if (peer->fd < 0) {
            peer->fd = connect_as(GM_ROLE_CONTROL);
            if (peer->fd >= 0)
                fcntl(peer->fd, F_SETFL, O_NONBLOCK);
        }
        const struct gm_msg_status status = {0};
        const struct gm_msg_log log = {.since = sent % 7};
        while (i % 4 ? tell(peer, GM_MSG_STATUS, &status) : tell(peer, GM_MSG_LOG, &log))
            continue;
        if (!is_deaf)
            hear(peer);
    }
}

/* Each asks for more than there is, and more, or for what it must wait for. */
static void allocate_all(uint64_t bytes, uint32_t most)
{
    for (unsigned i = 0; i < APPS; i++) {
        struct peer *peer = &apps[i];
        if (peer->fd < 0 || (is_deaf && i >= 2))
            continue;
        for (bool is_taken = true; is_taken && peer->sent < most; peer->sent += is_taken) {
            const struct gm_msg_alloc alloc = {
                .cookie = peer->sent, .va = (1ull << 40) + peer->sent * 4096 * MIB, .bytes = bytes};
            is_taken = tell(peer, GM_MSG_ALLOC, &alloc);
        }
        if (!is_deaf)
            hear(peer);
        is_app_cut = is_app_cut || peer->fd < 0;
    }
}

/* Returns how many were refused as too many. */
static uint64_t set(uint64_t count, uint64_t end)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS], n_fds;
    uint64_t refused = 0;
    int fd = connect_as(GM_ROLE_CONTROL);
    for (uint64_t i = 0; fd >= 0 && (count ? i < count : gm_now() < end); i++) {
        const struct gm_msg_set body = {.selects = GM_SET_PID,
                                        .pid = getpid(),
                                        .settings = GM_SET_WEIGHT,
                                        .weight = 500 + (uint32_t)(i % 2)};
        if (gm_sock_send_message(fd, GM_MSG_SET, &body, NULL, 0, NULL, 0) != 0)
            break;
        ssize_t n = gm_sock_receive(fd, bytes, sizeof bytes, fds, &n_fds);
        if (n <= 0 ||
            gm_wire_decode(bytes, (size_t)n, n_fds, GM_DOWN, GM_SESSION_CONTROL, &message))
            break;
        sent++;
        const struct gm_msg_set_is *answer = message.body;
        if (message.type == GM_MSG_SET_IS && answer->is_refused) {
            refused++;
            if (refused == 1)
                printf("first refusal: %.*s\n", (int)sizeof answer->text, answer->text);
        }
        watch_beat();
    }
    if (fd >= 0)
        close(fd);
    return refused;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "", *ready = NULL;
    uint64_t seconds = 0, count = 0, refused = 0;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--count") == 0)
            count = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--ready") == 0)
            ready = argv[i + 1];
    }
    const bool is_ask = strcmp(way, "ask") == 0, is_wait = strcmp(way, "wait") == 0;
    const bool is_set = strcmp(way, "set") == 0;
    is_deaf = strcmp(way, "deaf") == 0;
    if ((!is_ask && !is_wait && !is_set && !is_deaf) || (seconds == 0 && count == 0)) {
        fprintf(stderr, "gm_flood ask|deaf|wait|set --seconds S|--count N [--ready FILE]\n");
        return 2;
    }
    for (unsigned i = 0; i < CONTROLS; i++)
        controls[i].fd = -1;
    for (unsigned i = 0; i < APPS; i++)
        apps[i].fd = -1;
    for (unsigned i = 0; i < (is_set ? 1 : APPS); i++)
        if (!join(&apps[i])) {
            printf("program %u is not served\n", i);
            return 1;
        }
    const uint64_t end = gm_now() + seconds * GM_S;
    last_beat_at = gm_now();
    for (unsigned round = 0; !is_set && (gm_now() < end || (is_deaf && !is_app_cut)); round++) {
        if (is_ask || is_deaf)
            ask_all();
        if (is_deaf)
            allocate_all(1ull << 50, UINT32_MAX); /* refused, each with an answer */
        if (is_wait)
            allocate_all(128 * MIB, WAITING);
        watch_beat();
        if (round == 1 && ready)
            close(open(ready, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
        usleep(2000);
    }
    if (is_set && ready)
        close(open(ready, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    if (is_set)
        refused = set(count, end);
    printf("PASS silence=%llu sent=%llu read=%llu cut=%llu refused=%llu\n",
           (unsigned long long)(longest / GM_MS), (unsigned long long)sent,
           (unsigned long long)read_, (unsigned long long)cut, (unsigned long long)refused);
    return 0;
}
