/*
 * A hostile ledger (core/ledger.h). The input is a list of operations on a ledger that was right,
 * 12 bytes each: bits that flip, words of any value, records of any values with a right check, a
 * head that lies, and less memory than it says. Whatever they are, reading it ends without a fault
 * of its own: it is refused, or makes a table that is right in itself. Memory is as large as is
 * said, so that a sanitizer sees what is read or written beyond.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/table.h"
#include "daemon/core/table_adopt.h"
#include "tests/fuzz/fuzz_ledger.h"

#define APPS 5u
#define CHUNKS 24u
#define FRAMES 20u
#define PAGES 40u

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_ledger: %s\n", what);
    abort();
}

static void *get(size_t bytes)
{
    void *memory = calloc(1, bytes);
    require(memory != NULL, "no memory");
    return memory;
}

/* Two users, three apps, one of each kind of place. */
static void make(struct gm_ledger *ledger)
{
    void *memory = get(gm_table_size(APPS, CHUNKS, FRAMES));
    struct gm_table *table = gm_table_init(memory, APPS, CHUNKS, FRAMES, 1ull << 40);
    uint32_t first[3], frame;
    gm_table_keep_ledger(table, ledger);
    for (uint32_t app = 0; app < 3; app++) {
        gm_table_add_app(table, app, app == 2 ? 1001 : 1000);
        const uint32_t at = gm_table_add_allocation(table, app, (1ull + app) << 40,
                                                    GM_CHUNK_MAX + 3 * GM_CHUNK_MIN);
        first[app] = table->allocations[at].first;
        const uint32_t second = table->chunks[first[app]].sibling;
        frame = gm_table_add_frame(table, table->apps[app].pool, GM_CHUNK_CLASSES - 1);
        gm_table_fill(table, first[app], frame);
        gm_table_import(table, frame, app);
        gm_table_end_map(table, first[app], false);
        gm_table_settle(table, first[app]);
        gm_table_put(table, second, true);
        gm_table_clear(table, second, 2 * app);
        gm_table_end_copy(table, second, false);
        gm_table_settle(table, second);
    }
    const uint32_t second = table->chunks[first[0]].sibling;
    frame = gm_table_add_host_frame(table, second);
    gm_table_map(table, second, frame);
    gm_table_end_map(table, second, false);
    gm_table_settle(table, second);
    gm_table_evict(table, first[1], 16);
    gm_table_end_map(table, first[1], false);
    gm_table_begin_copy(table, first[1]);
    gm_table_leave_frame(table, first[1], 7);
    require(gm_table_check(table) == NULL, "the table is not right at the start");
    free(memory);
}

/* A value that may matter, or any. */
static uint32_t value(const uint8_t *at)
{
    uint32_t is;
    memcpy(&is, at, sizeof is);
    return is & 1 ? is >> 8 : is >> 8 & 31;
}

static void change(struct gm_ledger *ledger, size_t bytes, const uint8_t *op)
{
    const uint32_t a = value(op + 1), b = value(op + 5);
    const uint8_t flags = op[9], more = op[10];
    struct gm_ledger_head *head = (void *)ledger->words;
    uint64_t *heads[] = {&head->magic,      &head->version,    &head->max_apps,
                         &head->max_chunks, &head->max_frames, &head->pages[GM_TIER_PAGED],
                         &head->made};
    switch (op[0] % 11) {
    case 0:
        ledger->words[a % (bytes / 8)] ^= 1ull << (b % 64);
        break;
    case 1:
        ledger->words[a % (bytes / 8)] = (uint64_t)b << (more % 64);
        break;
    case 2:
        *heads[a % 7] = flags & 1 ? b : *heads[a % 7] + (more & 1 ? 1 : -1ull);
        break;
    case 3:
        gm_ledger_set_app(ledger, a % APPS, b);
        break;
    case 4:
        gm_ledger_begin_allocation(ledger, a % CHUNKS, (uint64_t)b << more % 40,
                                   (uint64_t)flags << (15 + more % 40));
        break;
    case 5:
        gm_ledger_commit_allocation(ledger, a % CHUNKS, flags & 1 ? b : b % APPS, flags & 2);
        break;
    case 6:
        gm_ledger_add_chunk(ledger, a % CHUNKS, flags & 1 ? b : b % CHUNKS, more % 9);
        break;
    case 7:
        gm_ledger_set_place(ledger, a % CHUNKS,
                            &(struct gm_ledger_place){.where = (enum gm_ledger_where)(flags % 5),
                                                      .tier = (enum gm_tier)(flags / 5 % 6),
                                                      .index = b,
                                                      .page = more % 48,
                                                      .number = op[11],
                                                      .is_on_host = more & 1});
        break;
    case 8:
        gm_ledger_set_frame(ledger, a % FRAMES,
                            &(struct gm_ledger_frame){.share = flags & 8 ? more : 0,
                                                      .page = flags & 1 ? b : GM_NONE,
                                                      .uid = flags & 4 ? more : 1000,
                                                      .class = op[11] % 6,
                                                      .is_host = flags & 1,
                                                      .is_condemned = flags & 2});
        break;
    case 9:
        gm_ledger_share_allocation(ledger, a % CHUNKS, more, (const uint64_t[2]){b, flags});
        break;
    default:
        gm_ledger_set_import(ledger, a % APPS, b % FRAMES, flags & 1);
        break;
    }
}

static const struct gm_ledger most = {.max_apps = APPS,
                                      .max_chunks = CHUNKS,
                                      .max_frames = FRAMES,
                                      .pages = {[GM_TIER_PAGED] = PAGES}};

static void read_it(void *memory, size_t bytes, uint64_t ended, bool *is_taken)
{
    struct gm_ledger from;
    *is_taken = false;
    if (gm_ledger_open(&from, memory, bytes, &most) != NULL)
        return;
    void *table_memory = get(gm_table_size(APPS, CHUNKS, FRAMES));
    uint32_t *scratch = get(sizeof *scratch * gm_adoption_words(from.max_chunks, PAGES));
    struct gm_table *table = gm_table_init(table_memory, APPS, CHUNKS, FRAMES, 0);
    struct gm_adoption adoption = {
        .from = &from, .ended = ended, .pages = PAGES, .scratch = scratch};
    const char *wrong = gm_table_adopt(table, &adoption);
    *is_taken = wrong == NULL;
    if (wrong)
        require(adoption.kind < GM_LEDGER_KINDS && adoption.slot < CHUNKS, "it is refused nowhere");
    free(scratch);
    free(table_memory);
}

bool gm_fuzz_ledger(const uint8_t *data, size_t size)
{
    const size_t bytes = gm_ledger_size(&most);
    void *memory = get(bytes);
    struct gm_ledger ledger = most;
    bool is_taken;
    gm_ledger_init(&ledger, memory);
    make(&ledger);
    const uint8_t cut = size > 0 ? data[0] : 0, ended = size > 1 ? data[1] : 0;
    for (size_t at = 2; at + 12 <= size && at < 2 + 12 * 64; at += 12)
        change(&ledger, bytes, data + at);
    const size_t left = cut < 200 ? bytes : bytes / 56 * (cut - 200u) / 8 * 8;
    void *part = get(left + 1);
    memcpy(part, memory, left);
    read_it(part, left, ended, &is_taken);
    free(part);
    free(memory);
    return is_taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_fuzz_ledger(data, size);
    return 0;
}
