#include "daemon/memory/hostpool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/sums.h"
#include "daemon/memory/files.h"

/* ---- states of pieces ---- */

/*
 * The states of pieces: the one writer of them, of which units are idle, and so of which pages can
 * be taken.
 */

static void piece_set_idle(struct gm_hostpool *pool, uint32_t page, bool is_idle)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    uint32_t *count = &pool->idle[gm_piece_class(page)];
    *count = *count + is_idle - piece->is_idle;
    piece->is_idle = is_idle;
    pool->fresh -= piece->is_fresh;
    piece->is_fresh = false;
}

/* A unit is one chain. */
static void piece_link(struct gm_hostpool *pool, uint32_t page)
{
    const uint32_t n = 1u << gm_piece_class(page);
    for (uint32_t i = 0; i < n; i++)
        pool->pages.next[page + i] = i + 1 < n ? page + i + 1 : GM_NONE;
}

static void end_being_there(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    piece_set_idle(pool, page, false);
    if (gm_piece_class(page) == GM_WHOLE) {
        if (piece->has_owner)
            gm_pages_free(&pool->pages, page);
        gm_pages_remove_slab(&pool->pages, gm_slab_of(page));
    }
    piece->has_owner = false;
}

static void begin_being_there(struct gm_hostpool *pool, uint32_t page)
{
    if (gm_piece_class(page) == GM_WHOLE) {
        gm_pages_add_slab(&pool->pages, gm_slab_of(page));
        return;
    }
    piece_link(pool, page);
    gm_piece_of(pool, page)->has_owner = true;
    piece_set_idle(pool, page, true);
    gm_piece_of(pool, page)->is_fresh = true;
    pool->fresh++;
}

/* Only slabs that are THERE have pages that can be taken; a small unit that begins to be there is
 * idle and fresh. What the worker releases does not outlive the daemon. */
static void piece_set(struct gm_hostpool *pool, uint32_t page, enum gm_piece_state state)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const unsigned class = gm_piece_class(page);
    const uint32_t index = gm_piece_index(page);
    uint32_t *top = &pool->top[class];
    if (piece->state == GM_PIECE_THERE)
        end_being_there(pool, page);
    if (state == GM_PIECE_RELEASING)
        gm_kept_drop(pool->kept, GM_KEPT_PIECE, pool->gpu, page);
    pool->count[class][piece->state]--;
    piece->state = (uint8_t)state;
    pool->count[class][state]++;
    if (state == GM_PIECE_ABSENT)
        piece->is_used_up = false;
    else if (index >= *top)
        *top = index + 1;
    while (*top > 0 && pool->pieces[class][*top - 1].state == GM_PIECE_ABSENT)
        (*top)--;
    if (state == GM_PIECE_THERE)
        begin_being_there(pool, page);
}

/* ---- pieces, as the driver has them ---- */

/*
 * Pieces with the driver: one is made, exported, imported or released as a whole, or as far as the
 * driver lets it; the piece keeps note of what there is.
 */

/* Slabs of a pool with is_registered: `is_held` says that there is memory, `is_mapped` that it is
 * registered. */
