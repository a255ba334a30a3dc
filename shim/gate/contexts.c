/* The list of contexts and the drainer's walk over it. See contexts.h for how destroying and
 * draining exclude each other. */
#include "shim/gate/contexts.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/locks.h"
#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/gate/gate.h"

#define GM_EVENT_NAP 1000000 /* ns: an event behind no work is passed by then */

/* The newest window that gm_contexts_follow was asked about there. */
struct gm_follow {
    CUevent event; /* recorded for it; NULL: the GPU has passed it */
    uint32_t window;
};

struct gm_context {
    CUcontext context;
    uint64_t round; /* the drainer's newest walk that came there */
    struct gm_follow follow;
};

static struct gm_lock gm_contexts_lock = GM_LOCK_INITIALIZER(GM_LOCK_CONTEXTS);
static pthread_cond_t gm_contexts_left = PTHREAD_COND_INITIALIZER; /* the drainer came out */
static struct gm_context *gm_context_list;
static size_t gm_context_count;
static size_t gm_context_reserved; /* free places that gm_contexts_reserve promised */
static size_t gm_context_leaving;  /* between remove and removed */
static size_t gm_context_room;
static uint64_t gm_context_round;
static bool gm_primary_is_active[GM_DEVICES_MOST];
static struct gm_follow gm_primary_follow[GM_DEVICES_MOST];
static unsigned gm_primary_locks[GM_DEVICES_MOST];         /* releases and resets under way */
static _Atomic bool gm_primary_has_ended[GM_DEVICES_MOST]; /* ever */
static CUcontext gm_contexts_gone[GM_CONTEXTS_GONE];
static unsigned gm_contexts_next_gone;

/* Where the drainer is: at most one of the two. */
static CUcontext gm_drained_context;
static CUdevice gm_drained_device = -1;

/* A walk that may stop early (stamp), or that visits instead of waiting. */
struct gm_contexts_asker {
    const _Atomic uint64_t *stamp;
    uint64_t seen, late_ns, until;
    void (*visit)(CUcontext context, uint64_t argument);
    uint64_t argument;
};
static bool gm_contexts_has_waited; /* the drainer's: it found work */
/* Counts reasons to stop early. The drainer naps on this futex. */
static _Atomic uint32_t gm_contexts_bell;

static void gm_contexts_counted(int change)
{
    atomic_fetch_add(&gm_gate_stat()->contexts, (uint32_t)change);
}

static struct timespec gm_contexts_patience(void)
{
    return gm_timespec(gm_now() + GM_CONTEXT_PATIENCE_S * GM_S);
}

