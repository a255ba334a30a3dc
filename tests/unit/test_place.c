/*
 * core/layout: places on the host, and the heat that they follow (core/working), beside the whole.
 * The whole looks at each smallest part of an allocation for heat, and sorts all chunks by it for
 * places. What must hold of any choice: what is resident fits, no more comes than is allowed, heat
 * on the GPU never shrinks by an exchange, and it ends. Programs then show what it is good for.
 */
#include "daemon/core/layout.h"
#include "daemon/core/room.h"
#include "daemon/core/working.h"

#include "common/clock.h"
#include "tests/unit/plan_world.h"

#define BASE (1ull << 40)

static struct world world;
static uint64_t seeds = 3000;

static const struct gm_chunk *at(uint32_t chunk)
{
    return &world.table->chunks[chunk];
}

static uint64_t size_of(uint32_t chunk)
{
    return gm_class_bytes(at(chunk)->class);
}

static void open_world(uint64_t budget, uint64_t seed)
{
    make_world(&world, budget, seed);
    assert_true(gm_table_add_app(world.table, 0, 1000));
    assert_true(gm_table_add_app(world.table, 1, 1000));
}

/* All chunks of app 0, newest allocation first. */
static uint32_t list_chunks(uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t a = world.table->apps[0].allocations.head; a != GM_NONE;
         a = world.table->allocations[a].next)
        for (uint32_t c = world.table->allocations[a].first; c != GM_NONE; c = at(c)->sibling)
            list[n++] = c;
    return n;
}

/* Bring a chunk to its place, all at once. */
static void settle(uint32_t c)
{
    struct gm_table *table = world.table;
    const uint32_t old = at(c)->frame, pages = at(c)->host_frame;
    if (old != GM_NONE && table->frames[old].is_host == at(c)->is_on_host)
        return;
    if (old != GM_NONE && at(c)->is_on_host) { /* it leaves its old place */
        assert_true(gm_table_evict(table, c, c * 16));
        let_go(&world, old);
        settle_chunk(table, c);
    } else if (old != GM_NONE) {
        assert_true(gm_table_unmap(table, c));
        settle_chunk(table, c);
    }
    if (at(c)->is_on_host) {
        if (at(c)->tier == GM_TIER_NONE)
            to_tier(table, c, GM_TIER_PINNED, c * 16);
        assert_true(gm_table_map(table, c, gm_table_add_host_frame(table, c)));
        settle_chunk(table, c);
        return;
    }
    to_new_frame(table, c);
    if (pages != GM_NONE) /* and its pages with it */
        let_go(&world, pages);
}

static void settle_all(void)
{
    uint32_t list[MAX_CHUNKS];
    const uint32_t n = list_chunks(list);
    for (int is_host = 1; is_host >= 0; is_host--) /* who leaves makes room first */
        for (uint32_t i = 0; i < n; i++)
            if (at(list[i])->is_on_host == is_host)
                settle(list[i]);
    assert_null(gm_table_check(world.table));
}

static uint64_t resident(void)
{
    return world.table->apps[0].committed - world.table->apps[0].on_host;
}

/* ---- heat ---- */

/* How often the smallest part at `va` of a chunk was used: by all that is exact there, and by the
 * last place before it that reaches there. That ends where another place began before, though not
 * this time. */
static uint64_t uses_of_part(const struct gm_use *uses, uint32_t n, uint32_t chunk, uint64_t va)
{
    const struct gm_allocation *allocation = &world.table->allocations[at(chunk)->allocation];
    const struct gm_use *last = NULL;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n && uses[i].va < va + GM_CHUNK_MIN; i++) {
        if (uses[i].va >= allocation->va)
            last = &uses[i];
        sum += uses[i].is_exact && uses[i].va >= va ? uses[i].count : 0;
    }
    for (uint32_t c = allocation->first; last && c != GM_NONE && at(c)->va <= va;
         c = at(c)->sibling) {
        bool is_place = false;
        for (uint32_t i = 0; i < n; i++)
            is_place = is_place || (uses[i].va >= at(c)->va && uses[i].va < at(c)->va + size_of(c));
        if (at(c)->va > last->va && at(c)->has_place && !is_place)
            return sum;
    }
    return sum + (last && !last->is_exact ? last->count : 0);
}

