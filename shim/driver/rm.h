/*
 * What the shim knows of the ioctl interface between libcuda.so.1 and NVIDIA's kernel driver: the
 * few requests, objects and controls that channels are made of and parked with. This is no public
 * interface. It is the resource manager's (RM), whose source is open: each fact names the header of
 * github.com/NVIDIA/open-gpu-kernel-modules (branch 580) that it comes from. The layouts have been
 * the same since branch 515, the first open one; the shim tries them before it relies on them
 * (observe/channels.h).
 *
 * Words. A *client* is RM's name for the root of a tree of objects; a process may have several.
 * Objects have 32-bit handles, unique in their client. Below a client are devices, below a device
 * its subdevice (one GPU, the object of many controls) and channel groups, below a group its
 * channels, below a channel the engine's object (compute, copy). Freeing an object frees what is
 * below it.
 *
 * Types: NvHandle and NvU32 are 32 bits, NvBool is one byte, NvP64 is 64 bits and aligned to 8.
 * It depends on nothing, so that the simulated driver of the tests can include it.
 */
#ifndef GM_SHIM_RM_H
#define GM_SHIM_RM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* ---- requests: _IOWR(GM_RM_MAGIC, number, size of the struct) ---- */

/* nv-ioctl-numbers.h (NV_IOCTL_MAGIC). The driver for managed memory (UVM) uses bare numbers, with
 * 0 where the magic stands. */
#define GM_RM_MAGIC 'F'

/* nv_escape.h; GM_RM_WRAPPED: nv-ioctl-numbers.h (NV_ESC_IOCTL_XFER_CMD, base 200 + 11) */
enum {
    GM_RM_FREE = 0x29,    /* struct gm_rm_free */
    GM_RM_CONTROL = 0x2a, /* struct gm_rm_control */
    GM_RM_ALLOC = 0x2b,   /* struct gm_rm_alloc or gm_rm_alloc_long: the size tells which */
    GM_RM_DUP = 0x34,     /* struct gm_rm_dup */
    GM_RM_WRAPPED = 211,  /* struct gm_rm_wrapped, around any of the above */
};

/* The request that carries a struct of that type. */
#define GM_RM_REQUEST(number, type) _IOWR(GM_RM_MAGIC, number, type)

/* Of a request: whether it is RM's, which one, and the size of its struct. */
#define GM_RM_IS_OURS(request) (((request) >> 8 & 0xff) == GM_RM_MAGIC)
#define GM_RM_NUMBER(request) ((uint32_t)((request)&0xff))
#define GM_RM_SIZE(request) ((uint32_t)((request) >> 16 & 0x3fff))

/* nvos.h (NVOS00_PARAMETERS) */
struct gm_rm_free {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* equal to client: the client with all it has */
    uint32_t status;
};

/* nvos.h (NVOS21_PARAMETERS): the short form */
struct gm_rm_alloc {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* the new handle; 0 lets RM choose, and it is filled in */
    uint32_t class_;
    uint64_t params; /* a pointer to the class's own struct, or 0 */
    uint32_t params_size;
    uint32_t status;
};

/* nvos.h (NVOS64_PARAMETERS): the long form, with access rights */
struct gm_rm_alloc_long {
    uint32_t client;
    uint32_t parent;
    uint32_t object;
    uint32_t class_;
    uint64_t params;
    uint64_t rights;
    uint32_t params_size;
    uint32_t flags;
    uint32_t status;
    uint32_t pad;
};

/* nvos.h (NVOS54_PARAMETERS) */
struct gm_rm_control {
    uint32_t client;
    uint32_t object;
    uint32_t command;
    uint32_t flags;
    uint64_t params;
    uint32_t params_size;
    uint32_t status;
};

/* nvos.h (NVOS55_PARAMETERS): a second handle, maybe in another client, for an object */
struct gm_rm_dup {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* the new handle; 0 lets RM choose, and it is filled in */
    uint32_t from_client;
    uint32_t from_object;
    uint32_t flags;
    uint32_t status;
};

/* nv-ioctl.h (nv_ioctl_xfer_t): a request whose struct is elsewhere */
struct gm_rm_wrapped {
    uint32_t number;
    uint32_t size;
    uint64_t pointer;
};

/* Allocating a client is the one request whose struct gives no client: the new handle is in object,
 * and RM chooses it when object is 0. */

/* ---- status: nvstatuscodes.h ---- */

