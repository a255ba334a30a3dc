/*
 * Copies and sets, in all their plain forms. Each is one operation of a stream; what differs is the
 * shape, the stream and whether the caller waits.
 * - Copies with host memory: the synchronous forms wait; the asynchronous ones only for pageable
 *   memory, and not when that can be read into a staging buffer right away.
 * - Device to device: the synchronous forms do not wait either, as on a real driver.
 * - Sets: no form waits.
 */
#include "tests/simcuda/sim.h"

#include <string.h>

#define PIECE (1u << 20)      /* booked on a copy engine at a time; a copy stops between two */
#define STAGED_MAX (1u << 20) /* measured: a driver stages 1 MiB while the stream is busy */

/* ---- running ---- */

static void copy_row(const struct sim_copy *c, uint64_t dst, uint64_t src, size_t bytes)
{
    void *to = (void *)(uintptr_t)dst;
    const void *from = (const void *)(uintptr_t)src;
    const bool is_throttled = c->engine >= 0 && sim_options.copy_rate > 0;
    if (!is_throttled && dst < src + bytes && src < dst + bytes) {
        memmove(to, from, bytes);
        if (c->engine >= 0)
            sim_link_count(c->device, c->engine, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        const uint64_t end = is_throttled ? sim_engine_book(c->device, c->engine, n) : 0;
        sim_engine_move((char *)to + at, (const char *)from + at, n);
        if (c->engine >= 0)
            sim_link_count(c->device, c->engine, n);
        if (is_throttled)
            sim_rest_until(end);
        sim_pause_point();
    }
}

void sim_copy_run(const struct sim_copy *c)
{
    size_t width = c->width, height = c->height, depth = c->depth;
    const bool has_plain_rows = height == 1 || (c->dst_pitch == width && c->src_pitch == width);
    if (has_plain_rows &&
        (depth == 1 || (c->dst_slice == width * height && c->src_slice == width * height))) {
        width *= height * depth;
        height = depth = 1;
    }
    for (size_t z = 0; z < depth; z++) {
        for (size_t y = 0; y < height; y++)
            copy_row(c, c->dst + z * c->dst_slice + y * c->dst_pitch,
                     c->src + z * c->src_slice + y * c->src_pitch, width);
    }
}

/* ---- where memory is ---- */

enum place { PLACE_PAGEABLE, PLACE_PINNED, PLACE_DEVICE };

static enum place find_place(uint64_t address, int *device)
{
    enum place place = PLACE_PAGEABLE;
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *r = sim_range_find(address);
    if (r != NULL) {
        place = r->device >= 0 ? PLACE_DEVICE : PLACE_PINNED;
        if (r->device >= 0)
            *device = r->device;
    }
    pthread_mutex_unlock(&sim_va_lock);
    return place;
}

enum copy_form { COPY_SYNC, COPY_ASYNC };

/* Submit a copy that was checked; decides on the engine and on waiting by where the memory is. */
static CUresult submit_copy(const struct sim_copy *copy, CUstream handle, enum sim_mode mode,
                            enum copy_form form)
{
    struct sim_stream *s;
    CUresult result = sim_stream_get(handle, mode, &s);
    if (result == CUDA_SUCCESS && form == COPY_SYNC && sim_is_capturing(s))
        result = sim_capture_sync_stream(s);
    if (result != CUDA_SUCCESS)
        return result;
    if (copy->width == 0 || copy->height == 0 || copy->depth == 0)
        return CUDA_SUCCESS;
    struct sim_op *op = sim_op_new(SIM_OP_COPY);
    op->u.copy = *copy;
    op->u.copy.device = s->ctx->device;
    const enum place from = find_place(copy->src, &op->u.copy.device);
    const enum place to = find_place(copy->dst, &op->u.copy.device);
    op->u.copy.engine = to == PLACE_DEVICE && from != PLACE_DEVICE   ? 0
                        : from == PLACE_DEVICE && to != PLACE_DEVICE ? 1
                                                                     : -1;
    const bool is_line = copy->height == 1 && copy->depth == 1;
    if (form == COPY_ASYNC && from == PLACE_PAGEABLE && to != PLACE_PAGEABLE && is_line &&
        copy->width <= STAGED_MAX && !sim_is_capturing(s)) {
        op->u.copy.staged = sim_alloc(copy->width);
        memcpy(op->u.copy.staged, (const void *)(uintptr_t)copy->src, copy->width);
        op->u.copy.src = (uint64_t)(uintptr_t)op->u.copy.staged;
        return sim_submit(s, op, NULL);
    }
    const bool is_on_device = from == PLACE_DEVICE && to == PLACE_DEVICE;
    const bool is_pageable = from == PLACE_PAGEABLE || to == PLACE_PAGEABLE;
    const bool must_wait = form == COPY_SYNC ? !is_on_device : is_pageable;
    return must_wait ? sim_submit_wait(s, op) : sim_submit(s, op, NULL);
}

/* Which sides of a line are said to be memory that the driver knows. */
enum { KNOWN_NONE = 0, KNOWN_TO = 1, KNOWN_FROM = 2 };

static CUresult submit_line(uint64_t dst, uint64_t src, size_t bytes, CUstream stream,
                            enum sim_mode mode, enum copy_form form, int known)
{
    struct sim_stream *s;
    const CUresult result = sim_stream_get(stream, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes > 0 && (dst == 0 || src == 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (((known & KNOWN_TO) != 0 && !sim_range_covers(dst, bytes)) ||
        ((known & KNOWN_FROM) != 0 && !sim_range_covers(src, bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_copy copy = {
        .dst = dst, .src = src, .width = bytes, .height = bytes > 0, .depth = 1};
    return submit_copy(&copy, stream, mode, form);
}

/* ---- lines ---- */

#define AS_ADDRESS(p) ((uint64_t)(uintptr_t)(p))

/* A copy of one line: the API, its symbols with and without stream, and what it is given. */
#define LINE_SYNC(api, symbol, params, dst, src, bytes, known)                                     \
    static CUresult call_##api(uint64_t to, uint64_t from, size_t n, enum sim_mode mode)           \
    {                                                                                              \
        SIM_ENTER(api);                                                                            \
        return submit_line(to, from, n, NULL, mode, COPY_SYNC, known);                             \
    }                                                                                              \
    SIM_TWO(symbol, symbol##_ptds, params,                                                         \
            call_##api(AS_ADDRESS(dst), AS_ADDRESS(src), bytes, mode))
#define LINE_ASYNC(api, symbol, params, dst, src, bytes, known)                                    \
    static CUresult call_##api(uint64_t to, uint64_t from, size_t n, CUstream stream,              \
                               enum sim_mode mode)                                                 \
    {                                                                                              \
        SIM_ENTER(api);                                                                            \
        return submit_line(to, from, n, stream, mode, COPY_ASYNC, known);                          \
    }                                                                                              \
    SIM_TWO(symbol, symbol##_ptsz, params,                                                         \
            call_##api(AS_ADDRESS(dst), AS_ADDRESS(src), bytes, stream, mode))

LINE_SYNC(cuMemcpy, cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), dst, src, bytes,
          KNOWN_NONE);
LINE_SYNC(cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t bytes), dst, src,
          bytes, KNOWN_TO);
LINE_SYNC(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t bytes), dst, src,
          bytes, KNOWN_FROM);
LINE_SYNC(cuMemcpyDtoD, cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), dst, src,
          bytes, KNOWN_TO | KNOWN_FROM);
LINE_SYNC(cuMemcpyPeer, cuMemcpyPeer,
          (CUdeviceptr dst, CUcontext dst_ctx __attribute__((unused)), CUdeviceptr src,
           CUcontext src_ctx __attribute__((unused)), size_t bytes),
          dst, src, bytes, KNOWN_NONE);
LINE_ASYNC(cuMemcpyAsync, cuMemcpyAsync,
           (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), dst, src, bytes,
           KNOWN_NONE);
LINE_ASYNC(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,
           (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream), dst, src, bytes,
           KNOWN_TO);
LINE_ASYNC(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,
           (void *dst, CUdeviceptr src, size_t bytes, CUstream stream), dst, src, bytes,
           KNOWN_FROM);
LINE_ASYNC(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,
           (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), dst, src, bytes,
           KNOWN_TO | KNOWN_FROM);
LINE_ASYNC(cuMemcpyPeerAsync, cuMemcpyPeerAsync,
           (CUdeviceptr dst, CUcontext dst_ctx __attribute__((unused)), CUdeviceptr src,
            CUcontext src_ctx __attribute__((unused)), size_t bytes, CUstream stream),
           dst, src, bytes, KNOWN_NONE);

/* ---- rectangles and boxes of pitched memory ---- */

/* Where a box begins; false for arrays, which are not simulated. */
static bool find_base(CUmemorytype type, const void *host, CUdeviceptr device, uint64_t *base)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        *base = AS_ADDRESS(host);
        return true;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        *base = device;
        return true;
    default:
        return false;
    }
}

static CUresult submit_box(struct sim_copy *c, size_t src_x, size_t src_y, size_t src_z,
                           size_t dst_x, size_t dst_y, size_t dst_z, CUstream stream,
                           enum sim_mode mode, enum copy_form form)
{
    if (c->src == 0 || c->dst == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->src_pitch == 0)
        c->src_pitch = c->width;
    if (c->dst_pitch == 0)
        c->dst_pitch = c->width;
    const bool has_rows = c->height > 1 || c->depth > 1;
    if (has_rows && (c->src_pitch < src_x + c->width || c->dst_pitch < dst_x + c->width))
        return CUDA_ERROR_INVALID_VALUE;
    c->src += src_z * c->src_slice + src_y * c->src_pitch + src_x;
    c->dst += dst_z * c->dst_slice + dst_y * c->dst_pitch + dst_x;
    return submit_copy(c, stream, mode, form);
}

static CUresult submit_2d(const CUDA_MEMCPY2D *m, CUstream stream, enum sim_mode mode,
                          enum copy_form form)
{
    struct sim_copy c = {0};
    if (m == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!find_base(m->srcMemoryType, m->srcHost, m->srcDevice, &c.src) ||
        !find_base(m->dstMemoryType, m->dstHost, m->dstDevice, &c.dst))
        return CUDA_ERROR_NOT_SUPPORTED;
    c.src_pitch = m->srcPitch;
    c.dst_pitch = m->dstPitch;
    c.width = m->WidthInBytes;
    c.height = m->Height;
    c.depth = 1;
    return submit_box(&c, m->srcXInBytes, m->srcY, 0, m->dstXInBytes, m->dstY, 0, stream, mode,
                      form);
}

/* The plain and the peer form name the same fields. */
#define SUBMIT_3D(m, stream, mode, form)                                                           \
    do {                                                                                           \
        struct sim_copy c = {0};                                                                   \
        if ((m) == NULL || (m)->srcLOD != 0 || (m)->dstLOD != 0)                                   \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        if (!find_base((m)->srcMemoryType, (m)->srcHost, (m)->srcDevice, &c.src) ||                \
            !find_base((m)->dstMemoryType, (m)->dstHost, (m)->dstDevice, &c.dst))                  \
            return CUDA_ERROR_NOT_SUPPORTED;                                                       \
        c.src_pitch = (m)->srcPitch;                                                               \
        c.dst_pitch = (m)->dstPitch;                                                               \
        c.width = (m)->WidthInBytes;                                                               \
        c.height = (m)->Height;                                                                    \
        c.depth = (m)->Depth;                                                                      \
        const size_t src_rows = (m)->srcHeight != 0 ? (m)->srcHeight : c.height;                   \
        const size_t dst_rows = (m)->dstHeight != 0 ? (m)->dstHeight : c.height;                   \
        c.src_slice = src_rows * (c.src_pitch != 0 ? c.src_pitch : c.width);                       \
        c.dst_slice = dst_rows * (c.dst_pitch != 0 ? c.dst_pitch : c.width);                       \
        return submit_box(&c, (m)->srcXInBytes, (m)->srcY, (m)->srcZ, (m)->dstXInBytes, (m)->dstY, \
                          (m)->dstZ, stream, mode, form);                                          \
    } while (0)

static CUresult submit_3d(const CUDA_MEMCPY3D *m, CUstream stream, enum sim_mode mode,
                          enum copy_form form)
{
    SUBMIT_3D(m, stream, mode, form);
}

static CUresult submit_3d_peer(const CUDA_MEMCPY3D_PEER *m, CUstream stream, enum sim_mode mode,
                               enum copy_form form)
{
    SUBMIT_3D(m, stream, mode, form);
}

#define BOX_SYNC(api, symbol, type, submit)                                                        \
    static CUresult call_##api(const type *box, enum sim_mode mode)                                \
    {                                                                                              \
        SIM_ENTER(api);                                                                            \
        return submit(box, NULL, mode, COPY_SYNC);                                                 \
    }                                                                                              \
    SIM_TWO(symbol, symbol##_ptds, (const type *box), call_##api(box, mode))
#define BOX_ASYNC(api, symbol, type, submit)                                                       \
    static CUresult call_##api(const type *box, CUstream stream, enum sim_mode mode)               \
    {                                                                                              \
        SIM_ENTER(api);                                                                            \
        return submit(box, stream, mode, COPY_ASYNC);                                              \
    }                                                                                              \
    SIM_TWO(symbol, symbol##_ptsz, (const type *box, CUstream stream),                             \
            call_##api(box, stream, mode))

BOX_SYNC(cuMemcpy2D, cuMemcpy2D_v2, CUDA_MEMCPY2D, submit_2d);
BOX_SYNC(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, submit_2d);
BOX_SYNC(cuMemcpy3D, cuMemcpy3D_v2, CUDA_MEMCPY3D, submit_3d);
BOX_SYNC(cuMemcpy3DPeer, cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, submit_3d_peer);
BOX_ASYNC(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, submit_2d);
BOX_ASYNC(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, submit_3d);
BOX_ASYNC(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, submit_3d_peer);

/* ---- sets ---- */

/* A set of so much that its end wraps around is taken, and its context dies of it. */
static bool wraps_around(CUdeviceptr dst, size_t width, uint32_t element)
{
    return dst + width * element < dst && sim_range_covers(dst, 1);
}

static CUresult submit_set(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element,
                           size_t width, size_t height, CUstream stream, enum sim_mode mode)
{
    struct sim_stream *s;
    const CUresult result = sim_stream_get(stream, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    if (height == 1 && wraps_around(dst, width, element)) {
        atomic_store(&s->ctx->error, CUDA_ERROR_ILLEGAL_ADDRESS);
        return CUDA_SUCCESS;
    }
    if (height == 1 &&
        !sim_range_covers(dst, width <= UINT64_MAX / element ? width * element : UINT64_MAX))
        return CUDA_ERROR_INVALID_VALUE;
    if (dst == 0 || dst % element != 0 ||
        (height > 1 && (pitch % element != 0 || pitch < width * element)))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(SIM_OP_SET);
    op->u.set.dst = dst;
    op->u.set.pitch = pitch;
    op->u.set.value = value;
    op->u.set.element = element;
    op->u.set.width = width;
    op->u.set.height = height;
    return sim_submit(s, op, NULL);
}

#define SET_API(bits, type)                                                                        \
    static CUresult set_##bits(CUdeviceptr dst, type value, size_t n, enum sim_mode mode)          \
    {                                                                                              \
        SIM_ENTER(cuMemsetD##bits);                                                                \
        return submit_set(dst, 0, value, bits / 8, n, 1, NULL, mode);                              \
    }                                                                                              \
    static CUresult set_async_##bits(CUdeviceptr dst, type value, size_t n, CUstream stream,       \
                                     enum sim_mode mode)                                           \
    {                                                                                              \
        SIM_ENTER(cuMemsetD##bits##Async);                                                         \
        return submit_set(dst, 0, value, bits / 8, n, 1, stream, mode);                            \
    }                                                                                              \
    static CUresult set_2d_##bits(CUdeviceptr dst, size_t pitch, type value, size_t width,         \
                                  size_t height, enum sim_mode mode)                               \
    {                                                                                              \
        SIM_ENTER(cuMemsetD2D##bits);                                                              \
        return submit_set(dst, pitch, value, bits / 8, width, height, NULL, mode);                 \
    }                                                                                              \
    static CUresult set_2d_async_##bits(CUdeviceptr dst, size_t pitch, type value, size_t width,   \
                                        size_t height, CUstream stream, enum sim_mode mode)        \
    {                                                                                              \
        SIM_ENTER(cuMemsetD2D##bits##Async);                                                       \
        return submit_set(dst, pitch, value, bits / 8, width, height, stream, mode);               \
    }                                                                                              \
    SIM_TWO(cuMemsetD##bits##_v2, cuMemsetD##bits##_v2_ptds,                                       \
            (CUdeviceptr dst, type value, size_t n), set_##bits(dst, value, n, mode));             \
    SIM_TWO(cuMemsetD##bits##Async, cuMemsetD##bits##Async_ptsz,                                   \
            (CUdeviceptr dst, type value, size_t n, CUstream stream),                              \
            set_async_##bits(dst, value, n, stream, mode));                                        \
    SIM_TWO(cuMemsetD2D##bits##_v2, cuMemsetD2D##bits##_v2_ptds,                                   \
            (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),              \
            set_2d_##bits(dst, pitch, value, width, height, mode));                                \
    SIM_TWO(                                                                                       \
        cuMemsetD2D##bits##Async, cuMemsetD2D##bits##Async_ptsz,                                   \
        (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
        set_2d_async_##bits(dst, pitch, value, width, height, stream, mode))

SET_API(8, unsigned char);
SET_API(16, unsigned short);
SET_API(32, unsigned int);