static uint32_t draw_uses(struct gm_use *uses, uint32_t most)
{
    const uint64_t large = draw(&world, 8) == 0 ? UINT32_MAX : 64;
    uint32_t n = 0;
    uint64_t va = BASE - 32 * MIB;
    for (uint64_t left = draw(&world, most); left > 0; left--) {
        va += (1 + draw(&world, draw(&world, 2) ? 8 : 1)) * draw(&world, 8) * MIB;
        uses[n++] = (struct gm_use){
            .va = va, .count = (uint32_t)draw(&world, large), .is_exact = draw(&world, 4) == 0};
    }
    return n;
}

/* Heat is uses of each part, and is halved when what is used was used often. */
static void test_heat(void **state)
{
    uint32_t halvings = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 400 / GM_SLOW; seed++) {
        open_world(1ull << 40, seed);
        for (uint64_t n = 1 + draw(&world, 12); n > 0; n--)
            allocate(&world, draw(&world, 8) == 0, (1 + draw(&world, 60)) * GM_CHUNK_MIN);
        for (int report = 0; report < 12; report++) {
            struct gm_use uses[24];
            uint32_t list[MAX_CHUNKS], heat[MAX_CHUNKS];
            const uint32_t n = list_chunks(list), n_uses = draw_uses(uses, 24);
            uint64_t known = 0, size = 0;
            for (uint32_t i = 0; i < n; i++) {
                uint64_t sum = 0;
                for (uint64_t va = at(list[i])->va; va < at(list[i])->va + size_of(list[i]);
                     va += GM_CHUNK_MIN)
                    sum += uses_of_part(uses, n_uses, list[i], va);
                sum = at(list[i])->heat + (sum * GM_PLACE_USE >> at(list[i])->class);
                heat[i] = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
                size += heat[i] > 0 ? size_of(list[i]) : 0;
                sum = heat[i] < 2 * GM_PLACE_KNOWN ? heat[i] : 2 * GM_PLACE_KNOWN;
                known += sum * size_of(list[i]);
            }
            const bool is_halved = size > 0 && known >= GM_PLACE_KNOWN * size;
            gm_working_warm(world.table, 0, uses, n_uses);
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(at(list[i])->heat, is_halved ? heat[i] / 2 : heat[i]);
            halvings += is_halved;
        }
        end_world(&world);
    }
    assert_true(halvings > 100 / GM_SLOW);
}

/* ---- choices ---- */

enum where { ON_GPU, ON_HOST, ELSEWHERE };

static enum where where_is(uint32_t chunk)
{
    switch (at(chunk)->state) {
    case GM_CHUNK_RESIDENT:
    case GM_CHUNK_COMING:
    case GM_CHUNK_RETURNING:
        return ON_GPU;
    case GM_CHUNK_ON_HOST:
    case GM_CHUNK_MAPPING:
        return ON_HOST;
    default:
        return ELSEWHERE;
    }
}

/* How much it is worth to have it on the GPU. What differs by less than a sixteenth is equal. */
static uint64_t worth(uint32_t chunk, const struct gm_place_input *input)
{
    const bool is_small = at(chunk)->class < GM_CHUNK_CLASSES - 1;
    uint64_t heat = at(chunk)->heat, step = 1;
    if (at(chunk)->trust == GM_TRUST_TRIED && !at(chunk)->is_proved)
        return 0;
    if (at(chunk)->is_cold)
        return 1 + (where_is(chunk) == ON_GPU);
    if (at(chunk)->trust != GM_TRUST_WINDOWS && heat < GM_PLACE_KNOWN)
        heat = GM_PLACE_KNOWN;
    if (is_small && heat == 0)
        heat = 2 * GM_PLACE_FLOOR;
    if (at(chunk)->allocation == input->newest)
        heat += 2 * GM_PLACE_FLOOR;
    if (where_is(chunk) == ON_GPU) /* another must be worth an exchange */
        heat += heat / 4 + GM_PLACE_FLOOR;
    while (heat / step >= 32)
        step *= 2;
    return 3 + heat / step * step + (is_small ? 1ull << 40 : 0);
}