enum {
    GM_RM_OK = 0x00,
    GM_RM_INSUFFICIENT_PERMISSIONS = 0x1b,
    GM_RM_INVALID_ARGUMENT = 0x1f,
    GM_RM_INVALID_CHANNEL = 0x21,
    GM_RM_INVALID_CLIENT = 0x23,
    GM_RM_INVALID_OBJECT_HANDLE = 0x33,
    GM_RM_NOT_SUPPORTED = 0x56,
    GM_RM_OBJECT_NOT_FOUND = 0x57,
};

/* ---- classes ---- */

enum {
    GM_RM_CLASS_CLIENT = 0x0041,    /* cl0041.h, NV01_ROOT_CLIENT */
    GM_RM_CLASS_DEVICE = 0x0080,    /* cl0080.h, NV01_DEVICE_0 */
    GM_RM_CLASS_SUBDEVICE = 0x2080, /* cl2080.h, NV20_SUBDEVICE_0 */
    GM_RM_CLASS_GROUP = 0xa06c,     /* cla06c.h, KEPLER_CHANNEL_GROUP_A: still the only one */

    /* Each architecture has classes of its own, with the same low byte: channels that the host
     * feeds (cla06f.h Kepler, clc36f.h Volta, clc56f.h Ampere, clc86f.h Hopper, clc96f.h Blackwell)
     * and compute (cla0c0.h, clc3c0.h, clc6c0.h, clcbc0.h, clcdc0.h). */
    GM_RM_CLASS_CHANNEL_FIRST = 0xa06f,
    GM_RM_CLASS_CHANNEL_HOPPER = 0xc86f,
    GM_RM_CLASS_COMPUTE_FIRST = 0xa0c0,
    GM_RM_CLASS_COMPUTE_HOPPER = 0xcbc0,
    GM_RM_CLASS_COPY_HOPPER = 0xc8b5, /* clc8b5.h */
};

#define GM_RM_IS_CHANNEL(class_) (((class_)&0xff) == 0x6f && (class_) >= GM_RM_CLASS_CHANNEL_FIRST)
#define GM_RM_IS_COMPUTE(class_) (((class_)&0xff) == 0xc0 && (class_) >= GM_RM_CLASS_COMPUTE_FIRST)

/* cl2080_notification.h (NV2080_ENGINE_TYPE_*): the engine of a group */
enum {
    GM_RM_ENGINE_GRAPHICS = 1, /* compute as well */
    GM_RM_ENGINE_COPY0 = 9,
};

/* What a device is allocated with begins with: cl0080.h (NV0080_ALLOC_PARAMETERS). */
struct gm_rm_device_params {
    uint32_t gpu; /* the driver's number of the GPU */
};

/* What a group is allocated with: nvos.h (NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS). */
struct gm_rm_group_params {
    uint32_t error_object;
    uint32_t ecc_error_object;
    uint32_t va_space;
    uint32_t engine;
    uint8_t is_vgpu_plugin;
    uint8_t pad[3];
};

/* ---- controls ---- */

/* Of a group: ctrla06c.h (NVA06C_CTRL_CMD_*). Of a channel of any architecture:
 * ctrla06fgpfifo.h. Of a subdevice: ctrl2080fifo.h. */
enum {
    GM_RM_SCHEDULE_GROUP = 0xa06c0101,   /* struct gm_rm_schedule: let it run from now on */
    GM_RM_SCHEDULE_CHANNEL = 0xa06f0103, /* the same */
    GM_RM_SET_TIMESLICE = 0xa06c0103,    /* struct gm_rm_timeslice */
    GM_RM_GET_TIMESLICE = 0xa06c0104,
    GM_RM_PREEMPT = 0xa06c0105,        /* struct gm_rm_preempt */
    GM_RM_SET_INTERLEAVE = 0xa06c0107, /* struct gm_rm_interleave */
    GM_RM_GET_INTERLEAVE = 0xa06c0108,
    GM_RM_DISABLE_CHANNELS = 0x2080110b, /* struct gm_rm_disable */
    GM_RM_PID_INFO = 0x2080018e,         /* struct gm_rm_pid_info */
};

/* What libcuda.so.1 itself sets for its compute groups (seen on 580). */
#define GM_RM_TIMESLICE_DEFAULT_US 2048

struct gm_rm_schedule {
    uint8_t is_enable;
    uint8_t is_skip_submit;
    uint8_t is_skip_enable; /* newer drivers only */
};

struct gm_rm_timeslice {
    uint64_t us;
};

struct gm_rm_interleave {
    uint32_t level;
};

/* Take a group off the GPU once; it is scheduled again. */
struct gm_rm_preempt {
    uint8_t is_wait;
    uint8_t is_manual_timeout;
    uint8_t pad[2];
    uint32_t timeout_us;
};

