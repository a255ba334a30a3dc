/*
 * What must hold after every step of the engine (DESIGN.md, section 2). To add a check: a function
 * here that reads the engine's state and the fakes', calls fail() with what is wrong, and a line in
 * checks_run. It runs some thousand times a seed: keep it linear in what exists.
 *
 * The fakes check more at the moment when something happens: cuda.c, mover.c and program.c say
 * what. The scheduler is watched as well (tests/sim/watch.h), through the engine's outlet.
 */
#include "tests/sim/engine/machine.h"
#include "common/windows.h"
#include "daemon/engine/act/windows.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/policy.h"
#include "daemon/engine/step/room.h"

/* For how long a part of a group may run without the rest where all drain at once. */
#define SPLIT_MOST (300 * GM_MS)

/* ... for how long nothing may move while one loads (what failed is tried again after 100 ms), */
#define STILL_MOST (150 * GM_MS)

/* ... and for how long a program may be above a cap that was lowered. */
#define ABOVE_MOST (5 * GM_S)

/* The tables agree with themselves, and the frames fit the budget. */
static void check_table(const struct gm_engine *engine)
{
    const char *fault = gm_table_check(engine->table);
    if (fault)
        fail("GPU %u: %s", engine->config.index, fault);
}

/* The GPU's memory that the table says there is, is there. */
static void check_memory(const struct gm_engine *engine)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        if (engine->table->frames[i].state == GM_FRAME_UNUSED || engine->table->frames[i].is_host)
            continue;
        if (engine->table->frames[i].is_destroyed) { /* others keep its memory */
            bytes += gm_class_bytes(engine->table->frames[i].class);
            continue;
        }
        const struct gm_frame_handle *frame = &engine->frames.handles[i];
        const struct handle *handle = handle_at((int)frame->handle);
        require(handle->is_held && !handle->is_host && handle->gpu == engine->config.index,
                "frame %u has no memory of GPU %u", i, engine->config.index);
        bytes += (uint64_t)handle->pages << GM_CHUNK_SHIFT;
    }
    require(bytes == engine->table->allocated, "the frames' memory is not what the table says");
}

/* A frame that is to end waits for each that has it, and has yet to come back. */
static void check_condemned(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next)
        for (uint32_t id = 0; id < table->max_apps; id++)
            require(engine->apps[id].session || engine->apps[id].state != GM_APP_LOST ||
                        !gm_table_has_import(table, id, i) || gm_table_has_drop(table, id, i),
                    "frame %u is to end, lost app %u has it, and is not to drop it", i, id);
}

/* Pinned memory that is mapped, be it by a process that is dying or by what one left, stays a host
 * frame. */
static void check_host_frames(void)
{
    static bool is_frame[HANDLES];
    memset(is_frame, 0, sizeof is_frame);
    for (uint32_t k = 0; k < machine.n_gpus; k++) {
        const struct gm_engine *engine = machine.daemon.engines[k];
        for (uint32_t i = 0; i < engine->table->max_frames; i++)
            if (engine->table->frames[i].state != GM_FRAME_UNUSED &&
                engine->table->frames[i].is_host)
                is_frame[engine->frames.handles[i].handle] = true;
    }
    require(!handle_is_mapped_in_pool(is_frame), "host memory that a process has mapped is free");
}

/* What is shared and lies on the host stays there: it was promised to its owner, or counts beside
 * that once the owner is gone. */
static uint64_t check_shared_on_host(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    uint64_t of_app[PROGRAMS] = {0}, left = 0;
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        const uint32_t c = frame->chunk;
        if (frame->state == GM_FRAME_UNUSED || !frame->is_host || frame->share == 0)
            continue;
        if (c != GM_NONE && !table->chunks[c].is_freed)
            of_app[table->chunks[c].app] += gm_class_bytes(frame->class);
        else
            left += gm_class_bytes(frame->class);
    }
    for (uint32_t id = 0; id < table->max_apps && !engine->stopping.is_on; id++)
        require(of_app[id] <= table->apps[id].beyond,
                "app %u shares %lu MiB on the host, and was promised %lu beyond the GPU", id,
                of_app[id] >> 20, table->apps[id].beyond >> 20);
    return left;
}

/* Who may not be larger than the budget is not; each is told what it could have. (What others share
 * is told a step later.) */
static void check_size(struct program *p, const struct gm_engine *engine)
{
    const bool is_mappable = !engine->pool.is_registered;
    const uint64_t window = engine->host->window;
    const uint64_t on_host = is_mappable ? gm_less(gm_hostpool_cap(&engine->pool), window) : 0;
    const uint64_t alone = is_mappable ? gm_less(gm_host_limit_alone(engine), window) : 0;
    const uint64_t rounding = gm_room_on_host(0, gm_engine_sums(engine, p->app).programs);
    const uint32_t id = p->app;
    if (!p->session || !engine->apps[id].session || engine->stopping.is_on)
        return;
    const bool is_oversize = gm_engine_is_oversize(engine, id);
    const uint64_t beyond = engine->table->apps[id].beyond;
    p->was_oversize = p->was_oversize || is_oversize || gm_engine_is_capped(engine, id) ||
                      engine->is_short_of_room;
    require(beyond % GM_CHUNK_MIN == 0 && beyond <= engine->table->apps[id].committed,
            "app %u has %lu bytes beyond the budget, of %lu", id, beyond,
            engine->table->apps[id].committed);
    require(p->was_oversize || beyond == 0, "app %u has %lu MiB beyond the budget, and never might",
            id, beyond >> 20);
    const uint64_t promised = gm_room_on_host(engine->table->beyond, engine->table->beyond_apps) +
                              check_shared_on_host(engine);
    require(promised <= on_host, "%lu MiB beyond the budget are promised, of %lu", promised >> 20,
            on_host >> 20);
    const uint64_t told = engine->apps[id].ctl->budget[engine->config.index];
    uint64_t total = gm_engine_offered(engine) + (is_oversize ? gm_less(alone, rounding) : 0);
    if (p->wishes.cap_is == GM_HELLO_CAP_FOREIGN && p->wishes.cap >= GM_CHUNK_MIN &&
        p->wishes.cap < total)
        total = p->wishes.cap & ~(GM_CHUNK_MIN - 1);
    total = total > 0 ? total : GM_CHUNK_MIN; /* none has 0 bytes */
    require(told == total || machine.has_sharing || engine->is_closing,
            "app %u is told %lu MiB, not %lu", id, told >> 20, total >> 20);
    struct gm_room_input input = gm_engine_room_input(engine, id);
    input.tiers = engine->config.is_waiting_when_full ? UINT64_MAX : input.tiers;
    const struct gm_room room = gm_room_of(&input);
    const uint64_t told_room = engine->apps[id].ctl->room[engine->config.index];
    /* What it has on another GPU takes files here, too; that is told a step later. */
    require(told_room == room.gpu + room.host || machine.n_gpus > 1 || engine->is_closing,
            "app %u is told room of %lu MiB, not %lu", id, told_room >> 20,
            (room.gpu + room.host) >> 20);
}

/* Of what others have beyond the GPU, what could be on it. Caps and groups say more of that. */
static uint64_t count_aside(const struct gm_engine *engine, uint32_t asker)
{
    const struct gm_table *table = engine->table;
    const uint64_t most = gm_less(gm_engine_offered(engine), table->fixed);
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const uint64_t promised = gm_room_promised(table, id), beyond = table->apps[id].beyond;
        if (id != asker && engine->apps[id].session && !engine->apps[id].is_stopped &&
            !table->apps[id].is_silent)
            bytes += beyond < gm_less(most, promised) ? beyond : gm_less(most, promised);
    }
    return bytes;
}

/* What is cold of others is no reason to refuse memory for lack of host memory. */
static void check_refusals(struct program *p, const struct gm_engine *engine)
{
    const struct gm_app *app = &engine->apps[p->app];
    const struct gm_reason *reason = &app->refusal.newest;
    uint64_t *before = &p->refusals[engine->config.index];
    const bool is_new = app->refusal.n > *before;
    *before = app->refusal.n;
    if (!is_new || reason->why != GM_WHY_PINNED || machine.has_caps || machine.has_groups ||
        machine.n_gpus > 1 || engine->stopping.is_on || engine->pool.is_registered)
        return;
    const uint64_t limit = gm_less(gm_hostpool_cap(&engine->pool), engine->host->window);
    const uint64_t taken = gm_room_on_host(engine->table->beyond, engine->table->beyond_apps + 1);
    const uint64_t needed = gm_less(taken, count_aside(engine, p->app));
    const uint64_t gpu = gm_less(gm_engine_offered(engine) - engine->table->fixed,
                                 gm_room_promised(engine->table, p->app));
    require(gm_less(reason->bytes, gpu) > gm_less(limit, needed),
            "app %u is refused %lu MiB, and of %lu MiB of host memory only %lu are needed", p->app,
            reason->bytes >> 20, limit >> 20, needed >> 20);
}