void gm_contexts_wake(void)
{
    atomic_fetch_add(&gm_contexts_bell, 1);
    syscall(SYS_futex, &gm_contexts_bell, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* With the lock. */
static CUcontext *gm_contexts_find_gone(CUcontext context)
{
    for (unsigned i = 0; context != NULL && i < GM_CONTEXTS_GONE; i++)
        if (gm_contexts_gone[i] == context)
            return &gm_contexts_gone[i];
    return NULL;
}

void gm_contexts_note_gone(CUcontext context)
{
    gm_lock(&gm_contexts_lock);
    gm_contexts_gone[gm_contexts_next_gone++ % GM_CONTEXTS_GONE] = context;
    gm_unlock(&gm_contexts_lock);
}

bool gm_contexts_is_gone(CUcontext context)
{
    gm_lock(&gm_contexts_lock);
    bool is_gone = gm_contexts_find_gone(context) != NULL;
    gm_unlock(&gm_contexts_lock);
    return is_gone;
}

bool gm_contexts_reserve(void)
{
    bool is_there = true;
    gm_lock(&gm_contexts_lock);
    if (gm_context_count + gm_context_reserved == gm_context_room) {
        size_t room = gm_context_room == 0 ? 8 : 2 * gm_context_room;
        struct gm_context *list = realloc(gm_context_list, room * sizeof(*list));
        is_there = list != NULL;
        if (is_there) {
            gm_context_list = list;
            gm_context_room = room;
        }
    }
    gm_context_reserved += is_there;
    gm_unlock(&gm_contexts_lock);
    return is_there;
}

void gm_contexts_release(void)
{
    gm_lock(&gm_contexts_lock);
    gm_context_reserved--;
    gm_unlock(&gm_contexts_lock);
}

void gm_contexts_removed(void)
{
    gm_lock(&gm_contexts_lock);
    gm_context_leaving--;
    pthread_cond_broadcast(&gm_contexts_left);
    gm_unlock(&gm_contexts_lock);
}

void gm_contexts_add(CUcontext context)
{
    gm_lock(&gm_contexts_lock);
    for (CUcontext *gone; (gone = gm_contexts_find_gone(context)) != NULL;)
        *gone = NULL;
    gm_context_reserved--;
    gm_context_list[gm_context_count++] = (struct gm_context){.context = context};
    gm_contexts_counted(1);
    gm_unlock(&gm_contexts_lock);
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
    gm_lock(&gm_contexts_lock);
    bool has = gm_contexts_index(context) < gm_context_count;
    gm_unlock(&gm_contexts_lock);
    return has;
}

bool gm_contexts_remove(CUcontext context)
{
    struct timespec until = gm_contexts_patience();
    gm_lock(&gm_contexts_lock);
    size_t i = gm_contexts_index(context);
    bool has = i < gm_context_count;
    if (has) {
        gm_context_list[i] = gm_context_list[--gm_context_count];
        gm_context_reserved++;
        gm_context_leaving++;
        gm_contexts_counted(-1);
    }
    int error = 0;
    if (gm_drained_context == context)
        gm_contexts_wake();
    while (gm_drained_context == context && error != ETIMEDOUT)
        error = gm_lock_wait_until(&gm_contexts_left, &gm_contexts_lock, &until);
    gm_unlock(&gm_contexts_lock);
    return has;
}

void gm_contexts_lock_primary(CUdevice device)
{
    if (device < 0 || device >= GM_DEVICES_MOST)
        return;
    struct timespec until = gm_contexts_patience();
    gm_lock(&gm_contexts_lock);
    gm_primary_locks[device]++;
    int error = 0;
    if (gm_drained_device == device)
        gm_contexts_wake();
    while (gm_drained_device == device && error != ETIMEDOUT)
        error = gm_lock_wait_until(&gm_contexts_left, &gm_contexts_lock, &until);
    const CUevent event = gm_primary_follow[device].event;
    gm_primary_follow[device] = (struct gm_follow){0};
    gm_unlock(&gm_contexts_lock);
    if (event != NULL)
        gm_real.cuEventDestroy_v2(event);
}

void gm_contexts_unlock_primary(CUdevice device)
{
    if (device < 0 || device >= GM_DEVICES_MOST)
        return;
    gm_lock(&gm_contexts_lock);
    gm_primary_locks[device]--;
    pthread_cond_broadcast(&gm_contexts_left);
    gm_unlock(&gm_contexts_lock);
}

bool gm_contexts_primary_is_over(CUdevice device)
{
    unsigned flags;
    int is_active = 1;
    return device >= 0 && device < GM_DEVICES_MOST &&
           __builtin_expect(
               atomic_load_explicit(&gm_primary_has_ended[device], memory_order_acquire), 0) &&
           gm_real.cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
           is_active == 0;
}

void gm_contexts_note_primary(CUdevice device, bool is_active)
{
    if (device < 0 || device >= GM_DEVICES_MOST)
        return;
    if (!is_active)
        atomic_store_explicit(&gm_primary_has_ended[device], true, memory_order_release);
    gm_lock(&gm_contexts_lock);
    if (gm_primary_is_active[device] != is_active) {
        gm_primary_is_active[device] = is_active;
        gm_contexts_counted(is_active ? 1 : -1);
    }
    gm_unlock(&gm_contexts_lock);
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

static CUresult gm_contexts_synchronize_current(void)
{
    if (!gm_gate_sync_begin())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = gm_real.cuCtxSynchronize();
    gm_gate_sync_end();
    return result;
}

/* Whether the drainer may go on waiting in its context. */
static bool gm_contexts_may_wait(const struct gm_contexts_asker *asker)
{
    if (atomic_load(asker->stamp) != asker->seen || gm_now() >= asker->until)
        return false;
    gm_lock(&gm_contexts_lock);
    bool is_wanted = gm_drained_context == NULL
                         ? gm_primary_locks[gm_drained_device] > 0
                         : gm_contexts_index(gm_drained_context) == gm_context_count;
    gm_unlock(&gm_contexts_lock);
    return !is_wanted;
}

/* Wait until the GPU has passed `event`. */
static CUresult gm_contexts_await(CUevent event, const struct gm_contexts_asker *asker)
{
    bool is_due = asker->late_ns < GM_MS; /* else it polls no more often than that */
    for (uint64_t nap = is_due ? asker->late_ns : GM_EVENT_NAP;;
         nap = asker->late_ns, is_due = true) {
        uint32_t bell = atomic_load(&gm_contexts_bell);
        if (!gm_contexts_may_wait(asker))
            return CUDA_ERROR_NOT_READY;
        if (gm_gate_captures() > 0)
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        CUresult result = is_due ? gm_real.cuEventQuery(event) : CUDA_ERROR_NOT_READY;
        if (result != CUDA_ERROR_NOT_READY)
            return result;
        gm_contexts_has_waited = gm_contexts_has_waited || is_due;
        const struct timespec pause = gm_timespec(nap);
        syscall(SYS_futex, &gm_contexts_bell, FUTEX_WAIT_PRIVATE, bell, &pause, NULL, 0);
    }
}

/* Record `*event` behind all work of `context`, the current one. NULL: make it first. */
static CUresult gm_contexts_record_current(CUcontext context, CUevent *event)
{
    CUresult result = CUDA_SUCCESS;
    if (gm_real.cuCtxRecordEvent == NULL || gm_real.cuEventCreate == NULL ||
        gm_real.cuEventDestroy_v2 == NULL || gm_real.cuEventQuery == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (*event == NULL)
        result = gm_real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    if (!gm_gate_sync_begin())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    result = gm_real.cuCtxRecordEvent(context, *event);
    gm_gate_sync_end();
    return result;
}

/* Wait until the work of `context`, the current one, ends. */
static CUresult gm_contexts_finish_current(CUcontext context, const struct gm_contexts_asker *asker)
{
    CUevent event = NULL;
    if (!gm_contexts_may_wait(asker))
        return CUDA_ERROR_NOT_READY;
    CUresult result = gm_contexts_record_current(context, &event);
    if (result == CUDA_SUCCESS)
        result = gm_contexts_await(event, asker);
    else if (result == CUDA_ERROR_NOT_SUPPORTED) {
        gm_contexts_has_waited = true; /* nobody knows */
        result = gm_contexts_synchronize_current();
    }
    if (event != NULL)
        gm_real.cuEventDestroy_v2(event);
    return result;
}

/* CUDA_SUCCESS: `context` has no work; with an asker, none that it had at the call. */
static CUresult gm_contexts_wait_for(CUcontext context, const struct gm_contexts_asker *asker)
{
    CUcontext popped;
    CUresult result = gm_real.cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        if (asker == NULL)
            result = gm_contexts_synchronize_current();
        else if (asker->visit != NULL)
            asker->visit(context, asker->argument);
        else
            result = gm_contexts_finish_current(context, asker);
        gm_real.cuCtxPopCurrent_v2(&popped);
    }
    return gm_contexts_is_over(result) ? CUDA_SUCCESS : result;
}

/* Mark and return the next context that `round` has not seen, or NULL. */
static CUcontext gm_contexts_step(uint64_t round)
{
    gm_lock(&gm_contexts_lock);
    gm_drained_context = NULL;
    for (size_t i = 0; i < gm_context_count && gm_drained_context == NULL; i++) {
        if (gm_context_list[i].round == round)
            continue;
        gm_context_list[i].round = round;
        gm_drained_context = gm_context_list[i].context;
    }
    CUcontext context = gm_drained_context;
    pthread_cond_broadcast(&gm_contexts_left);
    gm_unlock(&gm_contexts_lock);
    return context;
}

static void gm_contexts_at_primary(CUdevice device)
{
    gm_lock(&gm_contexts_lock);
    while (device >= 0 && gm_primary_locks[device] > 0)
        gm_lock_wait(&gm_contexts_left, &gm_contexts_lock);
    gm_drained_device = device;
    pthread_cond_broadcast(&gm_contexts_left);
    gm_unlock(&gm_contexts_lock);
}

static CUresult gm_contexts_wait_for_primary(CUdevice device, const struct gm_contexts_asker *asker)
{
    CUcontext context;
    unsigned flags;
    int is_active = 0;

    gm_contexts_at_primary(device);
    CUresult result = gm_real.cuDevicePrimaryCtxGetState(device, &flags, &is_active);
    if (result == CUDA_SUCCESS && is_active == 0) {
        gm_lock(&gm_contexts_lock);
        gm_primary_follow[device] = (struct gm_follow){0}; /* its event is gone, too */
        gm_unlock(&gm_contexts_lock);
    }
    if (result != CUDA_SUCCESS || is_active == 0)
        goto leave;
    result = gm_real.cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS)
        goto leave;
    gm_contexts_note_primary(device, true);
    result = gm_contexts_wait_for(context, asker);
    gm_real.cuDevicePrimaryCtxRelease_v2(device);
leave:
    gm_contexts_at_primary(-1);
    return gm_contexts_is_over(result) ? CUDA_SUCCESS : result;
}

/* Those that are being destroyed are on no list; their work ends before the driver returns. */
static void gm_contexts_await_leaving(void)
{
    gm_lock(&gm_contexts_lock);
    while (gm_context_leaving > 0)
        gm_lock_wait(&gm_contexts_left, &gm_contexts_lock);
    gm_unlock(&gm_contexts_lock);
}

/* Over all contexts. Returns the first error. With an asker it stops there. */
static CUresult gm_contexts_walk(const struct gm_contexts_asker *asker)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext context;
    uint64_t round = ++gm_context_round; /* the drainer's alone */

    while ((context = gm_contexts_step(round)) != NULL) {
        if (asker != NULL && result != CUDA_SUCCESS)
            continue;
        CUresult one = gm_contexts_wait_for(context, asker);
        result = result == CUDA_SUCCESS ? one : result;
    }
    for (uint32_t i = 0; i < gm_device_count(); i++) {
        if (asker != NULL && result != CUDA_SUCCESS)
            break;
        CUresult one = gm_contexts_wait_for_primary(gm_device_at(i), asker);
        result = result == CUDA_SUCCESS ? one : result;
    }
    if (asker == NULL || asker->visit == NULL)
        gm_contexts_await_leaving(); /* last: one of the above may have left meanwhile */
    return result;
}

CUresult gm_contexts_synchronize(void)
{
    return gm_contexts_walk(NULL);
}

CUresult gm_contexts_finish(const _Atomic uint64_t *stamp, uint64_t seen, uint64_t late_ns,
                            uint64_t until)
{
    const struct gm_contexts_asker asker = {
        .stamp = stamp, .seen = seen, .late_ns = late_ns, .until = until};
    gm_contexts_has_waited = false;
    return gm_contexts_walk(&asker);
}

bool gm_contexts_had_work(void)
{
    return gm_contexts_has_waited;
}

void gm_contexts_visit(void (*visit)(CUcontext context, uint64_t argument), uint64_t argument)
{
    const struct gm_contexts_asker asker = {.visit = visit, .argument = argument};
    gm_contexts_walk(&asker);
}

static CUresult gm_follow_result; /* the drainer's: of the contexts so far */

/* With the lock: of the context that the drainer is in. NULL: somebody destroys it. */
static struct gm_follow *gm_follow_here(void)
{
    if (gm_drained_context == NULL)
        return &gm_primary_follow[gm_drained_device];
    const size_t i = gm_contexts_index(gm_drained_context);
    return i < gm_context_count ? &gm_context_list[i].follow : NULL;
}

static void gm_follow_current(CUcontext context, uint64_t window)
{
    gm_lock(&gm_contexts_lock);
    const struct gm_follow *before = gm_follow_here();
    struct gm_follow follow = before != NULL ? *before : (struct gm_follow){0};
    gm_unlock(&gm_contexts_lock);

    CUresult result = CUDA_SUCCESS;
    if (follow.window != window)
        result = gm_contexts_record_current(context, &follow.event);
    if (result == CUDA_SUCCESS) {
        follow.window = (uint32_t)window;
        result = follow.event != NULL ? gm_real.cuEventQuery(follow.event) : CUDA_SUCCESS;
    }
    if (gm_contexts_is_over(result))
        result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && follow.event != NULL) {
        gm_real.cuEventDestroy_v2(follow.event);
        follow.event = NULL;
    }
    if (result != CUDA_SUCCESS && gm_follow_result != CUDA_ERROR_NOT_SUPPORTED)
        gm_follow_result = result == CUDA_ERROR_NOT_SUPPORTED ? result : CUDA_ERROR_NOT_READY;

    gm_lock(&gm_contexts_lock);
    struct gm_follow *now = gm_follow_here();
    if (now != NULL)
        *now = follow; /* else the event ends with its context */
    gm_unlock(&gm_contexts_lock);
}

CUresult gm_contexts_follow(uint32_t window)
{
    const struct gm_contexts_asker asker = {.visit = gm_follow_current, .argument = window};
    gm_follow_result = CUDA_SUCCESS;
    bool is_whole = gm_contexts_walk(&asker) == CUDA_SUCCESS;
    gm_lock(&gm_contexts_lock);
    is_whole = is_whole && gm_context_leaving == 0;
    for (size_t i = 0; i < gm_context_count; i++)
        is_whole = is_whole && gm_context_list[i].round == gm_context_round;
    gm_unlock(&gm_contexts_lock);
    return gm_follow_result == CUDA_SUCCESS && !is_whole ? CUDA_ERROR_NOT_READY : gm_follow_result;
}
