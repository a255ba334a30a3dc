/*
 * core/check: which samples tell something, and the search, in random worlds. A world has programs
 * whose memory is hot, cold, or only reached by an address; some of what windows do not see is
 * touched all the same, and of what is reached only a part. What is cold, as windows and the check
 * say together, lies on the host. The search must end the traffic in a few steps; trials must find
 * what is not touched, and cost little time; and then all must be still.
 */
#include "daemon/core/check.h"
#include "common/sums.h"
#include "daemon/core/working.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/core/table_write.h"

#define MIB (1ull << 20)
#define GB 1000000000ull
#define BASE (1ull << 40)
/* Of a meter of rates, and of one of bytes. */
static const struct meter {
    uint64_t ns, cover;
} of_rates = {84 * GM_MS, 20 * GM_MS}, of_bytes = {10 * GM_MS, 10 * GM_MS};
static const struct meter *meter;
#define SAMPLE_NS (meter->ns)
enum { APPS = 3, MAX_CHUNKS = 2048 };

struct world {
    void *memory;
    struct gm_table *table;
    struct gm_check check;
    struct gm_check_app apps[APPS];
    struct gm_check_part parts[APPS];
    uint32_t n; /* apps that run */
    bool is_touched[MAX_CHUNKS];
    bool is_short;
    bool is_hurried; /* nobody may be slowed down */
    bool is_full;    /* the host has no room for more */
    uint64_t random, next_va, now, foreign;
    uint64_t period, burst; /* touches last so long in each period; 0: all the time */
    uint32_t there, read;   /* chunks on the host; of those, which are touched */
    /* So far. */
    uint32_t backs, tries, moved, given_up;
    uint64_t slow_ns, saved, samples; /* time with such; chunks that rightly lie there, of each */
    struct gm_check_step last;
};

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random = world->random * 6364136223846793005u + 1442695040888963407u;
    return below ? (world->random >> 33) % below : 0;
}

static void begin(struct world *world, uint32_t apps, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->memory = calloc(1, gm_table_size(APPS, MAX_CHUNKS, MAX_CHUNKS));
    assert_non_null(world->memory);
    world->table = gm_table_init(world->memory, APPS, MAX_CHUNKS, MAX_CHUNKS, 1ull << 40);
    gm_check_init(&world->check, world->apps, APPS);
    world->random = seed * 2 + 1;
    world->next_va = BASE;
    world->n = apps;
    world->is_short = true;
    world->now = GM_S;
    for (uint32_t i = 0; i < apps; i++) {
        assert_true(gm_table_add_app(world->table, i, 1000));
        gm_check_begin(&world->check, i, 0, 0);
        world->parts[i] = (struct gm_check_part){.app = i, .may_try = true, .has_host = true};
    }
}

static void end(struct world *world)
{
    free(world->memory);
}

#define EACH_CHUNK(world, app, c)                                                                  \
    for (uint32_t a_ = (world)->table->apps[app].allocations.head; a_ != GM_NONE;                  \
         a_ = (world)->table->allocations[a_].next)                                                \
        for (uint32_t c = (world)->table->allocations[a_].first; c != GM_NONE;                     \
             c = (world)->table->chunks[c].sibling)

static uint32_t on_host(const struct world *world, bool is_touched)
{
    uint32_t n = 0;
    for (uint32_t app = 0; app < world->n; app++)
        EACH_CHUNK(world, app, c)
    n += world->table->chunks[c].state == GM_CHUNK_ON_HOST && (!is_touched || world->is_touched[c]);
    return n;
}

/* A window ends, in which nothing cold was touched, and everything lies where it is to lie. */
static void settle(struct world *world)
{
    for (uint32_t app = 0; app < world->n; app++) {
        bool has_changed = false;
        EACH_CHUNK(world, app, c)
        {
            struct gm_chunk *chunk = gm_chunk_at(world->table, c);
            gm_table_set_cold(world->table, c, chunk->heat == 0);
            const bool is_kept = world->is_full && chunk->state != GM_CHUNK_ON_HOST;
            const uint8_t state = chunk->is_cold && !is_kept ? GM_CHUNK_ON_HOST : GM_CHUNK_RESIDENT;
            world->moved += chunk->state != state;
            has_changed = has_changed || chunk->state != state;
            chunk->state = state;
        }
        if (has_changed)
            gm_check_change(&world->check, app);
    }
    world->there = on_host(world, false);
    world->read = on_host(world, true);
}

enum kind { COLD, REACHED, HOT };

