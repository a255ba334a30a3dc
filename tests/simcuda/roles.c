/* The roles: see roles.h. A role that meets what it does not expect says so and exits with 1. */
#include "tests/simcuda/roles.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static CUcontext context;
static CUmodule module;

const char roles_ptx[] =
    "// kernels of the test\n"
    ".version 8.0\n.target sm_70\n.address_size 64\n"
    "/* .entry not_this_one( */\n"
    ".visible .entry gm_fill(.param .u64 a, .param .u64 b, .param .u64 c) {ret;}\n"
    ".visible .entry gm_verify(.param .u64 a) {ret;}\n"
    ".visible .entry\n  gm_verify_refill (.param .u64 a) {ret;}\n"
    ".entry gm_vector_add(.param .u64 a) {ret;}\n"
    ".entry gm_matmul(.param .u64 a) {ret;}\n"
    ".entry gm_spin(.param .u64 a) {ret;}\n"
    ".entry gm_spin_until(.param .u64 a) {ret;}\n"
    ".entry gm_sweep(.param .u64 a) {ret;}\n"
    ".entry gm_count(.param .u64 a) {ret;}\n"
    ".entry gm_empty() {ret;}\n"
    ".entry some_other() {ret;}\n";

CUmemAllocationProp roles_prop(void)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

CUmemAccessDesc roles_access(void)
{
    CUmemAccessDesc desc;
    memset(&desc, 0, sizeof desc);
    desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return desc;
}

