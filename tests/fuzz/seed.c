/*
 * Makes the seeds of the wire fuzzer's corpus: one valid message of each row of wire.def, empty and
 * full where it has entries, and broken ones, one a fault and more. The files are committed;
 * whoever changes the protocol makes them anew. Files that a fuzzer found are not its business.
 *
 *   fuzz_wire_seed DIRECTORY            write them
 *   fuzz_wire_seed --check DIRECTORY    compare them; exit 1 if one differs or is missing
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "tests/fuzz/fuzz_wire.h"

enum { UP = GM_UP, DOWN = GM_DOWN };
enum { NEW = GM_SESSION_NEW, APP = GM_SESSION_APP, CONTROL = GM_SESSION_CONTROL };

static const char *directory;
static bool is_check;
static int n_files, n_wrong;

static uint8_t input[GM_FUZZ_HEAD + GM_WIRE_MAX];
static size_t length; /* of the message in it */

static void emit(const char *name)
{
    char path[4096];
    size_t size = GM_FUZZ_HEAD + length;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    n_files++;

    FILE *file = fopen(path, is_check ? "rb" : "wb");
    bool is_good = file != NULL;
    if (is_good && is_check) {
        static uint8_t there[sizeof(input) + 1];
        size_t n = fread(there, 1, sizeof(there), file);
        is_good = n == size && memcmp(there, input, size) == 0;
    } else if (is_good) {
        is_good = fwrite(input, 1, size, file) == size;
    }
    if (file != NULL && fclose(file) != 0)
        is_good = false;
    if (!is_good) {
        fprintf(stderr, "%s: %s\n", path,
                is_check ? "not what wire.def makes now" : strerror(errno));
        n_wrong++;
    }
}

static void emit_broken(enum gm_wire_fault fault, const char *what)
{
    char name[128];
    snprintf(name, sizeof(name), "broken-%d-%s", (int)fault, what);
    emit(name);
}

static uint8_t *message(void)
{
    return input + GM_FUZZ_HEAD;
}

static void put16(size_t at, uint16_t value)
{
    memcpy(message() + at, &value, sizeof(value));
}

static void put32(size_t at, uint32_t value)
{
    memcpy(message() + at, &value, sizeof(value));
}

/* A plausible body: what a real session sends. */
union body {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    struct gm_msg_##name name;
#include "common/wire.def"
#undef GM_MSG
};