/* An allocation of so many chunks of 32 MiB. Returns the first; they follow by `sibling`. */
static uint32_t allocate(struct world *world, uint32_t app, uint32_t chunks, enum kind kind)
{
    const uint64_t bytes = chunks * 32 * MIB;
    const uint32_t index = gm_table_add_allocation(world->table, app, world->next_va, bytes);
    assert_int_not_equal(index, GM_NONE);
    world->next_va += bytes;
    const uint32_t first = world->table->allocations[index].first;
    for (uint32_t c = first; c != GM_NONE; c = world->table->chunks[c].sibling) {
        gm_table_note_use(world->table, c, kind == COLD ? 0 : 900,
                          kind == HOT || (kind == REACHED && c == first));
        gm_table_set_cold(world->table, c, kind == COLD);
        gm_table_claim(world->table, c, kind == REACHED && c != first);
    }
    return first;
}

static uint32_t nth(const struct world *world, uint32_t c, uint32_t n)
{
    while (n-- > 0)
        c = world->table->chunks[c].sibling;
    return c;
}

static bool is_at_it(const struct world *world)
{
    return world->period == 0 || world->now % world->period < world->burst;
}

static uint64_t rate_of(struct world *world)
{
    uint64_t rate = draw(world, GB / 10) + world->foreign;
    if (world->read > 0 && is_at_it(world))
        rate += 3 * GB + draw(world, world->read < 25 ? 2 * GB * world->read : 50 * GB);
    return rate;
}

/* One more sample, of all programs. */
static void step(struct world *world)
{
    const struct gm_check_sample sample = {.begin = world->now,
                                           .end = world->now + SAMPLE_NS,
                                           .rate = rate_of(world),
                                           .cover = meter->cover,
                                           .ns = meter->ns};
    world->now = sample.end;
    world->slow_ns += world->read > 0 && is_at_it(world) ? SAMPLE_NS : 0;
    world->saved += world->there - world->read;
    world->samples++;
    for (uint32_t i = 0; i < world->n; i++) {
        world->parts[i].may_try = !world->is_hurried;
        world->parts[i].has_host = true;
    }
    gm_check_judge(&world->check, &sample, world->parts, world->n);
    world->last = gm_check_follow(&world->check, world->table, world->parts, world->n,
                                  world->is_short, world->now);
    world->backs += world->last.kind == GM_CHECKED_BACK;
    world->tries += world->last.kind == GM_CHECKED_TRY;
    world->given_up += world->last.kind == GM_CHECKED_FOREIGN;
    if (world->last.kind != GM_CHECKED_NONE)
        settle(world);
}

static void run(struct world *world, uint64_t ns)
{
    for (const uint64_t until = world->now + ns; world->now < until;)
        step(world);
}

/* From now on nearly all of the `cold` chunks that are not touched lie on the host, and trials of
 * the others take less than `slow` percent of the time. */
static void check_steady(struct world *world, uint32_t cold, uint32_t least, uint32_t slow)
{
    world->slow_ns = world->saved = world->samples = 0;
    run(world, 600 * GM_S);
    assert_in_range(world->slow_ns, 0, slow * 6 * GM_S);
    assert_in_range(world->saved * 100, world->samples * cold * least, world->samples * cold * 100);
}

/* Until nothing that is touched lies on the host. */
static void find(struct world *world)
{
    const uint64_t until = world->now + 60 * GM_S;
    while (on_host(world, true) > 0) {
        step(world);
        assert_true(world->now < until);
    }
}

/* ---- the search ---- */

/* One hidden chunk among many: a step halves what is possible. */
static void test_one(void **state)
{
    struct world world;
    (void)state;
    for (uint32_t at = 0; at < 32; at++) {
        begin(&world, 1, at);
        const uint32_t hot = allocate(&world, 0, 8, HOT);
        const uint32_t cold = allocate(&world, 0, 32, COLD);
        world.is_touched[nth(&world, cold, at)] = true;
        settle(&world);
        const uint64_t begun = world.now;
        find(&world);
        assert_in_range(world.now - begun, 0, 2 * GM_S);
        assert_in_range(world.backs, 1, 4);
        run(&world, 10 * GM_S);
        check_steady(&world, 31, 96, 3); /* all but that one */
        assert_int_equal(world.table->chunks[hot].state, GM_CHUNK_RESIDENT);
        end(&world);
    }
}

/* What the search brought back beside what is guilty goes again as soon as that is known: it takes
 * others' room. */
static void test_soon(void **state)
{
    struct world world;
    (void)state;
    for (uint32_t at = 0; at <= 160; at += 32) {
        begin(&world, 1, at);
        const uint32_t cold = allocate(&world, 0, 192, COLD);
        for (uint32_t i = 0; i < 32; i++)
            world.is_touched[nth(&world, cold, at + i)] = true;
        settle(&world);
        const uint64_t begun = world.now;
        find(&world);
        while (on_host(&world, false) < 144) {
            step(&world);
            assert_in_range(world.now - begun, 0, 4 * GM_S);
        }
        end(&world);
    }
}

