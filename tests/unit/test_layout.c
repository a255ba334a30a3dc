/*
 * core/layout beside the whole. The layout counts: chunks by app and size, over lists that are in
 * order. The whole knows no counts. It looks at every chunk and frame of the table, sorts, tries
 * all sets of chunks that a victim can lose, and says of each chunk where it is to lie. Both must
 * say the same, in random worlds at rest and halfway; and a plan brings that about.
 */
#include "daemon/core/layout.h"

#include "common/clock.h"
#include "tests/unit/plan_world.h"

#define UNITS 512u /* of GM_CHUNK_MIN: no GPU here is larger */

static struct world world;
static struct gm_layout_app apps[MAX_APPS];
static uint32_t n_apps;

/* ---- the whole ---- */

static struct whole {
    uint32_t chunks[MAX_CHUNKS], n;      /* all that live */
    uint32_t at[MAX_CHUNKS];             /* by chunk: where it stands in its list */
    uint8_t end[MAX_CHUNKS];             /* ... and its tier at the end, before any goes down */
    uint32_t comes[MAX_CHUNKS], n_comes; /* in the order of filling */
    uint32_t targets[MAX_APPS], n_targets, victims[MAX_APPS], n_victims;
    uint64_t may_lose[MAX_APPS], loses[MAX_APPS];
    uint64_t missing, room; /* of the targets; and for them, without victims */
} whole;

static const struct gm_chunk *at(uint32_t chunk)
{
    return &world.table->chunks[chunk];
}

static uint64_t size_of(uint32_t chunk)
{
    return gm_class_bytes(at(chunk)->class);
}

/* Where it is once what is under way has ended. */
static uint8_t tier_to_be(const struct gm_chunk *chunk)
{
    const enum gm_tier away = gm_chunk_away_tier(chunk);
    if (away != GM_TIERS)
        return (uint8_t)away;
    return chunk->state == GM_CHUNK_ON_HOST ? GM_TIER_PINNED : GM_TIER_GPU;
}

static void number(struct gm_list list)
{
    for (uint32_t n = 0, c = list.head; c != GM_NONE; c = at(c)->next)
        whole.at[c] = n++;
}

static void look_at_all(void)
{
    whole = (struct whole){.n = 0};
    for (uint32_t i = 0; i < MAX_APPS; i++) {
        const struct gm_table_app *app = &world.table->apps[i];
        for (uint32_t a = app->allocations.head; a != GM_NONE; a = world.table->allocations[a].next)
            for (uint32_t c = world.table->allocations[a].first; c != GM_NONE; c = at(c)->sibling) {
                whole.chunks[whole.n++] = c;
                whole.end[c] = tier_to_be(at(c));
            }
        for (unsigned k = 0; k < GM_CHUNK_CLASSES; k++)
            number(app->by_class[k]);
        for (unsigned tier = 0; tier < GM_TIERS; tier++)
            number(app->away[tier]);
    }
}

static bool can_wait(const struct gm_layout_app *app)
{
    return app->stand == GM_STAND_WAITS || app->stand == GM_STAND_IDLE;
}

static uint64_t resident(uint32_t app)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < whole.n; i++)
        if (at(whole.chunks[i])->app == app && gm_chunk_can_leave(at(whole.chunks[i])))
            bytes += size_of(whole.chunks[i]);
    return bytes;
}

static void add_victim(uint32_t app, uint64_t may_lose)
{
    whole.may_lose[whole.n_victims] = may_lose;
    whole.victims[whole.n_victims++] = app;
}