static struct whole {
    const struct gm_place_input *input;
    uint32_t chunks[MAX_CHUNKS], n;         /* that may have either place, newest first */
    uint32_t order[MAX_CHUNKS];             /* ... by their worth, the most first */
    uint64_t worth[MAX_CHUNKS], line, left; /* what is worth more than the line has room, and so
                                               much of what is worth as much */
    bool has_line, is_on_host[MAX_CHUNKS];  /* by chunk: its place */
    struct gm_placed placed;
    uint64_t taken;
} whole;

static void sort_all(const struct gm_place_input *input)
{
    uint32_t list[MAX_CHUNKS];
    const uint32_t n = list_chunks(list);
    whole = (struct whole){.input = input};
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t c = list[i];
        whole.is_on_host[c] = at(c)->is_on_host;
        if (at(c)->is_freed || at(c)->is_fixed)
            continue;
        whole.worth[c] = worth(c, input);
        whole.taken += where_is(c) == ON_GPU ? size_of(c) : 0;
        uint32_t k = whole.n;
        for (; k > 0 && whole.worth[whole.order[k - 1]] < whole.worth[c]; k--)
            whole.order[k] = whole.order[k - 1];
        whole.order[k] = c;
        whole.chunks[whole.n++] = c;
    }
}

/* Fill `room` with what is worth most, of what competes, until it does not fit. */
static void draw_line(uint64_t room)
{
    whole.left = room;
    for (uint32_t i = 0; i < whole.n && !whole.has_line;) {
        uint64_t equal = 0, there = 0;
        whole.line = whole.worth[whole.order[i]];
        for (; i < whole.n && whole.worth[whole.order[i]] == whole.line; i++) {
            const uint32_t c = whole.order[i];
            equal += where_is(c) == ELSEWHERE || whole.input->is_quiet ? size_of(c) : 0;
            there += at(c)->state == GM_CHUNK_RESIDENT && whole.input->is_quiet ? size_of(c) : 0;
        }
        whole.has_line = equal > whole.left;
        if (whole.has_line) /* those that are there keep their places */
            equal = there < whole.left ? there : whole.left;
        whole.left -= equal;
    }
}

static bool gets_room(uint32_t chunk)
{
    if (!whole.has_line || whole.worth[chunk] != whole.line)
        return !whole.has_line || whole.worth[chunk] > whole.line;
    if (size_of(chunk) > whole.left)
        return false;
    whole.left -= size_of(chunk);
    return true;
}

/* So many bytes are too many: those that are worth least leave, and of equals what came first. */
static void say_what_leaves(uint64_t bytes)
{
    uint64_t sum = 0, line = 0;
    for (uint32_t i = whole.n; i-- > 0 && (sum < bytes || whole.worth[whole.order[i]] == line);)
        if (at(whole.order[i])->state == GM_CHUNK_RESIDENT && bytes > 0) {
            sum += size_of(whole.order[i]);
            line = whole.worth[whole.order[i]];
        }
    uint64_t stays = sum > bytes ? sum - bytes : 0;
    for (uint32_t i = 0; i < whole.n; i++) {
        const uint32_t c = whole.chunks[i];
        if (at(c)->state != GM_CHUNK_RESIDENT)
            continue;
        const bool fits = whole.worth[c] == line && size_of(c) <= stays;
        whole.is_on_host[c] = bytes > 0 && whole.worth[c] <= line && !fits;
        stays -= bytes > 0 && fits ? size_of(c) : 0;
        whole.placed.leave += whole.is_on_host[c] ? size_of(c) : 0;
    }
}

/* A chunk gets its place on the GPU. */
static void come(uint32_t chunk)
{
    whole.taken += size_of(chunk);
    whole.is_on_host[chunk] = false;
}

