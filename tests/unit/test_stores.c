/*
 * daemon/stores: three tiers against a model of what is where, with several copies under way; every
 * fault of disk and memory once; closing in the middle; what the file looks like from outside.
 *
 * Pinned memory is simcuda's. Only it can be looked at from here, so what is told about the others
 * is told by data that came back from them.
 */
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
#include "daemon/stores.h"

#define MIB (1ull << 20)

static const struct gm_cuda cuda = {
#define GM_CUDA(symbol) .symbol = symbol,
#include "daemon/cuda.def"
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
    int mmap_error, open_error, fallocate_error;
    unsigned keep_ms, write_ms; /* write_ms: how long a write takes at least */
    bool has_direct;
    void *mapped;
    size_t mapped_bytes;
    int fd;
    int flags; /* of the last open_unnamed */
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
    while (fault.may_populate == 0)
        usleep(1000);
    if (fault.may_populate > 0)
        atomic_fetch_sub(&fault.may_populate, 1);
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
    errno = fault.fallocate_error;
    return fault.fallocate_error ? -1 : fallocate(fd, mode, offset, bytes);
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

static void open_world(struct world *w, uint64_t pinned, uint64_t paged, uint64_t disk)
{
    open_pool(w, pinned);
    open_world_as_told(w, paged, disk);
}

static void close_world(struct world *w)
{
    gm_stores_close(w->stores);
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
    assert_int_equal(gm_stores_busy(w->stores), w->in_flight);
}

/* ---- tests ---- */

enum filling { FILLED_BY_USE, FILLED_AHEAD, FILLED_AHEAD_BY_TOUCH, FILLINGS };

static void move_at_random(enum filling filling)
{
    struct world w;
    open_pool(&w, 96 * MIB);
    fault.keep_ms = filling ? 1 : 0; /* given back and filled again all the time */
    fault.populate_error = filling == FILLED_AHEAD_BY_TOUCH ? EINVAL : 0;
    open_world_as_told(&w, 101 * MIB, 67 * MIB); /* paged and disk end within a slab */
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_PINNED), 96 * MIB);
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_PAGED), 100 * MIB);
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_DISK), 66 * MIB);
    for (int step = 0; step < 600; step++) {
        uint32_t chunk = (uint32_t)pick(&w, CHUNKS);
        struct chunk *c = &w.chunks[chunk];
        if (filling != FILLED_BY_USE && pick(&w, 4) == 0)
            gm_stores_want(w.stores, pick(&w, 2) * pick(&w, 120 * MIB));
        if (c->tier == GM_TIER_NONE) {
            make_chunk(&w, chunk, GM_CHUNK_MIN << pick(&w, GM_CHUNK_CLASSES));
        } else if (c->to == GM_TIER_NONE && pick(&w, 8) == 0) {
            end_chunk(&w, chunk);
        } else if (c->to == GM_TIER_NONE) {
            enum gm_tier to = GM_TIER_PINNED + (enum gm_tier)pick(&w, 3);
            if (to != c->tier)
                move_chunk(&w, chunk, to);
        }
        if (pick(&w, 4) == 0)
            wait_for(&w, (unsigned)pick(&w, 6));
        check_sums(&w);
    }
    wait_for(&w, 0);
    check_sums(&w);
    assert_true(w.ended > 60 && w.most_in_flight > 3);
    assert_int_equal(fault.populates > 0, filling != FILLED_BY_USE);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_int_equal(w.chunks[i].error, 0);
    close_world(&w);
}

static void test_random_moves(void **state)
{
    (void)state;
    for (enum filling filling = 0; filling < FILLINGS; filling++)
        move_at_random(filling);
}

