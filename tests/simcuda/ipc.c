/*
 * Sharing linear memory between processes (cuIpc*). The first cuIpcGetMemHandle puts the memory, at
 * its address, into a file ipc-PID-ID of SIMCUDA_DIR; who opens the handle maps that file. It goes
 * with the allocation, and a handle of a process that is gone opens nothing.
 */
#include "tests/simcuda/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IPC_MAGIC 0x6370696d6973ull /* "simipc" */
#define PAGE 4096ull

struct ipc_name {
    uint64_t magic, dir_hash, id, size;
    int32_t pid, device;
    uint64_t unused[2];
    uint64_t check;
};
_Static_assert(sizeof(struct ipc_name) == sizeof(CUipcMemHandle), "it fills a handle");

static uint64_t check_of(const struct ipc_name *name)
{
    return sim_hash(name, offsetof(struct ipc_name, check), 0);
}

static void path_of(char *path, size_t size, int pid, uint64_t id)
{
    snprintf(path, size, "%s/ipc-%d-%llu", sim_options.dir, pid, (unsigned long long)id);
}

void sim_ipc_forget(const struct sim_range *range)
{
    char path[sizeof sim_options.dir + 64];
    path_of(path, sizeof path, (int)getpid(), range->id);
    unlink(path);
}

/* Put the bytes of a range into its file, and the file in their place. Under the va lock. */
static bool put_into_file(const struct sim_range *range)
{
    char path[sizeof sim_options.dir + 64];
    const size_t size = (range->size + PAGE - 1) & ~(PAGE - 1);
    void *at = (void *)(uintptr_t)range->start;
    bool is_done = false;
    path_of(path, sizeof path, (int)getpid(), range->id);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    void *copy = ftruncate(fd, (off_t)size) == 0
                     ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (copy != MAP_FAILED) {
        memcpy(copy, at, size);
        is_done = mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
    }
    close(fd);
    if (!is_done)
        unlink(path);
    return is_done;
}

SIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
    SIM_ENTER(cuIpcGetMemHandle);
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_ctx_wait(ctx); /* what moves below must not be in use */
    result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    struct sim_range *range = sim_range_find(dptr);
    if (range != NULL && range->kind == SIM_RANGE_LINEAR) {
        if (!range->is_exported)
            range->is_exported = put_into_file(range);
        result = range->is_exported ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        struct ipc_name name = {.magic = IPC_MAGIC,
                                .dir_hash = sim_options.dir_hash,
                                .id = range->id,
                                .size = range->size,
                                .pid = (int32_t)getpid(),
                                .device = range->device};
        name.check = check_of(&name);
        memcpy(handle, &name, sizeof name);
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuIpcGetMemHandle);

/* Under the va lock: where this name is open already; NULL: nowhere. */
static struct sim_range *find_opened(const struct ipc_name *name)
{
    struct sim_range *range;
    for (size_t i = 0; (range = sim_range_at(i)) != NULL; i++)
        if (range->kind == SIM_RANGE_OPENED && range->peer_id == name->id &&
            range->peer_pid == name->pid)
            return range;
    return NULL;
}

static CUresult open_name(struct sim_ctx *ctx, const struct ipc_name *name, CUdeviceptr *pdptr)
{
    char path[sizeof sim_options.dir + 64];
    struct stat status;
    const size_t size = (name->size + PAGE - 1) & ~(PAGE - 1);
    void *p = MAP_FAILED;
    path_of(path, sizeof path, name->pid, name->id);
    const int fd = kill(name->pid, 0) == 0 || errno == EPERM ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0 && fstat(fd, &status) == 0 && (uint64_t)status.st_size == size)
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_range range = {.start = (uint64_t)(uintptr_t)p,
                                    .size = name->size,
                                    .kind = SIM_RANGE_OPENED,
                                    .device = name->device,
                                    .id = sim_range_number(),
                                    .peer_id = name->id,
                                    .peer_pid = name->pid,
                                    .opens = 1,
                                    .ctx = ctx};
    sim_range_insert(&range);
    *pdptr = range.start;
    return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *pdptr, const CUipcMemHandle *handle, unsigned flags)
{
    struct sim_ctx *ctx;
    struct ipc_name name;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&name, handle, sizeof name);
    if (pdptr == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || name.magic != IPC_MAGIC ||
        name.check != check_of(&name) || name.dir_hash != sim_options.dir_hash)
        return CUDA_ERROR_INVALID_VALUE;
    if (name.pid == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&sim_va_lock);
    struct sim_range *opened = find_opened(&name);
    if (opened != NULL) {
        opened->opens++;
        *pdptr = opened->start;
    } else {
        result = open_name(ctx, &name, pdptr);
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}

SIM_API CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
    SIM_ENTER(cuIpcOpenMemHandle);
    return open_handle(pdptr, &handle, flags);
}
SIM_ENTRY(cuIpcOpenMemHandle);

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle,
                                       unsigned int flags)
{
    SIM_ENTER(cuIpcOpenMemHandle);
    return open_handle(pdptr, &handle, flags);
}
SIM_ENTRY(cuIpcOpenMemHandle_v2);

SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    SIM_ENTER(cuIpcCloseMemHandle);
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    sim_ctx_wait(ctx);
    result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    struct sim_range *range = sim_range_find(dptr);
    if (range != NULL && range->kind == SIM_RANGE_OPENED && range->start == dptr) {
        result = CUDA_SUCCESS;
        if (--range->opens == 0) {
            munmap((void *)(uintptr_t)range->start, (range->size + PAGE - 1) & ~(PAGE - 1));
            sim_range_remove(sim_range_index(dptr), 1);
        }
    }
    pthread_mutex_unlock(&sim_va_lock);
    return result;
}
SIM_ENTRY(cuIpcCloseMemHandle);

/* A stand-in for a dma-buf: an fd that only says that there would be one. Whole pages of device
 * memory, however it was made. */
SIM_API CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                               CUmemRangeHandleType type, unsigned long long flags)
{
    SIM_ENTER(cuMemGetHandleForAddressRange);
    if (handle == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || size == 0 ||
        dptr % PAGE != 0 || size % PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *range = sim_range_find(dptr);
    const bool is_device = range != NULL && range->device >= 0;
    pthread_mutex_unlock(&sim_va_lock);
    if (!is_device)
        return CUDA_ERROR_INVALID_VALUE;
    const int fd = memfd_create("simcuda-dmabuf", MFD_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)handle = fd;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuMemGetHandleForAddressRange);
