/*
 * The world of the tests of daemon/stores: chunks and what is where, a system that fails on order,
 * and stores over a pool of simcuda's pinned memory. Only that can be looked at from here, so what
 * is told about the other tiers is told by data that came back from them.
 */
#ifndef GM_TESTS_STORES_WORLD_H
#define GM_TESTS_STORES_WORLD_H

/* A test needs not all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/memory/kept.h"
#include "daemon/memory/stores.h"

#define MIB (1ull << 20)

static const struct gm_cuda cuda = {
#define GM_CUDA(symbol) .symbol = symbol,
#include "daemon/memory/cuda.def"
#undef GM_CUDA
};
static CUcontext context;
static char directory[64], simcuda_dir[80];

/* ---- a system that fails on order ---- */

enum { SHORT = -1, NOTHING = -2 }; /* errors that are none: half is written; 0 bytes are */

static struct {
    atomic_int writes, fail_write, write_error; /* fail_write: which one, from 1 on; 0: none */
    atomic_int then; /* what the writes after that one end with; 0: they succeed */
    atomic_int reads, fail_read, read_error;
    atomic_bool hold; /* writes wait until it is false */
    atomic_int held;
    atomic_int populates, populate_error;
    atomic_int may_populate; /* that many more, each further one waits; < 0: all */
    unsigned workers;
    bool has_free; /* the filesystem has so many bytes free: */
    atomic_ullong free_bytes;
    int mmap_error, open_error, fallocate_error;
    unsigned keep_ms, write_ms; /* write_ms: how long a write takes at least */
    bool has_direct;
    void *mapped;
    size_t mapped_bytes;
    int fd;
    int flags; /* of the last open_unnamed */
    struct gm_kept *kept;
} fault;

static void *faulty_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fault.mmap_error) {
        errno = fault.mmap_error;
        return MAP_FAILED;
    }
    fault.mapped_bytes = bytes;
    return fault.mapped = mmap(at, bytes, protection, flags, fd, offset);
}

static int faulty_populate(void *memory, size_t bytes)
{
    atomic_fetch_add(&fault.populates, 1);
    for (int left = fault.may_populate;
         left == 0 ||
         (left > 0 && !atomic_compare_exchange_weak(&fault.may_populate, &left, left - 1));
         left = fault.may_populate)
        usleep(1000);
    errno = fault.populate_error;
    return fault.populate_error ? -1 : gm_system_real.populate(memory, bytes);
}

static int faulty_open(const char *dir, int flags)
{
    fault.flags = flags;
    errno = fault.open_error ? fault.open_error : EINVAL;
    if (fault.open_error || (!fault.has_direct && (flags & O_DIRECT)))
        return -1;
    return gm_system_real.open_unnamed(dir, flags);
}

static int faulty_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    fault.fd = fd;
    if (fault.fallocate_error == 0)
        return fallocate(fd, mode, offset, bytes);
    if (fault.fallocate_error == ENOSPC) /* some filesystems keep what they allocated before */
        assert_int_equal(fallocate(fd, mode, offset, bytes / 2), 0);
    errno = fault.fallocate_error;
    return -1;
}

static int faulty_fstatvfs(int fd, struct statvfs *fs)
{
    const int result = fstatvfs(fd, fs);
    if (fault.has_free)
        fs->f_bavail = atomic_load(&fault.free_bytes) / fs->f_frsize;
    return result;
}

static ssize_t faulty_pread(int fd, void *memory, size_t bytes, off_t offset)
{
    if (atomic_fetch_add(&fault.reads, 1) + 1 == fault.fail_read) {
        if (fault.read_error == SHORT)
            return pread(fd, memory, bytes / 2, offset) - 100; /* not where it can go on */
        errno = fault.read_error;
        return fault.read_error == NOTHING ? 0 : -1;
    }
    return pread(fd, memory, bytes, offset);
}

static ssize_t faulty_pwrite(int fd, const void *memory, size_t bytes, off_t offset)
{
    int number = atomic_fetch_add(&fault.writes, 1) + 1;
    usleep(fault.write_ms * 1000);
    if (fault.hold) {
        atomic_fetch_add(&fault.held, 1);
        while (fault.hold)
            usleep(1000);
    }
    if (fault.fail_write && number >= fault.fail_write) {
        int error = number == fault.fail_write ? fault.write_error : fault.then;
        if (error == SHORT)
            return pwrite(fd, memory, bytes / 2, offset) - 100;
        errno = error;
        if (error)
            return error == NOTHING ? 0 : -1;
    }
    return pwrite(fd, memory, bytes, offset);
}

