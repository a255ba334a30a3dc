/*
 * Views at work, over a driver that keeps every mapping and its access: what the daemon sends to a
 * home is mapped wherever the program mapped the handle, and nowhere else; what the program does
 * while the memory is away is done when it comes back; a failure of any call is undone.
 */
#include "tests/unit/mapper_world.h"

#include "shim/map/mapper.h"
#include "shim/tables/allocs.h"
#include "shim/tables/pages.h"

#define PAGE GM_CHUNK_MIN
#define HOME (0x7800ull << 32)
#define RANGE (0x7000ull << 32)
#define BYTES (38ull << 20) /* 32 + 4 + 2 MiB */
#define CHUNKS 3u

void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on)
{
    (void)gpu, (void)bytes, (void)is_on;
}

/* The program's own mappings are opened by the program alone. */
size_t gm_peers_add(uint32_t gpu, CUmemAccessDesc *desc, size_t n)
{
    (void)gpu, (void)desc;
    return n;
}

/* ---- the driver ---- */

#define MAPPINGS_MAX 512
static struct mapping {
    uint64_t va; /* 0: free */
    uint64_t bytes;
    CUmemGenericAllocationHandle handle;
    unsigned access;
} mappings[MAPPINGS_MAX];
static unsigned next_handle = 1, alive;

static CUresult fake_import(CUmemGenericAllocationHandle *handle, void *os,
                            CUmemAllocationHandleType type)
{
    CUresult result = judge();
    (void)os, (void)type;
    if (result == CUDA_SUCCESS) {
        *handle = next_handle++;
        alive++;
    }
    return result;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
    CUresult result = judge();
    for (int i = 0; i < MAPPINGS_MAX; i++)
        assert_false(mappings[i].va != 0 && mappings[i].handle == handle);
    alive -= result == CUDA_SUCCESS;
    return result;
}

static CUresult fake_map(CUdeviceptr va, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = judge();
    struct mapping *place = NULL;
    assert_false(gm_vmm_is_virtual(handle));
    assert_int_equal(offset, 0);
    assert_int_equal(flags, 0);
    assert_true(va < HOME); /* nothing is ever mapped at a home */
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        if (mappings[i].va == 0)
            place = &mappings[i];
        else
            assert_true(va >= mappings[i].va + mappings[i].bytes || va + bytes <= mappings[i].va);
    }
    assert_non_null(place);
    *place = (struct mapping){.va = va, .bytes = bytes, .handle = handle};
    return CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr va, size_t bytes)
{
    CUresult result = judge();
    for (int i = 0; i < MAPPINGS_MAX && result == CUDA_SUCCESS; i++) {
        if (mappings[i].va == 0 || mappings[i].va >= va + bytes ||
            mappings[i].va + mappings[i].bytes <= va)
            continue;
        assert_true(mappings[i].va >= va && mappings[i].va + mappings[i].bytes <= va + bytes);
        mappings[i].va = 0;
    }
    return result;
}

static CUresult fake_set_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
                                size_t count)
{
    CUresult result = judge();
    uint64_t covered = 0;
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        if (mappings[i].va < va || mappings[i].va >= va + bytes)
            continue;
        assert_true(mappings[i].va + mappings[i].bytes <= va + bytes);
        for (size_t k = 0; k < count; k++)
            if (desc[k].location.id == DEVICE)
                mappings[i].access = (unsigned)desc[k].flags;
        covered += mappings[i].bytes;
    }
    assert_int_equal(covered, bytes); /* no hole */
    return CUDA_SUCCESS;
}

static unsigned mapped(void)
{
    unsigned n = 0;
    for (int i = 0; i < MAPPINGS_MAX; i++)
        n += mappings[i].va != 0;
    return n;
}

/* Exactly the chunks of this view in `which` (bits) are mapped, to the frames of `first` on, with
 * this access. */
