/*
 * What test_hostpool.c and test_hostpool_units.c share: a pool over a fake driver that counts what
 * is pinned, fails or holds up the calls that the test names, and knows what no driver would let
 * pass. check() is called after every step.
 */
#ifndef GM_TESTS_HOSTPOOL_WORLD_H
#define GM_TESTS_HOSTPOOL_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/chunk.h"
#include "daemon/core/table.h"
#include "daemon/memory/hostpool.h"

#define MIB (1ull << 20)
#define SLAB GM_SLAB_BYTES
#define BASE (1ull << 40)

/* ---- the driver ---- */

enum call { CREATE, RELEASE, MAP, UNMAP, ACCESS, RESERVE, EXPORT, CALLS };

/* Addresses by 32 MiB: those of the slabs, and a place for each smaller unit. */
#define SLABS 16u
#define PLACES 256u
#define HANDLES 256u

static struct {
    uv_mutex_t mutex; /* over all of it: the worker and the test look at it */
    unsigned calls[CALLS];
    unsigned fail_at[CALLS]; /* the call of that number fails; 0: none */
    unsigned fail_from[CALLS];
    unsigned hold_at[CALLS]; /* the call of that number waits until the test says go */
    uv_sem_t held, go;
    struct {
        bool is_held;
        uint64_t bytes;
        CUdeviceptr mapped_at; /* 0: it is not */
    } handles[HANDLES];
    bool is_reserved[PLACES];
    bool has_access[PLACES];
    unsigned made[PLACES]; /* how often memory was mapped at its start */
    uint64_t cap;
    uint64_t most;     /* pinned at once */
    const char *wrong; /* what no driver would let pass */
} driver;

static inline uint64_t alive(void)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < HANDLES; i++) /* memory lives as long as either */
        if (driver.handles[i].is_held || driver.handles[i].mapped_at)
            n += driver.handles[i].bytes;
    return n;
}

static inline void note_most(void)
{
    if (alive() > driver.most)
        driver.most = alive();
}

/* Enter a call, with the mutex held from here on. False: it has to fail. */
static inline bool enter(enum call call)
{
    uv_mutex_lock(&driver.mutex);
    unsigned n = ++driver.calls[call];
    if (n == driver.hold_at[call]) {
        uv_mutex_unlock(&driver.mutex);
        uv_sem_post(&driver.held);
        uv_sem_wait(&driver.go);
        uv_mutex_lock(&driver.mutex);
    }
    return n != driver.fail_at[call] && (driver.fail_from[call] == 0 || n < driver.fail_from[call]);
}

static inline CUresult leave(CUresult result)
{
    uv_mutex_unlock(&driver.mutex);
    return result;
}

static inline CUresult wrong(const char *what)
{
    driver.wrong = what;
    return leave(CUDA_ERROR_INVALID_VALUE);
}

static inline CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t size,
                                   const CUmemAllocationProp *prop, unsigned long long flags)
{
    unsigned i = 0;
    (void)flags;
    if (!enter(CREATE))
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    while (driver.handles[i].is_held || driver.handles[i].mapped_at)
        i++;
    driver.handles[i].is_held = true;
    driver.handles[i].bytes = size;
    *handle = i + 1;
    note_most();
    if (size == 0 || SLAB % size != 0 || prop->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return wrong("not a slab of host memory");
    return leave(CUDA_SUCCESS);
}

static inline CUresult fake_release(CUmemGenericAllocationHandle handle)
{
    if (!enter(RELEASE))
        return leave(CUDA_ERROR_UNKNOWN);
    if (handle == 0 || handle > HANDLES || !driver.handles[handle - 1].is_held)
        return wrong("released what is not held");
    driver.handles[handle - 1].is_held = false;
    return leave(CUDA_SUCCESS);
}

/* The handle that is mapped at `at`, or over it; HANDLES: none. */
static inline unsigned mapped_at(CUdeviceptr at)
{
    unsigned i = 0;
    while (i < HANDLES && (driver.handles[i].mapped_at == 0 || driver.handles[i].mapped_at > at ||
                           driver.handles[i].mapped_at + driver.handles[i].bytes <= at))
        i++;
    return i;
}

static inline unsigned place_of(CUdeviceptr at)
{
    return (unsigned)((at - BASE) / SLAB);
}

/* How much is mapped from the start of a place on. */
static inline uint64_t mapped_from(CUdeviceptr at)
{
    uint64_t bytes = 0;
    while (bytes < SLAB && mapped_at(at + bytes) != HANDLES)
        bytes += driver.handles[mapped_at(at + bytes)].bytes;
    return bytes;
}

static inline CUresult fake_map(CUdeviceptr at, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)offset, (void)flags;
    if (!enter(MAP))
        return leave(CUDA_ERROR_UNKNOWN);
    if (size != driver.handles[handle - 1].bytes || at < BASE || at % SLAB ||
        at >= BASE + PLACES * SLAB || !driver.is_reserved[place_of(at)] ||
        mapped_at(at) != HANDLES || !driver.handles[handle - 1].is_held ||
        driver.handles[handle - 1].mapped_at)
        return wrong("mapped what or where it cannot be");
    driver.handles[handle - 1].mapped_at = at;
    driver.made[place_of(at)]++;
    return leave(CUDA_SUCCESS);
}

