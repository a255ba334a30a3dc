/*
 * shim/uses: what of a launch's arguments is counted, in every form a launch has, and what a report
 * holds. The test plays the driver that knows the kernels' parameters.
 */
#include <pthread.h>

#include "shim/tables/vmm.h"
#include "tests/unit/uses_world.h"

static int setup(void **state)
{
    struct gm_alloc alloc;
    (void)state;
    while (gm_allocs_take_of(NULL, 0, &alloc))
        ;
    begin();
    for (uint64_t i = 0; i < 4; i++)
        if (gm_allocs_find(BASE + i * 64 * MIB, &alloc) == GM_ALLOC_UNKNOWN)
            make(BASE + i * 64 * MIB, 48 * MIB, GM_ALLOC_CHUNKS);
    return 0;
}

/* An int, a pointer, a struct of a pointer, an int and a pointer, and a pointer to nothing. */
static const struct kernel plain = {.n = 4, .param = {{0, 4}, {8, 8}, {16, 24}, {40, 8}}};

struct args {
    uint32_t number;
    uint64_t pointer;
    struct {
        uint64_t first;
        uint32_t number;
        uint64_t second;
    } part;
    uint64_t nothing;
    void *params[4];
};

static void fill(struct args *args)
{
    memset(args, 0, sizeof *args);
    args->number = 77;
    args->pointer = BASE + 5;                           /* page 0 of allocation 0 */
    args->part.first = BASE + 64 * MIB + 3 * MIB;       /* page 1 of allocation 1 */
    args->part.second = BASE + 2 * 64 * MIB + 47 * MIB; /* page 23 of allocation 2 */
    args->nothing = BASE + 50 * MIB;                    /* between two allocations */
    args->params[0] = &args->number;
    args->params[1] = &args->pointer;
    args->params[2] = &args->part;
    args->params[3] = &args->nothing;
}

static void expect_args(uint32_t times)
{
    assert_int_equal(take(), 3);
    assert_int_equal(got[0].va, BASE);
    assert_int_equal(got[1].va, BASE + 64 * MIB + 2 * MIB);
    assert_int_equal(got[2].va, BASE + 2 * 64 * MIB + 46 * MIB);
    for (int i = 0; i < 3; i++)
        assert_int_equal(got[i].count, times);
    assert_int_equal(take(), 0);
}

static void test_params(void **state)
{
    struct args args;
    CUfunction f = (CUfunction)(uintptr_t)&plain;
    (void)state;
    fill(&args);
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    expect_args(1);
    gm_uses_of_cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    gm_uses_of_cuLaunchKernelEx(NULL, f, args.params, NULL);
    gm_uses_of_cuLaunchKernelEx_ptsz(NULL, f, args.params, NULL);
    gm_uses_of_cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params);
    gm_uses_of_cuLaunchCooperativeKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params);
    CUDA_LAUNCH_PARAMS list[2] = {{.function = f, .kernelParams = args.params},
                                  {.function = f, .kernelParams = args.params}};
    gm_uses_of_cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
    expect_args(7);
    assert_int_equal(asked_kernel, 0);
}

static void test_library_kernel(void **state)
{
    struct args args;
    struct kernel library = plain;
    (void)state;
    library.is_library = true;
    fill(&args);
    gm_uses_of_cuLaunchKernel((CUfunction)(void *)&library, 1, 1, 1, 1, 1, 1, 0, NULL, args.params,
                              NULL);
    expect_args(1);
    assert_int_equal(asked_kernel, plain.n + 1);
    gm_uses_of_cuLaunchKernel((CUfunction)(void *)&library, 1, 1, 1, 1, 1, 1, 0, NULL, args.params,
                              NULL);
    expect_args(1);
    assert_int_equal(asked_kernel, plain.n + 1); /* once */
    gm_layouts_drop();
    gm_real.cuKernelGetParamInfo = NULL;
    gm_uses_of_cuLaunchKernel((CUfunction)(void *)&library, 1, 1, 1, 1, 1, 1, 0, NULL, args.params,
                              NULL);
    assert_int_equal(take(), 0);
}