static void expect_view(uint64_t va, unsigned which, unsigned access)
{
    uint64_t at = va;
    for (unsigned c = 0; c < CHUNKS; c++) {
        uint64_t bytes = c == 0 ? 16 * PAGE : c == 1 ? 2 * PAGE : PAGE;
        bool is_there = false;
        for (int i = 0; i < MAPPINGS_MAX; i++) {
            if (mappings[i].va != at)
                continue;
            is_there = true;
            assert_int_equal(mappings[i].bytes, bytes);
            assert_int_equal(mappings[i].access, access);
        }
        assert_int_equal(is_there, which >> c & 1);
        at += bytes;
    }
}

/* ---- the daemon ---- */

static void entries(struct gm_map_entry *entry, bool has_fds)
{
    uint64_t at = HOME;
    for (unsigned c = 0; c < CHUNKS; c++) {
        uint64_t bytes = c == 0 ? 16 * PAGE : c == 1 ? 2 * PAGE : PAGE;
        entry[c] = (struct gm_map_entry){
            .va = at, .bytes = bytes, .frame = 10 + c, .flags = has_fds ? GM_MAP_HAS_FD : 0};
        at += bytes;
    }
}

/* MAP of chunks `from` to `to` - 1. */
static CUresult map_chunks(unsigned from, unsigned to, bool has_fds)
{
    struct gm_map_entry entry[CHUNKS];
    int fds[CHUNKS];
    entries(entry, has_fds);
    for (unsigned i = from; i < to; i++)
        fds[i - from] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!has_fds)
        for (unsigned i = from; i < to; i++)
            close(fds[i - from]);
    return gm_mapper_map(&entry[from], to - from, fds, has_fds ? (int)(to - from) : 0);
}

static CUresult unmap_chunks(unsigned from, unsigned to)
{
    struct gm_map_entry entry[CHUNKS];
    struct gm_span_entry span[CHUNKS];
    entries(entry, false);
    for (unsigned i = from; i < to; i++)
        span[i - from] = (struct gm_span_entry){.va = entry[i].va, .bytes = entry[i].bytes};
    return gm_mapper_unmap(span, to - from);
}

/* ---- the program ---- */

static struct gm_vmm_handle *handle;

static CUresult program_map(uint64_t va)
{
    struct gm_view_call call = {.va = va, .bytes = BYTES, .value = handle->value};
    CUresult result = gm_views_on_map(&call);
    assert_null(call.dead);
    return result;
}

static CUresult program_allow(uint64_t va, uint64_t bytes, unsigned flags)
{
    CUmemAccessDesc desc = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = DEVICE},
        .flags = (CUmemAccess_flags)flags,
    };
    struct gm_view_call call = {.va = va, .bytes = bytes, .desc = &desc, .n_desc = 1};
    return gm_views_on_access(&call);
}

static struct gm_vmm_handle *program_unmap(uint64_t va, uint64_t bytes)
{
    struct gm_view_call call = {.va = va, .bytes = bytes};
    assert_int_equal(gm_views_on_unmap(&call), CUDA_SUCCESS);
    return call.dead;
}

static int setup(void **state)
{
    static const CUdevice devices[] = {DEVICE};
    (void)state;
    memset(mappings, 0, sizeof(mappings));
    alive = 0;
    make_driver(devices, 1);
    struct gm_vmm_handle made = {.home = HOME, .bytes = BYTES, .device = DEVICE, .gpu = 0};
    handle = gm_vmm_create(&made);
    gm_vmm_reserve(RANGE, 1ull << 30);
    return 0;
}

/* Everything goes: the program's mappings, the chunks, the handle. */
static int teardown(void **state)
{
    struct gm_vmm_handle *dead;
    struct gm_vmm_counts counts;
    size_t cached, placed;
    (void)state;
    fail_at = -1;
    program_unmap(RANGE, 1ull << 30);
    assert_int_equal(gm_vmm_release(handle->value, &dead), CUDA_SUCCESS);
    assert_ptr_equal(dead, handle);
    assert_int_equal(gm_mapper_release(HOME, BYTES), CUDA_SUCCESS);
    struct gm_frame_entry frames[CHUNKS] = {{10}, {11}, {12}};
    assert_int_equal(gm_mapper_drop(frames, CHUNKS), CUDA_SUCCESS);
    gm_vmm_bury(dead);
    gm_vmm_unreserve(RANGE, 1ull << 30);
    gm_import_count(&cached, &placed);
    gm_vmm_count(&counts);
    assert_int_equal(cached + placed + mapped() + alive, 0);
    assert_int_equal(counts.handles + counts.views, 0);
    assert_int_equal(gm_allocs_count(), 0);
    assert_int_equal(contexts + pushed, 0);
    return 0;
}

