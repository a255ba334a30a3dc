/* shim/observe/channels over a kernel driver that the test is. */
#include <sys/wait.h>

#include "tests/unit/channels_world.h"

static void test_forms(void **state)
{
    (void)state;
    assert_int_equal(gm_channels_park(), GM_PARK_NONE);
    gm_channels_resume();
    for (form = SHORT; form <= WRAPPED; form++) {
        struct context context = make_context(FILE_A, 0, 0);
        check_parks();
        assert_int_equal(gm_channels_compute_groups(), 1);
        drop(FILE_A, context.client, context.client);
        assert_int_equal(gm_channels_compute_groups(), 0);
        assert_int_equal(gm_channels_park(), GM_PARK_NONE);
    }
    assert_int_equal(driver.disables, 12); /* two controls for each park and resume */
}

/* Parked once for two, and resumed once. */
static void test_twice(void **state)
{
    (void)state;
    make_context(FILE_A, 0, 0);
    assert_int_equal(gm_channels_park(), GM_PARK_DONE);
    assert_int_equal(gm_channels_park(), GM_PARK_DONE);
    assert_int_equal(driver.disables, 2);
    gm_channels_resume();
    gm_channels_resume();
    assert_int_equal(driver.disables, 4);
    check_all(false);
}

static void test_frees(void **state)
{
    (void)state;
    struct context one = make_context(FILE_A, 0, 0), two = make_context(FILE_A, one.client, 0);
    uint32_t channel = make_channel(FILE_A, one.client, one.copies[0]);
    check_parks();
    drop(FILE_A, one.client, channel);
    check_parks();
    drop(FILE_A, one.client, one.copies[1]);
    check_parks();
    drop(FILE_A, one.client, one.device);
    check_parks();
    assert_int_equal(gm_channels_compute_groups(), 1);

    /* A free that the driver refuses frees nothing. */
    struct gm_rm_free in = {.client = two.client, .object = two.group, .status = 99};
    driver.fail_errno = EIO;
    errno = 0;
    assert_int_equal(call(FILE_A, GM_RM_FREE, &in, sizeof in), -1);
    assert_int_equal(errno, EIO);
    driver.fail_errno = 0;
    assert_int_equal(gm_channels_compute_groups(), 1);
    check_parks();
    drop(FILE_A, two.client, two.client);
    assert_int_equal(gm_channels_park(), GM_PARK_NONE);

    /* The driver gives the handles away again. */
    driver.next_handle = 0;
    make_context(FILE_A, 0, 0);
    check_parks();
}

/* Each GPU's channels through a subdevice of that GPU. */
static void test_devices(void **state)
{
    (void)state;
    struct context one = make_context(FILE_A, 0, 0);
    struct context two = make_context(FILE_B, 0, 1);
    struct context three = make_context(FILE_A, one.client, 0);
    check_parks();
    assert_int_equal(driver.disables, 2 * 2 * 3);
    drop(FILE_B, two.client, two.client);
    drop(FILE_A, three.client, three.device);
    check_parks();

    /* A green context: a second group of the same device. */
    uint32_t green = make_group(FILE_A, one.client, one.device, GM_RM_ENGINE_GRAPHICS);
    for (unsigned i = 0; i < 8; i++)
        make_channel(FILE_A, one.client, green);
    assert_int_equal(gm_channels_compute_groups(), 2);
    check_parks();

    /* A group on a part of a GPU is known by what runs in it; a channel needs no group. */
    uint32_t part = make_group(FILE_A, one.client, one.device, 3);
    uint32_t channel = make_channel(FILE_A, one.client, part);
    assert_int_equal(gm_channels_compute_groups(), 2);
    make(FILE_A, one.client, channel, GM_RM_CLASS_COMPUTE_HOPPER, NULL);
    assert_int_equal(gm_channels_compute_groups(), 3);
    make_channel(FILE_A, one.client, one.device);
    check_parks();
}