/* Once places are chosen, an app has no more on the host than it was promised there, beside what it
 * shares, and what is on its way and had no choice. */
static void check_places(const struct program *p, const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    const struct gm_app *app = &engine->apps[p->app];
    const uint64_t beyond = table->apps[p->app].beyond;
    uint64_t on_host = table->apps[p->app].on_host;
    for (uint32_t i = 0; i < table->max_chunks && on_host > 0; i++)
        if (table->chunks[i].state != GM_CHUNK_UNUSED && table->chunks[i].app == p->app &&
            table->chunks[i].is_on_host && !table->chunks[i].is_freed &&
            (table->chunks[i].is_fixed || table->chunks[i].state == GM_CHUNK_MAPPING ||
             table->chunks[i].state == GM_CHUNK_RETURNING))
            on_host -= gm_chunk_bytes(&table->chunks[i]);
    require(app->state != GM_APP_LOADING || app->places.is_wanted || engine->stopping.is_on ||
                on_host <= gm_room_rounded(beyond),
            "app %u is to have %lu MiB on the host, and was promised %lu beyond the GPU", p->app,
            on_host >> 20, beyond >> 20);
}

/* What each app has of each GPU, by the frames themselves. */
static uint64_t device_of[GPUS][PROGRAMS];

static void count_device(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    uint64_t *bytes = device_of[engine->config.index];
    require(table->max_apps <= PROGRAMS, "there are %u apps", table->max_apps);
    memset(bytes, 0, sizeof device_of[0]);
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        if ((frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING) &&
            !frame->is_host && frame->chunk != GM_NONE)
            bytes[table->chunks[frame->chunk].app] += gm_class_bytes(frame->class);
    }
}

/* Who has a cap is below it, or above and does not grow; a group by all of its programs. One of a
 * group may grow to its part while another one, which runs, has more than its own. */
static void check_cap(struct program *p, const struct gm_engine *engine)
{
    const uint32_t gpu = engine->config.index;
    uint64_t device = 0, fixed = 0, bend = 0, members = 0;
    bool is_above = false, is_fair = true; /* one that runs is above its part; who grows is not */
    for (uint32_t i = 1; i <= machine.n_programs && !engine->stopping.is_on; i++) {
        const struct program *other = &machine.programs[i];
        if (!app_of(other, gpu) || (other != p && other->team != p->team))
            continue;
        members |= 1ull << i % 64;
        const struct gm_app *app = &engine->apps[other->app];
        const uint64_t own = device_of[gpu][other->app];
        const uint64_t own_fixed = engine->table->apps[other->app].fixed;
        const uint64_t part =
            gm_room_promised(engine->table, other->app) + own_fixed + app->cap.bend;
        is_above = is_above || (app->state == GM_APP_RUNNING && own > part);
        is_fair = is_fair && (own <= other->own[gpu] || own <= part);
        device += own;
        fixed += own_fixed;
        bend += app->cap.bend;
    }
    const uint64_t needed = gm_engine_sums(engine, p->app).promised + fixed;
    const uint64_t cap = gm_engine_cap(engine, p->app);
    const uint64_t bent = machine.config.has_bending_caps ? needed + bend : fixed;
    const uint64_t most = cap > bent ? cap : bent;   /* what is cold bends no cap */
    const bool is_same = members == p->members[gpu]; /* nobody came or went */
    require(cap == 0 || device <= most || device <= p->device[gpu] ||
                (!has_cap_room(engine, p->app) && device <= needed + bend) || !is_same ||
                (is_above && is_fair),
            "app %u has %lu MiB of the GPU, had %lu, and its cap is %lu", p->app, device >> 20,
            p->device[gpu] >> 20, most >> 20);
    const bool is_over =
        cap != 0 && device > most && (has_cap_room(engine, p->app) || device > needed + bend);
    if (!is_over || !machine.is_calm)
        p->above_at[gpu] = 0;
    else if (p->above_at[gpu] == 0)
        p->above_at[gpu] = machine.now;
    require(p->above_at[gpu] == 0 || machine.now - p->above_at[gpu] <= ABOVE_MOST,
            "app %u has %lu MiB of the GPU, and for %lu ms its cap has been %lu", p->app,
            device >> 20, (uint64_t)((machine.now - p->above_at[gpu]) / GM_MS), most >> 20);
    p->device[gpu] = device;
    p->members[gpu] = members;
}

