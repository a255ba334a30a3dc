/*
 * Fuzzer of the wire codec (common/wire.c). Beyond "no crash, no read out of bounds" it holds these
 * properties on every input:
 *
 *   - a fault leaves *out alone, and has a text;
 *   - a message points into its buffer, inside its bounds, and its texts end and are legal;
 *   - a message encodes to the same bytes again, and not into one byte less;
 *   - a message is refused in the other direction, when cut, when longer, with another version;
 *   - what gm_wire_encode makes can be decoded, in exactly its own direction and states.
 */
#include "tests/fuzz/fuzz_wire.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "common/wire.h"

#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { UP = GM_UP, DOWN = GM_DOWN };
enum { NEW = GM_SESSION_NEW, APP = GM_SESSION_APP, CONTROL = GM_SESSION_CONTROL };

struct row {
    unsigned type, direction, states;
    size_t body, entry;
    uint32_t max_entries;
    int max_fds;
};

static const struct row rows[] = {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    {type,        (direction), (states), sizeof(struct gm_msg_##name), sizeof(struct entry),       \
     max_entries, max_fds},
#include "common/wire.def"
#undef GM_MSG
};

static const struct row *row_of(unsigned type)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}

/* How the first bytes of an input say that its message came. */
struct way {
    enum gm_direction direction;
    enum gm_session_state state;
    int n_fds;
};

static struct way way_of(const uint8_t *data)
{
    return (struct way){
        .direction = (enum gm_direction)(data[0] & 3),
        .state = (enum gm_session_state)data[1],
        .n_fds = (int8_t)data[2],
    };
}