/* The driver is asked once for a function, and again when its handle may be another's. */
static void test_layouts(void **state)
{
    struct kernel kernel = plain;
    struct args args;
    CUfunction f = (CUfunction)(void *)&kernel;
    (void)state;
    fill(&args);
    for (int i = 0; i < 3; i++)
        gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    expect_args(3);
    assert_int_equal(asked, plain.n + 1);
    kernel.n = 2; /* another one, with the same handle */
    args.params[2] = args.params[3] = (void *)8;
    gm_layouts_drop();
    for (int i = 0; i < 2; i++)
        gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    assert_int_equal(asked, plain.n + 1 + 3);
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].va, BASE);
    assert_int_equal(got[0].count, 2);
}

/* Far more functions than the table has places: what is found is right. */
static void test_many_layouts(void **state)
{
    static char handles[20000];
    struct gm_layout layout = {.n = 1};
    uint32_t found = 0;
    (void)state;
    for (uint32_t i = 0; i < sizeof handles; i++) {
        layout.part[0] = gm_layout_part(i % GM_LAYOUT_PARAMS, 8 + i % 100, i % 8);
        gm_layouts_keep(&handles[i], gm_layouts_generation(), &layout);
    }
    for (uint32_t i = 0; i < sizeof handles; i++) {
        if (!gm_layouts_find(&handles[i], &layout))
            continue;
        found++;
        assert_int_equal(layout.n, 1);
        assert_int_equal(gm_layout_param(layout.part[0]), i % GM_LAYOUT_PARAMS);
        assert_int_equal(gm_layout_bytes(layout.part[0]), 8 + i % 100);
        assert_int_equal(gm_layout_skip(layout.part[0]), i % 8);
    }
    assert_in_range(found, 2000, 4096);
    const uint32_t generation = gm_layouts_generation();
    gm_layouts_drop();
    gm_layouts_keep(&handles[0], generation, &layout); /* what was asked before */
    for (uint32_t i = 0; i < sizeof handles; i++)
        assert_false(gm_layouts_find(&handles[i], &layout));
}

/* A layout is one that somebody kept, also while others write: here n words of n. */
static _Atomic bool is_over;
static char shared_handles[8];

static void *keep_layouts(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; !atomic_load(&is_over); i++) {
        struct gm_layout layout = {.n = 1 + i % GM_LAYOUT_PARTS};
        for (uint32_t p = 0; p < layout.n; p++)
            layout.part[p] = layout.n;
        gm_layouts_keep(&shared_handles[i % 8], gm_layouts_generation(), &layout);
        if (i % 64 == 0)
            gm_layouts_drop();
    }
    return NULL;
}

static void test_layouts_of_threads(void **state)
{
    pthread_t threads[2];
    struct gm_layout layout;
    uint32_t found = 0;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_layouts, NULL), 0);
    for (uint32_t i = 0; found < 10000; i++) {
        if (!gm_layouts_find(&shared_handles[i % 8], &layout))
            continue;
        found++;
        assert_in_range(layout.n, 1, GM_LAYOUT_PARTS);
        for (uint32_t p = 0; p < layout.n; p++)
            assert_int_equal(layout.part[p], layout.n);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* Copies and sets, by address and by struct; not those to or from the host. */
static void test_copies(void **state)
{
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = BASE,
                          .srcHost = (void *)(BASE + 4 * MIB),
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = BASE + 64 * MIB};
    CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = (void *)8,
                          .srcDevice = BASE + 4 * MIB,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = BASE + 64 * MIB};
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcDevice = BASE + 4 * MIB,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = BASE + 64 * MIB};
    CUDA_MEMCPY2D back = flat;
    back.dstDevice = 8; /* of the host: what is unified is either */
    (void)state;
    assert_false(gm_uses_is_away(BASE));
    assert_true(gm_uses_is_away(8));
    gm_uses_of_copy_2d(&back);
    gm_uses_of_none((void *)BASE);
    gm_uses_of_address((void *)BASE);
    gm_uses_of_address((void *)8);
    gm_uses_of_copy_2d(&flat);
    gm_uses_of_copy_3d(&deep);
    gm_uses_of_copy_peer(&peer);
    gm_uses_of_copy_2d(NULL);
    assert_int_equal(take(), 2);
    assert_int_equal(got[0].va, BASE);
    assert_int_equal(got[0].count, 2);
    assert_int_equal(got[1].va, BASE + 64 * MIB);
    assert_int_equal(got[1].count, 2);
}