static CUresult release_registered(struct gm_hostpool *pool, struct gm_piece *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (slab->is_mapped)
        result = pool->cuda->cuMemHostUnregister(at);
    if (result != CUDA_SUCCESS)
        return result;
    slab->is_mapped = false;
    if (slab->is_held &&
        mmap(at, GM_SLAB_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    slab->is_held = false;
    return CUDA_SUCCESS;
}

static CUresult make_registered(struct gm_hostpool *pool, struct gm_piece *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (!slab->is_held && mmap(at, GM_SLAB_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    slab->is_held = true;
    if (!slab->is_mapped)
        result = pool->cuda->cuMemHostRegister_v2(at, GM_SLAB_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    slab->is_mapped = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        release_registered(pool, slab, at);
    return result;
}

static void close_file(struct gm_piece *piece)
{
    if (piece->fd == 0)
        return;
    close(piece->fd);
    piece->fd = 0;
    if (piece->has_frames_file)
        gm_files_drop_frame();
    else
        gm_files_drop_slab();
}

/* Files of slabs are held where each has one. */
static bool has_frames_file(const struct gm_hostpool *pool, uint32_t page)
{
    return !pool->kept || gm_piece_class(page) != GM_WHOLE;
}

/* See that it has a descriptor. */
static CUresult piece_export(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    int fd = 0;
    if (piece->fd != 0)
        return CUDA_SUCCESS;
    const CUresult result = pool->cuda->cuMemExportToShareableHandle(
        &fd, piece->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS)
        return result;
    piece->has_frames_file = has_frames_file(pool, page);
    if (gm_files_is_reserved(fd) || (piece->has_frames_file && !gm_files_add_frame())) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM; /* as the driver says when no file is left */
    }
    if (!piece->has_frames_file)
        gm_files_add_slab();
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    piece->fd = fd;
    return CUDA_SUCCESS;
}

/* Release it and its descriptor, as far as the driver lets it. */
static CUresult piece_release(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const uint64_t bytes = gm_class_bytes(gm_piece_class(page));
    const CUdeviceptr at = gm_piece_address(pool, page);
    CUresult result = CUDA_SUCCESS;
    if (pool->is_registered)
        return release_registered(pool, piece, (void *)at);
    if (piece->is_mapped)
        result = pool->cuda->cuMemUnmap(at, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    piece->is_mapped = false;
    if (piece->is_held)
        result = pool->cuda->cuMemRelease(piece->handle);
    if (result != CUDA_SUCCESS)
        return result;
    piece->is_held = false;
    close_file(piece);
    if (piece->at != 0)
        pool->cuda->cuMemAddressFree(piece->at, bytes);
    piece->at = 0;
    return CUDA_SUCCESS;
}

/* Where it lies, with access to it for the GPU and the daemon. */
static CUresult map_piece(struct gm_hostpool *pool, uint32_t page)
{
    const struct gm_cuda *cuda = pool->cuda;
    struct gm_piece *piece = gm_piece_of(pool, page);
    const uint64_t bytes = gm_class_bytes(gm_piece_class(page));
    const CUdeviceptr at = gm_piece_address(pool, page);
    const CUmemAccessDesc access[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = pool->device},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = pool->node},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    CUresult result = CUDA_SUCCESS;
    if (!piece->is_mapped)
        result = cuda->cuMemMap(at, bytes, 0, piece->handle, 0);
    piece->is_mapped = result == CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? cuda->cuMemSetAccess(at, bytes, access, 2) : result;
}

static CUresult reserve_piece(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const uint64_t bytes = gm_class_bytes(gm_piece_class(page));
    if (gm_piece_class(page) == GM_WHOLE || piece->at != 0)
        return CUDA_SUCCESS;
    const CUresult result = pool->cuda->cuMemAddressReserve(&piece->at, bytes, bytes, 0, 0);
    if (result != CUDA_SUCCESS)
        piece->at = 0;
    return result;
}

/* Pin and map a piece; one that is stuck gets only what it lacks. It has a descriptor if it is to
 * outlive the daemon. Not CUDA_SUCCESS: it is released again, if the driver lets it. */
static CUresult piece_make(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = pool->node},
    };
    if (pool->is_registered)
        return make_registered(pool, piece, (void *)gm_piece_address(pool, page));
    CUresult result = reserve_piece(pool, page);
    if (result != CUDA_SUCCESS)
        return result;
    if (!piece->is_held)
        result =
            pool->cuda->cuMemCreate(&piece->handle, gm_class_bytes(gm_piece_class(page)), &prop, 0);
    piece->is_held = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = map_piece(pool, page);
    if (result == CUDA_SUCCESS && pool->kept)
        result = piece_export(pool, page);
    if (result != CUDA_SUCCESS)
        piece_release(pool, page);
    return result;
}

/* The memory behind this descriptor, which is the pool's from now on, becomes the piece's. False:
 * it cannot; is_held says whether some of it is left. */
static bool piece_import(struct gm_hostpool *pool, uint32_t page, int fd)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    piece->fd = fd;
    piece->has_frames_file = has_frames_file(pool, page);
    if (piece->has_frames_file)
        gm_files_adopt_frame();
    else
        gm_files_add_slab();
    CUresult result = reserve_piece(pool, page);
    if (result == CUDA_SUCCESS) {
        result = pool->cuda->cuMemImportFromShareableHandle(
            &piece->handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        piece->is_held = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        result = map_piece(pool, page);
    if (result != CUDA_SUCCESS)
        piece_release(pool, page);
    return result == CUDA_SUCCESS;
}

/* ---- the worker ---- */

/* The address range of all slabs, without memory behind it. 0: refused. */
static CUdeviceptr reserve_plain(uint64_t bytes)
{
    void *base = mmap(NULL, bytes + GM_SLAB_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return 0;
    /* The ends stay mapped: they cost nothing but addresses. */
    return ((CUdeviceptr)(uintptr_t)base + GM_SLAB_BYTES - 1) & ~(GM_SLAB_BYTES - 1);
}

static void work_pieces(uv_work_t *work)
{
    struct gm_hostpool *pool = work->data;
    CUresult result = pool->cuda->cuCtxSetCurrent(pool->context);
    while (result == CUDA_SUCCESS && pool->job.outcome == CUDA_SUCCESS) {
        const uint32_t i = pool->job.next++;
        if (i >= pool->job.n)
            return;
        const uint32_t page = pool->job.pieces[i];
        result = pool->job.is_release ? piece_release(pool, page) : piece_make(pool, page);
        pool->job.is_done[i] = result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        pool->job.outcome = result;
}

/* ---- the loop's side ---- */

/* Bytes of the pieces in states `from` to `to`. */
static uint64_t bytes_in(const struct gm_hostpool *pool, enum gm_piece_state from,
                         enum gm_piece_state to)
{
    uint64_t bytes = 0;
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        for (unsigned state = from; state <= to; state++)
            bytes += pool->count[class][state] * gm_class_bytes(class);
    return bytes;
}

/* What the cap leaves beside what is pinned or may be at any moment. */
static uint64_t room(const struct gm_hostpool *pool)
{
    return gm_less(gm_hostpool_cap(pool), gm_hostpool_pinned(pool));
}

static uint64_t bytes_there(const struct gm_hostpool *pool)
{
    return bytes_in(pool, GM_PIECE_THERE, GM_PIECE_THERE);
}

static uint64_t wanted_bytes(const struct gm_hostpool *pool)
{
    return (pool->asked + GM_SLAB_BYTES - 1) / GM_SLAB_BYTES * GM_SLAB_BYTES;
}

/* How many slabs should be THERE, beside the small units. */
static uint32_t wanted_slabs(const struct gm_hostpool *pool)
{
    const uint64_t units =
        bytes_there(pool) - pool->count[GM_WHOLE][GM_PIECE_THERE] * GM_SLAB_BYTES;
    const uint64_t wanted = wanted_bytes(pool);
    return wanted > units ? (uint32_t)((wanted - units) / GM_SLAB_BYTES) : 0;
}

static bool is_too_much_there(const struct gm_hostpool *pool)
{
    return bytes_there(pool) > wanted_bytes(pool);
}

static bool has_idle(const struct gm_hostpool *pool)
{
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        if (pool->idle[class] > 0)
            return true;
    return false;
}

static bool has_free(const struct gm_hostpool *pool)
{
    return pool->pages.free_slabs > 0 || has_idle(pool);
}

static void work_done(uv_work_t *work, int status);

static void add_to_job(struct gm_hostpool *pool, uint32_t page, enum gm_piece_state state)
{
    piece_set(pool, page, state);
    pool->job.pieces[pool->job.n++] = page;
}

static void start_job(struct gm_hostpool *pool, bool is_release)
{
    if (pool->job.n == 0)
        return;
    pool->job.is_release = is_release;
    pool->job.next = 0;
    pool->job.outcome = CUDA_SUCCESS;
    memset(pool->job.is_done, 0, sizeof pool->job.is_done);
    pool->working = pool->job.n < GM_PIECE_WORKERS ? pool->job.n : GM_PIECE_WORKERS;
    for (uint32_t i = 0; i < pool->working; i++) {
        pool->work[i].data = pool;
        /* It fails only without a function. */
        uv_queue_work(pool->loop, &pool->work[i], work_pieces, work_done);
    }
}

/* Nobody uses anything of it. */
static bool is_free(const struct gm_hostpool *pool, uint32_t page)
{
    const struct gm_piece *piece = gm_piece_of(pool, page);
    return piece->state == GM_PIECE_THERE && !piece->is_fresh &&
           (piece->is_idle || (gm_piece_class(page) == GM_WHOLE && !piece->has_owner &&
                               gm_slab_is_free(&pool->pages, gm_slab_of(page))));
}

/* The piece begins to leave. One that had an owner is destroyed in any case. */
static void leave(struct gm_hostpool *pool, uint32_t page, bool is_used_up)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    is_used_up = is_used_up || piece->has_owner;
    piece_set(pool, page, GM_PIECE_LEAVING);
    piece->is_used_up = is_used_up;
    pool->used_up += is_used_up;
}

/* Slabs that are wanted again, and that the worker has not released, stay. */
static void keep_wanted(struct gm_hostpool *pool)
{
    for (uint32_t i = 0; i < pool->top[GM_WHOLE] && pool->count[GM_WHOLE][GM_PIECE_LEAVING] > 0 &&
                         pool->count[GM_WHOLE][GM_PIECE_THERE] < wanted_slabs(pool);
         i++) {
        const struct gm_piece *slab = &pool->pieces[GM_WHOLE][i];
        if (slab->state == GM_PIECE_LEAVING && !slab->is_used_up)
            piece_set(pool, gm_piece_page(GM_WHOLE, i), GM_PIECE_THERE);
    }
}

/* What is free beyond what is wanted begins to leave: units first, then slabs, the last one first.
 */
static void fit(struct gm_hostpool *pool)
{
    keep_wanted(pool);
    for (unsigned class = 0; class < GM_WHOLE; class ++)
        for (uint32_t i = pool->top[class];
             i > 0 && pool->idle[class] > 0 && is_too_much_there(pool); i--)
            if (is_free(pool, gm_piece_page(class, i - 1)))
                leave(pool, gm_piece_page(class, i - 1), true);
    for (uint32_t i = pool->top[GM_WHOLE];
         i > 0 && has_free(pool) && pool->count[GM_WHOLE][GM_PIECE_THERE] > wanted_slabs(pool); i--)
        if (is_free(pool, gm_piece_page(GM_WHOLE, i - 1)))
            leave(pool, gm_piece_page(GM_WHOLE, i - 1), false);
}

/* Units are wanted, and the cap leaves no room for them: idle ones must go, or free slabs. */
static void make_room_for_units(struct gm_hostpool *pool)
{
    uint64_t bytes = 0, left = room(pool);
    for (uint32_t i = 0; i < pool->n_wants; i++)
        bytes += gm_class_bytes(pool->wants[i].class);
    if (left >= bytes || bytes_in(pool, GM_PIECE_LEAVING, GM_PIECE_RELEASING) > 0)
        return;
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        for (uint32_t i = pool->top[class]; i > 0 && left < bytes && has_free(pool); i--) {
            if (!is_free(pool, gm_piece_page(class, i - 1)))
                continue;
            leave(pool, gm_piece_page(class, i - 1), true);
            left += gm_class_bytes(class);
        }
    if (left < gm_class_bytes(pool->wants[0].class))
        pool->n_wants = 0; /* who wants them asks again */
}

/* Let the worker release pieces until no more are pinned than wanted, and those that are used up;
 * one of these that is stuck is in the way of others until the driver releases it. */
static void start_release(struct gm_hostpool *pool)
{
    const uint64_t leaving = bytes_in(pool, GM_PIECE_LEAVING, GM_PIECE_LEAVING);
    const uint64_t stuck = bytes_in(pool, GM_PIECE_STUCK, GM_PIECE_STUCK);
    if (pool->working > 0 || pool->is_closing || pool->stuck != CUDA_SUCCESS ||
        leaving + stuck == 0)
        return;
    pool->job.n = 0;
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        for (uint32_t i = 0; i < pool->top[class] && pool->job.n < GM_PIECES_A_BATCH; i++) {
            const struct gm_piece *piece = &pool->pieces[class][i];
            const uint64_t pinned = bytes_in(pool, GM_PIECE_MAKING, GM_PIECE_STUCK) -
                                    bytes_in(pool, GM_PIECE_RELEASING, GM_PIECE_RELEASING);
            const bool is_leaving = piece->state == GM_PIECE_LEAVING;
            if ((!is_leaving && piece->state != GM_PIECE_STUCK) ||
                (pinned <= wanted_bytes(pool) && !piece->is_used_up))
                continue;
            pool->used_up -= is_leaving && piece->is_used_up;
            add_to_job(pool, gm_piece_page(class, i), GM_PIECE_RELEASING);
        }
    start_job(pool, true);
}

static uint32_t find_absent(const struct gm_hostpool *pool, unsigned class)
{
    uint32_t i = 0;
    while (i < gm_piece_places(pool, class) && pool->pieces[class][i].state != GM_PIECE_ABSENT)
        i++;
    return i < gm_piece_places(pool, class) ? gm_piece_page(class, i) : GM_NONE;
}

/* Let the worker make the small units that are wanted and have room. */
static void start_units(struct gm_hostpool *pool)
{
    uint32_t taken = 0;
    for (; taken < pool->n_wants; taken++) {
        const unsigned class = pool->wants[taken].class;
        const uint32_t page = find_absent(pool, class);
        if (page == GM_NONE || room(pool) < gm_class_bytes(class))
            break;
        gm_piece_of(pool, page)->owner = pool->wants[taken].owner;
        add_to_job(pool, page, GM_PIECE_MAKING);
    }
    pool->n_wants -= taken;
    for (uint32_t i = 0; i < pool->n_wants; i++)
        pool->wants[i] = pool->wants[taken + i];
}

/* Let the worker make what is wanted and fits under the cap. A STUCK slab counts already. */
static void start_growth(struct gm_hostpool *pool)
{
    if (pool->working > 0 || pool->is_closing || pool->is_refused)
        return;
    pool->job.n = 0;
    start_units(pool);
    const uint32_t wanted = pool->job.n > 0 ? 0 : wanted_slabs(pool);
    for (uint32_t i = 0; i < pool->max_slabs && pool->job.n < GM_PIECES_A_BATCH &&
                         pool->count[GM_WHOLE][GM_PIECE_THERE] + pool->job.n < wanted;
         i++) {
        const struct gm_piece *slab = &pool->pieces[GM_WHOLE][i];
        if ((slab->state == GM_PIECE_STUCK && !slab->is_used_up) ||
            (slab->state == GM_PIECE_ABSENT && room(pool) >= GM_SLAB_BYTES))
            add_to_job(pool, gm_piece_page(GM_WHOLE, i), GM_PIECE_MAKING);
    }
    start_job(pool, false);
}

/* Bring the pool nearer to what is wanted. Releasing comes first: it makes room under the cap. */
static void settle(struct gm_hostpool *pool)
{
    fit(pool);
    make_room_for_units(pool);
    start_release(pool);
    start_growth(pool);
}

/* Whether it outlives the daemon, if it is to. */
static bool put_piece(struct gm_hostpool *pool, uint32_t page, uint32_t id)
{
    const int fd = gm_piece_of(pool, page)->fd;
    return !pool->kept || gm_kept_put(pool->kept, GM_KEPT_PIECE, pool->gpu, page, id, fd) == 0;
}

/* A piece comes back from the worker. */
static void take_over(struct gm_hostpool *pool, uint32_t page, bool is_made)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const bool is_small = gm_piece_class(page) != GM_WHOLE;
    piece->id = 0;
    if (is_made && !put_piece(pool, page, 0)) {
        pool->job.outcome = CUDA_ERROR_OPERATING_SYSTEM; /* another process has no file left */
        piece->is_used_up = true;
        is_made = false;
    }
    /* A small unit that is made in part serves nobody. */
    piece->is_used_up = piece->is_used_up || (!is_made && is_small);
    if (is_made)
        piece_set(pool, page, GM_PIECE_THERE);
    else
        piece_set(pool, page, piece->is_held ? GM_PIECE_STUCK : GM_PIECE_ABSENT);
}

static void work_done(uv_work_t *work, int status)
{
    struct gm_hostpool *pool = work->data;
    (void)status; /* nobody cancels it */
    if (--pool->working > 0)
        return;
    if (!pool->job.is_release && gm_piece_class(pool->job.pieces[0]) != GM_WHOLE)
        pool->n_wants = 0;                   /* whoever has not got one yet asks again */
    for (uint32_t i = pool->job.n; i-- > 0;) /* backwards: the first is the first to be taken */
        take_over(pool, pool->job.pieces[i], !pool->job.is_release && pool->job.is_done[i]);
    if (pool->job.is_release) {
        pool->stuck = pool->job.outcome;
    } else {
        pool->refusal = pool->job.outcome;
        pool->is_refused = pool->refusal != CUDA_SUCCESS;
    }
    settle(pool);
    if (!pool->is_closing)
        pool->on_grown(pool->arg);
}

static void free_tables(struct gm_hostpool *pool)
{
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        free(pool->pieces[class]);
    gm_pages_close(&pool->pages);
}

static int make_tables(struct gm_hostpool *pool)
{
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++) {
        pool->count[class][GM_PIECE_ABSENT] = gm_piece_places(pool, class);
        pool->pieces[class] = calloc(gm_piece_places(pool, class), sizeof *pool->pieces[class]);
        if (!pool->pieces[class])
            return -ENOMEM;
    }
    return gm_pages_open(&pool->pages, (uint64_t)gm_hostpool_pages(pool) * GM_CHUNK_MIN);
}

int gm_hostpool_open(struct gm_hostpool *pool, uv_loop_t *loop, const struct gm_cuda *cuda,
                     CUcontext context, CUdevice device, uint64_t cap, void (*on_grown)(void *arg),
                     void *arg, char *why, size_t why_size)
{
    const uint32_t most = UINT32_MAX / GM_SLAB_PAGES / (GM_CHUNK_CLASSES + 1);
    int node = -1;
    uint64_t slabs = cap / GM_SLAB_BYTES;

    if (slabs > most)
        slabs = most;
    *pool = (struct gm_hostpool){.cuda = cuda,
                                 .context = context,
                                 .device = device,
                                 .loop = loop,
                                 .on_grown = on_grown,
                                 .arg = arg,
                                 .max_slabs = (uint32_t)slabs};
    if (cuda->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) !=
            CUDA_SUCCESS ||
        node < 0)
        node = 0;
    pool->node = node;
    int has_handles = 1; /* old drivers do not know the attribute: try */
    if (cuda->cuDeviceGetAttribute(
            &has_handles, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            device) == CUDA_SUCCESS)
        pool->is_registered = has_handles == 0;
    if (pool->max_slabs == 0)
        return 0;
    if (make_tables(pool) != 0) {
        snprintf(why, why_size, "out of memory for the pinned tier's tables");
        goto fail;
    }
    CUresult result = CUDA_SUCCESS;
    if (pool->is_registered) {
        pool->base = reserve_plain(pool->max_slabs * GM_SLAB_BYTES);
        result = pool->base != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        result = cuda->cuMemAddressReserve(&pool->base, pool->max_slabs * GM_SLAB_BYTES,
                                           GM_SLAB_BYTES, 0, 0);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "cannot reserve addresses for the pinned tier (%s): lower --pinned",
                 gm_cuda_text(cuda, result));
        goto fail;
    }
    return 0;

fail:
    free_tables(pool);
    *pool = (struct gm_hostpool){0};
    return -ENOMEM;
}

