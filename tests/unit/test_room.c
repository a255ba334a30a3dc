/*
 * daemon/core/room: what an app may have and which rule says so, at the edges of each limit; and
 * for any input, that what is granted breaks none of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/core/room.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define ALL UINT64_MAX
#define HUGE (1ull << 63)

/* A GPU of 1 GiB and 2 GiB of host memory, with nothing taken and no rule. */
static const struct gm_room_input empty = {.budget = GIB,
                                           .host = 2 * GIB,
                                           .host_alone = 2 * GIB,
                                           .tiers = 3 * GIB,
                                           .files = ALL,
                                           .is_host_mappable = true,
                                           .cap = ALL,
                                           .told = ALL,
                                           .user_gpu = ALL,
                                           .user_pinned = ALL};

static void expect_room(const struct gm_room_input *input, uint64_t gpu, uint64_t host,
                        enum gm_why why)
{
    const struct gm_room room = gm_room_of(input);
    assert_int_equal(room.gpu, gpu);
    assert_int_equal(room.host, host);
    assert_int_equal(room.why, why);
}

static void expect_last(const struct gm_room_input *input, uint64_t bytes, enum gm_why why)
{
    assert_int_equal(gm_room_refuses(input, bytes), GM_WHY_NONE);
    assert_int_equal(gm_room_refuses(input, bytes + GM_CHUNK_MIN), why);
}

static void test_budget(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    expect_room(&input, GIB, 0, GM_WHY_BUDGET);
    expect_last(&input, GIB, GM_WHY_BUDGET);
    assert_int_equal(gm_room_refuses(&input, HUGE), GM_WHY_BUDGET);
    input.own.promised = GIB - GM_CHUNK_MIN; /* one chunk is left */
    expect_room(&input, GM_CHUNK_MIN, 0, GM_WHY_BUDGET);
    expect_last(&input, GM_CHUNK_MIN, GM_WHY_BUDGET);
    input.own.promised++; /* ... or not all of it */
    expect_room(&input, 0, 0, GM_WHY_BUDGET);
    input.own.promised = GIB; /* all */
    expect_room(&input, 0, 0, GM_WHY_BUDGET);
    assert_int_equal(gm_room_refuses(&input, GM_CHUNK_MIN), GM_WHY_BUDGET);
    input.own.promised = HUGE; /* more than there is: the budget fell */
    expect_room(&input, 0, 0, GM_WHY_BUDGET);
    input.own.promised = 512 * MIB;
    input.fixed = 128 * MIB; /* of others, for good */
    expect_room(&input, 384 * MIB, 0, GM_WHY_BUDGET);
    input.fixed = ALL;
    expect_room(&input, 0, 0, GM_WHY_BUDGET);
    input = empty;
    input.budget = 0;
    expect_room(&input, 0, 0, GM_WHY_BUDGET);
    input.budget = GM_CHUNK_MIN + 1;
    expect_room(&input, GM_CHUNK_MIN, 0, GM_WHY_BUDGET);
    input.budget = input.tiers = HUGE;
    expect_room(&input, HUGE, 0, GM_WHY_BUDGET);
}