/* A client that has no subdevice takes another's of the same GPU; there must be one. */
static void test_no_subdevice(void **state)
{
    (void)state;
    struct context one = make_context(FILE_A, 0, 7);
    uint32_t client = make(FILE_A, 0, 0, GM_RM_CLASS_CLIENT, NULL);
    uint32_t device = make_device(FILE_A, client, 7);
    uint32_t group = make_group(FILE_A, client, device, GM_RM_ENGINE_GRAPHICS);
    make_channel(FILE_A, client, group);
    check_parks();

    uint32_t other = make_device(FILE_A, client, 8);
    group = make_group(FILE_A, client, other, GM_RM_ENGINE_GRAPHICS);
    make_channel(FILE_A, client, group);
    assert_int_equal(gm_channels_park(), GM_PARK_NONE);
    check_all(false);
    drop(FILE_A, client, other);
    check_parks();
    drop(FILE_A, one.client, one.subdevice);
    assert_int_equal(gm_channels_park(), GM_PARK_NONE);
    check_all(false);
}

/* More than one control's worth: no group is cut in two, not even by a full list. */
static void test_many(void **state)
{
    (void)state;
    struct context one = make_context(FILE_A, 0, 0);
    for (unsigned i = 0; i < 20; i++) {
        uint32_t group = make_group(FILE_A, one.client, one.device, GM_RM_ENGINE_GRAPHICS);
        for (unsigned j = 0; j < 1 + i % 13; j++)
            make_channel(FILE_A, one.client, group);
    }
    check_parks();
    assert_true(driver.disables <= 2 * 4); /* 130 channels */

    /* A group that is larger than a control cannot be parked. */
    uint32_t group = make_group(FILE_A, one.client, one.device, GM_RM_ENGINE_GRAPHICS);
    for (unsigned i = 0; i < GM_RM_DISABLE_MOST; i++)
        make_channel(FILE_A, one.client, group);
    check_parks();
    uint32_t last = make_channel(FILE_A, one.client, group);
    assert_int_equal(gm_channels_park(), GM_PARK_NONE);
    check_all(false);
    drop(FILE_A, one.client, last);
    check_parks();
}

static void test_table_full(void **state)
{
    (void)state;
    struct context one = make_context(FILE_A, 0, 0);
    uint32_t group = 0;
    for (unsigned i = 0; i < GM_CHANNELS_MAX / 2; i++) {
        group = make_group(FILE_A, one.client, one.device, GM_RM_ENGINE_COPY0);
        make_channel(FILE_A, one.client, group);
    }
    assert_int_equal(gm_channels_park(), GM_PARK_NONE);
    check_all(false);
    /* Which ones it lacks is not known, so it stays so. */
    drop(FILE_A, one.client, group);
    assert_int_equal(gm_channels_park(), GM_PARK_NONE);
    check_all(false);
}

/* Second handles: of a device and a subdevice in another client, and of a channel. */
static void test_dups(void **state)
{
    (void)state;
    struct context one = make_context(FILE_A, 0, 0);
    uint32_t client = make(FILE_A, 0, 0, GM_RM_CLASS_CLIENT, NULL);
    uint32_t device = copy(FILE_A, client, client, one.client, one.device);
    uint32_t group = make_group(FILE_A, client, device, GM_RM_ENGINE_GRAPHICS);
    uint32_t channel = make_channel(FILE_A, client, group);
    check_parks();
    assert_int_equal(driver.disables, 2 * 2); /* through the one subdevice of this GPU */

    uint32_t twin = copy(FILE_A, one.client, one.group, client, channel);
    check_parks();
    drop(FILE_A, one.client, twin);
    check_parks();
    uint32_t groups = copy(FILE_A, client, device, one.client, one.group);
    assert_int_equal(gm_channels_compute_groups(), 2);
    check_parks();
    drop(FILE_A, client, groups);
    assert_int_equal(gm_channels_compute_groups(), 2);

    /* The client that it came from goes: a subdevice of its own is left. */
    copy(FILE_A, client, device, one.client, one.subdevice);
    check_parks();
}

