/*
 * GPU 0 as a program has it that knows nothing of gpumux: the driver's calls, the primary context,
 * and the kernels of tests/programs. For the benches' programs that are told what to do line by
 * line. (Areas of frames as the daemon has them are in bench/area.h.)
 *
 * A failure ends the program with the line "FAIL ..." on standard output, and without exit
 * handlers: other threads, gpumux's too, may be in the driver.
 */
#ifndef GM_BENCH_DEVICE_H
#define GM_BENCH_DEVICE_H

#include "common/clock.h"
#include "tests/programs/driver.h"

struct gm_bench_device {
    struct gm_driver cu;
    CUdevice device;
    CUcontext context;                 /* current in the thread that opened */
    CUmodule module;                   /* gm_kernels_ptx */
    uint64_t initialized, has_context; /* since when, by the monotonic clock */
};

/* Returns NULL, or the name that this machine's driver lacks (a static text). A call that fails
 * ends the program. */
const char *gm_bench_open(struct gm_bench_device *device);
void gm_bench_close(struct gm_bench_device *device);

/* End the program with this exit code. `format` is of one line, without its end. */
_Noreturn void gm_bench_fail(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a call that failed: code 3 and "FAIL call: error 2 CUDA_ERROR_OUT_OF_MEMORY". */
_Noreturn void gm_bench_fail_call(const struct gm_bench_device *device, CUresult result,
                                  const char *call);

static inline double gm_bench_ms_since(uint64_t from)
{
    return (double)(gm_now() - from) / (double)GM_MS;
}

/* Inline, because some programs time single calls. */
static inline void gm_bench_check(const struct gm_bench_device *device, CUresult result,
                                  const char *call)
{
    if (result != CUDA_SUCCESS)
        gm_bench_fail_call(device, result, call);
}
#define GM_CU(device, call, ...) gm_bench_check(device, (device)->cu.call(__VA_ARGS__), #call)

#endif