void gm_hostpool_bound(struct gm_hostpool *pool, uint64_t (*bound)(const void *arg))
{
    pool->bound = bound;
}

void gm_hostpool_keep(struct gm_hostpool *pool, struct gm_kept *kept, uint32_t gpu)
{
    pool->kept = kept;
    pool->gpu = gpu;
}

void gm_hostpool_close(struct gm_hostpool *pool)
{
    pool->is_closing = true;
    while (pool->working > 0)
        uv_run(pool->loop, UV_RUN_ONCE);
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        for (uint32_t i = 0; i < pool->top[class]; i++) {
            gm_kept_drop(pool->kept, GM_KEPT_PIECE, pool->gpu, gm_piece_page(class, i));
            piece_release(pool, gm_piece_page(class, i));
        }
    if (pool->base && pool->is_registered)
        munmap((void *)pool->base, pool->max_slabs * GM_SLAB_BYTES);
    else if (pool->base)
        pool->cuda->cuMemAddressFree(pool->base, pool->max_slabs * GM_SLAB_BYTES);
    free_tables(pool);
    *pool = (struct gm_hostpool){.is_closing = true};
}

void gm_hostpool_want(struct gm_hostpool *pool, uint64_t bytes)
{
    pool->asked = gm_least(bytes, gm_hostpool_cap(pool));
    pool->is_refused = false;
    pool->stuck = CUDA_SUCCESS;
    settle(pool);
}

