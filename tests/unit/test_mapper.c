/*
 * The mapper over a driver that keeps count: of handles, mappings, contexts and fds. The N-th call
 * of a batch fails, for every N: nothing may be left over.
 */
#include "tests/unit/mapper_world.h"

#include <dirent.h>

/* No handles of the program's own here: test_views.c has them. */
void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on)
{
    (void)gpu, (void)bytes, (void)is_on;
    fail();
}

/* What peers.c tells: whether device 7 may reach what is mapped. */
static bool has_peer;
size_t gm_peers_add(uint32_t gpu, CUmemAccessDesc *desc, size_t n)
{
    assert_int_equal(gpu, 0);
    if (has_peer)
        desc[n++] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 7},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
    return n;
}

#define HANDLES_MAX 4096
#define BASE 0x700000000000ull

/* ---- the driver ---- */

static struct {
    bool is_alive;
    uint64_t va; /* 0: not mapped */
    uint64_t bytes;
    bool has_access, is_open; /* to its own device, and to its peer */
} handles[HANDLES_MAX];
static unsigned next_handle = 1;
static int accesses; /* calls of cuMemSetAccess */

static CUresult fake_import(CUmemGenericAllocationHandle *handle, void *os,
                            CUmemAllocationHandleType type)
{
    CUresult result = judge();
    if (result != CUDA_SUCCESS)
        return result;
    assert_int_equal(type, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_true(fcntl((int)(intptr_t)os, F_GETFD) >= 0); /* still open */
    assert_true(next_handle < HANDLES_MAX);
    handles[next_handle].is_alive = true;
    *handle = next_handle++;
    return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
    CUresult result = judge();
    if (result != CUDA_SUCCESS)
        return result;
    assert_true(handles[handle].is_alive);
    assert_int_equal(handles[handle].va, 0);
    handles[handle].is_alive = false;
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr va, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = judge();
    if (result != CUDA_SUCCESS)
        return result;
    assert_int_equal(offset, 0);
    assert_int_equal(flags, 0);
    assert_true(handles[handle].is_alive);
    assert_int_equal(handles[handle].va, 0);
    for (unsigned i = 1; i < next_handle; i++)
        assert_false(handles[i].va != 0 && va < handles[i].va + handles[i].bytes &&
                     handles[i].va < va + bytes);
    handles[handle].va = va;
    handles[handle].bytes = bytes;
    handles[handle].has_access = handles[handle].is_open = false;
    return CUDA_SUCCESS;
}

static CUresult fake_set_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
                                size_t count)
{
    CUresult result = judge();
    accesses++;
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t covered = 0;
    for (unsigned i = 1; i < next_handle; i++) {
        if (handles[i].va < va || handles[i].va >= va + bytes)
            continue;
        for (size_t k = 0; k < count; k++) {
            bool is_on = desc[k].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            assert_int_equal(desc[k].location.type, CU_MEM_LOCATION_TYPE_DEVICE);
            assert_true(is_on || desc[k].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
            assert_true(desc[k].location.id == DEVICE || desc[k].location.id == 7);
            if (desc[k].location.id == DEVICE)
                handles[i].has_access = is_on;
            else
                handles[i].is_open = is_on;
        }
        covered += handles[i].bytes;
    }
    assert_int_equal(covered, bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr va, size_t bytes)
{
    CUresult result = judge();
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 1; i < next_handle; i++) {
        if (handles[i].va != va)
            continue;
        assert_int_equal(handles[i].bytes, bytes);
        handles[i].va = 0;
        return CUDA_SUCCESS;
    }
    fail_msg("unmap of what is not mapped");
    return CUDA_ERROR_INVALID_VALUE;
}

static unsigned alive(void)
{
    unsigned count = 0;
    for (unsigned i = 1; i < next_handle; i++)
        count += handles[i].is_alive;
    return count;
}

static unsigned mapped(void)
{
    unsigned count = 0;
    for (unsigned i = 1; i < next_handle; i++)
        count += handles[i].va != 0;
    return count;
}

static unsigned open_fds(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static int setup(void **state)
{
    static const CUdevice devices[] = {DEVICE, -1};
    (void)state;
    memset(handles, 0, sizeof(handles));
    next_handle = 1;
    accesses = 0;
    has_peer = false;
    make_driver(devices, 2);
    return 0;
}

static void is_empty(void)
{
    size_t cached, placed;
    gm_import_count(&cached, &placed);
    assert_int_equal(cached, 0);
    assert_int_equal(placed, 0);
    assert_int_equal(alive(), 0);
    assert_int_equal(mapped(), 0);
    assert_int_equal(contexts, 0);
    assert_int_equal(pushed, 0);
}

/* ---- batches ---- */

/* An 86 MiB allocation at BASE: 32+32+16+4+2, frames from `frame`. Entries with fds if `fds` is
 * given. */
#define ALLOC (86ull << 20)
static uint32_t cut(struct gm_map_entry *entry, uint32_t frame, int *fds)
{
    uint32_t n = 0;
    uint64_t va = BASE, left = ALLOC;
    while (left > 0) {
        uint64_t bytes = gm_class_bytes(gm_chunk_next(left));
        entry[n] = (struct gm_map_entry){
            .va = va, .bytes = bytes, .frame = frame + n, .flags = fds ? GM_MAP_HAS_FD : 0};
        if (fds != NULL)
            fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        va += bytes;
        left -= bytes;
        n++;
    }
    return n;
}

static void spans(struct gm_span_entry *span, const struct gm_map_entry *entry, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        span[i] = (struct gm_span_entry){.va = entry[i].va, .bytes = entry[i].bytes};
}

static void drop_all(uint32_t frame, uint32_t n)
{
    struct gm_frame_entry frames[32];
    for (uint32_t i = 0; i < n; i++)
        frames[i].frame = frame + i;
    assert_int_equal(gm_mapper_drop(frames, n), CUDA_SUCCESS);
}

static void test_life_of_frames(void **state)
{
    struct gm_map_entry entry[32];
    struct gm_span_entry span[32];
    int fds[32];
    (void)state;
    unsigned before = open_fds();
    uint32_t n = cut(entry, 100, fds);
    assert_int_equal(n, 5);
    assert_false(gm_mapper_covers(BASE, ALLOC));
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_SUCCESS);
    assert_int_equal(open_fds(), before);
    assert_int_equal(accesses, 1); /* one run */
    for (unsigned i = 1; i < next_handle; i++)
        assert_true(handles[i].has_access);
    assert_true(gm_mapper_covers(BASE, ALLOC));
    assert_true(gm_mapper_covers(BASE, 64ull << 20));
    assert_false(gm_mapper_covers(BASE + GM_CHUNK_MIN, ALLOC - GM_CHUNK_MIN));

    /* A mapped frame is not dropped. */
    struct gm_frame_entry one = {.frame = 101};
    assert_int_equal(gm_mapper_drop(&one, 1), CUDA_ERROR_INVALID_VALUE);

    spans(span, entry, n);
    assert_int_equal(gm_mapper_unmap(span, n), CUDA_SUCCESS);
    assert_int_equal(mapped(), 0);
    assert_int_equal(alive(), n); /* cached */
    assert_int_equal(gm_mapper_unmap(span, 1), CUDA_ERROR_INVALID_VALUE);

    /* Back from the cache, without fds, with a hole in the middle: two runs. */
    accesses = 0;
    struct gm_map_entry again[32];
    cut(again, 100, NULL);
    assert_int_equal(gm_mapper_map(again, 2, NULL, 0), CUDA_SUCCESS);
    again[2] = again[4];
    assert_int_equal(gm_mapper_map(&again[2], 1, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(accesses, 2);
    assert_false(gm_mapper_covers(BASE, ALLOC));

    /* The daemon is lost: what is there is released, what is not is not missed. */
    assert_int_equal(gm_mapper_release(BASE, ALLOC), CUDA_SUCCESS);
    assert_int_equal(mapped(), 0);
    assert_int_equal(alive(), 2); /* the two that were cached and not mapped */
    drop_all(100, n);             /* dropping what is not cached is fine */
    is_empty();

    /* Or it is lost with a part of the memory: the rest goes, wherever it is. */
    n = cut(entry, 100, fds);
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_SUCCESS);
    spans(span, entry, 1);
    assert_int_equal(gm_mapper_unmap(span, 1), CUDA_SUCCESS);
    gm_mapper_forget();
    assert_int_equal(mapped(), 0);
    assert_int_equal(alive(), 1); /* that one was cached and not mapped */
    drop_all(100, n);
    is_empty();
}

static void test_every_failure_is_undone(void **state)
{
    struct gm_map_entry entry[32];
    int fds[32];
    (void)state;
    unsigned before = open_fds();
    int most = 0;
    for (int n_call = 0;; n_call++) {
        setup(NULL);
        /* Two frames are cached before; they stay cached when the batch fails. */
        uint32_t n = cut(entry, 7, fds);
        for (int i = 2; i < (int)n; i++)
            close(fds[i]);
        assert_int_equal(gm_mapper_map(entry, 2, fds, 2), CUDA_SUCCESS);
        assert_int_equal(gm_mapper_unmap((struct gm_span_entry[]){{entry[0].va, entry[0].bytes},
                                                                  {entry[1].va, entry[1].bytes}},
                                         2),
                         CUDA_SUCCESS);
        n = cut(entry, 7, fds);
        entry[0].flags = entry[1].flags = 0;
        close(fds[0]);
        close(fds[1]);
        calls = 0;
        fail_at = n_call;
        CUresult result = gm_mapper_map(entry, n, fds + 2, (int)n - 2);
        fail_at = -1;
        assert_int_equal(open_fds(), before);
        if (result == CUDA_SUCCESS) {
            most = n_call;
            assert_true(gm_mapper_covers(BASE, ALLOC));
            assert_int_equal(gm_mapper_release(BASE, ALLOC), CUDA_SUCCESS);
            is_empty();
            break;
        }
        assert_int_equal(result, CUDA_ERROR_UNKNOWN);
        assert_int_equal(mapped(), 0);
        assert_int_equal(alive(), 2);
        /* And the same batch succeeds the next time, with its fds again. */
        cut(entry, 7, fds);
        entry[0].flags = entry[1].flags = 0;
        close(fds[0]);
        close(fds[1]);
        assert_int_equal(gm_mapper_map(entry, n, fds + 2, (int)n - 2), CUDA_SUCCESS);
        assert_int_equal(gm_mapper_release(BASE, ALLOC), CUDA_SUCCESS);
        is_empty();
    }
    assert_int_equal(most, 3 + 5 + 1); /* imports, maps, one set-access */
}

static void test_nonsense_is_refused(void **state)
{
    struct gm_map_entry entry[32];
    int fds[32];
    (void)state;
    unsigned before = open_fds();
    for (int kind = 0; kind < 8; kind++) {
        uint32_t n = cut(entry, 50, fds);
        int n_fds = (int)n;
        switch (kind) {
        case 0:
            entry[2].va += 4096;
            break;
        case 1:
            entry[2].bytes = 3 * GM_CHUNK_MIN;
            break;
        case 2:
            entry[2].bytes = 2 * GM_CHUNK_MAX;
            break;
        case 3:
            entry[2].gpu = 7;
            break;
        case 4:
            entry[2].gpu = 1; /* the daemon has it, this program does not see it */
            break;
        case 5:
            entry[2].flags = 0; /* a frame that was never sent; one fd too many, too */
            break;
        case 6:
            close(fds[--n_fds]); /* one fd too few */
            break;
        default:
            entry[2].va = entry[0].va; /* twice at one address */
        }
        assert_int_not_equal(gm_mapper_map(entry, n, fds, n_fds), CUDA_SUCCESS);
        assert_int_equal(open_fds(), before);
        is_empty();
    }
    /* A frame that is mapped comes again. */
    uint32_t n = cut(entry, 50, fds);
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_SUCCESS);
    cut(entry, 50, fds);
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(open_fds(), before);
    assert_true(gm_mapper_covers(BASE, ALLOC)); /* unharmed */
    assert_int_equal(gm_mapper_unmap(&(struct gm_span_entry){BASE, GM_CHUNK_MIN}, 1),
                     CUDA_ERROR_INVALID_VALUE); /* not a whole chunk */
    assert_int_equal(gm_mapper_release(BASE, ALLOC), CUDA_SUCCESS);
    is_empty();
}

static void test_context_is_borrowed(void **state)
{
    struct gm_map_entry entry[32];
    int fds[32];
    (void)state;
    wants_context = true;
    uint32_t n = cut(entry, 1, fds);
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_SUCCESS);
    assert_int_equal(contexts, 0);
    assert_int_equal(pushed, 0);
    assert_int_equal(gm_mapper_release(BASE, ALLOC), CUDA_SUCCESS);
    is_empty();
}

