#include "shim/memory/sharing.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/chunk.h"
#include "common/locks.h"
#include "common/log.h"
#include "shim/driver/devices.h"
#include "shim/gate/contexts.h"
#include "shim/link/link.h"
#include "shim/memory/chunks.h"
#include "shim/memory/freed.h"

enum gm_opened_state {
    GM_OPENED_OPENING,
    GM_OPENED_OPEN,
    GM_OPENED_SHUTTING,
    GM_OPENED_DEFERRED,
};

struct gm_opened {
    struct gm_opened *next;
    uint64_t nonce[2];
    uint64_t va; /* 0 while OPENING */
    uint32_t count;
    enum gm_opened_state state;
    bool is_deferred;      /* in the list of freed.c, even if it was opened again */
    struct gm_alloc alloc; /* DEFERRED: for the map, if it is opened again */
};

static struct gm_lock gm_opened_lock = GM_LOCK_INITIALIZER(GM_LOCK_OPENED);
static pthread_cond_t gm_opened_changed = PTHREAD_COND_INITIALIZER;
static struct gm_opened *gm_opened_list;
static bool gm_sharing_real; /* written once, before anybody reads it */

void gm_sharing_init(void)
{
    const char *word = secure_getenv("GPUMUX_SHARING");
    if (word == NULL || strcmp(word, "broker") == 0 || word[0] == '\0')
        return;
    gm_sharing_real = strcmp(word, "real") == 0;
    if (gm_sharing_real)
        gm_log(GM_LOG_INFO, "GPUMUX_SHARING=real: the driver makes all memory; it is not moved");
    else
        gm_log(GM_LOG_WARN, "GPUMUX_SHARING must be broker or real: using broker");
}

bool gm_sharing_is_real(void)
{
    return gm_sharing_real;
}

/* ---- the list ---- */

/* With the lock: the entry of this name, after OPENING and SHUTTING. NULL: none. */
static struct gm_opened *gm_opened_settled(const struct gm_share_name *name)
{
    for (;;) {
        struct gm_opened *opened = gm_opened_list;
        while (opened != NULL &&
               (opened->nonce[0] != name->nonce[0] || opened->nonce[1] != name->nonce[1]))
            opened = opened->next;
        if (opened == NULL || opened->state == GM_OPENED_OPEN ||
            opened->state == GM_OPENED_DEFERRED)
            return opened;
        gm_lock_wait(&gm_opened_changed, &gm_opened_lock);
    }
}

static struct gm_opened *gm_opened_at(uint64_t va)
{
    struct gm_opened *opened = gm_opened_list;
    while (opened != NULL && opened->va != va)
        opened = opened->next;
    return opened;
}

/* With the lock held. */
static void gm_opened_remove(struct gm_opened *opened)
{
    struct gm_opened **place = &gm_opened_list;
    while (*place != opened)
        place = &(*place)->next;
    *place = opened->next;
    free(opened);
    pthread_cond_broadcast(&gm_opened_changed);
}

/* ---- opening ---- */

/* The mapper gave access to the memory's GPU. A context on another device needs its own. */
static CUresult gm_opened_access(const struct gm_alloc *alloc, uint32_t gpu)
{
    const CUmemAccessDesc desc = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = alloc->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (alloc->device == gm_gpu_device(gpu))
        return CUDA_SUCCESS;
    return gm_real.cuMemSetAccess(alloc->va, alloc->span, &desc, 1);
}

/* Unmap it and free the range. */
static CUresult gm_opened_unmap(uint64_t va, uint64_t span)
{
    const int result = gm_link_shut_share(va, span);
    if (result == GM_LINK_LATER)
        return CUDA_SUCCESS;
    if (result != 0)
        return (CUresult)result; /* still mapped: the range cannot be used again */
    gm_real.cuMemAddressFree(va, span);
    return CUDA_SUCCESS;
}

