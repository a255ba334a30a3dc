/* The ledger: see ledger.h. */
#include "daemon/core/ledger.h"

#define WORD_BITS 56u
#define DATA_MASK ((1ull << WORD_BITS) - 1)
#define LIVE (1ull << 55) /* in the word that makes a record count */
#define NO_INDEX 0xffffffffull

enum { APP_WORDS = 1, ALLOCATION_WORDS = 6, CHUNK_WORDS = 4, FRAME_WORDS = 3 };
enum {
    ALLOCATION_VA,
    ALLOCATION_BYTES,
    ALLOCATION_COMMIT,
    ALLOCATION_SHARE,
    ALLOCATION_NONCE,
    ALLOCATION_NONCE_TOO
};
enum { CHUNK_ID, CHUNK_PLACE, CHUNK_PAGE, CHUNK_NUMBER };
enum { FRAME_COMMIT, FRAME_PAGE, FRAME_UID };

/* ---- words ---- */

/* CRC-8 (x^8 + x^2 + x + 1), four bits at a time: it finds up to three bits that changed in a word,
 * its check included. */
static uint8_t crc(uint64_t data, uint8_t from)
{
    static const uint8_t rest[16] = {0x00, 0x07, 0x0e, 0x09, 0x1c, 0x1b, 0x12, 0x15,
                                     0x38, 0x3f, 0x36, 0x31, 0x24, 0x23, 0x2a, 0x2d};
    uint8_t sum = from;
    for (unsigned bits = 64; bits > 0; bits -= 4)
        sum = (uint8_t)((sum << 4) ^ rest[(sum >> 4) ^ ((data >> (bits - 4)) & 15)]);
    return sum;
}

/* The check also says where the word belongs. A word of 0 is none. */
static uint64_t check_of(uint64_t data, size_t at)
{
    return (uint64_t)crc(data, (uint8_t)(1 + at % 251)) << WORD_BITS;
}

static size_t round_up(size_t bytes)
{
    return (bytes + GM_LEDGER_PAGE - 1) & ~(size_t)(GM_LEDGER_PAGE - 1);
}

/* Where the records of a kind begin, in words. */
static size_t start_of(const struct gm_ledger *ledger, enum gm_ledger_kind kind)
{
    size_t at = 2 * GM_LEDGER_PAGE / sizeof(uint64_t);
    if (kind == GM_LEDGER_APP)
        return at;
    at += (size_t)APP_WORDS * ledger->max_apps;
    if (kind == GM_LEDGER_ALLOCATION)
        return at;
    at += (size_t)ALLOCATION_WORDS * ledger->max_chunks;
    if (kind == GM_LEDGER_CHUNK)
        return at;
    at += (size_t)CHUNK_WORDS * ledger->max_chunks;
    return kind == GM_LEDGER_FRAME ? at : at + (size_t)FRAME_WORDS * ledger->max_frames;
}

static size_t at_of(const struct gm_ledger *ledger, enum gm_ledger_kind kind, uint32_t slot,
                    unsigned word)
{
    static const uint8_t words[GM_LEDGER_KINDS] = {APP_WORDS, ALLOCATION_WORDS, CHUNK_WORDS,
                                                   FRAME_WORDS};
    return start_of(ledger, kind) + (size_t)words[kind] * slot + word;
}

static uint8_t *import_at(const struct gm_ledger *ledger, uint32_t app, uint32_t frame)
{
    uint8_t *bits = (uint8_t *)&ledger->words[start_of(ledger, GM_LEDGER_KINDS)];
    return bits + (size_t)app * ((ledger->max_frames + 7) / 8) + frame / 8;
}

/* Whoever sees it sees what was stored before. */
static void store(const struct gm_ledger *ledger, enum gm_ledger_kind kind, uint32_t slot,
                  unsigned word, uint64_t data)
{
    const size_t at = at_of(ledger, kind, slot, word);
    if (ledger->on_store)
        ledger->on_store(ledger->arg, kind, slot);
    __atomic_store_n(&ledger->words[at], data == 0 ? 0 : data | check_of(data, at),
                     __ATOMIC_RELEASE);
}

/* False: it is not as it was written. */
static bool load(const struct gm_ledger *ledger, enum gm_ledger_kind kind, uint32_t slot,
                 unsigned word, uint64_t *data)
{
    const size_t at = at_of(ledger, kind, slot, word);
    const uint64_t is = ledger->words[at];
    *data = is & DATA_MASK;
    return is == 0 || (*data != 0 && is == (*data | check_of(*data, at)));
}

/* ---- the whole ---- */

/* Where what lies behind the records begins, in bytes. All sizes are below 2^32, so the words are
 * below 2^36; imports may be more. 0: too many. */
static size_t end_of_imports(const struct gm_ledger *sizes)
{
    const uint64_t row = ((uint64_t)sizes->max_frames + 7) / 8;
    if (row != 0 && sizes->max_apps > (UINT64_MAX >> 24) / row)
        return 0;
    return round_up(start_of(sizes, GM_LEDGER_KINDS) * sizeof(uint64_t) + row * sizes->max_apps);
}

static size_t chains_at(const struct gm_ledger *sizes, unsigned tier)
{
    size_t at = end_of_imports(sizes);
    for (unsigned t = 0; t < tier; t++)
        at += sizes->pages[t] * sizeof(uint32_t);
    return at;
}

size_t gm_ledger_size(const struct gm_ledger *sizes)
{
    return end_of_imports(sizes) == 0 ? 0 : round_up(chains_at(sizes, GM_TIERS));
}

void gm_ledger_init(struct gm_ledger *ledger, void *memory)
{
    struct gm_ledger_head *head = memory;
    ledger->words = memory;
    *head = (struct gm_ledger_head){.magic = GM_LEDGER_MAGIC,
                                    .version = GM_LEDGER_VERSION,
                                    .max_apps = ledger->max_apps,
                                    .max_chunks = ledger->max_chunks,
                                    .max_frames = ledger->max_frames,
                                    .gpu = ledger->gpu};
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        head->pages[tier] = ledger->pages[tier];
    __atomic_store_n(&head->made, GM_LEDGER_MAGIC, __ATOMIC_RELEASE);
}

uint32_t *gm_ledger_chains(const struct gm_ledger *ledger, enum gm_tier tier)
{
    return (uint32_t *)(void *)((char *)ledger->words + chains_at(ledger, tier));
}

uint64_t *gm_ledger_made(const struct gm_ledger *ledger)
{
    return &((struct gm_ledger_head *)(void *)ledger->words)->made;
}

uint64_t *gm_ledger_out(const struct gm_ledger *ledger)
{
    return &ledger->words[GM_LEDGER_PAGE / sizeof(uint64_t)];
}

const char *gm_ledger_open(struct gm_ledger *ledger, void *memory, size_t bytes,
                           const struct gm_ledger *most)
{
    const struct gm_ledger_head *head = memory;
    if (bytes < 2 * GM_LEDGER_PAGE)
        return "the ledger is too short";
    if (head->magic != GM_LEDGER_MAGIC)
        return "it is no ledger";
    if (head->made != GM_LEDGER_MAGIC)
        return "the ledger was never finished, or the keeper was lost from sight when it was left";
    if (head->version < GM_LEDGER_VERSION)
        return "the ledger is of an older gpumuxd";
    if (head->version > GM_LEDGER_VERSION)
        return "the ledger is of a newer gpumuxd";
    if (((const uint64_t *)memory)[GM_LEDGER_PAGE / sizeof(uint64_t)] == GM_LEDGER_UNCOUNTED)
        return "the driver did not count what was copied out";
    bool is_larger = head->max_apps > most->max_apps || head->max_apps > GM_LEDGER_APPS ||
                     head->max_chunks > most->max_chunks || head->max_frames > most->max_frames;
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        is_larger = is_larger || head->pages[tier] > most->pages[tier];
    if (is_larger)
        return "the ledger is larger than this gpumuxd's tables";
    *ledger = (struct gm_ledger){.words = memory,
                                 .max_apps = (uint32_t)head->max_apps,
                                 .max_chunks = (uint32_t)head->max_chunks,
                                 .max_frames = (uint32_t)head->max_frames,
                                 .gpu = head->gpu};
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        ledger->pages[tier] = (uint32_t)head->pages[tier];
    const size_t size = gm_ledger_size(ledger);
    return size == 0 || bytes < size ? "the ledger is cut off" : NULL;
}

