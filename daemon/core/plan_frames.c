#include "daemon/core/plan_frames.h"

#include <assert.h>

/* Where chunks can go on the GPU: the order of filling, frames, victims. See planning.h. */

/* The order of filling. */

void gm_plan_open_walk(const struct gm_planning *p, struct gm_plan_walk *walk, uint32_t target,
                       unsigned from, unsigned to)
{
    *walk = (struct gm_plan_walk){
        .first = target, .target = target, .chunk = GM_NONE, .stage = from, .from = from, .to = to};
    if (target < p->input->layout->n_targets)
        walk->chunk = gm_plan_target(p, target)->away[gm_plan_order[from]].head;
}

/* The first target of `pool` from number `from` on, or GM_NONE. */
static uint32_t find_target(const struct gm_planning *p, uint32_t pool, uint32_t from)
{
    for (uint32_t i = from; i < p->input->layout->n_targets; i++)
        if (gm_plan_target(p, i)->pool == pool)
            return i;
    return GM_NONE;
}

static void next_target(const struct gm_planning *p, struct gm_plan_walk *walk)
{
    uint32_t next = find_target(p, gm_plan_target(p, walk->target)->pool, walk->target + 1);
    while (next == GM_NONE && ++walk->first < p->input->layout->n_targets)
        if (find_target(p, gm_plan_target(p, walk->first)->pool, 0) == walk->first)
            next = walk->first;
    walk->target = next == GM_NONE ? p->input->layout->n_targets : next;
}

uint32_t gm_plan_next_chunk(const struct gm_planning *p, struct gm_plan_walk *walk)
{
    while (walk->target < p->input->layout->n_targets) {
        uint32_t chunk = walk->chunk;
        if (chunk != GM_NONE) {
            walk->chunk = gm_plan_follow(p, chunk);
            return chunk;
        }
        if (walk->stage < walk->to) {
            walk->stage++;
        } else {
            walk->stage = walk->from;
            next_target(p, walk);
        }
        if (walk->target < p->input->layout->n_targets)
            walk->chunk = gm_plan_target(p, walk->target)->away[gm_plan_order[walk->stage]].head;
    }
    return GM_NONE;
}

/* How many chunks of each size the targets of `pool` miss, up to the cut. */
static void count_needs(const struct gm_planning *p, uint32_t pool,
                        uint32_t needs[GM_CHUNK_CLASSES])
{
    struct gm_plan_walk walk;
    uint32_t chunk, first = find_target(p, pool, 0);
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        needs[c] = 0;
    if (p->cut == GM_NONE) {
        for (uint32_t i = first; i != GM_NONE; i = find_target(p, pool, i + 1))
            for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
                needs[c] += gm_plan_target(p, i)->away_count[c];
        return;
    }
    if (first == GM_NONE || first > p->cut_first)
        return;
    gm_plan_open_walk(p, &walk, first, 0, GM_STAGE_LAST);
    while ((chunk = gm_plan_next_chunk(p, &walk)) != GM_NONE && chunk != p->cut &&
           walk.first == first)
        needs[p->table->chunks[chunk].class]++;
}

/* Frames. */

void gm_plan_open_pool(struct gm_planning *p, uint32_t pool)
{
    p->pool = pool;
    count_needs(p, pool, p->need);
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        p->free_at[c] = p->table->pools[pool].head[c];
        p->leaving_at[c] = gm_layout_leaving_frame(p->table, p->table->pools[pool].leaving[c]);
    }
}

uint32_t gm_plan_take_frame(struct gm_planning *p, unsigned class)
{
    uint32_t frame = p->free_at[class];
    if (frame != GM_NONE) {
        p->free_at[class] = p->table->frames[frame].next;
        return frame;
    }
    frame = p->leaving_at[class];
    if (frame != GM_NONE)
        p->leaving_at[class] = gm_layout_leaving_frame(p->table, p->table->frames[frame].next);
    return frame;
}

