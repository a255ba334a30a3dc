/*
 * shim/observe/channels over a kernel driver that the test is. It has clients, devices,
 * subdevices, groups and channels. As the real one it stops a group only if one control names all
 * channels of it, accepts a control that does not, and refuses a handle that it does not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/driver/rm.h"
#include "shim/observe/channels.h"

#define MOST 8192u
#define FILE_A 40 /* numbers of open files; nobody opens them */
#define FILE_B 41
#define OWN_US 2048u /* what libcuda sets */

struct thing {
    uint32_t client, parent, handle, class_;
    int fd;
    bool is_there, is_disabled, is_stopped;
    bool is_compute; /* a group, by its engine or by what is made in its channels */
    uint64_t us;
    uint32_t real; /* of a second handle: 1 + the first one's place */
};

static struct {
    pthread_mutex_t lock;
    struct thing things[MOST];
    uint32_t n, next_handle;
    unsigned calls, disables, slices; /* that came */
    int fd;                           /* the last one */
    unsigned long request;
    void *arg;

    uint32_t refuse; /* this command, with the status; DISABLE: not to enable */
    uint32_t refuse_status;
    unsigned refuse_after; /* not the first ones */
    bool is_single;        /* enables one channel in a call, not more */
    bool is_deaf;          /* takes a timeslice and keeps the old one */
    int fail_errno;        /* all calls fail */
    /* Called once, as soon as such a call is there. */
    void (*in_disable)(void), (*in_alloc)(void);
} driver;

static struct thing *driver_find(uint32_t client, uint32_t handle)
{
    for (uint32_t i = 0; i < driver.n; i++) {
        struct thing *thing = &driver.things[i];
        if (thing->is_there && thing->client == client && thing->handle == handle)
            return thing->real != 0 ? &driver.things[thing->real - 1] : thing;
    }
    return NULL;
}

static uint32_t driver_add(int fd, uint32_t client, uint32_t parent, uint32_t *handle,
                           uint32_t class_, uint64_t params)
{
    const struct gm_rm_group_params *of_group = (const void *)(uintptr_t)params;
    assert_true(driver.n < MOST);
    if (*handle == 0)
        *handle = ++driver.next_handle;
    if (GM_RM_IS_COMPUTE(class_)) {
        const struct thing *channel = driver_find(client, parent);
        struct thing *group = channel == NULL ? NULL : driver_find(client, channel->parent);
        if (group != NULL)
            group->is_compute = true;
    }
    driver.things[driver.n++] = (struct thing){
        .client = class_ == GM_RM_CLASS_CLIENT ? *handle : client,
        .parent = parent,
        .handle = *handle,
        .class_ = class_,
        .fd = fd,
        .is_there = true,
        .is_compute = class_ == GM_RM_CLASS_GROUP && of_group != NULL &&
                      of_group->engine == GM_RM_ENGINE_GRAPHICS,
        .us = 1000,
    };
    return GM_RM_OK;
}

static void driver_remove(uint32_t client, uint32_t handle)
{
    for (uint32_t i = 0; i < driver.n; i++) {
        struct thing *thing = &driver.things[i];
        if (!thing->is_there || thing->client != client ||
            (handle != client && thing->handle != handle && thing->parent != handle))
            continue;
        thing->is_there = false;
        if (handle != client && thing->handle != handle)
            driver_remove(client, thing->handle);
    }
}

static bool driver_computes(const struct thing *channel)
{
    const struct thing *group = driver_find(channel->client, channel->parent);
    return group != NULL && group->is_compute;
}

/* What computes is stopped first, and by calls of its own. */
static void driver_check_order(const struct gm_rm_disable *params)
{
    unsigned n_compute = 0;
    for (uint32_t i = 0; i < params->n; i++)
        n_compute += driver_computes(driver_find(params->client[i], params->channel[i]));
    if (n_compute == 0)
        return;
    assert_int_equal(n_compute, params->n);
    for (uint32_t i = 0; i < driver.n; i++)
        if (driver.things[i].is_there && driver.things[i].is_disabled)
            assert_true(driver_computes(&driver.things[i]));
}