#define READ CU_MEM_ACCESS_FLAGS_PROT_READ
#define WRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE

/* What comes is seen at every view, with the access of each; what goes, at none. */
static void test_views_follow(void **state)
{
    struct gm_alloc alloc;
    (void)state;
    assert_int_equal(map_chunks(0, 3, true), CUDA_SUCCESS);
    assert_int_equal(mapped(), 0); /* at hand, and nowhere mapped */
    assert_true(gm_mapper_covers(HOME, BYTES));
    assert_int_equal(program_map(RANGE), CUDA_SUCCESS);
    assert_int_equal(program_map(RANGE + BYTES), CUDA_SUCCESS);
    expect_view(RANGE, 7, 0);
    assert_int_equal(program_allow(RANGE, 2 * BYTES, WRITE), CUDA_SUCCESS);
    assert_int_equal(program_allow(RANGE + BYTES, BYTES, READ), CUDA_SUCCESS);
    expect_view(RANGE, 7, WRITE);
    expect_view(RANGE + BYTES, 7, READ);
    assert_int_equal(gm_allocs_find(RANGE + BYTES + 1, &alloc), GM_ALLOC_INSIDE);
    assert_int_equal(alloc.kind, GM_ALLOC_VIEW);
    assert_int_equal(gm_pages_home(RANGE + 1), HOME >> GM_CHUNK_SHIFT);
    assert_int_equal(gm_pages_home(RANGE + 2 * BYTES - 1), (HOME + BYTES - 1) >> GM_CHUNK_SHIFT);
    assert_false(gm_pages_have(RANGE + 2 * BYTES));

    assert_int_equal(unmap_chunks(0, 1), CUDA_SUCCESS);
    assert_int_equal(unmap_chunks(2, 3), CUDA_SUCCESS);
    expect_view(RANGE, 2, WRITE);
    expect_view(RANGE + BYTES, 2, READ);
    assert_false(gm_mapper_covers(HOME, BYTES));
    assert_int_equal(map_chunks(2, 3, false), CUDA_SUCCESS);
    assert_int_equal(map_chunks(0, 1, false), CUDA_SUCCESS);
    expect_view(RANGE, 7, WRITE);
    expect_view(RANGE + BYTES, 7, READ);
}

/* What the program does while the memory is away, or half of it, is done when it is back. */
static void test_replay(void **state)
{
    (void)state;
    assert_int_equal(program_map(RANGE), CUDA_SUCCESS);
    assert_int_equal(program_map(RANGE + 4 * BYTES), CUDA_SUCCESS);
    assert_int_equal(program_allow(RANGE, BYTES, WRITE), CUDA_SUCCESS);
    assert_int_equal(mapped(), 0);
    assert_int_equal(map_chunks(1, 2, true), CUDA_SUCCESS);
    expect_view(RANGE, 2, WRITE);
    expect_view(RANGE + 4 * BYTES, 2, 0);
    assert_int_equal(program_map(RANGE + 2 * BYTES), CUDA_SUCCESS);
    assert_int_equal(program_allow(RANGE + 2 * BYTES, BYTES, READ), CUDA_SUCCESS);
    assert_int_equal(program_allow(RANGE, BYTES, 0), CUDA_SUCCESS); /* taken back */
    expect_view(RANGE + 2 * BYTES, 2, READ);
    assert_int_equal(map_chunks(0, 1, true), CUDA_SUCCESS);
    assert_int_equal(map_chunks(2, 3, true), CUDA_SUCCESS);
    expect_view(RANGE, 7, 0);
    expect_view(RANGE + 2 * BYTES, 7, READ);
    expect_view(RANGE + 4 * BYTES, 7, 0);

    /* Out again; a view goes meanwhile, and does not come back. */
    assert_int_equal(unmap_chunks(0, 3), CUDA_SUCCESS);
    assert_int_equal(mapped(), 0);
    assert_null(program_unmap(RANGE + 2 * BYTES, BYTES));
    assert_int_equal(map_chunks(0, 3, false), CUDA_SUCCESS);
    assert_int_equal(mapped(), 2 * CHUNKS);
    expect_view(RANGE + 2 * BYTES, 0, 0);
}

