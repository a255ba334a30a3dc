/*
 * One table of objects: devices, subdevices, groups and channels, each with the handles that the
 * driver knows it by. A slot whose kind is NONE is free.
 */
#include "shim/observe/channels.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/locks.h"
#include "shim/driver/rm.h"

enum gm_channels_kind {
    GM_CHANNELS_NONE,
    GM_CHANNELS_DEVICE,
    GM_CHANNELS_SUBDEVICE,
    GM_CHANNELS_GROUP,
    GM_CHANNELS_CHANNEL,
};

struct gm_channels_object {
    enum gm_channels_kind kind;
    int fd; /* the open file that it was made through */
    uint32_t client;
    uint32_t parent;
    uint32_t handle;
    uint32_t gpu;    /* of a device */
    uint64_t serial; /* objects that came later have larger ones */
    uint64_t origin; /* the serial of the object that this is another handle of, or its own */
    uint64_t own_us; /* of a group: the timeslice without us; 0: not known */
    bool is_compute; /* a group, which engine it is for */
    bool is_parked;  /* a group or channel */
};

/* A channel in a control's list, and the subdevice whose control that is. Those of one call stand
 * together. */
struct gm_channels_entry {
    int fd;
    uint32_t via_client;
    uint32_t via;
    uint32_t client;
    uint32_t channel;
    uint32_t call;
};

enum gm_channels_state {
    GM_CHANNELS_RUNNING,
    GM_CHANNELS_PARKING,
    GM_CHANNELS_PARKED,
};

static gm_channels_ioctl_call *_Atomic gm_channels_real;

/* The table and the words below it. Never held across an ioctl call. */
static struct gm_lock gm_channels_lock = GM_LOCK_INITIALIZER(GM_LOCK_CHANNELS);
static struct gm_channels_object gm_channels_table[GM_CHANNELS_MAX];
static uint32_t gm_channels_n; /* slots that were ever used */
static uint64_t gm_channels_serial;
static uint64_t gm_channels_changes;       /* groups and channels that came and went */
static bool gm_channels_has_lost;          /* the table could not take one */
static uint32_t gm_channels_changing;      /* threads in a call that makes or frees a channel */
static _Atomic uint32_t gm_channels_state; /* changes under the lock; a futex */

/* What follows; held across the controls that the shim makes. */
static struct gm_lock gm_channels_controls_lock = GM_LOCK_INITIALIZER(GM_LOCK_CONTROLS);
static struct gm_channels_entry gm_channels_list[GM_CHANNELS_MAX]; /* what is parked */
static uint32_t gm_channels_n_list;
static uint64_t gm_channels_us; /* 0: nothing was asked for */

/* ---- the table: with its lock ---- */

static struct gm_channels_object *gm_channels_find(uint32_t client, uint32_t handle)
{
    for (uint32_t i = 0; i < gm_channels_n; i++) {
        struct gm_channels_object *object = &gm_channels_table[i];
        if (object->kind != GM_CHANNELS_NONE && object->client == client &&
            object->handle == handle)
            return object;
    }
    return NULL;
}

static struct gm_channels_object *gm_channels_find_kind(enum gm_channels_kind kind, uint32_t client,
                                                        uint32_t handle)
{
    struct gm_channels_object *object = gm_channels_find(client, handle);
    return object != NULL && object->kind == kind ? object : NULL;
}

static void gm_channels_add(struct gm_channels_object object)
{
    uint32_t i = 0;
    while (i < gm_channels_n && gm_channels_table[i].kind != GM_CHANNELS_NONE)
        i++;
    if (i == GM_CHANNELS_MAX) {
        gm_channels_has_lost = true;
        return;
    }
    object.serial = ++gm_channels_serial;
    gm_channels_changes += object.kind >= GM_CHANNELS_GROUP;
    if (object.origin == 0)
        object.origin = object.serial;
    gm_channels_table[i] = object;
    if (i == gm_channels_n)
        gm_channels_n++;
}

/* Whether freeing `handle` frees what is in `object`; what is below that is found by its own turn.
 */
static bool gm_channels_is_below(const struct gm_channels_object *object, uint32_t client,
                                 uint32_t handle)
{
    return object->kind != GM_CHANNELS_NONE && object->client == client &&
           (handle == client || object->handle == handle || object->parent == handle);
}

