/*
 * shim/profiler: a program's callbacks become records, from which mux-ctl's analyzer learns what the
 * kernels touch. Without a GPU: fake.c is the Sanitizer and the driver, and the kernels run on the
 * CPU with the marking of the patches. Registers come from the code of a module; damaged code and
 * calls that fail cost a record, not the program.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <cuda.h>
#include <sanitizer.h>

/* One thread at a time. */
static unsigned long long atomicCAS(unsigned long long *at, unsigned long long old,
                                    unsigned long long new)
{
    const unsigned long long there = *at;
    *at = there == old ? new : there;
    return there;
}
static uint32_t atomicAdd(uint32_t *at, uint32_t by)
{
    return (*at += by) - by;
}
static void atomicOr(uint32_t *at, uint32_t mask)
{
    *at |= mask;
}
#define GM_DEVICE static
#include "shim/profiler/mark.h"

#include "daemon/profile/learn.h"
#include "shim/profiler/cubin.h"
#include "tests/profiler/fake.h"

#define MIB (1ull << 20)

static struct fake *world;
static char folder[] = "/tmp/gm-profiler-XXXXXX";
static CUcontext const context = (CUcontext)0x1000;
static CUmodule const module = (CUmodule)0x2000;

static int start(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("GPUMUX_PROFILE_RECORDS", folder, 1);
    setenv("GPUMUX_SANITIZER", FAKE, 1);
    void *library = dlopen(FAKE, RTLD_NOW | RTLD_GLOBAL); /* its name is libcuda.so.1 */
    if (library == NULL)
        fail_msg("%s", dlerror());
    world = dlsym(library, "fake");
    assert_non_null(world);
    if (dlopen(PROFILER, RTLD_NOW) == NULL)
        fail_msg("%s", dlerror());
    assert_true(world->callback != NULL);
    return 0;
}

static void call(Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void *data)
{
    world->callback(world->userdata, domain, id, data);
}

static void path_of(char path[64])
{
    snprintf(path, 64, "%s/%d.records", folder, (int)getpid());
}

static int stop(void **state)
{
    char path[64];
    (void)state;
    path_of(path);
    unlink(path);
    rmdir(folder);
    return 0;
}

/* ---- a program ---- */

static void memory(Sanitizer_CallbackId id, uint64_t va, uint64_t bytes, uint32_t flags)
{
    const Sanitizer_ResourceMemoryData data = {
        .address = va, .size = bytes, .context = context, .flags = flags};
    call(SANITIZER_CB_DOMAIN_RESOURCE, id, &data);
}

static void driver_call(Sanitizer_CallbackId id, const void *params, bool is_over)
{
    static const CUresult result = CUDA_SUCCESS;
    const Sanitizer_CallbackData data = {.callbackSite =
                                             is_over ? SANITIZER_API_EXIT : SANITIZER_API_ENTER,
                                         .functionParams = params,
                                         .functionReturnValue = &result,
                                         .context = context};
    call(SANITIZER_CB_DOMAIN_DRIVER_API, id, &data);
}

/* A kernel, as the fake runs it when somebody waits for it. */
struct kernel {
    void (*run)(struct gm_area *area, void *arg);
    void *arg;
};

static void run_kernel(void *arg)
{
    const struct kernel *kernel = arg;
    if (world->area != NULL)
        kernel->run(world->area, kernel->arg);
}

