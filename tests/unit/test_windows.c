/*
 * shim/observe/windows: which places launches, copies and sets mark, in every form they have, and
 * what they say of what they cannot read. The test plays the driver that knows the kernels'
 * parameters, and the daemon that looks at the words.
 */
#include <pthread.h>

#include "tests/unit/windows_world.h"

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
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(got[i].count, times);
        assert_int_equal(got[i].order, i);
    }
    assert_false(has_worked());
    assert_int_equal(take(), 0);
    assert_int_equal(unseen(), 0);
}

static void test_params(void **state)
{
    struct args args;
    CUfunction f = (CUfunction)(uintptr_t)&plain;
    (void)state;
    fill(&args);
    gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    expect_args(1);
    gm_windows_of_cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    gm_windows_of_cuLaunchKernelEx(NULL, f, args.params, NULL);
    gm_windows_of_cuLaunchKernelEx_ptsz(NULL, f, args.params, NULL);
    gm_windows_of_cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params);
    gm_windows_of_cuLaunchCooperativeKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params);
    CUDA_LAUNCH_PARAMS list[2] = {{.function = f, .kernelParams = args.params},
                                  {.function = f, .kernelParams = args.params}};
    gm_windows_of_cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
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
    gm_windows_of_cuLaunchKernel((CUfunction)(void *)&library, 1, 1, 1, 1, 1, 1, 0, NULL,
                                 args.params, NULL);
    expect_args(1);
    assert_int_equal(asked_kernel, plain.n + 1);
    gm_windows_of_cuLaunchKernel((CUfunction)(void *)&library, 1, 1, 1, 1, 1, 1, 0, NULL,
                                 args.params, NULL);
    expect_args(1);
    assert_int_equal(asked_kernel, plain.n + 1); /* once */
    gm_layouts_drop();
    gm_real.cuKernelGetParamInfo = NULL;
    gm_windows_of_cuLaunchKernel((CUfunction)(void *)&library, 1, 1, 1, 1, 1, 1, 0, NULL,
                                 args.params, NULL);
    assert_int_equal(take(), 0);
    assert_int_equal(unseen(), 1);
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
        gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    expect_args(3);
    assert_int_equal(asked, plain.n + 1);
    kernel.n = 2; /* another one, with the same handle */
    args.params[2] = args.params[3] = (void *)8;
    gm_layouts_drop();
    for (int i = 0; i < 2; i++)
        gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
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

/* What was touched is these places of BASE, each so often. */
static void expect_places(uint32_t n, const uint32_t (*places)[2])
{
    assert_int_equal(take(), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(got[i].va, BASE + places[i][0] * GM_CHUNK_MIN);
        assert_int_equal(got[i].count, places[i][1]);
    }
}

/* Copies and sets, by address and by struct, all that they reach over; not those to or from the
 * host. Allocations have places 0 to 23, 32 to 55 and so on. */
static void test_copies(void **state)
{
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = BASE,
                          .srcXInBytes = 5,
                          .srcY = 3,
                          .srcPitch = 2 * MIB, /* row 3 is in place 3 */
                          .srcHost = (void *)(BASE + 4 * MIB),
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = BASE + 64 * MIB,
                          .dstPitch = 1000,
                          .WidthInBytes = 1000,
                          .Height = 2};
    CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = (void *)8,
                          .srcDevice = BASE + 4 * MIB,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = BASE + 64 * MIB,
                          .dstPitch = MIB,
                          .dstHeight = 8,
                          .dstZ = 1,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 2};
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcDevice = BASE + 4 * MIB,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = BASE + 64 * MIB,
                               .WidthInBytes = 1,
                               .Height = 1,
                               .Depth = 1};
    CUDA_MEMCPY2D back = flat;
    back.dstDevice = 8; /* of the host: what is unified is either */
    (void)state;
    gm_windows_of_copy_2d(&back, 0);
    gm_windows_of_copy_3d(&deep, 0);
    gm_windows_of_copy_2d(NULL, 0);
    gm_windows_of_none((void *)BASE, 5);
    gm_windows_of_address((void *)8, 100);
    gm_windows_of_address((void *)BASE, 0);
    gm_windows_of_address((void *)BASE, UINT64_MAX); /* the driver refuses it */
    assert_int_equal(take(), 0);
    expect_crossed(2000 + 32, 0); /* those two have an end on the host */

    gm_windows_of_address((void *)BASE, 1);
    gm_windows_of_address((void *)(BASE + 2 * MIB), 2 * MIB + 1);
    gm_windows_of_address((void *)(BASE + 46 * MIB), 1ull << 40); /* not beyond what there is */
    gm_windows_of_copy_peer(&peer, 0);
    expect_places(5, (const uint32_t[][2]){{0, 1}, {1, 1}, {2, 1}, {23, 1}, {32, 1}});
    gm_windows_of_copy_2d(&flat, 0);
    expect_places(3, (const uint32_t[][2]){{3, 1}, {4, 1}, {32, 1}});
    deep.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    gm_windows_of_copy_3d(&deep, 0); /* slices of 8 MiB: 8 to 16 */
    expect_places(5, (const uint32_t[][2]){{36, 1}, {37, 1}, {38, 1}, {39, 1}, {40, 1}});
    deep.Depth = 0;
    gm_windows_of_copy_3d(&deep, 0);
    assert_int_equal(take(), 0);
    assert_int_equal(unseen(), 0);
    expect_crossed(0, 0);
    gm_windows_of_unknown(NULL, 0);
    assert_int_equal(unseen(), 1);
}