/* Of those up to `serial`: a handle that the driver has given away anew since is another object's.
 */
static void gm_channels_remove(uint32_t client, uint32_t handle, uint64_t serial)
{
    for (uint32_t i = 0; i < gm_channels_n; i++) {
        struct gm_channels_object *object = &gm_channels_table[i];
        if (!gm_channels_is_below(object, client, handle) || object->serial > serial)
            continue;
        gm_channels_changes += object->kind >= GM_CHANNELS_GROUP;
        object->kind = GM_CHANNELS_NONE;
        if (object->handle != handle && handle != client)
            gm_channels_remove(client, object->handle, serial);
    }
}

/* The subdevice for the controls of what is below a device: that device's, or that of another
 * handle of the same GPU. */
static const struct gm_channels_object *gm_channels_via(uint32_t client, uint32_t device)
{
    const struct gm_channels_object *of = gm_channels_find_kind(GM_CHANNELS_DEVICE, client, device);
    const struct gm_channels_object *other = NULL;

    for (uint32_t i = 0; i < gm_channels_n; i++) {
        const struct gm_channels_object *object = &gm_channels_table[i];
        if (object->kind != GM_CHANNELS_SUBDEVICE)
            continue;
        if (object->client == client && object->parent == device)
            return object;
        const struct gm_channels_object *its =
            gm_channels_find_kind(GM_CHANNELS_DEVICE, object->client, object->parent);
        if (other == NULL && of != NULL && its != NULL && its->gpu == of->gpu)
            other = object;
    }
    return other;
}

/* Whether an older handle of the same object is in the table. */
static bool gm_channels_is_known_otherwise(const struct gm_channels_object *object)
{
    if (object->origin == object->serial)
        return false;
    for (uint32_t i = 0; i < gm_channels_n; i++) {
        const struct gm_channels_object *other = &gm_channels_table[i];
        if (other->kind == object->kind && other->origin == object->origin &&
            other->serial < object->serial)
            return true;
    }
    return false;
}

/* ---- what a request says ---- */

struct gm_channels_request {
    uint32_t number;
    uint32_t size;
    void *body;
};

/* A new object, from whichever form of the request. */
struct gm_channels_alloc {
    uint32_t client;
    uint32_t parent;
    uint32_t handle;
    uint32_t class_;
    uint64_t params;
    uint32_t status;
};

static struct gm_channels_request gm_channels_unwrap(unsigned long request, void *arg)
{
    struct gm_channels_request got = {GM_RM_NUMBER(request), GM_RM_SIZE(request), arg};
    if (got.number == GM_RM_WRAPPED && got.size == sizeof(struct gm_rm_wrapped) && arg != NULL) {
        const struct gm_rm_wrapped *wrapped = arg;
        got = (struct gm_channels_request){wrapped->number, wrapped->size,
                                           (void *)(uintptr_t)wrapped->pointer};
    }
    if (got.body == NULL)
        got.number = 0;
    return got;
}

static bool gm_channels_is(const struct gm_channels_request *request, uint32_t number, size_t size)
{
    return request->number == number && request->size == size;
}

static bool gm_channels_read_alloc(const struct gm_channels_request *request,
                                   struct gm_channels_alloc *alloc)
{
    if (gm_channels_is(request, GM_RM_ALLOC, sizeof(struct gm_rm_alloc))) {
        const struct gm_rm_alloc *in = request->body;
        *alloc = (struct gm_channels_alloc){in->client, in->parent, in->object,
                                            in->class_, in->params, in->status};
        return true;
    }
    if (gm_channels_is(request, GM_RM_ALLOC, sizeof(struct gm_rm_alloc_long))) {
        const struct gm_rm_alloc_long *in = request->body;
        *alloc = (struct gm_channels_alloc){in->client, in->parent, in->object,
                                            in->class_, in->params, in->status};
        return true;
    }
    return false;
}

/* With the table's lock: the device of a group; NULL: not known. */
static const struct gm_channels_object *gm_channels_device(const struct gm_channels_object *group)
{
    return gm_channels_find_kind(GM_CHANNELS_DEVICE, group->client, group->parent);
}