static uint32_t driver_disable(const struct gm_rm_control *control, struct gm_rm_disable *params)
{
    assert_int_equal(control->params_size, sizeof *params);
    assert_true(params->n >= 1 && params->n <= GM_RM_DISABLE_MOST);
    assert_int_equal(params->is_only_scheduling, 0);
    assert_int_equal(params->is_rewind, 0);
    assert_int_equal(params->preempt_event, 0);
    driver.disables++;
    if (driver.is_single && !params->is_disable && params->n > 1)
        return GM_RM_INVALID_ARGUMENT;
    const struct thing *via = driver_find(control->client, control->object);
    if (via == NULL || via->class_ != GM_RM_CLASS_SUBDEVICE)
        return GM_RM_INVALID_OBJECT_HANDLE;
    for (uint32_t i = 0; i < params->n; i++) {
        const struct thing *channel = driver_find(params->client[i], params->channel[i]);
        if (channel == NULL)
            return GM_RM_INVALID_CHANNEL;
        assert_int_equal(channel->fd, via->fd); /* of the same GPU, in these tests */
    }
    if (params->is_disable)
        driver_check_order(params);
    for (uint32_t i = 0; i < params->n; i++)
        driver_find(params->client[i], params->channel[i])->is_disabled = params->is_disable;
    for (uint32_t i = 0; i < driver.n; i++) {
        struct thing *group = &driver.things[i];
        if (!group->is_there || group->class_ != GM_RM_CLASS_GROUP)
            continue;
        unsigned named = 0, has = 0;
        for (uint32_t j = 0; j < driver.n; j++) {
            const struct thing *channel = &driver.things[j];
            if (!channel->is_there || channel->real != 0 || channel->client != group->client ||
                channel->parent != group->handle || !GM_RM_IS_CHANNEL(channel->class_))
                continue;
            has++;
            for (uint32_t k = 0; k < params->n; k++)
                named += driver_find(params->client[k], params->channel[k]) == channel;
        }
        if (params->is_disable && named == has && has > 0)
            group->is_stopped = true;
        if (!params->is_disable && named > 0)
            group->is_stopped = false;
    }
    return GM_RM_OK;
}

static uint32_t driver_control(struct gm_rm_control *control)
{
    void *params = (void *)(uintptr_t)control->params;
    if (control->command == driver.refuse && (control->command != GM_RM_DISABLE_CHANNELS ||
                                              ((struct gm_rm_disable *)params)->is_disable)) {
        if (driver.refuse_after == 0)
            return driver.refuse_status;
        driver.refuse_after--;
    }
    struct thing *thing = driver_find(control->client, control->object);
    if (thing == NULL)
        return GM_RM_INVALID_OBJECT_HANDLE;
    switch (control->command) {
    case GM_RM_DISABLE_CHANNELS:
        return driver_disable(control, params);
    case GM_RM_SET_TIMESLICE:
        driver.slices++;
        if (!driver.is_deaf)
            thing->us = ((struct gm_rm_timeslice *)params)->us;
        return GM_RM_OK;
    case GM_RM_GET_TIMESLICE:
        ((struct gm_rm_timeslice *)params)->us = thing->us;
        return GM_RM_OK;
    default:
        return GM_RM_OK;
    }
}

static void once(void (**callback)(void))
{
    void (*call)(void) = *callback;
    *callback = NULL;
    if (call != NULL)
        call();
}

