/*
 * common/wire.h: the codec. Everything about rows is asked of wire.def, so that a new row is tested
 * as soon as it is written; the values below that are not in the table are the rules themselves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/text.h"
#include "common/wire.h"

enum { UP = GM_UP, DOWN = GM_DOWN };
enum { NEW = GM_SESSION_NEW, APP = GM_SESSION_APP, CONTROL = GM_SESSION_CONTROL };

struct row {
    enum gm_msg_type type;
    const char *name;
    unsigned direction, states;
    size_t body, entry;
    uint32_t max_entries;
    int max_fds;
};

static const struct row rows[] = {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    {GM_MSG_##NAME,        #NAME,       (direction), (states), sizeof(struct gm_msg_##name),       \
     sizeof(struct entry), max_entries, max_fds},
#include "common/wire.def"
#undef GM_MSG
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))
#define HEADER sizeof(struct gm_wire_header)

static const enum gm_session_state states[] = {GM_SESSION_NEW, GM_SESSION_APP, GM_SESSION_CONTROL};

static _Alignas(16) uint8_t buffer[GM_WIRE_MAX];

/* A state in which `row` is allowed. */
static enum gm_session_state state_of(const struct row *row)
{
    for (size_t i = 0; i < 3; i++)
        if (row->states & states[i])
            return states[i];
    fail_msg("%s is allowed in no state", row->name);
    return GM_SESSION_NEW;
}

/* fds that a message of `count` entries made by build() comes with. */
static int fds_of(const struct row *row, uint32_t count)
{
    return row->type == GM_MSG_MAP ? (int)count : row->max_fds;
}

/* A legal message of `row` in `buffer`; returns its length. Every MAP entry has an fd. */
static size_t build(const struct row *row, uint32_t count)
{
    static _Alignas(8) uint8_t body[512], entries[GM_WIRE_MAX];
    assert_true(row->body <= sizeof(body));
    for (size_t i = 0; i < row->body; i++)
        body[i] = (uint8_t)('A' + i % 26);
    for (size_t i = 0; i < count * row->entry; i++)
        entries[i] = (uint8_t)(i * 7 + 1);
    if (row->type == GM_MSG_MAP)
        for (uint32_t i = 0; i < count; i++)
            ((struct gm_map_entry *)(void *)entries)[i].flags = GM_MAP_HAS_FD;
    size_t length =
        gm_wire_encode(buffer, sizeof(buffer), row->type, body, count > 0 ? entries : NULL, count);
    assert_int_equal(length, HEADER + row->body + count * row->entry);
    return length;
}

static struct gm_wire_header *header(void)
{
    return (struct gm_wire_header *)(void *)buffer;
}

/* Decode from a heap block of exactly `length` bytes, so that a sanitizer sees a read beyond it. */
static enum gm_wire_fault decode_as(const struct row *row, size_t length, int n_fds,
                                    unsigned direction, unsigned state)
{
    struct gm_wire_message message, before;
    memset(&message, 0x5a, sizeof(message));
    before = message;
    uint8_t *exact = malloc(length > 0 ? length : 1);
    assert_non_null(exact);
    memcpy(exact, buffer, length);
    enum gm_wire_fault fault = gm_wire_decode(exact, length, n_fds, (enum gm_direction)direction,
                                              (enum gm_session_state)state, &message);
    if (fault != GM_WIRE_OK) {
        assert_memory_equal(&message, &before, sizeof(message));
    } else {
        assert_int_equal(message.type, row->type);
        assert_ptr_equal(message.body, exact + HEADER);
        assert_int_equal(message.n_fds, n_fds);
        if (message.count > 0)
            assert_ptr_equal(message.entries, exact + HEADER + row->body);
        else
            assert_null(message.entries);
    }
    free(exact);
    return fault;
}

static enum gm_wire_fault decode(const struct row *row, size_t length, int n_fds)
{
    return decode_as(row, length, n_fds, row->direction, state_of(row));
}