static void test_oversize(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    assert_int_equal(gm_room_total(&input), GIB);
    input.is_oversize = true;
    assert_int_equal(gm_room_total(&input), 3 * GIB);
    input.fixed = 80 * MIB; /* of which others share 30 */
    input.own.fixed = 50 * MIB;
    assert_int_equal(gm_room_total(&input), 3 * GIB - 30 * MIB);
    input.host = GIB; /* another GPU has the rest now */
    const struct gm_room_input alone_here = gm_room_alone(&input);
    assert_int_equal(gm_room_of(&alone_here).host, 2 * GIB);
    assert_int_equal(gm_room_of(&input).host, GIB);
    assert_int_equal(gm_room_total(&input), 3 * GIB - 30 * MIB);
    input.told = 100 * MIB;
    assert_int_equal(gm_room_total(&input), 70 * MIB);
    input.fixed = HUGE;
    assert_int_equal(gm_room_total(&input), GM_CHUNK_MIN);
    input = empty;
    input.is_oversize = true;
    expect_room(&input, GIB, 2 * GIB, GM_WHY_PINNED);
    expect_last(&input, 3 * GIB, GM_WHY_PINNED);
    input.own.promised = GIB;
    input.own.beyond = 512 * MIB;
    input.host_taken = GIB;
    input.tiers_taken = 2 * GIB + 512 * MIB;
    expect_room(&input, 0, 512 * MIB, GM_WHY_PINNED);
    input.host_taken = ALL; /* a sum that would wrap */
    expect_room(&input, 0, 0, GM_WHY_PINNED);
    const struct gm_room_input alone = gm_room_alone(&input);
    expect_room(&alone, 0, 3 * GIB / 2, GM_WHY_PINNED);
    input = empty;
    input.is_oversize = true;
    input.host = input.host_alone = ALL; /* so would this */
    assert_int_equal(gm_room_total(&input), ALL);
    input.tiers = ALL;
    assert_int_equal(gm_room_of(&input).gpu, GIB);
    assert_true(gm_room_of(&input).host >= HUGE);
    input.host = 0;
    expect_room(&input, GIB, 0, GM_WHY_PINNED);
}

/* A cap leaves a part of host memory, and does not give more than the budget. */
static void test_cap(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    assert_false(gm_room_is_capped(&input));
    assert_int_equal(gm_room_cap_limit(&input), ALL);
    input.cap = 512 * MIB;
    assert_true(gm_room_is_capped(&input));
    assert_int_equal(gm_room_for_capped(&input), 2 * GIB - 128 * MIB);
    expect_room(&input, 512 * MIB, 512 * MIB, GM_WHY_BUDGET);
    expect_last(&input, GIB, GM_WHY_BUDGET);
    input.host_taken = GIB + 512 * MIB;
    expect_room(&input, 512 * MIB, 384 * MIB, GM_WHY_PINNED);
    input.own = (struct gm_room_sums){.promised = 256 * MIB, .fixed = 64 * MIB, .driver = 32 * MIB};
    input.user = input.own;
    assert_int_equal(gm_room_cap_limit(&input), 416 * MIB);
    expect_room(&input, 160 * MIB, 384 * MIB, GM_WHY_PINNED);
    input.cap = 417 * MIB + 32 * MIB + 64 * MIB; /* no whole chunk more */
    assert_int_equal(gm_room_cap_limit(&input), 416 * MIB);
    input.cap = GM_CHUNK_MIN;
    expect_room(&input, 0, 384 * MIB, GM_WHY_PINNED);
    input.is_host_mappable = false;
    input.host = 0;
    expect_room(&input, 0, 0, GM_WHY_BUDGET);
    for (uint64_t host = 0; host < GIB; host += 3 * MIB) {
        input.host = host;
        assert_true(gm_room_for_capped(&input) <= host);
        assert_int_equal(gm_room_for_capped(&input) % GM_CHUNK_MIN, 0);
    }
}