/* A full tier takes exactly its cap, to the last page. */
static void test_caps(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 32 * MIB, 38 * MIB, 6 * MIB);
    for (unsigned t = GM_TIER_PINNED; t <= GM_TIER_DISK; t++) {
        const enum gm_tier tier = (enum gm_tier)t;
        const uint64_t cap = gm_stores_cap(w.stores, tier);
        uint32_t pages[32];
        for (uint32_t i = 0; i < cap / GM_CHUNK_MIN; i++) {
            pages[i] = gm_stores_take(w.stores, tier, GM_CHUNK_MIN);
            assert_int_not_equal(pages[i], GM_NONE);
        }
        assert_int_equal(gm_stores_used(w.stores, tier), cap);
        assert_int_equal(gm_stores_take(w.stores, tier, GM_CHUNK_MIN), GM_NONE);
        for (uint32_t i = 0; i < cap / GM_CHUNK_MIN; i += 2)
            gm_stores_free(w.stores, tier, pages[i]);
        if (cap >= 16 * MIB) { /* fragments take a large one */
            uint32_t page = gm_stores_take(w.stores, tier, 16 * MIB);
            assert_int_not_equal(page, GM_NONE);
            gm_stores_free(w.stores, tier, page);
        }
        for (uint32_t i = 1; i < cap / GM_CHUNK_MIN; i += 2)
            gm_stores_free(w.stores, tier, pages[i]);
        assert_int_equal(gm_stores_used(w.stores, tier), 0);
    }
    gm_stores_free(w.stores, GM_TIER_DISK, GM_NONE);
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_GPU, GM_CHUNK_MIN), GM_NONE);
    close_world(&w);
}

/* Every byte, each way between two tiers, past the page cache and through it. */
static void test_every_byte(void **state)
{
    static const enum gm_tier ways[] = {GM_TIER_PAGED,  GM_TIER_PINNED, GM_TIER_DISK,
                                        GM_TIER_PINNED, GM_TIER_PAGED,  GM_TIER_DISK,
                                        GM_TIER_PAGED,  GM_TIER_PINNED};
    (void)state;
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        struct world w;
        char why[256] = "";
        open_pool(&w, 64 * MIB);
        fault.has_direct = is_direct != 0;
        assert_int_equal(open_stores(&w, 64 * MIB, directory, 64 * MIB, why, sizeof why), 0);
        if (!is_direct)
            assert_int_equal(fault.flags & (O_DIRECT | O_DSYNC), O_DSYNC);
        assert_true(make_chunk(&w, 0, 2 * MIB)); /* so that the other one is in pieces */
        assert_true(make_chunk(&w, 1, 32 * MIB));
        w.chunks[1].is_whole = true;
        fill(&w, &w.chunks[1], false);
        for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
            assert_int_equal(move_now(&w, 1, ways[i]), 0);
        assert_true(fault.writes > 0 && fault.reads > 0);
        check_sums(&w);
        close_world(&w);
    }
}

/* A write that fails: the source is as it was, and the copy goes well when the disk does again. */
static void test_failed_writes(void **state)
{
    static const struct {
        int error, then, expected;
    } cases[] = {
        {ENOSPC, 0, -ENOSPC}, {EIO, 0, -EIO},           {NOTHING, 0, -EIO}, {EINTR, 0, 0},
        {SHORT, 0, 0},        {SHORT, ENOSPC, -ENOSPC}, {SHORT, EIO, -EIO},
    };
    struct world w;
    (void)state;
    open_world(&w, 64 * MIB, 32 * MIB, 64 * MIB);
    assert_true(make_chunk(&w, 0, 16 * MIB));
    for (unsigned i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const unsigned c = i / 2;
        if (i % 2) /* from paged memory, which needs no bounce buffer */
            assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
        enum gm_tier from = w.chunks[0].tier;
        fault.writes = 0;
        fault.write_error = cases[c].error;
        fault.then = cases[c].then;
        fault.fail_write = 1 + (int)c % 4;
        assert_int_equal(move_now(&w, 0, GM_TIER_DISK), cases[c].expected);
        assert_true(fault.writes >= fault.fail_write);
        fault.fail_write = 0;
        if (cases[c].expected) {
            assert_int_equal(w.chunks[0].tier, from);
            assert_int_equal(gm_stores_used(w.stores, GM_TIER_DISK), 0);
            if (from == GM_TIER_PINNED)
                fill(&w, &w.chunks[0], true);
            assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
        }
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    }
    check_sums(&w);
    close_world(&w);
}