static void test_round_trip(void **state)
{
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++) {
        const struct row *row = &rows[r];
        for (uint32_t count = 0; count <= row->max_entries; count++) {
            size_t length = build(row, count);
            struct gm_wire_message message;
            assert_int_equal(decode(row, length, fds_of(row, count)), GM_WIRE_OK);
            assert_int_equal(gm_wire_decode(buffer, length, fds_of(row, count),
                                            (enum gm_direction)row->direction, state_of(row),
                                            &message),
                             GM_WIRE_OK);
            assert_int_equal(message.count, count);
            assert_int_equal((uintptr_t)message.body % 8, 0);

            _Alignas(16) uint8_t again[GM_WIRE_MAX];
            assert_int_equal(gm_wire_encode(again, sizeof(again), (enum gm_msg_type)message.type,
                                            message.body, message.entries, message.count),
                             length);
            assert_memory_equal(again, buffer, length);
        }
    }
}

static void test_header(void **state)
{
    (void)state;
    size_t length = build(&rows[0], 0);
    assert_int_equal(header()->length, length);
    assert_int_equal(header()->version, GM_WIRE_OLDEST);
    assert_int_equal(header()->type, rows[0].type);
    assert_int_equal(header()->count, 0);
    assert_int_equal(header()->reserved, 0);
}

static void test_direction_and_state(void **state)
{
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++) {
        const struct row *row = &rows[r];
        size_t length = build(row, 0);
        for (unsigned direction = 0; direction < 4; direction++) {
            for (unsigned s = 0; s < 5; s++) {
                unsigned in = s < 3 ? (unsigned)states[s] : s == 3 ? 0 : 8;
                enum gm_wire_fault expected = direction != row->direction ? GM_WIRE_BAD_DIRECTION
                                              : !(row->states & in)       ? GM_WIRE_BAD_STATE
                                                                          : GM_WIRE_OK;
                assert_int_equal(decode_as(row, length, fds_of(row, 0), direction, in), expected);
            }
        }
    }
}

/* Every prefix is short, every longer datagram is too long, and the length word must be true. */
static void test_length(void **state)
{
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++) {
        const struct row *row = &rows[r];
        uint32_t count = row->max_entries > 3 ? 3 : row->max_entries;
        int n_fds = fds_of(row, count);
        size_t length = build(row, count);
        for (size_t n = 0; n < length; n++)
            assert_int_equal(decode(row, n, n_fds), GM_WIRE_SHORT);
        for (size_t n = 1; n < 40; n++)
            assert_int_equal(decode(row, length + n, n_fds), GM_WIRE_BAD_LENGTH);

        /* Length word and datagram agree, but not with the row. */
        for (size_t n = HEADER; n < length + 40; n++) {
            build(row, count);
            header()->length = (uint32_t)n;
            assert_int_equal(decode(row, n, n_fds), n == length ? GM_WIRE_OK : GM_WIRE_BAD_LENGTH);
        }
        for (uint32_t n = 0; n < HEADER; n++) {
            build(row, count);
            header()->length = n;
            assert_int_equal(decode(row, length, n_fds), GM_WIRE_BAD_LENGTH);
        }
        build(row, count);
        header()->length = UINT32_MAX;
        assert_int_equal(decode(row, length, n_fds), GM_WIRE_SHORT);
        header()->length = GM_WIRE_MAX;
        assert_int_equal(decode(row, GM_WIRE_MAX, n_fds), GM_WIRE_BAD_LENGTH);
    }
}

static void test_count(void **state)
{
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++) {
        const struct row *row = &rows[r];
        size_t length = build(row, row->max_entries);
        int n_fds = fds_of(row, row->max_entries);
        assert_int_equal(decode(row, length, n_fds), GM_WIRE_OK);

        static const uint32_t more[] = {1, 1000, 0x7fffffff};
        for (size_t i = 0; i < 3; i++) {
            header()->count = row->max_entries + more[i];
            assert_int_equal(decode(row, length, n_fds), GM_WIRE_BAD_COUNT);
        }
        /* A count whose bytes wrap around to the message's length. */
        header()->count = UINT32_MAX;
        assert_int_equal(decode(row, length, n_fds), GM_WIRE_BAD_COUNT);
        for (uint32_t count = 0; count < row->max_entries; count++) {
            header()->count = count;
            assert_int_equal(decode(row, length, n_fds), GM_WIRE_BAD_LENGTH);
        }
        /* One entry more than the row allows, with its bytes. */
        if (row->max_entries > 0) {
            build(row, row->max_entries);
            header()->count++;
            header()->length += (uint32_t)row->entry;
            assert_int_equal(decode(row, length + row->entry, n_fds), GM_WIRE_BAD_COUNT);
        }
    }
}