/* ---- apps ---- */

void gm_ledger_set_app(const struct gm_ledger *ledger, uint32_t app, uint32_t uid)
{
    if (ledger->words)
        store(ledger, GM_LEDGER_APP, app, 0, LIVE | uid);
}

void gm_ledger_end_app(const struct gm_ledger *ledger, uint32_t app)
{
    const size_t row = (ledger->max_frames + 7) / 8;
    if (!ledger->words)
        return;
    store(ledger, GM_LEDGER_APP, app, 0, 0);
    for (size_t i = 0; i < row; i++)
        import_at(ledger, app, 0)[i] = 0;
}

enum gm_ledger_outcome gm_ledger_app(const struct gm_ledger *ledger, uint32_t app, uint32_t *uid)
{
    uint64_t data;
    if (!load(ledger, GM_LEDGER_APP, app, 0, &data) || (data != 0 && !(data & LIVE)))
        return GM_LEDGER_BROKEN;
    if (data == 0)
        return GM_LEDGER_NONE;
    *uid = (uint32_t)data;
    return (data & ~LIVE) == *uid ? GM_LEDGER_IS : GM_LEDGER_BROKEN;
}

/* ---- allocations ---- */

#define APP_BITS 32u
#define IS_FREED (1ull << APP_BITS)

void gm_ledger_begin_allocation(const struct gm_ledger *ledger, uint32_t at, uint64_t va,
                                uint64_t bytes)
{
    if (!ledger->words)
        return;
    store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_SHARE, 0);
    store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_VA, va >> GM_CHUNK_SHIFT);
    store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_BYTES, bytes >> GM_CHUNK_SHIFT);
}

void gm_ledger_commit_allocation(const struct gm_ledger *ledger, uint32_t at, uint32_t app,
                                 bool is_freed)
{
    if (ledger->words)
        store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_COMMIT,
              LIVE | (is_freed ? IS_FREED : 0) | app);
}

void gm_ledger_share_allocation(const struct gm_ledger *ledger, uint32_t at, uint32_t share,
                                const uint64_t nonce[2])
{
    if (!ledger->words)
        return;
    store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_NONCE, nonce[0] & GM_LEDGER_NONCE);
    store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_NONCE_TOO, nonce[1] & GM_LEDGER_NONCE);
    store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_SHARE, share);
}

void gm_ledger_end_allocation(const struct gm_ledger *ledger, uint32_t at)
{
    if (ledger->words)
        store(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_COMMIT, 0);
}

enum gm_ledger_outcome gm_ledger_allocation(const struct gm_ledger *ledger, uint32_t at,
                                            struct gm_ledger_allocation *is)
{
    uint64_t commit, va, pages, share, nonce[2] = {0};
    if (!load(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_COMMIT, &commit))
        return GM_LEDGER_BROKEN;
    if (commit == 0) /* the others may be of one that was being made */
        return GM_LEDGER_NONE;
    if (!load(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_VA, &va) ||
        !load(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_BYTES, &pages) ||
        !load(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_SHARE, &share))
        return GM_LEDGER_BROKEN;
    /* Without a share the nonce may be of one that was being made. */
    if (share != 0 && (!load(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_NONCE, &nonce[0]) ||
                       !load(ledger, GM_LEDGER_ALLOCATION, at, ALLOCATION_NONCE_TOO, &nonce[1])))
        return GM_LEDGER_BROKEN;
    *is = (struct gm_ledger_allocation){.va = va << GM_CHUNK_SHIFT,
                                        .bytes = pages << GM_CHUNK_SHIFT,
                                        .app = (uint32_t)commit,
                                        .is_freed = (commit & IS_FREED) != 0,
                                        .share = (uint32_t)share,
                                        .nonce = {nonce[0], nonce[1]}};
    const bool is_known = (commit & ~(LIVE | IS_FREED | NO_INDEX)) == 0 && (commit & LIVE);
    const uint64_t most = UINT64_MAX >> GM_CHUNK_SHIFT;
    return is_known && share <= UINT32_MAX && is->app < ledger->max_apps && va <= most &&
                   pages > 0 && pages <= most && is->va + is->bytes > is->va &&
                   gm_chunk_count(is->bytes) <= ledger->max_chunks
               ? GM_LEDGER_IS
               : GM_LEDGER_BROKEN;
}