static void test_failed_reads(void **state)
{
    static const int errors[][2] = {
        {EIO, -EIO}, {ENOMEM, -EIO}, {NOTHING, -EIO}, {SHORT, 0}, {EINTR, 0}};
    struct world w;
    (void)state;
    open_world(&w, 32 * MIB, 32 * MIB, 64 * MIB);
    assert_true(make_chunk(&w, 0, 16 * MIB));
    for (unsigned i = 0; i < 2 * sizeof errors / sizeof *errors; i++) {
        const enum gm_tier to = i % 2 ? GM_TIER_PAGED : GM_TIER_PINNED;
        assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
        fault.reads = 0;
        fault.read_error = errors[i / 2][0];
        fault.fail_read = 2;
        assert_int_equal(move_now(&w, 0, to), errors[i / 2][1]);
        assert_true(fault.reads >= 2);
        fault.fail_read = 0;
        if (errors[i / 2][1]) {
            assert_int_equal(w.chunks[0].tier, GM_TIER_DISK);
            assert_int_equal(gm_stores_used(w.stores, to), 0);
        }
        if (w.chunks[0].tier != GM_TIER_PINNED)
            assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    }
    close_world(&w);
}

/* One fault among many copies is that copy's alone. */
static void test_failure_among_others(void **state)
{
    struct world w;
    unsigned failed = 0;
    (void)state;
    open_world(&w, 64 * MIB, 0, 64 * MIB);
    fault.write_error = EIO;
    fault.fail_write = 7;
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(make_chunk(&w, i, 4 * MIB));
        assert_true(move_chunk(&w, i, GM_TIER_DISK));
    }
    wait_for(&w, 0);
    for (uint32_t i = 0; i < 16; i++) {
        failed += w.chunks[i].error != 0;
        assert_int_equal(w.chunks[i].tier, w.chunks[i].error ? GM_TIER_PINNED : GM_TIER_DISK);
        if (w.chunks[i].tier == GM_TIER_DISK)
            assert_int_equal(move_now(&w, i, GM_TIER_PINNED), 0);
    }
    assert_int_equal(failed, 1);
    check_sums(&w);
    close_world(&w);
}

/* A disk that hangs holds no copy in memory up. */
static void test_disk_holds_nothing_up(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 64 * MIB, 32 * MIB, 64 * MIB);
    fault.hold = true;
    assert_true(make_chunk(&w, 0, 32 * MIB));
    assert_true(make_chunk(&w, 1, 32 * MIB));
    assert_true(move_chunk(&w, 0, GM_TIER_DISK));
    assert_true(move_chunk(&w, 1, GM_TIER_PAGED));
    wait_for(&w, 1);
    assert_int_equal(w.chunks[1].tier, GM_TIER_PAGED);
    assert_int_equal(w.chunks[0].tier, GM_TIER_PINNED);
    fault.hold = false;
    wait_for(&w, 0);
    assert_int_equal(w.chunks[0].tier, GM_TIER_DISK);
    close_world(&w);
}

/* Closing waits for the pieces under way, and for no more; nobody is told. */
static void test_close_with_copies_queued(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 96 * MIB, 96 * MIB, 96 * MIB);
    fault.write_ms = 150; /* all would take five times that */
    for (uint32_t i = 0; i < 24; i++)
        assert_true(make_chunk(&w, i, 4 * MIB));
    for (uint32_t i = 0; i < 24; i++)
        assert_true(move_chunk(&w, i, i % 4 ? GM_TIER_DISK : GM_TIER_PAGED));
    close_world(&w);
    assert_true(fault.writes < 18);
    assert_int_equal(w.ended, 0);
    assert_int_equal(w.in_flight, 24);

    open_world(&w, 32 * MIB, 32 * MIB, 0); /* with all ended and nobody told yet */
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(make_chunk(&w, i, 4 * MIB));
        assert_true(move_chunk(&w, i, GM_TIER_PAGED));
    }
    usleep(50000);
    close_world(&w);
    assert_int_equal(w.ended, 0);

    open_world(&w, 32 * MIB, 0, 0); /* the pinned tier alone */
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_PAGED, 2 * MIB), GM_NONE);
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_DISK, 2 * MIB), GM_NONE);
    close_world(&w);
    gm_stores_close(NULL);
}

