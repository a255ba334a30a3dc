/*
 * A client that speaks the protocol and means no good: well-formed messages with values of its own,
 * answers late, out of order, wrong or never, and anything at all in the memory that it shares with
 * the daemon. Two connections at a time, which open what the other shares; when one is refused, it
 * comes again. It maps nothing.
 *
 *   gm_hostile --seconds S [--seed N]   ends with 0 and a line that counts; 1: the daemon is gone
 */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/shm.h"
#include "common/sock.h"
#include "common/windows.h"
#include "tests/sim/chance.h"

#define MIB (1ull << 20)
#define MOST (48 * MIB) /* of both connections: others must be able to run beside it */
#define PLACES 16u
#define OWED 64u

/* What the daemon asked, and was not answered yet. */
struct owed {
    uint16_t type;
    uint64_t number;
};

struct peer {
    int fd; /* -1: not connected */
    struct gm_ctl *ctl;
    struct gm_stat *stat;
    struct owed owed[OWED];
    unsigned n_owed;
    uint64_t bytes[PLACES]; /* asked for, by place */
    struct gm_msg_shared shared[PLACES];
    uint64_t messages;
};

static struct chance chance;
static struct peer peers[2];
static uint64_t sent, received, refused, joined;

static uint64_t va_of(unsigned place)
{
    return (1ull << 40) + place * 64 * MIB;
}

static void drop(struct peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    if (peer->stat)
        munmap(peer->stat, GM_STAT_BYTES);
    if (peer->ctl)
        munmap(peer->ctl, sizeof *peer->ctl);
    memset(peer, 0, sizeof *peer);
    peer->fd = -1;
}

static void tell(struct peer *peer, enum gm_msg_type type, const void *body, const void *entries,
                 uint32_t count)
{
    if (peer->fd < 0)
        return;
    sent++;
    peer->messages++;
    if (gm_sock_send_message(peer->fd, type, body, entries, count, NULL, 0) != 0)
        drop(peer);
}

/* 0: the daemon is not there. */
static int join(struct peer *peer)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    struct gm_msg_hello hello = {.role = GM_ROLE_APP, .name = "hostile"};
    int fds[GM_WIRE_FDS], n_fds = 0;
    peer->fd = gm_sock_connect_any(NULL, 0);
    if (peer->fd < 0)
        return 0;
    tell(peer, GM_MSG_HELLO, &hello, NULL, 0);
    if (peer->fd < 0 || gm_sock_receive(peer->fd, bytes, sizeof bytes, fds, &n_fds) <= 0 ||
        n_fds < 2) {
        for (int i = 0; i < n_fds; i++)
            close(fds[i]);
        drop(peer);
        return 1;
    }
    joined++;
    peer->stat = mmap(NULL, GM_STAT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    if (peer->stat == MAP_FAILED)
        peer->stat = NULL;
    peer->ctl = mmap(NULL, sizeof *peer->ctl, PROT_READ, MAP_SHARED, fds[0], 0);
    if (peer->ctl == MAP_FAILED)
        peer->ctl = NULL;
    while (n_fds > 0)
        close(fds[--n_fds]);
    return 1;
}

static void owe(struct peer *peer, uint16_t type, uint64_t number)
{
    if (peer->n_owed < OWED)
        peer->owed[peer->n_owed++] = (struct owed){.type = type, .number = number};
}

static void note_shared(struct peer *peer, const struct gm_msg_shared *shared)
{
    if (shared->cookie < PLACES && shared->result == 0)
        peer->shared[shared->cookie] = *shared;
}

static void hear(struct peer *peer, const struct gm_wire_message *message)
{
    const struct gm_msg_allocated *allocated = message->body;
    switch (message->type) {
    case GM_MSG_MAP:
    case GM_MSG_UNMAP:
    case GM_MSG_DROP:
        owe(peer, GM_MSG_DONE, *(const uint64_t *)message->body);
        break;
    case GM_MSG_CLOSE:
        owe(peer, GM_MSG_DRAINED, ((const struct gm_msg_close *)message->body)->epoch);
        break;
    case GM_MSG_QUERY:
        owe(peer, GM_MSG_QUIET, ((const struct gm_msg_query *)message->body)->query);
        break;
    case GM_MSG_ALLOCATED:
        if (allocated->cookie < PLACES && allocated->result != 0)
            peer->bytes[allocated->cookie] = 0;
        break;
    case GM_MSG_SHARED:
        note_shared(peer, message->body);
        break;
    default:
        break;
    }
}