/* Failures of an unmap are told, and do not stop the batch. */
static void test_unmap_failures(void **state)
{
    struct gm_map_entry entry[32];
    struct gm_span_entry span[32];
    int fds[32];
    (void)state;
    uint32_t n = cut(entry, 1, fds);
    spans(span, entry, n);
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_SUCCESS);
    calls = 0;
    fail_at = 1;
    assert_int_equal(gm_mapper_unmap(span, n), CUDA_ERROR_UNKNOWN);
    assert_int_equal(mapped(), 1);
    assert_int_equal(gm_mapper_release(BASE, ALLOC), CUDA_SUCCESS);
    drop_all(1, n);
    is_empty();
}

/* The cache grows and shrinks: 1500 frames of 2 MiB, dropped in another order. */
static void test_many_frames(void **state)
{
    enum { MANY = 1500 };
    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        struct gm_map_entry entry = {.va = BASE + i * GM_CHUNK_MIN,
                                     .bytes = GM_CHUNK_MIN,
                                     .frame = i * 64 + 3,
                                     .flags = GM_MAP_HAS_FD};
        assert_int_equal(gm_mapper_map(&entry, 1, &fd, 1), CUDA_SUCCESS);
    }
    size_t cached, placed;
    gm_import_count(&cached, &placed);
    assert_int_equal(cached, MANY);
    assert_int_equal(placed, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t k = i * 7 % MANY;
        struct gm_span_entry span = {.va = BASE + k * GM_CHUNK_MIN, .bytes = GM_CHUNK_MIN};
        assert_int_equal(gm_mapper_unmap(&span, 1), CUDA_SUCCESS);
        drop_all(k * 64 + 3, 1);
    }
    is_empty();
}