/* For whom, and from whom, in the words of layout.h. False: there is no such step. */
static bool say_for_whom(uint32_t step)
{
    uint32_t first = 0, ahead = step, above = 0;
    for (uint32_t stand = GM_STAND_GROWS; step == GM_LAYOUT_NOW && stand <= GM_STAND_COMES; stand++)
        for (uint32_t i = 0; i < n_apps; i++)
            if (apps[i].stand == stand)
                whole.targets[whole.n_targets++] = apps[i].app;
    while (step > GM_LAYOUT_NOW && first < n_apps && !(apps[first].comes_ahead && --ahead == 0))
        first++;
    if (first == n_apps)
        return false;
    if (step > GM_LAYOUT_NOW)
        whole.targets[whole.n_targets++] = apps[first].app;
    for (uint32_t i = n_apps; i-- > 0;) {
        const uint64_t all = resident(apps[i].app);
        const uint64_t over = all > apps[i].may_have ? all - apps[i].may_have : 0;
        const bool both_wait =
            apps[i].stand == GM_STAND_WAITS && apps[first].stand == GM_STAND_WAITS;
        if (!can_wait(&apps[i]) || (step > GM_LAYOUT_NOW && apps[i].turn <= apps[first].turn))
            continue;
        above += over > 0;
        if (step > GM_LAYOUT_NOW)
            add_victim(apps[i].app, both_wait ? all : 0);
        else
            add_victim(apps[i].app, whole.n_targets > 0 ? all : over);
    }
    if (step == GM_LAYOUT_NOW && whole.n_targets == 0 && above == 0)
        whole.n_victims = 0;
    return true;
}

static uint32_t index_of(uint32_t app, const uint32_t *list, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && list[i] != app)
        i++;
    return i;
}

static bool is_lacking(uint32_t chunk)
{
    return gm_chunk_list_of(at(chunk)) == GM_LIST_AWAY;
}

/* A frame is free, or will be as soon as its chunk has left. */
static bool is_to_be_free(const struct gm_frame *frame)
{
    return frame->state == GM_FRAME_FREE || (frame->state == GM_FRAME_LEAVING &&
                                             !world.table->apps[at(frame->chunk)->app].is_silent);
}

/* What targets need, and what nobody has who keeps it. */
static void sum_up(void)
{
    whole.room = world.table->budget;
    for (uint32_t i = 0; i < MAX_FRAMES; i++) {
        const struct gm_frame *frame = &world.table->frames[i];
        if (frame->state != GM_FRAME_UNUSED && !frame->is_host && !is_to_be_free(frame) &&
            gm_frame_ending(frame) == 0)
            whole.room -= gm_class_bytes(frame->class);
    }
    for (uint32_t i = 0; i < whole.n; i++) {
        const uint32_t c = whole.chunks[i];
        if (index_of(at(c)->app, whole.targets, whole.n_targets) == whole.n_targets)
            continue;
        whole.missing += is_lacking(c) ? size_of(c) : 0;
        if (gm_chunk_can_leave(at(c)) && at(c)->is_on_host) {
            whole.room += size_of(c);
            whole.end[c] = GM_TIER_PINNED;
        }
    }
}

/* best[n]: how good is the best of all sets of the app's chunks that make n units; 0: none does.
 * First, as many bytes as can be lie in frames that are wanted; then, the chunks are few. */
static void try_all_sets(uint32_t app, const uint32_t *wanted, uint32_t *best)
{
    uint32_t seen[GM_CHUNK_CLASSES] = {0};
    memset(best, 0, UNITS * sizeof *best);
    best[0] = MAX_CHUNKS + 1;
    for (uint32_t i = 0; i < whole.n; i++) {
        const struct gm_chunk *chunk = at(whole.chunks[i]);
        if (chunk->app != app || !gm_chunk_can_leave(chunk))
            continue;
        const uint32_t units = 1u << chunk->class;
        const uint32_t good = seen[chunk->class]++ < wanted[chunk->class] ? units << 16 : 0;
        for (uint32_t n = UNITS; n-- > units;)
            if (best[n - units] > 0 && best[n - units] + good - 1 > best[n])
                best[n] = best[n - units] + good - 1;
    }
}

