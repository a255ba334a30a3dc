/*
 * Many hostile clients at once, which launch nothing and want everything: they speak the protocol
 * at random, with legal and illegal values, flood, fall silent, never read, answer late, wrong or
 * never, write anything into the memory that they share with the daemon, fork, stop and die.
 *
 *   gm_hostile_many --seconds S [--seed N] [--clients N]   ends with 0 and a line that counts; 1:
 * the daemon is gone gm_hostile_many --dry STEPS [--seed N] [--clients N]   sends nothing; prints a
 * hash of what it would
 *
 * Each client is a process with some connections. When it has ended, its next life begins. A step
 * does one thing on one connection. All that it chooses follows from the seed, the client, its life
 * and the step alone, whatever the daemon answers. Only numbers of the daemon's are filled in as
 * they come: batches, epochs, queries, and the names of what others share.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/shm.h"
#include "common/sock.h"
#include "common/windows.h"
#include "tests/sim/chance.h"

#define MIB (1ull << 20)
#define CLIENTS_MAX 64u
#define CONNECTIONS 8u
#define PLACES 12u
#define OWED 64u
#define BOARD 64u
#define FLOOD_MAX 1000u

/* ---- what it can do -------------------------------------------------------------------------- */

enum action {
    SPEAK,    /* one message that the state allows, with any values */
    BABBLE,   /* one that it may not allow */
    FLOOD,    /* the same message again and again */
    NOISE,    /* bytes that are no message */
    ATTACH,   /* a message with file descriptors that nobody asked for */
    ANSWER,   /* what the daemon asked: mostly well */
    LISTEN,   /* read all that is there */
    SCRIBBLE, /* anything, anywhere in the shared words */
    LEAVE,    /* close the connection, and come again */
    NAP,
    FORK, /* a child that keeps all connections for a while */
    STOP, /* until the first process lets it go on */
    DIE,
    ACTIONS
};

/* Which actions a client likes, in parts of the sum; the naps between its steps; whether it is a
 * program or asks as mux-ctl does; how many of its messages hold any numbers at all. The daemon
 * ends a session for most of these, so only those that send few come to have memory and turns. */
static const struct character {
    unsigned likes[ACTIONS];
    unsigned nap_us;
    unsigned percent_control, per_mille_wild;
} characters[] = {
    /*              SPEAK BABBLE FLOOD NOISE ATTACH ANSWER LISTEN SCRIBBLE LEAVE NAP FORK STOP DIE
     */
    /* program */ {{30, 0, 0, 0, 0, 60, 0, 5, 0, 1, 0, 0, 0}, 500, 2, 1},
    /* liar    */ {{30, 0, 0, 0, 0, 60, 10, 10, 1, 1, 1, 1, 1}, 1000, 10, 10},
    /* mute    */ {{50, 0, 5, 0, 0, 0, 3, 10, 1, 5, 0, 0, 0}, 5000, 20, 10},
    /* asker   */ {{60, 1, 10, 0, 0, 0, 10, 0, 2, 2, 0, 0, 0}, 200, 98, 300},
    /* noise   */ {{10, 10, 1, 30, 20, 1, 5, 1, 5, 5, 1, 0, 1}, 2000, 30, 500},
    /* flood   */ {{10, 0, 30, 0, 0, 10, 10, 5, 1, 0, 0, 0, 0}, 200, 50, 20},
    /* writer  */ {{10, 0, 0, 0, 0, 60, 0, 90, 0, 0, 0, 0, 0}, 100, 0, 1},
    /* mortal  */ {{30, 0, 2, 0, 0, 40, 0, 10, 2, 3, 5, 2, 5}, 1000, 20, 10},
};
#define CHARACTERS (sizeof characters / sizeof characters[0])

/* ---- the protocol, from its table ------------------------------------------------------------ */

enum { NEW = GM_SESSION_NEW, APP = GM_SESSION_APP, CONTROL = GM_SESSION_CONTROL };
enum { UP = GM_UP, DOWN = GM_DOWN };

