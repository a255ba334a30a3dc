/*
 * The simulated driver (tests/simcuda): memory that crosses processes and outlives them, exact
 * accounting, look-up in both ABIs, contexts, faults, and death by touching what is not mapped.
 * Work is in test_simcuda_work.c.
 *
 * What needs a process of its own (another environment, a crash, a kill) is a role: this program
 * started again as `test_simcuda ROLE` (tests/simcuda/roles.c), with a socket on fd ROLE_SOCKET. A
 * role ends with status 0 when all held.
 */
#include "tests/simcuda/testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>

static const char *program;

/* ---- roles ---- */

struct role {
    pid_t pid;
    int socket;
};

static void start_role(struct role *role, const char *name)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    role->pid = fork();
    assert_true(role->pid >= 0);
    if (role->pid == 0) {
        dup2(pair[1], ROLE_SOCKET);
        fcntl(ROLE_SOCKET, F_SETFD, 0); /* it may be pair[1] itself */
        execl(program, program, name, (char *)NULL);
        _exit(126);
    }
    close(pair[1]);
    role->socket = pair[0];
}

/* The role's wait status, when it ends. */
static int end_role(struct role *role)
{
    int status = -1;
    assert_int_equal(waitpid(role->pid, &status, 0), role->pid);
    close(role->socket);
    return status;
}

static void run_role(const char *name)
{
    struct role role;
    start_role(&role, name);
    const int status = end_role(&role);
    if (status != 0)
        fail_msg("role %s: wait status %d", name, status);
}

/* ---- looking up ---- */

struct symbol {
    const char *api, *symbol, *mode;
    int since;
};
#define GM_HOOK(api, symbol, since, mode, kind, params, args) {#api, #symbol, #mode, since},
#define GM_PASS(api, symbol, since, mode, reason) {#api, #symbol, #mode, since},
static const struct symbol symbols[] = {
#include "shim/driver/hooks.def"
#include "shim/driver/pass.def"
};
#undef GM_HOOK
#undef GM_PASS

typedef CUresult get_proc_4(const char *, void **, int, cuuint64_t);
typedef CUresult get_proc_5(const char *, void **, int, cuuint64_t,
                            CUdriverProcAddressQueryResult *);

static void test_lookup_gives_what_dlsym_gives(void **state)
{
    (void)state;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(driver);
    get_proc_4 *find_4;
    get_proc_5 *find_5;
    *(void **)&find_4 = dlsym(driver, "cuGetProcAddress");
    *(void **)&find_5 = dlsym(driver, "cuGetProcAddress_v2");
    assert_non_null(find_4);
    assert_non_null(find_5);
    size_t present = 0, absent = 0;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        const struct symbol *s = &symbols[i];
        const bool is_per_thread = strncmp(s->mode, "PT", 2) == 0;
        const cuuint64_t flags = is_per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                               : CU_GET_PROC_ADDRESS_DEFAULT;
        void *expected = dlsym(driver, s->symbol), *found = NULL, *old = NULL;
        CUdriverProcAddressQueryResult status = 77;
        const CUresult result = find_5(s->api, &found, s->since, flags, &status);
        assert_int_equal(result, CUDA_SUCCESS);
        assert_int_equal(find_4(s->api, &old, s->since, flags),
                         found != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
        assert_ptr_equal(old, found);
        present += expected != NULL;
        absent += expected == NULL;
        if (expected != NULL) {
            assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
            if (found != expected)
                fail_msg("%s at %d in mode %s is not %s", s->api, s->since, s->mode, s->symbol);
        } else { /* none, or an older form serves */
            assert_int_equal(found != NULL, status == CU_GET_PROC_ADDRESS_SUCCESS);
        }
    }
    assert_true(present > 200);
    assert_true(absent > 100);
    dlclose(driver);
}