/* What is idle goes, so that others can have the room. */
static void drop_idle(struct gm_hostpool *pool)
{
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        for (uint32_t i = 0; i < pool->top[class] && pool->idle[class] > 0; i++) {
            const struct gm_piece *piece = &pool->pieces[class][i];
            if (piece->is_idle && !piece->is_fresh)
                leave(pool, gm_piece_page(class, i), true);
        }
    settle(pool);
}

uint32_t gm_hostpool_take(struct gm_hostpool *pool, uint64_t bytes)
{
    const uint32_t page = gm_pages_take(&pool->pages, bytes);
    if (page == GM_NONE && has_idle(pool))
        drop_idle(pool);
    return page;
}

void gm_hostpool_free(struct gm_hostpool *pool, uint32_t page)
{
    if (page != GM_NONE && gm_piece_of(pool, page)->has_owner)
        piece_set_idle(pool, page, true);
    else
        gm_pages_free(&pool->pages, page);
    if (is_too_much_there(pool) && has_free(pool))
        settle(pool);
}

uint32_t gm_hostpool_emptiest(const struct gm_hostpool *pool)
{
    uint32_t emptiest = GM_NONE;
    int most = -1;
    for (uint32_t i = 0; i < pool->top[GM_WHOLE]; i++) {
        const uint32_t at = gm_slab_of(gm_piece_page(GM_WHOLE, i));
        const struct gm_slab *slab = &pool->pages.slabs[at];
        const int n = __builtin_popcount(slab->free_map);
        if (pool->pieces[GM_WHOLE][i].state != GM_PIECE_THERE ||
            pool->pieces[GM_WHOLE][i].has_owner || slab->free_map == slab->map || n <= most)
            continue;
        emptiest = at;
        most = n;
    }
    return emptiest;
}