static void note_own(void)
{
    for (uint32_t i = 1; i <= machine.n_programs && machine.has_caps; i++)
        for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++) {
            struct program *p = &machine.programs[i];
            p->own[gpu] = app_of(p, gpu) ? device_of[gpu][p->app] : 0;
        }
}

/* All programs of a user together have no more than a rule gives them. */
static void check_user(const struct gm_engine *engine, uint32_t user)
{
    const struct gm_user_totals *totals = &machine.totals[user];
    const struct gm_table *table = engine->table;
    uint64_t device = 0, pinned = 0;
    for (uint32_t i = 1; i <= machine.n_programs && !engine->stopping.is_on; i++) {
        const struct program *p = &machine.programs[i];
        if (!app_of(p, engine->config.index) || p->uid != 1000 + user)
            continue;
        device += table->apps[p->app].device;
        pinned += table->apps[p->app].committed - table->apps[p->app].fixed;
    }
    require(totals->gpu == 0 || device <= totals->gpu,
            "user %u has %lu MiB of GPU %u, and may have %lu", 1000 + user, device >> 20,
            engine->config.index, totals->gpu >> 20);
    require(totals->pinned == 0 || pinned <= totals->pinned / machine.n_gpus,
            "user %u has %lu MiB that may have to be pinned, and may have %lu", 1000 + user,
            pinned >> 20, totals->pinned / machine.n_gpus >> 20);
}

/* The words of the app as the engine reads them are what its program marked. */
static void check_words(const struct gm_engine *engine, const struct program *p, uint32_t from,
                        uint32_t to)
{
    static struct gm_use uses[PROGRAM_PAGES];
    const struct gm_table *table = engine->table;
    const int64_t n = gm_engine_read_window(engine, p->app, from, to, uses, PROGRAM_PAGES);
    int64_t at = 0;
    require(n >= 0, "the words of program %u cannot be read: %ld", p->number, (long)n);
    machine.sums.marks += (uint64_t)n;
    for (uint32_t i = 0; i < PROGRAM_PAGES; i++) {
        const uint64_t va = program_va(i);
        bool is_here = false;
        for (uint32_t a = table->apps[p->app].allocations.head; a != GM_NONE && !is_here;
             a = table->allocations[a].next)
            is_here = !table->allocations[a].is_freed && va >= table->allocations[a].va &&
                      va - table->allocations[a].va < table->allocations[a].bytes;
        if (!is_here || p->marked[i] <= from || p->marked[i] > to)
            continue;
        require(at < n && uses[at].va == va && uses[at].window == p->marked[i] &&
                    uses[at].count > 0,
                "program %u marked page %u in window %u, and the engine reads otherwise", p->number,
                i, p->marked[i]);
        at++;
    }
    require(at == n, "program %u did not mark what the engine reads", p->number);
}

/* What was marked in or after the first window whose work may not have ended is warm. */
static void check_lasting(const struct gm_engine *engine, const struct program *p, uint32_t from)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[p->app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling)
            for (uint64_t va = table->chunks[c].va;
                 va < table->chunks[c].va + gm_class_bytes(table->chunks[c].class);
                 va += GM_CHUNK_MIN) {
                const uint32_t page = (uint32_t)((va - program_va(0)) >> GM_CHUNK_SHIFT);
                require(page >= PROGRAM_PAGES || p->marked[page] < from ||
                            !table->chunks[c].is_cold,
                        "page %u of program %u is cold, marked in window %u by work of window %u "
                        "and later that may run",
                        page, p->number, p->marked[page], from);
                machine.sums.lasting += page < PROGRAM_PAGES && p->marked[page] >= from;
            }
}

/* What windows take for cold is older than some work of the program. */
static void check_worked(const struct gm_engine *engine, const struct program *p)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[p->app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling) {
            const uint32_t page =
                (uint32_t)((table->chunks[c].va - program_va(0)) >> GM_CHUNK_SHIFT);
            const uint8_t region = page < PROGRAM_PAGES ? p->map[page].region : NO_REGION;
            require(!table->chunks[c].is_cold || region == NO_REGION ||
                        p->works > p->regions[region].works,
                    "page %u of program %u is cold, and it has not worked since it has that", page,
                    p->number);
        }
}

/* A window that has ended is whole if the program marked all that it touched in it, and so did all
 * of its work that may run. */
