/* Checks of what lies in each chunk, wherever its copies are (checks.c). */
#include "tests/sim/engine/checks.h"

/* The pages of a chunk's authoritative copy; 0: it has none, or it is on its way. */
static uint32_t find_copy(const struct gm_engine *engine, const struct gm_chunk *chunk,
                          struct page **pages)
{
    const uint32_t n = (uint32_t)(gm_chunk_bytes(chunk) >> GM_CHUNK_SHIFT);
    const bool is_in_frame = chunk->tier == GM_TIER_GPU || chunk->state == GM_CHUNK_ON_HOST;
    if (chunk->tier == GM_TIER_NONE)
        return 0;
    if (is_in_frame && chunk->frame == GM_NONE)
        return 0; /* the copy out is under way */
    if (is_in_frame) {
        for (uint32_t i = 0; i < n; i++)
            pages[i] = page_of_frame(&engine->frames.handles[chunk->frame], i);
        return n;
    }
    if (chunk->page == GM_NONE)
        return 0;
    return stored_pages(engine->stores, (enum gm_tier)chunk->tier, chunk->page, pages, n);
}

/* Nobody else can reach a page of pinned memory with data of a program, unless it is shared. */
static void check_reach(const struct program *p, const struct page *page)
{
    const struct handle *handle = handle_of_page(page);
    require(!handle || !handle->is_host || handle->is_shared || handle->maps == 0 ||
                handle->program == p->number,
            "data of program %u lies in host memory that program %u has mapped", p->number,
            handle->program);
}

/* The authoritative copy of each chunk holds what its program wrote. */
static void check_chunk(const struct gm_engine *engine, const struct program *p,
                        const struct gm_chunk *chunk)
{
    const uint32_t first = (uint32_t)((chunk->va - PROGRAM_BASE) >> GM_CHUNK_SHIFT);
    const uint8_t r = p->map[first].region;
    const struct region *region = r == NO_REGION ? NULL : &p->regions[r];
    struct page *pages[HANDLE_PAGES];
    if (!region || region->state == REGION_FREED)
        return;
    const uint32_t n = find_copy(engine, chunk, pages), at = first - region->first;
    for (uint32_t i = 0; i < gm_chunk_bytes(chunk) >> GM_CHUNK_SHIFT; i++) {
        const uint64_t tag = region->content ? region->content->tag[at + i] : 0;
        if (n > 0)
            check_reach(p, pages[i]);
        require(n == 0 || pages[i]->tag == tag,
                "page %u of program %u's chunk at %lx, in tier %u (%s), holds %lx, and the "
                "program wrote %lx",
                i, p->number, chunk->va, chunk->tier,
                gm_model_state_text(GM_MODEL_CHUNK, chunk->state), pages[i]->tag, tag);
        require(chunk->tier != GM_TIER_NONE || tag == 0,
                "program %u wrote %lx to its chunk at %lx, which is nowhere", p->number, tag,
                chunk->va);
    }
}

/* A shadow of a chunk whose program has not run since is its copy. */
static void check_shadow(const struct gm_engine *engine, const struct program *p,
                         const struct gm_chunk *chunk)
{
    const uint32_t first = (uint32_t)((chunk->va - PROGRAM_BASE) >> GM_CHUNK_SHIFT);
    const uint8_t r = p->map[first].region;
    struct page *pages[HANDLE_PAGES];
    if (chunk->shadow != GM_SHADOW_KEPT || r == NO_REGION || !p->regions[r].content ||
        p->regions[r].state == REGION_FREED || chunk->opens != engine->apps[chunk->app].gate.opens)
        return;
    const uint32_t n = pinned_pages(&engine->pool, chunk->page, pages, HANDLE_PAGES);
    for (uint32_t i = 0; i < n; i++)
        check_reach(p, pages[i]);
    for (uint32_t i = 0; i < n; i++)
        require(pages[i]->tag == p->regions[r].content->tag[first - p->regions[r].first + i],
                "the shadow of program %u's chunk at %lx is not as the chunk", p->number,
                chunk->va);
}

/* Nothing of a program moves unless it is quiet: its gate is closed, on all GPUs, and it answered.
 * What it has asked for and not got yet, it does not use. */
static void check_quiet(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const struct gm_app *app = &engine->apps[chunk->app];
    if (gm_chunk_is_still(chunk) || engine->table->allocations[chunk->allocation].is_pending)
        return;
    require(app->client->state == GM_CLIENT_QUIET && app->state != GM_APP_RUNNING &&
                app->state != GM_APP_DRAINING,
            "app %u is %s and its chunk at %lx on GPU %u is %s, and it is %squiet", chunk->app,
            gm_model_state_text(GM_MODEL_APP, app->state), chunk->va, engine->config.index,
            gm_model_state_text(GM_MODEL_CHUNK, chunk->state),
            app->client->state == GM_CLIENT_QUIET ? "" : "not ");
}

/* What is on its way waits for a copy or for an answer: else it would for ever. */
static void check_on_their_way(const struct gm_table *table)
{
    for (uint32_t c = 0; c < table->max_chunks; c++)
        require(gm_chunk_is_still(&table->chunks[c]) || table->chunks[c].copy_pending ||
                    table->chunks[c].map_pending,
                "chunk %u is %s, and nothing of it is to come", c,
                gm_model_state_text(GM_MODEL_CHUNK, table->chunks[c].state));
}

void check_chunks(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    if (!machine.is_down) /* else it is being adopted */
        check_on_their_way(table);
    for (uint32_t id = 0; id < table->max_apps; id++) {
        const struct gm_session *session = engine->apps[id].session;
        if (!session || session->program->life != session->life || !session->program->is_connected)
            continue;
        for (uint32_t a = table->apps[id].allocations.head; a != GM_NONE;
             a = table->allocations[a].next)
            for (uint32_t c = table->allocations[a].first;
                 c != GM_NONE && !table->allocations[a].is_freed; c = table->chunks[c].sibling) {
                require(table->chunks[c].state != GM_CHUNK_RESIDENT ||
                            (table->chunks[c].page != GM_NONE) ==
                                (table->chunks[c].shadow == GM_SHADOW_KEPT),
                        "chunk %u is on the GPU with pages that are no shadow, or without its own",
                        c);
                check_quiet(engine, &table->chunks[c]);
                check_chunk(engine, session->program, &table->chunks[c]);
                check_shadow(engine, session->program, &table->chunks[c]);
            }
    }
}