/* A launch; run(area, arg) is the kernel. */
static void launch(const struct fake_function *f, uint32_t grid, uint32_t block, void **params,
                   void (*run)(struct gm_area *area, void *arg), void *arg)
{
    struct {
        const void *f;
        unsigned int grid[3], block[3], shared;
        CUstream stream;
        void **params, **extra;
    } params_of = {.f = f, .grid = {grid, 1, 1}, .block = {block, 1, 1}, .params = params};
    const Sanitizer_LaunchData data = {.context = context,
                                       .module = module,
                                       .functionName = f->name,
                                       .gridDim_x = grid,
                                       .gridDim_y = 1,
                                       .gridDim_z = 1,
                                       .blockDim_x = block,
                                       .blockDim_y = 1,
                                       .blockDim_z = 1};
    driver_call(SANITIZER_CBID_DRIVER_API_cuLaunchKernel, &params_of, false);
    call(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
    struct kernel kernel = {.run = run, .arg = arg};
    world->kernel_arg = &kernel;
    world->kernel = run_kernel;
    call(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &data);
    if (world->kernel != NULL) /* nobody waited */
        run_kernel(&kernel);
    world->kernel = NULL;
    driver_call(SANITIZER_CBID_DRIVER_API_cuLaunchKernel, &params_of, true);
}

struct add {
    uint64_t a, b;
    uint32_t n;
};

static void run_add(struct gm_area *area, void *arg)
{
    const struct add *add = arg;
    for (uint64_t i = 0; i < add->n; i += 100) /* in warps, out of order */
        for (uint64_t lane = 0; lane < 100 && i + lane < add->n; lane++) {
            const uint64_t at = (i * 7919) % add->n + lane;
            if (at < add->n) {
                gm_mark(area, add->a + 4 * at, 4);
                gm_mark(area, add->b + 4 * at, 4);
            }
        }
    gm_mark(area, add->a + 4ull * add->n - 4, 4);
    gm_mark(area, add->b + 4ull * add->n - 4, 4);
    gm_mark(area, 0x600000000000, 4); /* a variable: in no allocation */
}

static void launch_add(const struct fake_function *f, struct add *add)
{
    void *params[] = {&add->a, &add->b, &add->n};
    launch(f, (add->n + 255) / 256, 256, params, run_add, add);
}

static struct gm_records records;
static struct gm_profile profile;

static void read_all(void)
{
    char path[64], why[200];
    path_of(path);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    gm_records_free(&records);
    if (!gm_records_read(file, &records, why, sizeof why))
        fail_msg("%s", why);
    fclose(file);
}

static const struct fake_function add_function = {
    .name = "_Z3addPfS_i", .n = 3, .offset = {0, 8, 16}, .bytes = {8, 8, 4}};

static void test_records(void **state)
{
    (void)state;
    const Sanitizer_ResourceModuleData loaded = {.context = context, .module = module};
    call(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &loaded);
    call(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &loaded);
    assert_int_equal(world->patches_added, 1); /* once a context */
    assert_int_equal(world->modules_patched, 2);
    const uint64_t a = 0x7f0000000000, b = 0x7f4000000000;
    memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, a, 64 * MIB, 0);
    memory(SANITIZER_CBID_RESOURCE_MEMORY_ALLOC_ASYNC, b, 64 * MIB, 0);
    memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, 0x600000000000, MIB,
           SANITIZER_MEMORY_FLAG_MODULE);
    struct add add = {a + 512, b + 1024, 0};
    for (unsigned i = 1; i <= 8; i++) {
        add.n = 200000 * i;
        launch_add(&add_function, &add);
    }
    const unsigned asked = world->asked;
    launch_add(&add_function, &add);
    assert_int_equal(world->asked, asked); /* the driver is asked once */
    /* The same code as a CUkernel is the same kernel. */
    struct fake_function as_kernel = add_function;
    as_kernel.is_kernel = true;
    launch_add(&as_kernel, &add);
    memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE, a, 64 * MIB, 0);
    launch_add(&add_function, &add);
    read_all();
    assert_int_equal(records.n_kernels, 1);
    assert_string_equal(records.kernels[0].name, "_Z3addPfS_i");
    assert_int_equal(records.n_launches, 11);
    assert_int_equal(records.launches[3].arguments.dimension[0], (800000 + 255) / 256);
    assert_int_equal(records.launches[3].arguments.bytes, 20);
    assert_int_equal(records.launches[3].n_runs, 2); /* the variable is left out */
    assert_int_equal(records.launches[3].runs[0].at.from, a);
    assert_int_equal(records.launches[3].runs[0].at.to, (a + 512 + 3200000 + 4095) & ~4095ull);
    assert_int_equal(records.launches[10].n_runs, 1); /* what was freed does not count */
    assert_true(gm_learn(&records, &profile, NULL));
    assert_int_equal(profile.n, 1);
    char text[GM_AMOUNT_TEXT];
    for (uint32_t i = 0; i < 2; i++)
        assert_string_equal(gm_amount_format(&profile.kernels[0].arguments[i].template.bytes, text),
                            "0+4/1*w16");
    assert_int_equal(profile.kernels[0].missed, 0);
    gm_profile_free(&profile);
}