static void test_unknown_type(void **state)
{
    (void)state;
    size_t length = build(&rows[0], 0);
    unsigned known = 0;
    for (unsigned type = 0; type <= UINT16_MAX; type++) {
        bool is_known = false;
        for (size_t r = 0; r < N_ROWS; r++)
            is_known |= (unsigned)rows[r].type == type;
        known += is_known;
        header()->type = (uint16_t)type;
        if (!is_known) {
            assert_int_equal(decode(&rows[0], length, 0), GM_WIRE_BAD_TYPE);
            assert_string_equal(gm_wire_name(type), "?");
        }
    }
    assert_int_equal(known, N_ROWS); /* and the numbers are distinct */
    assert_string_equal(gm_wire_name(UINT32_MAX), "?");
}

static void test_names(void **state)
{
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++)
        assert_string_equal(gm_wire_name((unsigned)rows[r].type), rows[r].name);
    assert_string_equal(gm_wire_name(1), "HELLO");
}

/* Another version is told from everything else, whatever its messages look like. */
static void test_version_first(void **state)
{
    static const uint16_t versions[] = {0, GM_WIRE_VERSION + 1, UINT16_MAX};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (unsigned fill = 0; fill < 256; fill += 51) {
            for (size_t length = 0; length <= 64; length++) {
                memset(buffer, (int)fill, sizeof(buffer));
                memcpy(buffer + 4, &versions[i], 2);
                enum gm_wire_fault expected = length < 6 ? GM_WIRE_SHORT : GM_WIRE_BAD_VERSION;
                assert_int_equal(decode_as(&rows[0], length, -1, 7, 0), expected);
            }
        }
    }
}

/* A newer sender's HELLO may be longer; what it speaks decides. */
static void test_versions(void **state)
{
    struct gm_msg_hello *hello = (void *)(buffer + HEADER);
    (void)state;
    size_t length = build(&rows[0], 0);
    assert_int_equal(rows[0].type, GM_MSG_HELLO);
    assert_int_equal(hello->oldest, GM_WIRE_OLDEST);
    assert_int_equal(hello->newest, GM_WIRE_VERSION);
    assert_int_equal(header()->version, GM_WIRE_OLDEST);
    hello->newest = GM_WIRE_VERSION + 1;
    assert_int_equal(decode(&rows[0], length, 0), GM_WIRE_OK);
    header()->length = (uint32_t)length + 24;
    assert_int_equal(decode(&rows[0], length + 24, 0), GM_WIRE_OK);
    assert_int_equal(decode(&rows[0], length + 23, 0), GM_WIRE_SHORT);
    hello->newest = GM_WIRE_VERSION;
    assert_int_equal(decode(&rows[0], length + 24, 0), GM_WIRE_BAD_LENGTH);

    assert_int_equal(gm_wire_common(GM_WIRE_OLDEST, GM_WIRE_VERSION), GM_WIRE_VERSION);
    assert_int_equal(gm_wire_common(GM_WIRE_OLDEST, UINT16_MAX), GM_WIRE_VERSION);
    assert_int_equal(gm_wire_common(0, GM_WIRE_OLDEST), GM_WIRE_OLDEST);
    assert_int_equal(gm_wire_common(0, GM_WIRE_OLDEST - 1), 0);
    assert_int_equal(gm_wire_common(GM_WIRE_VERSION + 1, GM_WIRE_VERSION + 2), 0);
    assert_int_equal(gm_wire_common(GM_WIRE_VERSION + 1, GM_WIRE_OLDEST), 0);
}

static void test_reserved(void **state)
{
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++) {
        for (unsigned bit = 0; bit < 32; bit++) {
            size_t length = build(&rows[r], 0);
            header()->reserved = 1u << bit;
            assert_int_equal(decode(&rows[r], length, fds_of(&rows[r], 0)), GM_WIRE_BAD_RESERVED);
        }
    }
}

/* One message with every fault: they are reported in the order that wire.h gives, as each is
 * mended. */
