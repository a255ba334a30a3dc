/*
 * The ledger (core/ledger.h) as a new daemon would find it, if this one died now: after steps, and
 * at any store in the middle of one. A table is made of it, and wherever that says that data of a
 * program is, it must be: tags tell (machine.h). What is written at that moment holds GARBAGE.
 * After a step the new table is also that of the engine in all that is durable, and the ledger of
 * programs says who they are, whom they run with and what GPUs they use, until their processes end.
 *
 * Each is a sample, as it looks at all memory: one of RARELY stores, and the same of steps.
 */
#include "tests/sim/engine/machine.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/table.h"
#include "daemon/core/table_adopt.h"
#include "daemon/engine/state/groups.h"

enum { RARELY = 480, SELDOM = 8 };

static struct of_gpu {
    size_t bytes, table_bytes;
    void *copy, *table;
    uint32_t *scratch;
} of_gpus[GPUS];

static struct chance chance; /* of its own, so that machines stay as they are */

/* Where the data of an adopted chunk is. Returns how many pages. */
static uint32_t find_data(const struct gm_engine *engine, const struct gm_chunk *chunk,
                          struct page **pages)
{
    const uint32_t n = (uint32_t)(gm_class_bytes(chunk->class) >> GM_CHUNK_SHIFT);
    if (chunk->tier == GM_TIER_NONE)
        return 0;
    if (chunk->tier != GM_TIER_GPU)
        return stored_pages(engine->stores, (enum gm_tier)chunk->tier, chunk->page, pages, n);
    for (uint32_t i = 0; i < n; i++)
        pages[i] = page_of_frame(&engine->frames.handles[chunk->frame], i);
    return n;
}

static void check_data(const struct gm_engine *engine, const struct gm_chunk *chunk,
                       const char *when)
{
    const struct gm_session *session = engine->apps[chunk->app].session;
    const uint32_t first = (uint32_t)((chunk->va - PROGRAM_BASE) >> GM_CHUNK_SHIFT);
    struct page *pages[HANDLE_PAGES];
    if (!session || session->program->life != session->life || !session->program->is_connected)
        return;
    const struct program *p = session->program;
    const uint8_t r = p->map[first].region;
    if (r == NO_REGION || p->regions[r].state == REGION_FREED || !p->regions[r].content)
        return;
    const uint32_t n = find_data(engine, chunk, pages);
    for (uint32_t i = 0; i < gm_class_bytes(chunk->class) >> GM_CHUNK_SHIFT; i++) {
        const uint64_t tag = p->regions[r].content->tag[first - p->regions[r].first + i];
        require(n > 0 || tag == 0,
                "%s: for a new daemon the chunk at %lx of program %u is nowhere, which wrote %lx",
                when, chunk->va, p->number, tag);
        require(n == 0 || pages[i]->tag == tag,
                "%s: a new daemon finds %lx in page %u of the chunk at %lx of program %u, in tier "
                "%u, which wrote %lx",
                when, pages[i]->tag, i, chunk->va, p->number, chunk->tier, tag);
    }
}

/* What a tier is made of, and no copy in it yet. */
static void make_pages(struct gm_pages *pages, const struct gm_pages *of, uint32_t *chains)
{
    require(gm_pages_open(pages, of->max_pages * GM_CHUNK_MIN) == 0, "no memory");
    gm_pages_keep(pages, chains);
    for (uint32_t slab = 0; slab * GM_SLAB_PAGES < of->max_pages; slab++)
        if (of->slabs[slab].map != 0)
            gm_pages_add_slab(pages, slab);
}

/* Each copy has pages of its own that are there. A small unit is a piece by itself. */
static void check_pages(const struct gm_engine *engine, const struct gm_table *made,
                        const struct gm_ledger *from, const char *when)
{
    for (unsigned tier = GM_TIER_PINNED; tier <= GM_TIER_DISK; tier++) {
        struct gm_pages pages;
        make_pages(&pages, pages_in(engine->stores, (enum gm_tier)tier),
                   gm_ledger_chains(from, (enum gm_tier)tier));
        for (uint32_t i = 0; i < made->max_chunks; i++) {
            const struct gm_chunk *chunk = &made->chunks[i];
            if (chunk->state == GM_CHUNK_UNUSED || chunk->page == GM_NONE ||
                (chunk->state == GM_CHUNK_LEAVING ? GM_TIER_PINNED : chunk->tier) != tier)
                continue;
            const bool is_small_unit =
                tier == GM_TIER_PINNED && gm_class_bytes(chunk->class) < GM_SLAB_BYTES &&
                gm_hostpool_is_unit(&engine->pool, chunk->page, chunk->class);
            require(is_small_unit ||
                        gm_pages_adopt(&pages, chunk->page, gm_class_bytes(chunk->class)),
                    "%s: for a new daemon the pages of chunk %u in tier %u are not its own", when,
                    i, tier);
        }
        gm_pages_close(&pages);
    }
}

