/* common/text: parts are appended within bounds, whatever they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/text.h"

static void test_add(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 12; size++) {
        char text[16], whole[64] = "";
        memset(text, '#', sizeof text);
        text[0] = '\0';
        for (unsigned i = 0; i < 8; i++) {
            strcat(whole, i % 2 ? "5 " : "seven");
            const size_t length =
                i % 2 ? gm_text_add(text, size, "%d ", 5) : gm_text_add(text, size, "%s", "seven");
            assert_int_equal(length, strlen(whole) < size ? strlen(whole) : size - 1);
            assert_int_equal(strlen(text), length);
            assert_memory_equal(text, whole, length);
            for (size_t k = size; k < sizeof text; k++)
                assert_int_equal(text[k], '#');
        }
    }
}

/* What does not end within its size stays as it is. */
static void test_endless(void **state)
{
    char text[8];
    (void)state;
    memset(text, '#', sizeof text);
    assert_int_equal(gm_text_add(text, 4, "%s", "more"), 3);
    for (size_t i = 0; i < sizeof text; i++)
        assert_int_equal(text[i], '#');
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_add), cmocka_unit_test(test_endless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