/* Many programs, with many hidden chunks, all at once. */
static void test_random(void **state)
{
    struct world world;
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint32_t all = 0, guilty = 0;
        begin(&world, 1 + (uint32_t)(seed % APPS), seed);
        for (uint32_t app = 0; app < world.n; app++) {
            allocate(&world, app, 1 + (uint32_t)draw(&world, 8), HOT);
            const uint32_t n = (uint32_t)draw(&world, 200);
            const uint32_t cold = n > 0 ? allocate(&world, app, n, COLD) : 0;
            for (uint64_t hidden = n > 0 ? draw(&world, 6) : 0; hidden > 0; hidden--)
                world.is_touched[nth(&world, cold, (uint32_t)draw(&world, n))] = true;
            all += n;
        }
        for (uint32_t c = 0; c < MAX_CHUNKS; c++)
            guilty += world.is_touched[c];
        settle(&world);
        for (const uint64_t until = world.now + 10 * GM_S; on_host(&world, true) > 0;) {
            step(&world);
            assert_true(world.now < until);
        }
        run(&world, 3600 * GM_S);
        check_steady(&world, all - guilty, 96, 3);
        assert_int_equal(world.given_up, 0);
        end(&world);
    }
}

/* Of programs that run together only who touches something loses anything for good. What came back
 * of the others goes again at once, however little it is. */
static void test_who(void **state)
{
    struct world world;
    (void)state;
    for (uint32_t chunks = 64; chunks > 0; chunks /= 8)
        for (uint32_t who = 0; who < APPS; who++) {
            uint32_t cold[APPS];
            begin(&world, APPS, 1);
            for (uint32_t app = 0; app < APPS; app++)
                cold[app] = allocate(&world, app, chunks, COLD);
            world.is_touched[nth(&world, cold[who], 17 % chunks)] = true;
            settle(&world);
            find(&world);
            assert_in_range(world.now, GM_S, 6 * GM_S);
            for (const uint64_t until = world.now + 4 * GM_S;
                 on_host(&world, false) < (APPS - 1) * chunks;) {
                step(&world);
                assert_true(world.now < until);
            }
            run(&world, 600 * GM_S);
            check_steady(&world, APPS * chunks - 1, 96, 3);
            end(&world);
        }
}

/* The phase changes: other memory is touched. It is found as soon, though all was proved. */
static void test_phases(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 7);
    const uint32_t cold = allocate(&world, 0, 256, COLD);
    settle(&world);
    run(&world, 60 * GM_S);
    assert_int_equal(world.backs, 0);
    for (uint32_t phase = 0; phase < 4; phase++) {
        const uint32_t at = nth(&world, cold, 50 * phase + 9);
        world.is_touched[at] = true;
        settle(&world);
        const uint64_t begun = world.now;
        const uint32_t backs = world.backs;
        while (world.backs == backs && world.now - begun < GM_S)
            step(&world);
        assert_in_range(world.now - begun, 0, GM_CHECK_NS + SAMPLE_NS);
        find(&world);
        assert_in_range(world.now - begun, 0, 2 * GM_S);
        run(&world, 3600 * GM_S);
        check_steady(&world, 256 - 1 - phase, 96, 3);
    }
    end(&world);
}

/* A program that touches it every few seconds only is found, too, and does not move for ever. */
static void test_bursts(void **state)
{
    struct world world;
    (void)state;
    for (uint64_t period = 1; period <= 16; period *= 4) {
        begin(&world, 1, period);
        const uint32_t cold = allocate(&world, 0, 64, COLD);
        world.is_touched[nth(&world, cold, 40)] = true;
        world.period = period * GM_S;
        world.burst = 400 * GM_MS;
        settle(&world);
        run(&world, 3600 * GM_S); /* proofs take longer than its periods by then */
        check_steady(&world, 63, 60, 8);
        end(&world);
    }
}

/* Others use the link all the time: all comes back, in vain, and then it is known. It looks
 * again, more and more seldom. */
static void test_foreign(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2, 3);
    allocate(&world, 0, 100, COLD);
    allocate(&world, 1, 100, COLD);
    settle(&world);
    world.foreign = 3 * GB;
    while (world.given_up == 0 && world.now < 10 * GM_S)
        step(&world);
    assert_int_equal(world.last.kind, GM_CHECKED_FOREIGN);
    assert_in_range(world.now, 0, 5 * GM_S);
    assert_int_equal(on_host(&world, false), 200); /* windows alone decide */
    const uint32_t moved = world.moved;
    while (world.now + SAMPLE_NS < world.check.off_until)
        step(&world);
    assert_int_equal(world.moved, moved);
    run(&world, 24 * 3600 * GM_S); /* it is known what they move */
    assert_in_range(world.given_up, 1, 2);
    for (int i = 0; i < 1000; i++) {
        world.foreign = draw(&world, 40 * GB);
        run(&world, 60 * GM_S);
    }
    assert_in_range(world.given_up, 4, 60);
    assert_in_range(world.moved, moved, 60 * moved);
    world.foreign = 0;
    run(&world, 4 * 3600 * GM_S);
    assert_int_equal(on_host(&world, false), 200);
    end(&world);
}

