/*
 * gm_worker's modes about hints (include/gpumux.h). They have some work on the GPU first, so that
 * the program's gate is open. See worker.h.
 */
#include "tests/programs/worker.h"

#include <dlfcn.h>
#include <errno.h>

#include "common/clock.h"

#define BYTES (2 * GM_MIB)
#define FLOOD 5000u /* hints at once */

typedef void expect_call(uint64_t after_us, uint64_t for_us);

static expect_call *find(struct gm_worker *worker)
{
    CUdeviceptr at = 0;
    GM_CU(worker, cuMemAlloc, &at, BYTES); /* it stays */
    GM_CU(worker, cuMemsetD32, at, 7, BYTES / 4);
    expect_call *expect = NULL;
    *(void **)&expect = dlsym(RTLD_DEFAULT, "gpumux_expect");
    if (expect == NULL)
        gm_fail(worker, "there is no gpumux_expect");
    gm_say_ready(worker);
    return expect;
}

/* Say that work of --hold comes, now and 10 ms later in turn, with --pause between. */
void gm_mode_expect(struct gm_worker *worker)
{
    expect_call *expect = find(worker);
    for (; gm_is_more(worker, worker->done); worker->done++)
        expect(worker->done % 2 * 10000, worker->hold_ns / GM_US);
}

/* Requests, without a word about them: the shim finds the rhythm. */
void gm_mode_steady(struct gm_worker *worker)
{
    CUdeviceptr at = 0;
    GM_CU(worker, cuMemAlloc, &at, BYTES);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        GM_CU(worker, cuMemsetD32Async, at, (unsigned)worker->done, BYTES / 4, NULL);
        GM_CU(worker, cuCtxSynchronize);
        if (worker->done == 0)
            gm_say_ready(worker);
    }
}

/* Say what cannot be, and too much. Nothing happens, and it takes no time. */
void gm_mode_nonsense(struct gm_worker *worker)
{
    expect_call *expect = find(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        const uint64_t start = gm_now();
        errno = ENOTTY;
        expect(0, 0);
        expect(0, 1);
        expect(UINT64_MAX, 1000);
        expect(1000, UINT64_MAX);
        expect(UINT64_MAX, UINT64_MAX);
        expect(10 * 1000 * 1000 + 1, 1000);
        for (unsigned i = 0; i < FLOOD; i++)
            expect(0, 1200);
        worker->mismatches += errno != ENOTTY;
        /* If it waited for a daemon that stands still, it would be for ten seconds. */
        worker->mismatches += gm_now() - start > 5 * GM_SLOW * GM_S;
    }
}