/* What is promised follows a cap that changed, as far as the host has room. */
static void test_fit(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    input.own = input.user = (struct gm_room_sums){.promised = GIB};
    assert_int_equal(gm_room_to_give_up(&input), 0);
    assert_int_equal(gm_room_to_take_up(&input), 0);
    input.cap = 512 * MIB;
    assert_int_equal(gm_room_to_give_up(&input), 512 * MIB);
    input.host_taken = 2 * GIB - 128 * MIB - GM_CHUNK_MIN;
    assert_int_equal(gm_room_to_give_up(&input), GM_CHUNK_MIN);
    input.own.beyond = GM_CHUNK_MIN;
    assert_int_equal(gm_room_to_give_up(&input), 0);
    input.cap = ALL;
    input.own.beyond = 256 * MIB; /* the budget is full */
    assert_int_equal(gm_room_to_take_up(&input), 0);
    input.own.promised = 896 * MIB;
    assert_int_equal(gm_room_to_take_up(&input), 128 * MIB);
    input.cap = 900 * MIB;
    assert_int_equal(gm_room_to_take_up(&input), 4 * MIB);
    input.own.promised = 512 * MIB;
    assert_int_equal(gm_room_to_take_up(&input), 256 * MIB);
    input.own.held = 100 * MIB; /* shared there for good */
    assert_int_equal(gm_room_to_take_up(&input), 156 * MIB);
    input.own.held = ALL;
    assert_int_equal(gm_room_to_take_up(&input), 0);
}

/* What others have on the host by choice is no obstacle, and comes back as far as it is lacked. */
static void test_aside(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    input.is_oversize = true;
    input.host_taken = 2 * GIB;
    expect_room(&input, GIB, 0, GM_WHY_PINNED);
    assert_int_equal(gm_room_to_reclaim(&input, 0), 0);
    input.host_aside = 512 * MIB;
    expect_room(&input, GIB, 512 * MIB, GM_WHY_PINNED);
    expect_last(&input, GIB + 512 * MIB, GM_WHY_PINNED);
    assert_int_equal(gm_room_reason(&input, GM_WHY_PINNED).taken, GIB + 512 * MIB);
    assert_int_equal(gm_room_to_reclaim(&input, 64 * MIB), 64 * MIB);
    input.host_taken = 2 * GIB - 32 * MIB; /* that much is there */
    assert_int_equal(gm_room_to_reclaim(&input, 64 * MIB), 32 * MIB);
    input.is_oversize = false;
    input.cap = 512 * MIB; /* 128 less, for caps */
    assert_int_equal(gm_room_of(&input).host, 416 * MIB);
    assert_int_equal(gm_room_to_reclaim(&input, 64 * MIB), 160 * MIB);
    input.own.promised = input.user.promised = GIB;
    assert_int_equal(gm_room_to_give_up(&input), 416 * MIB);
    /* What is cold takes nobody's place by that. */
    assert_int_equal(gm_room_to_lay_aside(&input, GIB, 0), 0);
    const struct gm_room_input alone = gm_room_alone(&input);
    assert_int_equal(alone.host_aside, 0);
    input.host_aside = ALL;
    assert_int_equal(gm_room_to_give_up(&input), 512 * MIB);
}

static void test_user(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    input.user_gpu = 512 * MIB;
    assert_true(gm_room_is_capped(&input));
    input.own = (struct gm_room_sums){.promised = 64 * MIB, .driver = 2 * MIB};
    input.user = (struct gm_room_sums){.promised = 164 * MIB, .fixed = 20 * MIB, .driver = 8 * MIB};
    input.left_gpu = 4 * MIB;
    assert_int_equal(gm_room_user_limit(&input), 382 * MIB); /* less 126 of others, and 4 */
    assert_int_equal(gm_room_cap_limit(&input), 380 * MIB);
    assert_int_equal(gm_room_of(&input).gpu, 316 * MIB);
    input.left_gpu = ALL;
    assert_int_equal(gm_room_user_limit(&input), 0);
    input = empty;
    input.user_pinned = 256 * MIB;
    expect_room(&input, 256 * MIB, 0, GM_WHY_USER);
    input.user = (struct gm_room_sums){.promised = 100 * MIB, .beyond = 100 * MIB, .fixed = GIB};
    input.left_host = 20 * MIB;
    expect_room(&input, 36 * MIB, 0, GM_WHY_USER);
    expect_last(&input, 36 * MIB, GM_WHY_USER);
    const struct gm_room_input alone = gm_room_alone(&input); /* who comes first has it */
    expect_room(&alone, 36 * MIB, 0, GM_WHY_USER);
    input.user.promised = input.user.beyond = HUGE;
    expect_room(&input, 0, 0, GM_WHY_USER);
}

