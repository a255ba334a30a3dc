/*
 * The channels of each context, as libcuda makes them: requests to the kernel driver, through
 * whatever `ioctl` the process has (rm.c). One client for the process, a device and a subdevice
 * under it for each GPU; for each context a channel group for compute and some for the copy
 * engines. The forms of the requests change, as libcuda's do. What an operation of a context runs
 * on is told by sim_channels_group.
 *
 * A process has no channels of its own with SIMCUDA_NO=channels (as under MPS, where they are the
 * server's), and where no request reaches rm.c. Then nothing can be stopped.
 */
#include "shim/driver/rm.h"
#include "tests/simcuda/sim.h"

#include <unistd.h>

#define HANDLE_FIRST 0x5c000001u /* of the handles that libcuda chooses */
#define COMPUTE_CHANNELS 8u      /* counted on an H100 and an H200, driver 580 */
#define COPY_CHANNELS 2u         /* in each copy group: with 6 groups the 20 that were counted */
#define COPY_SMALL (64u << 10)   /* such copies are compute's work; where the limit is: unknown */

static int fd = -1;
static uint32_t client; /* 0: there are no channels */
static uint32_t last_handle = HANDLE_FIRST;
static uint32_t device_object[SIM_DEVICES_MAX]; /* 0: not made yet */

/* ---- requests ---- */

static bool ask(uint32_t number, void *arg, size_t size, bool is_wrapped)
{
    struct gm_rm_wrapped wrapped = {number, (uint32_t)size, (uint64_t)(uintptr_t)arg};
    if (is_wrapped)
        return ioctl(fd, GM_RM_REQUEST(GM_RM_WRAPPED, struct gm_rm_wrapped), &wrapped) == 0;
    return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, GM_RM_MAGIC, number, size), arg) == 0;
}

/* The new object's handle, or 0. */
static uint32_t make(uint32_t parent, uint32_t class_, void *params, size_t size)
{
    struct gm_rm_alloc p = {.client = client,
                            .parent = parent,
                            .object = class_ == GM_RM_CLASS_CLIENT ? 0 : last_handle++,
                            .class_ = class_,
                            .params = (uint64_t)(uintptr_t)params,
                            .params_size = (uint32_t)size};
    return ask(GM_RM_ALLOC, &p, sizeof p, false) && p.status == GM_RM_OK ? p.object : 0;
}

static uint32_t make_long(uint32_t parent, uint32_t class_, bool is_wrapped)
{
    struct gm_rm_alloc_long p = {
        .client = client, .parent = parent, .object = last_handle++, .class_ = class_};
    return ask(GM_RM_ALLOC, &p, sizeof p, is_wrapped) && p.status == GM_RM_OK ? p.object : 0;
}

static void unmake(uint32_t parent, uint32_t object, bool is_wrapped)
{
    struct gm_rm_free p = {.client = client, .parent = parent, .object = object};
    if (object != 0)
        ask(GM_RM_FREE, &p, sizeof p, is_wrapped);
}

/* ---- the process ---- */

void sim_channels_open(void)
{
    if (sim_options.has_no_channels)
        return;
    fd = sim_rm_open();
    if (fd >= 0)
        client = make(0, GM_RM_CLASS_CLIENT, NULL, 0);
    if (fd >= 0 && client == 0) {
        sim_rm_forget();
        close(fd);
    }
}

static uint32_t find_device(int device)
{
    uint32_t params[14] = {(uint32_t)device}; /* cl0080.h (NV0080_ALLOC_PARAMETERS): 56 bytes */
    if (device_object[device] == 0) {
        const uint32_t object = make(client, GM_RM_CLASS_DEVICE, params, sizeof params);
        if (object != 0 && make(object, GM_RM_CLASS_SUBDEVICE, NULL, 0) != 0)
            device_object[device] = object;
    }
    return device_object[device];
}

/* ---- contexts ---- */

static uint32_t make_group(uint32_t device, uint32_t engine)
{
    struct gm_rm_group_params params = {.engine = engine};
    return make(device, GM_RM_CLASS_GROUP, &params, sizeof params);
}

static void make_compute(struct sim_channels *c, uint32_t device)
{
    c->compute = make_group(device, GM_RM_ENGINE_GRAPHICS);
    for (uint32_t i = 0; i < COMPUTE_CHANNELS; i++)
        c->channel[i] = make_long(c->compute, GM_RM_CLASS_CHANNEL_HOPPER, false);
    c->object = make(c->channel[0], GM_RM_CLASS_COMPUTE_HOPPER, NULL, 0);
    struct gm_rm_timeslice slice = {GM_RM_TIMESLICE_DEFAULT_US};
    struct gm_rm_control p = {.client = client,
                              .object = c->compute,
                              .command = GM_RM_SET_TIMESLICE,
                              .params = (uint64_t)(uintptr_t)&slice,
                              .params_size = sizeof slice};
    ask(GM_RM_CONTROL, &p, sizeof p, false);
    sim_rm_bind(client, c->compute, &c->group[SIM_GROUP_COMPUTE]);
}

static void make_copy(struct sim_channels *c, uint32_t device, uint32_t index)
{
    c->copy[index] = make_group(device, GM_RM_ENGINE_COPY0 + index);
    for (uint32_t i = 0; i < COPY_CHANNELS; i++) {
        const uint32_t channel = make_long(c->copy[index], GM_RM_CLASS_CHANNEL_HOPPER, true);
        make_long(channel, GM_RM_CLASS_COPY_HOPPER, i > 0);
    }
    if (index < 2) /* one a direction; nothing runs on the others */
        sim_rm_bind(client, c->copy[index], &c->group[SIM_GROUP_COPY_IN + index]);
}

void sim_channels_make(struct sim_ctx *ctx)
{
    struct sim_channels *c = &ctx->channels;
    const uint32_t device = client != 0 ? find_device(ctx->device) : 0;
    if (device == 0)
        return;
    make_compute(c, device);
    for (uint32_t i = 0; i < SIM_COPY_GROUPS; i++)
        make_copy(c, device, i);
}

/* What is below an object goes with it, but libcuda does not always rely on that. */
void sim_channels_free(struct sim_ctx *ctx)
{
    struct sim_channels *c = &ctx->channels;
    if (c->compute == 0)
        return;
    const uint32_t device = device_object[ctx->device];
    unmake(c->channel[0], c->object, false);
    for (uint32_t i = 0; i < COMPUTE_CHANNELS; i++)
        unmake(c->compute, c->channel[i], i % 2 > 0);
    unmake(device, c->compute, false);
    for (uint32_t i = 0; i < SIM_COPY_GROUPS; i++)
        unmake(device, c->copy[i], i % 2 > 0);
    c->compute = 0;
}

struct sim_group *sim_channels_group(struct sim_ctx *ctx, const struct sim_op *op)
{
    const struct sim_copy *c = &op->u.copy;
    const bool is_engine =
        op->kind == SIM_OP_COPY && c->engine >= 0 && c->width * c->height * c->depth > COPY_SMALL;
    return &ctx->channels.group[is_engine ? SIM_GROUP_COPY_IN + c->engine : SIM_GROUP_COMPUTE];
}