static void place_all(const struct gm_place_input *input)
{
    const bool is_quiet = input->is_quiet;
    uint64_t aside = 0;
    sort_all(input);
    draw_line(is_quiet ? input->room : input->room > whole.taken ? input->room - whole.taken : 0);
    for (uint32_t i = 0; i < whole.n; i++) { /* what has no place yet */
        whole.is_on_host[whole.chunks[i]] |= where_is(whole.chunks[i]) == ELSEWHERE;
        if (where_is(whole.chunks[i]) == ELSEWHERE && gets_room(whole.chunks[i]))
            come(whole.chunks[i]);
    }
    for (uint32_t i = 0; i < whole.n && is_quiet; i++) { /* what is to be exchanged */
        const uint32_t c = whole.chunks[i];
        const bool is_aside = at(c)->is_cold && aside + size_of(c) <= input->keeps;
        if (at(c)->state != GM_CHUNK_ON_HOST)
            continue;
        aside += is_aside ? size_of(c) : 0;
        if (is_aside || whole.placed.come + size_of(c) > input->most || !gets_room(c))
            continue;
        whole.placed.come += size_of(c);
        come(c);
    }
    for (uint32_t i = 0; i < whole.n; i++) { /* what finds room after all */
        const uint32_t c = whole.chunks[i];
        if (where_is(c) == ELSEWHERE && whole.is_on_host[c] &&
            whole.taken + size_of(c) <= input->room)
            come(c);
    }
    if (is_quiet)
        say_what_leaves(whole.taken > input->room ? whole.taken - input->room : 0);
}

/* The layout's choice is that of the whole; what it says before it is made is what it does. */
static struct gm_placed choose(const struct gm_place_input *input)
{
    place_all(input);
    const struct gm_placed said = gm_layout_place(world.table, input, false);
    const struct gm_placed made = gm_layout_place(world.table, input, true);
    assert_memory_equal(&said, &made, sizeof said);
    assert_memory_equal(&made, &whole.placed, sizeof made);
    for (uint32_t i = 0; i < whole.n; i++)
        assert_int_equal(at(whole.chunks[i])->is_on_host, whole.is_on_host[whole.chunks[i]]);
    return made;
}

/* Chunks of all sizes and heats, settled or nowhere yet, some of which had a place; some are freed,
 * fixed, cold, needed, or on their way. */
static void draw_chunks(bool is_of_large)
{
    uint32_t list[MAX_CHUNKS];
    const bool is_settled = draw(&world, 2), is_hot = draw(&world, 2);
    for (uint64_t n = 1 + draw(&world, 24); n > 0; n--) {
        uint64_t bytes = (1 + draw(&world, draw(&world, 2) ? 4 : 60)) * GM_CHUNK_MIN;
        if (is_of_large)
            bytes = (1 + draw(&world, 4)) * GM_CHUNK_MAX;
        allocate(&world, draw(&world, 8) == 0, bytes);
    }
    const uint32_t n = list_chunks(list);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t c = list[i];
        const uint64_t heat = draw(&world, 1 + draw(&world, is_hot ? 5000 : 8 * GM_PLACE_FLOOR));
        gm_table_put(world.table, c, draw(&world, 2));
        gm_table_note_use(world.table, c, (uint32_t)(draw(&world, 99) ? heat : UINT32_MAX), 0);
        if (is_settled || draw(&world, 3))
            settle(c);
    }
    assert_null(gm_table_check(world.table));
}

static void draw_states(void)
{
    uint32_t list[MAX_CHUNKS];
    const uint32_t n = list_chunks(list), newest = world.table->apps[0].allocations.head;
    for (uint32_t i = 0; i < n; i++) {
        if (draw(&world, 4) == 0)
            gm_table_set_cold(world.table, list[i], true);
        if (draw(&world, 8) == 0)
            gm_table_trust(world.table, list[i], GM_TRUST_NEEDED);
        if (draw(&world, 16) == 0 && at(list[i])->state == GM_CHUNK_RESIDENT)
            gm_table_evict(world.table, list[i], list[i] * 16);
        else if (draw(&world, 16) == 0 && at(list[i])->state == GM_CHUNK_ON_HOST)
            gm_table_unmap(world.table, list[i]);
    }
    if (newest != GM_NONE && gm_table_can_fix(world.table, newest) && draw(&world, 4) == 0)
        gm_table_fix(world.table, newest, 1, (const uint64_t[2]){1, 2});
    if (newest != GM_NONE && draw(&world, 8) == 0)
        free_silently(world.table, newest);
}