/* What came back does not fit, so programs take turns: who does not run when the check gives up is
 * no less innocent. */
static void test_foreign_turns(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3, 3);
    for (uint32_t app = 0; app < 3; app++)
        allocate(&world, app, 64, COLD);
    settle(&world);
    world.foreign = 3 * GB;
    while (!gm_check_is_searching(&world.check, 2))
        step(&world);
    assert_in_range(on_host(&world, false), 1, 3 * 64 - 1);
    world.n = 2;
    while (world.given_up == 0 && world.now < 10 * GM_S)
        step(&world);
    assert_int_equal(world.given_up, 1);
    world.n = 3;
    settle(&world);
    assert_int_equal(on_host(&world, false), 3 * 64);
    end(&world);
}

/* Others use the link now and then. Who was accused is innocent: nothing of it is needed for good,
 * and what was proved was proved well. */
static void test_innocent(void **state)
{
    struct world world;
    (void)state;
    for (uint32_t chunks = 1; chunks < 40; chunks += 1 + chunks / 2) {
        begin(&world, 1, chunks);
        allocate(&world, 0, 8, HOT);
        allocate(&world, 0, chunks, COLD);
        settle(&world);
        for (uint32_t round = 1; round <= 2 * GM_CHECK_WRONG; round++) {
            run(&world, 600 * GM_S); /* all is proved, and the last time is long ago */
            world.foreign = 3 * GB;
            while (world.given_up < round)
                step(&world);
            world.foreign = 0;
            assert_int_equal(on_host(&world, false), chunks);
            assert_int_equal(world.check.apps[0].wrong, 0);
        }
        while (world.now < world.check.off_until)
            step(&world);
        run(&world, 3 * GM_S); /* all has just been proved */
        world.foreign = 6 * GB;
        while (world.given_up <= 2 * GM_CHECK_WRONG)
            step(&world);
        assert_int_equal(world.check.apps[0].wrong, 0);
        end(&world);
    }
}

/* What the check says goes before what windows say; but an address that is seen in memory that is
 * only reached, as it seemed, tells more. */
static void test_trust(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 1);
    const uint32_t first = allocate(&world, 0, 4, REACHED), far = nth(&world, first, 3);
    const struct gm_chunk *chunk = &world.table->chunks[far];
    const struct gm_table_app *app = &world.table->apps[0];
    struct gm_use uses[] = {{.va = BASE, .count = 1}, {.va = BASE + 97 * MIB, .count = 1}};
    gm_table_trust(world.table, far, GM_TRUST_TRIED);
    assert_int_equal(app->cold, 32 * MIB);
    gm_table_set_cold(world.table, far, false);
    gm_working_warm(world.table, 0, uses, 1); /* reaches over it */
    assert_true(chunk->is_cold);
    gm_working_warm(world.table, 0, uses, 2);
    assert_false(chunk->is_cold);
    assert_int_equal(chunk->trust, GM_TRUST_WINDOWS);
    gm_table_trust(world.table, far, GM_TRUST_NEEDED);
    gm_table_set_cold(world.table, far, true);
    assert_false(chunk->is_cold);
    assert_int_equal(app->cold, 0);
    gm_table_trust(world.table, far, GM_TRUST_WINDOWS);
    gm_table_set_cold(world.table, far, true);
    assert_int_equal(app->cold, 32 * MIB);
    end(&world);
}

/* ---- trials ---- */

/* Of one allocation that one address reaches over a part is touched: at the front, at the end, in
 * the middle, in stripes; nothing, or all. Trials find it soon, and cost little. */
static void test_claims(void **state)
{
    static const struct {
        uint32_t from, to, every, found_s, least; /* percent of the cold that is found by then */
    } cases[] = {
        {0, 64, 1, 8, 95},    {448, 512, 1, 8, 95}, {200, 264, 1, 10, 85},
        {0, 512, 32, 30, 50}, {0, 0, 1, 3, 99},     {0, 512, 1, 1, 100},
    };
    struct world world;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t cold = 511;
        begin(&world, 1, i);
        const uint32_t first = allocate(&world, 0, 512, REACHED);
        for (uint32_t at = cases[i].from; at < cases[i].to; at++)
            world.is_touched[nth(&world, first, at)] = at / 4 % cases[i].every == 0;
        for (uint32_t at = 1; at < 512; at++)
            cold -= world.is_touched[nth(&world, first, at)];
        settle(&world);
        run(&world, cases[i].found_s * GM_S);
        assert_in_range((on_host(&world, false) - world.read) * 100, cold * cases[i].least,
                        cold * 100);
        assert_in_range(world.slow_ns, 0, 3 * GM_S);
        run(&world, 600 * GM_S);
        check_steady(&world, cold, 96, 3);
        end(&world);
    }
}