static void test_refused(void **state)
{
    (void)state;
    static const uint32_t statuses[] = {GM_RM_INSUFFICIENT_PERMISSIONS, GM_RM_NOT_SUPPORTED,
                                        GM_RM_INVALID_CLIENT};
    make_context(FILE_A, 0, 0);
    make_context(FILE_B, 0, 1);
    for (unsigned i = 0; i < 6; i++) {
        driver.refuse = GM_RM_DISABLE_CHANNELS;
        driver.refuse_status = statuses[i / 2];
        driver.refuse_after = i % 2;
        assert_int_equal(gm_channels_park(), GM_PARK_REFUSED);
        driver.refuse = 0;
        check_parks();
    }
    driver.fail_errno = EINVAL;
    assert_int_equal(gm_channels_park(), GM_PARK_REFUSED);
    driver.fail_errno = 0;
    check_parks();
}

/* Enabling them at once is refused: one by one. */
static void test_one_by_one(void **state)
{
    (void)state;
    make_context(FILE_A, 0, 0);
    driver.is_single = true;
    check_parks();
    driver.refuse = GM_RM_DISABLE_CHANNELS;
    driver.refuse_status = GM_RM_NOT_SUPPORTED;
    assert_int_equal(gm_channels_park(), GM_PARK_REFUSED);
    check_all(false);
}

static struct context context; /* of the following tests */
static enum gm_park_result park_result;

static void park_now(void)
{
    park_result = gm_channels_park();
}

static void drop_a_channel(void)
{
    for (uint32_t i = 0; i < driver.n; i++)
        if (driver.things[i].is_there && GM_RM_IS_CHANNEL(driver.things[i].class_)) {
            drop(FILE_A, context.client, driver.things[i].handle);
            return;
        }
}

static void test_changed(void **state)
{
    (void)state;
    context = make_context(FILE_A, 0, 0);

    /* A channel, or a group, is being made. */
    park_result = GM_PARK_DONE;
    driver.in_alloc = park_now;
    uint32_t group = make_group(FILE_A, context.client, context.device, GM_RM_ENGINE_COPY0);
    assert_int_equal(park_result, GM_PARK_CHANGED);
    park_result = GM_PARK_DONE;
    driver.in_alloc = park_now;
    make_channel(FILE_A, context.client, group);
    assert_int_equal(park_result, GM_PARK_CHANGED);
    check_parks();

    /* Something else is. */
    park_result = GM_PARK_CHANGED;
    driver.in_alloc = park_now;
    make(FILE_A, context.client, context.device, 0x3e, NULL);
    assert_int_equal(park_result, GM_PARK_DONE);
    check_all(true);
    gm_channels_resume();

    /* One goes after the list was made. */
    driver.in_disable = drop_a_channel;
    assert_int_equal(gm_channels_park(), GM_PARK_CHANGED);
    check_parks();

    /* And while all are parked. */
    assert_int_equal(gm_channels_park(), GM_PARK_DONE);
    drop_a_channel();
    drop(FILE_A, context.client, context.copies[2]);
    gm_channels_resume();
    check_parks();
}

static _Atomic bool is_made;

static void *make_one(void *unused)
{
    (void)unused;
    make_channel(FILE_A, context.client, context.group);
    atomic_store(&is_made, true);
    return NULL;
}

static void *schedule_one(void *unused)
{
    (void)unused;
    struct gm_rm_schedule params = {.is_enable = 1};
    control(FILE_A, context.client, context.group, GM_RM_SCHEDULE_GROUP, &params, sizeof params);
    atomic_store(&is_made, true);
    return NULL;
}

/* Whoever adds to what is parked, or sets it going, waits; also who comes while it is being parked.
 */