/* ---- learning: with the table's lock, after the driver said yes ---- */

static void gm_channels_learn_alloc(int fd, const struct gm_channels_alloc *alloc)
{
    struct gm_channels_object object = {
        .fd = fd,
        .client = alloc->client,
        .parent = alloc->parent,
        .handle = alloc->handle,
    };
    const void *params = (const void *)(uintptr_t)alloc->params;

    if (alloc->class_ == GM_RM_CLASS_DEVICE) {
        object.kind = GM_CHANNELS_DEVICE;
        if (params != NULL)
            object.gpu = ((const struct gm_rm_device_params *)params)->gpu;
    } else if (alloc->class_ == GM_RM_CLASS_SUBDEVICE) {
        object.kind = GM_CHANNELS_SUBDEVICE;
    } else if (alloc->class_ == GM_RM_CLASS_GROUP) {
        object.kind = GM_CHANNELS_GROUP;
        if (params != NULL)
            object.is_compute =
                ((const struct gm_rm_group_params *)params)->engine == GM_RM_ENGINE_GRAPHICS;
    } else if (GM_RM_IS_CHANNEL(alloc->class_)) {
        object.kind = GM_CHANNELS_CHANNEL;
    } else if (GM_RM_IS_COMPUTE(alloc->class_)) {
        /* On a part of a GPU (MIG) the group's engine has another number. */
        const struct gm_channels_object *channel =
            gm_channels_find_kind(GM_CHANNELS_CHANNEL, alloc->client, alloc->parent);
        struct gm_channels_object *group =
            channel == NULL
                ? NULL
                : gm_channels_find_kind(GM_CHANNELS_GROUP, channel->client, channel->parent);
        if (group != NULL)
            group->is_compute = true;
    }
    if (object.kind != GM_CHANNELS_NONE)
        gm_channels_add(object);
}

static void gm_channels_learn_dup(int fd, const struct gm_rm_dup *dup)
{
    const struct gm_channels_object *from = gm_channels_find(dup->from_client, dup->from_object);
    if (from == NULL)
        return;
    struct gm_channels_object object = *from;
    object.fd = fd;
    object.client = dup->client;
    object.parent = dup->parent;
    object.handle = dup->object;
    gm_channels_add(object);
}

/* A control that worked. Returns the compute group whose timeslice libcuda has just set, or that it
 * has just set going; else NULL. */
static const struct gm_channels_object *gm_channels_learn_control(const struct gm_rm_control *in)
{
    struct gm_channels_object *object = gm_channels_find(in->client, in->object);
    if (object == NULL)
        return NULL;
    if (in->command == GM_RM_SET_TIMESLICE && object->kind == GM_CHANNELS_GROUP &&
        in->params != 0 && in->params_size == sizeof(struct gm_rm_timeslice))
        object->own_us = ((const struct gm_rm_timeslice *)(uintptr_t)in->params)->us;
    else if (in->command == GM_RM_SCHEDULE_CHANNEL && object->kind == GM_CHANNELS_CHANNEL)
        object = gm_channels_find_kind(GM_CHANNELS_GROUP, object->client, object->parent);
    else if (in->command != GM_RM_SCHEDULE_GROUP || object->kind != GM_CHANNELS_GROUP)
        return NULL;
    return object != NULL && object->is_compute ? object : NULL;
}

/* A call that worked. Returns a group as above. */
static const struct gm_channels_object *
gm_channels_learn(int fd, const struct gm_channels_request *request, uint64_t serial)
{
    struct gm_channels_alloc alloc;

    if (gm_channels_read_alloc(request, &alloc)) {
        if (alloc.status == GM_RM_OK)
            gm_channels_learn_alloc(fd, &alloc);
    } else if (gm_channels_is(request, GM_RM_FREE, sizeof(struct gm_rm_free))) {
        const struct gm_rm_free *in = request->body;
        if (in->status == GM_RM_OK)
            gm_channels_remove(in->client, in->object, serial);
    } else if (gm_channels_is(request, GM_RM_DUP, sizeof(struct gm_rm_dup))) {
        const struct gm_rm_dup *in = request->body;
        if (in->status == GM_RM_OK)
            gm_channels_learn_dup(fd, in);
    } else if (gm_channels_is(request, GM_RM_CONTROL, sizeof(struct gm_rm_control))) {
        const struct gm_rm_control *in = request->body;
        if (in->status == GM_RM_OK)
            return gm_channels_learn_control(in);
    }
    return NULL;
}