/* ---- chunks ---- */

#define ORDINAL_BITS 23u /* 2^23 chunks, the last five of which may be small: 256 TiB */
#define IS_ON_HOST (1ull << 40)

void gm_ledger_add_chunk(const struct gm_ledger *ledger, uint32_t chunk, uint32_t allocation,
                         uint32_t ordinal)
{
    if (!ledger->words)
        return;
    store(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_PLACE, 0);
    store(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_ID, LIVE | (uint64_t)ordinal << 32 | allocation);
}

void gm_ledger_end_chunk(const struct gm_ledger *ledger, uint32_t chunk)
{
    if (ledger->words)
        store(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_ID, 0);
}

void gm_ledger_set_place(const struct gm_ledger *ledger, uint32_t chunk,
                         const struct gm_ledger_place *place)
{
    if (!ledger->words)
        return;
    if (place->where == GM_LEDGER_OUT) {
        store(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_PAGE, LIVE | place->page);
        store(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_NUMBER, place->number);
    }
    store(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_PLACE,
          (place->where == GM_LEDGER_NOWHERE ? 0 : place->index) | (uint64_t)place->where << 32 |
              (uint64_t)place->tier << 36 | (place->is_on_host ? IS_ON_HOST : 0));
}

void gm_ledger_put(const struct gm_ledger *ledger, uint32_t chunk, bool is_on_host)
{
    uint64_t data;
    if (!ledger->words || !load(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_PLACE, &data))
        return;
    store(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_PLACE,
          (data & ~IS_ON_HOST) | (is_on_host ? IS_ON_HOST : 0));
}

static bool read_place(const struct gm_ledger *ledger, uint32_t chunk,
                       struct gm_ledger_place *place)
{
    uint64_t data, page = LIVE, number = 0;
    if (!load(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_PLACE, &data))
        return false;
    const uint64_t where = data >> 32 & 15, tier = data >> 36 & 15;
    *place = (struct gm_ledger_place){.where = (enum gm_ledger_where)where,
                                      .tier = (enum gm_tier)tier,
                                      .index = (uint32_t)data,
                                      .is_on_host = (data & IS_ON_HOST) != 0};
    if (where >= GM_LEDGER_WHERES || data >> 41 != 0)
        return false;
    if (where == GM_LEDGER_AT_PAGE ? tier < GM_TIER_PINNED || tier >= GM_TIERS
                                   : tier != GM_TIER_NONE)
        return false;
    if (where == GM_LEDGER_NOWHERE)
        return place->index == 0;
    if (where != GM_LEDGER_AT_PAGE && place->index >= ledger->max_frames)
        return false;
    if (where != GM_LEDGER_OUT)
        return place->index != GM_NONE;
    if (!load(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_PAGE, &page) ||
        !load(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_NUMBER, &number))
        return false;
    place->page = (uint32_t)page;
    place->number = number;
    return (page & ~NO_INDEX) == LIVE && place->page != GM_NONE && number != 0;
}

enum gm_ledger_outcome gm_ledger_chunk(const struct gm_ledger *ledger, uint32_t chunk,
                                       uint32_t *allocation, uint32_t *ordinal,
                                       struct gm_ledger_place *place)
{
    uint64_t id;
    if (!load(ledger, GM_LEDGER_CHUNK, chunk, CHUNK_ID, &id) || (id != 0 && !(id & LIVE)))
        return GM_LEDGER_BROKEN;
    if (id == 0)
        return GM_LEDGER_NONE;
    *allocation = (uint32_t)id;
    *ordinal = (uint32_t)(id >> 32 & ((1u << ORDINAL_BITS) - 1));
    return *allocation < ledger->max_chunks && read_place(ledger, chunk, place) ? GM_LEDGER_IS
                                                                                : GM_LEDGER_BROKEN;
}