static struct gm_place_input draw_input(void)
{
    const uint64_t all = world.table->apps[0].committed;
    struct gm_place_input input = {.room = gm_chunk_floor(draw(&world, 1 + all + all / 4)),
                                   .newest = GM_NONE,
                                   .is_quiet = draw(&world, 4)};
    const uint64_t free_room = input.room > resident() ? input.room - resident() : 0;
    input.most = draw(&world, 8) * GM_CHUNK_MAX;
    if (draw(&world, 2) && input.most < free_room)
        input.most = free_room;
    if (draw(&world, 2))
        input.newest = world.table->apps[0].allocations.head;
    if (draw(&world, 2))
        input.keeps = draw(&world, 16) * 8 * MIB;
    return input;
}

static void test_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < seeds / GM_SLOW; seed++) {
        open_world(1ull << 40, seed);
        draw_chunks(false);
        draw_states();
        const struct gm_place_input input = draw_input();
        choose(&input);
        assert_null(gm_table_check(world.table));
        free(world.memory);
    }
}

static uint64_t heat_on_gpu(void)
{
    uint32_t list[MAX_CHUNKS];
    uint64_t heat = 0;
    for (uint32_t i = list_chunks(list); i-- > 0;)
        if (!at(list[i])->is_on_host)
            heat += (uint64_t)at(list[i])->heat << at(list[i])->class;
    return heat;
}

static struct gm_placed exchange(uint64_t room, uint64_t most)
{
    const struct gm_place_input input = {
        .room = room, .most = most, .newest = GM_NONE, .is_quiet = true};
    return choose(&input);
}

/* One exchange after the other, as many as there are: the same heat never sends a chunk back. */
static void test_exchanges_end(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < seeds / 20 / GM_SLOW; seed++) {
        const bool is_of_large = seed % 2; /* all alike: then heat alone decides */
        open_world(1ull << 40, seed);
        draw_chunks(is_of_large);
        settle_all();
        const uint64_t other = world.table->apps[1].on_host;
        const uint64_t room = resident(), most = (1 + draw(&world, 16)) * GM_CHUNK_MAX;
        uint32_t rounds = 0;
        for (struct gm_placed placed = {.come = 1}; placed.come > 0; rounds++) {
            const uint64_t before = heat_on_gpu();
            placed = exchange(room, most);
            assert_true(placed.come <= most && resident() <= room);
            if (is_of_large && placed.come > 0)
                assert_true(heat_on_gpu() > before && placed.leave == placed.come);
            settle_all();
            assert_true(rounds < MAX_CHUNKS);
        }
        const uint64_t limit = draw(&world, 1024) * MIB; /* a new one is met at once */
        exchange(limit, 0);
        assert_true(resident() <= limit);
        assert_int_equal(world.table->apps[1].on_host, other);
        free(world.memory);
    }
}

/* What is on the host is less than a chunk more than must be there. A program that is not quiet may
 * have had more there before. */
static void test_rounding(void **state)
{
    uint64_t largest = 0;
    (void)state;
    for (uint64_t seed = 0; seed < seeds / GM_SLOW; seed++) {
        open_world(1ull << 40, seed);
        draw_chunks(false);
        const struct gm_table_app *app = &world.table->apps[0];
        const uint64_t all = app->committed, before = app->on_host;
        struct gm_place_input input = draw_input();
        const uint64_t free_room = input.room > resident() ? input.room - resident() : 0;
        input.keeps = 0;
        input.most = input.most > free_room ? input.most : free_room;
        gm_layout_place(world.table, &input, true);
        const uint64_t beyond = all > input.room ? all - input.room : 0;
        const uint64_t more = app->on_host > beyond ? app->on_host - beyond : 0;
        assert_true(app->on_host <= gm_room_rounded(beyond) ||
                    (!input.is_quiet && app->on_host <= before));
        assert_true(!input.is_quiet || resident() <= input.room);
        largest = more > largest && input.is_quiet ? more : largest;
        free(world.memory);
    }
    assert_int_equal(largest, GM_ROOM_ROUNDING); /* no less is enough */
}

/* ---- programs: uses as they are reported, once a second, while chunks change places ---- */

#define BLOCK (128 * MIB)
#define ROOM (12096 * MIB)

/* A step is a list of blocks. Reports come after so many uses, in the middle of a step. What is
 * exchanged in `reports` reports. */
