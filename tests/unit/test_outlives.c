/*
 * Memory that outlives the daemon: each "daemon" here is a process that is killed, with the driver
 * of simcuda, where memory lives as long as somebody has a descriptor of it. The next one takes
 * what it left, and finds in it what it had written.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/chunk.h"
#include "daemon/memory/files.h"
#include "daemon/memory/frames.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/stores.h"
#include "tests/unit/keeper_world.h"

#define GPU 3u /* as which the frames are kept */
#define WORDS 64u

static const struct gm_cuda cuda = {
#define GM_CUDA(symbol) .symbol = symbol,
#include "daemon/memory/cuda.def"
#undef GM_CUDA
};
static uint64_t cap = 8 * GM_SLAB_BYTES; /* of pinned memory */

/* In a process whose end tells. */
#define require(is)                                                                                \
    do {                                                                                           \
        if (!(is)) {                                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #is);                       \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int set_up(void **state)
{
    (void)state;
    cap = 8 * GM_SLAB_BYTES;
    return keeper_begin("outlives", 1024) == 0 ? setenv("SIMCUDA_DIR", folder, 1) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return keeper_end();
}

/* ---- daemons ---- */

static struct {
    struct gm_kept *kept;
    uv_loop_t loop;
    struct gm_hostpool pool;
    struct gm_stores *stores;
    struct gm_frames frames;
    CUcontext context;
} one;

static void nothing(void *arg)
{
    (void)arg;
}

static void begin(void)
{
    CUdevice device;
    require(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS);
    require(cuDevicePrimaryCtxRetain(&one.context, device) == CUDA_SUCCESS);
    require(cuCtxSetCurrent(one.context) == CUDA_SUCCESS);
    require(gm_kept_open(&one.kept) == 0);
    require(keeper_connect(one.kept) == 0);
    require(gm_kept_take(one.kept) == 0);
    require(gm_frames_open(&one.frames, &cuda, device, 64) == 0);
    gm_frames_keep(&one.frames, one.kept, GPU);
    char why[128];
    require(uv_loop_init(&one.loop) == 0);
    require(gm_hostpool_open(&one.pool, &one.loop, &cuda, one.context, device, cap, nothing, NULL,
                             why, sizeof why) == 0);
    gm_hostpool_keep(&one.pool, one.kept, GPU);
}

/* Run it as a process that is then killed. */
static void daemon_is(void (*does)(void))
{
    const pid_t pid = fork();
    if (pid == 0) {
        begin();
        does();
        raise(SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void write_at(CUdeviceptr at, uint64_t bytes, uint32_t number)
{
    uint32_t words[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = number + i;
    require(cuMemcpyHtoD_v2(at, words, sizeof words) == CUDA_SUCCESS);
    require(cuMemcpyHtoD_v2(at + bytes - sizeof words, words, sizeof words) == CUDA_SUCCESS);
}

static bool is_at(CUdeviceptr at, uint64_t bytes, uint32_t number)
{
    uint32_t first[WORDS], last[WORDS];
    require(cuMemcpyDtoH_v2(first, at, sizeof first) == CUDA_SUCCESS);
    require(cuMemcpyDtoH_v2(last, at + bytes - sizeof last, sizeof last) == CUDA_SUCCESS);
    for (uint32_t i = 0; i < WORDS; i++)
        if (first[i] != number + i || last[i] != number + i)
            return false;
    return true;
}

static uint32_t count(enum gm_kept_kind kind)
{
    uint32_t n = 0, at = GM_NONE;
    while ((at = gm_kept_next(one.kept, kind, GPU, at)) != GM_NONE)
        n++;
    return n;
}

/* ---- frames ---- */

static uint64_t bytes_of(uint32_t frame)
{
    return gm_class_bytes(frame % GM_CHUNK_CLASSES);
}

static void makes_frames(void)
{
    for (uint32_t i = 0; i < 12; i++) {
        require(gm_frames_create(&one.frames, i, bytes_of(i)) == CUDA_SUCCESS);
        write_at(gm_frames_reach(&one.frames, i, bytes_of(i)), bytes_of(i), 1000 * i);
    }
    gm_frames_destroy(&one.frames, 4, bytes_of(4));
}

static void import_frame(uint32_t i, uint64_t *id)
{
    const int fd = gm_kept_claim(one.kept, GM_KEPT_FRAME, GPU, i, id);
    require(fd >= 0);
    require(gm_frames_import(&one.frames, i, bytes_of(i), fd, (uint32_t)*id) == CUDA_SUCCESS);
    require(one.frames.handles[i].id == *id);
    require(is_at(one.frames.handles[i].va, bytes_of(i), 1000 * i));
}

static void takes_frames(void)
{
    uint64_t id = 0, most = 0;
    require(count(GM_KEPT_FRAME) == 11);
    require(gm_kept_claim(one.kept, GM_KEPT_FRAME, GPU, 4, &id) == -1);
    for (uint32_t i = 0; i < 12; i++) {
        if (i == 4 || i == 9)
            continue;
        import_frame(i, &id);
        most = id > most ? id : most;
    }
    gm_kept_settle(one.kept); /* nobody's: 9 */
    require(gm_frames_create(&one.frames, 20, bytes_of(20)) == CUDA_SUCCESS);
    require(one.frames.handles[20].id > most); /* whoever has an old one is not mistaken */
    write_at(gm_frames_reach(&one.frames, 20, bytes_of(20)), bytes_of(20), 20000);
    gm_frames_destroy(&one.frames, 5, bytes_of(5));
}

static void takes_them_again(void)
{
    uint64_t id;
    require(count(GM_KEPT_FRAME) == 10);
    for (uint32_t i = 0; i < 21; i++)
        if ((i < 12 && i != 4 && i != 5 && i != 9) || i == 20)
            import_frame(i, &id);
    require(count(GM_KEPT_FRAME) == 0);
}

/* A frame of another GPU that has yet to be adopted has a number, too; one that has ended has none.
 */
static void makes_one_of_another(void)
{
    gm_frames_keep(&one.frames, one.kept, GPU + 1);
    require(gm_frames_create(&one.frames, 0, bytes_of(0)) == CUDA_SUCCESS);
    require(gm_frames_create(&one.frames, 1, bytes_of(1)) == CUDA_SUCCESS);
    require(gm_kept_put(one.kept, GM_KEPT_FRAME, GPU + 1, 0, 5000, one.frames.handles[0].fd) == 0);
    require(gm_kept_put(one.kept, GM_KEPT_FRAME, GPU + 1, 1, 6000, one.frames.handles[1].fd) == 0);
    gm_frames_destroy(&one.frames, 1, bytes_of(1));
}

static void makes_one_beside(void)
{
    require(gm_frames_create(&one.frames, 40, bytes_of(40)) == CUDA_SUCCESS);
    require(one.frames.handles[40].id == 5001);
}

static void test_numbers(void **state)
{
    (void)state;
    daemon_is(makes_one_of_another);
    daemon_is(makes_one_beside);
}

static void test_frames(void **state)
{
    (void)state;
    daemon_is(makes_frames);
    daemon_is(takes_frames);
    daemon_is(takes_them_again);
}

/* Memory that is not of that size, and what is no memory: nothing is left of it here. */
static void takes_what_is_none(void)
{
    uint64_t id;
    const uint32_t before = gm_files_count();
    int fd = gm_kept_claim(one.kept, GM_KEPT_FRAME, GPU, 0, &id);
    require(gm_frames_import(&one.frames, 0, GM_CHUNK_MAX, fd, 1) != CUDA_SUCCESS);
    require(gm_files_count() == before - 1);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    require(gm_frames_import(&one.frames, 1, GM_CHUNK_MIN, fd, 1) != CUDA_SUCCESS);
    require(gm_files_count() == before - 1);
}

/* What cannot be had now may be had by another daemon: it stays with the keeper. */
static void finds_it_still(void)
{
    uint64_t id;
    require(gm_kept_next(one.kept, GM_KEPT_FRAME, GPU, GM_NONE) == 0);
    import_frame(0, &id);
}

static void test_no_frames(void **state)
{
    (void)state;
    daemon_is(makes_frames);
    daemon_is(takes_what_is_none);
    daemon_is(finds_it_still);
}

/* The keeper can hold no more: no frame is made, and the reason is files. */
static void makes_too_many(void)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t n = 0;
    gm_kept_settle(one.kept);
    while (n < 64 && (result = gm_frames_create(&one.frames, n, GM_CHUNK_MIN)) == CUDA_SUCCESS)
        n++;
    require(n == 23 && result == CUDA_ERROR_OPERATING_SYSTEM);
    const uint32_t files = gm_files_count();
    size_t free_bytes, left, total;
    require(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
    require(gm_frames_create(&one.frames, n, GM_CHUNK_MIN) == CUDA_ERROR_OPERATING_SYSTEM);
    require(cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS && left == free_bytes);
    require(gm_files_count() == files);
    gm_frames_destroy(&one.frames, 0, GM_CHUNK_MIN);
    require(gm_frames_create(&one.frames, 30, GM_CHUNK_MIN) == CUDA_SUCCESS);
}

static void test_full(void **state)
{
    (void)state;
    keeper_stop();
    assert_int_equal(keeper_start(340), 0);
    daemon_is(makes_too_many);
}

/* ---- pinned memory ---- */

#define ALICE 1000u
#define BOB 1001u
#define WHOLE (GM_CHUNK_CLASSES - 1u)

/* What lies where, as a ledger would say. */
static struct {
    uint32_t chain, unit, small, lent, others, idle, chains[512];
    uint32_t lent_id, small_id;
} * left;

static CUdeviceptr at(uint32_t page)
{
    return (CUdeviceptr)(uintptr_t)gm_hostpool_memory(&one.pool, page);
}

static void want(uint64_t bytes)
{
    gm_hostpool_want(&one.pool, bytes);
    uv_run(&one.loop, UV_RUN_DEFAULT);
}

static uint32_t take_small(uint32_t owner)
{
    gm_hostpool_forget_wants(&one.pool);
    uint32_t page = gm_hostpool_take_unit(&one.pool, 1, owner);
    if (page == GM_NONE) {
        gm_hostpool_make_units(&one.pool);
        uv_run(&one.loop, UV_RUN_DEFAULT);
        page = gm_hostpool_take_unit(&one.pool, 1, owner);
    }
    require(page != GM_NONE);
    return page;
}

/* Slabs: 0 has 6 MiB of a chain, 1 is a unit that Alice's program knows, 2 one that is idle, 3 goes
 * as that is too much. Small units: one that Bob's program knows, one that none does, one that is
 * idle. */
static void pins(void)
{
    gm_pages_keep(&one.pool.pages, left->chains);
    want(4 * GM_SLAB_BYTES);
    require(gm_hostpool_size(&one.pool) == 4 * GM_SLAB_BYTES && count(GM_KEPT_PIECE) == 0);
    left->chain = gm_hostpool_take(&one.pool, 3 * GM_CHUNK_MIN);
    left->unit = gm_hostpool_take_unit(&one.pool, WHOLE, ALICE);
    left->idle = gm_hostpool_take_unit(&one.pool, WHOLE, ALICE);
    left->small = take_small(BOB);
    left->lent = take_small(BOB);
    left->others = take_small(BOB);
    require(gm_frames_adopt(&one.frames, 1, &one.pool, left->unit, ALICE) == CUDA_SUCCESS);
    require(gm_frames_adopt(&one.frames, 2, &one.pool, left->lent, BOB) == CUDA_SUCCESS);
    require(gm_frames_adopt(&one.frames, 3, &one.pool, left->idle, ALICE) == CUDA_SUCCESS);
    left->lent_id = one.frames.handles[2].id;
    gm_frames_destroy(&one.frames, 3, GM_SLAB_BYTES);
    gm_hostpool_free(&one.pool, left->idle);
    gm_hostpool_free(&one.pool, left->others);
    write_at(at(left->chain), 3 * GM_CHUNK_MIN, 1);
    write_at(at(left->unit), GM_SLAB_BYTES, 2);
    write_at(at(left->idle), GM_SLAB_BYTES, 3);
    write_at(at(left->small), gm_class_bytes(1), 4);
    write_at(at(left->lent), gm_class_bytes(1), 5);
}

static uint32_t owner_of(uint32_t page)
{
    return page == left->unit ? ALICE : page == left->small || page == left->lent ? BOB : GM_NONE;
}

static void adopt_pieces(void)
{
    for (uint32_t page = gm_kept_next(one.kept, GM_KEPT_PIECE, GPU, GM_NONE); page != GM_NONE;
         page = gm_kept_next(one.kept, GM_KEPT_PIECE, GPU, page)) {
        uint64_t id;
        const int fd = gm_kept_claim(one.kept, GM_KEPT_PIECE, GPU, page, &id);
        require(fd >= 0);
        require(gm_hostpool_adopt(&one.pool, page, fd, (uint32_t)id, owner_of(page)) == 0);
    }
}

static void finds_pinned(void)
{
    gm_pages_keep(&one.pool.pages, left->chains);
    const uint32_t before = gm_files_count();
    require(count(GM_KEPT_PIECE) == 6);
    adopt_pieces();
    /* Two that were nobody's are gone: programs may know them. */
    require(gm_hostpool_size(&one.pool) == 2 * GM_SLAB_BYTES + 2 * gm_class_bytes(1));
    require(gm_files_count() <= before + 4 - 2); /* imports have a file of simcuda's */
    require(gm_hostpool_used(&one.pool) == 0);
    /* Chains that are none. */
    require(!gm_hostpool_take_again(&one.pool, left->chain, 2 * GM_CHUNK_MIN));
    require(!gm_hostpool_take_again(&one.pool, left->unit, GM_CHUNK_MIN));
    require(!gm_hostpool_take_again(&one.pool, left->unit + 1, GM_SLAB_BYTES));
    require(!gm_hostpool_take_again(&one.pool, left->idle, GM_SLAB_BYTES));
    require(!gm_hostpool_take_again(&one.pool, left->others, gm_class_bytes(1)));
    require(!gm_hostpool_take_again(&one.pool, left->lent + 1, gm_class_bytes(1)));
    require(!gm_hostpool_take_again(&one.pool, GM_NONE, GM_CHUNK_MIN));
    require(gm_hostpool_used(&one.pool) == 0);
    require(gm_hostpool_take_again(&one.pool, left->chain, 3 * GM_CHUNK_MIN));
    require(gm_hostpool_take_again(&one.pool, left->unit, GM_SLAB_BYTES));
    require(gm_hostpool_take_again(&one.pool, left->small, gm_class_bytes(1)));
    require(gm_hostpool_take_again(&one.pool, left->lent, gm_class_bytes(1)));
    require(!gm_hostpool_take_again(&one.pool, left->lent, gm_class_bytes(1)));
    require(!gm_hostpool_take_again(&one.pool, left->unit, GM_SLAB_BYTES));
    require(gm_hostpool_used(&one.pool) ==
            3 * GM_CHUNK_MIN + GM_SLAB_BYTES + 2 * gm_class_bytes(1));
    require(is_at(at(left->chain), 3 * GM_CHUNK_MIN, 1));
    require(is_at(at(left->unit), GM_SLAB_BYTES, 2));
    require(is_at(at(left->small), gm_class_bytes(1), 4));
    require(is_at(at(left->lent), gm_class_bytes(1), 5));
    /* Units are units, and their frames are what they were. */
    require(gm_hostpool_is_unit(&one.pool, left->unit, WHOLE));
    require(gm_hostpool_is_unit(&one.pool, left->small, 1));
    require(gm_frames_adopt_again(&one.frames, 5, &one.pool, left->small, BOB) == CUDA_SUCCESS);
    require(gm_frames_adopt_again(&one.frames, 2, &one.pool, left->lent, BOB) == CUDA_SUCCESS);
    require(one.frames.handles[2].id == left->lent_id);
    require(one.frames.handles[5].id > left->lent_id); /* none knew it, and one comes after it */
    want(3 * GM_SLAB_BYTES);                           /* as much as there is */
    require(gm_hostpool_take_idle(&one.pool, ALICE) == GM_NONE);
    gm_hostpool_free(&one.pool, left->unit);
    require(gm_hostpool_take_idle(&one.pool, BOB) == GM_NONE);
    require(gm_hostpool_take_idle(&one.pool, ALICE) == left->unit);
    left->small_id = one.frames.handles[5].id;
}

/* A third one, and with another cap. What goes goes at the keeper, too. */
static void finds_it_again(void)
{
    gm_pages_keep(&one.pool.pages, left->chains);
    require(count(GM_KEPT_PIECE) == 4);
    adopt_pieces();
    require(gm_hostpool_take_again(&one.pool, left->chain, 3 * GM_CHUNK_MIN));
    require(gm_hostpool_take_again(&one.pool, left->small, gm_class_bytes(1)));
    require(is_at(at(left->chain), 3 * GM_CHUNK_MIN, 1));
    require(is_at(at(left->small), gm_class_bytes(1), 4));
    require(gm_hostpool_unit_id(&one.pool, left->small) == left->small_id);
    want(0);
    require(gm_hostpool_size(&one.pool) == GM_SLAB_BYTES + gm_class_bytes(1));
}

static void finds_two(void)
{
    require(count(GM_KEPT_PIECE) == 2);
    uint64_t id;
    require(gm_kept_claim(one.kept, GM_KEPT_PIECE, GPU, left->small, &id) >= 0);
    require(id == left->small_id);
    /* What is no memory of that size, or where none can be. */
    const uint32_t files = gm_files_count();
    const int fd = gm_kept_claim(one.kept, GM_KEPT_PIECE, GPU, left->chain, &id);
    require(gm_hostpool_adopt(&one.pool, left->chain + 1, dup(fd), 0, ALICE) == -EINVAL);
    require(gm_hostpool_adopt(&one.pool, left->small, dup(fd), 1, ALICE) == -EIO);
    require(gm_hostpool_adopt(&one.pool, gm_hostpool_pages(&one.pool), dup(fd), 0, ALICE) ==
            -EINVAL);
    require(gm_hostpool_adopt(&one.pool, left->chain, dup(STDERR_FILENO), 0, GM_NONE) == -EIO);
    require(gm_files_count() == files && gm_hostpool_pinned(&one.pool) == 0);
    require(gm_hostpool_adopt(&one.pool, left->chain, fd, 0, ALICE) == 0);
    require(gm_hostpool_adopt(&one.pool, left->chain, dup(fd), 0, ALICE) == -EINVAL); /* twice */
    require(gm_hostpool_size(&one.pool) == GM_SLAB_BYTES);
    /* One that no program knew serves everybody, whoever had his chunk there. */
    require(gm_hostpool_take(&one.pool, GM_SLAB_BYTES) != GM_NONE);
}

/* What could not be had stayed with the keeper; what was there twice did not. */
static void finds_one(void)
{
    require(count(GM_KEPT_PIECE) == 1);
    require(gm_kept_next(one.kept, GM_KEPT_PIECE, GPU, GM_NONE) == left->small);
}

static void test_pinned(void **state)
{
    (void)state;
    left = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(left != MAP_FAILED);
    cap = 5 * GM_SLAB_BYTES;
    daemon_is(pins);
    daemon_is(finds_pinned);
    cap = 8 * GM_SLAB_BYTES;
    daemon_is(finds_it_again);
    daemon_is(finds_two);
    daemon_is(finds_one);
}

/* The keeper can hold five more: five slabs can be taken, and the pool says why there are no more.
 */
static void pins_too_many(void)
{
    gm_kept_settle(one.kept);
    want(8 * GM_SLAB_BYTES);
    require(gm_hostpool_size(&one.pool) == 5 * GM_SLAB_BYTES);
    require(one.pool.refusal == CUDA_ERROR_OPERATING_SYSTEM);
    const uint32_t page = gm_hostpool_take(&one.pool, 5 * GM_SLAB_BYTES);
    require(page != GM_NONE);
    require(gm_hostpool_take(&one.pool, GM_CHUNK_MIN) == GM_NONE);
    require(gm_hostpool_pinned(&one.pool) == 5 * GM_SLAB_BYTES);
    /* One that cannot be told who has it has nobody. */
    gm_kept_drop(one.kept, GM_KEPT_PIECE, GPU, page);
    want(8 * GM_SLAB_BYTES);
    require(gm_hostpool_size(&one.pool) == 6 * GM_SLAB_BYTES);
    struct gm_unit_memory unit;
    require(gm_hostpool_lend(&one.pool, page, ALICE, 9, &unit) == CUDA_ERROR_OPERATING_SYSTEM);
    require(gm_hostpool_unit_id(&one.pool, page) == 0);
}

static void test_pinned_full(void **state)
{
    (void)state;
    keeper_stop();
    assert_int_equal(keeper_start(322), 0);
    daemon_is(pins_too_many);
}

/* ---- paged memory and disk ---- */

static struct {
    uint32_t paged[4], disk[2], paged_chains[128], disk_chains[128];
} * below;
static uint32_t n_copied;

static void on_copied(void *arg, uint32_t chunk, int error)
{
    (void)arg;
    (void)chunk;
    require(error == 0);
    n_copied++;
}

static void open_tiers(uint64_t paged, const char *dir, uint64_t disk)
{
    char why[256] = "";
    const struct gm_stores_config config = {.paged = paged,
                                            .disk_dir = dir,
                                            .disk = disk,
                                            .workers = 2,
                                            .keep_ms = 30,
                                            .kept = one.kept,
                                            .gpu = GPU};
    if (gm_stores_open(&one.stores, &one.loop, &one.pool, &config, on_copied, NULL, why,
                       sizeof why) != 0) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    gm_stores_keep(one.stores, GM_TIER_PAGED, below->paged_chains);
    gm_stores_keep(one.stores, GM_TIER_DISK, below->disk_chains);
    gm_hostpool_want(&one.pool, 4 * GM_SLAB_BYTES);
    while (gm_hostpool_size(&one.pool) < 4 * GM_SLAB_BYTES)
        uv_run(&one.loop, UV_RUN_ONCE);
}

/* A slab of memory with a number in it goes to or comes from a lower tier. */
static uint32_t lower(uint32_t number, enum gm_tier tier)
{
    const uint32_t page = gm_hostpool_take(&one.pool, GM_SLAB_BYTES);
    const uint32_t to = gm_stores_take(one.stores, tier, GM_SLAB_BYTES), before = n_copied;
    require(page != GM_NONE && to != GM_NONE);
    write_at(at(page), GM_SLAB_BYTES, number);
    gm_stores_copy(one.stores, number, GM_TIER_PINNED, page, tier, to, GM_SLAB_BYTES);
    while (n_copied == before)
        uv_run(&one.loop, UV_RUN_ONCE);
    gm_hostpool_free(&one.pool, page);
    return to;
}

static void raise_again(uint32_t number, enum gm_tier tier, uint32_t from)
{
    const uint32_t page = gm_hostpool_take(&one.pool, GM_SLAB_BYTES), before = n_copied;
    require(page != GM_NONE);
    gm_stores_copy(one.stores, number, tier, from, GM_TIER_PINNED, page, GM_SLAB_BYTES);
    while (n_copied == before)
        uv_run(&one.loop, UV_RUN_ONCE);
    require(is_at(at(page), GM_SLAB_BYTES, number));
    gm_hostpool_free(&one.pool, page);
}

/* The open file whose name begins so. */
static struct stat file_of(const char *begin)
{
    struct stat is = {0};
    for (int fd = 3; fd < 64; fd++) {
        char file[32], name[128] = "";
        snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
        if (readlink(file, name, sizeof name - 1) > 0 && strncmp(name, begin, strlen(begin)) == 0 &&
            fstat(fd, &is) == 0)
            break;
    }
    return is;
}

static uint64_t memory_of_paged(void)
{
    return (uint64_t)file_of("/memfd:gpumux-paged").st_blocks * 512;
}

static void run_until_held(uint64_t bytes)
{
    for (int i = 0; i < PATIENCE_MS && memory_of_paged() != bytes; i++) {
        usleep(1000);
        uv_run(&one.loop, UV_RUN_NOWAIT);
    }
    require(memory_of_paged() == bytes);
    require(gm_stores_held(one.stores) == bytes);
}

static void lowers(void)
{
    open_tiers(4 * GM_SLAB_BYTES, folder, 2 * GM_SLAB_BYTES);
    require(gm_stores_cap(one.stores, GM_TIER_PAGED) == 4 * GM_SLAB_BYTES);
    for (uint32_t i = 0; i < 4; i++)
        below->paged[i] = lower(100 + i, GM_TIER_PAGED);
    for (uint32_t i = 0; i < 2; i++)
        below->disk[i] = lower(200 + i, GM_TIER_DISK);
    gm_stores_free(one.stores, GM_TIER_PAGED, below->paged[1]); /* it may have memory yet */
}

static uint32_t allocations = UINT32_MAX; /* so many more succeed */

static bool is_refused(void)
{
    return allocations == 0 || (allocations < UINT32_MAX && allocations-- == 0);
}

int __real_gm_pages_open(struct gm_pages *pages, uint64_t bytes);
int __wrap_gm_pages_open(struct gm_pages *pages, uint64_t bytes);
int __wrap_gm_pages_open(struct gm_pages *pages, uint64_t bytes)
{
    if (!is_refused())
        return __real_gm_pages_open(pages, bytes);
    *pages = (struct gm_pages){0};
    return -ENOMEM;
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return is_refused() ? NULL : __real_aligned_alloc(alignment, size);
}

/* A start that fails: the next one finds all, and what was claimed is closed. */
static void fails_with(uint32_t most, uint64_t disk, const char *dir)
{
    char why[256] = "";
    const struct gm_stores_config config = {
        .paged = GM_SLAB_BYTES, .disk_dir = dir, .disk = disk, .kept = one.kept, .gpu = GPU};
    require(count(GM_KEPT_PAGED) == 1 && count(GM_KEPT_DISK) == 1);
    uv_run(&one.loop, UV_RUN_NOWAIT); /* whatever the one before has closed */
    const uint32_t before = gm_files_count();
    allocations = most;
    const int error = gm_stores_open(&one.stores, &one.loop, &one.pool, &config, on_copied, NULL,
                                     why, sizeof why);
    allocations = UINT32_MAX;
    require(error != 0 && why[0] != '\0');
    uv_run(&one.loop, UV_RUN_NOWAIT);
    require(gm_files_count() == before - (count(GM_KEPT_PAGED) == 0) - (count(GM_KEPT_DISK) == 0));
    gm_kept_disconnect(one.kept); /* the daemon ends */
    gm_kept_close(one.kept);
    require(gm_kept_open(&one.kept) == 0);
    require(keeper_connect(one.kept) == 0);
    require(gm_kept_take(one.kept) == 0);
}

static void fails(void)
{
    for (uint32_t most = 0; most < 3; most++)
        fails_with(most, GM_SLAB_BYTES, folder);
}

/* With less of everything: what lies there stays, and the rest goes. */
static void raises(void)
{
    open_tiers(GM_SLAB_BYTES, NULL, 0);
    require(gm_stores_cap(one.stores, GM_TIER_PAGED) == 4 * GM_SLAB_BYTES);
    require(gm_stores_cap(one.stores, GM_TIER_DISK) == 2 * GM_SLAB_BYTES);
    require(!gm_stores_adopt(one.stores, GM_TIER_PAGED, below->paged[0], GM_CHUNK_MIN));
    require(!gm_stores_adopt(one.stores, GM_TIER_PAGED, GM_NONE, GM_CHUNK_MIN));
    require(!gm_stores_adopt(one.stores, GM_TIER_NONE, below->paged[0], GM_SLAB_BYTES));
    require(!gm_stores_adopt(one.stores, GM_TIER_PINNED, 0, GM_CHUNK_MIN));
    for (uint32_t i = 0; i < 4; i++)
        require(i == 1 ||
                gm_stores_adopt(one.stores, GM_TIER_PAGED, below->paged[i], GM_SLAB_BYTES));
    require(!gm_stores_adopt(one.stores, GM_TIER_PAGED, below->paged[3], GM_SLAB_BYTES));
    for (uint32_t i = 0; i < 2; i++)
        require(gm_stores_adopt(one.stores, GM_TIER_DISK, below->disk[i], GM_SLAB_BYTES));
    for (int i = 0; i < 100; i++, usleep(1000)) /* not before it can know what is used */
        uv_run(&one.loop, UV_RUN_NOWAIT);
    require(memory_of_paged() == 4 * GM_SLAB_BYTES);
    gm_stores_want(one.stores, 0);
    run_until_held(3 * GM_SLAB_BYTES);
    for (uint32_t i = 0; i < 4; i++)
        if (i != 1)
            raise_again(100 + i, GM_TIER_PAGED, below->paged[i]);
    for (uint32_t i = 0; i < 2; i++)
        raise_again(200 + i, GM_TIER_DISK, below->disk[i]);
    require(gm_stores_take(one.stores, GM_TIER_PAGED, GM_SLAB_BYTES) == GM_NONE);
    require(gm_stores_cap(one.stores, GM_TIER_PAGED) == 3 * GM_SLAB_BYTES);
    gm_stores_free(one.stores, GM_TIER_PAGED, below->paged[3]);
    require(gm_stores_cap(one.stores, GM_TIER_PAGED) == 2 * GM_SLAB_BYTES);
    gm_stores_free(one.stores, GM_TIER_PAGED, below->paged[0]);
    run_until_held(GM_SLAB_BYTES);
    gm_stores_free(one.stores, GM_TIER_DISK, below->disk[0]);
    require(gm_stores_cap(one.stores, GM_TIER_DISK) == GM_SLAB_BYTES);
}

/* With more: what lies there stays. */
static void raises_more(void)
{
    open_tiers(6 * GM_SLAB_BYTES, folder, 3 * GM_SLAB_BYTES);
    require(gm_stores_cap(one.stores, GM_TIER_PAGED) == 6 * GM_SLAB_BYTES);
    require(gm_stores_cap(one.stores, GM_TIER_DISK) == 3 * GM_SLAB_BYTES);
    char name[96];
    snprintf(name, sizeof name, "%s/#", folder);
    require(file_of(name).st_size == 3 * GM_SLAB_BYTES); /* it has its room */
    require(gm_stores_adopt(one.stores, GM_TIER_PAGED, below->paged[2], GM_SLAB_BYTES));
    require(gm_stores_adopt(one.stores, GM_TIER_DISK, below->disk[1], GM_SLAB_BYTES));
    for (uint32_t i = 0; i < 5; i++)
        lower(300 + i, GM_TIER_PAGED);
    for (uint32_t i = 0; i < 2; i++)
        lower(400 + i, GM_TIER_DISK);
    raise_again(102, GM_TIER_PAGED, below->paged[2]);
    raise_again(201, GM_TIER_DISK, below->disk[1]);
    gm_stores_close(one.stores); /* an end after which nobody comes: nothing is left there */
}

static void finds_none(void)
{
    require(count(GM_KEPT_PAGED) == 0 && count(GM_KEPT_DISK) == 0);
}

static void test_below(void **state)
{
    (void)state;
    below = mmap(NULL, sizeof *below, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(below != MAP_FAILED);
    daemon_is(lowers);
    daemon_is(fails);
    daemon_is(raises);
    daemon_is(raises_more);
    daemon_is(finds_none);
}

#define OUTLIVES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {OUTLIVES(test_frames),    OUTLIVES(test_numbers),
                                       OUTLIVES(test_no_frames), OUTLIVES(test_full),
                                       OUTLIVES(test_pinned),    OUTLIVES(test_pinned_full),
                                       OUTLIVES(test_below)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