static void check_windows(const struct gm_engine *engine, struct program *p)
{
    const struct gm_app *app = &engine->apps[p->app];
    const uint32_t k = engine->config.index;
    uint32_t *before = &p->window[k];
    const uint32_t now = app->windows.is_on ? app->windows.number : 0;
    require(now <= atomic_load(&p->ctl->window), "a window of program %u is not there yet",
            p->number);
    if (*before != 0 && now > *before) {
        const uint32_t marks_from = atomic_load(&p->stat->marks_from);
        const uint32_t lasts_from = atomic_load(&p->stat->lasts_from);
        const bool is_whole = marks_from < *before && p->hid_in < *before &&
                              (lasts_from == 0 || lasts_from > marks_from);
        require(app->windows.is_whole == is_whole || *before == p->begun_hidden[k],
                "window %u of program %u is %swhole", *before, p->number, is_whole ? "not " : "");
        machine.sums.windows++;
        if (!p->is_garbling)
            check_words(engine, p, now > 3 ? now - 3 : 0, now);
        if (!p->is_garbling && lasts_from != 0 && engine->config.fits_working_sets)
            check_lasting(engine, p, lasts_from);
        check_worked(engine, p);
    }
    /* It was not asked for a while, or the other GPU's engine gave the number, and it had hidden
     * something in it before this window began. */
    if (*before != now)
        p->begun_hidden[k] = p->hid_in == now ? now : 0;
    *before = now;
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
            pages[i] = page_at(engine->frames.handles[chunk->frame].va + i * GM_CHUNK_MIN);
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

static void check_chunks(const struct gm_engine *engine)
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

/* The memory of an app on this GPU is resident or mapped on the host. */
static bool is_whole(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[id].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        if (table->allocations[a].missing > 0 && !table->allocations[a].is_pending &&
            !table->allocations[a].is_freed)
            return false;
    return true;
}

/* A gate is open if, and only if, no engine wants it closed; an engine wants that unless the app
 * runs there; and there it has all its memory. */
static void check_gate(const struct program *p)
{
    const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
    const struct gm_client *client = NULL;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_app *app = app_of(p, i);
        if (!app)
            continue;
        client = app->client;
        require((client->shut >> i & 1) == (app->state != GM_APP_RUNNING),
                "program %u (app %u) is %s on GPU %u, which has its gate %s", p->number, p->app,
                gm_model_state_text(GM_MODEL_APP, app->state), i,
                client->shut >> i & 1 ? "closed" : "open");
        require(!is_open || is_whole(machine.daemon.engines[i], p->app),
                "the gate of program %u (app %u) is open, and it lacks memory on GPU %u", p->number,
                p->app, i);
    }
    require(is_open == (client && client->shut == 0), "the gate of program %u is %s", p->number,
            is_open ? "open" : "closed");
    require(!client || client->state != GM_CLIENT_QUIET || !p->is_active,
            "program %u is taken to be quiet, and is not", p->number);
}

/* Who stands still is known to within a second, of that or of the beginning of its turn; and is
 * charged nothing. */
static void check_stopped(struct program *p, uint32_t gpu)
{
    const struct gm_engine *engine = machine.daemon.engines[gpu];
    const struct gm_app *app = app_of(p, gpu);
    const bool is_stopped = app && app->is_stopped && !engine->stopping.is_on;
    const uint64_t begun = app ? app->chosen.begin.at : 0;
    const uint64_t from = p->frozen_at > begun ? p->frozen_at : begun;
    const uint64_t since = machine.now < p->frozen_until ? machine.now - from : 0;
    struct gm_sched_account account = {0};
    require(!app || app->is_stopped || app->state == GM_APP_PAUSED || since <= GM_S,
            "program %u (app %u) stands still for %lu ms and is %s on GPU %u", p->number, p->app,
            (uint64_t)(since / GM_MS), gm_model_state_text(GM_MODEL_APP, app->state), gpu);
    if (is_stopped) {
        require(program_has_team(p) || engine->units[app->unit].bytes == 0,
                "program %u (app %u) stands still, and the scheduler counts its memory", p->number,
                p->app);
        gm_engine_account(engine, p->app, &account);
        require(!p->was_stopped[gpu] || app->unit != p->unit[gpu] || account.run_ns == p->ran[gpu],
                "program %u (app %u) stands still and is charged on GPU %u", p->number, p->app,
                gpu);
        p->ran[gpu] = account.run_ns;
        p->unit[gpu] = app->unit;
    }
    p->was_stopped[gpu] = is_stopped;
}

/* In a calm machine who does nothing for long is known to be idle. */
static void check_idle(struct program *p, uint32_t gpu)
{
    const struct gm_app *app = app_of(p, gpu);
    const uint64_t most = 3 * machine.config.idle_ns + 100 * GM_MS;
    if (!machine.is_calm || machine.is_saving || app->state != GM_APP_RUNNING ||
        program_has_team(p) || p->is_steady || p->work > 0 || p->unanswered > 0 ||
        !machine.gpus[gpu].watch.apps[app->unit].is_wanting)
        p->works_at[gpu] = machine.now;
    require(machine.now - p->works_at[gpu] <= most,
            "program %u (app %u) does nothing for %lu ms and is not idle", p->number, p->app,
            (uint64_t)((machine.now - p->works_at[gpu]) / GM_MS));
}

/* How late a deadline may be noticed. */
#define NOTICED_MOST (50 * GM_MS)

/* ... and for how long a request may wait that could be served. */
#define UNSERVED_MOST (100 * GM_MS)

/* Who does not answer in time is known to be silent, busy or late to end, and nobody waits. */
static void check_deadlines(const struct gm_engine *engine)
{
    const uint64_t now = machine.now - NOTICED_MOST;
    for (uint32_t id = 0; id < engine->config.max_apps && !engine->is_closing; id++) {
        const struct gm_app *app = &engine->apps[id];
        const struct gm_batch *batch = app->batches.sent;
        const uint64_t answered_at = app->gate.answered_at;
        if (app->state == GM_APP_UNUSED)
            continue;
        require(!batch || engine->table->apps[id].is_silent || now < batch->sent_at + GM_LATE_NS ||
                    now < answered_at + GM_LATE_NS,
                "app %u answers nothing, and nobody knows", id);
        require(app->state != GM_APP_DRAINING || app->is_stopped ||
                    now < app->gate.closed_at + engine->config.drain_deadline_ns + GM_LATE_NS,
                "app %u drains for longer than it may", id);
        require(app->state != GM_APP_GONE || !app->exit.poll || app->exit.is_late ||
                    now < app->exit.left_at + GM_EXIT_NS,
                "app %u is waited for, and does not end", id);
        require(app->state != GM_APP_LOADING || engine->stopping.is_on ||
                    now < app->progress_at + GM_STALL_NS,
                "app %u loads, and comes no nearer", id);
    }
}

/* The first that waits for memory could have it, or somebody who has some and may pass the first,
 * or somebody never can. NULL: none of them. */
static const struct gm_admit_request *find_unserved(const struct gm_engine *engine)
{
    const struct gm_admit_request *first = engine->waiting;
    const bool is_on = !engine->stopping.is_on && !engine->is_closing;
    for (const struct gm_admit_request *at = first; is_on && at; at = at->next) {
        const struct gm_room_input input = gm_engine_room_input(engine, at->app);
        const struct gm_room_input alone = gm_room_alone(&input);
        const bool is_next =
            at == first || (engine->table->apps[at->app].committed > 0 &&
                            machine.now < first->since + engine->config.patience_ns);
        if ((is_next && gm_room_refuses(&input, at->bytes) == GM_WHY_NONE) ||
            gm_room_refuses(&alone, at->bytes) != GM_WHY_NONE)
            return at;
    }
    return NULL;
}

static void check_waiting(uint32_t index)
{
    const struct gm_admit_request *at = find_unserved(machine.daemon.engines[index]);
    uint64_t *since = &machine.gpus[index].unserved_at;
    *since = !at ? 0 : *since == 0 ? machine.now : *since;
    /* What the driver keeps for a program the engine hears when it goes round. */
    const bool is_heard = machine.daemon.engines[index]->now >= *since;
    require(!at || !is_heard || machine.now - *since <= UNSERVED_MOST,
            "app %u waits for %lu MiB, which it could have or never can", at->app, at->bytes >> 20);
}

/* Host memory is for all GPUs: what each has pinned, or was promised if that is more, is not too
 * much together. So each can have what it was promised. */
static void check_pinned(void)
{
    const struct gm_host *host = &machine.daemon.host;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_engine *engine = machine.daemon.engines[i];
        const uint64_t pinned = gm_hostpool_pinned(&engine->pool), promised = host->promised[i];
        const uint64_t cap = gm_hostpool_cap(&engine->pool);
        sum += pinned > promised ? pinned : promised;
        require(pinned <= cap, "GPU %u has %lu MiB pinned, and may have %lu", i, pinned >> 20,
                cap >> 20);
        require(promised <= cap, "GPU %u was promised %lu MiB of pinned memory, and may have %lu",
                i, promised >> 20, cap >> 20);
    }
    require(sum <= machine.config.pinned,
            "the GPUs have %lu MiB of pinned memory or were promised it, and --pinned is %lu",
            sum >> 20, machine.config.pinned >> 20);
}