static void test_order(void **state)
{
    struct gm_msg_hello *hello = (void *)(buffer + HEADER);
    const struct row *row = &rows[0];
    (void)state;
    assert_int_equal(row->type, GM_MSG_HELLO);
    size_t length = build(row, 0);
    memset(hello->name, '\n', sizeof(hello->name));
    *header() = (struct gm_wire_header){UINT32_MAX, GM_WIRE_VERSION + 1, 999, 99, 1};

    assert_int_equal(decode_as(row, 5, 9, DOWN, APP), GM_WIRE_SHORT);
    assert_int_equal(decode_as(row, 6, 9, DOWN, APP), GM_WIRE_BAD_VERSION);
    header()->version = GM_WIRE_VERSION;
    assert_int_equal(decode_as(row, 15, 9, DOWN, APP), GM_WIRE_SHORT);
    assert_int_equal(decode_as(row, length - 1, 9, DOWN, APP), GM_WIRE_SHORT);
    header()->length = 1;
    assert_int_equal(decode_as(row, length - 1, 9, DOWN, APP), GM_WIRE_BAD_RESERVED);
    header()->reserved = 0;
    assert_int_equal(decode_as(row, length - 1, 9, DOWN, APP), GM_WIRE_BAD_TYPE);
    header()->type = GM_MSG_HELLO;
    assert_int_equal(decode_as(row, length - 1, 9, DOWN, APP), GM_WIRE_BAD_DIRECTION);
    assert_int_equal(decode_as(row, length - 1, 9, UP, APP), GM_WIRE_BAD_STATE);
    assert_int_equal(decode_as(row, length - 1, 9, UP, NEW), GM_WIRE_BAD_COUNT);
    header()->count = 0;
    assert_int_equal(decode_as(row, length - 1, 9, UP, NEW), GM_WIRE_BAD_LENGTH);
    assert_int_equal(decode_as(row, length, 9, UP, NEW), GM_WIRE_BAD_LENGTH);
    header()->length = (uint32_t)length;
    assert_int_equal(decode_as(row, length, 9, UP, NEW), GM_WIRE_BAD_FDS);
    assert_int_equal(decode_as(row, length, 0, UP, NEW), GM_WIRE_BAD_STRING);
    hello->name[0] = '\0';
    assert_int_equal(decode_as(row, length, 0, UP, NEW), GM_WIRE_OK);
}

static void test_fds(void **state)
{
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++) {
        const struct row *row = &rows[r];
        size_t length = build(row, 0);
        int most = row->type == GM_MSG_MAP ? 0 : row->max_fds;
        assert_true(row->direction != GM_UP || row->max_fds == 0); /* the daemon takes none */
        for (int n_fds = -2; n_fds < GM_WIRE_FDS + 3; n_fds++)
            assert_int_equal(decode(row, length, n_fds),
                             n_fds >= 0 && n_fds <= most ? GM_WIRE_OK : GM_WIRE_BAD_FDS);
    }
}

/* MAP comes with exactly the fds that its entries announce; other flag bits do not count. */
static void test_map_fds(void **state)
{
    const struct row *row = NULL;
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++)
        if (rows[r].type == GM_MSG_MAP)
            row = &rows[r];
    assert_non_null(row);
    struct gm_map_entry *entries = (void *)(buffer + HEADER + row->body);
    for (uint32_t count = 0; count <= row->max_entries; count++) {
        for (uint32_t with = 0; with <= count; with++) {
            size_t length = build(row, count);
            for (uint32_t i = 0; i < count; i++) /* some at the end, some at the start */
                entries[i].flags = (uint16_t)((i < with / 2 || i >= count - (with - with / 2))
                                                  ? GM_MAP_HAS_FD | 0x10
                                                  : 0xfff0 & ~GM_MAP_HAS_FD);
            for (int n_fds = 0; n_fds <= GM_WIRE_FDS; n_fds++)
                assert_int_equal(decode(row, length, n_fds),
                                 n_fds == (int)with ? GM_WIRE_OK : GM_WIRE_BAD_FDS);
        }
    }
}

struct text_case {
    const char *bytes;
    size_t size;
    bool is_legal;
    const char *cleaned;
};

#define TEXT(literal, is_legal, cleaned)                                                           \
    {                                                                                              \
        literal, sizeof(literal) - 1, is_legal, cleaned                                            \
    }