/*
 * ctrl2080fifo.h (NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS): disable or enable channels of any
 * clients on the subdevice's GPU. Disabling also preempts what runs there (is_only_scheduling 0).
 * A list that lacks one channel of a group returns success and stops nothing.
 */
#define GM_RM_DISABLE_MOST 64

struct gm_rm_disable {
    uint8_t is_disable;
    uint8_t pad0[3];
    uint32_t n;
    uint8_t is_only_scheduling;
    uint8_t is_rewind;
    uint8_t pad1[6];
    uint64_t preempt_event; /* the kernel's own use: 0 */
    uint32_t client[GM_RM_DISABLE_MOST];
    uint32_t channel[GM_RM_DISABLE_MOST];
};

/*
 * ctrl2080gpu.h (NV2080_CTRL_GPU_GET_PID_INFO_PARAMS): the GPU memory of processes, as NVML has it.
 * What a process made counts for it, also where others have it mapped. 15 to 115 us (H100).
 */
struct gm_rm_pid_memory {
    uint32_t pid;
    uint32_t index;  /* 0: memory */
    uint32_t result; /* a status */
    uint32_t pad;
    uint64_t private; /* made by the process and nowhere else */
    uint64_t owned;   /* made by it; libcuda's own memory is among this */
    uint64_t duped;   /* made by others */
    uint64_t of_confidential_computing[3];
    uint32_t instance[2];
};

#define GM_RM_PIDS_MOST 200

struct gm_rm_pid_info {
    uint32_t n;
    uint32_t pad;
    struct gm_rm_pid_memory process[GM_RM_PIDS_MOST];
};

/* ---- the layouts that the driver has ---- */

#define GM_RM_IS_AT(type, member, offset)                                                          \
    _Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
#define GM_RM_HAS_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)

GM_RM_HAS_SIZE(gm_rm_free, 16);
GM_RM_IS_AT(gm_rm_free, object, 8);
GM_RM_IS_AT(gm_rm_free, status, 12);
GM_RM_HAS_SIZE(gm_rm_alloc, 32);
GM_RM_IS_AT(gm_rm_alloc, params, 16);
GM_RM_IS_AT(gm_rm_alloc, status, 28);
GM_RM_HAS_SIZE(gm_rm_alloc_long, 48);
GM_RM_IS_AT(gm_rm_alloc_long, rights, 24);
GM_RM_IS_AT(gm_rm_alloc_long, params_size, 32);
GM_RM_IS_AT(gm_rm_alloc_long, status, 40);
GM_RM_HAS_SIZE(gm_rm_control, 32);
GM_RM_IS_AT(gm_rm_control, params, 16);
GM_RM_IS_AT(gm_rm_control, params_size, 24);
GM_RM_IS_AT(gm_rm_control, status, 28);
GM_RM_HAS_SIZE(gm_rm_dup, 28);
GM_RM_IS_AT(gm_rm_dup, status, 24);
GM_RM_HAS_SIZE(gm_rm_wrapped, 16);
GM_RM_IS_AT(gm_rm_wrapped, pointer, 8);
GM_RM_HAS_SIZE(gm_rm_group_params, 20);
GM_RM_IS_AT(gm_rm_group_params, engine, 12);
GM_RM_HAS_SIZE(gm_rm_timeslice, 8);
GM_RM_HAS_SIZE(gm_rm_interleave, 4);
GM_RM_HAS_SIZE(gm_rm_preempt, 8);
GM_RM_IS_AT(gm_rm_preempt, timeout_us, 4);
GM_RM_HAS_SIZE(gm_rm_disable, 536);
GM_RM_IS_AT(gm_rm_disable, n, 4);
GM_RM_IS_AT(gm_rm_disable, is_only_scheduling, 8);
GM_RM_IS_AT(gm_rm_disable, is_rewind, 9);
GM_RM_IS_AT(gm_rm_disable, preempt_event, 16);
GM_RM_IS_AT(gm_rm_disable, client, 24);
GM_RM_IS_AT(gm_rm_disable, channel, 280);
GM_RM_HAS_SIZE(gm_rm_pid_memory, 72);
GM_RM_IS_AT(gm_rm_pid_memory, private, 16);
GM_RM_IS_AT(gm_rm_pid_memory, instance, 64);
GM_RM_HAS_SIZE(gm_rm_pid_info, 14408);
GM_RM_IS_AT(gm_rm_pid_info, process, 8);
_Static_assert(GM_RM_REQUEST(GM_RM_CONTROL, struct gm_rm_control) == 0xc020462a, "the request");

#endif