static void test_waits(void **state)
{
    (void)state;
    static void *(*const works[])(void *) = {make_one, schedule_one};
    pthread_t thread;
    context = make_context(FILE_A, 0, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(gm_channels_park(), GM_PARK_DONE);
        unsigned calls = driver.calls;
        atomic_store(&is_made, false);
        assert_int_equal(pthread_create(&thread, NULL, works[i], NULL), 0);
        usleep(50000);
        assert_false(atomic_load(&is_made));
        assert_int_equal(driver.calls, calls); /* the driver was not even asked */
        check_all(true);
        gm_channels_resume();
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(atomic_load(&is_made));
        check_parks();
    }

    /* A new group is let through, with its channels; it is parked the next time. */
    assert_int_equal(gm_channels_park(), GM_PARK_DONE);
    unsigned calls = driver.calls;
    uint32_t group = make_group(FILE_A, context.client, context.device, GM_RM_ENGINE_COPY0);
    uint32_t channel = make_channel(FILE_A, context.client, group);
    control(FILE_A, context.client, channel, GM_RM_SCHEDULE_CHANNEL, NULL, 0);
    assert_int_equal(driver.calls, calls + 3);
    gm_channels_resume();
    check_parks();
}

static pthread_t late;

/* Comes while the list is made and not yet disabled. */
static void start_late(void)
{
    atomic_store(&is_made, false);
    assert_int_equal(pthread_create(&late, NULL, make_one, NULL), 0);
    usleep(20000);
    assert_false(atomic_load(&is_made));
}

static void test_comes_while_parking(void **state)
{
    (void)state;
    context = make_context(FILE_A, 0, 0);
    driver.in_disable = start_late;
    assert_int_equal(gm_channels_park(), GM_PARK_DONE);
    check_all(true);
    assert_false(atomic_load(&is_made));
    gm_channels_resume();
    assert_int_equal(pthread_join(late, NULL), 0);
    check_parks();
}

static uint64_t slice_of(const struct context *of)
{
    return driver_find(of->client, of->group)->us;
}

static void test_timeslice(void **state)
{
    (void)state;
    assert_int_equal(gm_channels_timeslice(0), 0);
    assert_int_equal(gm_channels_try_timeslice(), -ENOENT);
    struct context one = make_context(FILE_A, 0, 0);
    assert_int_equal(slice_of(&one), OWN_US);
    assert_int_equal(gm_channels_try_timeslice(), 0);
    assert_int_equal(slice_of(&one), OWN_US);
    unsigned slices = driver.slices;
    assert_int_equal(gm_channels_timeslice(0), 0); /* nothing to undo */
    assert_int_equal(driver.slices, slices);

    assert_int_equal(gm_channels_timeslice(1), 0);
    assert_int_equal(slice_of(&one), 1);
    assert_int_equal(driver_find(one.client, one.copies[0])->us, 1000); /* no compute */

    /* One that comes later, in whichever form, after libcuda's own. */
    form = WRAPPED;
    struct context two = make_context(FILE_B, 0, 1);
    assert_int_equal(slice_of(&two), 1);
    /* One for which libcuda sets none, once it is set going. */
    uint32_t green = make_group(FILE_A, one.client, one.device, GM_RM_ENGINE_GRAPHICS);
    uint32_t channel = make_channel(FILE_A, one.client, green);
    control(FILE_A, one.client, channel, GM_RM_SCHEDULE_CHANNEL, NULL, 0);
    assert_int_equal(driver_find(one.client, green)->us, 1);

    /* libcuda sets another one, and sees what its own call left in errno. */
    struct gm_rm_timeslice own = {.us = 4096};
    slices = driver.slices;
    unsigned calls = driver.calls;
    assert_int_equal(control(FILE_A, one.client, one.group, GM_RM_SET_TIMESLICE, &own, sizeof own),
                     GM_RM_OK);
    assert_int_equal(errno, calls + 1);
    assert_int_equal(own.us, 4096);
    assert_int_equal(driver.slices, slices + 2);
    assert_int_equal(slice_of(&one), 1);

    /* Back to what each had. */
    assert_int_equal(gm_channels_timeslice(0), 0);
    assert_int_equal(slice_of(&one), 4096);
    assert_int_equal(slice_of(&two), OWN_US);
    assert_int_equal(driver_find(one.client, green)->us, 1000);
    struct context three = make_context(FILE_A, one.client, 0);
    assert_int_equal(slice_of(&three), OWN_US);

    driver.refuse = GM_RM_SET_TIMESLICE;
    driver.refuse_status = GM_RM_INSUFFICIENT_PERMISSIONS;
    assert_int_equal(gm_channels_timeslice(5), -EACCES);
    assert_int_equal(gm_channels_try_timeslice(), -EACCES);
    driver.refuse = 0;
    driver.is_deaf = true;
    assert_int_equal(gm_channels_timeslice(6), -EIO);
    assert_int_equal(gm_channels_try_timeslice(), -EIO);
    driver.is_deaf = false;
    assert_int_equal(gm_channels_timeslice(7), 0);
    assert_int_equal(slice_of(&three), 7);
}

