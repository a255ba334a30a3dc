/* daemon/core/room: the budget follows what the device has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/core/room.h"

#define MIB (1ull << 20)

/* The device has 1024 MiB, of which 64 are the reserve. */
static uint64_t next(uint64_t now, uint64_t available, uint64_t least)
{
    const struct gm_room_device input = {.budget = now * MIB,
                                         .most = 960 * MIB,
                                         .least = least * MIB,
                                         .available = available * MIB,
                                         .reserve = 64 * MIB};
    return gm_room_next_budget(&input) / MIB;
}

static void test_up(void **state)
{
    (void)state;
    assert_int_equal(next(360, 424, 0), 360);
    assert_int_equal(next(360, 456, 0), 360); /* not yet */
    assert_int_equal(next(360, 458, 0), 394);
    assert_int_equal(next(360, 1024, 0), 960);
    assert_int_equal(next(950, 1024, 0), 960); /* little, but then it is whole */
    assert_int_equal(next(960, 1024, 0), 960);
}

static void test_down(void **state)
{
    (void)state;
    assert_int_equal(next(960, 976, 0), 960); /* contexts use the reserve */
    assert_int_equal(next(960, 974, 0), 942);
    assert_int_equal(next(960, 424, 0), 392);
    assert_int_equal(next(960, 424, 500), 500); /* an app needs it */
    assert_int_equal(next(960, 10, 0), 0);
    assert_int_equal(next(960, 0, 200), 200);
}

/* A budget that was given: `reserve` is one frame. */
static void test_given(void **state)
{
    struct gm_room_device input = {.budget = 112 * MIB,
                                   .most = 160 * MIB,
                                   .least = 112 * MIB,
                                   .available = 112 * MIB,
                                   .reserve = 32 * MIB};
    (void)state;
    assert_int_equal(gm_room_next_budget(&input), 112 * MIB);
    input.available = 191 * MIB;
    assert_int_equal(gm_room_next_budget(&input), 158 * MIB);
    input.available = 192 * MIB;
    assert_int_equal(gm_room_next_budget(&input), 160 * MIB);
    input.budget = 158 * MIB;
    assert_int_equal(gm_room_next_budget(&input), 160 * MIB);
}

/* From wherever it is, one step is enough, and what follows from that changes nothing: contexts
 * that come and go within the reserve neither move it to and fro nor step by step. */
static void test_rests(void **state)
{
    (void)state;
    for (uint64_t now = 2; now <= 960; now += 2)
        for (uint64_t available = 0; available <= 1024; available += 3) {
            const uint64_t then = next(now, available, 2);
            assert_in_range(then, 2, 960);
            assert_int_equal(next(then, available, 2), then);
            if (then < now && available + 62 < 1024) /* else it is whole again */
                assert_int_equal(next(then, available + 62, 2), then);
            if (then > now && available >= 48)
                assert_int_equal(next(then, available - 46, 2), then);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_up),
        cmocka_unit_test(test_down),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_rests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