static void test_lists(void **state)
{
    const CUdeviceptr to[] = {BASE, 8, BASE + 64 * MIB}, from[] = {BASE + 4 * MIB, BASE, BASE};
    const size_t bytes[] = {2 * MIB, 100, 1};
    (void)state;
    gm_windows_of_lists(to, from, bytes, 3);
    expect_places(3, (const uint32_t[][2]){{0, 2}, {2, 1}, {32, 1}});
    expect_crossed(100, 0);
    gm_windows_of_lists(NULL, from, bytes, 3);
    gm_windows_of_lists(to, from, bytes, 0);
    assert_int_equal(take(), 0);
    assert_int_equal(unseen(), 0);
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
    gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
    gm_windows_of_cuLaunchKernelEx(NULL, f, NULL, swapped);
    expect_args(2);
    size = 15; /* cuts the pointer */
    gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
    assert_int_equal(take(), 0);
    memset(buffer, 0, sizeof buffer);
    memcpy(buffer + 12, &args.pointer, 8);
    size = sizeof buffer;
    gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
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
    gm_windows_of_cuLaunchKernel((CUfunction)(uintptr_t)&odd, 1, 1, 1, 1, 1, 1, 0, NULL, params,
                                 NULL);
    assert_int_equal(take(), 1);
    memset(part, 0, sizeof part);
    memcpy(part, &pointer, 8); /* offset 4 */
    gm_windows_of_cuLaunchKernel((CUfunction)(uintptr_t)&odd, 1, 1, 1, 1, 1, 1, 0, NULL, params,
                                 NULL);
    assert_int_equal(take(), 0);
}

/* What cannot be read is said, and nothing to trip over. */
static void test_unseen(void **state)
{
    static const struct kernel empty = {.n = 0};
    struct args args;
    void *unknown[] = {(void *)9, NULL, CU_LAUNCH_PARAM_END};
    void *ended[] = {CU_LAUNCH_PARAM_END};
    CUfunction f = (CUfunction)(uintptr_t)&plain, g = (CUfunction)(uintptr_t)&empty;
    (void)state;
    fill(&args);
    gm_windows_of_cuLaunchKernel(g, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    gm_windows_of_cuLaunchKernel(g, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    gm_windows_of_cuLaunchKernel(g, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, ended);
    gm_windows_of_cuLaunchCooperativeKernelMultiDevice(NULL, 2, 0);
    assert_int_equal(unseen(), 0);
    gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); /* set before */
    assert_int_equal(unseen(), 1);
    gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, unknown);
    assert_int_equal(unseen(), 1);
    gm_layouts_drop();
    gm_real.cuFuncGetParamInfo = NULL;
    gm_windows_of_cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args.params, NULL);
    assert_int_equal(unseen(), 1);
    assert_int_equal(take(), 0);
    assert_int_equal(asked_kernel, 0);
}

/* A kernel with more parameters than are looked at. */
static size_t n_params;

static CUresult drv_many_params(CUfunction f, size_t index, size_t *offset, size_t *bytes)
{
    (void)f;
    asked++;
    *offset = 8 * index;
    *bytes = 8;
    return index < n_params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void test_many_params(void **state)
{
    uint64_t args[GM_LAYOUT_PARTS + 1];
    void *params[GM_LAYOUT_PARTS + 1];
    (void)state;
    for (uint32_t i = 0; i <= GM_LAYOUT_PARTS; i++) {
        args[i] = BASE + i % 24 * GM_CHUNK_MIN;
        params[i] = &args[i];
    }
    gm_real.cuFuncGetParamInfo = drv_many_params;
    for (n_params = GM_LAYOUT_PARTS; n_params <= GM_LAYOUT_PARTS + 1; n_params++) {
        gm_layouts_drop();
        asked = 0;
        for (int i = 0; i < 3; i++)
            gm_windows_of_cuLaunchKernel((CUfunction)8, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
        assert_int_equal(asked, GM_LAYOUT_PARTS + 1); /* once */
        assert_int_equal(unseen(), n_params > GM_LAYOUT_PARTS ? 3 : 0);
        assert_int_equal(take(), 24);
        assert_int_equal(got[0].count, 9); /* 0, 24 and 48, three times */
    }
}

static void use(uint64_t va)
{
    static const struct kernel one = {.n = 1, .param = {{0, 8}}};
    void *params[] = {&va};
    gm_windows_of_cuLaunchKernel((CUfunction)(uintptr_t)&one, 1, 1, 1, 1, 1, 1, 0, NULL, params,
                                 NULL);
}

/* What was freed, and what the real driver has, is not marked. */
static void test_not_ours(void **state)
{
    struct gm_alloc alloc;
    (void)state;
    use(BASE + 3 * 64 * MIB);
    assert_int_equal(gm_allocs_take(BASE, &alloc), GM_ALLOC_BASE);
    make(BASE + 1 * MIB, 8 * MIB, GM_ALLOC_REAL);
    use(BASE + 4 * MIB);
    use(BASE + 20 * MIB);
    use(1);
    use(UINT64_MAX);
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].va, BASE + 3 * 64 * MIB);
    use(1); /* it works all the same */
    assert_true(has_worked());
    assert_int_equal(take(), 0);
    assert_int_equal(gm_allocs_take(BASE + MIB, &alloc), GM_ALLOC_BASE);
    assert_int_equal(unseen(), 0);
}

/* Launches on host memory are counted. The driver is asked once a window for 2 MiB, about what may
 * be an address only, and not without end. */
static void test_host_memory(void **state)
{
    (void)state;
    use(BASE);
    use(77);
    use(UINT32_MAX);
    use(UINT64_MAX);
    use(1ull << 47);
    assert_int_equal(asked_pointers, 0);
    for (uint64_t i = 0; i < 100; i++) {
        use(PINNED + i);
        use(MANAGED + 2 * MIB);
        use(NOBODYS);
        use(SMALL);
    }
    expect_crossed(0, 200);
    assert_int_equal(asked_pointers, 4);
    assert_int_equal(take(), 1); /* the next window */
    use(PINNED);
    assert_int_equal(asked_pointers, 5);
    for (uint64_t i = 0; i < 100000; i++)
        use((0x1234ull << 32) + i * 2 * MIB); /* numbers that look like addresses */
    assert_in_range(asked_pointers, 1000, 1100);
    expect_crossed(0, 1);
    take();
    use(PINNED);
    expect_crossed(0, 1);
    gm_real.cuPointerGetAttributes = NULL;
    take();
    use(PINNED);
    expect_crossed(0, 0);
    assert_int_equal(unseen(), 0);
}

/* Where the program mapped a handle of its own, twice: the daemon knows it by its home. */
static void test_views(void **state)
{
    static const uint64_t home = BASE + (1ull << 38), range = BASE + (2ull << 38);
    struct args args;
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        const struct gm_alloc alloc = {.va = range + i * 16 * MIB,
                                       .bytes = 8 * MIB,
                                       .span = 8 * MIB,
                                       .home = home,
                                       .kind = GM_ALLOC_VIEW};
        assert_int_equal(gm_allocs_insert(&alloc), 0);
    }
    fill(&args);
    args.pointer = range + 3 * MIB;
    args.part.first = range + 16 * MIB + 2 * MIB; /* the same place of the handle */
    args.part.second = range + 16 * MIB + 7 * MIB;
    args.nothing = range + 9 * MIB;
    gm_windows_of_cuLaunchKernel((CUfunction)(uintptr_t)&plain, 1, 1, 1, 1, 1, 1, 0, NULL,
                                 args.params, NULL);
    assert_int_equal(take(), 2);
    assert_int_equal(got[0].va, home + 2 * MIB);
    assert_int_equal(got[0].count, 2);
    assert_int_equal(got[1].va, home + 6 * MIB);
    assert_int_equal(got[1].count, 1);
    assert_true(unseen() > 0); /* a tensor may go on in the next view */
}

/* However many places there are: each has its word. In the order in which they were touched first.
 */