/* In a forked child nothing is known, nothing waits, and the parent's channels are left alone. */
static void test_fork(void **state)
{
    (void)state;
    context = make_context(FILE_A, 0, 0);
    assert_int_equal(gm_channels_timeslice(1), 0);
    assert_int_equal(gm_channels_park(), GM_PARK_DONE);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        gm_channels_after_fork();
        unsigned calls = driver.calls;
        gm_channels_resume();
        bool is_right = gm_channels_park() == GM_PARK_NONE && gm_channels_timeslice(5) == 0 &&
                        gm_channels_timeslice(0) == 0 && driver.calls == calls;
        make_one(NULL);
        struct context own = make_context(FILE_B, 0, 0);
        drop(FILE_A, context.client, context.client);
        is_right = is_right && slice_of(&own) == OWN_US && gm_channels_park() == GM_PARK_DONE;
        gm_channels_resume();
        check_all(false);
        _exit(is_right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    gm_channels_resume();
    check_all(false);
}

/* What is not understood is passed on as it is, and nothing is read from it. */
static void test_untouched(void **state)
{
    (void)state;
    static const unsigned long requests[] = {
        _IOC(_IOC_READ | _IOC_WRITE, GM_RM_MAGIC, 0x4a, 16),
        _IOC(_IOC_READ | _IOC_WRITE, GM_RM_MAGIC, GM_RM_ALLOC, 8),
        _IOC(_IOC_READ | _IOC_WRITE, GM_RM_MAGIC, GM_RM_FREE, 4),
        _IOC(_IOC_NONE, GM_RM_MAGIC, GM_RM_CONTROL, 0),
    };
    static uint8_t body[48];
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(gm_channels_ioctl(FILE_B, requests[i], body), 0);
        assert_int_equal(driver.fd, FILE_B);
        assert_int_equal(driver.request, requests[i]);
        assert_ptr_equal(driver.arg, body);
        assert_int_equal(errno, driver.calls);
    }
    driver.fail_errno = EFAULT;
    for (unsigned i = 0; i < 3; i++) {
        static const uint32_t numbers[] = {GM_RM_ALLOC, GM_RM_FREE, GM_RM_CONTROL};
        static const uint32_t sizes[] = {sizeof(struct gm_rm_alloc), sizeof(struct gm_rm_free),
                                         sizeof(struct gm_rm_control)};
        errno = 0;
        form = i == 0 ? SHORT : WRAPPED;
        assert_int_equal(call(FILE_A, numbers[i], NULL, sizes[i]), -1);
        assert_int_equal(errno, EFAULT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_forms, set_up),
        cmocka_unit_test_setup(test_twice, set_up),
        cmocka_unit_test_setup(test_frees, set_up),
        cmocka_unit_test_setup(test_devices, set_up),
        cmocka_unit_test_setup(test_no_subdevice, set_up),
        cmocka_unit_test_setup(test_many, set_up),
        cmocka_unit_test_setup(test_table_full, set_up),
        cmocka_unit_test_setup(test_dups, set_up),
        cmocka_unit_test_setup(test_refused, set_up),
        cmocka_unit_test_setup(test_one_by_one, set_up),
        cmocka_unit_test_setup(test_changed, set_up),
        cmocka_unit_test_setup(test_waits, set_up),
        cmocka_unit_test_setup(test_comes_while_parking, set_up),
        cmocka_unit_test_setup(test_timeslice, set_up),
        cmocka_unit_test_setup(test_fork, set_up),
        cmocka_unit_test_setup(test_untouched, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