static union body body_of(enum gm_msg_type type)
{
    union body body;
    memset(&body, 0, sizeof(body));
    switch (type) {
    case GM_MSG_HELLO:
        body.hello =
            (struct gm_msg_hello){.role = GM_ROLE_APP, .name = "python3", .group = "train"};
        break;
    case GM_MSG_PLACE:
        body.place = (struct gm_msg_place){.flags = GM_PLACE_HAS_LIST | GM_PLACE_IS_RANKED,
                                           .nodes = 3,
                                           .need = 1ull << 33,
                                           .name = "python3"};
        break;
    case GM_MSG_PLACED:
        body.placed = (struct gm_msg_placed){.text = "GPU 1 comes first",
                                             .pipe = "/run/gpumux/gpumux.sock.mps/0/pipe"};
        break;
    case GM_MSG_FORGET:
        body.forget = (struct gm_msg_forget){.selects = GM_SET_COMMAND, .command = "train*"};
        break;
    case GM_MSG_FORGOTTEN:
        body.forgotten = (struct gm_msg_forgotten){.count = 3};
        break;
    case GM_MSG_CONFIG:
        body.config = (struct gm_msg_config){.what = GM_CONFIG_RELOAD};
        break;
    case GM_MSG_CONFIG_IS:
        body.config_is = (struct gm_msg_config_is){.text = "changed: rule"};
        break;
    case GM_MSG_EXPLAIN:
        body.explain = (struct gm_msg_explain){
            .selects = GM_SET_UID | GM_SET_COMMAND, .class = 2, .command = "train.py"};
        break;
    case GM_MSG_EXPLAIN_IS:
        body.explain_is.bytes = 12345;
        break;
    case GM_MSG_GIVEN_BACK:
        body.given_back = (struct gm_msg_given_back){.whole = 2, .left = 1};
        break;
    case GM_MSG_ENTER:
        body.enter = (struct gm_msg_enter){.cookie = 9, .gpu = 1};
        break;
    case GM_MSG_ENTERED:
        body.entered = (struct gm_msg_entered){.cookie = 9, .result = 600};
        break;
    case GM_MSG_ALLOC:
        body.alloc = (struct gm_msg_alloc){.cookie = 1, .va = 0x7f0000000000, .bytes = 86u << 20};
        break;
    case GM_MSG_FREE:
        body.free = (struct gm_msg_free){.cookie = 2, .va = 0x7f0000000000};
        break;
    case GM_MSG_DRAINED:
        body.drained = (struct gm_msg_drained){.epoch = 3,
                                               .status = GM_DRAIN_BUSY,
                                               .reason = GM_DRAIN_CAPTURE,
                                               .drain_ns = 2000000000};
        break;
    case GM_MSG_DONE:
        body.done = (struct gm_msg_done){.batch = 4, .result = 2};
        break;
    case GM_MSG_WELCOME:
        body.welcome = (struct gm_msg_welcome){.app = 5,
                                               .version = GM_WIRE_VERSION,
                                               .nonce = {0x123456789abcdef, 0xfedcba9876543210},
                                               .rejoin_ns = 30000000000};
        break;
    case GM_MSG_REJOIN:
        body.rejoin = (struct gm_msg_rejoin){.app = 5,
                                             .nonce = {0x123456789abcdef, 0xfedcba9876543210},
                                             .epoch = 3,
                                             .cookie = 9,
                                             .flags = GM_REJOIN_IS_PARKED};
        break;
    case GM_MSG_HOLDS:
        body.holds.is_last = 1;
        break;
    case GM_MSG_REFUSED:
        body.refused = (struct gm_msg_refused){.reason = GM_REFUSE_FULL, .text = "too many apps"};
        break;
    case GM_MSG_ALLOCATED:
        body.allocated = (struct gm_msg_allocated){.cookie = 1, .result = 2};
        break;
    case GM_MSG_FREED:
        body.freed = (struct gm_msg_freed){.cookie = 2, .result = 1};
        break;
    case GM_MSG_TAKEN:
        body.taken.va = 0x7f0000000000;
        break;
    case GM_MSG_RESUME:
        body.resume = (struct gm_msg_resume){.epoch = 3};
        break;
    case GM_MSG_EXPECT:
        body.expect = (struct gm_msg_expect){.after_us = 1000, .for_us = 1200};
        break;
    case GM_MSG_HOLD:
        body.hold = (struct gm_msg_hold){.for_ns = 1900000};
        break;
    case GM_MSG_TIMESLICE:
        body.timeslice.us = 200;
        break;
    case GM_MSG_CLOSE:
        body.close =
            (struct gm_msg_close){.epoch = 3, .grace_ns = 2000000, .deadline_ns = 2000000000};
        break;
    case GM_MSG_QUIET:
        body.quiet = (struct gm_msg_quiet){.query = 5, .is_quiet = 1};
        break;
    case GM_MSG_QUERY:
        body.query.query = 5;
        break;
    case GM_MSG_SHARE:
        body.share = (struct gm_msg_share){.cookie = 6, .va = 0x7f0000000000};
        break;
    case GM_MSG_OPEN:
        body.open = (struct gm_msg_open){.cookie = 7,
                                         .va = 0x7f1000000000,
                                         .bytes = 86u << 20,
                                         .nonce = {0x123456789abcdef, 0xfedcba9876543210},
                                         .share = 1};
        break;
    case GM_MSG_SHUT:
        body.shut = (struct gm_msg_shut){.cookie = 8, .va = 0x7f1000000000};
        break;
    case GM_MSG_SHARED:
        body.shared = (struct gm_msg_shared){
            .cookie = 6, .nonce = {0x123456789abcdef, 0xfedcba9876543210}, .share = 1};
        break;
    case GM_MSG_OPENED:
        body.opened = (struct gm_msg_opened){.cookie = 7, .result = 1};
        break;
    case GM_MSG_SHUT_IS:
        body.shut_is = (struct gm_msg_shut_is){.cookie = 8};
        break;
    case GM_MSG_MAP:
    case GM_MSG_UNMAP:
    case GM_MSG_DROP:
        body.map.batch = 4;
        break;
    case GM_MSG_STATUS_IS:
        body.status_is.bytes = 1234;
        break;
    case GM_MSG_SET:
        body.set = (struct gm_msg_set){.selects = GM_SET_UID | GM_SET_COMMAND,
                                       .uid = 1000,
                                       .settings = GM_SET_CLASS | GM_SET_SHARE,
                                       .class = 3,
                                       .share = 500,
                                       .command = "python3*"};
        break;
    case GM_MSG_TRIM_IS:
        body.trim_is = (struct gm_msg_trim_is){.gpu = 96u << 20, .pinned = 64u << 20};
        break;
    case GM_MSG_SET_IS:
        body.set_is = (struct gm_msg_set_is){.is_refused = 1, .text = "no such program"};
        break;
    case GM_MSG_LOG:
        body.log.since = 7;
        break;
    case GM_MSG_LOG_IS:
        body.log_is.bytes = 1234;
        break;
    case GM_MSG_TRACE:
        body.trace.since = 4711;
        break;
    case GM_MSG_TRACE_IS:
        body.trace_is.bytes = 12345;
        break;
    case GM_MSG_RESERVE:
        body.reserve = (struct gm_msg_reserve){.is_required = 1, .name = "train_model.py"};
        break;
    case GM_MSG_RESERVED:
        body.reserved = (struct gm_msg_reserved){.is_refused = 1, .text = "all places are taken"};
        break;
    case GM_MSG_IMPORTED:
        body.imported.exporter = 4711;
        break;
    case GM_MSG_WANT:
    case GM_MSG_GIVE_BACK:
    case GM_MSG_STATUS:
    case GM_MSG_TRIM:
        break;
    }
    return body;
}