static void test_all(void **state)
{
    struct gm_alloc alloc;
    const uint64_t big = BASE + (1ull << 38);
    (void)state;
    make(big, PLACES * GM_CHUNK_MIN, GM_ALLOC_ARENA);
    for (uint64_t i = 0; i < 2 * PLACES; i++)
        use(big + (PLACES - 1 - i % PLACES) * GM_CHUNK_MIN);
    assert_int_equal(take(), PLACES);
    for (uint32_t i = 0; i < PLACES; i++) {
        assert_int_equal(got[i].va, big + i * GM_CHUNK_MIN);
        assert_int_equal(got[i].count, 2);
        assert_int_equal(got[i].order, PLACES - 1 - i);
    }
    use(big + 1000 * GM_CHUNK_MIN); /* each window counts anew */
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].count, 1);
    assert_int_equal(got[0].order, 0);
    assert_int_equal(gm_allocs_take(big, &alloc), GM_ALLOC_BASE);
}

/* Addresses of gpumux's that have no word, and no words at all. */
static void test_no_word(void **state)
{
    struct gm_alloc alloc;
    (void)state;
    make((1ull << 47) + 64 * MIB, 8 * MIB, GM_ALLOC_CHUNKS);
    use((1ull << 47) + 65 * MIB);
    assert_int_equal(unseen(), 1);
    gm_windows_of_address((void *)((1ull << 47) + 64 * MIB), 4 * MIB);
    assert_int_equal(unseen(), 2);
    assert_int_equal(gm_allocs_take((1ull << 47) + 64 * MIB, &alloc), GM_ALLOC_BASE);
    /* Behind what the table of pages has: what names such a view is unseen, and nothing else. */
    const struct gm_alloc view = {.va = 1ull << 50,
                                  .bytes = 8 * MIB,
                                  .span = 8 * MIB,
                                  .home = BASE + (1ull << 38),
                                  .kind = GM_ALLOC_VIEW};
    assert_int_equal(gm_allocs_insert(&view), 0);
    use((1ull << 50) + MIB);
    assert_true(unseen() > 0);
    gm_windows_of_address((void *)((1ull << 50) + 2 * MIB), 4 * MIB);
    assert_int_equal(unseen(), 1);
    use(BASE);
    assert_int_equal(unseen(), 0);
    assert_int_equal(take(), 1);
    assert_int_equal(gm_allocs_take(1ull << 50, &alloc), GM_ALLOC_BASE);
    use((1ull << 50) + MIB);
    assert_int_equal(unseen(), 0);

    gm_windows_mark(true, NULL);
    use(BASE);
    use(8);
    assert_int_equal(unseen(), 1);
    gm_windows_mark(true, words);
    use(BASE);
    assert_int_equal(unseen(), 0);
    assert_int_equal(take(), 1);
}

static _Atomic uint64_t uses_made;

static void *many(void *unused)
{
    (void)unused;
    for (uint64_t i = 0; !atomic_load(&is_over); i++) {
        use(BASE + i % 4 * 64 * MIB);
        atomic_fetch_add(&uses_made, 1);
    }
    return NULL;
}

/* Threads mark while windows end: no place that was touched is missing. */
static void test_threads(void **state)
{
    pthread_t threads[3];
    uint64_t sum = 0;
    (void)state;
    atomic_store(&is_over, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many, NULL), 0);
    for (int seen = 0; seen < 20;) { /* windows in which something was touched */
        const uint32_t n = take();
        for (uint32_t i = 0; i < n; i++)
            sum += got[i].count;
        seen += n > 0;
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = take(); i-- > 0;)
        sum += got[i].count;
    assert_in_range(sum, 20, atomic_load(&uses_made));
    for (uint64_t i = 0; i < 4; i++)
        assert_true(atomic_load(&words[gm_window_place(BASE + i * 64 * MIB)]) != 0);
    assert_int_equal(unseen(), 0);
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
    /* Windows only go on: places hold the numbers of those before. */
    const uint32_t later = atomic_load(&ctl.window) + 1000;
    (void)state;
    gm_real.cuLaunchKernel = launch;
    gm_windows_mark(false, NULL); /* from now on launches go the short way */
    assert_false(gm_windows_are_on());
    assert_int_equal(atomic_load(&stat_area.marks_from), 0);
    assert_ptr_equal(gm_hot.cuLaunchKernel, launch);
    assert_null(gm_hot.cuLaunchKernelEx); /* what the driver lacks is found out on the long one */
    atomic_store(&ctl.window, later);
    gm_windows_mark(true, words);
    assert_true(gm_windows_are_on());
    assert_int_equal(atomic_load(&stat_area.marks_from), later);
    assert_int_equal(atomic_load(&stat_area.lasts_from), later);
    assert_null(gm_hot.cuLaunchKernel);
    atomic_store(&ctl.window, later + 1);
    gm_windows_mark(true, words); /* it goes on */
    assert_int_equal(atomic_load(&stat_area.marks_from), later);
    gm_windows_mark(false, NULL);
    assert_false(gm_windows_are_on());
    assert_int_equal(atomic_load(&stat_area.marks_from), 0);
    assert_ptr_equal(gm_hot.cuLaunchKernel, launch);
}