static void listen_to(struct peer *peer)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS], n_fds = 0;
    struct pollfd poll_fd = {.fd = peer->fd, .events = POLLIN};
    while (peer->fd >= 0 && poll(&poll_fd, 1, 0) > 0) {
        bool has_lost;
        ssize_t n = gm_sock_receive_part(peer->fd, bytes, sizeof bytes, fds, &n_fds, &has_lost);
        for (int i = 0; i < n_fds; i++)
            close(fds[i]);
        if (n <= 0 || gm_wire_decode(bytes, (size_t)n, n_fds, GM_DOWN, GM_SESSION_APP, &message)) {
            drop(peer);
            return;
        }
        received++;
        if (message.type == GM_MSG_REFUSED) {
            refused++;
            drop(peer);
            return;
        }
        hear(peer, &message);
    }
}

/* Answer one of the questions: mostly the oldest, mostly well. */
static void answer(struct peer *peer)
{
    if (peer->n_owed == 0)
        return;
    unsigned i = draw_percent(&chance, 99) ? 0 : (unsigned)draw(&chance, peer->n_owed);
    struct owed owed = peer->owed[i];
    memmove(&peer->owed[i], &peer->owed[i + 1], (--peer->n_owed - i) * sizeof owed);
    if (draw_percent(&chance, 1))
        owed.number += draw(&chance, 3) - 1;
    struct gm_msg_done done = {.batch = owed.number};
    struct gm_msg_drained drained = {.epoch = owed.number,
                                     .status = (uint32_t)draw(&chance, 100) < 80 ? 0 : 1};
    struct gm_msg_quiet quiet = {.query = owed.number, .is_quiet = (uint32_t)draw(&chance, 3)};
    if (draw_percent(&chance, 5))
        done.result = (int32_t)draw(&chance, 1000) - 10;
    if (drained.status)
        drained.reason = (uint32_t)draw(&chance, draw_percent(&chance, 50) ? 5 : UINT32_MAX);
    if (draw_percent(&chance, 5))
        drained.drain_ns = draw(&chance, UINT64_MAX);
    if (owed.type == GM_MSG_DONE)
        tell(peer, GM_MSG_DONE, &done, NULL, 0);
    else if (owed.type == GM_MSG_DRAINED)
        tell(peer, GM_MSG_DRAINED, &drained, NULL, 0);
    else
        tell(peer, GM_MSG_QUIET, &quiet, NULL, 0);
}

static uint64_t asked_for(void)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < 2 * PLACES; i++)
        bytes += peers[i / PLACES].bytes[i % PLACES];
    return bytes;
}

static void ask_memory(struct peer *peer, unsigned place)
{
    struct gm_msg_alloc alloc = {.cookie = place, .va = va_of(place)};
    alloc.bytes = 2 * MIB * (1 + draw(&chance, draw_percent(&chance, 90) ? 8 : 16));
    if (draw_percent(&chance, 5)) { /* more than there is: refused, or it waits */
        alloc.bytes = 2 * MIB * (1 + draw(&chance, 1024));
        alloc.cookie = PLACES;
        alloc.va = va_of(PLACES + (unsigned)draw(&chance, 4)) << 1;
        if (alloc.bytes < 200 * MIB)
            alloc.bytes += 200 * MIB;
    } else if (peer->bytes[place] > 0 || asked_for() + alloc.bytes > MOST) {
        return;
    } else {
        peer->bytes[place] = alloc.bytes;
    }
    tell(peer, GM_MSG_ALLOC, &alloc, NULL, 0);
}

static void open_others(struct peer *peer, unsigned place)
{
    const struct peer *other = &peers[peer == &peers[0]];
    const struct gm_msg_shared *shared = &other->shared[place];
    struct gm_msg_open open = {.cookie = place,
                               .va = (2ull << 40) + place * 64 * MIB,
                               .bytes = other->bytes[place],
                               .nonce = {shared->nonce[0], shared->nonce[1]},
                               .share = shared->share};
    if (draw_percent(&chance, 5))
        open.nonce[draw(&chance, 2)]++;
    if (open.bytes > 0)
        tell(peer, GM_MSG_OPEN, &open, NULL, 0);
}