/* A heap block of exactly this size, so that the sanitizer sees any byte too far. */
static uint8_t *exact(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = calloc(1, size > 0 ? size : 1);
    MUST(copy != NULL);
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

static enum gm_wire_fault decode(const uint8_t *bytes, size_t length, struct way way,
                                 struct gm_wire_message *message)
{
    struct gm_wire_message before;
    memset(message, 0x5a, sizeof(*message));
    memcpy(&before, message, sizeof(before));
    enum gm_wire_fault fault =
        gm_wire_decode(bytes, length, way.n_fds, way.direction, way.state, message);
    MUST(fault >= GM_WIRE_OK && fault <= GM_WIRE_BAD_RESERVED);
    MUST(gm_wire_fault_text(fault)[0] != '\0');
    if (fault != GM_WIRE_OK)
        MUST(memcmp(&before, message, sizeof(before)) == 0);
    return fault;
}

static void check_bounds(const uint8_t *bytes, size_t length, struct way way,
                         const struct gm_wire_message *message)
{
    const struct row *row = row_of(message->type);
    MUST(row != NULL);
    MUST(strcmp(gm_wire_name(message->type), "?") != 0);
    MUST(row->direction == (unsigned)way.direction);
    MUST((row->states & (unsigned)way.state) != 0);
    MUST(message->n_fds == way.n_fds);
    MUST(message->n_fds >= 0 && message->n_fds <= row->max_fds && row->max_fds <= GM_WIRE_FDS);
    MUST(message->count <= row->max_entries);
    MUST(length <= GM_WIRE_MAX);

    const uint8_t *body = message->body, *entries = message->entries;
    MUST(body == bytes + sizeof(struct gm_wire_header));
    MUST((entries == NULL) == (message->count == 0));
    if (entries != NULL)
        MUST(entries == body + row->body);
    const uint8_t *end = body + row->body + message->count * row->entry;
    const struct gm_msg_hello *hello = message->body;
    MUST(end == bytes + length || (message->type == GM_MSG_HELLO && end < bytes + length &&
                                   hello->newest > GM_WIRE_VERSION));

    MUST(row->direction != GM_UP || message->n_fds == 0);
    if (message->type == GM_MSG_MAP) {
        int with = 0;
        for (uint32_t i = 0; i < message->count; i++)
            with += (((const struct gm_map_entry *)message->entries)[i].flags & GM_MAP_HAS_FD) != 0;
        MUST(message->n_fds == with);
    }
#define GM_MSG_TEXT(NAME, name, field)                                                             \
    if (message->type == GM_MSG_##NAME) {                                                          \
        const struct gm_msg_##name *texts = message->body;                                         \
        MUST(memchr(texts->field, '\0', sizeof(texts->field)) != NULL);                            \
        MUST(gm_text_is_legal(texts->field, sizeof(texts->field)));                                \
        for (const char *c = texts->field; *c != '\0'; c++)                                        \
            MUST((unsigned char)*c >= ' ' && *c != 0x7f);                                          \
    }
#include "common/wire.def"
#undef GM_MSG_TEXT
}

/* Whether it says of its sender what the codec says of this build. */
static bool is_signed(const struct gm_wire_message *message)
{
    const struct gm_msg_hello *hello = message->body;
    const struct gm_msg_rejoin *rejoin = message->body;
    switch (message->type) {
    case GM_MSG_HELLO:
        return hello->oldest == GM_WIRE_OLDEST && hello->newest == GM_WIRE_VERSION;
    case GM_MSG_REJOIN:
        return rejoin->oldest == GM_WIRE_OLDEST && rejoin->newest == GM_WIRE_VERSION;
    default:
        return true;
    }
}

static void check_again(const uint8_t *bytes, size_t length, const struct gm_wire_message *message)
{
    if (!is_signed(message))
        return;
    uint8_t *again = exact(bytes, length);
    memset(again, 0xa5, length);
    MUST(gm_wire_encode(again, length - 1, (enum gm_msg_type)message->type, message->body,
                        message->entries, message->count) == 0);
    MUST(gm_wire_encode(again, length, (enum gm_msg_type)message->type, message->body,
                        message->entries, message->count) == length);
    MUST(memcmp(again, bytes, length) == 0);
    free(again);
}

/* What is legal one way is not legal any other. */
static void check_refusals(const uint8_t *bytes, size_t length, struct way way)
{
    struct gm_wire_message message;
    struct way other = way;
    other.direction = way.direction == GM_UP ? GM_DOWN : GM_UP;
    MUST(decode(bytes, length, other, &message) == GM_WIRE_BAD_DIRECTION);
    other = way;
    other.state = (enum gm_session_state)0;
    MUST(decode(bytes, length, other, &message) == GM_WIRE_BAD_STATE);
    other = way;
    other.n_fds = GM_WIRE_FDS + 1;
    MUST(decode(bytes, length, other, &message) == GM_WIRE_BAD_FDS);
    MUST(decode(bytes, length - 1, way, &message) == GM_WIRE_SHORT);

    uint8_t *changed = malloc(length + 1);
    MUST(changed != NULL);
    memcpy(changed, bytes, length);
    changed[length] = 0;
    MUST(decode(changed, length + 1, way, &message) == GM_WIRE_BAD_LENGTH);
    changed[offsetof(struct gm_wire_header, version)] ^= 0x40;
    MUST(decode(changed, length, way, &message) == GM_WIRE_BAD_VERSION);
    free(changed);
}

static void check_decode(const uint8_t *data, size_t size, struct way way)
{
    struct gm_wire_message message;
    uint8_t *bytes = exact(data, size);
    if (decode(bytes, size, way, &message) == GM_WIRE_OK) {
        check_bounds(bytes, size, way, &message);
        check_again(bytes, size, &message);
        check_refusals(bytes, size, way);
    }
    MUST(size == 0 || memcmp(bytes, data, size) == 0);
    free(bytes);
}

static void check_encode(const uint8_t *data, size_t size)
{
    if (size < 3)
        return;
    unsigned type = (unsigned)data[0] | (unsigned)data[1] << 8;
    uint32_t count = data[2];
    const struct row *row = row_of(type);
    size_t in_body = row != NULL ? row->body : 8, in_entries = row != NULL ? row->entry : 8;
    size_t from_body = size - 3 < in_body ? size - 3 : in_body;
    size_t from_entries = size - 3 - from_body;
    if (from_entries > count * in_entries)
        from_entries = count * in_entries;

    uint8_t *body = calloc(1, in_body), *entries = calloc(count + 1, in_entries);
    uint8_t *bytes = malloc(GM_WIRE_MAX);
    MUST(body != NULL && entries != NULL && bytes != NULL);
    memcpy(body, data + 3, from_body);
    memcpy(entries, data + 3 + from_body, from_entries);
    size_t length =
        gm_wire_encode(bytes, GM_WIRE_MAX, (enum gm_msg_type)type, body, entries, count);
    MUST((length > 0) == (row != NULL && count <= row->max_entries));
    if (length > 0) {
        struct way way = {(enum gm_direction)row->direction, (enum gm_session_state)row->states, 0};
        if (type == GM_MSG_MAP)
            for (uint32_t i = 0; i < count; i++) {
                struct gm_map_entry entry;
                memcpy(&entry, entries + i * sizeof(entry), sizeof(entry));
                way.n_fds += entry.flags & GM_MAP_HAS_FD ? 1 : 0;
            }
        struct gm_wire_message message;
        uint8_t *copy = exact(bytes, length);
        MUST(decode(copy, length, way, &message) == GM_WIRE_OK);
        free(copy);
        check_decode(bytes, length, way);
    }
    free(body);
    free(entries);
    free(bytes);
}

int gm_fuzz_wire_fault(const uint8_t *data, size_t size)
{
    struct gm_wire_message message;
    if (size < GM_FUZZ_HEAD || (data[0] & GM_FUZZ_ENCODE) != 0)
        return -1;
    uint8_t *bytes = exact(data + GM_FUZZ_HEAD, size - GM_FUZZ_HEAD);
    int fault = (int)decode(bytes, size - GM_FUZZ_HEAD, way_of(data), &message);
    free(bytes);
    return fault;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < GM_FUZZ_HEAD)
        return 0;
    if ((data[0] & GM_FUZZ_ENCODE) != 0)
        check_encode(data + GM_FUZZ_HEAD, size - GM_FUZZ_HEAD);
    else
        check_decode(data + GM_FUZZ_HEAD, size - GM_FUZZ_HEAD, way_of(data));
    return 0;
}
