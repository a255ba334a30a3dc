/*
 * daemon/memory/mover against a model: whatever is submitted and ends in whatever order, copies are
 * as submitted, in order, and none begins before those that it waits for have ended.
 */
#include "tests/unit/mover_world.h"

#define MOST 1536u /* copies a way */
#define STEPS 2500u
#define SEEDS 12u

static struct {
    struct gm_mover *mover;
    uint64_t random;
    struct {
        uint64_t submitted, done;
        uint64_t bytes[MOST], fence[MOST];
        unsigned waits[MOST]; /* it can end when so many copies out have */
    } ways[GM_WAYS];
    unsigned wrong; /* copies that came out of order, not as submitted, or too early */
    unsigned pace;  /* how often copies end: 0 until the ways are full */
    unsigned held;  /* copies in that did not begin at once: what this is about did happen */
} model;

static unsigned any(unsigned n)
{
    model.random = model.random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(model.random >> 33) % n;
}

static CUdeviceptr to_of(unsigned way, uint64_t number)
{
    return ((CUdeviceptr)(way + 1) << 40) + number;
}

static void check_copy(unsigned way, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const uint64_t n = driver.streams[way].copies;
    const uint64_t fence = model.ways[way].fence[n];
    model.wrong += to != to_of(way, n) || from != ~to || bytes != model.ways[way].bytes[n];
    model.wrong += way == GM_WAY_IN && fence > driver.streams[way].waits &&
                   fence > gm_mover_done(model.mover, GM_WAY_OUT);
    model.ways[way].waits[n] = driver.streams[way].waits;
}

static void submit_any(struct fixture *f, enum gm_way way)
{
    static const uint64_t sizes[] = {2, 2, 2, 4, 4, 6, 8, 32};
    const uint64_t n = ++model.ways[way].submitted, out = model.ways[GM_WAY_OUT].submitted;
    const uint64_t back = any(any(3) ? 4 : 200);
    const uint64_t bytes = sizes[any(8)] * MIB, fence = any(3) && back < out ? out - back : 0;
    model.ways[way].bytes[n] = bytes;
    model.ways[way].fence[n] = fence;
    assert_int_equal(gm_mover_copy(f->mover, way, to_of(way, n), ~to_of(way, n), bytes, fence), n);
    model.held += driver.streams[way].copies < n;
}

/* Some copies end, one after the other; those in not before those out that the stream waits for. */
static void end_any(enum gm_way way, unsigned n)
{
    while (n-- > 0 && driver.streams[way].ended < driver.streams[way].copies &&
           (way == GM_WAY_OUT || model.ways[way].waits[driver.streams[way].ended + 1] <=
                                     driver.streams[GM_WAY_OUT].ended))
        end_without_looking(way, 1);
}

/* The last copy that has ended with an event behind it: what the loop is to see in the end. */
static uint64_t last_known(unsigned way)
{
    uint64_t last = model.ways[way].done;
    for (unsigned i = 0; i < EVENTS; i++)
        if (driver.events[i].way == way && driver.events[i].copies > last &&
            driver.events[i].copies <= driver.streams[way].ended)
            last = driver.events[i].copies;
    return last;
}

static void check_way(enum gm_way way)
{
    const uint64_t done = gm_mover_done(model.mover, way);
    uint64_t before = 0, under_way = 0;
    assert_true(done >= model.ways[way].done && done <= driver.streams[way].ended);
    model.ways[way].done = done;
    for (uint64_t n = 1; n <= model.ways[way].submitted; n++)
        *(n <= done ? &before : &under_way) += model.ways[way].bytes[n];
    assert_int_equal(gm_mover_bytes(model.mover, way), before);
    assert_int_equal(gm_mover_under_way(model.mover, way), under_way);
    assert_int_equal(gm_mover_room(model.mover, way),
                     GM_WAY_DEPTH - 1 - (model.ways[way].submitted - done));
}

static bool has_more_to_see(void)
{
    return model.ways[GM_WAY_OUT].done < last_known(GM_WAY_OUT) ||
           model.ways[GM_WAY_IN].done < last_known(GM_WAY_IN);
}

/* The loop goes round until it has seen what there is to see. All has begun before it waits. */
static void look(struct fixture *f)
{
    rest(f);
    for (;;) {
        for (unsigned way = 0; way < GM_WAYS; way++) {
            assert_int_equal(driver.streams[way].copies, model.ways[way].submitted);
            check_way((enum gm_way)way);
        }
        if (!has_more_to_see())
            break;
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    assert_int_equal(model.wrong, 0);
}

static void step_any(struct fixture *f)
{
    const enum gm_way way = any(2) ? GM_WAY_IN : GM_WAY_OUT;
    const unsigned what = any(16);
    if (any(256) == 0)
        model.pace = any(5);
    if (what == 0)
        look(f);
    else if (what <= model.pace)
        end_any(way, 1 + any(24));
    else if (gm_mover_room(f->mover, way) > 0 && model.ways[way].submitted < MOST - 32)
        submit_any(f, way);
}

/* Copies of any size both ways, fences on any copy out, which end when they like: none begins in
 * another order than that of the numbers, none in before its fence, none is said to have ended
 * before it has, and all of them do. */
static void test_anything(void **state)
{
    struct fixture f;
    unsigned held = 0;
    (void)state;
    alarm(60); /* instead of waiting for what never comes */
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        memset(&model, 0, sizeof model);
        model.random = seed;
        open_mover(&f);
        model.mover = f.mover;
        driver.on_copy = check_copy;
        for (unsigned i = 0; i < STEPS; i++)
            step_any(&f);
        held += model.held;
        look(&f);
        end_any(GM_WAY_OUT, MOST);
        end_any(GM_WAY_IN, MOST);
        look(&f);
        for (unsigned way = 0; way < GM_WAYS; way++)
            assert_int_equal(gm_mover_done(f.mover, way), model.ways[way].submitted);
        /* closed with copies under way, and some that have not begun */
        for (unsigned i = 0; seed % 2 && i < 16; i++)
            submit_any(&f, any(2) ? GM_WAY_IN : GM_WAY_OUT);
        end_without_looking(GM_WAY_OUT, MOST);
        end_without_looking(GM_WAY_IN, MOST);
        close_mover(&f);
        assert_int_equal(model.wrong, 0);
        for (unsigned way = 0; way < GM_WAYS; way++)
            assert_int_equal(driver.streams[way].copies, model.ways[way].submitted);
    }
    alarm(0);
    assert_true(held > SEEDS * 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_anything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
