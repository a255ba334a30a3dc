/*
 * What must hold after every step of the engine (DESIGN.md, section 2). To add a check: a function
 * here that reads the engine's state and the fakes', calls fail() with what is wrong, and a line in
 * checks_run. It runs some thousand times a seed: keep it linear in what exists.
 *
 * The fakes check more at the moment when something happens: cuda.c, mover.c and program.c say
 * what. The scheduler is watched as well (tests/sim/watch.h), through the engine's outlet.
 */
#include "tests/sim/engine/machine.h"

/* The tables agree with themselves, and the frames fit the budget. */
static void check_table(void)
{
    const char *fault = gm_table_check(machine.engine->table);
    if (fault)
        fail("%s", fault);
}

/* The GPU's memory that the table says there is, is there. */
static void check_memory(void)
{
    const struct gm_engine *engine = machine.engine;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        if (engine->table->frames[i].state == GM_FRAME_UNUSED || engine->table->frames[i].is_host)
            continue;
        const struct gm_frame_handle *frame = &engine->frames.handles[i];
        const struct handle *handle = handle_at((int)frame->handle);
        require(handle->is_held && !handle->is_host, "frame %u has no memory of the GPU", i);
        bytes += (uint64_t)handle->pages << GM_CHUNK_SHIFT;
    }
    require(bytes == engine->table->allocated, "the frames' memory is not what the table says");
}

/* Who may not be larger than the budget is not; each is told what it could have. (What others share
 * is told a step later.) */
static void check_size(struct program *p)
{
    const struct gm_engine *engine = machine.engine;
    const uint64_t on_host = gm_engine_host_room(engine);
    const uint32_t id = p->app;
    if (!p->session || !engine->apps[id].session || engine->stopping.is_on)
        return;
    const bool is_oversize = gm_engine_is_oversize(engine, id);
    const uint64_t beyond = engine->table->apps[id].beyond;
    p->was_oversize = p->was_oversize || is_oversize;
    require(p->was_oversize || beyond == 0, "app %u has %lu MiB beyond the budget, and never might",
            id, beyond >> 20);
    require(engine->table->beyond <= on_host, "%lu MiB beyond the budget are promised, of %lu",
            engine->table->beyond >> 20, on_host >> 20);
    const uint64_t told = engine->apps[id].ctl->budget[engine->config.index];
    const uint64_t total = gm_engine_offered(engine) + (is_oversize ? on_host : 0);
    require(told == total || machine.has_sharing, "app %u is told %lu MiB, not %lu", id, told >> 20,
            total >> 20);
}

/* Whatever an active program uses is mapped, whole, its own, and nobody else's business. */
static void check_active(const struct program *p)
{
    for (unsigned r = 0; r < REGIONS; r++) {
        const struct region *region = &p->regions[r];
        if (region->state != REGION_HELD && region->state != REGION_OPEN)
            continue;
        for (uint32_t i = 0; i < region->pages; i++) {
            const struct page *page = program_page(p, region->first + i);
            require(page, "program %u runs, and page %u of its memory at %lx is not mapped",
                    p->number, i, program_va(region->first));
            require(page->writers == 0, "program %u runs while page %u at %lx is written",
                    p->number, i, program_va(region->first));
            require(page->readers == 0, "program %u runs while page %u at %lx is copied", p->number,
                    i, program_va(region->first));
            require(page->tag == region->content->tag[i],
                    "program %u finds %lx in page %u at %lx, and wrote %lx", p->number, page->tag,
                    i, program_va(region->first), region->content->tag[i]);
        }
    }
}

/* The pages of a chunk's authoritative copy; 0: it has none, or it is on its way. */
static uint32_t find_copy(const struct gm_chunk *chunk, struct page **pages)
{
    const struct gm_engine *engine = machine.engine;
    const uint32_t n = (uint32_t)(gm_chunk_bytes(chunk) >> GM_CHUNK_SHIFT);
    const bool is_in_frame = chunk->tier == GM_TIER_GPU || chunk->state == GM_CHUNK_ON_HOST;
    if (chunk->tier == GM_TIER_NONE)
        return 0;
    if (is_in_frame && chunk->frame == GM_NONE)
        return 0; /* the copy out is under way */
    if (is_in_frame) {
        for (uint32_t i = 0; i < n; i++)
            pages[i] = page_at(engine->frames.handles[chunk->frame].va + i * GM_CHUNK_MIN);
        return n;
    }
    if (chunk->page == GM_NONE)
        return 0;
    return stored_pages(engine->stores, (enum gm_tier)chunk->tier, chunk->page, pages, n);
}