static inline CUresult fake_unmap(CUdeviceptr at, size_t size)
{
    if (!enter(UNMAP))
        return leave(CUDA_ERROR_LAUNCH_FAILED);
    if (at % SLAB != 0 || size != mapped_from(at))
        return wrong("unmapped what is not mapped, or not all of it");
    driver.has_access[place_of(at)] = false;
    for (uint64_t done = 0; done < size;) {
        const unsigned i = mapped_at(at + done);
        driver.handles[i].mapped_at = 0;
        done += driver.handles[i].bytes;
    }
    return leave(CUDA_SUCCESS);
}

static inline CUresult fake_access(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc,
                                   size_t count)
{
    (void)desc;
    if (!enter(ACCESS))
        return leave(CUDA_ERROR_UNKNOWN);
    if (count != 2 || mapped_from(at) != size)
        return wrong("access to what is not mapped");
    driver.has_access[place_of(at)] = true;
    return leave(CUDA_SUCCESS);
}

/* The slabs' addresses come first. */
static inline CUresult fake_reserve(CUdeviceptr *at, size_t size, size_t align, CUdeviceptr want,
                                    unsigned long long flags)
{
    unsigned place = driver.is_reserved[0] ? SLABS : 0;
    (void)align, (void)want, (void)flags;
    if (!enter(RESERVE))
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    while (place < PLACES && driver.is_reserved[place])
        place++;
    if (place == PLACES || (place == 0) != (size == driver.cap / SLAB * SLAB) ||
        size > SLABS * SLAB)
        return wrong("reserved too much");
    for (size_t i = 0; i * SLAB < size; i++)
        driver.is_reserved[place + i] = true;
    *at = BASE + place * SLAB;
    return leave(CUDA_SUCCESS);
}

static inline CUresult fake_unreserve(CUdeviceptr at, size_t size)
{
    uv_mutex_lock(&driver.mutex);
    for (size_t i = 0; i * SLAB < size; i++) {
        if (!driver.is_reserved[place_of(at) + i] || mapped_at(at + i * SLAB) != HANDLES)
            return wrong("gave back addresses that are not reserved, or mapped");
        driver.is_reserved[place_of(at) + i] = false;
    }
    return leave(CUDA_SUCCESS);
}

/* A file that is open, as a descriptor of memory is. */
static inline CUresult fake_export(void *fd, CUmemGenericAllocationHandle handle,
                                   CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)type, (void)flags;
    if (!enter(EXPORT))
        return leave(CUDA_ERROR_OPERATING_SYSTEM);
    if (handle == 0 || handle > HANDLES || !driver.handles[handle - 1].is_held)
        return wrong("exported what is not held");
    *(int *)fd = dup(STDERR_FILENO);
    return leave(CUDA_SUCCESS);
}

static inline CUresult fake_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static inline CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = attribute != CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID; /* node 0, and it can everything */
    return CUDA_SUCCESS;
}