/* ---- controls of our own ---- */

/* The driver's status, or UINT32_MAX if the call itself failed. */
static uint32_t gm_channels_control(int fd, uint32_t client, uint32_t object, uint32_t command,
                                    void *params, uint32_t size)
{
    gm_channels_ioctl_call *real = atomic_load(&gm_channels_real);
    struct gm_rm_control control = {
        .client = client,
        .object = object,
        .command = command,
        .params = (uintptr_t)params,
        .params_size = size,
        .status = UINT32_MAX,
    };
    int result;
    do
        result = real(fd, GM_RM_REQUEST(GM_RM_CONTROL, struct gm_rm_control), &control);
    while (result != 0 && errno == EINTR);
    return result == 0 ? control.status : UINT32_MAX;
}

static bool gm_channels_get_slice(const struct gm_channels_object *group, uint64_t *us)
{
    struct gm_rm_timeslice slice = {0};
    uint32_t status = gm_channels_control(group->fd, group->client, group->handle,
                                          GM_RM_GET_TIMESLICE, &slice, sizeof slice);
    *us = slice.us;
    return status == GM_RM_OK;
}

/* With the lock of the controls: bring a group's timeslice to what was asked for, or back. 0 or
 * -errno. */
static int gm_channels_slice_group(const struct gm_channels_object *group)
{
    uint64_t own = group->own_us, found;
    uint64_t us = gm_channels_us;

    if (own == 0 && gm_channels_get_slice(group, &own)) {
        gm_lock(&gm_channels_lock);
        struct gm_channels_object *known =
            gm_channels_find_kind(GM_CHANNELS_GROUP, group->client, group->handle);
        if (known != NULL && known->serial == group->serial && known->own_us == 0)
            known->own_us = own;
        gm_unlock(&gm_channels_lock);
    }
    if (us == 0)
        us = own;
    if (us == 0)
        return 0;
    struct gm_rm_timeslice slice = {.us = us};
    if (gm_channels_control(group->fd, group->client, group->handle, GM_RM_SET_TIMESLICE, &slice,
                            sizeof slice) != GM_RM_OK)
        return -EACCES;
    return gm_channels_get_slice(group, &found) && found == us ? 0 : -EIO;
}

/* The next compute group behind *after in the table. */
static bool gm_channels_next_group(uint32_t *after, struct gm_channels_object *group)
{
    bool is_found = false;
    gm_lock(&gm_channels_lock);
    for (; *after < gm_channels_n && !is_found; ++*after) {
        const struct gm_channels_object *object = &gm_channels_table[*after];
        if (object->kind != GM_CHANNELS_GROUP || !object->is_compute ||
            gm_channels_is_known_otherwise(object))
            continue;
        *group = *object;
        is_found = true;
    }
    gm_unlock(&gm_channels_lock);
    return is_found;
}

int gm_channels_timeslice(uint64_t us)
{
    struct gm_channels_object group;
    int result = 0;

    gm_lock(&gm_channels_controls_lock);
    bool is_any = us != 0 || gm_channels_us != 0;
    gm_channels_us = us;
    for (uint32_t after = 0; is_any && gm_channels_next_group(&after, &group);) {
        int error = gm_channels_slice_group(&group);
        if (error != 0)
            result = error;
    }
    gm_unlock(&gm_channels_controls_lock);
    return result;
}

int gm_channels_try_timeslice(void)
{
    struct gm_channels_object group;
    uint32_t after = 0;
    uint64_t before, found;

    if (!gm_channels_next_group(&after, &group))
        return -ENOENT;
    gm_lock(&gm_channels_controls_lock);
    int result = -EACCES;
    if (gm_channels_get_slice(&group, &before)) {
        struct gm_rm_timeslice slice = {.us = before + 1}, old = {.us = before};
        uint32_t status = gm_channels_control(group.fd, group.client, group.handle,
                                              GM_RM_SET_TIMESLICE, &slice, sizeof slice);
        if (status == GM_RM_OK)
            result = gm_channels_get_slice(&group, &found) && found == before + 1 ? 0 : -EIO;
        gm_channels_control(group.fd, group.client, group.handle, GM_RM_SET_TIMESLICE, &old,
                            sizeof old);
    }
    gm_unlock(&gm_channels_controls_lock);
    return result;
}