/* The buffer as the GPU gets it: 8-aligned words count, what lies across two does not. */
static void test_extra(void **state)
{
    struct args args;
    unsigned char buffer[48] = {0};
    size_t size = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    void *swapped[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer,
                       CU_LAUNCH_PARAM_END};
    CUfunction f = (CUfunction)(uintptr_t)&plain;
    (void)state;
    fill(&args);
    memcpy(buffer, &args.number, 4);
    memcpy(buffer + 8, &args.pointer, 8);
    memcpy(buffer + 16, &args.part, 24);
    memcpy(buffer + 40, &args.nothing, 8);
    gm_real.cuFuncGetParamInfo = NULL; /* not needed for this */
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
    gm_uses_of_cuLaunchKernelEx(NULL, f, NULL, swapped);
    expect_args(2);
    size = 15; /* cuts the pointer */
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
    assert_int_equal(take(), 0);
    memset(buffer, 0, sizeof buffer);
    memcpy(buffer + 12, &args.pointer, 8);
    size = sizeof buffer;
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
    assert_int_equal(take(), 0);
}

/* A packed struct that begins at no multiple of 8: its words lie where the kernel's would. */
static void test_unaligned_param(void **state)
{
    static const struct kernel odd = {.n = 1, .param = {{4, 20}}};
    unsigned char part[20] = {0};
    uint64_t pointer = BASE;
    void *params[] = {part};
    (void)state;
    memcpy(part + 4, &pointer, 8); /* offset 8 */
    gm_uses_of_cuLaunchKernel((CUfunction)(uintptr_t)&odd, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    assert_int_equal(take(), 1);
    memset(part, 0, sizeof part);
    memcpy(part, &pointer, 8); /* offset 4 */
    gm_uses_of_cuLaunchKernel((CUfunction)(uintptr_t)&odd, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    assert_int_equal(take(), 0);
}

/* Nothing to find, and nothing to trip over. */
static void test_nothing(void **state)
{
    static const struct kernel empty = {.n = 0};
    struct args args;
    void *unknown[] = {(void *)9, NULL, CU_LAUNCH_PARAM_END};
    void *ended[] = {CU_LAUNCH_PARAM_END};
    CUfunction f = (CUfunction)(uintptr_t)&plain;
    (void)state;
    fill(&args);
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, unknown);
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, ended);
    gm_uses_of_cuLaunchKernel((CUfunction)(uintptr_t)&empty, 1, 1, 1, 1, 1, 1, 0, NULL, args.params,
                              NULL);
    gm_uses_of_cuLaunchCooperativeKernelMultiDevice(NULL, 2, 0);
    gm_real.cuFuncGetParamInfo = NULL;
    gm_uses_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    assert_int_equal(take(), 0);
    assert_int_equal(asked_kernel, 0);
}

static void use(uint64_t va)
{
    static const struct kernel one = {.n = 1, .param = {{0, 8}}};
    void *params[] = {&va};
    gm_uses_of_cuLaunchKernel((CUfunction)(uintptr_t)&one, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

/* What was freed since, and what the real driver has, is not reported. */
static void test_not_ours(void **state)
{
    struct gm_alloc alloc;
    (void)state;
    use(BASE + MIB);
    use(BASE + 3 * 64 * MIB);
    assert_int_equal(gm_allocs_take(BASE, &alloc), GM_ALLOC_BASE);
    make(BASE + 1 * MIB, 8 * MIB, GM_ALLOC_REAL);
    use(BASE + 4 * MIB);
    use(1);
    use(UINT64_MAX);
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].va, BASE + 3 * 64 * MIB);
    assert_int_equal(gm_allocs_take(BASE + MIB, &alloc), GM_ALLOC_BASE);
}