int roles_send(int socket, int fd)
{
    char byte = 1, control[CMSG_SPACE(sizeof fd)];
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    memset(control, 0, sizeof control);
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

int roles_receive(int socket)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
        return -2;
    int fd = -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (c != NULL && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "role: line %d: %s\n", __LINE__, #condition);                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define NEED_OK(call) NEED((call) == CUDA_SUCCESS)

/* What the roles need of the driver; they cannot use cmocka's asserts. */
static void role_set_up(void)
{
    NEED_OK(cuInit(0));
    NEED_OK(cuDevicePrimaryCtxRetain(&context, 0));
    NEED_OK(cuCtxSetCurrent(context));
    NEED_OK(cuModuleLoadData(&module, roles_ptx));
}

static CUfunction role_function(const char *name)
{
    CUfunction f;
    NEED_OK(cuModuleGetFunction(&f, module, name));
    return f;
}

static void role_fill(CUdeviceptr p, uint64_t n, uint64_t seed)
{
    void *params[] = {&p, &n, &seed};
    NEED_OK(cuLaunchKernel(role_function("gm_fill"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    NEED_OK(cuCtxSynchronize());
}

static uint64_t role_mismatches(CUdeviceptr p, uint64_t n, uint64_t seed)
{
    unsigned long long count = 0, *at = &count;
    void *params[] = {&p, &n, &seed, &at};
    NEED_OK(cuLaunchKernel(role_function("gm_verify"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    NEED_OK(cuCtxSynchronize());
    return count;
}

static CUdeviceptr role_map(CUmemGenericAllocationHandle handle, size_t size)
{
    CUdeviceptr p;
    const CUmemAccessDesc desc = roles_access();
    NEED_OK(cuMemAddressReserve(&p, size, 0, 0, 0));
    NEED_OK(cuMemMap(p, size, 0, handle, 0));
    NEED_OK(cuMemSetAccess(p, size, &desc, 1));
    return p;
}

/* Gets a frame that another process filled with seed 7, and fills it with seed 8. */
static void role_import(void)
{
    role_set_up();
    const int fd = roles_receive(ROLE_SOCKET);
    CUmemGenericAllocationHandle handle;
    NEED_OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    int again;
    NEED(cuMemExportToShareableHandle(&again, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0) == CUDA_ERROR_INVALID_VALUE);
    const CUdeviceptr p = role_map(handle, 4 * MIB);
    NEED_OK(cuMemRelease(handle));
    NEED(role_mismatches(p, 4 * MIB / 8, 7) == 0);
    role_fill(p, 4 * MIB / 8, 8);
}

/* Makes a frame, fills it with seed 9, gives its fd away and waits for its end. */
static void role_make(void)
{
    role_set_up();
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = roles_prop();
    NEED_OK(cuMemCreate(&handle, 32 * MIB, &prop, 0));
    const CUdeviceptr p = role_map(handle, 32 * MIB);
    role_fill(p, 32 * MIB / 8, 9);
    int fd;
    NEED_OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    roles_send(ROLE_SOCKET, fd);
    close(fd);
    roles_receive(ROLE_SOCKET);
}

/* Takes linear memory and a frame, says so and waits for its end. */
static void role_hold(void)
{
    role_set_up();
    CUdeviceptr p;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = roles_prop();
    NEED_OK(cuMemAlloc(&p, 40 * MIB));
    NEED_OK(cuMemCreate(&handle, 20 * MIB, &prop, 0));
    roles_send(ROLE_SOCKET, -1);
    roles_receive(ROLE_SOCKET);
}

/* Has device memory, then becomes another program that has none, and waits for its end. */
static void role_exec(void)
{
    role_set_up();
    CUdeviceptr p;
    NEED_OK(cuMemAlloc(&p, 40 * MIB));
    char command[64];
    snprintf(command, sizeof command, "echo exec >&%d; read x <&%d", ROLE_SOCKET, ROLE_SOCKET);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
}

static CUdeviceptr reserve_and_map(bool has_access)
{
    CUdeviceptr p;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = roles_prop();
    const CUmemAccessDesc desc = roles_access();
    NEED_OK(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
    NEED_OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    NEED_OK(cuMemMap(p, 2 * MIB, 0, handle, 0));
    if (has_access)
        NEED_OK(cuMemSetAccess(p, 2 * MIB, &desc, 1));
    NEED_OK(cuMemRelease(handle));
    return p;
}

/* Work on what is not there: its context is dead, and stays so; a new one works. */
static void touch(CUdeviceptr p, uint64_t n)
{
    uint64_t seed = 0;
    CUdeviceptr other;
    CUcontext next;
    void *params[] = {&p, &n, &seed};
    NEED_OK(cuLaunchKernel(role_function("gm_fill"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    NEED(cuMemAlloc(&other, 4096) == CUDA_ERROR_ILLEGAL_ADDRESS);
    NEED(cuStreamQuery(NULL) == CUDA_ERROR_ILLEGAL_ADDRESS);
    NEED_OK(cuCtxCreate(&next, NULL, 0, 0));
    NEED_OK(cuMemAlloc(&other, 4096));
    NEED_OK(cuMemsetD8(other, 1, 4096));
    NEED_OK(cuCtxSynchronize());
}

static void role_touch_reserved(void)
{
    role_set_up();
    touch(reserve_and_map(true) + 2 * MIB, 1);
}

static void role_touch_without_access(void)
{
    role_set_up();
    touch(reserve_and_map(false), 1);
}

static void role_touch_unmapped(void)
{
    role_set_up();
    const CUdeviceptr p = reserve_and_map(true);
    role_fill(p, 2 * MIB / 8, 0);
    NEED_OK(cuMemUnmap(p, 2 * MIB));
    touch(p, 1);
}

static void role_copy_unmapped(void)
{
    role_set_up();
    char bytes[64];
    const CUdeviceptr p = reserve_and_map(true);
    NEED_OK(cuMemUnmap(p, 2 * MIB));
    NEED(cuMemcpyDtoH(bytes, p, sizeof bytes) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void role_touch_freed(void)
{
    role_set_up();
    CUdeviceptr p;
    NEED_OK(cuMemAlloc(&p, 4096));
    NEED_OK(cuMemFree(p));
    touch(p, 1);
}

static void role_touch_behind(void)
{
    role_set_up();
    CUdeviceptr p;
    NEED_OK(cuMemAlloc(&p, 4096));
    touch(p, 4096 / 8 + 1);
}

/* Ends while a kernel runs that never would. */
static void role_exit_busy(void)
{
    role_set_up();
    static uint32_t flag;
    uint32_t *at = &flag;
    void *params[] = {&at};
    CUstream stream;
    NEED_OK(cuStreamCreate(&stream, 0));
    NEED_OK(
        cuLaunchKernel(role_function("gm_spin_until"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    NEED_OK(cuLaunchKernel(role_function("gm_empty"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void check_deinitialized(void)
{
    CUdeviceptr p;
    if (cuMemAlloc(&p, 1) != CUDA_ERROR_DEINITIALIZED)
        _exit(1);
}

/* A handler that was there before the driver runs after it. */
static void role_exit_order(void)
{
    atexit(check_deinitialized);
    role_set_up();
}

static void role_fork(void)
{
    int count;
    NEED(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
    pid_t child = fork(); /* before initializing: the child is free to */
    if (child == 0) {
        role_set_up();
        exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    role_set_up();
    child = fork();
    if (child == 0) {
        NEED(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED);
        NEED(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
        NEED(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED);
        exit(0);
    }
    NEED(waitpid(child, &status, 0) == child && status == 0);
    role_fill(reserve_and_map(true), 1, 0);
}

/* With SIMCUDA_FAIL=cuMemCreate:2,cuMemMap:2+=205,cuLaunchKernel_ptsz:1,cuMemAlloc_v2:3=46 */
static void role_fail(void)
{
    role_set_up();
    CUmemGenericAllocationHandle a, b;
    CUdeviceptr p;
    const CUmemAllocationProp prop = roles_prop();
    NEED_OK(cuMemCreate(&a, 2 * MIB, &prop, 0));
    NEED(cuMemCreate(&b, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    NEED_OK(cuMemCreate(&b, 2 * MIB, &prop, 0));
    NEED_OK(cuMemAddressReserve(&p, 8 * MIB, 0, 0, 0));
    NEED_OK(cuMemMap(p, 2 * MIB, 0, a, 0));
    NEED(cuMemMap(p + 2 * MIB, 2 * MIB, 0, b, 0) == CUDA_ERROR_MAP_FAILED);
    NEED(cuMemMap(p + 2 * MIB, 2 * MIB, 0, b, 0) == CUDA_ERROR_MAP_FAILED);
    const CUfunction f = role_function("gm_empty");
    NEED(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_ERROR_UNKNOWN);
    NEED_OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    NEED_OK(cuMemAlloc(&p, 1));
    NEED_OK(cuMemAlloc(&p, 1));
    NEED(cuMemAlloc(&p, 1) == CUDA_ERROR_DEVICE_UNAVAILABLE);
    NEED_OK(cuMemAlloc(&p, 1));
}

/* With an environment that is not valid. */
static void role_bad_environment(void)
{
    NEED(cuInit(0) == CUDA_ERROR_INVALID_VALUE);
    NEED(cuInit(0) == CUDA_ERROR_INVALID_VALUE);
}

/* With SIMCUDA_DEVICES=2, SIMCUDA_MEMORY=8M, SIMCUDA_CONTEXT_MEMORY=3M and a directory of its own.
 */
static void role_devices(void)
{
    int count = 0, access = 0;
    CUuuid first, second;
    CUcontext c;
    size_t has_free, total;
    NEED_OK(cuInit(0));
    NEED_OK(cuDeviceGetCount(&count));
    NEED(count == 2);
    NEED_OK(cuDeviceGetUuid(&first, 0));
    NEED_OK(cuDeviceGetUuid(&second, 1));
    NEED(memcmp(&first, &second, sizeof first) != 0);
    NEED_OK(cuDeviceCanAccessPeer(&access, 0, 1));
    NEED(access == 1);
    NEED_OK(cuCtxCreate(&c, NULL, 0, 1));
    NEED_OK(cuMemGetInfo(&has_free, &total));
    NEED(total == 8 * MIB && has_free == 5 * MIB);
    CUcontext more;
    NEED_OK(cuCtxCreate(&more, NULL, 0, 1));
    NEED(cuCtxCreate(&more, NULL, 0, 1) == CUDA_ERROR_OUT_OF_MEMORY);
    NEED_OK(cuCtxCreate(&more, NULL, 0, 0));
    NEED_OK(cuMemGetInfo(&has_free, &total));
    NEED(has_free == 5 * MIB);
    CUdeviceptr p, q;
    NEED_OK(cuMemAlloc(&p, 4096));
    NEED_OK(cuCtxSetCurrent(c));
    NEED_OK(cuMemAlloc(&q, 4096));
    NEED_OK(cuMemsetD8(p, 5, 4096));
    NEED_OK(cuMemcpyPeer(q, c, p, more, 4096));
    unsigned char byte = 0;
    NEED_OK(cuMemcpyDtoH(&byte, q + 4095, 1));
    NEED(byte == 5);
    NEED(write(ROLE_SOCKET, &first, sizeof first) == (ssize_t)sizeof first);
}

/* With SIMCUDA_COPY_RATE=64M: says that it is there, copies 8 MiB in when it is told to, and says
 * so. */
static void role_copy(void)
{
    role_set_up();
    CUdeviceptr p;
    void *host;
    NEED_OK(cuMemAlloc(&p, 8 * MIB));
    NEED_OK(cuMemHostAlloc(&host, 8 * MIB, 0));
    roles_send(ROLE_SOCKET, -1);
    roles_receive(ROLE_SOCKET);
    NEED_OK(cuMemcpyHtoD(p, host, 8 * MIB));
    NEED_OK(cuMemcpyDtoD(p, p + 4 * MIB, 4 * MIB)); /* not throttled */
    NEED_OK(cuCtxSynchronize());
    roles_send(ROLE_SOCKET, -1);
}

static const struct {
    const char *name;
    void (*run)(void);
} roles[] = {
    {"import", role_import},
    {"make", role_make},
    {"hold", role_hold},
    {"exec", role_exec},
    {"touch-reserved", role_touch_reserved},
    {"touch-without-access", role_touch_without_access},
    {"touch-unmapped", role_touch_unmapped},
    {"copy-unmapped", role_copy_unmapped},
    {"touch-freed", role_touch_freed},
    {"touch-behind", role_touch_behind},
    {"exit-busy", role_exit_busy},
    {"exit-order", role_exit_order},
    {"fork", role_fork},
    {"fail", role_fail},
    {"bad-environment", role_bad_environment},
    {"devices", role_devices},
    {"copy", role_copy},
};

int roles_play(const char *name)
{
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(name, roles[i].name) == 0) {
            alarm(300); /* whatever hangs */
            roles[i].run();
            return 0;
        }
    }
    return 125;
}