/* A range that the program reserves is one piece, whatever it maps there. */
static void test_reserved(void **state)
{
    (void)state;
    const uint64_t range = 0x7e0000000000;
    CUdeviceptr va = range;
    const struct {
        CUdeviceptr *va;
        size_t bytes;
    } reserve = {&va, 1024 * MIB};
    const struct {
        CUdeviceptr va;
        size_t bytes;
    } end = {range, 1024 * MIB};
    driver_call(SANITIZER_CBID_DRIVER_API_cuMemAddressReserve, &reserve, false);
    driver_call(SANITIZER_CBID_DRIVER_API_cuMemAddressReserve, &reserve, true);
    for (uint64_t at = 0; at < 16; at++)
        memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, range + 2 * at * MIB, 2 * MIB, 0);
    struct add add = {range, range + 16 * MIB, 3 << 20};
    launch_add(&add_function, &add);
    driver_call(SANITIZER_CBID_DRIVER_API_cuMemAddressFree, &end, false);
    launch_add(&add_function, &add);
    read_all();
    const struct gm_launch *last = &records.launches[records.n_launches - 1];
    assert_int_equal(last[-1].n_pointers, 2);
    assert_int_equal(last[-1].pointers[0].alloc.to, range + 1024 * MIB);
    assert_int_equal(last[-1].n_runs, 2);
    assert_int_equal(last[-1].runs[0].at.to, range + 12 * MIB);
    assert_int_equal(last->n_runs, 0);
}

static void run_tensor(struct gm_area *area, void *arg)
{
    (void)arg;
    area->has_tensors = 1;
}

static void test_tensors(void **state)
{
    (void)state;
    static const struct fake_function f = {
        .name = "tma", .n = 2, .offset = {0, 64}, .bytes = {8, 128}};
    const uint64_t va = 0x7d0000000000;
    CUtensorMap map;
    memset(&map, 0x5a, sizeof map);
    const cuuint64_t dimensions[] = {1000, 2000}, strides[] = {4096};
    const struct {
        CUtensorMap *map;
        CUtensorMapDataType type;
        cuuint32_t rank;
        void *address;
        const cuuint64_t *dimensions, *strides;
    } encode = {&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)va, dimensions, strides};
    memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, va, 64 * MIB, 0);
    driver_call(SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeTiled, &encode, false);
    driver_call(SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeTiled, &encode, true);
    uint64_t other = 1;
    void *params[] = {&other, &map};
    launch(&f, 1, 1, params, run_tensor, NULL);
    read_all();
    const struct gm_launch *last = &records.launches[records.n_launches - 1];
    assert_int_equal(last->n_runs, 1);
    assert_int_equal(last->runs[0].at.from, va);
    assert_int_equal(last->runs[0].at.to, va + 2000 * 4096); /* the last row ends in its page */
    /* The same tensor elsewhere: another map. */
    const struct {
        CUtensorMap *map;
        void *address;
    } replace = {&map, (void *)(va + 16 * MIB)};
    driver_call(SANITIZER_CBID_DRIVER_API_cuTensorMapReplaceAddress, &replace, false);
    memset(&map, 0x5b, sizeof map);
    driver_call(SANITIZER_CBID_DRIVER_API_cuTensorMapReplaceAddress, &replace, true);
    launch(&f, 1, 1, params, run_tensor, NULL);
    read_all();
    last = &records.launches[records.n_launches - 1];
    assert_int_equal(last->n_runs, 1);
    assert_int_equal(last->runs[0].at.from, va + 16 * MIB);
}