static void test_environment(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    input.told = 100 * MIB;
    expect_room(&input, 100 * MIB, 0, GM_WHY_LIMIT);
    input.told_taken = 98 * MIB;
    expect_last(&input, GM_CHUNK_MIN, GM_WHY_LIMIT);
    input.told_taken = HUGE;
    expect_room(&input, 0, 0, GM_WHY_LIMIT);
    input.is_oversize = true;
    input.told = GIB + 64 * MIB;
    input.told_taken = 0;
    expect_room(&input, GIB, 64 * MIB, GM_WHY_LIMIT);
}

/* A chunk is a file, and sizes that are no multiple of the largest chunk take more of them. */
static void test_files(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    input.files = 4;
    expect_room(&input, 4 * GM_CHUNK_MAX, 0, GM_WHY_FILES);
    assert_int_equal(gm_room_refuses(&input, 30 * MIB), GM_WHY_NONE); /* 16, 8, 4, 2 */
    assert_int_equal(gm_room_refuses(&input, 62 * MIB), GM_WHY_FILES);
    input.budget = 126 * MIB;
    expect_room(&input, 112 * MIB, 0, GM_WHY_FILES); /* three of 32 and one of 16 */
    input.files_own = 2;
    input.files_taken = 1;
    expect_room(&input, GM_CHUNK_MAX, 0, GM_WHY_FILES);
    const struct gm_room_input alone = gm_room_alone(&input);
    expect_room(&alone, 2 * GM_CHUNK_MAX, 0, GM_WHY_FILES);
    input.files_taken = ALL;
    expect_room(&input, 0, 0, GM_WHY_FILES);
    assert_int_equal(gm_room_refuses(&input, GM_CHUNK_MIN), GM_WHY_FILES);
}

/* Cold memory keeps its files on the host: not those that another program needs to run. */
static void test_files_of_cold(void **state)
{
    struct gm_room_input other = empty;
    (void)state;
    assert_int_equal(gm_room_spare_files(&other), ALL);
    other.files = 100;
    other.files_own = 70;
    other.files_taken = 20;
    assert_int_equal(gm_room_spare_files(&other), 10);
    other.files_taken = 40;
    assert_int_equal(gm_room_spare_files(&other), 0);
    other.files_to_keep = 4; /* of others, whose places are not chosen yet */
    other.files_taken = 20;
    assert_int_equal(gm_room_spare_files(&other), 6);
    assert_int_equal(gm_room_within_files(32, ALL), ALL);
    assert_int_equal(gm_room_within_files(32, 32), ALL);
    assert_int_equal(gm_room_within_files(32, 31), 62 * MIB);
    assert_int_equal(gm_room_within_files(32, 0), 0);
    struct gm_table_app app = {.chunks = 10, .staying = 4, .beyond = 20 * MIB, .on_host = 12 * MIB};
    const struct gm_table table = {.apps = &app};
    assert_int_equal(gm_room_files_to_keep(&table, 0), 4); /* chunks of 2 MiB at least, */
    app.beyond = GIB;
    assert_int_equal(gm_room_files_to_keep(&table, 0), 6); /* ... and all at most */
    app.on_host = GIB + 2 * MIB;
    assert_int_equal(gm_room_files_to_keep(&table, 0), 0);
}

static void test_tiers(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    input.tiers_taken = 3 * GIB - 30 * MIB;
    expect_room(&input, 30 * MIB, 0, GM_WHY_FULL);
    expect_last(&input, 30 * MIB, GM_WHY_FULL);
    assert_int_equal(gm_room_refuses(&input, 2 * GIB), GM_WHY_BUDGET); /* it never can */
    const struct gm_room_input alone = gm_room_alone(&input);
    expect_room(&alone, GIB, 0, GM_WHY_BUDGET);
    input.tiers_taken = HUGE; /* the budget fell */
    expect_room(&input, 0, 0, GM_WHY_FULL);
}