/* The nearest victim loses as little as can be, whatever the farther ones lose; then the next. */
static void say_how_much(uint64_t most)
{
    static const uint32_t none[GM_CHUNK_CLASSES];
    static uint32_t best[UNITS];
    const uint64_t wanted = whole.missing < most ? whole.missing : most;
    uint64_t lack = wanted > whole.room ? wanted - whole.room : 0;
    for (uint32_t i = whole.n_victims; i-- > 0;) {
        uint64_t farther = 0;
        for (uint32_t k = 0; k < i; k++)
            farther += whole.may_lose[k];
        uint64_t need = lack > farther ? lack - farther : 0;
        if (need > whole.may_lose[i] || whole.n_targets == 0)
            need = whole.may_lose[i];
        whole.loses[i] = need;
        if (need > 0 && need < resident(whole.victims[i])) {
            try_all_sets(whole.victims[i], none, best);
            while (best[whole.loses[i] / GM_CHUNK_MIN] == 0)
                whole.loses[i] += GM_CHUNK_MIN;
        }
        lack -= whole.loses[i] < lack ? whole.loses[i] : lack;
        whole.room += whole.loses[i];
    }
}

/* Where a chunk comes in the order of filling: user by user, target by target, by tier, in order.*/
static uint64_t filled_at(uint32_t chunk)
{
    static const uint8_t stage[GM_TIERS] = {
        [GM_TIER_PINNED] = 0, [GM_TIER_PAGED] = 1, [GM_TIER_DISK] = 2, [GM_TIER_NONE] = 3};
    const uint32_t target = index_of(at(chunk)->app, whole.targets, whole.n_targets);
    uint32_t user = 0;
    while (world.table->apps[whole.targets[user]].pool != world.table->apps[at(chunk)->app].pool)
        user++;
    return ((user * MAX_APPS + target) * (uint64_t)GM_TIERS + stage[whole.end[chunk]]) *
               MAX_CHUNKS +
           whole.at[chunk];
}

static int compare_filled(const void *a, const void *b)
{
    const uint64_t first = filled_at(*(const uint32_t *)a),
                   second = filled_at(*(const uint32_t *)b);
    return first < second ? -1 : first > second;
}

/* Fill the room in the order of the targets; of one that does not come whole, what comes first. */
static void say_what_comes(uint64_t most)
{
    uint64_t left[MAX_APPS] = {0}, room = whole.room;
    uint32_t n = 0, list[MAX_CHUNKS];
    for (uint32_t i = 0; i < whole.n; i++) {
        const uint32_t target = index_of(at(whole.chunks[i])->app, whole.targets, whole.n_targets);
        if (target == whole.n_targets || !is_lacking(whole.chunks[i]))
            continue;
        left[target] += size_of(whole.chunks[i]);
        list[n++] = whole.chunks[i];
    }
    for (uint32_t i = 0; i < whole.n_targets; i++) {
        left[i] = left[i] < room ? left[i] : room;
        room -= left[i];
        left[i] = left[i] < most ? left[i] : most;
        assert_int_equal(world.layout.targets[i].comes, left[i]);
    }
    qsort(list, n, sizeof *list, compare_filled);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *room_left = &left[index_of(at(list[i])->app, whole.targets, whole.n_targets)];
        if (size_of(list[i]) > *room_left) {
            *room_left = 0; /* behind it nothing comes */
            continue;
        }
        *room_left -= size_of(list[i]);
        whole.comes[whole.n_comes++] = list[i];
    }
}

/* ---- both say the same ---- */

static void check_what_comes(void)
{
    struct gm_layout_walk walk;
    uint64_t comes[GM_TIERS] = {0};
    uint32_t promotions = 0;
    gm_layout_open_walk(world.table, &world.layout, 0, GM_STAGE_LAST, &walk);
    for (uint32_t i = 0; i < whole.n_comes; i++) {
        const uint32_t c = whole.comes[i];
        assert_int_equal(gm_layout_next(world.table, &world.layout, &walk), c);
        assert_int_equal(whole.targets[walk.target], at(c)->app);
        comes[whole.end[c]] += size_of(c);
        promotions += whole.end[c] > GM_TIER_PINNED;
        whole.end[c] = GM_TIER_GPU;
    }
    assert_int_equal(gm_layout_next(world.table, &world.layout, &walk), GM_NONE);
    assert_memory_equal(world.layout.comes, comes, sizeof comes);
    assert_int_equal(world.layout.promotions, promotions);
}

/* Frames that what comes of that user lacks, by size, beside its own and those that the first
 * `n_before` victims give up. */