/* What is touched moves. It is found soon, and what it left goes to the host. */
static void test_moving(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 5);
    const uint32_t first = allocate(&world, 0, 512, REACHED);
    for (uint32_t round = 0; round < 30; round++) {
        for (uint32_t at = 0; at < 512; at++)
            world.is_touched[nth(&world, first, at)] = at / 64 == round * 5 % 8;
        settle(&world);
        if (round > 0) /* a small trial has just failed */
            world.apps[0].rest_ns = 60 * GM_S;
        const uint64_t begun = world.now;
        find(&world);
        assert_in_range(world.now - begun, 0, 3 * GM_S);
        run(&world, 20 * GM_S);
        world.slow_ns = world.saved = world.samples = 0;
        run(&world, 40 * GM_S);
        assert_in_range(world.slow_ns, 0, 2 * GM_S);
        assert_in_range(world.saved * 100, world.samples * 448 * 80, world.samples * 448 * 100);
    }
    end(&world);
}

/* Nobody wants room, or somebody may not be slowed down: nothing is tried. */
static void test_no_trials(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 5);
    allocate(&world, 0, 512, REACHED);
    world.is_short = false;
    settle(&world);
    run(&world, 60 * GM_S);
    assert_int_equal(world.tries, 0);
    assert_true(gm_check_wants(&world.check, 0));
    world.is_short = world.is_hurried = true;
    run(&world, 60 * GM_S);
    assert_int_equal(world.tries, 0);
    end(&world);
}

/* Until something is tried. */
static void until_tried(struct world *world)
{
    for (const uint64_t until = world->now + 60 * GM_S; world->tries == 0;) {
        step(world);
        assert_true(world->now < until);
    }
}

static void touch_all(struct world *world, uint32_t first)
{
    for (uint32_t c = first; c != GM_NONE; c = world->table->chunks[c].sibling)
        world->is_touched[c] = true;
}

/* While its program does not run a trial costs it nothing, and it rests from none. However slow the
 * link seemed, and however long a trial was, the rest has a bound. */
static void test_between_turns(void **state)
{
    static const struct {
        uint64_t link, ran, least, most; /* what a trial costs */
    } cases[] = {{50 * GB, 0, 0, 10 * GM_MS},
                 {GB / 1000, 0, 0, 30 * GM_MS},
                 {50 * GB, 1000 * GM_S, 2 * GM_S, 10 * GM_MS + 2 * GM_S}};
    struct world world;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&world, 1, 1);
        touch_all(&world, allocate(&world, 0, 32, REACHED));
        settle(&world);
        EACH_CHUNK(&world, 0, c)
        gm_table_set_level(world.table, c, 4); /* behind larger parts none rests */
        gm_check_note_link(&world.check, cases[i].link);
        until_tried(&world);
        world.apps[0].tried_ns = cases[i].ran;
        world.now += 10 * GM_S;
        while (world.last.kind != GM_CHECKED_BACK)
            step(&world);
        const uint64_t rest = world.apps[0].rest_ns;
        assert_in_range(rest, gm_most(4 * GM_S, 32 * cases[i].least),
                        gm_most(4 * GM_S, 32 * (4 * SAMPLE_NS + cases[i].most)));
        world.now += 100 * GM_S;
        step(&world);
        assert_int_equal(world.last.kind, GM_CHECKED_NONE);
        assert_int_equal(world.apps[0].rest_ns, rest - SAMPLE_NS);
        gm_check_starve(&world.check, world.table, &world.parts[0], rest - SAMPLE_NS - 1,
                        world.now);
        assert_int_equal(world.apps[0].rest_ns, 1); /* also while nothing can be judged */
        run(&world, GM_S);
        assert_int_equal(world.tries, 2);
        end(&world);
    }
}

/* While all that may be tried is searched, nothing is left to try; then there is. */
static void test_search_in_between(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 1);
    world.is_touched[nth(&world, allocate(&world, 0, 64, COLD), 40)] = true;
    settle(&world);
    while (!gm_check_is_searching(&world.check, 0))
        step(&world);
    find(&world);
    world.apps[0].is_over = true;
    until_tried(&world);
    end(&world);
}

/* What a search brought back is tried before what is only claimed: it was cold, as windows say. */
static void test_hidden_first(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 1);
    const uint32_t cold = allocate(&world, 0, 64, COLD);
    world.is_touched[nth(&world, cold, 40)] = true;
    allocate(&world, 0, 64, REACHED);
    settle(&world);
    find(&world);
    until_tried(&world);
    EACH_CHUNK(&world, 0, c)
    assert_false(world.table->chunks[c].trust == GM_TRUST_TRIED &&
                 world.table->chunks[c].is_claimed);
    end(&world);
}

/* A trial fails as others use the link. That says nothing of what was tried: when they have
 * stopped as much is tried again, not half of that. */