static void test_reason(void **state)
{
    struct gm_room_input input = empty;
    struct gm_reason reason;
    (void)state;
    input.fixed = 100 * MIB;
    input.own.fixed = 60 * MIB;
    reason = gm_room_reason(&input, GM_WHY_BUDGET);
    assert_int_equal(reason.limit, GIB);
    assert_int_equal(reason.taken, 40 * MIB);
    input.host_taken = 7 * MIB;
    input.own.beyond = 5 * MIB;
    reason = gm_room_reason(&input, GM_WHY_PINNED);
    assert_int_equal(reason.limit, 2 * GIB);
    assert_int_equal(reason.taken, 12 * MIB);
    input.user_pinned = 10 * MIB;
    input.user.promised = 22 * MIB;
    reason = gm_room_reason(&input, GM_WHY_USER);
    assert_int_equal(reason.limit, 10 * MIB);
    assert_int_equal(reason.taken, 10 * MIB);
    input.told = 8 * MIB;
    input.told_taken = 6 * MIB;
    assert_int_equal(gm_room_reason(&input, GM_WHY_LIMIT).limit, 8 * MIB);
    input.tiers_taken = 9 * MIB;
    reason = gm_room_reason(&input, GM_WHY_FULL);
    assert_int_equal(reason.limit, 3 * GIB);
    assert_int_equal(reason.taken, 9 * MIB);
}

static void test_occupy(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    assert_true(gm_room_may_occupy(&input, HUGE, false)); /* no cap */
    input.cap = 64 * MIB;
    assert_true(gm_room_may_occupy(&input, 64 * MIB, false));
    assert_false(gm_room_may_occupy(&input, 66 * MIB, false));
    assert_true(gm_room_may_occupy(&input, 66 * MIB, true)); /* it has its part */
    input.own.bend = 2 * MIB; /* of what it is promised below its cap */
    assert_false(gm_room_may_occupy(&input, 66 * MIB, false));
    input.own.promised = 64 * MIB;
    assert_true(gm_room_may_occupy(&input, 66 * MIB, false));
    assert_false(gm_room_may_occupy(&input, 68 * MIB, false));
    input.own = input.user = (struct gm_room_sums){.fixed = 16 * MIB, .device = 60 * MIB};
    assert_true(gm_room_may_occupy(&input, 4 * MIB, false));
    assert_false(gm_room_may_occupy(&input, 6 * MIB, false));
    input.own.promised = 80 * MIB; /* pinned memory had no room for what is above the cap */
    assert_true(gm_room_may_occupy(&input, 36 * MIB, false));
    assert_false(gm_room_may_occupy(&input, 38 * MIB, false));
    input.user_gpu = 70 * MIB; /* frames that leave count until they have left */
    assert_true(gm_room_may_occupy(&input, 10 * MIB, true));
    assert_false(gm_room_may_occupy(&input, 12 * MIB, true));
    input.left_gpu = 2 * MIB;
    assert_false(gm_room_may_occupy(&input, 10 * MIB, true));
    assert_false(gm_room_may_occupy(&input, ALL, true));
    input.user.promised = 70 * MIB; /* it needs more than the total, as for a cap */
    assert_true(gm_room_may_occupy(&input, 26 * MIB, true));
    assert_false(gm_room_may_occupy(&input, 28 * MIB, true));
}

static void test_fix(void **state)
{
    struct gm_room_input input = empty;
    (void)state;
    input.fixed = 256 * MIB;
    input.own.promised = 512 * MIB;
    assert_true(gm_room_may_fix(&input, 256 * MIB));
    assert_false(gm_room_may_fix(&input, 258 * MIB));
    input.own.beyond = 64 * MIB; /* as it is cold now */
    assert_true(gm_room_may_fix(&input, 192 * MIB));
    assert_false(gm_room_may_fix(&input, 194 * MIB));
    input.is_oversize = true;
    assert_true(gm_room_may_fix(&input, 256 * MIB));
    input.is_oversize = false;
    input.cap = 512 * MIB;
    assert_true(gm_room_may_fix(&input, 256 * MIB));
    assert_false(gm_room_may_fix(&input, 258 * MIB));
    assert_false(gm_room_may_fix(&input, ALL));
}

