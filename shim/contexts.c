/*
 * The list of contexts and the drainer's walk over it. See contexts.h for how destroying and
 * draining keep out of each other's way.
 */
#include "shim/contexts.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "shim/gate.h"
#include "shim/real.h"

#define GM_DEVICES_MAX 64

struct gm_context {
    CUcontext context;
    uint64_t round; /* the drainer's walk that synchronized it */
};

/* A leaf in the order of locks. */
static pthread_mutex_t gm_contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gm_contexts_left = PTHREAD_COND_INITIALIZER; /* the drainer came out */
static struct gm_context *gm_context_list;
static size_t gm_context_count;
static size_t gm_context_room;
static uint64_t gm_context_round;
static bool gm_primary_is_active[GM_DEVICES_MAX];
static unsigned gm_primary_locks[GM_DEVICES_MAX]; /* releases and resets under way */

/* Where the drainer is: at most one of the two. */
static CUcontext gm_drained_context;
static CUdevice gm_drained_device = -1;

static void gm_contexts_counted(int change)
{
    atomic_fetch_add(&gm_gate_stat()->contexts, (uint32_t)change);
}

static struct timespec gm_contexts_patience(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GM_CONTEXT_PATIENCE_S;
    return until;
}

void gm_contexts_add(CUcontext context)
{
    pthread_mutex_lock(&gm_contexts_lock);
    if (gm_context_count == gm_context_room) {
        size_t room = gm_context_room == 0 ? 8 : 2 * gm_context_room;
        struct gm_context *list = realloc(gm_context_list, room * sizeof(*list));
        if (list == NULL)
            goto unlock;
        gm_context_list = list;
        gm_context_room = room;
    }
    gm_context_list[gm_context_count++] = (struct gm_context){.context = context};
    gm_contexts_counted(1);
unlock:
    pthread_mutex_unlock(&gm_contexts_lock);
}

static size_t gm_contexts_index(CUcontext context)
{
    size_t i = 0;
    while (i < gm_context_count && gm_context_list[i].context != context)
        i++;
    return i;
}

bool gm_contexts_has(CUcontext context)
{
    pthread_mutex_lock(&gm_contexts_lock);
    bool has = gm_contexts_index(context) < gm_context_count;
    pthread_mutex_unlock(&gm_contexts_lock);
    return has;
}

bool gm_contexts_remove(CUcontext context)
{
    struct timespec until = gm_contexts_patience();
    pthread_mutex_lock(&gm_contexts_lock);
    size_t i = gm_contexts_index(context);
    bool has = i < gm_context_count;
    if (has) {
        gm_context_list[i] = gm_context_list[--gm_context_count];
        gm_contexts_counted(-1);
    }
    int error = 0;
    while (gm_drained_context == context && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&gm_contexts_left, &gm_contexts_lock, &until);
    pthread_mutex_unlock(&gm_contexts_lock);
    return has;
}

void gm_contexts_lock_primary(CUdevice device)
{
    if (device < 0 || device >= GM_DEVICES_MAX)
        return;
    struct timespec until = gm_contexts_patience();
    pthread_mutex_lock(&gm_contexts_lock);
    gm_primary_locks[device]++;
    int error = 0;
    while (gm_drained_device == device && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&gm_contexts_left, &gm_contexts_lock, &until);
    pthread_mutex_unlock(&gm_contexts_lock);
}

void gm_contexts_unlock_primary(CUdevice device)
{
    if (device < 0 || device >= GM_DEVICES_MAX)
        return;
    pthread_mutex_lock(&gm_contexts_lock);
    gm_primary_locks[device]--;
    pthread_cond_broadcast(&gm_contexts_left);
    pthread_mutex_unlock(&gm_contexts_lock);
}

void gm_contexts_note_primary(CUdevice device, bool is_active)
{
    if (device < 0 || device >= GM_DEVICES_MAX)
        return;
    pthread_mutex_lock(&gm_contexts_lock);
    if (gm_primary_is_active[device] != is_active) {
        gm_primary_is_active[device] = is_active;
        gm_contexts_counted(is_active ? 1 : -1);
    }
    pthread_mutex_unlock(&gm_contexts_lock);
}

/* ---- the drainer ---- */

bool gm_contexts_is_over(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    /* Sticky: the context is unusable, says cuda.h, and the process must be relaunched. */
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

/* CUDA_SUCCESS: `context` has no work left. */
static CUresult gm_contexts_wait_for(CUcontext context)
{
    CUcontext popped;
    CUresult result = gm_real.cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (gm_gate_sync_begin()) {
            result = gm_real.cuCtxSynchronize();
            gm_gate_sync_end();
        }
        gm_real.cuCtxPopCurrent_v2(&popped);
    }
    return gm_contexts_is_over(result) ? CUDA_SUCCESS : result;
}

/* The next context that `round` did not see, marked as the one that the drainer is in; or NULL. */
static CUcontext gm_contexts_step(uint64_t round)
{
    pthread_mutex_lock(&gm_contexts_lock);
    gm_drained_context = NULL;
    for (size_t i = 0; i < gm_context_count && gm_drained_context == NULL; i++) {
        if (gm_context_list[i].round == round)
            continue;
        gm_context_list[i].round = round;
        gm_drained_context = gm_context_list[i].context;
    }
    CUcontext context = gm_drained_context;
    pthread_cond_broadcast(&gm_contexts_left);
    pthread_mutex_unlock(&gm_contexts_lock);
    return context;
}

static void gm_contexts_at_primary(CUdevice device)
{
    pthread_mutex_lock(&gm_contexts_lock);
    while (device >= 0 && gm_primary_locks[device] > 0)
        pthread_cond_wait(&gm_contexts_left, &gm_contexts_lock);
    gm_drained_device = device;
    pthread_cond_broadcast(&gm_contexts_left);
    pthread_mutex_unlock(&gm_contexts_lock);
}

static CUresult gm_contexts_wait_for_primary(CUdevice device)
{
    CUcontext context;
    unsigned flags;
    int is_active = 0;

    gm_contexts_at_primary(device);
    CUresult result = gm_real.cuDevicePrimaryCtxGetState(device, &flags, &is_active);
    if (result != CUDA_SUCCESS || is_active == 0)
        goto leave;
    result = gm_real.cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS)
        goto leave;
    gm_contexts_note_primary(device, true);
    result = gm_contexts_wait_for(context);
    gm_real.cuDevicePrimaryCtxRelease_v2(device);
leave:
    gm_contexts_at_primary(-1);
    return gm_contexts_is_over(result) ? CUDA_SUCCESS : result;
}

CUresult gm_contexts_synchronize(const CUdevice *devices, uint32_t n_devices)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext context;
    uint64_t round = ++gm_context_round; /* the drainer's alone */

    while ((context = gm_contexts_step(round)) != NULL) {
        CUresult one = gm_contexts_wait_for(context);
        result = result == CUDA_SUCCESS ? one : result;
    }
    for (uint32_t i = 0; i < n_devices; i++) {
        if (devices[i] < 0 || devices[i] >= GM_DEVICES_MAX)
            continue;
        CUresult one = gm_contexts_wait_for_primary(devices[i]);
        result = result == CUDA_SUCCESS ? one : result;
    }
    return result;
}
