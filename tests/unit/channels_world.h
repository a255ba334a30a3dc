/*
 * The kernel driver that test_channels.c is, and libcuda, which calls it. It has clients, devices,
 * subdevices, groups and channels. As the real one it stops a group only if one control names all
 * channels of it, accepts a control that does not, and refuses a handle that it does not have.
 */
#ifndef GM_TESTS_CHANNELS_WORLD_H
#define GM_TESTS_CHANNELS_WORLD_H

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

#endif