static const struct gm_system faulty = {
    .mmap = faulty_mmap,
    .populate = faulty_populate,
    .open_unnamed = faulty_open,
    .fallocate = faulty_fallocate,
    .fstatvfs = faulty_fstatvfs,
    .pread = faulty_pread,
    .pwrite = faulty_pwrite,
};

/* ---- the world ---- */

#define CHUNKS 60

struct chunk {
    enum gm_tier tier, to; /* NONE: not there; `to` NONE: at rest */
    uint32_t page, to_page;
    uint64_t bytes, seed;
    int error;     /* of the last copy */
    bool is_whole; /* every word is looked at */
};

struct world {
    uv_loop_t loop;
    struct gm_hostpool pool;
    struct gm_stores *stores;
    struct chunk chunks[CHUNKS];
    uint64_t used[GM_TIERS], copied[GM_TIERS][GM_TIERS];
    unsigned ended, in_flight, most_in_flight;
    uint64_t random;
};

static uint64_t pick(struct world *w, uint64_t below)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (w->random >> 33) % below;
}

/* Write or check every word, or one of every 64 bytes, at a place that changes: cheap enough under
 * sanitizers. */
static void fill(struct world *w, const struct chunk *c, bool is_check)
{
    const uint64_t step = c->is_whole ? 1 : 8;
    uint64_t at = 0;
    for (uint32_t page = c->page; page != GM_NONE;) {
        uint64_t *words = gm_hostpool_memory(&w->pool, page);
        CUdeviceptr address;
        uint64_t bytes;
        gm_hostpool_piece(&w->pool, &page, &address, &bytes);
        assert_int_equal(address, (uintptr_t)words);
        for (uint64_t i = 0; i < bytes / 8; i += step, at++) {
            uint64_t *word = &words[i + at % step], value = c->seed + at * 0x9e3779b97f4a7c15ull;
            if (!is_check)
                *word = value;
            else if (*word != value)
                fail_msg("byte %llu of a chunk is wrong", (unsigned long long)(at * step * 8));
        }
    }
    assert_int_equal(at * step * 8, c->bytes);
}

static void on_done(void *arg, uint32_t chunk, int error)
{
    struct world *w = arg;
    struct chunk *c = &w->chunks[chunk];
    assert_int_not_equal(c->to, GM_TIER_NONE);
    c->error = error;
    w->ended++;
    w->in_flight--;
    if (error) {
        gm_stores_free(w->stores, c->to, c->to_page);
        w->used[c->to] -= c->bytes;
    } else {
        gm_stores_free(w->stores, c->tier, c->page);
        w->used[c->tier] -= c->bytes;
        w->copied[c->tier][c->to] += c->bytes;
        c->tier = c->to;
        c->page = c->to_page;
    }
    c->to = GM_TIER_NONE;
    if (c->tier == GM_TIER_PINNED)
        fill(w, c, true);
}

static void on_grown(void *arg)
{
    (void)arg;
}

static void open_pool(struct world *w, uint64_t pinned)
{
    char why[256] = "";
    memset(w, 0, sizeof *w);
    memset(&fault, 0, sizeof fault);
    fault.has_direct = true;
    fault.may_populate = -1;
    fault.workers = 3;
    w->random = 1;
    uv_loop_init(&w->loop);
    assert_int_equal(gm_hostpool_open(&w->pool, &w->loop, &cuda, context, 0, pinned, on_grown, w,
                                      why, sizeof why),
                     0);
    gm_hostpool_want(&w->pool, pinned);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(gm_hostpool_size(&w->pool), pinned);
}

/* The stores over a pool that is open. 0, or the error and its line in `why`. */
static int open_stores(struct world *w, uint64_t paged, const char *dir, uint64_t disk, char *why,
                       size_t why_size)
{
    const struct gm_stores_config config = {.paged = paged,
                                            .disk_dir = dir,
                                            .disk = disk,
                                            .workers = fault.workers,
                                            .keep_ms = fault.keep_ms,
                                            .kept = fault.kept,
                                            .system = &faulty};
    int error = gm_stores_open(&w->stores, &w->loop, &w->pool, &config, on_done, w, why, why_size);
    fault.writes = fault.reads = 0; /* the probe's */
    return error;
}