/* The handle outlives its references by its views, and then tells who must free it. */
static void test_last_view(void **state)
{
    struct gm_vmm_handle made = {.home = HOME + (1ull << 32), .bytes = PAGE, .device = DEVICE};
    struct gm_vmm_handle *other = gm_vmm_create(&made), *dead;
    struct gm_view_call call = {.va = RANGE + 8 * BYTES, .bytes = PAGE, .value = other->value};
    (void)state;
    assert_int_equal(program_map(RANGE), CUDA_SUCCESS);
    assert_int_equal(gm_views_on_map(&call), CUDA_SUCCESS);
    call.va += PAGE;
    assert_int_equal(gm_views_on_map(&call), CUDA_SUCCESS);
    assert_int_equal(gm_vmm_release(other->value, &dead), CUDA_SUCCESS);
    assert_null(dead);
    assert_null(program_unmap(call.va, PAGE));
    call.va -= PAGE;
    assert_ptr_equal(program_unmap(RANGE, 1ull << 30), other); /* both; one of them is dead */
    assert_null(other->next);
    gm_vmm_bury(other);
}

/* Of a batch of the daemon, and of every call of the program, the N-th call of the driver fails:
 * nothing is left over, and the next try succeeds. */
static void test_every_failure_is_undone(void **state)
{
    (void)state;
    assert_int_equal(program_map(RANGE), CUDA_SUCCESS);
    assert_int_equal(program_map(RANGE + BYTES), CUDA_SUCCESS);
    assert_int_equal(program_allow(RANGE, 2 * BYTES, WRITE), CUDA_SUCCESS);
    for (int n = 0;; n++) {
        calls = 0;
        fail_at = n;
        CUresult result = map_chunks(0, 3, true);
        fail_at = -1;
        if (result == CUDA_SUCCESS) {
            assert_int_equal(n, 3 + 6 + 6); /* imports, maps, set-accesses */
            break;
        }
        assert_int_equal(mapped(), 0);
        assert_int_equal(alive, 0);
    }
    expect_view(RANGE, 7, WRITE);
    expect_view(RANGE + BYTES, 7, WRITE);

    for (int n = 0;; n++) {
        struct gm_vmm_counts counts;
        calls = 0;
        fail_at = n;
        CUresult result = program_map(RANGE + 2 * BYTES);
        fail_at = -1;
        gm_vmm_count(&counts);
        if (result == CUDA_SUCCESS) {
            assert_int_equal(n, CHUNKS);
            break;
        }
        assert_int_equal(counts.views, 2);
        assert_int_equal(mapped(), 2 * CHUNKS);
    }
    expect_view(RANGE + 2 * BYTES, 7, 0);

    /* Access that the driver refuses is not noted; an unmap that fails leaves everything. */
    unsigned long long flags = 99;
    calls = 0;
    fail_at = 1;
    assert_int_equal(program_allow(RANGE + 2 * BYTES, BYTES, WRITE), CUDA_ERROR_UNKNOWN);
    assert_true(gm_vmm_get_access(RANGE + 2 * BYTES, DEVICE, &flags));
    assert_int_equal(flags, 0);
    struct gm_view_call call = {.va = RANGE, .bytes = BYTES};
    calls = 0;
    fail_at = 0;
    assert_int_equal(gm_views_on_unmap(&call), CUDA_ERROR_UNKNOWN);
    fail_at = -1;
    assert_true(gm_vmm_get_access(RANGE, DEVICE, &flags));
    expect_view(RANGE, 7, WRITE);

    /* A chunk that could not be unmapped at one view goes with the next try. */
    calls = 0;
    fail_at = 1;
    assert_int_equal(unmap_chunks(0, 1), CUDA_ERROR_UNKNOWN);
    fail_at = -1;
    assert_true(gm_mapper_covers(HOME, 32ull << 20));
    assert_int_equal(unmap_chunks(0, 1), CUDA_SUCCESS);
    expect_view(RANGE + BYTES, 6, WRITE);
}