/* ---- units ---- */

static uint32_t take_idle(struct gm_hostpool *pool, unsigned class, uint32_t owner)
{
    for (uint32_t i = 0; pool->idle[class] > 0 && i < pool->top[class]; i++) {
        const struct gm_piece *piece = &pool->pieces[class][i];
        const uint32_t page = gm_piece_page(class, i);
        if (!piece->is_idle || piece->owner != owner)
            continue;
        piece_set_idle(pool, page, false);
        return page;
    }
    return GM_NONE;
}

uint32_t gm_hostpool_take_idle(struct gm_hostpool *pool, uint32_t owner)
{
    return take_idle(pool, GM_WHOLE, owner);
}

uint32_t gm_hostpool_take_unit(struct gm_hostpool *pool, unsigned class, uint32_t owner)
{
    if (pool->is_registered)
        return GM_NONE;
    uint32_t page = take_idle(pool, class, owner);
    if (page == GM_NONE && class == GM_WHOLE && pool->pages.free_slabs > 0)
        page = gm_pages_take(&pool->pages, GM_SLAB_BYTES);
    if (page != GM_NONE)
        return page;
    if (class == GM_WHOLE && has_idle(pool)) {
        drop_idle(pool);
    } else if (class != GM_WHOLE && pool->n_wants < GM_PIECES_A_BATCH) {
        pool->wants[pool->n_wants].class = (uint8_t) class;
        pool->wants[pool->n_wants++].owner = owner;
    }
    return GM_NONE;
}