/* The authoritative copy of each chunk holds what its program wrote. */
static void check_chunk(const struct program *p, const struct gm_chunk *chunk)
{
    const uint32_t first = (uint32_t)((chunk->va - PROGRAM_BASE) >> GM_CHUNK_SHIFT);
    const uint8_t r = p->map[first].region;
    const struct region *region = r == NO_REGION ? NULL : &p->regions[r];
    struct page *pages[HANDLE_PAGES];
    if (!region || region->state == REGION_FREED)
        return;
    const uint32_t n = find_copy(chunk, pages), at = first - region->first;
    for (uint32_t i = 0; i < gm_chunk_bytes(chunk) >> GM_CHUNK_SHIFT; i++) {
        const uint64_t tag = region->content ? region->content->tag[at + i] : 0;
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
static void check_shadow(const struct program *p, const struct gm_chunk *chunk)
{
    const uint32_t first = (uint32_t)((chunk->va - PROGRAM_BASE) >> GM_CHUNK_SHIFT);
    const uint8_t r = p->map[first].region;
    struct page *pages[HANDLE_PAGES];
    if (chunk->shadow != GM_SHADOW_KEPT || r == NO_REGION || !p->regions[r].content ||
        p->regions[r].state == REGION_FREED ||
        chunk->opens != machine.engine->apps[chunk->app].gate.opens)
        return;
    const uint32_t n = pinned_pages(&machine.engine->pool, chunk->page, pages, HANDLE_PAGES);
    for (uint32_t i = 0; i < n; i++)
        require(pages[i]->tag == p->regions[r].content->tag[first - p->regions[r].first + i],
                "the shadow of program %u's chunk at %lx is not as the chunk", p->number,
                chunk->va);
}

static void check_chunks(void)
{
    const struct gm_table *table = machine.engine->table;
    for (uint32_t id = 0; id < table->max_apps; id++) {
        const struct gm_session *session = machine.engine->apps[id].session;
        if (!session || session->program->life != session->life || !session->program->is_connected)
            continue;
        for (uint32_t a = table->apps[id].allocations.head; a != GM_NONE;
             a = table->allocations[a].next)
            for (uint32_t c = table->allocations[a].first;
                 c != GM_NONE && !table->allocations[a].is_freed; c = table->chunks[c].sibling) {
                check_chunk(session->program, &table->chunks[c]);
                check_shadow(session->program, &table->chunks[c]);
            }
    }
}

void checks_run(void)
{
    if (!machine.engine)
        return;
    check_table();
    check_memory();
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        check_size(&machine.programs[i]);
        if (machine.programs[i].is_there && machine.programs[i].is_active)
            check_active(&machine.programs[i]);
    }
    check_chunks();
}

void checks_nothing_left(void)
{
    const struct gm_engine *engine = machine.engine;
    const struct gm_table *table = engine->table;
    require(engine->n_apps == 0, "%u programs are still known", engine->n_apps);
    require(table->committed == 0 && table->used_chunks == 0, "chunks are left of nobody");
    require(!engine->shares && !engine->opens, "shares are left of nobody");
    require(engine->n_failed == 0 && engine->n_late == 0 && engine->n_unsent == 0,
            "work is left for nobody");
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++) {
        require(gm_stores_used(engine->stores, (enum gm_tier)tier) == 0,
                "%lu MiB of tier %d are used by nobody",
                gm_stores_used(engine->stores, (enum gm_tier)tier) >> 20, tier);
        require(engine->ending[tier] == 0, "copies of tier %d are to end that do not exist", tier);
    }
    for (int way = 0; way < GM_WAYS; way++)
        require(engine->coming[way].copies == 0 && engine->coming[way].bytes == 0,
                "copies are to come of nobody");
    require(table->allocated == 0, "%lu MiB of the GPU are kept for nobody",
            table->allocated >> 20);
    for (uint32_t page = 0; page < engine->pool.max_slabs * GM_SLAB_PAGES; page++)
        require(engine->unit_frame[page] == GM_NONE, "page %u is a host frame of nobody", page);
    require(gm_hostpool_size(&engine->pool) == 0, "%lu MiB stay pinned for nobody",
            gm_hostpool_size(&engine->pool) >> 20);
}