static void test_foreign_trial(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 1);
    allocate(&world, 0, 32, REACHED);
    settle(&world);
    until_tried(&world);
    assert_int_equal(world.last.chunks, 16);
    for (world.foreign = 3 * GB; world.given_up == 0; step(&world))
        assert_true(world.now < 10 * GM_S);
    assert_int_equal(gm_check_prepare(&world.check, world.table, 0, world.now).kind,
                     GM_CHECKED_NONE); /* not yet */
    world.foreign = world.tries = 0;
    until_tried(&world);
    assert_int_equal(world.last.chunks, 16);
    end(&world);
}

/* What is tried finds no room on the host. That proves nothing, and the trial ends. It begins
 * again, and holds when there is room. */
static void test_no_room(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 1);
    allocate(&world, 0, 32, REACHED);
    world.is_full = true;
    settle(&world);
    until_tried(&world);
    run(&world, 10 * GM_S);
    assert_int_equal(gm_check_tries(&world.check, 0), 16 * 32 * MIB);
    assert_int_equal(world.backs, 0);
    run(&world, 10 * GM_S);
    assert_int_equal(world.backs, 1);
    world.is_full = false;
    run(&world, 30 * GM_S);
    assert_int_equal(on_host(&world, false), 31);
    end(&world);
}

/* Programs take turns, and a trial of the next one begins before its turn: two may be on. The
 * sample is to blame first, as to end it costs least. */
static void test_two_trials(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2, 1);
    allocate(&world, 0, 32, REACHED);
    allocate(&world, 1, 200, REACHED);
    settle(&world);
    world.n = 1;
    until_tried(&world);
    run(&world, 600 * GM_MS);
    assert_int_equal(gm_check_prepare(&world.check, world.table, 1, world.now).kind,
                     GM_CHECKED_TRY);
    world.n = 2;
    settle(&world);
    assert_true(gm_check_tries(&world.check, 0) > 0);
    for (world.foreign = 3 * GB; world.backs == 0; step(&world))
        assert_true(world.now < 10 * GM_S);
    assert_int_equal(world.last.app, 1);
    assert_true(gm_check_tries(&world.check, 0) > 0);
    end(&world);
}

/* Nothing can be judged while a trial is on: it ends soon, as the program may stand still, and the
 * next one comes later each time. One that a sample speaks for goes on, and what is tried counts as
 * room that the program needs until it is proved. */
static void test_busy_link(void **state)
{
    struct world world;
    uint64_t last = 0;
    (void)state;
    begin(&world, 1, 7);
    allocate(&world, 0, 32, REACHED);
    settle(&world);
    assert_int_equal(
        gm_check_starve(&world.check, world.table, &world.parts[0], GM_S, world.now).kind,
        GM_CHECKED_NONE);
    for (int times = 0; times < 4; times++) {
        world.tries = 0;
        const uint64_t begun = world.now;
        until_tried(&world);
        const uint64_t rested = world.now - begun;
        assert_true(times == 0 || rested + SAMPLE_NS >= GM_S << (times - 1));
        assert_true(times < 2 || rested > last);
        last = rested;
        assert_int_equal(gm_check_tries(&world.check, 0), world.last.bytes);
        assert_int_equal(
            gm_check_starve(&world.check, world.table, &world.parts[0], 100 * GM_MS, world.now)
                .kind,
            GM_CHECKED_NONE);
        const struct gm_check_step step =
            gm_check_starve(&world.check, world.table, &world.parts[0], 100 * GM_MS, world.now);
        assert_int_equal(step.kind, GM_CHECKED_BACK);
        assert_int_equal(step.bytes, world.last.bytes);
        assert_int_equal(gm_check_tries(&world.check, 0), 0);
        settle(&world);
    }
    end(&world);
}

static void test_busy_later(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 7);
    allocate(&world, 0, 200, REACHED);
    settle(&world);
    for (; world.tries < 2; step(&world)) /* a sample, which was quiet, and then all */
        assert_true(world.now < 60 * GM_S);
    const uint64_t tried = gm_check_tries(&world.check, 0);
    assert_true(tried > 80 * 32 * MIB);
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            gm_check_starve(&world.check, world.table, &world.parts[0], 100 * GM_MS, world.now)
                .kind,
            GM_CHECKED_NONE);
    run(&world, 10 * GM_S);
    assert_int_equal(gm_check_tries(&world.check, 0), 0); /* it is proved, */
    assert_int_equal(on_host(&world, false), 199);        /* ... and stays there */
    end(&world);
}

/* Three programs touch all that they claim. Each loses 2 s of the first 30 at most for its first
 * trials, and 3 % of its time from then on. */