static void count_wanted(uint32_t pool, uint32_t n_before, uint32_t *wanted)
{
    int32_t lack[GM_CHUNK_CLASSES] = {0};
    for (uint32_t i = 0; i < whole.n_comes; i++)
        lack[at(whole.comes[i])->class] += world.table->apps[at(whole.comes[i])->app].pool == pool;
    for (uint32_t i = 0; i < MAX_FRAMES; i++) {
        const struct gm_frame *frame = &world.table->frames[i];
        lack[frame->class] -= is_to_be_free(frame) && frame->pool == pool;
    }
    for (unsigned k = 0; k < GM_CHUNK_CLASSES; k++) {
        for (uint32_t i = 0; i < n_before; i++)
            if (world.table->apps[whole.victims[i]].pool == pool)
                lack[k] -= (int32_t)world.layout.victims[i].leave[k];
        wanted[k] = lack[k] > 0 ? (uint32_t)lack[k] : 0;
    }
}

/* The first of each size in their lists; and no other set that makes the sum is better. */
static void check_what_leaves(void)
{
    static uint32_t best[UNITS];
    for (uint32_t i = 0; i < whole.n_victims; i++) {
        const struct gm_layout_victim *victim = &world.layout.victims[i];
        uint32_t wanted[GM_CHUNK_CLASSES], good = MAX_CHUNKS + 1;
        assert_int_equal(victim->app, whole.victims[i]);
        assert_int_equal(victim->may_lose, whole.may_lose[i]);
        assert_int_equal(victim->loses, whole.loses[i]);
        count_wanted(world.table->apps[victim->app].pool, i, wanted);
        for (unsigned k = 0; k < GM_CHUNK_CLASSES; k++) {
            const uint32_t fit = victim->leave[k] < wanted[k] ? victim->leave[k] : wanted[k];
            good += ((fit << k) << 16) - victim->leave[k];
        }
        uint64_t left = victim->loses;
        for (uint32_t j = 0; j < whole.n; j++) {
            const uint32_t c = whole.chunks[j];
            if (at(c)->app != victim->app || !gm_chunk_can_leave(at(c)) ||
                whole.at[c] >= victim->leave[at(c)->class])
                continue;
            whole.end[c] = GM_TIER_PINNED;
            left -= size_of(c);
        }
        assert_int_equal(left, 0);
        if (victim->loses == 0)
            continue;
        try_all_sets(victim->app, wanted, best);
        const bool is_any = !wanted[0] && !wanted[1] && !wanted[2] && !wanted[3] && !wanted[4];
        const unsigned exact = is_any ? 0 : 16; /* the fewest chunks, if nobody wants a size */
        assert_int_equal(good >> exact, best[victim->loses / GM_CHUNK_MIN] >> exact);
    }
}

/* What pinned memory has too little room for goes down, and what paged memory has not, to disk. */
static void check_what_goes_down(void)
{
    uint64_t end[GM_TIERS] = {0}, leaves = 0;
    for (uint32_t i = 0; i < whole.n; i++) {
        const uint32_t c = whole.chunks[i];
        const bool is_target =
            index_of(at(c)->app, whole.targets, whole.n_targets) < whole.n_targets;
        const bool is_mapped = is_target && gm_chunk_list_of(at(c)) == GM_LIST_TO_MAP &&
                               at(c)->tier != GM_TIER_PINNED && at(c)->state != GM_CHUNK_LEAVING;
        end[whole.end[c]] += size_of(c);
        end[GM_TIER_PINNED] += is_mapped ? size_of(c) : 0; /* it takes pages there before */
        leaves += gm_chunk_can_leave(at(c)) && whole.end[c] == GM_TIER_PINNED ? size_of(c) : 0;
    }
    assert_int_equal(world.layout.leaves, leaves);
    int64_t down =
        (int64_t)(end[GM_TIER_PINNED] + world.window) - (int64_t)world.cap[GM_TIER_PINNED];
    int64_t paged = (int64_t)world.cap[GM_TIER_PAGED] - (int64_t)end[GM_TIER_PAGED];
    if (world.is_closed[GM_TIER_PAGED] || paged < 0)
        paged = 0;
    int64_t disk = world.is_closed[GM_TIER_DISK] ? 0 : down - paged;
    if (!has_tiers(&world))
        down = disk = 0;
    assert_int_equal(world.layout.goes_down, down);
    assert_int_equal(world.layout.goes_disk, disk);
}