static uint64_t run_steps(const uint32_t *step, uint32_t n, uint32_t *now, uint32_t uses_a_report,
                          uint32_t reports)
{
    uint64_t moved = 0;
    for (uint32_t i = 0; i < reports; i++) {
        uint32_t counts[128] = {0}, n_uses = 0;
        struct gm_use uses[128];
        for (uint32_t k = 0; k < uses_a_report; k++)
            counts[step[(*now)++ % n]]++;
        for (uint32_t b = 0; b < 128; b++)
            if (counts[b] > 0)
                uses[n_uses++] = (struct gm_use){.va = BASE + b * BLOCK, .count = counts[b]};
        gm_working_warm(world.table, 0, uses, n_uses);
        const struct gm_place_input input = {
            .room = ROOM, .most = GM_PLACE_AT_ONCE, .newest = GM_NONE, .is_quiet = true};
        const struct gm_placed placed = gm_layout_place(world.table, &input, true);
        moved += placed.come;
        if (placed.come + placed.leave > 0)
            settle_all();
    }
    return moved;
}

/* 128 of them are allocated one by one, and the last come in the place of the first. */
static void open_program(uint64_t seed)
{
    open_world(20480 * MIB, seed);
    for (uint32_t i = 0; i < 128; i++) {
        struct gm_place_input input = {.room = ROOM, .newest = allocate(&world, 0, BLOCK)};
        gm_layout_place(world.table, &input, true);
        input.is_quiet = true;
        gm_layout_place(world.table, &input, true);
        settle_all();
        const struct gm_use filled = {.va = BASE + i * BLOCK, .count = 1};
        gm_working_warm(world.table, 0, &filled, 1);
    }
    assert_true(at(0)->is_on_host && !at(MAX_CHUNKS - 1)->is_on_host);
}

/* Training of 16 GiB on 12: weights that are used three times a step, and gradients twice. The
 * weights on the host, as they came first, take the places of gradients, within 20 steps, and then
 * nothing moves. However many steps a second there are. */
static void test_training(void **state)
{
    enum { LAYERS = 64, USES = 5 * LAYERS };
    static const uint32_t uses_a_report[] = {USES / 20, USES, 3 * USES - 7, 40 * USES};
    uint32_t step[USES], n = 0;
    (void)state;
    for (uint32_t i = 0; i < LAYERS; i++)
        step[n++] = i;
    for (uint32_t i = 2 * LAYERS; i-- > 0;)
        step[n++] = i % 2 ? i / 2 : LAYERS + i / 2;
    for (uint32_t i = 0; i < 2 * LAYERS; i++)
        step[n++] = i % 2 ? i / 2 : LAYERS + i / 2;
    for (size_t i = 0; i < sizeof uses_a_report / sizeof *uses_a_report; i++) {
        const uint32_t each = uses_a_report[i];
        uint32_t now = 0;
        open_program(1);
        const uint64_t host = world.table->apps[0].on_host;
        assert_int_equal(run_steps(step, n, &now, each, 20 * USES / each + 3), host);
        for (uint32_t c = 0; c < MAX_CHUNKS / 2; c++) /* all of the weights, nothing twice */
            assert_false(at(c)->is_on_host);
        assert_int_equal(run_steps(step, n, &now, each, 300 * USES / each + 20), 0);
        free(world.memory);
    }
}

/* Experts, drawn at random: by chance some are used more often than others for a while. What is
 * exchanged for nothing stays below a twentieth of what is read over the link. */
static void test_experts(void **state)
{
    enum { DRAWN = 1u << 16, REPORTS = 400 };
    static uint32_t drawn[DRAWN];
    (void)state;
    for (uint32_t each = 16; each <= DRAWN / 16; each *= 4) {
        uint32_t now = 0;
        open_program(each);
        for (uint32_t i = 0; i < DRAWN; i++)
            drawn[i] = (uint32_t)draw(&world, 128);
        const uint64_t read =
            world.table->apps[0].on_host / 128 * each * REPORTS; /* its share of the uses */
        const uint64_t moved = run_steps(drawn, DRAWN, &now, each, REPORTS);
        assert_true(2 * moved < read / 20); /* each of the two chunks crosses the link once */
        free(world.memory);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heat),          cmocka_unit_test(test_whole),
        cmocka_unit_test(test_exchanges_end), cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_training),      cmocka_unit_test(test_experts),
    };
    if (argc > 1) /* more of them */
        seeds = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