/* It has its turn and all of its memory here, and waits for others, of its own or of its group. */
static bool holds_gpu(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->session && app->state == GM_APP_LOADING && engine->table->apps[id].missing == 0 &&
           gm_room_promised(engine->table, id) > 0 && gm_group_is_several(engine, id) &&
           !app->places.is_held;
}

/* Somebody waits for his turn who needs this GPU only. */
static bool is_wanted(const struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->decision.n_next; i++)
        if (!gm_group_is_several(engine, engine->decision.next[i]))
            return true;
    return false;
}

/* For how long it may hold a turn: once it has waited for --patience, as long as others may take to
 * make room. */
static uint64_t most_held(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t since = engine->apps[id].gate.closed_at;
    const bool is_urgent = machine.now >= since + engine->config.patience_ns;
    return GM_S + (is_urgent ? engine->config.drain_deadline_ns + GM_LATE_NS + GM_STALL_NS : 0);
}

/* In a calm machine no GPU is kept from others for more than a second by who cannot run there,
 * since it waits for another GPU; or for longer if it waited for too long. */
static void check_held(uint32_t index)
{
    const struct gm_engine *engine = machine.daemon.engines[index];
    const bool is_to_be = machine.is_calm && !engine->stopping.is_on && is_wanted(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        uint64_t *since = &machine.gpus[index].kept_at[id];
        *since = !is_to_be || !holds_gpu(engine, id) ? 0 : *since == 0 ? machine.now : *since;
        require(*since == 0 || machine.now - *since <= most_held(engine, id),
                "GPU %u is kept from others for %lu ms by app %u, which waits for another GPU",
                index, (uint64_t)((machine.now - *since) / GM_MS), id);
    }
}

/* It lacks memory, and waits for nobody to stop or to end. */
static bool is_loading(const struct gm_engine *engine)
{
    bool is_awaited = engine->stopping.is_on, is_some = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const enum gm_app_state state = engine->apps[id].state;
        is_awaited = is_awaited || state == GM_APP_DRAINING || state == GM_APP_GONE;
        is_some = is_some || (state == GM_APP_LOADING && engine->table->apps[id].missing > 0);
    }
    return is_some && !is_awaited;
}

/* In a calm machine something is always under way for who loads: a copy, a hash, an answer. */
static void check_still(void)
{
    bool is_some = false;
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        is_some = is_some || is_loading(machine.daemon.engines[i]);
    if (!is_some || !machine.is_calm)
        machine.moved_at = machine.now;
    require(machine.now - machine.moved_at <= STILL_MOST,
            "an app loads, and nothing has moved for %lu ms",
            (uint64_t)((machine.now - machine.moved_at) / GM_MS));
}

/* Memory that nobody waits for is no reason to move or to pause anything: it is granted while all
 * programs have theirs, and a part of the GPU stays free. */
static void check_ahead(uint32_t index)
{
    const struct gm_engine *engine = machine.daemon.engines[index];
    const struct gm_table *table = engine->table;
    const uint64_t room = engine->room + table->fixed;
    const uint32_t before = machine.gpus[index].ahead;
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        n += engine->apps[id].allocs.ahead;
    machine.gpus[index].ahead = n;
    for (uint32_t id = 0; n > before && id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        require(table->apps[id].missing <= app->allocs.ahead_chunks,
                "memory ahead is granted, and app %u lacks %u chunks", id, table->apps[id].missing);
    }
    require(n <= before || table->committed + table->orphaned <= room - room / GM_AHEAD_SHARE,
            "memory ahead is granted, and of %lu MiB %lu are used", room >> 20,
            (table->committed + table->orphaned) >> 20);
}

/* ---- groups ---- */

static bool is_member(const struct program *p, uint32_t team)
{
    return p->team == team && p->session && p->is_connected && p->is_joined;
}

/* All of it can run now, or does. */
static bool is_ready(const struct program *p)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_engine *engine = machine.daemon.engines[i];
        const struct gm_app *app = app_of(p, i);
        if (!app || app->state == GM_APP_RUNNING ||
            (app->state == GM_APP_DRAINING && app->gate.closed_at == machine.now))
            continue;
        if (app->state != GM_APP_LOADING || engine->table->apps[p->app].missing > 0)
            return false;
    }
    return true;
}