/* ---- whatever the input ---- */

static uint64_t chance_state = 1;
static uint64_t chance(void)
{
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return chance_state;
}

/* Mostly chunks up to some GiB; at times an edge. */
static uint64_t draw_bytes(void)
{
    static const uint64_t edges[] = {0,   1,        GM_CHUNK_MIN, GM_CHUNK_MIN + 1, GM_CHUNK_MAX,
                                     GIB, HUGE - 1, HUGE,         ALL - 1};
    if (chance() % 8 == 0)
        return edges[chance() % (sizeof edges / sizeof edges[0])];
    return chance() % 2048 * GM_CHUNK_MIN;
}

static uint64_t draw_limit(void)
{
    return chance() % 2 ? ALL : draw_bytes();
}

static struct gm_room_sums draw_sums(const struct gm_room_sums *least)
{
    struct gm_room_sums sums = {0};
    uint64_t *all[] = {&sums.promised, &sums.beyond, &sums.fixed, &sums.driver, &sums.device};
    const uint64_t base[] = {least->promised, least->beyond, least->fixed, least->driver,
                             least->device};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const uint64_t more = chance() % 3 ? draw_bytes() : 0;
        *all[i] = more > ALL - base[i] ? ALL : base[i] + more;
    }
    return sums;
}

static struct gm_room_input draw_input(void)
{
    static const struct gm_room_sums none;
    struct gm_room_input input = {.budget = draw_bytes(),
                                  .fixed = chance() % 3 ? 0 : draw_bytes(),
                                  .host = draw_bytes(),
                                  .host_taken = draw_bytes(),
                                  .tiers = draw_limit(),
                                  .tiers_taken = draw_bytes(),
                                  .files = chance() % 2 ? ALL : chance() % 100,
                                  .files_own = chance() % 50,
                                  .files_taken = chance() % 20,
                                  .cap = draw_limit(),
                                  .is_oversize = chance() % 2,
                                  .told = draw_limit(),
                                  .told_taken = draw_bytes(),
                                  .user_gpu = draw_limit(),
                                  .user_pinned = draw_limit(),
                                  .host_programs = (uint32_t)(chance() % 4),
                                  .own.programs = (uint32_t)(chance() % 4),
                                  .left_gpu = chance() % 3 ? 0 : draw_bytes(),
                                  .left_host = chance() % 3 ? 0 : draw_bytes()};
    input.host_alone = chance() % 2 ? input.host : input.host + draw_bytes() / 4;
    input.host_alone = input.host_alone < input.host ? ALL : input.host_alone;
    input.is_host_mappable = input.is_oversize || chance() % 2;
    const uint32_t programs = input.own.programs;
    input.own = draw_sums(&none);
    input.own.programs = programs;
    input.user = draw_sums(&input.own);
    return input;
}

typedef unsigned __int128 wide; /* so that no sum wraps here */