/* What is mapped is opened to a peer at once, what comes later when it is mapped, and closed again.
 */
static void test_peers(void **state)
{
    struct gm_map_entry entry[32];
    struct gm_span_entry span[32];
    int fds[32];
    (void)state;
    uint32_t n = cut(entry, 100, fds);
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_SUCCESS);
    for (unsigned i = 1; i <= n; i++)
        assert_true(handles[i].has_access && !handles[i].is_open);
    wants_context = true;
    assert_int_equal(gm_mapper_allow(0, 7, true), CUDA_SUCCESS);
    wants_context = false;
    for (unsigned i = 1; i <= n; i++)
        assert_true(handles[i].has_access && handles[i].is_open);

    /* gone and back */
    has_peer = true;
    spans(span, entry, n);
    assert_int_equal(gm_mapper_unmap(span, n), CUDA_SUCCESS);
    cut(entry, 100, NULL);
    accesses = 0;
    assert_int_equal(gm_mapper_map(entry, n, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(accesses, 1);
    for (unsigned i = 1; i <= n; i++)
        assert_true(handles[i].has_access && handles[i].is_open);

    assert_int_equal(gm_mapper_allow(1, 7, false), CUDA_SUCCESS); /* another GPU's memory */
    for (unsigned i = 1; i <= n; i++)
        assert_true(handles[i].is_open);
    has_peer = false;
    fail_at = calls + 1; /* one that fails holds up none of the others */
    assert_int_equal(gm_mapper_allow(0, 7, false), CUDA_ERROR_UNKNOWN);
    fail_at = -1;
    unsigned open = 0;
    for (unsigned i = 1; i <= n; i++)
        open += handles[i].is_open;
    assert_int_equal(open, 1);

    assert_int_equal(gm_mapper_unmap(span, n), CUDA_SUCCESS);
    drop_all(100, n);
    is_empty();
}

/* The driver shuts down: what was mapped is gone, and what the daemon still asks for is as good as
 * done. The last test, because a process ends once. */
static void test_process_exit_is_quiet(void **state)
{
    struct gm_map_entry entry[32], again[32];
    struct gm_span_entry span[32];
    int fds[32];
    (void)state;
    uint32_t n = cut(entry, 1, fds);
    assert_int_equal(gm_mapper_map(entry, n, fds, (int)n), CUDA_SUCCESS);
    failure = CUDA_ERROR_DEINITIALIZED;
    calls = 0;
    fail_at = 0;
    spans(span, entry, n);
    assert_int_equal(gm_mapper_unmap(span, n), CUDA_SUCCESS);
    handles[1].va = 0; /* the driver unmapped it on its own */
    calls = 0;
    drop_all(1, n);
    handles[1].is_alive = false;
    is_empty();

    calls = 0;
    fail_at = 0;
    n = cut(again, 1, fds);
    assert_int_equal(gm_mapper_map(again, n, fds, (int)n), CUDA_SUCCESS);
    assert_int_equal(mapped(), 0);
    assert_int_equal(gm_mapper_unmap(span, n), CUDA_SUCCESS);
    drop_all(1, n);
    is_empty();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_life_of_frames, setup),
        cmocka_unit_test_setup(test_peers, setup),
        cmocka_unit_test_setup(test_every_failure_is_undone, setup),
        cmocka_unit_test_setup(test_nonsense_is_refused, setup),
        cmocka_unit_test_setup(test_context_is_borrowed, setup),
        cmocka_unit_test_setup(test_unmap_failures, setup),
        cmocka_unit_test_setup(test_many_frames, setup),
        cmocka_unit_test_setup(test_process_exit_is_quiet, setup),
    };
    return cmocka_run_group_tests_name("mapper", tests, NULL, NULL);
}
