/*
 * common/shm.h: the layout that daemon and shim share, word by word. A build of either side must
 * agree with every other build of the same GM_SHM_VERSION, so a change here is a change of that
 * version.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* No struct of it has padding: the compiler says so, and this does not build. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#include "common/shm.h"
#include "common/windows.h"
#pragma GCC diagnostic pop
#include "common/wire.h"

#define LAYOUT(type, field, at, bytes)                                                             \
    do {                                                                                           \
        assert_int_equal(offsetof(struct type, field), (at));                                      \
        assert_int_equal(sizeof(((struct type *)0)->field), (bytes));                              \
    } while (0)

static void test_ctl(void **state)
{
    (void)state;
    LAYOUT(gm_ctl, magic, 0, 4);
    LAYOUT(gm_ctl, version, 4, 4);
    LAYOUT(gm_ctl, gate, 8, 4);
    LAYOUT(gm_ctl, app, 12, 4);
    LAYOUT(gm_ctl, epoch, 16, 8);
    LAYOUT(gm_ctl, has_rhythm, 24, 4);
    LAYOUT(gm_ctl, is_paused, 28, 4);
    LAYOUT(gm_ctl, is_counting, 32, 4);
    LAYOUT(gm_ctl, window, 36, 4);
    LAYOUT(gm_ctl, budget, 40, 8 * GM_GPUS_MAX);
    LAYOUT(gm_ctl, room, 168, 8 * GM_GPUS_MAX);
    LAYOUT(gm_ctl, beat, 296, 4);
    LAYOUT(gm_ctl, reserved, 300, 4096 - 300);
    assert_int_equal(sizeof(struct gm_ctl), 4096);
}

static void test_stat(void **state)
{
    (void)state;
    LAYOUT(gm_stat, magic, 0, 4);
    LAYOUT(gm_stat, version, 4, 4);
    LAYOUT(gm_stat, waiting, 8, 4);
    LAYOUT(gm_stat, captures, 12, 4);
    LAYOUT(gm_stat, small_bytes, 16, 8);
    LAYOUT(gm_stat, real_bytes, 24, 8);
    LAYOUT(gm_stat, contexts, 32, 4);
    LAYOUT(gm_stat, features_off, 36, 4);
    LAYOUT(gm_stat, managed_bytes, 40, 8);
    LAYOUT(gm_stat, array_bytes, 48, 8);
    LAYOUT(gm_stat, graph_bytes, 56, 8);
    LAYOUT(gm_stat, refused, 64, 8);
    LAYOUT(gm_stat, driver_refused, 72, 8);
    LAYOUT(gm_stat, driver_refused_bytes, 80, 8);
    LAYOUT(gm_stat, spares, 88, 512);
    LAYOUT(gm_stat, driver_bytes, 600, 8);
    LAYOUT(gm_stat, unseen, 608, 8);
    LAYOUT(gm_stat, marks_from, 616, 4);
    LAYOUT(gm_stat, lasts_from, 620, 4);
    LAYOUT(gm_stat, link_bytes, 624, 8);
    LAYOUT(gm_stat, link_launches, 632, 8);
    LAYOUT(gm_stat, exports, 640, 8);
    LAYOUT(gm_stat, works_in, 648, 4);
    LAYOUT(gm_stat, moving, 652, 4);
    LAYOUT(gm_stat, reserved, 656, 4096 - 656);
    LAYOUT(gm_stat, slot, 4096, 128 * 1024);
    assert_int_equal(sizeof(struct gm_stat), 4096 + 128 * 1024);

    LAYOUT(gm_slot, inside, 0, 4);
    LAYOUT(gm_slot, unused, 4, 4);
    LAYOUT(gm_slot, calls, 8, 8);
    LAYOUT(gm_slot, tid, 16, 4);
    LAYOUT(gm_slot, reserved, 20, 108);
    assert_int_equal(sizeof(struct gm_slot), 128);
}

/* Words in memory that two processes share must need no lock, or each side would have its own. */
static void test_atomics(void **state)
{
    struct gm_ctl *ctl = NULL;
    struct gm_slot *slot = NULL;
    (void)state;
    assert_true(atomic_is_lock_free(&ctl->gate));
    assert_true(atomic_is_lock_free(&ctl->epoch));
    assert_true(atomic_is_lock_free(&slot->inside));
    assert_true(atomic_is_lock_free(&slot->calls));
    assert_int_equal(sizeof(_Atomic uint32_t), 4);
    assert_int_equal(sizeof(_Atomic uint64_t), 8);
}