/* What was within the limits still is when the app has `gpu` bytes more there and `host` beyond. */
static void check_grant(const struct gm_room_input *input, uint64_t gpu, uint64_t host)
{
    const struct gm_room_sums *own = &input->own, *user = &input->user;
    const wide all = (wide)gpu + host;
    const wide unevictable = (wide)own->fixed + own->driver;
    if (gpu > 0) {
        assert_true((wide)own->promised + gpu + input->fixed <= input->budget);
        assert_true(input->cap == ALL || own->promised + gpu + unevictable <= input->cap);
        assert_true(input->user_gpu == ALL ||
                    (wide)user->promised + gpu + user->fixed + user->driver + input->left_gpu <=
                        input->user_gpu);
    }
    if (host > 0) {
        assert_true(input->is_host_mappable);
        assert_true(input->is_oversize || gm_room_is_capped(input));
        const uint32_t programs = input->host_programs + own->programs;
        const wide rounding = programs > 1 ? (wide)(programs - 1) * GM_ROOM_ROUNDING : 0;
        assert_true((wide)input->host_taken + own->beyond + host + rounding <= input->host);
    }
    if (all == 0)
        return;
    assert_true(input->is_oversize ||
                (wide)own->promised + own->beyond + all + input->fixed <= input->budget ||
                own->beyond > 0 || !gm_room_is_capped(input));
    assert_true(input->told == ALL || input->told_taken + all <= input->told);
    assert_true(input->user_pinned == ALL ||
                (wide)user->promised + user->beyond + input->left_host + all <= input->user_pinned);
    assert_true(input->tiers == ALL || input->tiers_taken + all <= input->tiers);
    assert_true(input->files == ALL ||
                (wide)input->files_own + input->files_taken + gm_chunk_count((uint64_t)all) <=
                    input->files);
}

/* Whatever is granted, to the last byte or less, breaks no limit, and no limit would bear more. */
static void test_any_grant(void **state)
{
    unsigned granted = 0, refused[GM_WHYS] = {0};
    (void)state;
    for (int i = 0; i < 300000; i++) {
        const struct gm_room_input input = draw_input();
        const struct gm_room room = gm_room_of(&input);
        const uint64_t all = room.gpu + room.host;
        assert_true(all >= room.gpu);
        assert_int_equal(room.gpu % GM_CHUNK_MIN, 0);
        assert_int_equal(room.host % GM_CHUNK_MIN, 0);
        check_grant(&input, room.gpu, room.host);
        granted += all > 0;
        refused[room.why]++;
        if (all > 0)
            assert_int_equal(gm_room_refuses(&input, all), GM_WHY_NONE);
        if (all < HUGE)
            assert_int_not_equal(gm_room_refuses(&input, all + GM_CHUNK_MIN), GM_WHY_NONE);
        /* Any smaller one, or one that is far too large. */
        uint64_t bytes = chance() % 2 ? draw_bytes() : all ? chance() % all : 0;
        bytes = gm_chunk_floor(bytes);
        if (bytes == 0 || gm_room_refuses(&input, bytes) != GM_WHY_NONE)
            continue;
        assert_true(bytes <= all);
        const uint64_t gpu = bytes < room.gpu ? bytes : room.gpu;
        check_grant(&input, gpu, bytes - gpu);
    }
    assert_in_range(granted, 20000, 290000); /* the inputs are neither all full nor all empty */
    static const enum gm_why whys[] = {GM_WHY_BUDGET, GM_WHY_PINNED, GM_WHY_LIMIT,
                                       GM_WHY_USER,   GM_WHY_FILES,  GM_WHY_FULL};
    for (size_t i = 0; i < sizeof whys / sizeof whys[0]; i++)
        assert_true(refused[whys[i]] > 100);
}

/* Alone it may have as much as beside others, or more; and what it may have beside them it may have
 * alone. */
static void test_any_alone(void **state)
{
    unsigned more = 0;
    (void)state;
    for (int i = 0; i < 300000; i++) {
        const struct gm_room_input beside = draw_input(), alone = gm_room_alone(&beside);
        const struct gm_room a = gm_room_of(&alone), b = gm_room_of(&beside);
        const uint64_t bytes = gm_chunk_floor(draw_bytes());
        assert_true(a.gpu + a.host >= b.gpu + b.host);
        assert_true(a.gpu >= b.gpu);
        more += a.gpu + a.host > b.gpu + b.host;
        if (bytes > 0 && gm_room_refuses(&beside, bytes) == GM_WHY_NONE)
            assert_int_equal(gm_room_refuses(&alone, bytes), GM_WHY_NONE);
    }
    assert_true(more > 1000);
}