static void test_lookup_modes_and_versions(void **state)
{
    (void)state;
    void *p = NULL, *q = NULL;
    CUdriverProcAddressQueryResult status;
    ok(cuGetProcAddress("cuLaunchKernel", &p, 13000, 0, NULL));
    assert_ptr_equal(p, dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
    ok(cuGetProcAddress("cuLaunchKernel", &p, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
    assert_ptr_equal(p, dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
    ok(cuGetProcAddress("cuLaunchKernel", &p, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                        NULL));
    assert_ptr_equal(p, dlsym(RTLD_DEFAULT, "cuLaunchKernel_ptsz"));
    ok(cuGetProcAddress("cuMemAlloc", &p, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                        NULL));
    assert_ptr_equal(p, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")); /* has one form */
    ok(cuGetProcAddress("cuCtxSynchronize", &p, 12000, 0, NULL));
    ok(cuGetProcAddress("cuCtxSynchronize", &q, 13000, 0, NULL));
    assert_ptr_equal(p, dlsym(RTLD_DEFAULT, "cuCtxSynchronize"));
    assert_ptr_equal(q, dlsym(RTLD_DEFAULT, "cuCtxSynchronize_v2"));
    ok(cuGetProcAddress("cuTexRefGetFilterMode", &p, 13000, 0, &status));
    assert_null(p);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_null(dlsym(RTLD_DEFAULT, "cuTexRefGetFilterMode"));
    const void *table = &table;
    const CUuuid id = {{0}};
    assert_int_equal(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
}

/* ---- virtual memory management ---- */

static void test_memory_stays_while_it_moves(void **state)
{
    (void)state;
    const size_t before = free_memory();
    CUdeviceptr p;
    CUmemGenericAllocationHandle a, b;
    const CUmemAllocationProp prop = roles_prop();
    const CUmemAccessDesc desc = roles_access();
    ok(cuMemAddressReserve(&p, 32 * MIB, 0, 0, 0));
    ok(cuMemCreate(&a, 2 * MIB, &prop, 0));
    ok(cuMemCreate(&b, 4 * MIB, &prop, 0));
    assert_int_equal(free_memory(), before - 6 * MIB);
    ok(cuMemMap(p, 2 * MIB, 0, a, 0));
    ok(cuMemMap(p + 2 * MIB, 4 * MIB, 0, b, 0));
    ok(cuMemSetAccess(p, 6 * MIB, &desc, 1));
    ok(fill(p, 6 * MIB / 8, 3, NULL));
    assert_int_equal(mismatches(p, 6 * MIB / 8, 3), 0);
    assert_int_equal(mismatches(p, 6 * MIB / 8, 4), 6 * MIB / 8);
    /* The same memory, in the same order, elsewhere. */
    ok(cuMemUnmap(p, 6 * MIB));
    ok(cuMemMap(p + 16 * MIB, 2 * MIB, 0, a, 0));
    ok(cuMemMap(p + 18 * MIB, 4 * MIB, 0, b, 0));
    ok(cuMemSetAccess(p + 16 * MIB, 6 * MIB, &desc, 1));
    assert_int_equal(mismatches(p + 16 * MIB, 6 * MIB / 8, 3), 0);
    /* Twice at once: one memory. */
    ok(cuMemMap(p, 2 * MIB, 0, a, 0));
    ok(cuMemSetAccess(p, 2 * MIB, &desc, 1));
    ok(fill(p, 2 * MIB / 8, 5, NULL));
    assert_int_equal(mismatches(p + 16 * MIB, 2 * MIB / 8, 5), 0);
    /* A released handle lives by its mappings. */
    ok(cuMemRelease(a));
    assert_int_equal(cuMemRelease(a), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemUnmap(p, 2 * MIB));
    assert_int_equal(mismatches(p + 16 * MIB, 2 * MIB / 8, 5), 0);
    assert_int_equal(free_memory(), before - 6 * MIB);
    /* And a retained one outlives them. */
    ok(cuMemRetainAllocationHandle(&a, (void *)(p + 16 * MIB + 4096)));
    ok(cuMemUnmap(p + 16 * MIB, 6 * MIB));
    assert_int_equal(free_memory(), before - 6 * MIB);
    ok(cuMemMap(p, 2 * MIB, 0, a, 0));
    ok(cuMemSetAccess(p, 2 * MIB, &desc, 1));
    assert_int_equal(mismatches(p, 2 * MIB / 8, 5), 0);
    ok(cuMemUnmap(p, 2 * MIB));
    ok(cuMemRelease(a));
    assert_int_equal(free_memory(), before - 4 * MIB);
    ok(cuMemRelease(b));
    ok(cuMemAddressFree(p, 32 * MIB));
    assert_int_equal(free_memory(), before);
}

static void test_host_frames_are_not_device_memory(void **state)
{
    (void)state;
    const size_t before = free_memory();
    CUdeviceptr p;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = roles_prop();
    CUmemAccessDesc desc[2] = {roles_access(), roles_access()};
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    desc[1].location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    ok(cuMemCreate(&handle, 4 * MIB, &prop, 0));
    assert_int_equal(free_memory(), before);
    ok(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
    ok(cuMemMap(p, 4 * MIB, 0, handle, 0));
    ok(cuMemSetAccess(p, 4 * MIB, desc, 2));
    ok(fill(p, 4 * MIB / 8, 3, NULL));
    ok(cuCtxSynchronize());
    assert_int_not_equal(*(volatile uint64_t *)p, 0);
    CUmemorytype type = 0;
    ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    ok(cuMemUnmap(p, 4 * MIB));
    ok(cuMemAddressFree(p, 4 * MIB));
    ok(cuMemRelease(handle));
}

static void test_memory_crosses_processes(void **state)
{
    (void)state;
    const size_t before = free_memory();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    const CUmemAllocationProp prop = roles_prop();
    const CUmemAccessDesc desc = roles_access();
    ok(cuMemCreate(&handle, 4 * MIB, &prop, 0));
    ok(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
    ok(cuMemMap(p, 4 * MIB, 0, handle, 0));
    ok(cuMemSetAccess(p, 4 * MIB, &desc, 1));
    ok(fill(p, 4 * MIB / 8, 7, NULL));
    ok(cuCtxSynchronize());
    int fd;
    ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    struct role role;
    start_role(&role, "import");
    roles_send(role.socket, fd);
    close(fd);
    assert_int_equal(end_role(&role), 0);
    assert_int_equal(mismatches(p, 4 * MIB / 8, 8), 0);
    ok(cuMemUnmap(p, 4 * MIB));
    ok(cuMemAddressFree(p, 4 * MIB));
    ok(cuMemRelease(handle));
    assert_int_equal(free_memory(), before);
}

/* Import a frame and verify what is in it. */
static void check_frame(int fd, size_t size, uint64_t seed)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    const CUmemAccessDesc desc = roles_access();
    ok(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ok(cuMemAddressReserve(&p, size, 0, 0, 0));
    ok(cuMemMap(p, size, 0, handle, 0));
    ok(cuMemSetAccess(p, size, &desc, 1));
    assert_int_equal(mismatches(p, size / 8, seed), 0);
    ok(cuMemUnmap(p, size));
    ok(cuMemAddressFree(p, size));
    ok(cuMemRelease(handle));
}

static void test_memory_outlives_its_maker(void **state)
{
    (void)state;
    const size_t before = free_memory();
    struct role role;
    start_role(&role, "make");
    const int fd = roles_receive(role.socket);
    assert_true(fd >= 0);
    assert_int_equal(free_memory(), before - 32 * MIB);
    kill(role.pid, SIGKILL);
    assert_int_equal(WTERMSIG(end_role(&role)), SIGKILL);
    /* Nobody has a handle now; the fd alone keeps it. */
    assert_int_equal(free_memory(), before - 32 * MIB);
    check_frame(fd, 32 * MIB, 9);
    assert_int_equal(free_memory(), before - 32 * MIB);
    close(fd);
    assert_int_equal(free_memory(), before);
}

static void test_touching_what_is_not_mapped_kills_the_context(void **state)
{
    (void)state;
    static const char *const names[] = {"touch-reserved", "touch-without-access", "touch-unmapped",
                                        "copy-unmapped",  "touch-freed",          "touch-behind"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct role role;
        start_role(&role, names[i]);
        const int status = end_role(&role);
        if (status != 0)
            fail_msg("%s: wait status %d", names[i], status);
    }
}

/* ---- accounting ---- */

static void test_memory_is_exact(void **state)
{
    (void)state;
    CUdeviceptr p, q;
    const size_t before = free_memory();
    ok(cuMemAlloc(&p, before));
    assert_int_equal(free_memory(), 0);
    assert_int_equal(cuMemAlloc(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = roles_prop();
    assert_int_equal(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ok(cuMemFree(p));
    assert_int_equal(cuMemAlloc(&p, before + 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(free_memory(), before);
}

static void test_killed_process_gives_back(void **state)
{
    (void)state;
    const size_t before = free_memory();
    struct role roles_of[3];
    for (int i = 0; i < 3; i++) {
        start_role(&roles_of[i], "hold");
        roles_receive(roles_of[i].socket);
        assert_int_equal(free_memory(), before - (size_t)(i + 1) * 60 * MIB);
    }
    CUdeviceptr p;
    assert_int_equal(cuMemAlloc(&p, before), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 3; i++) {
        kill(roles_of[i].pid, SIGKILL);
        end_role(&roles_of[i]);
    }
    ok(cuMemAlloc(&p, before)); /* found out when the memory is needed */
    ok(cuMemFree(p));
    assert_int_equal(free_memory(), before);
}

static void test_exec_gives_back(void **state)
{
    (void)state;
    const size_t before = free_memory();
    struct role role;
    start_role(&role, "exec");
    char text[16];
    assert_true(read(role.socket, text, sizeof text) > 0);
    assert_int_equal(free_memory(), before);
    assert_int_equal(write(role.socket, "\n", 1), 1);
    assert_int_equal(end_role(&role), 0);
}

/* ---- contexts, devices, processes ---- */

static void test_copy_rate_is_shared(void **state)
{
    (void)state;
    /* 8 MiB at 64 MiB a second: 125 ms alone, 250 ms for the later of two. */
    setenv("SIMCUDA_COPY_RATE", "64M", 1);
    struct role first, second;
    start_role(&first, "copy");
    start_role(&second, "copy");
    unsetenv("SIMCUDA_COPY_RATE");
    roles_receive(first.socket); /* both have started */
    roles_receive(second.socket);
    const uint64_t start = now();
    roles_send(first.socket, -1);
    roles_send(second.socket, -1);
    roles_receive(first.socket);
    roles_receive(second.socket);
    const uint64_t took = now() - start;
    assert_int_equal(end_role(&first), 0);
    assert_int_equal(end_role(&second), 0);
    assert_true(took >= 245000000ull);
}

static void test_contexts(void **state)
{
    (void)state;
    CUcontext a, b, current;
    CUdevice device = 99;
    CUdeviceptr p;
    unsigned version = 0, flags = 99;
    const size_t before = free_memory();
    ok(cuCtxCreate(&a, NULL, CU_CTX_SCHED_BLOCKING_SYNC, 0));
    ok(cuCtxGetFlags(&flags));
    assert_int_equal(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    ok(cuMemAlloc(&p, 1 * MIB));
    ok(cuCtxGetApiVersion(a, &version));
    assert_true(version >= 3020);
    ok(cuCtxGetDevice(&device));
    assert_int_equal(device, 0);
    ok(cuCtxCreate(&b, NULL, 0, 0));
    ok(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, b);
    ok(cuCtxPopCurrent(&current));
    assert_ptr_equal(current, b);
    ok(cuCtxPushCurrent(b));
    ok(cuCtxDestroy(b));
    ok(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, a);
    ok(cuCtxDestroy(a)); /* its memory goes with it */
    ok(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, context);
    assert_int_equal(free_memory(), before);
    assert_int_equal(cuCtxPushCurrent(a), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    int least = 99, greatest = 99;
    ok(cuCtxGetStreamPriorityRange(&least, &greatest));
    assert_true(greatest < least);
}

static void test_device_questions(void **state)
{
    (void)state;
    int value = 0;
    char text[64];
    CUdevice device;
    CUuuid uuid, again;
    size_t bytes = 0;
    ok(cuDriverGetVersion(&value));
    assert_int_equal(value, 13000);
    ok(cuDeviceGetPCIBusId(text, sizeof text, 0));
    ok(cuDeviceGetByPCIBusId(&device, text));
    assert_int_equal(device, 0);
    ok(cuDeviceTotalMem(&bytes, 0));
    assert_int_equal(bytes, MEMORY);
    ok(cuDeviceGetUuid(&uuid, 0));
    ok(cuDeviceGetUuid(&again, 0));
    assert_memory_equal(&uuid, &again, sizeof uuid);
    ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    assert_int_equal(value, 1);
    ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
    assert_int_equal(value, 0);
    const char *name = NULL;
    ok(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    assert_string_equal(name, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_int_equal(cuGetErrorString(12345, &name), CUDA_ERROR_INVALID_VALUE);
}

static void test_other_environments(void **state)
{
    (void)state;
    CUuuid here, there;
    char other[80];
    snprintf(other, sizeof other, "%s/other", directory);
    setenv("SIMCUDA_DEVICES", "2", 1);
    setenv("SIMCUDA_MEMORY", "8M", 1);
    setenv("SIMCUDA_CONTEXT_MEMORY", "3M", 1);
    setenv("SIMCUDA_DIR", other, 1);
    struct role role;
    start_role(&role, "devices");
    const ssize_t length = read(role.socket, &there, sizeof there);
    const int status = end_role(&role);
    unsetenv("SIMCUDA_CONTEXT_MEMORY");
    unsetenv("SIMCUDA_DEVICES");
    setenv("SIMCUDA_MEMORY", "256M", 1);
    setenv("SIMCUDA_DIR", directory, 1);
    assert_int_equal(status, 0);
    assert_int_equal(length, sizeof there);
    ok(cuDeviceGetUuid(&here, 0));
    assert_memory_not_equal(&here, &there, sizeof here);
}

static void test_faults(void **state)
{
    (void)state;
    setenv("SIMCUDA_FAIL", "cuMemCreate:2,cuMemMap:2+=205,cuLaunchKernel_ptsz:1,cuMemAlloc_v2:3=46",
           1);
    run_role("fail");
    static const char *const bad[] = {
        "cuMemCreate",    "cuMemCreate:0",      "cuMemCreate:x",  ":3",
        "cuMemCreate:1=", "cuMemCreate:1=5000", "cuNoSuchCall:1", "cuTexRefGetFilterMode:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("SIMCUDA_FAIL", bad[i], 1);
        run_role("bad-environment");
    }
    unsetenv("SIMCUDA_FAIL");
    setenv("SIMCUDA_MEMORY", "12X", 1);
    run_role("bad-environment");
    setenv("SIMCUDA_MEMORY", "256M", 1);
    setenv("SIMCUDA_DEVICES", "9", 1);
    run_role("bad-environment");
    unsetenv("SIMCUDA_DEVICES");
    setenv("SIMCUDA_DIR", "/nonexistent/folder", 1);
    run_role("bad-environment");
    setenv("SIMCUDA_DIR", directory, 1);
}

static void test_fork_and_exit(void **state)
{
    (void)state;
    run_role("fork");
    run_role("exit-busy");
    run_role("exit-order");
}

/* ---- main ---- */

int main(int argc, char **argv)
{
    if (argc > 1)
        return roles_play(argv[1]);
    char self[400];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return 1;
    self[length] = '\0';
    program = self;
    if (make_directory() != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup_gives_what_dlsym_gives),
        cmocka_unit_test(test_lookup_modes_and_versions),
        cmocka_unit_test(test_memory_stays_while_it_moves),
        cmocka_unit_test(test_host_frames_are_not_device_memory),
        cmocka_unit_test(test_memory_crosses_processes),
        cmocka_unit_test(test_memory_outlives_its_maker),
        cmocka_unit_test(test_touching_what_is_not_mapped_kills_the_context),
        cmocka_unit_test(test_memory_is_exact),
        cmocka_unit_test(test_killed_process_gives_back),
        cmocka_unit_test(test_exec_gives_back),
        cmocka_unit_test(test_copy_rate_is_shared),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_device_questions),
        cmocka_unit_test(test_other_environments),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_fork_and_exit),
    };
    const int failed = cmocka_run_group_tests(tests, set_up, NULL);
    remove_directory(directory);
    return failed;
}