/* The kernel driver. */
static int driver_ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *given = va_arg(args, void *);
    uint8_t *arg = given;
    va_end(args);
    if (driver.fail_errno != 0) {
        errno = driver.fail_errno;
        return -1;
    }
    uint32_t number = GM_RM_NUMBER(request), size = GM_RM_SIZE(request);
    if (number == GM_RM_WRAPPED) {
        const struct gm_rm_wrapped *wrapped = (const void *)arg;
        number = wrapped->number;
        size = wrapped->size;
        arg = (uint8_t *)(uintptr_t)wrapped->pointer;
    }
    const struct gm_rm_control *control = (const void *)arg;
    if (number == GM_RM_CONTROL && size == sizeof *control &&
        control->command == GM_RM_DISABLE_CHANNELS &&
        ((struct gm_rm_disable *)(uintptr_t)control->params)->is_disable)
        once(&driver.in_disable);
    if (number == GM_RM_ALLOC)
        once(&driver.in_alloc);
    pthread_mutex_lock(&driver.lock);
    driver.fd = fd;
    driver.request = request;
    driver.arg = given;
    if (number == GM_RM_ALLOC && size == sizeof(struct gm_rm_alloc)) {
        struct gm_rm_alloc *in = (void *)arg;
        in->status = driver_add(fd, in->client, in->parent, &in->object, in->class_, in->params);
    } else if (number == GM_RM_ALLOC && size == sizeof(struct gm_rm_alloc_long)) {
        struct gm_rm_alloc_long *in = (void *)arg;
        in->status = driver_add(fd, in->client, in->parent, &in->object, in->class_, in->params);
    } else if (number == GM_RM_FREE && size == sizeof(struct gm_rm_free)) {
        struct gm_rm_free *in = (void *)arg;
        driver_remove(in->client, in->object);
        in->status = GM_RM_OK;
    } else if (number == GM_RM_DUP) {
        struct gm_rm_dup *in = (void *)arg;
        struct thing *from = driver_find(in->from_client, in->from_object);
        in->status = driver_add(fd, in->client, in->parent, &in->object, from->class_, 0);
        driver.things[driver.n - 1].real = 1 + (uint32_t)(from - driver.things);
    } else if (number == GM_RM_CONTROL && size == sizeof(struct gm_rm_control)) {
        struct gm_rm_control *in = (void *)arg;
        in->status = driver_control(in);
    }
    errno = (int)++driver.calls; /* each call leaves another one */
    pthread_mutex_unlock(&driver.lock);
    return 0;
}

/* ---- libcuda ---- */

enum form {
    SHORT,
    LONG,
    WRAPPED,
};

static enum form form;

static int call(int fd, uint32_t number, void *body, uint32_t size)
{
    if (form != WRAPPED)
        return gm_channels_ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, GM_RM_MAGIC, number, size), body);
    struct gm_rm_wrapped wrapped = {number, size, (uintptr_t)body};
    return gm_channels_ioctl(fd, GM_RM_REQUEST(GM_RM_WRAPPED, struct gm_rm_wrapped), &wrapped);
}

static uint32_t make(int fd, uint32_t client, uint32_t parent, uint32_t class_, void *params)
{
    if (form == SHORT) {
        struct gm_rm_alloc in = {client, parent, 0, class_, (uintptr_t)params, 0, 99};
        assert_int_equal(call(fd, GM_RM_ALLOC, &in, sizeof in), 0);
        assert_int_equal(in.status, GM_RM_OK);
        return in.object;
    }
    struct gm_rm_alloc_long in = {.client = client,
                                  .parent = parent,
                                  .class_ = class_,
                                  .params = (uintptr_t)params,
                                  .status = 99};
    assert_int_equal(call(fd, GM_RM_ALLOC, &in, sizeof in), 0);
    assert_int_equal(in.status, GM_RM_OK);
    return in.object;
}

static void drop(int fd, uint32_t client, uint32_t handle)
{
    struct gm_rm_free in = {.client = client, .object = handle, .status = 99};
    assert_int_equal(call(fd, GM_RM_FREE, &in, sizeof in), 0);
    assert_int_equal(in.status, GM_RM_OK);
}

static uint32_t copy(int fd, uint32_t client, uint32_t parent, uint32_t from_client, uint32_t from)
{
    struct gm_rm_dup in = {client, parent, 0, from_client, from, 0, 99};
    assert_int_equal(call(fd, GM_RM_DUP, &in, sizeof in), 0);
    assert_int_equal(in.status, GM_RM_OK);
    return in.object;
}