static void test_all_touched(void **state)
{
    struct world world;
    (void)state;
    for (uint32_t chunks = 32; chunks <= 512; chunks *= 4) {
        begin(&world, APPS, chunks);
        for (uint32_t app = 0; app < APPS; app++)
            touch_all(&world, allocate(&world, app, chunks, REACHED));
        settle(&world);
        run(&world, 30 * GM_S);
        assert_in_range(world.slow_ns, GM_MS, 6 * GM_S);
        world.slow_ns = 0;
        run(&world, 600 * GM_S);
        assert_in_range(world.slow_ns, 0, APPS * 18 * GM_S);
        end(&world);
    }
}

/* ---- samples ---- */

static void judge(struct world *world, uint64_t rate)
{
    const struct gm_check_sample sample = {.begin = world->now,
                                           .end = world->now + SAMPLE_NS,
                                           .rate = rate,
                                           .cover = meter->cover,
                                           .ns = meter->ns};
    world->now = sample.end;
    gm_check_judge(&world->check, &sample, world->parts, world->n);
}

static void judge_quiet(struct world *world)
{
    for (uint64_t ns = 0; ns < 4 * GM_S; ns += SAMPLE_NS)
        judge(world, 0);
}

/* Who says that it copied without end hides what others read, but nothing is proved meanwhile. */
static void test_liar(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2, 1);
    for (int i = 0; i < 1000; i++) {
        world.parts[0].copied += 1ull << 50;
        judge(&world, 20 * GB);
        for (int app = 0; app < 2; app++)
            assert_int_not_equal(world.parts[app].finding, GM_CHECK_QUIET);
    }
    end(&world);
}

/* What is traffic follows from the link: a fiftieth of what it was seen to carry, within limits. */
static void test_links(void **state)
{
    struct world world;
    (void)state;
    const struct {
        uint64_t link, rate;
    } cases[] = {
        {0, GM_CHECK_RATE},         {1, GM_CHECK_RATE / 8}, {12 * GB, 12 * GB / 50},
        {40 * GB, 40 * GB / 50},    {2 * GB, 40 * GB / 50}, /* the most that was seen holds */
        {UINT64_MAX, GM_CHECK_RATE}};
    begin(&world, 1, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gm_check_note_link(&world.check, cases[i].link);
        assert_int_equal(gm_check_rate(&world.check), cases[i].rate);
    }
    end(&world);
    begin(&world, 1, 1);
    gm_check_note_link(&world.check, 12 * GB);
    judge(&world, GB / 2);
    judge(&world, GB / 2);
    judge(&world, GB / 2);
    judge(&world, GB / 2);
    assert_true(world.parts[0].finding == GM_CHECK_TRAFFIC || SAMPLE_NS < GM_CHECK_SOON_NS / 4);
    /* Others: known from when nothing of the apps is on the host; if it is much, trials tell
     * nothing. */
    assert_false(gm_check_is_drowned(&world.check));
    world.parts[0].has_host = false;
    judge(&world, 3 * GB);
    assert_int_equal(gm_check_is_drowned(&world.check),
                     SAMPLE_NS > 100 * GM_MS); /* a burst tells nothing */
    for (int i = 0; i < 10; i++)
        judge(&world, 3 * GB);
    assert_true(gm_check_is_drowned(&world.check));
    end(&world);
}

/* Small copies of others, bursts that are small on average: nothing is found but quiet. */
static void test_noise(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1, 1);
    const uint32_t whole = (uint32_t)((GM_CHECK_NS + SAMPLE_NS - 1) / SAMPLE_NS);
    for (uint32_t i = 1; i <= 10 * whole; i++) {
        judge(&world, i % 3 == 0 ? GM_CHECK_RATE : GM_CHECK_RATE * 3 / 4);
        assert_int_equal(world.parts[0].finding, i % whole == 0 ? GM_CHECK_QUIET : GM_CHECK_OPEN);
    }
    judge(&world, GM_CHECK_RATE * 9 / 4); /* one is believed if it is long, and of more than two */
    assert_int_equal(world.parts[0].finding,
                     SAMPLE_NS >= GM_CHECK_SOON_NS ? GM_CHECK_TRAFFIC : GM_CHECK_OPEN);
    gm_check_change(&world.check, 0);
    const uint64_t soon = SAMPLE_NS < GM_CHECK_SOON_NS ? GM_CHECK_SOON_NS / SAMPLE_NS : 1;
    judge(&world, (GM_CHECK_RATE + GM_CHECK_RATE / 8) * soon);
    assert_int_equal(world.parts[0].finding, GM_CHECK_OPEN);
    judge(&world, GM_CHECK_RATE + GM_CHECK_RATE / 8);
    assert_int_equal(world.parts[0].finding, GM_CHECK_TRAFFIC);
    end(&world);
}

