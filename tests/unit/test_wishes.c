/* common/wishes: which limit of other systems is meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/wishes.h"

#define MIB (1ull << 20)

/* NAME, VALUE, ..., NULL */
static const char *const *environment;

static char *get(const char *name)
{
    for (const char *const *at = environment; *at != NULL; at += 2)
        if (strcmp(at[0], name) == 0)
            return (char *)(uintptr_t)at[1];
    return NULL;
}

static struct gm_msg_hello read_with(const char *const *names_and_values)
{
    struct gm_msg_hello hello = {.role = GM_ROLE_APP};
    environment = names_and_values;
    gm_wishes_read(get, &hello);
    return hello;
}

#define READ(...) read_with((const char *const[]){__VA_ARGS__, NULL})

#define LIMITS                                                                                     \
    "CUDA_DEVICE_MEMORY_LIMIT_0", "10m", "CUDA_DEVICE_MEMORY_LIMIT_2", "20m",                      \
        "CUDA_DEVICE_MEMORY_LIMIT_3", "30m"

static void expect_cap(struct gm_msg_hello hello, uint64_t mib)
{
    assert_int_equal(hello.cap, mib * MIB);
    assert_int_equal(hello.cap_is, mib == 0 ? GM_HELLO_CAP_UNSAID : GM_HELLO_CAP_FOREIGN);
}

/* HELLO and PLACE say a class by the same numbers. */
static void test_class(void **state)
{
    static const struct {
        const char *word;
        uint32_t said;
        enum gm_sched_class asks;
    } cases[] = {
        {"", 0, GM_CLASS_AUTO},
        {"auto", 1 + GM_CLASS_AUTO, GM_CLASS_AUTO},
        {"latency", 1 + GM_CLASS_LATENCY, GM_CLASS_LATENCY},
        {"batch", 1 + GM_CLASS_BATCH, GM_CLASS_BATCH},
        {"Batch", GM_HELLO_CLASS_UNKNOWN, GM_CLASS_AUTO},
        {"batch ", GM_HELLO_CLASS_UNKNOWN, GM_CLASS_AUTO},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct gm_msg_hello hello = READ("GPUMUX_CLASS", cases[i].word);
        assert_int_equal(hello.class, cases[i].said);
        assert_int_equal(gm_wishes_read_class(get), cases[i].said);
        assert_int_equal(gm_wishes_class(hello.class), cases[i].asks);
    }
    assert_int_equal(READ("A", "1").class, 0);
    assert_int_equal(gm_wishes_class(1 + GM_CLASSES), GM_CLASS_AUTO);
    assert_int_equal(gm_wishes_class(UINT32_MAX), GM_CLASS_AUTO);
}

static void test_weight(void **state)
{
    (void)state;
    assert_int_equal(READ("A", "1").weight, 0);
    assert_int_equal(READ("GPUMUX_WEIGHT", "").weight, 0);
    assert_int_equal(READ("GPUMUX_WEIGHT", "0.5").weight, 500);
    assert_int_equal(READ("GPUMUX_WEIGHT", "10").weight, 10000);
    static const char *const bad[] = {
        "x",    "0",
        "0.05", "11",
        "-1",   "1e3",
        "1 2",  "1000000000000000000000000000000000000000000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(READ("GPUMUX_WEIGHT", bad[i]).weight, GM_HELLO_WEIGHT_UNKNOWN);
    assert_null(gm_wishes_wrong_weight(0));
    assert_null(gm_wishes_wrong_weight(100));
    assert_non_null(gm_wishes_wrong_weight(99));
    assert_non_null(gm_wishes_wrong_weight(10001));
    assert_non_null(gm_wishes_wrong_weight(GM_HELLO_WEIGHT_UNKNOWN));
}

static void test_of_the_devices_that_are_meant(void **state)
{
    (void)state;
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "2"), 20);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", " 3 , 2"), 20);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "3"), 30);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "1"), 0);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "3,-1,0"), 30);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "3,99999999999999999999,0"), 30);
}

static void test_without_numbers_all_are_meant(void **state)
{
    (void)state;
    expect_cap(READ(LIMITS), 10);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", ""), 10);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "-1"), 10);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "GPU-1ea5"), 10);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "3,MIG-1ea5"), 10);
}

static void test_a_device_before_all(void **state)
{
    (void)state;
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "2", "CUDA_DEVICE_MEMORY_LIMIT", "4m"), 20);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "1", "CUDA_DEVICE_MEMORY_LIMIT", "4m"), 4);
    expect_cap(READ(LIMITS, "CUDA_VISIBLE_DEVICES", "1,2", "GPU_MEMORY_LIMIT", "4m"), 4);
    expect_cap(READ("GPU_MEMORY_LIMIT", "4m", "CUDA_DEVICE_MEMORY_LIMIT", ""), 4);
    expect_cap(READ("GPU_MEMORY_LIMIT", "4m", "CUDA_DEVICE_MEMORY_LIMIT", "8m"), 8);
}

static void test_what_is_no_size(void **state)
{
    (void)state;
    struct gm_msg_hello hello =
        READ("CUDA_DEVICE_MEMORY_LIMIT_2", "lots", "CUDA_VISIBLE_DEVICES", "2");
    assert_int_equal(hello.cap_is, GM_HELLO_CAP_UNKNOWN);
    hello = READ("CUDA_DEVICE_MEMORY_LIMIT_2", "lots", "CUDA_VISIBLE_DEVICES", "1");
    assert_int_equal(hello.cap_is, GM_HELLO_CAP_UNSAID);
    hello = READ("CUDA_DEVICE_MEMORY_LIMIT_2", "1", "CUDA_VISIBLE_DEVICES", "2");
    assert_int_equal(hello.cap_is, GM_HELLO_CAP_UNKNOWN);
    hello = READ("GPUMUX_CAP", "6M", LIMITS);
    assert_int_equal(hello.cap_is, GM_HELLO_CAP_OURS);
    assert_int_equal(hello.cap, 6 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_class),
        cmocka_unit_test(test_weight),
        cmocka_unit_test(test_of_the_devices_that_are_meant),
        cmocka_unit_test(test_without_numbers_all_are_meant),
        cmocka_unit_test(test_a_device_before_all),
        cmocka_unit_test(test_what_is_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