/* False: both say that there is no such step. */
static bool check(uint32_t step, uint64_t most)
{
    look_at_all();
    const bool is_there = say_for_whom(step);
    world.layout = (struct gm_layout){.targets = world.targets, .victims = world.victims};
    world_input(&world, &world.layout);
    assert_int_equal(gm_layout_make(world.table, apps, n_apps, step, most, &world.layout),
                     is_there);
    if (!is_there)
        return false;
    assert_int_equal(world.layout.n_targets, whole.n_targets);
    assert_int_equal(world.layout.n_victims, whole.n_victims);
    for (uint32_t i = 0; i < whole.n_targets; i++)
        assert_int_equal(world.layout.targets[i].app, whole.targets[i]);
    assert_int_equal(world.layout.is_ahead, step > GM_LAYOUT_NOW || whole.n_targets == 0);
    sum_up();
    say_how_much(step > GM_LAYOUT_NOW ? most : UINT64_MAX);
    say_what_comes(step > GM_LAYOUT_NOW ? most : UINT64_MAX);
    check_what_comes();
    check_what_leaves();
    check_what_goes_down();
    uint64_t comes = 0;
    for (uint32_t i = 0; i < whole.n_targets; i++)
        comes += world.layout.targets[i].comes;
    assert_int_equal(world.layout.is_whole, comes == whole.missing);
    return true;
}

/* ---- worlds ---- */

static void draw_stands(void)
{
    const uint32_t first = (uint32_t)draw(&world, MAX_APPS);
    const uint64_t group = 1 + draw(&world, 3);
    n_apps = MAX_APPS - (uint32_t)draw(&world, 3);
    for (uint32_t i = 0; i < n_apps; i++)
        apps[i] = (struct gm_layout_app){
            .app = (first + i * 3) % MAX_APPS,
            .stand = (uint8_t)(GM_STAND_WAITS + draw(&world, 3)),
            .comes_ahead = draw(&world, 2),
            .turn = i / (uint32_t)group,
            .may_have = draw(&world, 2) ? UINT64_MAX : draw(&world, 64) * GM_CHUNK_MIN};
    for (uint64_t n = draw(&world, 4); n > 0; n--)
        apps[draw(&world, n_apps)].stand = (uint8_t)draw(&world, 2);
}

static uint32_t made, brought, lowered;

/* Where it goes further down: the farthest victim's first; of one, what was in pinned memory before
 * first; of that, what comes back last. */
static uint64_t lowered_at(uint32_t chunk)
{
    const uint32_t victim = index_of(at(chunk)->app, whole.victims, whole.n_victims);
    const bool is_evicted = gm_chunk_can_leave(at(chunk));
    return (victim * 2 + is_evicted) * (uint64_t)MAX_CHUNKS + MAX_CHUNKS - 1 - whole.at[chunk];
}

static int compare_lowered(const void *a, const void *b)
{
    const uint64_t first = lowered_at(*(const uint32_t *)a);
    const uint64_t second = lowered_at(*(const uint32_t *)b);
    return first < second ? -1 : first > second;
}

/* Chunks of one size: in which tier each is at the end. As many as have to go down, the farthest
 * ones, of those the first to disk. False: there is no room for that, so they lie otherwise. */
static bool say_what_goes_down(void)
{
    uint32_t list[MAX_CHUNKS], n = 0;
    int64_t down = world.layout.goes_down, disk = world.layout.goes_disk;
    uint64_t end[GM_TIERS] = {0};
    for (uint32_t i = 0; i < whole.n; i++) {
        const uint32_t c = whole.chunks[i];
        const bool is_victim =
            index_of(at(c)->app, whole.victims, whole.n_victims) < whole.n_victims;
        end[whole.end[c]] += size_of(c);
        if (whole.end[c] == GM_TIER_PINNED && is_victim && !at(c)->is_on_host)
            list[n++] = c;
    }
    qsort(list, n, sizeof *list, compare_lowered);
    for (uint32_t i = 0; i < n && down > 0; i++) {
        const enum gm_tier to = disk > 0 ? GM_TIER_DISK : GM_TIER_PAGED;
        end[to] += GM_CHUNK_MAX;
        whole.end[list[i]] = (uint8_t)to;
        down -= (int64_t)GM_CHUNK_MAX;
        disk -= (int64_t)GM_CHUNK_MAX;
    }
    return down <= 0 && end[GM_TIER_PAGED] <= world.cap[GM_TIER_PAGED] &&
           end[GM_TIER_DISK] <= world.cap[GM_TIER_DISK] && !world.is_closed[GM_TIER_PAGED] &&
           !world.is_closed[GM_TIER_DISK];
}