/* Behind the stat area a word for each 2 MiB of 47-bit addresses. */
static void test_words(void **state)
{
    (void)state;
    assert_int_equal(GM_WINDOW_WORDS_AT, 4096 + 128 * 1024);
    assert_int_equal(GM_STAT_BYTES, 4096 + 128 * 1024 + (512ull << 20));
    assert_int_equal(gm_window_offset(0), GM_WINDOW_WORDS_AT);
    assert_int_equal(gm_window_offset(5 * GM_CHUNK_MIN + 77), GM_WINDOW_WORDS_AT + 40);
    assert_true(gm_window_has((1ull << 47) - 1));
    assert_int_equal(gm_window_offset((1ull << 47) - 1), GM_STAT_BYTES - 8);
    assert_false(gm_window_has(1ull << 47));
    assert_false(gm_window_has(UINT64_MAX));

    struct gm_touch touch = gm_touch_unpack(0xabcdef0123456789ull);
    assert_int_equal(touch.window, 0xabcdef);
    assert_int_equal(touch.order, 0x01234);
    assert_int_equal(touch.count, 0x56789);
    assert_false(touch.is_exact);
    assert_true(gm_touch_unpack(0xabcdef01234d6789ull).is_exact);
    assert_int_equal(gm_touch_pack(gm_touch_unpack(0xabcdef01234d6789ull)), 0xabcdef01234d6789ull);
    assert_int_equal(gm_touch_pack(touch), 0xabcdef0123456789ull);
    assert_true(gm_touch_is_in(0xabcdef0123456789ull, 0x7abcdef));
    assert_false(gm_touch_is_in(0xabcdef0123456789ull, 0xabcdee));

    /* Nothing of a word runs over into what stands above it. */
    const struct gm_touch most = {
        .window = UINT32_MAX, .order = UINT32_MAX, .count = UINT32_MAX, .is_exact = 1};
    assert_int_equal(gm_touch_pack(most), UINT64_MAX);
    assert_int_equal(gm_touch_pack((struct gm_touch){.count = UINT32_MAX}), GM_WINDOW_COUNT_MAX);
    const uint64_t full =
        gm_touch_pack((struct gm_touch){.window = 1, .order = 2, .count = GM_WINDOW_COUNT_MAX - 1});
    touch = gm_touch_unpack(gm_touch_again(gm_touch_again(full, 1, 0), 1000, 0));
    assert_int_equal(touch.window, 1);
    assert_int_equal(touch.order, 2);
    assert_int_equal(touch.count, GM_WINDOW_COUNT_MAX);
    assert_int_equal(gm_touch_unpack(gm_touch_again(7, 5, 1)).count, 12);
    assert_int_equal(gm_touch_unpack(gm_touch_again(7, UINT32_MAX, 1)).count, GM_WINDOW_COUNT_MAX);
    /* Exact as long as all touches are. */
    const uint64_t exact =
        gm_touch_pack((struct gm_touch){.window = 1, .order = 2, .count = 3, .is_exact = 1});
    assert_true(gm_touch_unpack(gm_touch_again(exact, UINT32_MAX, 1)).is_exact);
    assert_false(gm_touch_unpack(gm_touch_again(exact, 1, 0)).is_exact);
    assert_false(gm_touch_unpack(gm_touch_again(gm_touch_again(exact, 1, 0), 1, 1)).is_exact);
}

static void test_window_numbers(void **state)
{
    (void)state;
    assert_int_equal(gm_window_after(0), 1);
    assert_int_equal(gm_window_after(41), 42);
    /* 0 in a word stands for never. */
    assert_int_equal(gm_window_after(GM_WINDOW_MASK - 1), GM_WINDOW_MASK);
    assert_int_equal(gm_window_after(GM_WINDOW_MASK), GM_WINDOW_MASK + 2);
    assert_int_equal(gm_window_after(UINT32_MAX), 1);

    const uint32_t now = (5u << GM_WINDOW_BITS) + 2;
    const struct gm_touch here = {.window = 2}, before = {.window = GM_WINDOW_MASK},
                          ahead = {.window = 3};
    assert_int_equal(gm_window_age(now, here), 0);
    assert_int_equal(gm_window_age(now, before), 3);
    assert_int_equal(gm_window_age(now, ahead), GM_WINDOW_MASK); /* long ago */
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(GM_SHM_MAGIC, 0x786d7567u);
    assert_memory_equal("gumx", &(uint32_t){GM_SHM_MAGIC}, 4);
    assert_int_equal(GM_GATE_OPEN, 0); /* the fast path compares with zero */
    assert_int_equal(GM_GATE_CLOSED, 1);
    assert_int_equal(GM_GATE_COLD, 2);
    /* WELCOME can describe every GPU that gm_ctl has a budget for. */
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    if (type == GM_MSG_WELCOME)                                                                    \
        assert_int_equal(max_entries, GM_GPUS_MAX);
#include "common/wire.def"
#undef GM_MSG
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ctl),
        cmocka_unit_test(test_stat),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_window_numbers),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