static uint64_t resident(void)
{
    static unsigned char present[(256 * MIB) / 4096];
    uint64_t n = 0;
    assert_true(fault.mapped_bytes <= 256 * MIB);
    assert_int_equal(mincore(fault.mapped, fault.mapped_bytes, present), 0);
    for (uint64_t i = 0; i < fault.mapped_bytes / 4096; i++)
        n += present[i] & 1;
    return n * 4096;
}

/* Run the loop until paged memory has `bytes`, or for five seconds. */
static void wait_resident(struct world *w, uint64_t bytes)
{
    for (int i = 0; i < 1000 && resident() != bytes; i++) {
        usleep(5000);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(resident(), bytes);
}

/* Paged memory takes what is used, and gives back what was free for a while, not before. */
static void test_memory_follows_use(void **state)
{
    (void)state;
    for (int is_soon = 0; is_soon < 2; is_soon++) {
        struct world w;
        char why[256] = "";
        open_pool(&w, 128 * MIB);
        fault.keep_ms = is_soon ? 40 : 3600 * 1000;
        assert_int_equal(open_stores(&w, 100 * MIB, NULL, 0, why, sizeof why), 0);
        assert_int_equal(resident(), 0);
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(make_chunk(&w, i, 32 * MIB));
            assert_int_equal(move_now(&w, i, GM_TIER_PAGED), 0);
            assert_int_equal(resident(), (i + 1) * 32 * MIB);
        }
        assert_true(make_chunk(&w, 3, 4 * MIB)); /* the rest of it, which is no whole slab */
        assert_int_equal(move_now(&w, 3, GM_TIER_PAGED), 0);
        assert_int_equal(resident(), 100 * MIB);
        assert_int_equal(move_now(&w, 3, GM_TIER_PINNED), 0);
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
        assert_int_equal(move_now(&w, 1, GM_TIER_PINNED), 0);
        if (is_soon) {
            wait_resident(&w, 32 * MIB);
            assert_int_equal(move_now(&w, 2, GM_TIER_PINNED), 0); /* with its data */
            wait_resident(&w, 0);
        } else {
            for (int i = 0; i < 20; i++) {
                usleep(5000);
                uv_run(&w.loop, UV_RUN_NOWAIT);
            }
            assert_int_equal(resident(), 100 * MIB);
            assert_int_equal(move_now(&w, 2, GM_TIER_PINNED), 0);
        }
        for (uint32_t i = 0; i < 3; i++) /* and takes it again */
            assert_int_equal(move_now(&w, i, GM_TIER_PAGED), 0);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(move_now(&w, i, GM_TIER_PINNED), 0);
        close_world(&w);
    }
}

/* Run the loop for a while. */
static void run_for(struct world *w, unsigned ms)
{
    const uint64_t end = gm_now() + ms * GM_MS;
    while (gm_now() < end) {
        usleep(1000);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
}

/* Run the loop until that many fills have begun, or for five seconds. */
static void wait_populates(struct world *w, int n)
{
    for (int i = 0; i < 1000 && fault.populates < n; i++)
        run_for(w, 5);
    assert_int_equal(fault.populates, n);
}

/* What is wanted has memory before it is used, whether the kernel can do it or each small page is
 * touched; what is not wanted any more is given back; none of it sooner or later. */
static void test_memory_follows_want(void **state)
{
    static const int errors[] = {0, EINVAL};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct world w;
        open_pool(&w, 32 * MIB);
        fault.keep_ms = 200;
        fault.populate_error = errors[i];
        open_world_as_told(&w, 100 * MIB, 0);
        assert_int_equal(gm_stores_held(w.stores), 0);
        gm_stores_want(w.stores, 64 * MIB);
        wait_resident(&w, 68 * MIB); /* what is left over of whole slabs, and two of them */
        gm_stores_want(w.stores, UINT64_MAX);
        wait_resident(&w, 100 * MIB);
        const int populates = fault.populates;
        run_for(&w, 600);
        assert_int_equal(resident(), 100 * MIB);
        assert_int_equal(gm_stores_held(w.stores), 100 * MIB);
        for (unsigned j = 0; j < 10; j++) { /* not wanted for a moment: nothing is given back */
            gm_stores_want(w.stores, 0);
            run_for(&w, 20);
            gm_stores_want(w.stores, 97 * MIB);
            run_for(&w, 5);
        }
        assert_int_equal(fault.populates, populates);
        assert_int_equal(resident(), 100 * MIB);
        gm_stores_want(w.stores, 33 * MIB);
        wait_resident(&w, 64 * MIB);
        assert_true(make_chunk(&w, 1, 32 * MIB));
        assert_int_equal(move_now(&w, 1, GM_TIER_PAGED), 0);
        assert_int_equal(resident(), 64 * MIB); /* what is left is what is taken first */
        assert_int_equal(move_now(&w, 1, GM_TIER_PINNED), 0);
        end_chunk(&w, 1);
        gm_stores_want(w.stores, 0);
        wait_resident(&w, 0);
        assert_int_equal(gm_stores_held(w.stores), 0);
        gm_stores_want(w.stores, 1);
        wait_resident(&w, 4 * MIB);
        assert_true(make_chunk(&w, 0, 32 * MIB)); /* and with data, beyond what is wanted */
        assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
        gm_stores_want(w.stores, 0);
        wait_resident(&w, 32 * MIB);
        run_for(&w, 600);
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0); /* with its data */
        wait_resident(&w, 0);
        close_world(&w);
    }
}

/* Memory that there is already is taken before memory that there is not. */
static void test_filled_is_taken_first(void **state)
{
    static const uint64_t sizes[] = {2 * MIB, 32 * MIB, 8 * MIB, 4 * MIB, 32 * MIB, 16 * MIB};
    struct world w;
    (void)state;
    open_pool(&w, 96 * MIB);
    fault.keep_ms = 3600 * 1000;
    open_world_as_told(&w, 128 * MIB, 0);
    gm_stores_want(w.stores, 96 * MIB);
    wait_resident(&w, 96 * MIB);
    for (unsigned round = 0; round < 3; round++) {
        const int populates = fault.populates;
        for (uint32_t i = 0; i < 6; i++) {
            assert_true(make_chunk(&w, i, sizes[i]));
            assert_int_equal(move_now(&w, i, GM_TIER_PAGED), 0);
            assert_int_equal(resident(), 96 * MIB);
        }
        assert_int_equal(fault.populates, populates);
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t chunk = (i + round) % 6;
            assert_int_equal(move_now(&w, chunk, GM_TIER_PINNED), 0);
            end_chunk(&w, chunk);
        }
    }
    close_world(&w);

    open_pool(&w, 96 * MIB);
    fault.keep_ms = 3600 * 1000;
    open_world_as_told(&w, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 32 * MIB)); /* what copies have filled counts */
    assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
    gm_stores_want(w.stores, 32 * MIB);
    run_for(&w, 50);
    assert_int_equal(fault.populates, 0);
    assert_int_equal(resident(), 32 * MIB);
    close_world(&w);

    open_pool(&w, 96 * MIB); /* the rest of what is in use comes first */
    fault.keep_ms = 3600 * 1000;
    open_world_as_told(&w, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 2 * MIB));
    assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
    assert_int_equal(resident(), 2 * MIB);
    gm_stores_want(w.stores, 32 * MIB);
    wait_resident(&w, 32 * MIB);
    assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0); /* with its data */
    close_world(&w);
}

/* Workers that fill hold no copy up: some of them do not fill, and those that do look for copies
 * after each page. Closing waits for no more than a page each. */
static void test_filling_holds_nothing_up(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 32 * MIB, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 32 * MIB));
    fault.may_populate = 0;
    gm_stores_want(w.stores, 96 * MIB);
    wait_populates(&w, 2);
    run_for(&w, 20);
    assert_int_equal(fault.populates, 2); /* of three workers */
    assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
    assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    fault.may_populate = 5;
    gm_stores_want(w.stores, 0);
    wait_populates(&w, 7);
    fault.may_populate = 2; /* those that wait; the rest would wait for ever */
    close_world(&w);
    assert_true(fault.populates <= 9);

    open_pool(&w, 32 * MIB);
    fault.workers = 1;
    open_world_as_told(&w, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 32 * MIB));
    fault.may_populate = 0;
    gm_stores_want(w.stores, 96 * MIB);
    wait_populates(&w, 1);
    assert_true(move_chunk(&w, 0, GM_TIER_PAGED));
    fault.may_populate = 1;
    for (int i = 0; i < 1000 && w.in_flight > 0; i++)
        run_for(&w, 5);
    assert_int_equal(w.in_flight, 0); /* the second page, which would hang, came behind it */
    wait_populates(&w, 2);
    fault.may_populate = -1;
    wait_resident(&w, 96 * MIB);
    close_world(&w);
}

/* A system without memory is not asked again and again, but when more is wanted. */
static void test_refused_memory(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 32 * MIB, 96 * MIB, 0);
    fault.populate_error = ENOMEM;
    for (int i = 1; i < 4; i++) {
        fault.populates = 0;
        gm_stores_want(w.stores, 64 * MIB);
        run_for(&w, 50);
        assert_in_range(fault.populates, 1, 2); /* each worker once */
        assert_int_equal(resident(), 0);
    }
    fault.populate_error = 0;
    run_for(&w, 50);
    assert_int_equal(resident(), 0);
    gm_stores_want(w.stores, 64 * MIB);
    wait_resident(&w, 64 * MIB);
    close_world(&w);
}

static unsigned names_in_directory(void)
{
    unsigned names = 0;
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        names += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return names;
}

/* Nobody else can open the file, and it is gone with the daemon: unnamed from the start, or made
 * and unlinked where the filesystem has no unnamed files. */
static void test_file_is_unnamed(void **state)
{
    static const int errors[] = {0, EOPNOTSUPP, EISDIR};
    (void)state;
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct world w;
        struct stat st;
        char why[256] = "";
        mode_t mask = umask(i == 0 ? 0777 : 0); /* whatever the umask is */
        open_pool(&w, 32 * MIB);
        fault.open_error = errors[i];
        int error = open_stores(&w, 0, directory, 8 * MIB, why, sizeof why);
        umask(mask);
        if (error)
            fail_msg("%d: %s", error, why);
        assert_int_equal(names_in_directory(), 0);
        assert_int_equal(fstat(fault.fd, &st), 0);
        assert_true(S_ISREG(st.st_mode));
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_nlink, 0);
        assert_int_equal(st.st_size, 8 * MIB);
        assert_true(fcntl(fault.fd, F_GETFD) & FD_CLOEXEC);
        assert_true(make_chunk(&w, 0, 8 * MIB));
        assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
        close_world(&w);
        assert_int_equal(names_in_directory(), 0);
        assert_int_equal(fcntl(fault.fd, F_GETFD), -1);
    }
}

static unsigned copying_threads(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *file = fopen(path, "r");
        n += file && fgets(name, sizeof name, file) && strcmp(name, "gpumux-copy\n") == 0;
        if (file)
            fclose(file);
    }
    closedir(dir);
    return n;
}

