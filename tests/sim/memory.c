/* Where the memory of simulated apps is: see memory.h. */
#include "tests/sim/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNKS = 4096, FRAMES = 1024, MOVES = 4 * CHUNKS };

static void *must(void *memory)
{
    if (!memory) {
        fprintf(stderr, "sim_sched: out of memory\n");
        exit(1);
    }
    return memory;
}

struct memory *memory_make(uint32_t max_apps, uint64_t budget, uint64_t link_rate, uint64_t pinned,
                           uint64_t paged)
{
    struct memory *m = must(calloc(1, sizeof *m));
    void *tables = must(calloc(1, gm_table_size(max_apps, CHUNKS, FRAMES)));
    m->table = gm_table_init(tables, max_apps, CHUNKS, FRAMES, budget);
    m->plan.moves = must(malloc(MOVES * sizeof *m->plan.moves));
    m->plan.capacity = MOVES;
    m->targets = must(calloc(max_apps, sizeof *m->targets));
    m->victims = must(calloc(max_apps, sizeof *m->victims));
    m->input.targets = m->targets;
    m->input.victims = m->input.donors = m->victims;
    m->input.tiers[GM_TIER_PINNED].cap = pinned ? pinned : 1ull << 60;
    m->input.tiers[GM_TIER_PAGED].cap = pinned ? paged : 0;
    m->input.tiers[GM_TIER_DISK].cap = pinned ? 1ull << 60 : 0;
    m->input.window = pinned ? GM_PLAN_WINDOW_MIN : 0;
    m->max_apps = max_apps;
    m->next_va = 1ull << 40;
    m->link_rate = link_rate;
    m->lower_rate = link_rate / 4 + 1;
    return m;
}

void memory_free(struct memory *m)
{
    free(m->table);
    free(m->plan.moves);
    free(m->targets);
    free(m->victims);
    free(m);
}

/* ---- Apps and their allocations ---- */

void memory_join(struct memory *m, uint32_t app, uint32_t uid)
{
    /* Pools of users that are gone serve others once their frames are. */
    for (uint32_t f = 0; f < m->table->max_frames; f++) {
        const struct gm_frame *frame = &m->table->frames[f];
        if (frame->state == GM_FRAME_FREE && m->table->pools[frame->pool].apps == 0) {
            gm_table_condemn_frame(m->table, f);
            gm_table_end_frame(m->table, f);
        }
    }
    if (!gm_table_add_app(m->table, app, uid))
        m->fault = "no pool is left for another app";
}

/* Give back its newest allocation. */
static void free_one(struct memory *m, uint32_t app)
{
    struct gm_table *table = m->table;
    uint32_t index = table->apps[app].allocations.head;
    table->allocations[index].is_freed = true;
    for (uint32_t c = table->allocations[index].first, next; c != GM_NONE; c = next) {
        struct gm_chunk *chunk = &table->chunks[c];
        next = chunk->sibling;
        gm_table_free_chunk(table, c);
        if (chunk->frame != GM_NONE)
            gm_table_free_frame(table, chunk->frame);
        chunk->frame = GM_NONE;
        if (chunk->tier > GM_TIER_GPU)
            m->input.tiers[chunk->tier].used -= gm_class_bytes(chunk->class);
        if (gm_table_end_chunk(table, c))
            gm_table_end_allocation(table, index);
    }
}

bool memory_resize(struct memory *m, uint32_t app, uint64_t bytes)
{
    const struct gm_table_app *a = &m->table->apps[app];
    while (a->committed > bytes)
        free_one(m, app);
    uint64_t more = bytes - a->committed;
    if (more == 0)
        return true;
    m->next_va += more + GM_CHUNK_MAX;
    return gm_table_add_allocation(m->table, app, m->next_va - more, more) != GM_NONE;
}

void memory_leave(struct memory *m, uint32_t app)
{
    while (m->table->apps[app].allocations.count > 0)
        free_one(m, app);
    gm_table_remove_app(m->table, app);
}

/* ---- Plans ---- */

