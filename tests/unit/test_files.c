/* daemon/files: which files are kept, at every limit. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/memory/files.h"

static int lowest(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void test_kept(void **state)
{
    (void)state;
    assert_false(gm_files_is_reserved(1 << 20)); /* nothing is set yet */
    gm_files_init(200);
    assert_int_equal(gm_files_limit(), 200);
    assert_int_equal(gm_files_reserved(), 50);
    assert_false(gm_files_is_reserved(149));
    assert_true(gm_files_is_reserved(150));
    assert_false(gm_files_is_reserved(-1)); /* no file */
    gm_files_init(524288);
    assert_int_equal(gm_files_reserved(), GM_FILES_RESERVED);
    assert_false(gm_files_is_reserved(524288 - GM_FILES_RESERVED - 1));
    assert_true(gm_files_is_reserved(524288 - GM_FILES_RESERVED));
    gm_files_init(UINT64_MAX); /* unlimited */
    assert_false(gm_files_is_reserved(INT32_MAX));
}

static void test_left(void **state)
{
    (void)state;
    uint32_t used = (uint32_t)lowest();
    gm_files_init(400);
    assert_int_equal(gm_files_left(), 400 - 96 - used);
    int fd = dup(STDERR_FILENO);
    assert_int_equal(gm_files_left(), 400 - 96 - used - 1);
    close(fd);
    gm_files_init(used + 1); /* the next file would be one of those that are kept */
    assert_true(used < 4 || gm_files_left() == 0);
    gm_files_init(4);
    assert_int_equal(gm_files_left(), used < 3 ? 3 - used : 0);
}

/* What slabs are to have is nobody else's, whether they have it or not. */
static void test_slabs(void **state)
{
    (void)state;
    while (lowest() < 300) /* whatever it has inherited */
        assert_true(dup(STDERR_FILENO) >= 0);
    const uint32_t used = (uint32_t)lowest(), left = 1000 - GM_FILES_RESERVED - used;
    gm_files_init(1000);
    assert_false(gm_files_hold_slabs(left / 4 + 1, UINT32_MAX));
    assert_int_equal(gm_files_divide(), left / 3);
    assert_true(gm_files_hold_slabs(left / 4, UINT32_MAX));
    assert_int_equal(gm_files_divide(), (left - left / 4) / 3);
    const uint32_t frames = gm_files_for_frames();
    assert_int_equal(frames, left - left / 4 - (left - left / 4) / 3);
    const int slab = dup(STDERR_FILENO), frame = dup(STDERR_FILENO);
    gm_files_add_slab();
    gm_files_adopt_frame();
    assert_int_equal(gm_files_left(), left - 2);
    assert_int_equal(gm_files_divide(), (left - left / 4) / 3); /* they are counted once */
    assert_int_equal(gm_files_for_frames(), frames);
    assert_int_equal(gm_files_left_for_frames(), frames - 1);
    assert_true(gm_files_hold_slabs(left / 4, UINT32_MAX)); /* as another GPU asks */
    /* The keeper has fewer. */
    assert_false(gm_files_hold_slabs(30, 100));
    assert_true(gm_files_hold_slabs(25, 100));
    assert_int_equal(gm_files_divide(), (left - 25) / 3);
    assert_int_equal(gm_files_for_frames(), 50);
    assert_int_equal(gm_files_left_for_frames(), 49);
    gm_files_drop_slab();
    gm_files_drop_frame();
    close(slab);
    close(frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