/* The layout of now is brought about: each chunk is on the GPU, or is not, as the whole says; and
 * of each app so much is in each tier below. */
static void bring_about(bool is_equal)
{
    struct gm_plan plan = {.moves = world.moves, .capacity = MAX_MOVES};
    if (!check(GM_LAYOUT_NOW, UINT64_MAX))
        return;
    is_equal = is_equal && has_tiers(&world) && say_what_goes_down();
    gm_plan_make(world.table, &world.layout, &plan);
    check_closed(&world, &plan);
    carry_out(&world, &plan);
    int32_t tiers[MAX_APPS][GM_TIERS] = {{0}}; /* what is there beyond what is to be */
    for (uint32_t i = 0; i < whole.n; i++) {
        tiers[at(whole.chunks[i])->app][at(whole.chunks[i])->tier]++;
        tiers[at(whole.chunks[i])->app][whole.end[whole.chunks[i]]]--;
    }
    /* With several targets a chunk that comes late can send another one down. */
    is_equal = is_equal && plan.is_complete && whole.n_targets == 1;
    for (uint32_t i = 0; i < MAX_APPS * GM_TIERS && is_equal; i++)
        assert_int_equal(tiers[i / GM_TIERS][i % GM_TIERS], 0);
    lowered += is_equal && gm_plan_count(&plan, GM_MOVE_DEMOTE) > 0;
    for (uint32_t i = 0; i < whole.n && plan.is_complete; i++)
        assert_int_equal(at(whole.chunks[i])->tier == GM_TIER_GPU,
                         whole.end[whole.chunks[i]] == GM_TIER_GPU);
}

static void one_world(uint64_t seed)
{
    const enum sizes sizes = make_full_world(&world, seed);
    world.tells_ending = true;
    for (int step = 0; step < 12; step++) {
        const uint32_t silent = (uint32_t)draw(&world, 2 * MAX_APPS);
        struct turn turn;
        if (draw(&world, 4) == 0)
            change_world(&world, sizes);
        draw_turn(&world, &turn);
        struct gm_plan plan = plan_turn(&world, &turn);
        if (draw(&world, 2))
            carry_out(&world, &plan);
        else
            begin_some(&world, &plan, 2);
        const uint32_t app = (uint32_t)draw(&world, MAX_APPS);
        change_places(&world, app, draw(&world, 2));
        world.is_closed[GM_TIER_PAGED] = draw(&world, 8) == 0;
        world.is_closed[GM_TIER_DISK] = draw(&world, 4) == 0;
        draw_stands();
        if (silent < MAX_APPS)
            gm_table_set_silent(world.table, silent, true);
        for (uint32_t at_step = 0;
             check(at_step, draw(&world, 2) ? UINT64_MAX : draw(&world, 99) * GM_CHUNK_MIN);)
            at_step++, made++;
        if (silent < MAX_APPS)
            gm_table_set_silent(world.table, silent, false);
        end_all(&world);
        if (draw(&world, 2))
            bring_about(sizes == SIZES_EQUAL), brought++;
        change_places(&world, app, false);
    }
    end_world(&world);
}

static uint64_t seeds = 400;

static void test_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds / GM_SLOW; seed++)
        one_world(seed);
    assert_true(made > 10 * seeds / GM_SLOW && brought > 3 * seeds / GM_SLOW &&
                lowered > seeds / GM_SLOW / 50);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole)};
    if (argc > 1) /* more of them */
        seeds = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