static void run_everywhere(struct gm_area *area, void *arg)
{
    const uint64_t from = *(uint64_t *)arg;
    for (uint64_t place = 0; place < GM_AREA_SLOTS + 1; place++)
        gm_mark(area, from + place * 2 * MIB, 1);
}

/* What does not fit, and what fails, costs the record; the next launch is recorded again. */
static void test_failures(void **state)
{
    (void)state;
    static const struct fake_function wide = {.name = "wide", .n = 1, .offset = {0}, .bytes = {8}},
                                      unknown = {.name = NULL};
    uint64_t from = 0x700000000000;
    void *params[] = {&from};
    read_all();
    uint32_t before = records.n_launches;
    launch(&wide, 1, 1, params, run_everywhere, &from);
    launch(&unknown, 1, 1, params, run_everywhere, &from);
    assert_null(world->area); /* nobody records it */
    /* A launch without a call: of a graph. */
    const Sanitizer_LaunchData graph = {.context = context, .module = module};
    call(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &graph);
    assert_null(world->area);
    call(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &graph);
    read_all();
    assert_int_equal(records.n_launches, before);
    const uint64_t va = 0x710000000000;
    memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, va, 64 * MIB, 0);
    struct add add = {va, va + 32 * MIB, 1 << 20};
    unsigned failed = 0;
    for (uint64_t nth = 0; nth < 12; nth++) {
        read_all();
        before = records.n_launches;
        world->fails_at = world->calls + nth;
        add.n = 2 << 20;
        launch_add(&add_function, &add); /* what is left in its area does not count later */
        world->fails_at = UINT64_MAX;
        add.n = 1 << 20;
        read_all();
        failed += records.n_launches == before;
        before = records.n_launches;
        launch_add(&add_function, &add);
        read_all();
        assert_int_equal(records.n_launches, before + 1);
        const struct gm_launch *last = &records.launches[records.n_launches - 1];
        assert_int_equal(last->n_runs, 2);
        assert_int_equal(last->runs[0].at.to - last->runs[0].at.from, 4 * MIB);
        assert_int_equal(last->runs[1].at.to - last->runs[1].at.from, 4 * MIB);
    }
    assert_in_range(failed, 5, 11);
}

/* After many launches of a kernel only some are recorded. */
static void test_sampled(void **state)
{
    (void)state;
    static const struct fake_function often = {.name = "often", .n = 0};
    read_all();
    const uint32_t before = records.n_launches;
    for (unsigned i = 0; i < 2000; i++)
        launch(&often, 1, 1, NULL, run_tensor, NULL);
    read_all();
    assert_in_range(records.n_launches - before, 1050, 1080);
}

/* ---- the code of modules ---- */

/* An ELF file with one symbol and its registers. */
struct code {
    Elf64_Ehdr head;
    Elf64_Shdr sections[5];
    Elf64_Sym symbols[2];
    uint32_t info[3];
    char names[32], strings[16];
};

static void make_code(struct code *code)
{
    memset(code, 0, sizeof *code);
    memcpy(code->head.e_ident, ELFMAG, SELFMAG);
    code->head.e_ident[EI_CLASS] = ELFCLASS64;
    code->head.e_shentsize = sizeof(Elf64_Shdr);
    code->head.e_shoff = offsetof(struct code, sections);
    code->head.e_shnum = 5;
    code->head.e_shstrndx = 1;
    memcpy(code->names, "\0.nv.info", 10);
    memcpy(code->strings, "\0heavy", 7);
    code->sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                                     .sh_offset = offsetof(struct code, names),
                                     .sh_size = sizeof code->names};
    code->sections[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                                     .sh_offset = offsetof(struct code, strings),
                                     .sh_size = sizeof code->strings};
    code->sections[3] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                     .sh_offset = offsetof(struct code, symbols),
                                     .sh_size = sizeof code->symbols,
                                     .sh_link = 2};
    code->sections[4] = (Elf64_Shdr){
        .sh_name = 1, .sh_offset = offsetof(struct code, info), .sh_size = sizeof code->info};
    code->symbols[1].st_name = 1;
    code->info[0] = 0x00082f04;
    code->info[1] = 1;
    code->info[2] = 48;
}