/* Go to the surplus of the current list: past the frames that the targets take. */
static void open_surplus(struct gm_planning *p)
{
    const struct gm_table *table = p->table;
    const struct gm_pool *pool = &table->pools[p->surplus_pool];
    bool is_leaving = p->surplus_list >= GM_CHUNK_CLASSES;
    unsigned class = p->surplus_list % GM_CHUNK_CLASSES;
    uint32_t *need = &p->surplus_need[class];

    if (p->surplus_list == 0)
        count_needs(p, p->surplus_pool, p->surplus_need);
    p->surplus_is_open = true;
    if (!is_leaving && *need >= pool->count[class]) {
        *need -= pool->count[class];
        p->surplus_at = GM_NONE;
        return;
    }
    p->surplus_at =
        is_leaving ? gm_layout_leaving_frame(table, pool->leaving[class]) : pool->head[class];
    for (; *need > 0 && p->surplus_at != GM_NONE; --*need) {
        p->surplus_at = table->frames[p->surplus_at].next;
        if (is_leaving)
            p->surplus_at = gm_layout_leaving_frame(table, p->surplus_at);
    }
}

uint32_t gm_plan_next_surplus(struct gm_planning *p)
{
    for (; p->surplus_pool < p->table->max_apps; p->surplus_pool++, p->surplus_list = 0) {
        if (p->table->pools[p->surplus_pool].frames == 0)
            continue;
        for (; p->surplus_list < 2 * GM_CHUNK_CLASSES; p->surplus_list++) {
            if (!p->surplus_is_open)
                open_surplus(p);
            uint32_t frame = p->surplus_at;
            if (frame != GM_NONE) {
                p->surplus_at = p->table->frames[frame].next;
                if (p->surplus_list >= GM_CHUNK_CLASSES)
                    p->surplus_at = gm_layout_leaving_frame(p->table, p->surplus_at);
                return frame;
            }
            p->surplus_is_open = false;
        }
    }
    return GM_NONE;
}

/* Victims. */

/*
 * Choose chunks that make `sum`: first the sizes that are wanted, whose frames can be used as they
 * are; for the rest the largest, as each move costs. Every size divides the next, so smaller chunks
 * can make up what is left after a choice between `least` and `most`.
 */
static void compose(struct gm_planning *p, const uint32_t have[GM_CHUNK_CLASSES],
                    const uint32_t want[GM_CHUNK_CLASSES], uint64_t sum)
{
    uint64_t below = 0, wanted_below = 0;
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        below += have[c] * gm_class_bytes(c);
        wanted_below += (want[c] < have[c] ? want[c] : have[c]) * gm_class_bytes(c);
    }
    for (unsigned c = GM_CHUNK_CLASSES; c-- > 0;) {
        uint64_t size = gm_class_bytes(c);
        below -= have[c] * size;
        wanted_below -= (want[c] < have[c] ? want[c] : have[c]) * size;
        uint64_t most = sum / size < have[c] ? sum / size : have[c];
        uint64_t least = sum > below ? (sum - below + size - 1) / size : 0;
        uint64_t n = sum > wanted_below ? (sum - wanted_below) / size : 0;
        if (n < want[c])
            n = want[c];
        if (n > most)
            n = most;
        if (n < least)
            n = least;
        p->quota[c] = (uint32_t)n;
        sum -= n * size;
    }
    assert(sum == 0);
}

void gm_plan_open_victim(struct gm_planning *p, uint32_t victim)
{
    static const uint32_t nothing[GM_CHUNK_CLASSES];
    uint32_t have[GM_CHUNK_CLASSES];

    p->victim = victim;
    if (victim >= p->input->layout->n_victims)
        return;
    const struct gm_table_app *app = gm_plan_victim(p, victim);
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        p->victim_at[c] = app->by_class[c].head;
        have[c] = app->by_class[c].count;
    }
    compose(p, have, app->pool == p->pool ? p->need : nothing,
            p->input->layout->victims[victim].loses);
}

uint32_t gm_plan_take_victim(struct gm_planning *p, unsigned class)
{
    if (p->quota[class] == 0)
        return GM_NONE;
    uint32_t chunk = p->victim_at[class];
    p->quota[class]--;
    p->victim_at[class] = gm_plan_follow(p, chunk);
    return chunk;
}

uint32_t gm_plan_take_any_victim(struct gm_planning *p, unsigned class)
{
    for (unsigned c = class; c < GM_CHUNK_CLASSES; c++)
        if (p->quota[c] > 0)
            return gm_plan_take_victim(p, c);
    for (unsigned c = class; c-- > 0;)
        if (p->quota[c] > 0)
            return gm_plan_take_victim(p, c);
    return GM_NONE;
}
