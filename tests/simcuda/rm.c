/*
 * The kernel driver behind the simulated libcuda: what NVIDIA's resource manager (RM) answers to
 * the requests of shim/driver/rm.h. It is `ioctl`, on one open file of the process; every other
 * file gets the kernel's own. libcuda's side (channels.c) calls it as any library calls ioctl, so a
 * preloaded ioctl sees the requests, as on a GPU. Its own next one is this, if this library comes
 * before libc: when the program is linked with it, or when it is preloaded as well. If libc's
 * comes first the requests fail, and the process has no channels.
 *
 * The model
 * - A tree of objects for each client. A request must come from the open file that made the client.
 * - A channel is enabled or disabled. A channel group that is bound to a struct sim_group stops
 *   when all its channels are disabled, and works while one is not: so a list that lacks a channel
 *   returns success and has no effect. A disable returns when all that it stopped stands still.
 * - Timeslices and interleave levels are kept and told, and have no effect.
 *
 * rm_lock guards the objects; it is outside stop_lock and inside every other lock.
 */
#include "shim/driver/rm.h"
#include "tests/simcuda/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLIENT_FIRST 0xc1d00001u /* of the handles that RM chooses */
#define HANDLE_FIRST 0xcaf00001u

struct object {
    uint32_t client, handle, parent, class_;
    int fd;                  /* of a client: the open file that made it */
    int device;              /* of a device and what is below it */
    struct sim_group *group; /* of a channel group: what stops with it; or NULL */
    uint64_t timeslice;      /* of a channel group, us */
    uint32_t interleave;     /* of a channel group */
    bool is_disabled;        /* of a channel */
};

static pthread_mutex_t rm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static size_t n_objects, object_room;
static uint32_t n_chosen; /* handles that RM chose */
static _Atomic int control_fd = -1;

static struct object *find(uint32_t client, uint32_t handle)
{
    for (size_t i = 0; i < n_objects; i++) {
        if (objects[i].client == client && objects[i].handle == handle)
            return &objects[i];
    }
    return NULL;
}

static bool is_child(const struct object *o, const struct object *parent)
{
    return o->client == parent->client && o->parent == parent->handle && o->handle != o->client;
}

/* ---- channel groups stop and start ---- */

/* Does a group stand still, by its channels? */
static bool has_stopped(const struct object *group)
{
    bool has_channels = false;
    for (size_t i = 0; i < n_objects; i++) {
        if (!is_child(&objects[i], group) || !GM_RM_IS_CHANNEL(objects[i].class_))
            continue;
        if (!objects[i].is_disabled)
            return false;
        has_channels = true;
    }
    return has_channels;
}

static void refresh(const struct object *group)
{
    if (group == NULL || group->group == NULL)
        return;
    if (has_stopped(group))
        sim_group_stop(group->group);
    else
        sim_group_start(group->group);
}

void sim_rm_bind(uint32_t client, uint32_t handle, struct sim_group *group)
{
    pthread_mutex_lock(&rm_lock);
    struct object *o = find(client, handle);
    if (o != NULL) {
        o->group = group;
        refresh(o);
    }
    pthread_mutex_unlock(&rm_lock);
}

/* ---- objects ---- */

/* The client that a request names, if it may from this file. */
static uint32_t check_client(int fd, uint32_t client)
{
    const struct object *o = find(client, client);
    return o != NULL && o->fd == fd ? GM_RM_OK : GM_RM_INVALID_CLIENT;
}

static uint32_t add(struct object new, uint32_t *handle)
{
    if (new.handle == 0)
        new.handle = (new.class_ == GM_RM_CLASS_CLIENT ? CLIENT_FIRST : HANDLE_FIRST) + n_chosen++;
    if (new.class_ == GM_RM_CLASS_CLIENT)
        new.client = new.handle;
    if (find(new.client, new.handle) != NULL)
        return GM_RM_INVALID_OBJECT_HANDLE;
    if (n_objects == object_room) {
        object_room = object_room == 0 ? 64 : object_room * 2;
        objects = sim_grow(objects, object_room * sizeof *objects);
    }
    objects[n_objects++] = new;
    *handle = new.handle;
    if (GM_RM_IS_CHANNEL(new.class_)) /* it is enabled, and so its group works */
        refresh(find(new.client, new.parent));
    return GM_RM_OK;
}

/* A device is allocated with its number first, as cl0080.h says. */
static uint32_t allocate(int fd, uint32_t client, uint32_t parent, uint32_t *handle,
                         uint32_t class_, uint64_t params)
{
    struct object new = {.client = client, .parent = parent, .handle = *handle, .class_ = class_};
    if (class_ == GM_RM_CLASS_CLIENT) {
        new.fd = fd;
        return add(new, handle);
    }
    const uint32_t status = check_client(fd, client);
    if (status != GM_RM_OK)
        return status;
    const struct object *above = find(client, parent);
    if (above == NULL)
        return GM_RM_OBJECT_NOT_FOUND;
    new.device = above->device;
    if (class_ == GM_RM_CLASS_DEVICE && params != 0)
        new.device = *(const int *)(uintptr_t)params;
    if (class_ == GM_RM_CLASS_GROUP)
        new.timeslice = GM_RM_TIMESLICE_DEFAULT_US;
    return add(new, handle);
}