static const struct text_case texts[] = {
    TEXT("", true, ""),
    TEXT("python3", true, "python3"),
    TEXT(" ~!\"\\%s", true, " ~!\"\\%s"),
    TEXT("caf\xc3\xa9", true, "caf\xc3\xa9"),
    TEXT("\xc2\xa0", true, "\xc2\xa0"), /* the first after the C1 controls */
    TEXT("\xe2\x82\xac", true, "\xe2\x82\xac"),
    TEXT("\xed\x9f\xbf\xee\x80\x80", true, "\xed\x9f\xbf\xee\x80\x80"), /* around surrogates */
    TEXT("\xf0\x9f\x98\x80", true, "\xf0\x9f\x98\x80"),
    TEXT("\xf4\x8f\xbf\xbf", true, "\xf4\x8f\xbf\xbf"), /* the last code point */
    TEXT("a\nb", false, "a?b"),
    TEXT("a\tb", false, "a?b"),
    TEXT("\x1b[31m", false, "?[31m"),
    TEXT("\x01", false, "?"),
    TEXT("\x1f", false, "?"),
    TEXT("\x7f", false, "?"),
    TEXT("\xc2\x80", false, "??"), /* C1 controls */
    TEXT("\xc2\x9f", false, "??"),
    TEXT("\xc2\xad", false, "??"), /* a soft hyphen; then what a line reads otherwise for */
    TEXT("\xd8\x9c", false, "??"),
    TEXT("\xe2\x80\x8az", true, "\xe2\x80\x8az"),
    TEXT("\xe2\x80\x8b", false, "???"),
    TEXT("\xe2\x80\x8f", false, "???"),
    TEXT("\xe2\x80\x90", true, "\xe2\x80\x90"),
    TEXT("\xe2\x80\xa7", true, "\xe2\x80\xa7"),
    TEXT("\xe2\x80\xa8x", false, "???x"),
    TEXT("\xe2\x80\xa9", false, "???"),
    TEXT("a\xe2\x80\xaegnp", false, "a???gnp"),
    TEXT("\xe2\x80\xaf", true, "\xe2\x80\xaf"),
    TEXT("\xe2\x81\xa6", false, "???"),
    TEXT("\xe2\x81\xb0", true, "\xe2\x81\xb0"),
    TEXT("\xef\xbb\xbf", false, "???"),
    TEXT("\xef\xbf\xbd", true, "\xef\xbf\xbd"), /* U+FFFD */
    TEXT("\xf3\xa0\x80\x81", false, "????"),    /* tags */
    TEXT("\xf3\xa0\x81\xbf", false, "????"),
    TEXT("\x80", false, "?"), /* a continuation with nothing before */
    TEXT("\xbfz", false, "?z"),
    TEXT("\xc3", false, "?"), /* cut short */
    TEXT("\xc3z", false, "?z"),
    TEXT("\xe2\x82", false, "??"),
    TEXT("\xe2\x82z", false, "??z"),
    TEXT("\xf0\x9f\x98", false, "???"),
    TEXT("\xc0\xaf", false, "??"), /* longer than needed */
    TEXT("\xc1\xbf", false, "??"),
    TEXT("\xe0\x9f\xbf", false, "???"),
    TEXT("\xf0\x8f\xbf\xbf", false, "????"),
    TEXT("\xed\xa0\x80", false, "???"), /* a surrogate */
    TEXT("\xed\xbf\xbf", false, "???"),
    TEXT("\xf4\x90\x80\x80", false, "????"), /* beyond the last */
    TEXT("\xf8\x88\x80\x80\x80", false, "?????"),
    TEXT("\xff\xfe", false, "??"),
};

static void test_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const struct text_case *t = &texts[i];
        char field[16] = {0};
        memcpy(field, t->bytes, t->size);
        assert_int_equal(gm_text_is_legal(field, sizeof(field)), t->is_legal);
        gm_text_clean(field, sizeof(field));
        assert_string_equal(field, t->cleaned);

        /* Filling the field to its last byte: no end. Cleaning makes one. */
        if (t->size > 0) {
            char *full = malloc(t->size);
            assert_non_null(full);
            memcpy(full, t->bytes, t->size);
            assert_false(gm_text_is_legal(full, t->size));
            gm_text_clean(full, t->size);
            assert_true(gm_text_is_legal(full, t->size));
            free(full);
        }
    }
    /* What comes after the end does not count, and is not touched. */
    char behind[4] = {'a', '\0', '\n', 'b'};
    assert_true(gm_text_is_legal(behind, sizeof(behind)));
    gm_text_clean(behind, sizeof(behind));
    assert_memory_equal(behind, "a\0\nb", sizeof(behind));
}