unsigned gm_channels_compute_groups(void)
{
    struct gm_channels_object group;
    unsigned n = 0;
    for (uint32_t after = 0; gm_channels_next_group(&after, &group);)
        n++;
    return n;
}

bool gm_channels_newest_gpu(uint32_t *gpu)
{
    const struct gm_channels_object *newest = NULL;
    gm_lock(&gm_channels_lock);
    for (uint32_t i = 0; i < gm_channels_n; i++) {
        const struct gm_channels_object *object = &gm_channels_table[i];
        if (object->kind == GM_CHANNELS_GROUP && object->is_compute &&
            (newest == NULL || object->serial > newest->serial))
            newest = object;
    }
    const struct gm_channels_object *device = newest != NULL ? gm_channels_device(newest) : NULL;
    if (device != NULL)
        *gpu = device->gpu;
    gm_unlock(&gm_channels_lock);
    return device != NULL;
}

/* A subdevice of that GPU, and how many compute groups are there. */
static bool gm_channels_on(uint32_t gpu, struct gm_channels_object *subdevice, unsigned *groups)
{
    bool is_found = false;
    *groups = 0;
    gm_lock(&gm_channels_lock);
    for (uint32_t i = 0; i < gm_channels_n; i++) {
        const struct gm_channels_object *object = &gm_channels_table[i];
        const struct gm_channels_object *device =
            object->kind == GM_CHANNELS_SUBDEVICE || object->kind == GM_CHANNELS_GROUP
                ? gm_channels_device(object)
                : NULL;
        if (device == NULL || device->gpu != gpu)
            continue;
        if (object->kind == GM_CHANNELS_GROUP) {
            *groups += object->is_compute && !gm_channels_is_known_otherwise(object);
        } else if (!is_found) {
            *subdevice = *object;
            is_found = true;
        }
    }
    gm_unlock(&gm_channels_lock);
    return is_found;
}

bool gm_channels_memory(uint32_t gpu, uint64_t *bytes, unsigned *groups)
{
    static struct gm_rm_pid_info info; /* too large for a small stack */
    struct gm_channels_object subdevice;
    struct gm_rm_pid_memory *own = &info.process[0];
    info.n = 1;
    *own = (struct gm_rm_pid_memory){.pid = (uint32_t)getpid()};
    if (!gm_channels_on(gpu, &subdevice, groups) ||
        gm_channels_control(subdevice.fd, subdevice.client, subdevice.handle, GM_RM_PID_INFO, &info,
                            sizeof info) != GM_RM_OK ||
        own->result != GM_RM_OK)
        return false;
    *bytes = own->private + own->owned;
    return true;
}

/* ---- the program's calls ---- */

/* What is known of a call before it is made. */
struct gm_channels_call {
    uint64_t serial;  /* of the newest object */
    bool is_changing; /* it makes or frees a channel, or sets one going */
};

static void gm_channels_wait(uint32_t state)
{
    syscall(SYS_futex, &gm_channels_state, FUTEX_WAIT_PRIVATE, state, NULL, NULL, 0);
}

