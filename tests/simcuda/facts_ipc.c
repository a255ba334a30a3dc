/* Facts of sharing memory between processes: one that has it and one that opens it. */
#include "tests/simcuda/facts.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (4 * MIB)
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static int to_opener[2], to_owner[2];

static void put(int fd, const void *bytes, size_t n)
{
    if (write(fd, bytes, n) != (ssize_t)n)
        exit(1);
}

/* The other side's; also flushes what was printed, so that the lines come in order. */
static void take(int fd, void *bytes, size_t n)
{
    fflush(stdout);
    if (read(fd, bytes, n) != (ssize_t)n)
        exit(1);
}

static void yield_to(int fd)
{
    fflush(stdout);
    put(fd, "!", 1);
}

static void begin(void)
{
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
}

static void ask_opened(const CUipcMemHandle *handle)
{
    CUdeviceptr at = 0, again = 0, base = 0, other;
    CUipcMemHandle own;
    size_t size = 0;
    unsigned value = 0;
    fact("open with flags 0", cuIpcOpenMemHandle(&other, *handle, 0));
    NEED(cuIpcOpenMemHandle(&at, *handle, LAZY));
    fact("open it again", cuIpcOpenMemHandle(&again, *handle, LAZY));
    fact_number("  at the same address", again == at);
    NEED(cuMemcpyDtoH(&value, at + BYTES - 4, 4));
    fact_number("what the owner wrote", value);
    NEED(cuMemsetD32(at, 7, 1));
    NEED(cuCtxSynchronize());
    fact("its range", cuMemGetAddressRange(&base, &size, at + 4096));
    fact_number("  from its base", base == at);
    fact_number("  bytes", (long long)size);
    fact("share it further", cuIpcGetMemHandle(&own, at));
    fact("free it", cuMemFree(at));
    fact("close an address inside", cuIpcCloseMemHandle(at + 4096));
    fact("close it", cuIpcCloseMemHandle(at));
    fact("  it is still there", cuMemcpyDtoH(&value, at, 4));
    fact("close it again", cuIpcCloseMemHandle(at));
    fact("close it once more", cuIpcCloseMemHandle(at));
}

/* Forked before CUDA was initialized. */
static void be_opener(void)
{
    CUipcMemHandle handle;
    CUcontext popped;
    CUdeviceptr at;
    char go;
    take(to_opener[0], &handle, sizeof handle);
    begin();
    ask_opened(&handle);
    NEED(cuCtxPopCurrent(&popped));
    fact("open without a context", cuIpcOpenMemHandle(&at, handle, LAZY));
    fact("close without a context", cuIpcCloseMemHandle(4096));
    NEED(cuCtxPushCurrent(popped));
    yield_to(to_owner[1]);
    take(to_opener[0], &go, 1);
    fact("open what was freed", cuIpcOpenMemHandle(&at, handle, LAZY));
    exit(0);
}

static void ask_owner(CUipcMemHandle *handle, CUdeviceptr at)
{
    CUipcMemHandle again, garbage;
    CUdeviceptr va, other;
    CUmemGenericAllocationHandle physical;
    const CUmemAllocationProp prop =
        fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    fact("share no memory", cuIpcGetMemHandle(handle, 0));
    NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
    NEED(cuMemCreate(&physical, 2 * MIB, &prop, 0));
    NEED(cuMemMap(va, 2 * MIB, 0, physical, 0));
    fact("share mapped memory", cuIpcGetMemHandle(handle, va));
    NEED(cuMemUnmap(va, 2 * MIB));
    NEED(cuMemRelease(physical));
    NEED(cuMemAddressFree(va, 2 * MIB));
    fact("share memory", cuIpcGetMemHandle(handle, at));
    fact("share it again", cuIpcGetMemHandle(&again, at));
    fact_number("  the same handle", memcmp(handle, &again, sizeof again) == 0);
    fact("share an address inside", cuIpcGetMemHandle(&again, at + MIB));
    fact_number("  the same handle", memcmp(handle, &again, sizeof again) == 0);
    fact("open it in its own process", cuIpcOpenMemHandle(&other, *handle, LAZY));
    fact("close it in its own process", cuIpcCloseMemHandle(at));
    memset(&garbage, 0xa5, sizeof garbage);
    fact("open what is no handle", cuIpcOpenMemHandle(&other, garbage, LAZY));
}

void facts_of_ipc(void)
{
    CUipcMemHandle handle;
    CUdeviceptr at;
    unsigned value = 0;
    int status = -1;
    char go;
    if (pipe(to_opener) != 0 || pipe(to_owner) != 0)
        exit(1);
    fflush(stdout);
    const pid_t opener = fork();
    if (opener == 0)
        be_opener();
    begin();
    NEED(cuMemAlloc(&at, BYTES));
    NEED(cuMemsetD32(at, 42, BYTES / 4));
    NEED(cuCtxSynchronize());
    ask_owner(&handle, at);
    fflush(stdout);
    put(to_opener[1], &handle, sizeof handle);
    take(to_owner[0], &go, 1);
    NEED(cuMemcpyDtoH(&value, at, 4));
    fact_number("what the opener wrote", value);
    fact("free what is not open any more", cuMemFree(at));
    yield_to(to_opener[1]);
    waitpid(opener, &status, 0);
    fact_number("the opener's end", status);
}