static const struct gm_cuda fake = {
    .cuMemCreate = fake_create,
    .cuMemRelease = fake_release,
    .cuMemMap = fake_map,
    .cuMemUnmap = fake_unmap,
    .cuMemAddressFree = fake_unreserve,
    .cuMemSetAccess = fake_access,
    .cuMemAddressReserve = fake_reserve,
    .cuMemExportToShareableHandle = fake_export,
    .cuCtxSetCurrent = fake_current,
    .cuDeviceGetAttribute = fake_attribute,
};

/* The worker stands in the `nth` call from now on. */
static inline void hold(enum call call, unsigned nth)
{
    uv_mutex_lock(&driver.mutex);
    driver.hold_at[call] = driver.calls[call] + nth;
    uv_mutex_unlock(&driver.mutex);
}

static inline void fail_at(enum call call, unsigned nth)
{
    driver.fail_at[call] = driver.calls[call] + nth;
}

/* ---- the world ---- */

struct fixture {
    uv_loop_t loop;
    struct gm_hostpool pool;
    unsigned grown;
};

static inline void on_grown(void *arg)
{
    ((struct fixture *)arg)->grown++;
}

static inline void open_pool(struct fixture *f, uint64_t cap)
{
    char why[128];
    memset(&driver, 0, sizeof driver);
    driver.cap = cap;
    uv_mutex_init(&driver.mutex);
    uv_sem_init(&driver.held, 0);
    uv_sem_init(&driver.go, 0);
    memset(f, 0, sizeof *f);
    uv_loop_init(&f->loop);
    assert_int_equal(
        gm_hostpool_open(&f->pool, &f->loop, &fake, NULL, 0, cap, on_grown, f, why, sizeof why), 0);
}

/* What holds at every moment; of the worker's doings only what it must never do. */
static inline void check(struct fixture *f)
{
    uv_mutex_lock(&driver.mutex);
    note_most();
    const uint64_t pinned = alive(), most = driver.most;
    const char *what = driver.wrong;
    uv_mutex_unlock(&driver.mutex);
    if (what)
        fail_msg("%s", what);
    assert_true(most <= driver.cap);
    assert_true(gm_hostpool_used(&f->pool) <= gm_hostpool_cap(&f->pool));
    assert_true(gm_hostpool_cap(&f->pool) <= driver.cap);
    if (f->pool.working > 0)
        return;
    assert_int_equal(gm_hostpool_size(&f->pool), pinned);
}

static inline void run(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_DEFAULT);
    check(f);
}

static inline void grow(struct fixture *f, uint64_t bytes)
{
    gm_hostpool_want(&f->pool, bytes);
    run(f);
}

static inline void close_pool(struct fixture *f)
{
    check(f);
    gm_hostpool_close(&f->pool);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(alive(), 0);
    for (unsigned i = 0; i < PLACES; i++)
        assert_false(driver.is_reserved[i]);
    uv_sem_destroy(&driver.held);
    uv_sem_destroy(&driver.go);
    uv_mutex_destroy(&driver.mutex);
}

static inline bool is_there(unsigned place)
{
    return mapped_at(BASE + place * SLAB) != HANDLES && driver.has_access[place];
}

/* How much a chain holds; every byte of it must be there. */
static inline uint64_t chain_bytes(struct fixture *f, uint32_t page)
{
    uint64_t sum = 0, bytes;
    CUdeviceptr at;
    while (page != GM_NONE) {
        gm_hostpool_piece(&f->pool, &page, &at, &bytes);
        assert_true(at >= BASE && bytes > 0);
        assert_int_equal(place_of(at), place_of(at + bytes - 1));
        uv_mutex_lock(&driver.mutex);
        bool is_good = is_there(place_of(at));
        uv_mutex_unlock(&driver.mutex);
        assert_true(is_good);
        sum += bytes;
    }
    return sum;
}

static inline uint32_t take(struct fixture *f, uint64_t bytes)
{
    uint32_t page = gm_hostpool_take(&f->pool, bytes);
    assert_int_not_equal(page, GM_NONE);
    assert_int_equal(chain_bytes(f, page), bytes);
    return page;
}

#endif