/* With the lock. */
static void gm_channels_set_state(enum gm_channels_state state)
{
    atomic_store(&gm_channels_state, state);
    syscall(SYS_futex, &gm_channels_state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* With the lock: whether a call that makes a channel below `handle`, or sets that going, must wait.
 */
static bool gm_channels_must_wait(uint32_t client, uint32_t handle)
{
    uint32_t state = atomic_load(&gm_channels_state);
    if (state != GM_CHANNELS_PARKED)
        return state == GM_CHANNELS_PARKING;
    const struct gm_channels_object *object = gm_channels_find(client, handle);
    return object != NULL && object->is_parked;
}

/* With the lock: whether freeing that frees something of the table. */
static bool gm_channels_has_below(uint32_t client, uint32_t handle)
{
    for (uint32_t i = 0; i < gm_channels_n; i++)
        if (gm_channels_is_below(&gm_channels_table[i], client, handle))
            return true;
    return false;
}

static struct gm_channels_call gm_channels_before(const struct gm_channels_request *request)
{
    struct gm_channels_call call = {0};
    struct gm_channels_alloc alloc;
    uint32_t client = 0, handle = 0;
    bool is_making = false;

    if (gm_channels_read_alloc(request, &alloc)) {
        is_making = alloc.class_ == GM_RM_CLASS_GROUP || GM_RM_IS_CHANNEL(alloc.class_);
        client = alloc.client;
        handle = alloc.parent;
    } else if (gm_channels_is(request, GM_RM_CONTROL, sizeof(struct gm_rm_control))) {
        const struct gm_rm_control *in = request->body;
        is_making = in->command == GM_RM_SCHEDULE_GROUP || in->command == GM_RM_SCHEDULE_CHANNEL;
        client = in->client;
        handle = in->object;
    }
    gm_lock(&gm_channels_lock);
    while (is_making && gm_channels_must_wait(client, handle)) {
        uint32_t state = atomic_load(&gm_channels_state);
        gm_unlock(&gm_channels_lock);
        gm_channels_wait(state);
        gm_lock(&gm_channels_lock);
    }
    call.is_changing = is_making;
    if (gm_channels_is(request, GM_RM_FREE, sizeof(struct gm_rm_free))) {
        const struct gm_rm_free *in = request->body;
        call.is_changing = gm_channels_has_below(in->client, in->object);
    }
    gm_channels_changing += call.is_changing;
    call.serial = gm_channels_serial;
    gm_unlock(&gm_channels_lock);
    return call;
}

static void gm_channels_after(const struct gm_channels_call *call, int fd,
                              const struct gm_channels_request *request, bool has_worked)
{
    const struct gm_channels_object *found = NULL;
    struct gm_channels_object group;

    gm_lock(&gm_channels_lock);
    if (has_worked)
        found = gm_channels_learn(fd, request, call->serial);
    if (found != NULL)
        group = *found;
    gm_channels_changing -= call->is_changing;
    gm_unlock(&gm_channels_lock);
    if (found == NULL)
        return;
    /* Only now: a value that was set as soon as the group was there had no effect, and libcuda's
     * own replaced it. */
    gm_lock(&gm_channels_controls_lock);
    if (gm_channels_us != 0)
        gm_channels_slice_group(&group);
    gm_unlock(&gm_channels_controls_lock);
}

int gm_channels_ioctl(int fd, unsigned long request, void *arg)
{
    gm_channels_ioctl_call *real = atomic_load(&gm_channels_real);
    const struct gm_channels_request what = gm_channels_unwrap(request, arg);
    switch (what.number) {
    case GM_RM_ALLOC:
    case GM_RM_FREE:
    case GM_RM_DUP:
    case GM_RM_CONTROL:
        break;
    default:
        return real(fd, request, arg);
    }
    struct gm_channels_call call = gm_channels_before(&what);
    int result = real(fd, request, arg);
    int error = errno;
    gm_channels_after(&call, fd, &what, result == 0);
    errno = error;
    return result;
}

void gm_channels_use(gm_channels_ioctl_call *real)
{
    atomic_store(&gm_channels_real, real);
}

/* ---- park and resume: with the lock of the controls ---- */

/* With the table's lock: by slot, the slots of a channel's group and of the subdevice for its
 * controls. What has no group is a group of its own. Only park writes here. */
static uint16_t gm_channels_group_of[GM_CHANNELS_MAX], gm_channels_via_of[GM_CHANNELS_MAX];

static uint16_t gm_channels_slot(const struct gm_channels_object *object)
{
    return (uint16_t)(object - gm_channels_table);
}

static bool gm_channels_is_listed(uint32_t slot)
{
    const struct gm_channels_object *object = &gm_channels_table[slot];
    return object->kind == GM_CHANNELS_CHANNEL && !gm_channels_is_known_otherwise(object);
}

/* Find each channel's group and subdevice. False: one of them has none. */
static bool gm_channels_resolve(void)
{
    for (uint32_t i = 0; i < gm_channels_n; i++) {
        const struct gm_channels_object *channel = &gm_channels_table[i];
        if (!gm_channels_is_listed(i))
            continue;
        const struct gm_channels_object *group =
            gm_channels_find_kind(GM_CHANNELS_GROUP, channel->client, channel->parent);
        const struct gm_channels_object *via =
            gm_channels_via(channel->client, group != NULL ? group->parent : channel->parent);
        if (via == NULL)
            return false;
        gm_channels_group_of[i] = gm_channels_slot(group != NULL ? group : channel);
        gm_channels_via_of[i] = gm_channels_slot(via);
    }
    return true;
}

/* The channels of the group in slot `group`, into `call` if there is room. False: there is not. */
static bool gm_channels_list_group(uint16_t group, uint32_t call, uint32_t *n_call)
{
    uint64_t origin = gm_channels_table[group].origin;
    uint32_t n = 0;

    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < gm_channels_n; i++) {
            struct gm_channels_object *channel = &gm_channels_table[i];
            if (!gm_channels_is_listed(i) ||
                gm_channels_table[gm_channels_group_of[i]].origin != origin)
                continue;
            if (pass == 0) {
                n++;
                continue;
            }
            const struct gm_channels_object *via = &gm_channels_table[gm_channels_via_of[i]];
            gm_channels_list[gm_channels_n_list++] = (struct gm_channels_entry){
                .fd = via->fd,
                .via_client = via->client,
                .via = via->handle,
                .client = channel->client,
                .channel = channel->handle,
                .call = call,
            };
            channel->is_parked = true;
            gm_channels_table[gm_channels_group_of[i]].is_parked = true;
        }
        if (*n_call + n > GM_RM_DISABLE_MOST)
            return false;
    }
    *n_call += n;
    return true;
}