/* It and what is below it. */
static void remove_tree(uint32_t client, uint32_t handle)
{
    for (size_t i = 0; i < n_objects;) {
        const struct object o = objects[i];
        if (o.client == client && o.parent == handle && o.handle != client && o.handle != handle) {
            remove_tree(client, o.handle);
            i = 0; /* they have moved */
        } else {
            i++;
        }
    }
    struct object *o = find(client, handle);
    if (o == NULL)
        return;
    const struct object gone = *o;
    *o = objects[--n_objects];
    if (gone.group != NULL)
        sim_group_start(gone.group);
    if (GM_RM_IS_CHANNEL(gone.class_))
        refresh(find(client, gone.parent));
}

static uint32_t release(int fd, uint32_t client, uint32_t handle)
{
    const uint32_t status = check_client(fd, client);
    if (status != GM_RM_OK)
        return status;
    if (find(client, handle) == NULL)
        return GM_RM_OBJECT_NOT_FOUND;
    remove_tree(client, handle);
    return GM_RM_OK;
}

/* A second handle. Of a channel it is told from the first by nobody here, so it is refused. */
static uint32_t duplicate(int fd, struct gm_rm_dup *p)
{
    const uint32_t status = check_client(fd, p->client);
    if (status != GM_RM_OK)
        return status;
    const struct object *from = find(p->from_client, p->from_object);
    if (from == NULL || find(p->client, p->parent) == NULL)
        return GM_RM_OBJECT_NOT_FOUND;
    if (GM_RM_IS_CHANNEL(from->class_) || from->class_ == GM_RM_CLASS_GROUP)
        return GM_RM_NOT_SUPPORTED;
    struct object new = *from;
    new.client = p->client;
    new.parent = p->parent;
    new.handle = p->object;
    return add(new, &p->object);
}

/* ---- controls ---- */

/* *n groups of the list are stopped: they are to be waited for. */
static uint32_t disable(const struct object *subdevice, const struct gm_rm_disable *p,
                        struct sim_group **stopped, uint32_t *n)
{
    if (subdevice->class_ != GM_RM_CLASS_SUBDEVICE)
        return GM_RM_INVALID_OBJECT_HANDLE;
    if (p->n > GM_RM_DISABLE_MOST)
        return GM_RM_INVALID_ARGUMENT;
    if (p->is_only_scheduling || p->is_rewind) /* not imitated */
        return GM_RM_NOT_SUPPORTED;
    if (sim_options.disable_status != GM_RM_OK)
        return sim_options.disable_status;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct object *channel = find(p->client[i], p->channel[i]);
        if (channel == NULL || !GM_RM_IS_CHANNEL(channel->class_))
            return GM_RM_OBJECT_NOT_FOUND;
        if (channel->device != subdevice->device)
            return GM_RM_INVALID_ARGUMENT;
    }
    if (sim_options.has_idle_disable)
        return GM_RM_OK;
    for (uint32_t i = 0; i < p->n; i++) {
        struct object *channel = find(p->client[i], p->channel[i]);
        channel->is_disabled = p->is_disable;
        const struct object *group = find(channel->client, channel->parent);
        refresh(group);
        if (group != NULL && group->group != NULL && p->is_disable)
            stopped[(*n)++] = group->group;
    }
    return GM_RM_OK;
}

static uint32_t timeslice(struct object *group, uint32_t command, struct gm_rm_timeslice *p)
{
    if (group->class_ != GM_RM_CLASS_GROUP)
        return GM_RM_INVALID_OBJECT_HANDLE;
    if (sim_options.timeslice_status != GM_RM_OK && command == GM_RM_SET_TIMESLICE)
        return sim_options.timeslice_status;
    if (command == GM_RM_GET_TIMESLICE)
        p->us = group->timeslice;
    else if (p->us == 0)
        return GM_RM_INVALID_ARGUMENT;
    else if (!sim_options.has_idle_timeslice)
        group->timeslice = p->us;
    return GM_RM_OK;
}

/* Only root may set it. */
static uint32_t interleave(struct object *group, uint32_t command, struct gm_rm_interleave *p)
{
    if (group->class_ != GM_RM_CLASS_GROUP)
        return GM_RM_INVALID_OBJECT_HANDLE;
    if (command == GM_RM_SET_INTERLEAVE && geteuid() != 0)
        return GM_RM_INSUFFICIENT_PERMISSIONS;
    if (command == GM_RM_SET_INTERLEAVE)
        group->interleave = p->level;
    else
        p->level = group->interleave;
    return GM_RM_OK;
}

/* Only of this process. */
static uint32_t pid_info(const struct object *subdevice, struct gm_rm_pid_info *p)
{
    if (subdevice->class_ != GM_RM_CLASS_SUBDEVICE)
        return GM_RM_INVALID_OBJECT_HANDLE;
    if (p->n != 1 || p->process[0].index != 0)
        return GM_RM_INVALID_ARGUMENT;
    struct gm_rm_pid_memory *own = &p->process[0];
    own->result = own->pid == (uint32_t)getpid() ? GM_RM_OK : GM_RM_NOT_SUPPORTED;
    if (own->result == GM_RM_OK)
        sim_memory_own(subdevice->device, &own->owned, &own->private);
    return GM_RM_OK;
}