void gm_hostpool_forget_wants(struct gm_hostpool *pool)
{
    pool->n_wants = 0;
}

/* Whoever had units made has asked for them by now. */
static void end_freshness(struct gm_hostpool *pool)
{
    for (unsigned class = 0; class < GM_WHOLE && pool->fresh > 0; class ++)
        for (uint32_t i = 0; i < pool->top[class]; i++)
            pool->pieces[class][i].is_fresh = false;
    pool->fresh = 0;
}

void gm_hostpool_make_units(struct gm_hostpool *pool)
{
    end_freshness(pool);
    if (pool->n_wants > 0)
        settle(pool);
}

bool gm_hostpool_is_unit(const struct gm_hostpool *pool, uint32_t page, unsigned class)
{
    uint32_t end = page;
    return page != GM_NONE && !pool->is_registered && gm_piece_class(page) == class &&
           gm_pages_run(&pool->pages, &end, 1u << class) == 1u << class && end == GM_NONE;
}

CUresult gm_hostpool_lend(struct gm_hostpool *pool, uint32_t page, uint32_t owner, uint32_t id,
                          struct gm_unit_memory *unit)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const CUresult result = piece_export(pool, page);
    if (result != CUDA_SUCCESS)
        return result;
    if (!put_piece(pool, page, id))
        return CUDA_ERROR_OPERATING_SYSTEM; /* another process has no file left */
    piece->has_owner = true;
    piece->owner = owner;
    piece->id = id;
    *unit = (struct gm_unit_memory){piece->handle, gm_piece_address(pool, page), piece->fd};
    return CUDA_SUCCESS;
}