struct gm_ledger_place gm_ledger_resolve(struct gm_ledger_place place, uint64_t ended)
{
    if (place.where != GM_LEDGER_OUT || ended < place.number)
        return place;
    return (struct gm_ledger_place){.where = GM_LEDGER_AT_PAGE,
                                    .tier = GM_TIER_PINNED,
                                    .index = place.page,
                                    .is_on_host = place.is_on_host};
}

/* ---- frames ---- */

#define CLASS_AT 32u
#define IS_HOST (1ull << 40)
#define IS_CONDEMNED (1ull << 41)
#define MAPPER_AT 42u /* one more than the app */
#define MAPPERS ((uint64_t)GM_LEDGER_APPS << MAPPER_AT)

void gm_ledger_set_frame(const struct gm_ledger *ledger, uint32_t frame,
                         const struct gm_ledger_frame *is)
{
    if (!ledger->words)
        return;
    store(ledger, GM_LEDGER_FRAME, frame, FRAME_PAGE, LIVE | is->page);
    store(ledger, GM_LEDGER_FRAME, frame, FRAME_UID, LIVE | is->uid);
    store(ledger, GM_LEDGER_FRAME, frame, FRAME_COMMIT,
          LIVE | is->share | (uint64_t)is->class << CLASS_AT | (is->is_host ? IS_HOST : 0) |
              (is->is_condemned ? IS_CONDEMNED : 0) |
              (is->mapper == GM_NONE ? 0 : (is->mapper + 1ull) << MAPPER_AT));
}

void gm_ledger_end_frame(const struct gm_ledger *ledger, uint32_t frame)
{
    if (ledger->words)
        store(ledger, GM_LEDGER_FRAME, frame, FRAME_COMMIT, 0);
}

enum gm_ledger_outcome gm_ledger_frame(const struct gm_ledger *ledger, uint32_t frame,
                                       struct gm_ledger_frame *is)
{
    uint64_t commit, page, uid;
    if (!load(ledger, GM_LEDGER_FRAME, frame, FRAME_COMMIT, &commit))
        return GM_LEDGER_BROKEN;
    if (commit == 0)
        return GM_LEDGER_NONE;
    if (!load(ledger, GM_LEDGER_FRAME, frame, FRAME_PAGE, &page) ||
        !load(ledger, GM_LEDGER_FRAME, frame, FRAME_UID, &uid))
        return GM_LEDGER_BROKEN;
    const uint64_t class = commit >> CLASS_AT & 0xff;
    const uint32_t mapper = (uint32_t)((commit & MAPPERS) >> MAPPER_AT);
    *is = (struct gm_ledger_frame){.share = (uint32_t)commit,
                                   .page = (uint32_t)page,
                                   .uid = (uint32_t)uid,
                                   .mapper = mapper == 0 ? GM_NONE : mapper - 1,
                                   .class = (uint8_t) class,
                                   .is_host = (commit & IS_HOST) != 0,
                                   .is_condemned = (commit & IS_CONDEMNED) != 0};
    const bool is_known =
        (commit & ~(LIVE | IS_HOST | IS_CONDEMNED | MAPPERS | 0xffull << CLASS_AT | NO_INDEX)) ==
            0 &&
        (commit & LIVE) && (page & ~NO_INDEX) == LIVE && (uid & ~NO_INDEX) == LIVE;
    return is_known && class < GM_CHUNK_CLASSES && is->is_host == (is->page != GM_NONE) &&
                   mapper <= ledger->max_apps && (mapper == 0 || !is->is_host)
               ? GM_LEDGER_IS
               : GM_LEDGER_BROKEN;
}

/* ---- imports ---- */

void gm_ledger_set_import(const struct gm_ledger *ledger, uint32_t app, uint32_t frame,
                          bool has_import)
{
    const uint8_t bit = (uint8_t)(1u << (frame % 8));
    if (!ledger->words)
        return;
    if (has_import)
        __atomic_fetch_or(import_at(ledger, app, frame), bit, __ATOMIC_RELEASE);
    else
        __atomic_fetch_and(import_at(ledger, app, frame), (uint8_t)~bit, __ATOMIC_RELEASE);
}

bool gm_ledger_has_import(const struct gm_ledger *ledger, uint32_t app, uint32_t frame)
{
    return *import_at(ledger, app, frame) >> (frame % 8) & 1;
}