/* Words of places that it has, and of others: as the shim marks them, or any. */
static void mark(struct peer *peer)
{
    if (!peer->stat || !peer->ctl)
        return;
    _Atomic uint64_t *words = (void *)((char *)peer->stat + GM_WINDOW_WORDS_AT);
    const uint64_t first =
        draw_percent(&chance, 70) ? gm_window_place(va_of(0)) : draw(&chance, GM_WINDOW_PLACES);
    const bool is_legal = draw_percent(&chance, 70);
    const uint32_t window = atomic_load(&peer->ctl->window);
    for (uint64_t i = 0; i < 512; i++) {
        const struct gm_touch touch = {
            .window = window, .order = (uint32_t)i, .count = (uint32_t)draw(&chance, 1 << 20)};
        atomic_store(&words[(first + i * draw(&chance, 4)) % GM_WINDOW_PLACES],
                     is_legal ? gm_touch_pack(touch) : draw(&chance, UINT64_MAX));
    }
    atomic_fetch_add(&peer->stat->slot[0].calls, 1);
    atomic_store(&peer->stat->marks_from, is_legal ? 1 : (uint32_t)draw(&chance, UINT32_MAX));
    atomic_store(&peer->stat->lasts_from, is_legal ? window - (uint32_t)draw(&chance, 3)
                                                   : (uint32_t)draw(&chance, UINT32_MAX));
    atomic_store(&peer->stat->works_in, is_legal ? window : (uint32_t)draw(&chance, UINT32_MAX));
    if (draw_percent(&chance, 20))
        atomic_fetch_add(&peer->stat->unseen, draw(&chance, UINT64_MAX));
}

/* Anything, anywhere in the area that it shares with the daemon. */
static void scribble(struct peer *peer)
{
    uint64_t *words = (void *)peer->stat;
    if (!words)
        return;
    if (draw_percent(&chance, 30)) {
        /* Of what it has, and of what it has not. */
        atomic_store(&peer->stat->spares[draw(&chance, GM_SPARES_MAX)],
                     draw(&chance, 2) ? draw(&chance, UINT64_MAX)
                                      : va_of((unsigned)draw(&chance, PLACES)));
        return;
    }
    for (unsigned i = 0; i < 64; i++)
        words[draw(&chance, sizeof *peer->stat / sizeof *words)] =
            draw(&chance, draw_percent(&chance, 50) ? 3 : UINT64_MAX);
}

static void act(struct peer *peer)
{
    unsigned place = (unsigned)draw(&chance, PLACES);
    struct gm_msg_free free_it = {.cookie = place, .va = va_of(place)};
    struct gm_msg_share share = {.cookie = place, .va = va_of(place)};
    struct gm_msg_shut shut = {.cookie = place, .va = (2ull << 40) + place * 64 * MIB};
    struct gm_msg_want want = {0};
    switch (draw(&chance, 12)) {
    case 0:
    case 1:
    case 2:
        ask_memory(peer, place);
        break;
    case 3:
        peer->bytes[place] = 0;
        memset(&peer->shared[place], 0, sizeof peer->shared[place]);
        tell(peer, GM_MSG_FREE, &free_it, NULL, 0);
        break;
    case 4:
    case 5:
        tell(peer, GM_MSG_WANT, &want, NULL, 0);
        break;
    case 6:
        tell(peer, GM_MSG_SHARE, &share, NULL, 0);
        break;
    case 7:
        open_others(peer, place);
        break;
    case 8:
        tell(peer, GM_MSG_SHUT, &shut, NULL, 0);
        break;
    case 9:
        mark(peer);
        break;
    case 10:
        scribble(peer);
        break;
    case 11:
        if (draw_percent(&chance, 20)) { /* an answer to nothing */
            owe(peer, draw_percent(&chance, 50) ? GM_MSG_DRAINED : GM_MSG_QUIET, draw(&chance, 9));
        } else if (draw_percent(&chance, 2)) {
            drop(peer);
        }
        break;
    }
}

static int attack(uint64_t seconds)
{
    uint64_t end = gm_now() + seconds * GM_S;
    peers[0].fd = peers[1].fd = -1;
    while (gm_now() < end) {
        struct peer *peer = &peers[draw(&chance, 2)];
        if (peer->fd < 0 && !join(peer)) {
            printf("the daemon is gone\n");
            return 1;
        }
        listen_to(peer);
        if (draw_percent(&chance, 60))
            answer(peer);
        if (draw_percent(&chance, 40))
            act(peer);
        if (draw_percent(&chance, 10)) /* as fast as can be, then nothing for a while */
            usleep((useconds_t)draw(&chance, 20000));
    }
    printf("joined=%llu sent=%llu received=%llu refused=%llu\n", (unsigned long long)joined,
           (unsigned long long)sent, (unsigned long long)received, (unsigned long long)refused);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t seconds = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t number = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = number;
        else if (strcmp(argv[i], "--seed") == 0)
            chance.state = number;
        else
            return 2;
    }
    return attack(seconds);
}