uint32_t gm_hostpool_unit_id(const struct gm_hostpool *pool, uint32_t page)
{
    return gm_piece_of(pool, page)->id;
}

void gm_hostpool_piece(const struct gm_hostpool *pool, uint32_t *page, CUdeviceptr *address,
                       uint64_t *bytes)
{
    *address = gm_piece_address(pool, *page);
    *bytes = (uint64_t)gm_pages_run(&pool->pages, page, GM_SLAB_PAGES) * GM_CHUNK_MIN;
}

void *gm_hostpool_memory(const struct gm_hostpool *pool, uint32_t page)
{
    return (void *)(uintptr_t)gm_piece_address(pool, page);
}

uint32_t gm_hostpool_pages(const struct gm_hostpool *pool)
{
    return pool->max_slabs * GM_PIECE_STRIDE;
}

uint64_t gm_hostpool_cap(const struct gm_hostpool *pool)
{
    const uint64_t most = pool->max_slabs * GM_SLAB_BYTES;
    return pool->bound ? gm_least(most, pool->bound(pool->arg)) : most;
}

uint64_t gm_hostpool_pinned(const struct gm_hostpool *pool)
{
    return bytes_in(pool, GM_PIECE_MAKING, GM_PIECE_STUCK);
}

uint64_t gm_hostpool_size(const struct gm_hostpool *pool)
{
    return bytes_in(pool, GM_PIECE_THERE, GM_PIECE_STUCK);
}

