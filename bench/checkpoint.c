/*
 * bench_checkpoint: suspends and resumes other processes with the driver's own calls, for
 * bench/switch
 * --peer checkpoint. A line on standard input is a request, answered by one line on standard
 * output:
 *
 *   out PID     cuCheckpointProcessLock and cuCheckpointProcessCheckpoint
 *   back PID    cuCheckpointProcessRestore and cuCheckpointProcessUnlock
 *
 * answers "ms=7301.2 lock_ms=1.1" (of the whole, and of the lock or unlock in it) or "FAIL call:
 * error N NAME". Ends with the input, code 0; with code 3 and a FAIL line if this driver has no
 * such calls (they came with CUDA 12.8) or cannot be used.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

#include "common/clock.h"

struct calls {
    __typeof__(cuInit) *cuInit;
    __typeof__(cuGetErrorName) *cuGetErrorName;
    __typeof__(cuCheckpointProcessLock) *cuCheckpointProcessLock;
    __typeof__(cuCheckpointProcessCheckpoint) *cuCheckpointProcessCheckpoint;
    __typeof__(cuCheckpointProcessRestore) *cuCheckpointProcessRestore;
    __typeof__(cuCheckpointProcessUnlock) *cuCheckpointProcessUnlock;
};

/* NULL, or what is not there. */
static const char *find_calls(struct calls *calls)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return "libcuda.so.1";
#define GM_FIND(name)                                                                              \
    *(void **)&calls->name = dlsym(library, #name);                                                \
    if (calls->name == NULL)                                                                       \
        return #name;
    GM_FIND(cuInit)
    GM_FIND(cuGetErrorName)
    GM_FIND(cuCheckpointProcessLock)
    GM_FIND(cuCheckpointProcessCheckpoint)
    GM_FIND(cuCheckpointProcessRestore)
    GM_FIND(cuCheckpointProcessUnlock)
#undef GM_FIND
    return NULL;
}

static bool is_fine(const struct calls *calls, CUresult result, const char *call)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return true;
    if (calls->cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "?";
    printf("FAIL %s: error %d %s\n", call, (int)result, name);
    fflush(stdout);
    return false;
}

static void answer(uint64_t from, uint64_t lock_ns)
{
    printf("ms=%.3f lock_ms=%.3f\n", (double)(gm_now() - from) / (double)GM_MS,
           (double)lock_ns / (double)GM_MS);
    fflush(stdout);
}

static void suspend(const struct calls *calls, int pid)
{
    CUcheckpointLockArgs lock = {.timeoutMs = 10000};
    CUcheckpointCheckpointArgs out = {{0}};
    uint64_t from = gm_now();
    if (!is_fine(calls, calls->cuCheckpointProcessLock(pid, &lock), "cuCheckpointProcessLock"))
        return;
    uint64_t locked = gm_now();
    if (is_fine(calls, calls->cuCheckpointProcessCheckpoint(pid, &out),
                "cuCheckpointProcessCheckpoint"))
        answer(from, locked - from);
}

static void resume(const struct calls *calls, int pid)
{
    CUcheckpointRestoreArgs back;
    CUcheckpointUnlockArgs unlock = {{0}};
    memset(&back, 0, sizeof(back));
    uint64_t from = gm_now();
    if (!is_fine(calls, calls->cuCheckpointProcessRestore(pid, &back),
                 "cuCheckpointProcessRestore"))
        return;
    uint64_t restored = gm_now();
    if (is_fine(calls, calls->cuCheckpointProcessUnlock(pid, &unlock), "cuCheckpointProcessUnlock"))
        answer(from, gm_now() - restored);
}

int main(void)
{
    struct calls calls;
    const char *missing = find_calls(&calls);
    char line[64], verb[8];
    int pid;
    if (missing != NULL) {
        printf("FAIL this driver has no %s\n", missing);
        return 3;
    }
    if (!is_fine(&calls, calls.cuInit(0), "cuInit"))
        return 3;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (sscanf(line, "%7s %d", verb, &pid) != 2 ||
            (strcmp(verb, "out") != 0 && strcmp(verb, "back") != 0)) {
            printf("FAIL no such request: %s", line);
            return 2;
        }
        if (strcmp(verb, "out") == 0)
            suspend(&calls, pid);
        else
            resume(&calls, pid);
    }
    return 0;
}