/* Reserve, map and note it. */
static CUresult gm_opened_map(const struct gm_share_name *name, struct gm_alloc *alloc)
{
    CUdeviceptr range;
    CUresult result = gm_real.cuMemAddressReserve(&range, name->bytes, GM_CHUNK_MIN, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    alloc->va = range;
    alloc->bytes = name->bytes - name->slack;
    alloc->span = name->bytes;
    alloc->kind = GM_ALLOC_IMPORT;
    const int answer = gm_link_open_share(range, name);
    if (answer == -ENOTCONN) {
        gm_opened_unmap(alloc->va, alloc->span); /* what of it was mapped by then */
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (answer != 0) {
        gm_real.cuMemAddressFree(range, name->bytes);
        return (CUresult)answer;
    }
    result = gm_opened_access(alloc, name->gpu);
    if (result == CUDA_SUCCESS && gm_allocs_insert(alloc) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        gm_opened_unmap(alloc->va, alloc->span);
    return result;
}

/* With the lock: count one more open of an OPEN or DEFERRED entry. */
static CUresult gm_opened_again(struct gm_opened *opened, CUdeviceptr *va)
{
    if (opened->state == GM_OPENED_DEFERRED && gm_allocs_insert(&opened->alloc) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    opened->state = GM_OPENED_OPEN;
    opened->count++;
    *va = opened->va;
    return CUDA_SUCCESS;
}

CUresult gm_sharing_open(const struct gm_share_name *name, struct gm_alloc where, CUdeviceptr *va)
{
    struct gm_opened *fresh = calloc(1, sizeof(*fresh));
    CUresult result = CUDA_SUCCESS;
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    gm_lock(&gm_opened_lock);
    struct gm_opened *opened = gm_opened_settled(name);
    if (opened != NULL) {
        result = gm_opened_again(opened, va);
    } else {
        fresh->nonce[0] = name->nonce[0];
        fresh->nonce[1] = name->nonce[1];
        fresh->state = GM_OPENED_OPENING;
        fresh->next = gm_opened_list;
        gm_opened_list = fresh;
    }
    gm_unlock(&gm_opened_lock);
    if (opened != NULL) {
        free(fresh);
        return result;
    }

    result = gm_opened_map(name, &where);
    gm_lock(&gm_opened_lock);
    /* Destroying its context may have taken it out of the map meanwhile, but could not close it: it
     * had no address yet. */
    if (result == CUDA_SUCCESS && gm_allocs_find(where.va, &where) != GM_ALLOC_BASE) {
        gm_unlock(&gm_opened_lock);
        gm_opened_unmap(where.va, where.span);
        gm_lock(&gm_opened_lock);
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (result == CUDA_SUCCESS) {
        fresh->va = *va = where.va;
        fresh->count = 1;
        fresh->state = GM_OPENED_OPEN;
        pthread_cond_broadcast(&gm_opened_changed);
    } else {
        gm_opened_remove(fresh);
    }
    gm_unlock(&gm_opened_lock);
    return result;
}

/* ---- closing ---- */

/* Count one close. *is_last: it is SHUTTING now; the caller releases it. */
static bool gm_opened_leave(uint64_t va, bool *is_last)
{
    gm_lock(&gm_opened_lock);
    struct gm_opened *opened = gm_opened_at(va);
    const bool is_open = opened != NULL && opened->state == GM_OPENED_OPEN;
    *is_last = is_open && --opened->count == 0;
    if (*is_last)
        opened->state = GM_OPENED_SHUTTING;
    gm_unlock(&gm_opened_lock);
    return is_open;
}

/* It could not be closed: undo. */
static void gm_opened_reopen(const struct gm_alloc *alloc)
{
    gm_allocs_insert(alloc);
    gm_lock(&gm_opened_lock);
    struct gm_opened *opened = gm_opened_at(alloc->va);
    if (opened != NULL) {
        opened->state = GM_OPENED_OPEN;
        opened->count = 1;
        pthread_cond_broadcast(&gm_opened_changed);
    }
    gm_unlock(&gm_opened_lock);
}

/* Close it after the last capture. */
static bool gm_opened_defer(const struct gm_alloc *alloc)
{
    gm_lock(&gm_opened_lock);
    struct gm_opened *opened = gm_opened_at(alloc->va);
    const bool is_deferred = opened->is_deferred || gm_freed_await(alloc, GM_FREED_CAPTURE, NULL);
    if (is_deferred) {
        opened->is_deferred = true;
        opened->alloc = *alloc;
        opened->state = GM_OPENED_DEFERRED;
        pthread_cond_broadcast(&gm_opened_changed);
    }
    gm_unlock(&gm_opened_lock);
    return is_deferred;
}

/* With the lock: whether to release it now. Not if it was opened again after it was deferred; if it
 * is OPEN but out of the map, its context was destroyed. */
static bool gm_opened_begin_release(struct gm_opened *opened, uint64_t va)
{
    struct gm_alloc alloc;
    if (opened == NULL)
        return false;
    opened->is_deferred = false;
    if (opened->state == GM_OPENED_OPEN && gm_allocs_find(va, &alloc) == GM_ALLOC_BASE)
        return false;
    opened->state = GM_OPENED_SHUTTING;
    return true;
}

CUresult gm_sharing_close(CUdeviceptr va)
{
    struct gm_alloc alloc;
    CUresult result;
    bool is_last;
    if (!gm_opened_leave(va, &is_last))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_last)
        return CUDA_SUCCESS;
    if (gm_allocs_take(va, &alloc) != GM_ALLOC_BASE)
        return CUDA_SUCCESS; /* destroying its context releases it */
    if (!gm_synchronize(alloc.context, &result)) {
        if (gm_opened_defer(&alloc))
            return CUDA_SUCCESS;
        gm_opened_reopen(&alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_ERROR_DEINITIALIZED)
        return result; /* the process exits */
    if (result != CUDA_SUCCESS && !gm_contexts_is_over(result)) {
        gm_opened_reopen(&alloc); /* work may be using it */
        return result;
    }
    return gm_sharing_release(&alloc);
}

CUresult gm_sharing_release(const struct gm_alloc *alloc)
{
    gm_lock(&gm_opened_lock);
    struct gm_opened *opened = gm_opened_at(alloc->va);
    const bool is_due = gm_opened_begin_release(opened, alloc->va);
    gm_unlock(&gm_opened_lock);
    if (!is_due)
        return CUDA_SUCCESS;
    const CUresult result = gm_opened_unmap(alloc->va, alloc->span);
    gm_lock(&gm_opened_lock);
    gm_opened_remove(opened); /* even if it failed: then the range is never used again */
    gm_unlock(&gm_opened_lock);
    return result;
}