/* Apps that are granted memory in turn may round up what each has on the host, whatever they had.
 */
static void test_any_rounding(void **state)
{
    enum { APPS = 6 };
    unsigned beyond_apps = 0, refused = 0;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct gm_room_sums own[APPS] = {0};
        const uint64_t host = chance() % 400 * GM_CHUNK_MIN;
        for (int k = 0; k < 40; k++) {
            struct gm_room_input input = empty;
            const size_t at = chance() % APPS;
            uint64_t sum = 0;
            input.budget = 256 * MIB;
            input.host = input.host_alone = host;
            input.is_oversize = at % 2;
            input.cap = at % 2 ? ALL : 64 * MIB;
            for (size_t other = 0; other < APPS; other++) {
                input.host_taken += other != at ? own[other].beyond : 0;
                input.host_programs += other != at && own[other].beyond > 0;
            }
            input.own = own[at];
            input.own.programs = 1;
            uint64_t bytes = (1 + chance() % 64) * GM_CHUNK_MIN;
            if (chance() % 8 == 0) { /* its cap is another one */
                input.cap = chance() % 100 * GM_CHUNK_MIN;
                bytes = gm_room_to_give_up(&input);
                own[at].promised -= bytes;
                own[at].beyond += bytes;
            } else if (gm_room_refuses(&input, bytes) == GM_WHY_NONE) {
                const uint64_t room = gm_room_of(&input).gpu, gpu = bytes < room ? bytes : room;
                own[at].promised += gpu;
                own[at].beyond += bytes - gpu;
            } else {
                refused++;
            }
            for (size_t other = 0; other < APPS; other++) {
                sum += gm_room_rounded(own[other].beyond);
                beyond_apps += own[other].beyond > 0;
            }
            assert_true(sum <= host + GM_ROOM_ROUNDING); /* beside a chunk in the window */
        }
    }
    assert_true(beyond_apps > 1000 && refused > 1000);
}

static bool is_huge(const struct gm_room_sums *sums)
{
    return sums->promised >= HUGE || sums->beyond >= HUGE || sums->fixed >= HUGE ||
           sums->driver >= HUGE;
}

/* Giving up and taking up end at the cap and the budget, and one undoes nothing of the other. */
static void test_any_fit(void **state)
{
    (void)state;
    for (int i = 0; i < 300000; i++) {
        struct gm_room_input input = draw_input();
        const uint64_t less = gm_room_to_give_up(&input), more = gm_room_to_take_up(&input);
        assert_true(less == 0 || more == 0);
        assert_true(less <= input.own.promised && more <= input.own.beyond);
        if (is_huge(&input.user))
            continue; /* such sums do not follow changes */
        input.own.promised += more - less;
        input.own.beyond += less - more;
        input.user.promised += more - less;
        assert_true(more == 0 || input.own.promised <= gm_room_cap_limit(&input));
        assert_true(more == 0 || input.own.promised + input.fixed <= input.budget);
        assert_true(less == 0 || gm_room_to_take_up(&input) == 0);
        assert_true(less == 0 || gm_room_to_give_up(&input) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),        cmocka_unit_test(test_oversize),
        cmocka_unit_test(test_cap),           cmocka_unit_test(test_fit),
        cmocka_unit_test(test_user),          cmocka_unit_test(test_environment),
        cmocka_unit_test(test_files),         cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_reason),        cmocka_unit_test(test_occupy),
        cmocka_unit_test(test_fix),           cmocka_unit_test(test_any_grant),
        cmocka_unit_test(test_any_alone),     cmocka_unit_test(test_any_rounding),
        cmocka_unit_test(test_any_fit),       cmocka_unit_test(test_aside),
        cmocka_unit_test(test_files_of_cold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