/* Each text field of the table: judged when decoded, made legal when encoded. */
static void check_field(enum gm_msg_type type, size_t offset, size_t size)
{
    const struct row *row = NULL;
    for (size_t r = 0; r < N_ROWS; r++)
        if (rows[r].type == type)
            row = &rows[r];
    assert_non_null(row);
    char *field = (char *)buffer + HEADER + offset;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        size_t length = build(row, 0);
        memset(field, 0, size);
        memcpy(field, texts[i].bytes, texts[i].size);
        assert_int_equal(decode(row, length, 0),
                         texts[i].is_legal ? GM_WIRE_OK : GM_WIRE_BAD_STRING);

        uint8_t body[512];
        memcpy(body, buffer + HEADER, row->body);
        length = gm_wire_encode(buffer, sizeof(buffer), type, body, NULL, 0);
        assert_int_equal(decode(row, length, 0), GM_WIRE_OK);
        assert_string_equal(field, texts[i].cleaned);
    }
    size_t length = build(row, 0);
    memset(field, 'a', size);
    assert_int_equal(decode(row, length, 0), GM_WIRE_BAD_STRING);
    field[size - 1] = '\0';
    assert_int_equal(decode(row, length, 0), GM_WIRE_OK);
}

static void test_fields(void **state)
{
    int fields = 0;
    (void)state;
#define GM_MSG_TEXT(NAME, name, field)                                                             \
    check_field(GM_MSG_##NAME, offsetof(struct gm_msg_##name, field),                              \
                sizeof(((struct gm_msg_##name *)0)->field));                                       \
    fields++;
#include "common/wire.def"
#undef GM_MSG_TEXT
    assert_int_equal(fields, 15);
}

static void test_encode_refuses(void **state)
{
    static const uint8_t body[512], entries[GM_WIRE_MAX];
    (void)state;
    for (size_t r = 0; r < N_ROWS; r++) {
        const struct row *row = &rows[r];
        uint32_t count = row->max_entries;
        size_t length = HEADER + row->body + count * row->entry;
        assert_int_equal(gm_wire_encode(buffer, sizeof(buffer), row->type, NULL, entries, 0), 0);
        assert_int_equal(
            gm_wire_encode(buffer, sizeof(buffer), row->type, body, entries, count + 1), 0);
        assert_int_equal(
            gm_wire_encode(buffer, sizeof(buffer), row->type, body, entries, UINT32_MAX), 0);
        if (count > 0)
            assert_int_equal(gm_wire_encode(buffer, sizeof(buffer), row->type, body, NULL, count),
                             0);

        /* Any buffer that is too small is left alone; one that just fits is filled. */
        uint8_t *exact = malloc(length);
        assert_non_null(exact);
        memset(exact, 0x5a, length);
        for (size_t capacity = 0; capacity < length; capacity++)
            assert_int_equal(gm_wire_encode(exact, capacity, row->type, body, entries, count), 0);
        for (size_t i = 0; i < length; i++)
            assert_int_equal(exact[i], 0x5a);
        assert_int_equal(gm_wire_encode(exact, length, row->type, body, entries, count), length);
        free(exact);
    }
    static const unsigned unknown[] = {0, 15, 77, 65535, UINT32_MAX};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_int_equal(
            gm_wire_encode(buffer, sizeof(buffer), (enum gm_msg_type)unknown[i], body, NULL, 0), 0);
}

static void test_fault_texts(void **state)
{
    (void)state;
    for (int a = GM_WIRE_OK; a <= GM_WIRE_BAD_RESERVED; a++) {
        const char *text = gm_wire_fault_text((enum gm_wire_fault)a);
        assert_non_null(text);
        assert_true(text[0] != '\0' && gm_text_is_legal(text, 100));
        assert_string_not_equal(text, gm_wire_fault_text((enum gm_wire_fault)1000));
        for (int b = GM_WIRE_OK; b < a; b++)
            assert_string_not_equal(text, gm_wire_fault_text((enum gm_wire_fault)b));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_direction_and_state),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_unknown_type),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_version_first),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_fds),
        cmocka_unit_test(test_map_fds),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_encode_refuses),
        cmocka_unit_test(test_fault_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