/* `count` entries of a row; in MAP every second frame comes with its fd. Returns the number of fds.
 */
static int entries_of(enum gm_msg_type type, uint32_t count, void *to)
{
    int n_fds = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (type == GM_MSG_WELCOME) {
            struct gm_gpu_entry *gpu = (struct gm_gpu_entry *)to + i;
            for (unsigned b = 0; b < 16; b++)
                gpu->uuid[b] = (uint8_t)(i * 16 + b);
            gpu->budget = 24ull << 30;
        } else if (type == GM_MSG_MAP) {
            ((struct gm_map_entry *)to)[i] = (struct gm_map_entry){
                .va = 0x7f0000000000 + i * (32ull << 20),
                .bytes = 32u << 20,
                .frame = i,
                .flags = i % 2 == 0 ? GM_MAP_HAS_FD : 0,
            };
            n_fds += i % 2 == 0;
        } else if (type == GM_MSG_UNMAP) {
            ((struct gm_span_entry *)to)[i] = (struct gm_span_entry){
                .va = 0x7f0000000000 + i * (2ull << 20),
                .bytes = 2u << 20,
            };
        } else if (type == GM_MSG_DROP) {
            ((struct gm_frame_entry *)to)[i].frame = i;
        } else if (type == GM_MSG_HOLDS) {
            ((struct gm_holds_entry *)to)[i] =
                (struct gm_holds_entry){.va = 0x7f0000000000 + i * (2ull << 20), .frame = i};
        }
    }
    return n_fds;
}

/* The valid message of a row into `input`. */
static void make(enum gm_msg_type type, uint32_t count)
{
    static _Alignas(8) uint8_t entries[GM_WIRE_MAX];
    union body body = body_of(type);
    memset(input, 0, sizeof(input));
    int n_fds = entries_of(type, count, entries);
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    if (type == GM_MSG_##NAME) {                                                                   \
        input[0] = (direction);                                                                    \
        input[1] = (uint8_t)((states) & -(states));                                                \
        input[2] = (uint8_t)(type == GM_MSG_MAP ? n_fds : (max_fds));                              \
    }
#include "common/wire.def"
#undef GM_MSG
    length = gm_wire_encode(message(), GM_WIRE_MAX, type, &body, count > 0 ? entries : NULL, count);
    if (length == 0) {
        fprintf(stderr, "message %d with %u entries does not encode\n", (int)type, count);
        exit(1);
    }
}

