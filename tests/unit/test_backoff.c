/* core/backoff: how long what failed is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/core/backoff.h"
#include "daemon/core/tunables.h"

/* Twice as long after each failure in a row, up to a most; then it goes well, and all is as new. */
static void doubles(void **state)
{
    struct gm_backoff backoff = {0};
    uint64_t now = 7, wait = GM_RETRY_NS;
    (void)state;
    for (int i = 0; i < 12; i++) {
        gm_backoff_fail(&backoff, now);
        assert_int_equal(backoff.at, now + wait);
        assert_false(gm_backoff_come(&backoff, backoff.at - 1));
        now = backoff.at;
        assert_true(gm_backoff_come(&backoff, now));
        assert_false(gm_backoff_come(&backoff, now)); /* once */
        wait = 2 * wait < GM_RETRY_MOST_NS ? 2 * wait : GM_RETRY_MOST_NS;
    }
    assert_int_equal(wait, GM_RETRY_MOST_NS);
    gm_backoff_go_well(&backoff, now);
    gm_backoff_fail(&backoff, now);
    assert_int_equal(backoff.at, now + GM_RETRY_NS);
}

/* Many fail at once, and some that had begun before go well. */
static void what_began_before_does_not_count(void **state)
{
    struct gm_backoff backoff = {0};
    (void)state;
    gm_backoff_fail(&backoff, 10);
    gm_backoff_fail(&backoff, 10);
    gm_backoff_fail(&backoff, 9 + GM_RETRY_NS);
    gm_backoff_go_well(&backoff, 9 + GM_RETRY_NS);
    assert_int_equal(backoff.at, 10 + GM_RETRY_NS);
    gm_backoff_fail(&backoff, 10 + GM_RETRY_NS);
    assert_int_equal(backoff.wait, 2 * GM_RETRY_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles),
        cmocka_unit_test(what_began_before_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