/* More places than the table holds: some are dropped, none is wrong, and it recovers. */
/* Where the program mapped a handle of its own, twice: the daemon knows it by its home. */
static void test_views(void **state)
{
    static const uint64_t home = BASE + (1ull << 40), range = BASE + (2ull << 40);
    struct gm_vmm_handle made = {.home = home, .bytes = 8 * MIB};
    struct gm_vmm_view *view;
    struct args args;
    (void)state;
    struct gm_vmm_handle *handle = gm_vmm_create(&made);
    assert_non_null(handle);
    gm_vmm_reserve(range, 64 * MIB);
    for (uint64_t i = 0; i < 2; i++) {
        struct gm_alloc alloc = {
            .va = range + i * 16 * MIB, .bytes = 8 * MIB, .span = 8 * MIB, .kind = GM_ALLOC_VIEW};
        assert_int_equal(gm_vmm_add_view(handle->value, alloc.va, 8 * MIB, 0, &view), CUDA_SUCCESS);
        assert_int_equal(gm_allocs_insert(&alloc), 0);
    }
    fill(&args);
    args.pointer = range + 3 * MIB;
    args.part.first = range + 16 * MIB + 2 * MIB; /* the same page of the handle */
    args.part.second = range + 16 * MIB + 7 * MIB;
    args.nothing = range + 9 * MIB;
    gm_uses_of_cuLaunchKernel((CUfunction)(uintptr_t)&plain, 1, 1, 1, 1, 1, 1, 0, NULL, args.params,
                              NULL);
    assert_int_equal(take(), 2);
    assert_int_equal(got[0].va, home + 2 * MIB);
    assert_int_equal(got[0].count, 2);
    assert_int_equal(got[1].va, home + 6 * MIB);
    assert_int_equal(got[1].count, 1);
}

static void test_full(void **state)
{
    struct gm_alloc alloc;
    uint64_t big = BASE + (1ull << 40), sum = 0;
    (void)state;
    make(big, 8192 * MIB, GM_ALLOC_ARENA);
    for (uint64_t i = 0; i < 4096; i++)
        use(big + i * GM_CHUNK_MIN);
    uint32_t n = take();
    assert_in_range(n, GM_USES_MAX / 2, GM_USES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(got[i].va % GM_CHUNK_MIN, 0);
        sum += got[i].count;
    }
    assert_int_equal(sum, n);
    assert_int_equal(take(), 0);
    use(big + 1000 * GM_CHUNK_MIN);
    assert_int_equal(take(), 1);
    assert_int_equal(gm_allocs_take(big, &alloc), GM_ALLOC_BASE);
}

static void *many(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++)
        use(BASE + (uint64_t)(i % 4) * 64 * MIB);
    return NULL;
}

/* Threads count while reports are made: nothing is counted twice. */
static void test_threads(void **state)
{
    pthread_t threads[3];
    uint64_t sum = 0;
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many, NULL), 0);
    for (int round = 0; round < 200; round++)
        for (uint32_t n = take(); n-- > 0;)
            sum += got[n].count;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t n = take(); n-- > 0;)
        sum += got[n].count;
    assert_in_range(sum, 30000, 60000);
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
                       void **extra)
{
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)params, (void)extra;
    return CUDA_SUCCESS;
}

static void test_switch(void **state)
{
    (void)state;
    gm_real.cuLaunchKernel = launch;
    assert_false(gm_uses_are_counted());
    assert_null(gm_hot.cuLaunchKernel);
    gm_uses_count(false); /* from now on launches go the short way */
    assert_false(gm_uses_are_counted());
    assert_ptr_equal(gm_hot.cuLaunchKernel, launch);
    assert_null(gm_hot.cuLaunchKernelEx); /* what the driver lacks is found out on the long one */
    gm_uses_count(true);
    assert_true(gm_uses_are_counted());
    assert_null(gm_hot.cuLaunchKernel);
    gm_uses_count(false);
    assert_false(gm_uses_are_counted());
    assert_ptr_equal(gm_hot.cuLaunchKernel, launch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_params, setup),
        cmocka_unit_test_setup(test_library_kernel, setup),
        cmocka_unit_test_setup(test_layouts, setup),
        cmocka_unit_test_setup(test_many_layouts, setup),
        cmocka_unit_test_setup(test_layouts_of_threads, setup),
        cmocka_unit_test_setup(test_copies, setup),
        cmocka_unit_test_setup(test_extra, setup),
        cmocka_unit_test_setup(test_unaligned_param, setup),
        cmocka_unit_test_setup(test_nothing, setup),
        cmocka_unit_test_setup(test_not_ours, setup),
        cmocka_unit_test_setup(test_views, setup),
        cmocka_unit_test_setup(test_full, setup),
        cmocka_unit_test_setup(test_threads, setup),
        cmocka_unit_test_setup(test_switch, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