/* A count that is full, and the newest window of two threads. */
static void test_full_word(void **state)
{
    (void)state;
    use(BASE);
    gm_windows_touch(gm_window_place(BASE), 1, GM_WINDOW_COUNT_MAX, false);
    use(BASE);
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].count, GM_WINDOW_COUNT_MAX);
    const uint32_t now = atomic_load(&ctl.window);
    use(BASE);
    atomic_store(&ctl.window, now - 1); /* as a thread sees it that was interrupted */
    use(BASE + 64 * MIB);
    atomic_store(&ctl.window, now);
    use(BASE + 2 * 64 * MIB);
    assert_int_equal(take(), 2);
    assert_int_equal(got[1].order, 1);
}

/* A large range is marked whole at once, and then ever more rarely, in each window anew; the sum is
 * near. */
static void test_large(void **state)
{
    struct gm_alloc alloc;
    const uint64_t big = BASE + (1ull << 38), half = PLACES / 2 * GM_CHUNK_MIN;
    (void)state;
    make(big, PLACES * GM_CHUNK_MIN, GM_ALLOC_CHUNKS);
    for (uint32_t window = 0; window < 3; window++) {
        gm_windows_of_address((void *)big, 2 * half);
        gm_windows_of_address((void *)(big + half), half); /* another range */
        assert_int_equal(take(), PLACES);
        for (uint32_t i = 0; i < PLACES; i++)
            assert_int_equal(got[i].count, i < PLACES / 2 ? 1 : 2);
    }
    for (uint32_t i = 0; i < 60; i++)
        gm_windows_of_address((void *)big, half);
    for (uint32_t i = 0; i < 60; i++)
        gm_windows_touch(gm_window_place(big + half), PLACES / 2, 1, true);
    gm_windows_touch(gm_window_place(big), 1, 1, true); /* what is small counts by itself */
    assert_int_equal(take(), PLACES);
    assert_int_equal(got[0].count, 33);
    for (uint32_t i = 1; i < PLACES; i++)
        assert_int_equal(got[i].count, 32);
    assert_int_equal(gm_allocs_take(big, &alloc), GM_ALLOC_BASE);
}

/* Other memory comes to where a large range was touched: it is touched for the first time. */
static void test_large_elsewhere(void **state)
{
    static const uint64_t range = BASE + (3ull << 38), bytes = 128 * MIB;
    struct gm_alloc alloc = {.va = range, .bytes = bytes, .span = bytes, .kind = GM_ALLOC_VIEW};
    (void)state;
    for (uint64_t i = 1; i <= 2; i++) {
        alloc.home = BASE + (1ull << 38) + i * bytes;
        assert_int_equal(gm_allocs_insert(&alloc), 0);
        for (uint64_t times = i; times < 5; times++) /* 4, then 3 */
            gm_windows_of_address((void *)range, bytes);
        assert_int_equal(gm_allocs_take(range, &alloc), GM_ALLOC_BASE);
    }
    assert_int_equal(take(), 128);
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(got[i].count, i < 64 ? 4 : 2);
}

/* Nobody knows what kernels read by textures. */
static void test_hidden(void **state)
{
    (void)state;
    use(BASE);
    assert_int_equal(unseen(), 0);
    gm_windows_hide_all();
    use(BASE);
    use(8);
    assert_int_equal(unseen(), 2);
    assert_int_equal(take(), 1);
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
        cmocka_unit_test_setup(test_lists, setup),
        cmocka_unit_test_setup(test_unseen, setup),
        cmocka_unit_test_setup(test_many_params, setup),
        cmocka_unit_test_setup(test_not_ours, setup),
        cmocka_unit_test_setup(test_host_memory, setup),
        cmocka_unit_test_setup(test_views, setup),
        cmocka_unit_test_setup(test_all, setup),
        cmocka_unit_test_setup(test_no_word, setup),
        cmocka_unit_test_setup(test_full_word, setup),
        cmocka_unit_test_setup(test_large, setup),
        cmocka_unit_test_setup(test_large_elsewhere, setup),
        cmocka_unit_test_setup(test_threads, setup),
        cmocka_unit_test_setup(test_switch, setup),
        cmocka_unit_test_setup(test_hidden, setup), /* for good */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