/* Nobody of a group begins to run alone: a gate that opens after its program was quiet opens when
 * all others are whole. (One that opens because its program does not drain goes on as before.) */
static void check_opening(const struct program *p)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *other = &machine.programs[i];
        require(!is_member(other, p->team) || is_ready(other),
                "program %u begins to run, and program %u of its group cannot", p->number,
                other->number);
    }
}

/* In a calm machine nobody of a group runs without the others for longer than it takes to stop, or
 * to exchange some memory. One that came later counts from its first turn on. */
static void check_together(uint32_t team)
{
    bool has_open = false, has_closed = false;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *p = &machine.programs[i];
        if (!is_member(p, team) || p->turns == p->turns_alone)
            continue;
        const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
        has_open = has_open || is_open;
        has_closed = has_closed || !is_open;
    }
    uint64_t *since = &machine.groups[team].split_at;
    if (!has_open || !has_closed || !machine.is_calm || machine.is_ending)
        *since = 0;
    else if (*since == 0)
        *since = machine.now;
    require(*since == 0 || machine.now - *since <= SPLIT_MOST,
            "a part of team %u runs without the rest for %lu ms", team,
            (uint64_t)((machine.now - *since) / GM_MS));
}

static void check_groups(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        const struct gm_app *app = app_of(p, 0) ? app_of(p, 0) : app_of(p, machine.n_gpus - 1);
        const bool is_open = app && app->client->shut == 0;
        if (is_open && p->was_quiet && !machine.is_saving)
            check_opening(p);
        p->was_quiet = app && app->client->state == GM_CLIENT_QUIET;
    }
    for (uint32_t team = 1; team < TEAMS; team++)
        check_together(team);
}

void checks_run(void)
{
    for (uint32_t i = 1; i <= machine.n_programs && machine.is_down; i++)
        if (machine.programs[i].is_there && machine.programs[i].is_active)
            check_active(&machine.programs[i]);
    if (!machine.is_up)
        return;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        require(machine.daemon.engines[i]->rounds < GM_ROUNDS_MOST,
                "the engine goes round without an end");
        check_table(machine.daemon.engines[i]);
        check_memory(machine.daemon.engines[i]);
        check_condemned(machine.daemon.engines[i]);
        check_chunks(machine.daemon.engines[i]);
        if (machine.has_caps)
            count_device(machine.daemon.engines[i]);
        for (uint32_t user = 0; user < USERS && machine.has_caps; user++)
            check_user(machine.daemon.engines[i], user);
        check_deadlines(machine.daemon.engines[i]);
        check_waiting(i);
        events_run(machine.daemon.engines[i]);
        stays_look(machine.daemon.engines[i]);
        ledger_run(i);
        check_held(i);
        check_ahead(i);
    }
    ledger_run_clients();
    check_still();
    check_pinned();
    check_host_frames();
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
            if (app_of(p, gpu)) {
                check_size(p, machine.daemon.engines[gpu]);
                check_refusals(p, machine.daemon.engines[gpu]);
                check_places(p, machine.daemon.engines[gpu]);
                check_stopped(p, gpu);
                check_idle(p, gpu);
                if (machine.has_caps)
                    check_cap(p, machine.daemon.engines[gpu]);
            }
        /* Whoever finds the mark free may enable a parked program at once, be it a watchdog. */
        if (p->is_there &&
            (p->is_active || (p->is_connected && p->is_parked && program_may_go_on(p))))
            check_active(p);
        if (!p->session || !p->is_connected || !p->is_joined)
            continue;
        check_gate(p);
        for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
            if (app_of(p, gpu))
                check_windows(machine.daemon.engines[gpu], p);
    }
    note_own();
    check_groups();
}

static void check_nothing_left(const struct gm_engine *engine)
{
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
        require(table->gives_back[tier] == 0, "copies of tier %d are to end that do not exist",
                tier);
    }
    require(table->unmaps == 0 && table->unmap_bytes == 0, "copies are to come of nobody");
    require(table->allocated == 0, "%lu MiB of the GPU are kept for nobody",
            table->allocated >> 20);
    require(gm_hostpool_size(&engine->pool) == 0, "%lu MiB stay pinned for nobody",
            gm_hostpool_size(&engine->pool) >> 20);
}

void checks_nothing_left(void)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        check_nothing_left(machine.daemon.engines[i]);
    for (uint32_t id = 0; id < machine.daemon.max_apps; id++)
        require(!machine.daemon.clients[id], "client %u is left of nobody", id);
}