uint64_t gm_hostpool_used(const struct gm_hostpool *pool)
{
    uint64_t bytes = (uint64_t)(pool->pages.pages - pool->pages.free_pages) * GM_CHUNK_MIN;
    for (unsigned class = 0; class < GM_WHOLE; class ++)
        bytes += pool->count[class][GM_PIECE_THERE] * gm_class_bytes(class);
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        bytes -= pool->idle[class] * gm_class_bytes(class);
    return bytes;
}

uint64_t gm_hostpool_leaving(const struct gm_hostpool *pool)
{
    return bytes_in(pool, GM_PIECE_LEAVING, GM_PIECE_RELEASING);
}

bool gm_hostpool_is_leaving(const struct gm_hostpool *pool)
{
    return pool->working > 0 || gm_hostpool_leaving(pool) > 0;
}

/* ---- what the daemon before had ---- */

/*
 * What the daemon before had of the pinned tier: its pieces come first, by their descriptors, then
 * the chains that lie in them.
 */

int gm_hostpool_adopt(struct gm_hostpool *pool, uint32_t page, int fd, uint32_t id, uint32_t owner)
{
    const bool is_piece = page < gm_hostpool_pages(pool) && !pool->is_registered &&
                          gm_piece_first(page) == page &&
                          gm_piece_of(pool, page)->state == GM_PIECE_ABSENT;
    const bool is_lent = is_piece && (id != 0 || gm_piece_class(page) != GM_WHOLE);
    const bool is_nobodys = is_lent && owner == GM_NONE;
    if (!is_piece || is_nobodys) {
        gm_kept_drop(pool->kept, GM_KEPT_PIECE, pool->gpu, page);
        close(fd);
        return is_nobodys ? 0 : -EINVAL;
    }
    if (!piece_import(pool, page, fd)) { /* the keeper holds on: another try may do better */
        if (gm_piece_of(pool, page)->is_held) {
            piece_set(pool, page, GM_PIECE_STUCK);
            gm_piece_of(pool, page)->is_used_up = true;
        }
        return -EIO;
    }
    struct gm_piece *piece = gm_piece_of(pool, page);
    piece_set(pool, page, GM_PIECE_THERE);
    piece->id = id;
    if (!is_lent)
        return 0;
    if (gm_piece_class(page) == GM_WHOLE) {
        piece_link(pool, page);
        gm_pages_adopt(&pool->pages, page, GM_SLAB_BYTES);
    }
    piece->has_owner = true;
    piece->owner = owner;
    piece_set_idle(pool, page, true);
    return 0;
}

bool gm_hostpool_take_again(struct gm_hostpool *pool, uint32_t page, uint64_t bytes)
{
    if (page >= gm_hostpool_pages(pool) || gm_piece_of(pool, page)->state != GM_PIECE_THERE)
        return false;
    if (!gm_piece_of(pool, page)->has_owner)
        return gm_pages_adopt(&pool->pages, page, bytes);
    if (!gm_piece_of(pool, page)->is_idle || gm_piece_first(page) != page ||
        bytes != gm_class_bytes(gm_piece_class(page)))
        return false;
    piece_set_idle(pool, page, false);
    return true;
}
