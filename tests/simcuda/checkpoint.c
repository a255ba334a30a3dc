/*
 * Checkpoints, as far as they tell whether one was begun: the states of this process, and of others
 * only that they are there. Nothing is suspended, so all of it can be restored. (A real driver
 * cannot restore memory that another process made.)
 */
#include "tests/simcuda/sim.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static _Atomic CUprocessState state = CU_PROCESS_STATE_RUNNING;

/* Go from one state to another, if it is this process. */
static CUresult go(int pid, CUprocessState from, CUprocessState to)
{
    if (pid != getpid())
        return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
    return atomic_compare_exchange_strong(&state, &from, to) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_ILLEGAL_STATE;
}

SIM_API CUresult cuCheckpointProcessGetState(int pid, CUprocessState *current)
{
    SIM_ENTER(cuCheckpointProcessGetState);
    if (current == NULL || pid != getpid())
        return CUDA_ERROR_INVALID_VALUE;
    *current = atomic_load(&state);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCheckpointProcessGetState);

SIM_API CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    SIM_ENTER(cuCheckpointProcessLock);
    (void)args;
    return go(pid, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
}
SIM_ENTRY(cuCheckpointProcessLock);

SIM_API CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    SIM_ENTER(cuCheckpointProcessCheckpoint);
    (void)args;
    return go(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
}
SIM_ENTRY(cuCheckpointProcessCheckpoint);

SIM_API CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    SIM_ENTER(cuCheckpointProcessRestore);
    (void)args;
    return go(pid, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
}
SIM_ENTRY(cuCheckpointProcessRestore);

SIM_API CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    SIM_ENTER(cuCheckpointProcessUnlock);
    (void)args;
    return go(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}
SIM_ENTRY(cuCheckpointProcessUnlock);
