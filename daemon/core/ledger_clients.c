/* The machine's ledger: see ledger_clients.h. */
#include "daemon/core/ledger_clients.h"

#include <string.h>

#define PAGE ((size_t)GM_LEDGER_PAGE)
#define RECORD sizeof(struct gm_client_record)
#define SLOT (sizeof(uint64_t) + 2 * RECORD)

/* The word: the CRC in its lower half, and above it which copy, and that there is one. */
#define LIVE (1ull << 63)
#define SECOND (1ull << 32)

static uint64_t *word_of(const struct gm_clients *clients, uint32_t id)
{
    return (uint64_t *)(void *)(clients->memory + PAGE + SLOT * id);
}

static uint8_t *copy_of(const struct gm_clients *clients, uint32_t id, bool is_second)
{
    return (uint8_t *)(word_of(clients, id) + 1) + (is_second ? RECORD : 0);
}

/* CRC-32 (IEEE 802.3), four bits at a time, over the record and its id. */
static uint32_t crc(const struct gm_client_record *record, uint32_t id)
{
    static const uint32_t rest[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                      0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                      0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                      0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const uint8_t *bytes = (const uint8_t *)record;
    uint32_t sum = ~id;
    for (size_t i = 0; i < RECORD; i++) {
        sum ^= bytes[i];
        sum = sum >> 4 ^ rest[sum & 15];
        sum = sum >> 4 ^ rest[sum & 15];
    }
    return ~sum;
}

size_t gm_clients_size(uint32_t max_clients)
{
    return (PAGE + SLOT * max_clients + PAGE - 1) & ~(PAGE - 1);
}

void gm_clients_init(struct gm_clients *clients, void *memory, uint32_t max_clients)
{
    struct gm_clients_head *head = memory;
    *clients = (struct gm_clients){.memory = memory, .max_clients = max_clients};
    *head = (struct gm_clients_head){
        .magic = GM_CLIENTS_MAGIC, .version = GM_CLIENTS_VERSION, .max_clients = max_clients};
    __atomic_store_n(&head->made, GM_CLIENTS_MAGIC, __ATOMIC_RELEASE);
}

uint64_t *gm_clients_made(const struct gm_clients *clients)
{
    return &((struct gm_clients_head *)(void *)clients->memory)->made;
}

static void store(const struct gm_clients *clients, uint32_t id, uint64_t word)
{
    if (clients->on_store)
        clients->on_store(clients->arg, id);
    __atomic_store_n(word_of(clients, id), word, __ATOMIC_RELEASE);
}

void gm_clients_write(const struct gm_clients *clients, uint32_t id,
                      const struct gm_client_record *is)
{
    if (!clients->memory)
        return;
    const uint64_t now = *word_of(clients, id);
    const bool is_second = (now & SECOND) != 0;
    if ((now & LIVE) && memcmp(copy_of(clients, id, is_second), is, RECORD) == 0)
        return;
    memcpy(copy_of(clients, id, !is_second), is, RECORD);
    store(clients, id, LIVE | (is_second ? 0 : SECOND) | crc(is, id));
}

void gm_clients_end(const struct gm_clients *clients, uint32_t id)
{
    if (clients->memory)
        store(clients, id, 0);
}

/* What is added there is added here. */
_Static_assert(sizeof(struct gm_settings) == 32, "a setting outlives the daemon");

void gm_client_settings_from(struct gm_client_settings *to, const struct gm_settings *from)
{
    *to = (struct gm_client_settings){.has = from->has,
                                      .class = from->class,
                                      .is_paused = from->is_paused,
                                      .is_evicted = from->is_evicted,
                                      .is_until_call = from->is_until_call,
                                      .is_oversize = from->is_oversize,
                                      .weight = from->weight,
                                      .share = from->share,
                                      .cap = from->cap};
}

bool gm_client_settings_to(struct gm_settings *to, const struct gm_client_settings *from)
{
    *to = (struct gm_settings){.has = from->has,
                               .class = (uint8_t)from->class,
                               .is_paused = from->is_paused == 1,
                               .is_evicted = from->is_evicted == 1,
                               .is_until_call = from->is_until_call == 1,
                               .is_oversize = from->is_oversize == 1,
                               .weight = from->weight,
                               .share = from->share,
                               .cap = from->cap};
    return from->class <= UINT8_MAX && from->is_paused <= 1 && from->is_evicted <= 1 &&
           from->is_until_call <= 1 && from->is_oversize <= 1;
}

const char *gm_clients_open(struct gm_clients *clients, void *memory, size_t bytes,
                            uint32_t max_clients)
{
    const struct gm_clients_head *head = memory;
    if (bytes < PAGE)
        return "the ledger of programs is too short";
    if (head->magic != GM_CLIENTS_MAGIC)
        return "it is no ledger of programs";
    if (head->made != GM_CLIENTS_MAGIC)
        return "the ledger of programs was never finished, or the keeper was lost from sight when "
               "it was left";
    if (head->version < GM_CLIENTS_VERSION)
        return "the ledger of programs is of an older gpumuxd";
    if (head->version > GM_CLIENTS_VERSION)
        return "the ledger of programs is of a newer gpumuxd";
    if (head->max_clients > max_clients)
        return "the ledger of programs has more places than this gpumuxd";
    if (bytes < gm_clients_size((uint32_t)head->max_clients))
        return "the ledger of programs is too short";
    *clients = (struct gm_clients){.memory = memory, .max_clients = (uint32_t)head->max_clients};
    return NULL;
}

static bool is_text(const char *text, size_t size)
{
    bool has_ended = false;
    for (size_t i = 0; i < size; i++) {
        if (has_ended && text[i] != '\0')
            return false;
        has_ended = has_ended || text[i] == '\0';
    }
    return has_ended;
}

static bool is_client(const struct gm_clients *clients, const struct gm_client_record *is)
{
    struct gm_settings settings;
    return is->pid > 0 && is->pid <= INT32_MAX && is_text(is->name, sizeof is->name) &&
           is_text(is->group, sizeof is->group) && is->group_of < clients->max_clients &&
           is->is_group_said <= 1 && is->is_gone <= 1 && is->engines < 1u << GM_CLIENTS_GPUS &&
           gm_client_settings_to(&settings, &is->admin) &&
           gm_client_settings_to(&settings, &is->own) && is->is_paused_by_rule <= 1 &&
           is->turns[0].kin <= clients->max_clients;
}

enum gm_ledger_outcome gm_clients_read(const struct gm_clients *clients, uint32_t id,
                                       struct gm_client_record *is)
{
    const uint64_t word = *word_of(clients, id);
    if (word == 0)
        return GM_LEDGER_NONE;
    if ((word & ~(LIVE | SECOND | UINT32_MAX)) != 0 || !(word & LIVE))
        return GM_LEDGER_BROKEN;
    memcpy(is, copy_of(clients, id, (word & SECOND) != 0), RECORD);
    return crc(is, id) == (uint32_t)word && is_client(clients, is) ? GM_LEDGER_IS
                                                                   : GM_LEDGER_BROKEN;
}

bool gm_clients_are_together(uint32_t id, const struct gm_client_record *record, uint32_t other_id,
                             const struct gm_client_record *other)
{
    return !record->is_gone && !other->is_gone && record->uid == other->uid &&
           (record->group_of == other_id || record->group_of == other->group_of ||
            other->group_of == id);
}

bool gm_clients_are_kin(uint32_t id, const struct gm_client_record *record, uint32_t other_id,
                        const struct gm_client_record *other)
{
    const uint32_t kin = record->turns[0].kin, its = other->turns[0].kin;
    return !record->is_gone && !other->is_gone && record->uid == other->uid &&
           (kin == other_id + 1 || its == id + 1 || (kin != 0 && kin == its));
}