static uint32_t control(int fd, uint32_t client, uint32_t handle, uint32_t command, void *params,
                        uint32_t size)
{
    struct gm_rm_control in = {client, handle, command, 0, (uintptr_t)params, size, 99};
    assert_int_equal(call(fd, GM_RM_CONTROL, &in, sizeof in), 0);
    return in.status;
}

static uint32_t make_device(int fd, uint32_t client, uint32_t gpu)
{
    struct gm_rm_device_params params = {.gpu = gpu};
    return make(fd, client, client, GM_RM_CLASS_DEVICE, &params);
}

static uint32_t make_group(int fd, uint32_t client, uint32_t device, uint32_t engine)
{
    struct gm_rm_group_params params = {.engine = engine};
    return make(fd, client, device, GM_RM_CLASS_GROUP, &params);
}

static uint32_t make_channel(int fd, uint32_t client, uint32_t parent)
{
    return make(fd, client, parent, GM_RM_CLASS_CHANNEL_HOPPER, NULL);
}

/* As libcuda makes a context (CUDA 13.0), with fewer copy channels. */
struct context {
    int fd;
    uint32_t client, device, subdevice, group, copies[3];
};

static struct context make_context(int fd, uint32_t client, uint32_t gpu)
{
    struct context made = {.fd = fd, .client = client};
    struct gm_rm_timeslice own = {.us = OWN_US};
    if (client == 0)
        made.client = make(fd, 0, 0, GM_RM_CLASS_CLIENT, NULL);
    made.device = make_device(fd, made.client, gpu);
    made.subdevice = make(fd, made.client, made.device, GM_RM_CLASS_SUBDEVICE, NULL);
    made.group = make_group(fd, made.client, made.device, GM_RM_ENGINE_GRAPHICS);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t channel = make_channel(fd, made.client, made.group);
        make(fd, made.client, channel, GM_RM_CLASS_COMPUTE_HOPPER, NULL);
    }
    control(fd, made.client, made.group, GM_RM_SCHEDULE_GROUP, NULL, 0);
    for (uint32_t i = 0; i < 3; i++) {
        made.copies[i] = make_group(fd, made.client, made.device, GM_RM_ENGINE_COPY0 + i);
        make_channel(fd, made.client, made.copies[i]);
        control(fd, made.client, made.copies[i], GM_RM_SCHEDULE_GROUP, NULL, 0);
    }
    control(fd, made.client, made.group, GM_RM_SET_TIMESLICE, &own, sizeof own);
    return made;
}

/* ---- what became of it ---- */

static bool driver_has_channel(const struct thing *group)
{
    for (uint32_t i = 0; i < driver.n; i++) {
        const struct thing *thing = &driver.things[i];
        if (thing->is_there && thing->client == group->client && thing->parent == group->handle)
            return true;
    }
    return false;
}

/* All groups that have a channel are stopped, or none is, and each channel accordingly. */
static void check_all(bool is_stopped)
{
    for (uint32_t i = 0; i < driver.n; i++) {
        const struct thing *thing = &driver.things[i];
        if (!thing->is_there || thing->real != 0)
            continue;
        if (GM_RM_IS_CHANNEL(thing->class_))
            assert_int_equal(thing->is_disabled, is_stopped);
        if (thing->class_ == GM_RM_CLASS_GROUP && driver_has_channel(thing))
            assert_int_equal(thing->is_stopped, is_stopped);
    }
}

static void check_parks(void)
{
    check_all(false);
    assert_int_equal(gm_channels_park(), GM_PARK_DONE);
    check_all(true);
    gm_channels_resume();
    check_all(false);
}

static int set_up(void **state)
{
    (void)state;
    memset(&driver, 0, sizeof driver);
    pthread_mutex_init(&driver.lock, NULL);
    gm_channels_after_fork();
    gm_channels_use(driver_ioctl);
    form = SHORT;
    return 0;
}

/* ---- the tests ---- */

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