/* Whether the channel in slot `i` waits for a place in the list, among those that compute or among
 * the others. */
static bool gm_channels_is_to_list(uint32_t i, bool is_compute)
{
    return gm_channels_is_listed(i) && !gm_channels_table[i].is_parked &&
           gm_channels_table[gm_channels_group_of[i]].is_compute == is_compute;
}

/* The part of the list for the groups that compute, or for the others; its calls count on from
 * `call`. False: a group is larger than a call. */
static bool gm_channels_make_part(bool is_compute, uint32_t *call)
{
    for (uint32_t i = 0; i < gm_channels_n; i++) {
        uint32_t n = 0;
        if (!gm_channels_is_to_list(i, is_compute))
            continue;
        if (!gm_channels_list_group(gm_channels_group_of[i], *call, &n))
            return false;
        for (uint32_t j = i + 1; j < gm_channels_n; j++)
            if (gm_channels_is_to_list(j, is_compute) &&
                gm_channels_via_of[j] == gm_channels_via_of[i])
                gm_channels_list_group(gm_channels_group_of[j], *call, &n);
        ++*call;
    }
    return true;
}

/*
 * Make the list: calls of up to 64 channels of one subdevice, no group in two calls, for a call
 * that has a part of a group stops nothing. What computes comes first, in calls of its own. Behind
 * a queue of kernels that takes 2.6 ms and 0.4 for the others on an H100, and all in one call 3.6.
 * False: something is not known.
 */
static bool gm_channels_make_list(void)
{
    uint32_t call = 0;
    gm_channels_n_list = 0;
    return !gm_channels_has_lost && gm_channels_resolve() && gm_channels_make_part(true, &call) &&
           gm_channels_make_part(false, &call) && gm_channels_n_list > 0;
}

static void gm_channels_unmark(void)
{
    for (uint32_t i = 0; i < gm_channels_n; i++)
        gm_channels_table[i].is_parked = false;
}

/* One control for the entries `from` to `to`, which are of one call. With `is_disable` all of them;
 * else those that are still there. */
static uint32_t gm_channels_switch(uint32_t from, uint32_t to, bool is_disable)
{
    struct gm_rm_disable params = {.is_disable = is_disable};
    const struct gm_channels_entry *first = &gm_channels_list[from];

    gm_lock(&gm_channels_lock);
    for (uint32_t i = from; i < to; i++) {
        const struct gm_channels_entry *entry = &gm_channels_list[i];
        if (!is_disable &&
            gm_channels_find_kind(GM_CHANNELS_CHANNEL, entry->client, entry->channel) == NULL)
            continue;
        params.client[params.n] = entry->client;
        params.channel[params.n] = entry->channel;
        params.n++;
    }
    gm_unlock(&gm_channels_lock);
    if (params.n == 0)
        return GM_RM_OK;
    return gm_channels_control(first->fd, first->via_client, first->via, GM_RM_DISABLE_CHANNELS,
                               &params, sizeof params);
}