static const struct gm_table *adopt(uint32_t gpu, const char *when)
{
    const struct gm_engine *engine = machine.daemon.engines[gpu];
    const struct gm_table *table = engine->table;
    struct of_gpu *of = &of_gpus[gpu];
    struct gm_ledger from;
    memcpy(of->copy, table->ledger.words, of->bytes);
    memset(of->table, 0, of->table_bytes);
    const char *wrong = gm_ledger_open(&from, of->copy, of->bytes, &table->ledger);
    require(!wrong, "%s: %s", when, wrong);
    struct gm_table *made =
        gm_table_init(of->table, table->max_apps, table->max_chunks, table->max_frames, 0);
    struct gm_adoption adoption = {.from = &from,
                                   .ended = mover_ended(gpu),
                                   .pages = engine->pool.pages.max_pages,
                                   .scratch = of->scratch};
    wrong = gm_table_adopt(made, &adoption);
    require(!wrong, "%s: a new daemon refuses the ledger: %s (kind %d, slot %u)", when, wrong,
            (int)adoption.kind, adoption.slot);
    for (uint32_t i = 0; i < made->max_chunks; i++)
        if (made->chunks[i].state != GM_CHUNK_UNUSED)
            check_data(engine, &made->chunks[i], when);
    check_pages(engine, made, &from, when);
    return made;
}

/* It may die before this store. */
static void on_store(void *arg, enum gm_ledger_kind kind, uint32_t slot)
{
    const struct of_gpu *of = arg;
    (void)kind;
    (void)slot;
    deaths_may_come("a store");
    if (machine.is_lost || draw(&chance, RARELY) != 0)
        return;
    adopt((uint32_t)(of - of_gpus), "in a step");
    machine.sums.ledgers++;
}

/* What is shared is, by its name. */
static void check_shares(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    struct gm_ledger_allocation is;
    uint32_t n = 0;
    for (const struct gm_share *share = engine->shares; share; share = share->next) {
        if (share->owner == GM_NONE)
            continue; /* nobody can open it any more */
        const uint32_t at = gm_table_find_allocation(table, share->owner, share->va);
        require(at != GM_NONE && gm_ledger_allocation(&table->ledger, at, &is) == GM_LEDGER_IS &&
                    is.share == share->id && is.nonce[0] == share->nonce[0] &&
                    is.nonce[1] == share->nonce[1],
                "the ledger does not have share %u", share->id);
        n++;
    }
    for (uint32_t at = 0; at < table->max_chunks; at++)
        if (gm_ledger_allocation(&table->ledger, at, &is) == GM_LEDGER_IS && !is.is_freed &&
            is.share != 0)
            n--;
    require(n == 0, "the ledger of GPU %u has a share that is none", engine->config.index);
}

void ledger_run(uint32_t gpu)
{
    if (machine.is_lost || draw(&chance, RARELY) != 0)
        return;
    const char *differs =
        gm_table_compare(machine.daemon.engines[gpu]->table, adopt(gpu, "after a step"));
    check_shares(machine.daemon.engines[gpu]);
    require(!differs, "the ledger of GPU %u is not the table: %s", gpu, differs);
    machine.sums.ledgers++;
}

/* The client of that id, connected or gone; NULL: there is none. */
static const struct gm_client *client_of(uint32_t id)
{
    const struct gm_client *client = machine.daemon.clients[id];
    for (uint32_t i = 0; i < machine.n_gpus && !client; i++)
        client = machine.daemon.engines[i]->apps[id].client;
    return client;
}

void ledger_run_clients(void)
{
    struct gm_client_record is;
    if (draw(&chance, SELDOM) != 0)
        return;
    for (uint32_t id = 0; id < machine.daemon.max_apps; id++) {
        const struct gm_client *client = client_of(id);
        const enum gm_ledger_outcome outcome =
            gm_clients_read(&machine.daemon.keep.clients, id, &is);
        uint32_t gpus = 0;
        require(outcome == (client ? GM_LEDGER_IS : GM_LEDGER_NONE),
                "client %u is %s, and of its record a new daemon finds %d", id,
                client ? "there" : "not there", (int)outcome);
        if (!client)
            continue;
        require(is.pid == (uint32_t)client->pid && is.nonce[0] == client->nonce[0] &&
                    is.nonce[1] == client->nonce[1] &&
                    (is.is_gone == !client->session || client->lost_at != 0),
                "the record of client %u is another's", id);
        if (!client->session)
            continue;
        for (uint32_t i = 0; i < machine.n_gpus; i++)
            gpus |= client->engines[i] ? 1u << i : 0;
        require(is.engines == gpus, "client %u uses the GPUs %x, and its record says %x", id, gpus,
                is.engines);
        require(is.group_of == gm_group_clients(client->group)->id,
                "client %u runs with %u, and its record says %u", id,
                gm_group_clients(client->group)->id, is.group_of);
    }
}

void ledger_begin(void)
{
    chance.state = machine.seed;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        struct gm_table *table = machine.daemon.engines[i]->table;
        struct of_gpu *of = &of_gpus[i];
        struct gm_ledger ledger = table->ledger;
        require(ledger.words, "GPU %u has no ledger", i);
        of->bytes = gm_ledger_size(&ledger);
        of->table_bytes = gm_table_size(table->max_apps, table->max_chunks, table->max_frames);
        of->copy = malloc(of->bytes);
        of->table = malloc(of->table_bytes);
        of->scratch = malloc(
            sizeof *of->scratch *
            gm_adoption_words(table->max_chunks, machine.daemon.engines[i]->pool.pages.max_pages));
        require(of->copy && of->table && of->scratch, "no memory");
        ledger.on_store = on_store;
        ledger.arg = of;
        gm_table_keep_ledger(table, &ledger);
    }
}

void ledger_end(void)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        struct of_gpu *of = &of_gpus[i];
        struct gm_ledger ledger = machine.daemon.engines[i]->table->ledger;
        ledger.on_store = NULL;
        gm_table_keep_ledger(machine.daemon.engines[i]->table, &ledger);
        free(of->copy);
        free(of->table);
        free(of->scratch);
        *of = (struct of_gpu){0};
    }
}