static void test_refusals(void **state)
{
    struct gm_view_call call = {.va = RANGE, .bytes = BYTES - PAGE, .value = handle->value};
    (void)state;
    assert_int_equal(gm_views_on_map(&call), CUDA_ERROR_NOT_SUPPORTED);
    call.bytes = BYTES;
    call.offset = PAGE;
    assert_int_equal(gm_views_on_map(&call), CUDA_ERROR_NOT_SUPPORTED);
    call.offset = 0;
    call.va = RANGE + (1ull << 30) - PAGE;
    assert_int_equal(gm_views_on_map(&call), CUDA_ERROR_INVALID_VALUE);
    call.va = RANGE;
    call.value += 1;
    assert_int_equal(gm_views_on_map(&call), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(program_map(RANGE), CUDA_SUCCESS);
    assert_int_equal(program_map(RANGE + PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(mapped(), 0);
}

static void test_context_is_borrowed(void **state)
{
    (void)state;
    wants_context = true;
    assert_int_equal(program_map(RANGE), CUDA_SUCCESS);
    assert_int_equal(map_chunks(0, 3, true), CUDA_SUCCESS);
    assert_int_equal(program_map(RANGE + BYTES), CUDA_SUCCESS);
    assert_int_equal(program_allow(RANGE, 2 * BYTES, WRITE), CUDA_SUCCESS);
    expect_view(RANGE, 7, WRITE);
    expect_view(RANGE + BYTES, 7, WRITE);
    assert_int_equal(unmap_chunks(0, 3), CUDA_SUCCESS);
    assert_null(program_unmap(RANGE, BYTES));
    assert_int_equal(contexts + pushed, 0);
}

/* A home beside an ordinary allocation: the runs of the one do not swallow the other. */
static void test_neighbours(void **state)
{
    struct gm_map_entry entry[2];
    int fds[2] = {open("/dev/null", O_RDONLY | O_CLOEXEC), open("/dev/null", O_RDONLY | O_CLOEXEC)};
    struct gm_vmm_handle made = {.home = RANGE - PAGE, .bytes = PAGE, .device = DEVICE}, *dead;
    struct gm_vmm_handle *other = gm_vmm_create(&made);
    struct gm_view_call call = {.va = RANGE + BYTES, .bytes = PAGE, .value = other->value};
    (void)state;
    entry[0] = (struct gm_map_entry){
        .va = RANGE - 2 * PAGE, .bytes = PAGE, .frame = 1, .flags = GM_MAP_HAS_FD};
    entry[1] = (struct gm_map_entry){
        .va = RANGE - PAGE, .bytes = PAGE, .frame = 2, .flags = GM_MAP_HAS_FD};
    assert_int_equal(gm_views_on_map(&call), CUDA_SUCCESS);
    assert_int_equal(gm_mapper_map(entry, 2, fds, 2), CUDA_SUCCESS);
    assert_int_equal(mapped(), 2);
    assert_null(program_unmap(RANGE + BYTES, PAGE));
    assert_int_equal(gm_vmm_release(other->value, &dead), CUDA_SUCCESS);
    assert_int_equal(gm_mapper_release(RANGE - 2 * PAGE, PAGE), CUDA_SUCCESS);
    assert_int_equal(gm_mapper_release(RANGE - PAGE, PAGE), CUDA_SUCCESS);
    gm_vmm_bury(dead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_views_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_last_view, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_failure_is_undone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_context_is_borrowed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_neighbours, setup, teardown),
    };
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