/* One move, begin and end. NULL, or why it was not possible in its turn. */
static const char *carry_out(struct memory *m, const struct gm_move *move)
{
    struct gm_table *table = m->table;
    uint32_t frame = move->frame;
    if (move->kind == GM_MOVE_DESTROY) {
        if (table->frames[frame].state != GM_FRAME_FREE)
            return "a plan destroys a frame that is not free";
        gm_table_condemn_frame(table, frame);
        gm_table_end_frame(table, frame);
        return NULL;
    }
    struct gm_chunk *chunk = &table->chunks[move->chunk];
    uint64_t bytes = gm_class_bytes(chunk->class);
    unsigned from = chunk->tier, to = GM_TIER_GPU;
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
        if (from != GM_TIER_GPU || chunk->frame != frame)
            return "a plan evicts what is not on the GPU";
        to = GM_TIER_PINNED;
        m->bytes_out += bytes;
        chunk->frame = GM_NONE;
        gm_table_leave_frame(table, frame);
        gm_table_free_frame(table, frame);
        break;
    case GM_MOVE_FILL:
        if (from != GM_TIER_PINNED && from != GM_TIER_NONE)
            return "a plan fills from below pinned memory";
        m->bytes_in += from == GM_TIER_NONE ? 0 : bytes; /* never written: nothing to copy */
        if (frame == GM_NONE)
            frame = gm_table_add_frame(table, table->apps[chunk->app].pool, chunk->class);
        else if (table->frames[frame].state != GM_FRAME_FREE)
            return "a plan fills a frame that is not free";
        if (frame == GM_NONE)
            return "a plan makes a frame for which there is no room";
        gm_table_take_frame(table, frame, move->chunk);
        break;
    case GM_MOVE_DEMOTE:
    case GM_MOVE_PROMOTE:
        to = move->kind == GM_MOVE_DEMOTE ? move->to_tier : GM_TIER_PINNED;
        if ((move->kind == GM_MOVE_DEMOTE) != (from == GM_TIER_PINNED) || from < GM_TIER_PINNED)
            return "a plan moves what is not there below the GPU";
        m->bytes_demoted += bytes;
        break;
    case GM_MOVE_DESTROY:
        break;
    }
    m->input.tiers[from].used -= bytes; /* GPU and none: not read */
    m->input.tiers[to].used += bytes;
    if (to > GM_TIER_GPU && m->input.tiers[to].used > m->input.tiers[to].cap)
        return "a plan fills a tier beyond its cap";
    chunk->tier = (uint8_t)to;
    chunk->page = to > GM_TIER_GPU ? 0 : GM_NONE;
    gm_table_place(table, move->chunk);
    return NULL;
}

static void carry_out_all(struct memory *m)
{
    m->plans++;
    m->moves += m->plan.n;
    for (uint32_t i = 0; i < m->plan.n && !m->fault; i++)
        m->fault = carry_out(m, &m->plan.moves[i]);
}

static uint64_t time_of(uint64_t bytes, uint64_t rate)
{
    return (uint64_t)((unsigned __int128)bytes * 1000000000 / rate);
}

uint64_t memory_load(struct memory *m, uint32_t n_targets, uint32_t n_victims, bool *is_complete)
{
    uint64_t in = m->bytes_in, out = m->bytes_out, demoted = m->bytes_demoted;
    m->input.n_targets = n_targets;
    m->input.n_victims = n_victims;
    m->input.n_donors = 0;
    gm_plan_make(m->table, &m->input, &m->plan);
    *is_complete = m->plan.is_complete;
    carry_out_all(m);
    in = m->bytes_in - in;
    out = m->bytes_out - out;
    uint64_t link = time_of(in > out ? in : out, m->link_rate);
    uint64_t lower = time_of(m->bytes_demoted - demoted, m->lower_rate);
    return link > lower ? link : lower;
}

void memory_prefetch(struct memory *m, uint32_t n_targets, uint32_t n_victims, uint32_t n_donors)
{
    uint64_t in = m->bytes_in, out = m->bytes_out;
    m->input.n_targets = n_targets;
    m->input.n_victims = n_victims;
    m->input.n_donors = n_donors;
    gm_plan_prefetch(m->table, &m->input, &m->plan);
    carry_out_all(m);
    if (m->bytes_out - out > (n_donors > 0 ? m->bytes_in - in : 0) && !m->fault)
        m->fault = "a prefetch evicts more than it brings";
}

bool memory_is_whole(const struct memory *m, uint32_t app)
{
    return m->table->apps[app].missing == 0;
}

const char *memory_check(const struct memory *m)
{
    return m->fault ? m->fault : gm_table_check(m->table);
}