/* The end of the call that entry `from` is in. */
static uint32_t gm_channels_call_end(uint32_t from)
{
    uint32_t to = from;
    while (to < gm_channels_n_list && gm_channels_list[to].call == gm_channels_list[from].call)
        to++;
    return to;
}

static bool gm_channels_disable(void)
{
    for (uint32_t from = 0, to; from < gm_channels_n_list; from = to) {
        to = gm_channels_call_end(from);
        if (gm_channels_switch(from, to, true) != GM_RM_OK)
            return false;
    }
    return true;
}

/* All again. One that goes away meanwhile makes its call fail: then one by one. */
static void gm_channels_enable(void)
{
    for (uint32_t from = 0, to; from < gm_channels_n_list; from = to) {
        to = gm_channels_call_end(from);
        if (gm_channels_switch(from, to, false) == GM_RM_OK)
            continue;
        for (uint32_t i = from; i < to; i++)
            gm_channels_switch(i, i + 1, false);
    }
    gm_channels_n_list = 0;
}

static enum gm_park_result gm_channels_park_locked(void)
{
    gm_lock(&gm_channels_lock);
    if (gm_channels_changing > 0) {
        gm_unlock(&gm_channels_lock);
        return GM_PARK_CHANGED;
    }
    bool is_known = gm_channels_make_list();
    if (!is_known)
        gm_channels_unmark();
    else
        gm_channels_set_state(GM_CHANNELS_PARKING);
    uint64_t changes = gm_channels_changes;
    gm_unlock(&gm_channels_lock);
    if (!is_known)
        return GM_PARK_NONE;

    enum gm_park_result result = GM_PARK_DONE;
    bool is_disabled = gm_channels_disable();
    gm_lock(&gm_channels_lock);
    bool has_changed = gm_channels_changing > 0 || gm_channels_changes != changes;
    gm_unlock(&gm_channels_lock);
    if (has_changed)
        result = GM_PARK_CHANGED;
    else if (!is_disabled)
        result = GM_PARK_REFUSED;
    if (result != GM_PARK_DONE)
        gm_channels_enable();

    gm_lock(&gm_channels_lock);
    if (result != GM_PARK_DONE)
        gm_channels_unmark();
    gm_channels_set_state(result == GM_PARK_DONE ? GM_CHANNELS_PARKED : GM_CHANNELS_RUNNING);
    gm_unlock(&gm_channels_lock);
    return result;
}

enum gm_park_result gm_channels_park(void)
{
    gm_lock(&gm_channels_controls_lock);
    enum gm_park_result result = atomic_load(&gm_channels_state) == GM_CHANNELS_PARKED
                                     ? GM_PARK_DONE
                                     : gm_channels_park_locked();
    gm_unlock(&gm_channels_controls_lock);
    return result;
}

void gm_channels_resume(void)
{
    gm_lock(&gm_channels_controls_lock);
    if (atomic_load(&gm_channels_state) == GM_CHANNELS_PARKED) {
        gm_channels_enable();
        gm_lock(&gm_channels_lock);
        gm_channels_unmark();
        gm_channels_set_state(GM_CHANNELS_RUNNING);
        gm_unlock(&gm_channels_lock);
    }
    gm_unlock(&gm_channels_controls_lock);
}

void gm_channels_after_fork(void)
{
    gm_lock_init(&gm_channels_lock, GM_LOCK_CHANNELS);
    gm_lock_init(&gm_channels_controls_lock, GM_LOCK_CONTROLS);
    memset(gm_channels_table, 0, gm_channels_n * sizeof gm_channels_table[0]);
    gm_channels_n = 0;
    gm_channels_n_list = 0;
    gm_channels_has_lost = false;
    gm_channels_changing = 0;
    gm_channels_us = 0;
    atomic_store(&gm_channels_state, GM_CHANNELS_RUNNING);
}
