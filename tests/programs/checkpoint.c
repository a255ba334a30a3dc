/*
 * Locks a process for a checkpoint: the one whose pid is given, or with none this one, which has a
 * context and 8 MiB. If it can be locked it goes through all of a checkpoint. Prints one line of
 * results, as numbers: lock, checkpoint and the rest.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void need(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d\n", call, (int)result);
    exit(3);
}

int main(int argc, char **argv)
{
    const int pid = argc > 1 ? atoi(argv[1]) : getpid();
    CUcontext context;
    CUdeviceptr memory;
    need(cuInit(0), "cuInit");
    if (argc == 1) {
        need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
        need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        need(cuMemAlloc(&memory, 8u << 20), "cuMemAlloc");
    }
    const CUresult locked = cuCheckpointProcessLock(pid, NULL);
    printf("lock %d", (int)locked);
    printf(" checkpoint %d", (int)cuCheckpointProcessCheckpoint(pid, NULL));
    if (locked == CUDA_SUCCESS) {
        printf(" restore %d", (int)cuCheckpointProcessRestore(pid, NULL));
        printf(" unlock %d", (int)cuCheckpointProcessUnlock(pid, NULL));
    }
    printf("\n");
    if (argc == 1)
        need(cuMemFree(memory), "cuMemFree");
    return 0;
}