/* What the program copies explains as much, also of what is still on its way; not for ever. */
static void test_copies(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2, 1);
    for (int i = 0; i < 50; i++) { /* 1.5 GB/s while the counter looks, and a little of others */
        world.parts[1].copied += meter->cover * 3 / 2;
        judge(&world, 2 * GB);
        assert_int_not_equal(world.parts[0].finding, GM_CHECK_TRAFFIC);
    }
    for (int i = 0; i < 50; i++) { /* all the time: it may see all in 20 ms, or nothing */
        world.parts[1].copied += SAMPLE_NS * 3 / 2;
        judge(&world, i % 4 == 3 ? 6 * GB : 0);
        assert_int_not_equal(world.parts[0].finding, GM_CHECK_TRAFFIC);
    }
    judge_quiet(&world);
    for (uint64_t ns = 0; ns < 150 * GM_MS; ns += SAMPLE_NS)
        judge(&world, 6 * GB); /* more than the mean of a second that was quiet before */
    assert_int_equal(world.parts[0].finding, GM_CHECK_TRAFFIC);
    gm_check_change(&world.check, 0);
    gm_check_change(&world.check, 1);
    world.parts[1].copied += 10 * GB; /* all in one go: it takes 180 ms */
    for (uint64_t ns = 0; ns < 160 * GM_MS; ns += SAMPLE_NS) {
        judge(&world, 55 * GB);
        assert_int_not_equal(world.parts[1].finding, GM_CHECK_TRAFFIC);
    }
    judge_quiet(&world);
    for (uint64_t ns = 0; ns < 150 * GM_MS; ns += SAMPLE_NS)
        judge(&world, 6 * GB);
    assert_int_equal(world.parts[1].finding, GM_CHECK_TRAFFIC);
    end(&world);
}

/* Kernels that were given host memory, and hot memory on the host, explain anything. */
static void test_explained(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2, 1);
    world.parts[0].mapped = 1;
    for (uint64_t i = 0; i * SAMPLE_NS < GM_CHECK_MAPPED_NS; i++) {
        judge(&world, 50 * GB);
        assert_int_equal(world.parts[0].finding, GM_CHECK_OPEN);
        assert_int_equal(world.parts[1].finding, GM_CHECK_OPEN);
    }
    world.now += GM_CHECK_MAPPED_NS;
    world.parts[1].is_explained = true;
    judge(&world, 50 * GB);
    assert_int_equal(world.parts[0].finding, GM_CHECK_OPEN);
    world.parts[1].is_explained = false;
    judge(&world, 50 * GB);
    judge(&world, 50 * GB);
    assert_int_equal(world.parts[0].finding, GM_CHECK_TRAFFIC);
    assert_int_equal(world.parts[1].finding, GM_CHECK_TRAFFIC);
    end(&world);
}

/* What programs say may be anything. */
static void test_hostile(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2, 5);
    const uint32_t cold = allocate(&world, 0, 40, COLD);
    world.is_touched[cold] = true;
    settle(&world);
    for (int i = 0; i < 20000; i++) {
        for (uint32_t app = 0; app < 2; app++) {
            world.parts[app].copied = draw(&world, 4) == 0 ? UINT64_MAX : draw(&world, GB) << 40;
            world.parts[app].mapped = draw(&world, 100) == 0 ? draw(&world, GB) : 0;
        }
        step(&world);
        assert_true(world.apps[0].sum <= 2 * GM_CHECK_RATE_MOST);
    }
    world.parts[0] = (struct gm_check_part){.app = 0};
    world.parts[1] = (struct gm_check_part){.app = 1};
    run(&world, 1200 * GM_S); /* and it is forgotten */
    check_steady(&world, 39, 96, 3);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),           cmocka_unit_test(test_soon),
        cmocka_unit_test(test_random),        cmocka_unit_test(test_who),
        cmocka_unit_test(test_phases),        cmocka_unit_test(test_bursts),
        cmocka_unit_test(test_foreign),       cmocka_unit_test(test_innocent),
        cmocka_unit_test(test_trust),         cmocka_unit_test(test_noise),
        cmocka_unit_test(test_copies),        cmocka_unit_test(test_explained),
        cmocka_unit_test(test_hostile),       cmocka_unit_test(test_foreign_turns),
        cmocka_unit_test(test_claims),        cmocka_unit_test(test_moving),
        cmocka_unit_test(test_no_trials),     cmocka_unit_test(test_busy_link),
        cmocka_unit_test(test_between_turns), cmocka_unit_test(test_search_in_between),
        cmocka_unit_test(test_busy_later),    cmocka_unit_test(test_all_touched),
        cmocka_unit_test(test_links),         cmocka_unit_test(test_liar),
        cmocka_unit_test(test_hidden_first),  cmocka_unit_test(test_foreign_trial),
        cmocka_unit_test(test_no_room),       cmocka_unit_test(test_two_trials),
    };
    meter = &of_rates;
    const int failed = cmocka_run_group_tests_name("a meter of rates", tests, NULL, NULL);
    meter = &of_bytes;
    return failed + cmocka_run_group_tests_name("a meter of bytes", tests, NULL, NULL);
}