static void open_world_as_told(struct world *w, uint64_t paged, uint64_t disk)
{
    char why[256] = "";
    int error = open_stores(w, paged, disk ? directory : NULL, disk, why, sizeof why);
    if (error)
        fail_msg("%d: %s", error, why);
}

/* Paged memory is to outlive the daemon: it is a file. */
static void keep_paged(void)
{
    assert_int_equal(gm_kept_open(&fault.kept), 0);
}

static void open_world(struct world *w, uint64_t pinned, uint64_t paged, uint64_t disk)
{
    open_pool(w, pinned);
    open_world_as_told(w, paged, disk);
}

static void close_world(struct world *w)
{
    gm_stores_close(w->stores);
    gm_kept_close(fault.kept);
    gm_hostpool_close(&w->pool);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}

static bool make_chunk(struct world *w, uint32_t chunk, uint64_t bytes)
{
    struct chunk *c = &w->chunks[chunk];
    const uint64_t room = gm_stores_cap(w->stores, GM_TIER_PINNED) - w->used[GM_TIER_PINNED];
    uint32_t page = gm_stores_take(w->stores, GM_TIER_PINNED, bytes);
    assert_int_equal(page != GM_NONE, bytes <= room);
    if (page == GM_NONE)
        return false;
    w->used[GM_TIER_PINNED] += bytes;
    *c = (struct chunk){
        .tier = GM_TIER_PINNED, .page = page, .bytes = bytes, .seed = pick(w, 1u << 30)};
    fill(w, c, false);
    return true;
}

static bool move_chunk(struct world *w, uint32_t chunk, enum gm_tier to)
{
    struct chunk *c = &w->chunks[chunk];
    const uint64_t room = gm_stores_cap(w->stores, to) - w->used[to];
    uint32_t page = gm_stores_take(w->stores, to, c->bytes);
    assert_int_equal(page != GM_NONE, c->bytes <= room);
    if (page == GM_NONE)
        return false;
    w->used[to] += c->bytes;
    c->to = to;
    c->to_page = page;
    gm_stores_copy(w->stores, chunk, c->tier, c->page, to, page, c->bytes);
    if (++w->in_flight > w->most_in_flight)
        w->most_in_flight = w->in_flight;
    return true;
}

static void end_chunk(struct world *w, uint32_t chunk)
{
    struct chunk *c = &w->chunks[chunk];
    gm_stores_free(w->stores, c->tier, c->page);
    w->used[c->tier] -= c->bytes;
    c->tier = GM_TIER_NONE;
}

static void wait_for(struct world *w, unsigned in_flight)
{
    while (w->in_flight > in_flight)
        uv_run(&w->loop, UV_RUN_ONCE);
}

/* Move and wait; the copy's error. */
static int move_now(struct world *w, uint32_t chunk, enum gm_tier to)
{
    assert_true(move_chunk(w, chunk, to));
    wait_for(w, 0);
    return w->chunks[chunk].error;
}

static void check_sums(struct world *w)
{
    for (unsigned t = GM_TIER_PINNED; t <= GM_TIER_DISK; t++) {
        assert_int_equal(gm_stores_used(w->stores, (enum gm_tier)t), w->used[t]);
        for (unsigned to = GM_TIER_PINNED; to <= GM_TIER_DISK; to++)
            assert_int_equal(gm_stores_bytes(w->stores, (enum gm_tier)t, (enum gm_tier)to),
                             w->copied[t][to]);
    }
}

/* ---- around all tests: simcuda and a folder ---- */

static int set_up(void **state)
{
    (void)state;
    CUdevice device;
    snprintf(directory, sizeof directory, "%s/gm-stores.XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 32 ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(directory))
        return -1;
    snprintf(simcuda_dir, sizeof simcuda_dir, "%s.simcuda", directory);
    if (mkdir(simcuda_dir, 0700) != 0 || setenv("SIMCUDA_DIR", simcuda_dir, 1) != 0)
        return -1;
    return cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
                   cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    cuDevicePrimaryCtxRelease_v2(0);
    DIR *dir = opendir(simcuda_dir);
    for (struct dirent *e; dir && (e = readdir(dir));)
        unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(simcuda_dir);
    return rmdir(directory);
}

#endif