static const struct row {
    uint16_t type;
    uint16_t direction;
    unsigned states;
    size_t body, entry;
    uint32_t max_entries;
} rows[] = {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    {type, direction, states, sizeof(struct gm_msg_##name), sizeof(struct entry), max_entries},
#include "common/wire.def"
#undef GM_MSG
};
#define ROWS (sizeof rows / sizeof rows[0])

static const struct text {
    uint16_t type;
    size_t at, size;
} texts[] = {
#define GM_MSG_TEXT(NAME, name, field)                                                             \
    {GM_MSG_##NAME, offsetof(struct gm_msg_##name, field),                                         \
     sizeof(((struct gm_msg_##name *)0)->field)},
#include "common/wire.def"
#undef GM_MSG_TEXT
};
#define TEXTS (sizeof texts / sizeof texts[0])

/* ---- a client -------------------------------------------------------------------------------- */

struct owed {
    uint16_t type; /* of the answer */
    uint64_t number;
};

struct connection {
    int fd;         /* -1: not connected */
    unsigned state; /* that it is to have when it is connected */
    struct gm_stat *stat;
    struct owed owed[OWED];
    unsigned n_owed;
};

/* All processes of the attack. */
static struct board {
    _Atomic uint64_t connected, sent, received, refused, forks;
    _Atomic bool is_gone;
    struct gm_msg_shared shared[BOARD]; /* unlocked: half a name is a name, too */
} * board;

static uint64_t seed;
static unsigned client_index;
static uint64_t life, step;
static bool is_dry;
static uint64_t hash = 1469598103934665603u; /* FNV-1a of what was sent */
static struct connection connections[CONNECTIONS];
static struct chance chance; /* of this step */
static const struct character *character;

static uint64_t mixed(uint64_t a, uint64_t b)
{
    struct chance mix = {.state = a};
    mix.state = draw(&mix, UINT64_MAX) ^ b;
    return draw(&mix, UINT64_MAX);
}

static void begin_step(uint64_t which)
{
    chance.state = mixed(mixed(mixed(mixed(seed, client_index), life), step), which);
}

static void drop(struct connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->stat)
        munmap(c->stat, GM_STAT_BYTES);
    *c = (struct connection){.fd = -1, .state = c->state};
}

/* Send without waiting. False: the socket is full, or gone. */
static bool put(struct connection *c, const void *bytes, size_t length, const int *fds, int n_fds)
{
    if (is_dry) {
        for (size_t i = 0; i < length; i++)
            hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
        return true;
    }
    union {
        char room[CMSG_SPACE(64 * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(head), fds, (size_t)n_fds * sizeof(int));
    }
    if (sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        board->sent++;
        return true;
    }
    if (errno != EAGAIN && errno != EPERM && errno != ETOOMANYREFS && errno != ENOBUFS &&
        errno != EMSGSIZE)
        drop(c);
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

static uint64_t any_number(void)
{
    static const uint64_t edges[] = {
        0,           1,          2,           3,           4095,           4096,
        2 * MIB - 1, 2 * MIB,    2 * MIB + 1, 3 * MIB,     32 * MIB,       160 * MIB,
        INT32_MAX,   1ull << 31, UINT32_MAX,  1ull << 32,  1ull << 40,     1ull << 47,
        INT64_MAX,   1ull << 63, 0 - 2 * MIB, 0 - 4096ull, UINT64_MAX - 1, UINT64_MAX,
    };
    switch (draw(&chance, 4)) {
    case 0:
    case 1:
        return edges[draw(&chance, sizeof edges / sizeof edges[0])];
    case 2:
        return draw(&chance, 64);
    default:
        return draw(&chance, UINT64_MAX) >> draw(&chance, 64);
    }
}

static uint64_t any_place(void)
{
    return (1ull << 40) + draw(&chance, PLACES) * 32 * MIB;
}

static void fill_text(char *text, size_t size, bool is_wild)
{
    static const char *const words[] = {"",        "train",   "gm_worker", "*",        "[a-z",
                                        "../etc",  "python3", "team",      "?*?*?*?*", "%s%n%d",
                                        "hostile", "\n\n",    "\x1b[2J"};
    const size_t n = sizeof words / sizeof words[0], length = draw(&chance, size + 1);
    memset(text, 0, size);
    snprintf(text, size, "%s", words[draw(&chance, is_wild ? n : n - 2)]);
    for (size_t i = 0; is_wild && i < length;
         i++) /* without an end, if it is as long as the field */
        text[i] = (char)draw(&chance, 256);
}

/* The number that the daemon expects in an answer of this type; 0: it expects none. */
static uint64_t heard(const struct connection *c, uint16_t type)
{
    for (unsigned i = 0; i < c->n_owed; i++)
        if (c->owed[i].type == type)
            return c->owed[i].number;
    return 0;
}

/* Make a body that holds any numbers legal, as far as it can be. */
static void be_legal(const struct connection *c, uint16_t type, void *body)
{
    switch (type) {
    case GM_MSG_ALLOC: {
        struct gm_msg_alloc *alloc = body;
        alloc->va = any_place();
        alloc->bytes = 2 * MIB * (1 + draw(&chance, draw_percent(&chance, 80) ? 2 : 16));
        alloc->gpu = 0;
        alloc->flags = draw_percent(&chance, 20) ? GM_ALLOC_AHEAD : 0;
        break;
    }
    case GM_MSG_FREE:
        ((struct gm_msg_free *)body)->va = any_place();
        break;
    case GM_MSG_ENTER:
        ((struct gm_msg_enter *)body)->gpu = 0;
        break;
    case GM_MSG_SHARE:
        ((struct gm_msg_share *)body)->va = any_place();
        break;
    case GM_MSG_SHUT:
        ((struct gm_msg_shut *)body)->va = any_place();
        break;
    case GM_MSG_OPEN: {
        struct gm_msg_open *open = body;
        const struct gm_msg_shared *shared = &board->shared[draw(&chance, BOARD)];
        open->va = any_place();
        open->bytes = 2 * MIB * (1 + draw(&chance, 2));
        open->nonce[0] = shared->nonce[0];
        open->nonce[1] = shared->nonce[1] + draw_percent(&chance, 10);
        open->share = shared->share;
        open->gpu = 0;
        break;
    }
    case GM_MSG_DONE:
        ((struct gm_msg_done *)body)->batch = heard(c, type);
        break;
    case GM_MSG_DRAINED:
        ((struct gm_msg_drained *)body)->epoch = heard(c, type);
        break;
    case GM_MSG_QUIET:
        ((struct gm_msg_quiet *)body)->query = heard(c, type);
        break;
    case GM_MSG_HELLO: {
        struct gm_msg_hello *hello = body;
        hello->class = (uint32_t)draw(&chance, 5);
        hello->oversize = (uint32_t)draw(&chance, 3);
        hello->cap_is = (uint32_t)draw(&chance, 3);
        break;
    }
    case GM_MSG_SET: {
        struct gm_msg_set *set = body;
        set->selects = (uint32_t)draw(&chance, 8);
        set->pid = draw_percent(&chance, 50) ? (int32_t)getpid() : (int32_t)any_number();
        set->uid = draw_percent(&chance, 50) ? (uint32_t)getuid() : 0;
        set->settings = (uint32_t)draw(&chance, 64);
        if (is_dry)
            set->pid = 1;
        break;
    }
    default:
        break;
    }
}

static void fill_entries(const struct row *row, void *entries, uint32_t count, bool is_wild)
{
    for (size_t i = 0; i + 8 <= count * row->entry; i += 8) {
        uint64_t number = is_wild ? any_number() : draw(&chance, 1000);
        memcpy((char *)entries + i, &number, sizeof number);
    }
}

/* Make one message of this row. Returns its length. */
static size_t make(const struct connection *c, const struct row *row, uint8_t *bytes)
{
    const bool is_wild = draw(&chance, 1000) < character->per_mille_wild;
    struct gm_wire_header header = {.version = GM_WIRE_VERSION, .type = row->type};
    _Alignas(8) uint8_t body[512];
    _Alignas(8) static uint8_t entries[GM_WIRE_MAX];
    for (size_t i = 0; i < row->body; i += 4) {
        uint64_t number = any_number();
        memcpy(body + i, &number, i + 8 <= row->body ? 8 : 4);
        i += i % 8 == 0 && i + 8 <= row->body && draw_percent(&chance, 70) ? 4 : 0;
    }
    for (size_t i = 0; i < TEXTS; i++)
        if (texts[i].type == row->type)
            fill_text((char *)body + texts[i].at, texts[i].size, is_wild);
    if (!is_wild)
        be_legal(c, row->type, body);
    if (row->max_entries > 0)
        header.count = (uint32_t)draw(&chance, row->max_entries + 1);
    if (sizeof header + row->body + header.count * row->entry > GM_WIRE_MAX)
        header.count = 0;
    fill_entries(row, entries, header.count, is_wild);
    header.length = (uint32_t)(sizeof header + row->body + header.count * row->entry);
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + sizeof header, body, row->body);
    memcpy(bytes + sizeof header + row->body, entries, header.count * row->entry);
    return header.length;
}

/* A row that may be sent in this state and is no answer, or any at all. */
static const struct row *any_row(unsigned state)
{
    for (unsigned i = 0; i < 200; i++) {
        const struct row *row = &rows[draw(&chance, ROWS)];
        bool is_answer =
            row->type == GM_MSG_DONE || row->type == GM_MSG_DRAINED || row->type == GM_MSG_QUIET;
        if (state == 0 || (row->direction == GM_UP && row->states & state && !is_answer))
            return row;
    }
    return &rows[0];
}

/* ---- actions --------------------------------------------------------------------------------- */

static void connect_it(struct connection *c)
{
    uint8_t bytes[GM_WIRE_MAX];
    struct gm_msg_hello *hello = (void *)(bytes + sizeof(struct gm_wire_header));
    begin_step(1);
    size_t length = make(c, &rows[0], bytes);
    hello->role = c->state == GM_SESSION_APP ? GM_ROLE_APP : GM_ROLE_CONTROL;
    if (draw_percent(&chance, 3))
        hello->role = (uint32_t)any_number();
    if (draw_percent(&chance, 3))
        length = 0; /* says nothing, or something else */
    if (!is_dry) {
        c->fd = gm_sock_connect_any(NULL, 0);
        if (c->fd < 0) {
            if (c->fd == -ECONNREFUSED || c->fd == -ENOENT)
                board->is_gone = true;
            c->fd = -1;
            return;
        }
        board->connected++;
    }
    if (length > 0)
        put(c, bytes, length, NULL, 0);
}

static void owe(struct connection *c, uint16_t type, uint64_t number)
{
    if (c->n_owed < OWED)
        c->owed[c->n_owed++] = (struct owed){.type = type, .number = number};
}

static void hear(struct connection *c, const struct gm_wire_header *header, const void *body,
                 size_t size, const int *fds, int n_fds)
{
    uint64_t number = 0;
    if (size >= sizeof number)
        memcpy(&number, body, sizeof number);
    switch (header->type) {
    case GM_MSG_WELCOME:
        if (n_fds >= 2 && !c->stat)
            c->stat = mmap(NULL, GM_STAT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
        if (c->stat == MAP_FAILED)
            c->stat = NULL;
        break;
    case GM_MSG_MAP:
    case GM_MSG_UNMAP:
    case GM_MSG_DROP:
        owe(c, GM_MSG_DONE, number);
        break;
    case GM_MSG_CLOSE:
        owe(c, GM_MSG_DRAINED, number);
        break;
    case GM_MSG_QUERY:
        owe(c, GM_MSG_QUIET, number);
        break;
    case GM_MSG_SHARED:
        if (size >= sizeof board->shared[0])
            memcpy(&board->shared[number % BOARD], body, sizeof board->shared[0]);
        break;
    case GM_MSG_REFUSED:
        board->refused++;
        break;
    default:
        break;
    }
}

static void listen_to(struct connection *c)
{
    _Alignas(8) uint8_t bytes[GM_WIRE_MAX];
    int fds[GM_WIRE_FDS], n_fds = 0;
    bool has_lost;
    struct pollfd is_there = {.fd = c->fd, .events = POLLIN};
    for (int i = 0; i < 256 && c->fd >= 0 && poll(&is_there, 1, 0) > 0; i++) {
        ssize_t n = gm_sock_receive_part(c->fd, bytes, sizeof bytes, fds, &n_fds, &has_lost);
        if (n >= (ssize_t)sizeof(struct gm_wire_header))
            hear(c, (void *)bytes, bytes + sizeof(struct gm_wire_header),
                 (size_t)n - sizeof(struct gm_wire_header), fds, n_fds);
        for (int j = 0; j < n_fds; j++)
            close(fds[j]);
        if (n <= 0)
            drop(c);
        else
            board->received++;
    }
}

static void answer(struct connection *c)
{
    uint8_t bytes[GM_WIRE_MAX];
    unsigned most = 1 + (unsigned)draw(&chance, 8);
    bool is_right = draw(&chance, 1000) >= 10 * character->per_mille_wild;
    for (unsigned i = 0; i < most && c->n_owed > 0 && c->fd >= 0; i++) {
        unsigned which = is_right ? 0 : (unsigned)draw(&chance, c->n_owed);
        struct owed owed = c->owed[which];
        struct {
            uint64_t number;
            uint32_t words[4];
        } body = {.number = owed.number + (is_right ? 0 : draw(&chance, 3) - 1)};
        memmove(&c->owed[which], &c->owed[which + 1], (--c->n_owed - which) * sizeof owed);
        for (unsigned word = 0; word < 4 && !is_right; word++)
            body.words[word] = (uint32_t)any_number();
        if (owed.type == GM_MSG_QUIET && is_right)
            body.words[0] = (uint32_t)draw(&chance, 2);
        size_t length = gm_wire_encode(bytes, sizeof bytes, owed.type, &body, NULL, 0);
        put(c, bytes, length, NULL, 0);
    }
}

static void flood(struct connection *c, uint8_t *bytes)
{
    size_t length = make(c, any_row(c->state), bytes);
    uint64_t times = draw(&chance, FLOOD_MAX);
    for (uint64_t i = 0; i < times && put(c, bytes, length, NULL, 0); i++)
        continue;
}

static void make_noise(struct connection *c, uint8_t *bytes)
{
    struct gm_wire_header *header = (void *)bytes;
    size_t length = make(c, any_row(draw_percent(&chance, 50) ? c->state : 0), bytes);
    switch (draw(&chance, 6)) {
    case 0: /* half of it */
        length = draw(&chance, length);
        break;
    case 1:
        header->length = (uint32_t)any_number();
        break;
    case 2:
        header->count = (uint32_t)any_number();
        break;
    case 3:
        header->version = (uint16_t)any_number();
        break;
    case 4:
        header->type = (uint16_t)any_number();
        break;
    default:
        length = draw(&chance, GM_WIRE_MAX + 64);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)draw(&chance, 256);
        break;
    }
    put(c, bytes, length, NULL, 0);
}

static void attach(struct connection *c, uint8_t *bytes)
{
    static int null_fd = -1;
    int fds[64], n_fds = 1 + (int)draw(&chance, 64);
    size_t length = make(c, any_row(c->state), bytes);
    if (null_fd < 0)
        null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < n_fds; i++)
        fds[i] = i % 3 == 0 && c->fd >= 0 ? c->fd : null_fd; /* itself, too */
    put(c, bytes, length, fds, n_fds);
}

static void scribble(struct connection *c)
{
    const size_t words = sizeof(struct gm_stat) / sizeof(uint64_t);
    uint64_t how = draw(&chance, 4), most = 1 + draw(&chance, 512);
    for (uint64_t i = 0; i < most; i++) {
        size_t at = how == 0 ? draw(&chance, 512) : draw(&chance, words); /* or its first page */
        uint64_t number = draw_percent(&chance, 50) ? any_number() : any_place();
        if (how == 1)
            at = offsetof(struct gm_stat, spares) / 8 + draw(&chance, GM_SPARES_MAX);
        if (how == 2)
            number = draw(&chance, 2);
        if (how == 3 && draw_percent(&chance, 50)) /* a word of a place */
            at = gm_window_offset(any_place()) / 8 % (GM_STAT_BYTES / 8 - 512) + i;
        if (c->stat)
            ((volatile uint64_t *)c->stat)[at] = number;
    }
}

static void fork_it(void)
{
    useconds_t stays = (useconds_t)draw(&chance, 800000);
    bool it_dies = draw_percent(&chance, 30);
    if (is_dry)
        return;
    board->forks++;
    if (fork() == 0) { /* it keeps the connections, and ends with them or long after */
        usleep(stays);
        _exit(0);
    }
    if (it_dies)
        _exit(0);
}

static void act(struct connection *c, enum action action)
{
    static _Alignas(8) uint8_t bytes[GM_WIRE_MAX + 64];
    useconds_t nap = (useconds_t)draw(&chance, 50000);
    switch (action) {
    case SPEAK:
        put(c, bytes, make(c, any_row(c->state), bytes), NULL, 0);
        break;
    case BABBLE:
        put(c, bytes, make(c, any_row(0), bytes), NULL, 0);
        break;
    case FLOOD:
        flood(c, bytes);
        break;
    case NOISE:
        make_noise(c, bytes);
        break;
    case ATTACH:
        attach(c, bytes);
        break;
    case ANSWER:
        listen_to(c);
        answer(c);
        break;
    case LISTEN:
        listen_to(c);
        break;
    case SCRIBBLE:
        scribble(c);
        break;
    case LEAVE:
        drop(c);
        break;
    case NAP:
        if (!is_dry)
            usleep(nap + character->nap_us);
        break;
    case FORK:
        fork_it();
        break;
    case STOP:
        if (!is_dry)
            raise(SIGSTOP);
        break;
    case DIE:
        if (!is_dry)
            raise(SIGKILL);
        break;
    case ACTIONS:
        break;
    }
}

static enum action any_action(void)
{
    unsigned sum = 0, at = 0;
    for (unsigned i = 0; i < ACTIONS; i++)
        sum += character->likes[i];
    uint64_t which = draw(&chance, sum);
    while (which >= character->likes[at])
        which -= character->likes[at++];
    return (enum action)at;
}

/* A life has an end: what was never read or answered goes with it. */
static void live(uint64_t most_steps)
{
    character = &characters[client_index % CHARACTERS];
    begin_step(2);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        bool asks = draw_percent(&chance, character->percent_control);
        connections[i] = (struct connection){.fd = -1, .state = asks ? CONTROL : APP};
    }
    for (step = 0; step < most_steps; step++) {
        begin_step(0);
        struct connection *c = &connections[draw(&chance, CONNECTIONS)];
        enum action action = any_action();
        useconds_t nap = (useconds_t)draw(&chance, 2 * character->nap_us);
        struct chance rest = chance;
        if (c->fd < 0)
            connect_it(c);
        chance = rest;
        act(c, action);
        if (!is_dry)
            usleep(nap);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static pid_t pids[CLIENTS_MAX];
static volatile sig_atomic_t is_over;

static void on_term(int unused)
{
    (void)unused;
    is_over = 1;
}

static void start(unsigned index, uint64_t its_life)
{
    const pid_t first = getpid();
    pids[index] = fork();
    if (pids[index] != 0)
        return;
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != first)
        _exit(0); /* it had ended before this could be asked for */
    client_index = index;
    life = its_life;
    begin_step(3);
    live(2000 + draw(&chance, 20000));
    _exit(0);
}

static int attack(uint64_t seconds, unsigned clients)
{
    static uint64_t lives[CLIENTS_MAX];
    uint64_t end = gm_now() + seconds * GM_S, all_lives = 0;
    signal(SIGTERM, on_term); /* first: a machine may be so slow that the end comes meanwhile */
    for (unsigned i = 0; i < clients; i++)
        start(i, 0);
    while (gm_now() < end && !is_over && !board->is_gone) {
        usleep(50000);
        for (unsigned i = 0; i < clients; i++) {
            if (lives[i] % 2 == 0 || gm_now() / GM_S % 3 == 0)
                kill(pids[i], SIGCONT);
            if (waitpid(pids[i], NULL, WNOHANG) == pids[i])
                start(i, ++lives[i]);
        }
    }
    for (unsigned i = 0; i < clients; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        all_lives += lives[i] + 1;
    }
    printf(
        "clients=%u lives=%llu connected=%llu sent=%llu received=%llu refused=%llu forks=%llu%s\n",
        clients, (unsigned long long)all_lives, (unsigned long long)board->connected,
        (unsigned long long)board->sent, (unsigned long long)board->received,
        (unsigned long long)board->refused, (unsigned long long)board->forks,
        board->is_gone ? " the daemon is gone" : "");
    return board->is_gone;
}

int main(int argc, char **argv)
{
    uint64_t seconds = 0, dry_steps = 0, clients = CHARACTERS;
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t number = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = number;
        else if (strcmp(argv[i], "--seed") == 0)
            seed = number;
        else if (strcmp(argv[i], "--clients") == 0)
            clients = number < CLIENTS_MAX ? number : CLIENTS_MAX;
        else if (strcmp(argv[i], "--dry") == 0)
            dry_steps = number;
        else
            return 2;
    }
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 2;
    if (dry_steps == 0)
        return attack(seconds, (unsigned)clients);
    is_dry = true;
    for (client_index = 0; client_index < clients; client_index++)
        live(dry_steps);
    printf("%016llx\n", (unsigned long long)hash);
    return 0;
}