static unsigned codes_found;

static void code_found(void *arg, const char *name, uint32_t registers)
{
    (void)arg, (void)registers;
    codes_found += strlen(name) > 0;
}

static void run_nothing(struct gm_area *area, void *arg)
{
    (void)area, (void)arg;
}

static void test_registers(void **state)
{
    (void)state;
    static struct fake_function heavy = {.name = "heavy", .n = 0};
    static struct code code;
    make_code(&code);
    const Sanitizer_ResourceModuleData loaded = {.context = context,
                                                 .module = module,
                                                 .pCubin = (const char *)&code,
                                                 .cubinSize = sizeof code};
    call(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &loaded);
    launch(&heavy, 1, 1, NULL, run_nothing, NULL);
    read_all();
    assert_string_equal(records.kernels[records.n_kernels - 1].name, "heavy");
    assert_int_equal(records.kernels[records.n_kernels - 1].registers, 48);
    /* Damaged code: read within its bounds, which the address sanitizer watches. */
    uint64_t random = 1;
    for (unsigned round = 0; round < 20000; round++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        const size_t size = round % 2 == 0 ? sizeof code : (random >> 33) % sizeof code;
        unsigned char *damaged = malloc(size + 1);
        memcpy(damaged, &code, size);
        for (unsigned i = 0; i < 4 && size > 0; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            damaged[(random >> 33) % size] = (unsigned char)(random >> 20);
        }
        gm_cubin_read(damaged, size, code_found, NULL);
        free(damaged);
    }
    assert_in_range(codes_found, 100, 19999);
    /* The module ends, and its handles are others'. */
    call(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING, &loaded);
    heavy.name = "light";
    launch(&heavy, 1, 1, NULL, run_nothing, NULL);
    read_all();
    assert_string_equal(records.kernels[records.n_kernels - 1].name, "light");
    assert_int_equal(records.kernels[records.n_kernels - 1].registers, 0);
}

/* A forked child, and an image that takes the place of the program: each has a file of its own.
 * What the parent wrote is there once, however the child ends; and a file that is there stays as it
 * is. */
static void test_processes(void **state)
{
    char path[64], theirs[96], line[256];
    unsigned before = 0, after = 0;
    (void)state;
    path_of(path);
    memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, 0x5a0000000000, MIB, 0);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        before += strstr(line, "5a0000000000") != NULL;
    assert_int_equal(before, 1); /* at once */
    rewind(file);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        snprintf(theirs, sizeof theirs, "%s/%d.records", folder, (int)getpid());
        FILE *other = fopen(theirs, "we"); /* of an image before */
        fputs("kept", other);
        fclose(other);
        memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, 0x5b0000000000, MIB, 0);
        exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    while (fgets(line, sizeof line, file) != NULL) {
        after += strstr(line, "5a0000000000") != NULL;
        assert_null(strstr(line, "5b0000000000"));
    }
    fclose(file);
    assert_int_equal(after, 1);
    snprintf(theirs, sizeof theirs, "%s/%d.records", folder, (int)child);
    file = fopen(theirs, "re");
    assert_true(file != NULL && fgets(line, sizeof line, file) != NULL);
    assert_string_equal(line, "kept");
    fclose(file);
    unlink(theirs);
    snprintf(theirs, sizeof theirs, "%s/%d-1.records", folder, (int)child);
    file = fopen(theirs, "re");
    assert_true(file != NULL && fgets(line, sizeof line, file) != NULL);
    assert_string_equal(line, "gpumux-records 1\n");
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(strstr(line, "alloc 5b0000000000"));
    fclose(file);
    unlink(theirs);
    memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE, 0x5a0000000000, MIB, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),   cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_tensors),   cmocka_unit_test(test_failures),
        cmocka_unit_test(test_sampled),   cmocka_unit_test(test_registers),
        cmocka_unit_test(test_processes),
    };
    const int failed = cmocka_run_group_tests(tests, start, stop);
    gm_records_free(&records);
    return failed;
}
