/* The codec of the wire protocol: see wire.h. It takes all about a message from its row in
 * wire.def; MAP has a rule of its own (gm_wire_fds_match). */
#include "common/wire.h"

#include <string.h>

#include "common/text.h"

/* The words of wire.def. */
enum {
    UP = GM_UP,
    DOWN = GM_DOWN,
    NEW = GM_SESSION_NEW,
    APP = GM_SESSION_APP,
    CONTROL = GM_SESSION_CONTROL,
};

struct gm_wire_row {
    const char *name; /* NULL: no message has this number */
    uint32_t body;    /* bytes */
    uint32_t entry;   /* bytes */
    uint32_t max_entries;
    int max_fds;
    unsigned direction;
    unsigned states;
};

static const struct gm_wire_row gm_wire_rows[] = {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    [type] = {#NAME,                                                                               \
              sizeof(struct gm_msg_##name),                                                        \
              sizeof(struct entry),                                                                \
              (max_entries),                                                                       \
              (max_fds),                                                                           \
              (direction),                                                                         \
              (states)},
#include "common/wire.def"
#undef GM_MSG
};

/* Entries are aligned, and the largest message of each row is within bounds. */
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    _Static_assert(sizeof(struct gm_msg_##name) % 8 == 0, #NAME " ends aligned");                  \
    _Static_assert(sizeof(struct gm_wire_header) + sizeof(struct gm_msg_##name) +                  \
                           (max_entries) * sizeof(struct entry) <=                                 \
                       GM_WIRE_MAX,                                                                \
                   #NAME " fits");                                                                 \
    _Static_assert((max_fds) <= GM_WIRE_FDS, #NAME " has few fds");
#include "common/wire.def"
#undef GM_MSG

struct gm_wire_text {
    unsigned type;
    size_t offset; /* in the payload */
    size_t size;
};

static const struct gm_wire_text gm_wire_texts[] = {
#define GM_MSG_TEXT(NAME, name, field)                                                             \
    {GM_MSG_##NAME, offsetof(struct gm_msg_##name, field),                                         \
     sizeof(((struct gm_msg_##name *)0)->field)},
#include "common/wire.def"
#undef GM_MSG_TEXT
};

#define GM_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct gm_wire_row *gm_wire_row(unsigned type)
{
    if (type >= GM_COUNT_OF(gm_wire_rows) || gm_wire_rows[type].name == NULL)
        return NULL;
    return &gm_wire_rows[type];
}

/* Whether MAP has as many fds as its entries say. True for other messages. */
static int gm_wire_fds_match(unsigned type, const uint8_t *entries, uint32_t count, int n_fds)
{
    if (type != GM_MSG_MAP)
        return 1;
    int expected = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct gm_map_entry entry;
        memcpy(&entry, entries + i * sizeof(entry), sizeof(entry));
        if (entry.flags & GM_MAP_HAS_FD)
            expected++;
    }
    return n_fds == expected;
}

/* A HELLO of which this build knows the beginning only. */
static int gm_wire_is_newer_hello(unsigned type, const void *body)
{
    struct gm_msg_hello hello;
    if (type != GM_MSG_HELLO)
        return 0;
    memcpy(&hello, body, sizeof(hello));
    return hello.newest > GM_WIRE_VERSION;
}

enum gm_wire_fault gm_wire_decode(const void *bytes, size_t length, int n_fds,
                                  enum gm_direction direction, enum gm_session_state state,
                                  struct gm_wire_message *out)
{
    const uint8_t *message = bytes;
    struct gm_wire_header header;
    uint16_t version;

    if (length < offsetof(struct gm_wire_header, version) + sizeof(version))
        return GM_WIRE_SHORT;
    memcpy(&version, message + offsetof(struct gm_wire_header, version), sizeof(version));
    if (version > GM_WIRE_VERSION || version < GM_WIRE_OLDEST)
        return GM_WIRE_BAD_VERSION;
    if (length < sizeof(header))
        return GM_WIRE_SHORT;
    memcpy(&header, message, sizeof(header));
    if (length < header.length)
        return GM_WIRE_SHORT;
    if (header.reserved != 0)
        return GM_WIRE_BAD_RESERVED;

    const struct gm_wire_row *row = gm_wire_row(header.type);
    if (row == NULL)
        return GM_WIRE_BAD_TYPE;
    if (row->direction != (unsigned)direction)
        return GM_WIRE_BAD_DIRECTION;
    if ((row->states & (unsigned)state) == 0)
        return GM_WIRE_BAD_STATE;
    if (header.count > row->max_entries)
        return GM_WIRE_BAD_COUNT;
    /* No overflow: the count is bounded, and so is each row's largest message (asserted above). */
    const size_t known = sizeof(header) + row->body + (size_t)header.count * row->entry;
    const uint8_t *body = message + sizeof(header);
    if (header.length != length || length < known ||
        (length != known && !gm_wire_is_newer_hello(header.type, body)))
        return GM_WIRE_BAD_LENGTH;

    const uint8_t *entries = body + row->body;
    if (n_fds < 0 || n_fds > row->max_fds ||
        !gm_wire_fds_match(header.type, entries, header.count, n_fds))
        return GM_WIRE_BAD_FDS;
    for (size_t i = 0; i < GM_COUNT_OF(gm_wire_texts); i++) {
        const struct gm_wire_text *text = &gm_wire_texts[i];
        if (text->type == header.type &&
            !gm_text_is_legal((const char *)body + text->offset, text->size))
            return GM_WIRE_BAD_STRING;
    }

    out->type = header.type;
    out->body = body;
    out->entries = header.count > 0 ? entries : NULL;
    out->count = header.count;
    out->n_fds = n_fds;
    return GM_WIRE_OK;
}

/* Write what versions this build speaks into the messages that say it. */
static void gm_wire_sign(enum gm_msg_type type, void *body)
{
    const uint16_t versions[2] = {GM_WIRE_OLDEST, GM_WIRE_VERSION}; /* oldest, newest */
    if (type == GM_MSG_HELLO)
        memcpy((uint8_t *)body + offsetof(struct gm_msg_hello, oldest), versions, sizeof(versions));
    else if (type == GM_MSG_REJOIN)
        memcpy((uint8_t *)body + offsetof(struct gm_msg_rejoin, oldest), versions,
               sizeof(versions));
}

size_t gm_wire_encode_head(void *buffer, enum gm_msg_type type, const void *body,
                           const void *entries, uint32_t count, size_t *tail)
{
    const struct gm_wire_row *row = gm_wire_row((unsigned)type);
    if (row == NULL || body == NULL || count > row->max_entries || (count > 0 && entries == NULL))
        return 0;

    *tail = (size_t)count * row->entry;
    struct gm_wire_header header = {
        .length = (uint32_t)(sizeof(header) + row->body + *tail),
        .version = GM_WIRE_OLDEST,
        .type = (uint16_t)type,
        .count = count,
    };

    uint8_t *message = buffer;
    uint8_t *to = message + sizeof(header);
    memcpy(message, &header, sizeof(header));
    memcpy(to, body, row->body);
    gm_wire_sign(type, to);
    for (size_t i = 0; i < GM_COUNT_OF(gm_wire_texts); i++) {
        const struct gm_wire_text *text = &gm_wire_texts[i];
        if (text->type == (unsigned)type)
            gm_text_clean((char *)to + text->offset, text->size);
    }
    return sizeof(header) + row->body;
}

size_t gm_wire_encode(void *buffer, size_t capacity, enum gm_msg_type type, const void *body,
                      const void *entries, uint32_t count)
{
    const struct gm_wire_row *row = gm_wire_row((unsigned)type);
    size_t tail = 0;
    if (row == NULL || count > row->max_entries ||
        sizeof(struct gm_wire_header) + row->body + (size_t)count * row->entry > capacity)
        return 0;
    const size_t head = gm_wire_encode_head(buffer, type, body, entries, count, &tail);
    if (tail > 0)
        memcpy((uint8_t *)buffer + head, entries, tail);
    return head + tail;
}

const char *gm_wire_name(unsigned type)
{
    const struct gm_wire_row *row = gm_wire_row(type);
    return row != NULL ? row->name : "?";
}

const char *gm_wire_fault_text(enum gm_wire_fault fault)
{
    switch (fault) {
    case GM_WIRE_OK:
        return "no fault";
    case GM_WIRE_SHORT:
        return "message cut short";
    case GM_WIRE_BAD_VERSION:
        return "another protocol version";
    case GM_WIRE_BAD_TYPE:
        return "unknown message type";
    case GM_WIRE_BAD_DIRECTION:
        return "message sent in the wrong direction";
    case GM_WIRE_BAD_STATE:
        return "message not allowed in this state of the session";
    case GM_WIRE_BAD_LENGTH:
        return "message length does not match its type";
    case GM_WIRE_BAD_COUNT:
        return "too many entries";
    case GM_WIRE_BAD_FDS:
        return "wrong number of file descriptors";
    case GM_WIRE_BAD_STRING:
        return "text not terminated or not printable";
    case GM_WIRE_BAD_RESERVED:
        return "reserved word is not zero";
    }
    return "unknown fault";
}