/* As many workers as processors that this process may use, but two at least and 16 at most. */
static void test_number_of_workers(void **state)
{
    cpu_set_t all, some;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int most = 1; most <= CPU_COUNT(&all); most++) {
        struct world w;
        CPU_ZERO(&some);
        for (size_t i = 0; CPU_COUNT(&some) < most; i++)
            if (CPU_ISSET(i, &all))
                CPU_SET(i, &some);
        assert_int_equal(sched_setaffinity(0, sizeof some, &some), 0);
        open_pool(&w, 32 * MIB);
        fault.workers = 0;
        open_world_as_told(&w, 32 * MIB, 0);
        const unsigned processors = uv_available_parallelism();
        assert_true(processors <= (unsigned)most);
        assert_int_equal(copying_threads(), processors < 2 ? 2 : processors > 16 ? 16 : processors);
        close_world(&w);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* A filesystem that sets nothing aside is used all the same. */
static void test_without_fallocate(void **state)
{
    struct world w;
    char why[256] = "";
    (void)state;
    open_pool(&w, 32 * MIB);
    fault.fallocate_error = EOPNOTSUPP;
    assert_int_equal(open_stores(&w, 0, directory, 32 * MIB, why, sizeof why), 0);
    assert_true(make_chunk(&w, 0, 16 * MIB));
    assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
    assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    close_world(&w);
}

/* What cannot work is refused in one line that says what to change, and leaves nothing behind. */
static void test_bad_configurations(void **state)
{
    char file[96], missing[96];
    (void)state;
    snprintf(file, sizeof file, "%s.file", directory);
    snprintf(missing, sizeof missing, "%s/none", directory);
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    const struct {
        uint64_t paged;
        const char *dir;
        uint64_t disk;
        int open_error, fallocate_error, mmap_error;
        int expected;
        const char *words[2];
    } cases[] = {
        {0, missing, 64 * MIB, 0, 0, 0, -ENOENT, {missing, "make the folder first"}},
        {0, file, 64 * MIB, 0, 0, 0, -ENOTDIR, {file, "Not a directory"}},
        {0, directory, 64 * MIB, EROFS, 0, 0, -EROFS, {directory, "Read-only file system"}},
        {0, directory, 64 * MIB, EACCES, 0, 0, -EACCES, {directory, "Permission denied"}},
        {0, directory, 64 * MIB, EMFILE, 0, 0, -EMFILE, {directory, "Too many open files"}},
        {0, directory, 1ull << 50, 0, 0, 0, -ENOSPC, {"1 PiB", "free there; ask for less"}},
        {0, directory, 64 * MIB, 0, ENOSPC, 0, -ENOSPC, {"64 MiB", "No space left"}},
        {0, directory, 64 * MIB, 0, EFBIG, 0, -EFBIG, {"64 MiB", "File too large"}},
        {0, directory, 1 * MIB, 0, 0, 0, -EINVAL, {directory, "at least 2 MiB"}},
        {64 * MIB, NULL, 0, 0, 0, ENOMEM, -ENOMEM, {"--paged 64 MiB", "ask for less"}},
        {64 * MIB, directory, 64 * MIB, EROFS, 0, 0, -EROFS, {"--disk", "Read-only"}},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        char why[512] = "";
        open_pool(&w, 32 * MIB);
        fault.open_error = cases[i].open_error;
        fault.fallocate_error = cases[i].fallocate_error;
        fault.mmap_error = cases[i].mmap_error;
        int error = open_stores(&w, cases[i].paged, cases[i].dir, cases[i].disk, why, sizeof why);
        if (error != cases[i].expected || !strstr(why, cases[i].words[0]) ||
            !strstr(why, cases[i].words[1]) || strchr(why, '\n'))
            fail_msg("case %u: %d, \"%s\"", i, error, why);
        assert_null(w.stores);
        assert_int_equal(names_in_directory(), 0);
        close_world(&w);
    }
    unlink(file);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_moves),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_failed_writes),
        cmocka_unit_test(test_failed_reads),
        cmocka_unit_test(test_failure_among_others),
        cmocka_unit_test(test_disk_holds_nothing_up),
        cmocka_unit_test(test_close_with_copies_queued),
        cmocka_unit_test(test_memory_follows_use),
        cmocka_unit_test(test_memory_follows_want),
        cmocka_unit_test(test_filled_is_taken_first),
        cmocka_unit_test(test_filling_holds_nothing_up),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_number_of_workers),
        cmocka_unit_test(test_file_is_unnamed),
        cmocka_unit_test(test_without_fallocate),
        cmocka_unit_test(test_bad_configurations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