static void emit_valid(void)
{
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    make(GM_MSG_##NAME, 0);                                                                        \
    emit("valid-" #name);                                                                          \
    if ((max_entries) > 0) {                                                                       \
        make(GM_MSG_##NAME, 3);                                                                    \
        emit("valid-" #name "-3");                                                                 \
        make(GM_MSG_##NAME, (max_entries));                                                        \
        emit("valid-" #name "-full");                                                              \
    }
#include "common/wire.def"
#undef GM_MSG
    const size_t name_at = sizeof(struct gm_wire_header) + offsetof(struct gm_msg_hello, name);
    make(GM_MSG_HELLO, 0);
    memset(message() + name_at, 'a', 63);
    emit("valid-hello-longest");
    make(GM_MSG_HELLO, 0);
    memcpy(message() + name_at, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", 14);
    emit("valid-hello-utf8");
}

static void emit_faults(void)
{
    const size_t version_at = offsetof(struct gm_wire_header, version);
    const size_t type_at = offsetof(struct gm_wire_header, type);
    const size_t count_at = offsetof(struct gm_wire_header, count);
    const size_t reserved_at = offsetof(struct gm_wire_header, reserved);
    const size_t name_at = sizeof(struct gm_wire_header) + offsetof(struct gm_msg_hello, name);
    const size_t entries_at = sizeof(struct gm_wire_header) + sizeof(struct gm_msg_map);

    make(GM_MSG_HELLO, 0);
    length = 0;
    emit_broken(GM_WIRE_SHORT, "empty");
    length = 5;
    emit_broken(GM_WIRE_SHORT, "no-version");
    length = 15;
    emit_broken(GM_WIRE_SHORT, "header");
    length = sizeof(struct gm_wire_header) + sizeof(struct gm_msg_hello) - 1;
    emit_broken(GM_WIRE_SHORT, "body");

    make(GM_MSG_IMPORTED, 0);
    input[2] = 1;
    emit_broken(GM_WIRE_BAD_FDS, "imported-fd");

    make(GM_MSG_HELLO, 0);
    put16(version_at, GM_WIRE_VERSION + 1);
    emit_broken(GM_WIRE_BAD_VERSION, "newer");
    memset(message(), 0xff, GM_WIRE_MAX);
    length = 40;
    emit_broken(GM_WIRE_BAD_VERSION, "another-layout");

    make(GM_MSG_WANT, 0);
    put16(type_at, 15);
    emit_broken(GM_WIRE_BAD_TYPE, "gap");
    put16(type_at, 77);
    emit_broken(GM_WIRE_BAD_TYPE, "beyond");

    make(GM_MSG_CLOSE, 0);
    input[0] = GM_UP;
    emit_broken(GM_WIRE_BAD_DIRECTION, "close-up");
    make(GM_MSG_HELLO, 0);
    input[1] = GM_SESSION_APP;
    emit_broken(GM_WIRE_BAD_STATE, "hello-again");
    make(GM_MSG_ALLOC, 0);
    input[1] = GM_SESSION_CONTROL;
    emit_broken(GM_WIRE_BAD_STATE, "alloc-control");

    make(GM_MSG_WANT, 0);
    length += 8;
    emit_broken(GM_WIRE_BAD_LENGTH, "trailing");
    put32(0, (uint32_t)length);
    emit_broken(GM_WIRE_BAD_LENGTH, "trailing-counted");
    make(GM_MSG_UNMAP, 3);
    put32(count_at, 2);
    emit_broken(GM_WIRE_BAD_LENGTH, "count-less");
    put32(count_at, 4);
    emit_broken(GM_WIRE_BAD_LENGTH, "count-more");

    make(GM_MSG_UNMAP, 128);
    put32(count_at, 129);
    put32(0, (uint32_t)(length += sizeof(struct gm_span_entry)));
    emit_broken(GM_WIRE_BAD_COUNT, "one-more");
    make(GM_MSG_MAP, 3);
    put32(count_at, 0x0aaaaaad); /* times 24 wraps to 72 in 32 bits */
    emit_broken(GM_WIRE_BAD_COUNT, "wraps");
    make(GM_MSG_WANT, 0);
    put32(count_at, 1);
    emit_broken(GM_WIRE_BAD_COUNT, "no-tail");

    make(GM_MSG_HELLO, 0);
    input[2] = 1;
    emit_broken(GM_WIRE_BAD_FDS, "hello");
    input[2] = 0xff;
    emit_broken(GM_WIRE_BAD_FDS, "negative");
    make(GM_MSG_WELCOME, 3);
    input[2] = 4;
    emit_broken(GM_WIRE_BAD_FDS, "welcome-4");
    make(GM_MSG_MAP, 3);
    input[2] = 1;
    emit_broken(GM_WIRE_BAD_FDS, "map-fewer");
    input[2] = 3;
    emit_broken(GM_WIRE_BAD_FDS, "map-more");
    make(GM_MSG_MAP, 3);
    put16(entries_at + offsetof(struct gm_map_entry, flags), 0);
    emit_broken(GM_WIRE_BAD_FDS, "map-flags");

    make(GM_MSG_HELLO, 0);
    memset(message() + name_at, 'a', 64);
    emit_broken(GM_WIRE_BAD_STRING, "no-end");
    make(GM_MSG_HELLO, 0);
    memcpy(message() + name_at, "a\n\"b", 4);
    emit_broken(GM_WIRE_BAD_STRING, "newline");
    make(GM_MSG_REFUSED, 0);
    memcpy(message() + sizeof(struct gm_wire_header) + offsetof(struct gm_msg_refused, text),
           "\xc2\x9b", 2);
    emit_broken(GM_WIRE_BAD_STRING, "c1-control");
    make(GM_MSG_HELLO, 0);
    memcpy(message() + name_at, "\xed\xa0\x80", 3);
    emit_broken(GM_WIRE_BAD_STRING, "surrogate");
    make(GM_MSG_HELLO, 0);
    memcpy(message() + name_at, "\xe2\x82", 3);
    emit_broken(GM_WIRE_BAD_STRING, "half-character");

    make(GM_MSG_SET, 0);
    memset(message() + sizeof(struct gm_wire_header) + offsetof(struct gm_msg_set, command), '*',
           64);
    emit_broken(GM_WIRE_BAD_STRING, "set-no-end");

    make(GM_MSG_STATUS, 0);
    put32(reserved_at, 0x80000000);
    emit_broken(GM_WIRE_BAD_RESERVED, "high-bit");
}

/* Inputs of the encoding half: type, count, body, entries. */
static void emit_encodes(void)
{
    memset(input, 0, sizeof(input));
    input[0] = GM_FUZZ_ENCODE;
    message()[0] = GM_MSG_HELLO;
    memset(message() + 3, 0xc3, sizeof(struct gm_msg_hello));
    length = 3 + sizeof(struct gm_msg_hello);
    emit("encode-hello");
    message()[0] = GM_MSG_MAP;
    message()[2] = 3;
    length = 3 + sizeof(struct gm_msg_map) + 3 * sizeof(struct gm_map_entry);
    emit("encode-map");
    message()[2] = 33;
    emit("encode-map-too-many");
    message()[0] = 99;
    emit("encode-unknown");
}

int main(int argc, char **argv)
{
    is_check = argc == 3 && strcmp(argv[1], "--check") == 0;
    if (argc != 2 && !is_check) {
        fprintf(stderr, "usage: %s [--check] DIRECTORY\n", argv[0]);
        return 2;
    }
    directory = argv[argc - 1];
    emit_valid();
    emit_faults();
    emit_encodes();
    printf("%d seeds, %d wrong\n", n_files, n_wrong);
    return n_wrong == 0 ? 0 : 1;
}