static size_t params_size(uint32_t command)
{
    switch (command) {
    case GM_RM_PID_INFO:
        return sizeof(struct gm_rm_pid_info);
    case GM_RM_DISABLE_CHANNELS:
        return sizeof(struct gm_rm_disable);
    case GM_RM_SET_TIMESLICE:
    case GM_RM_GET_TIMESLICE:
        return sizeof(struct gm_rm_timeslice);
    case GM_RM_SET_INTERLEAVE:
    case GM_RM_GET_INTERLEAVE:
        return sizeof(struct gm_rm_interleave);
    case GM_RM_PREEMPT:
        return sizeof(struct gm_rm_preempt);
    default:
        return 0;
    }
}

static uint32_t control(int fd, const struct gm_rm_control *p, struct sim_group **stopped,
                        uint32_t *n)
{
    const uint32_t status = check_client(fd, p->client);
    if (status != GM_RM_OK)
        return status;
    struct object *o = find(p->client, p->object);
    if (o == NULL)
        return GM_RM_OBJECT_NOT_FOUND;
    void *params = (void *)(uintptr_t)p->params;
    if (params_size(p->command) == 0)
        return GM_RM_NOT_SUPPORTED;
    if (params == NULL || p->params_size != params_size(p->command))
        return GM_RM_INVALID_ARGUMENT;
    switch (p->command) {
    case GM_RM_DISABLE_CHANNELS:
        return disable(o, params, stopped, n);
    case GM_RM_SET_TIMESLICE:
    case GM_RM_GET_TIMESLICE:
        return timeslice(o, p->command, params);
    case GM_RM_SET_INTERLEAVE:
    case GM_RM_GET_INTERLEAVE:
        return interleave(o, p->command, params);
    case GM_RM_PID_INFO:
        return pid_info(o, params);
    default: /* a preempted group goes on at once */
        return o->class_ == GM_RM_CLASS_GROUP ? GM_RM_OK : GM_RM_INVALID_OBJECT_HANDLE;
    }
}

/* ---- requests ---- */

static bool answer(int fd, uint32_t number, uint32_t size, void *arg, struct sim_group **stopped,
                   uint32_t *n)
{
    if (number == GM_RM_ALLOC && size == sizeof(struct gm_rm_alloc)) {
        struct gm_rm_alloc *p = arg;
        p->status = allocate(fd, p->client, p->parent, &p->object, p->class_, p->params);
    } else if (number == GM_RM_ALLOC && size == sizeof(struct gm_rm_alloc_long)) {
        struct gm_rm_alloc_long *p = arg;
        p->status = allocate(fd, p->client, p->parent, &p->object, p->class_, p->params);
    } else if (number == GM_RM_FREE && size == sizeof(struct gm_rm_free)) {
        struct gm_rm_free *p = arg;
        p->status = release(fd, p->client, p->object);
    } else if (number == GM_RM_DUP && size == sizeof(struct gm_rm_dup)) {
        struct gm_rm_dup *p = arg;
        p->status = duplicate(fd, p);
    } else if (number == GM_RM_CONTROL && size == sizeof(struct gm_rm_control)) {
        struct gm_rm_control *p = arg;
        p->status = control(fd, p, stopped, n);
    } else {
        return false;
    }
    return true;
}

static int request(int fd, unsigned long code, void *arg)
{
    uint32_t number = GM_RM_NUMBER(code), size = GM_RM_SIZE(code), n = 0;
    struct sim_group *stopped[GM_RM_DISABLE_MOST];
    if (!GM_RM_IS_OURS(code)) {
        errno = ENOTTY;
        return -1;
    }
    if (number == GM_RM_WRAPPED && size == sizeof(struct gm_rm_wrapped)) {
        const struct gm_rm_wrapped *p = arg;
        number = p->number;
        size = p->size;
        arg = (void *)(uintptr_t)p->pointer;
    }
    pthread_mutex_lock(&rm_lock);
    const bool is_known = arg != NULL && answer(fd, number, size, arg, stopped, &n);
    pthread_mutex_unlock(&rm_lock);
    for (uint32_t i = 0; i < n; i++)
        sim_group_await(stopped[i]);
    if (!is_known)
        errno = EINVAL;
    return is_known ? 0 : -1;
}

SIM_API int ioctl(int fd, unsigned long code, ...)
{
    va_list args;
    va_start(args, code);
    void *arg = va_arg(args, void *);
    va_end(args);
    if (fd >= 0 && fd == atomic_load_explicit(&control_fd, memory_order_relaxed))
        return request(fd, code, arg);
    return (int)syscall(SYS_ioctl, fd, code, arg);
}

int sim_rm_open(void)
{
    const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    atomic_store(&control_fd, fd);
    return fd;
}

void sim_rm_forget(void)
{
    atomic_store(&control_fd, -1);
}
