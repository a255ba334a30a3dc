/*
 * A launch with nothing in it, bare and gated. The gate is shim/gate/gate.c itself, on a page and
 * slots in this process, and the ioctl shim/entry/ioctl.c; this file plays the parts of the shim
 * that the fast path never enters, and the ioctl of the C library.
 */
#include "bench/gate_call.h"

#include <sys/ioctl.h>
#include <sys/mman.h>

#include "shim/driver/rm.h"
#include "shim/entry/load.h"
#include "shim/entry/procaddr.h"
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"

#define GM_EXPORT __attribute__((visibility("default")))

typedef int gm_empty_call(void *, unsigned, unsigned, unsigned, void *, void **);

static __attribute__((noinline)) int gm_empty(void *function, unsigned x, unsigned y, unsigned z,
                                              void *stream, void **params)
{
    (void)function;
    (void)x;
    (void)y;
    (void)z;
    (void)stream;
    (void)params;
    return 0;
}

/* As a member of struct gm_real: the compiler cannot know what it points to. */
static gm_empty_call *volatile gm_real_empty = gm_empty;

enum gm_boot_state gm_boot(void)
{
    return GM_BOOT_LIVE;
}

bool gm_boot_is_over(void)
{
    return true;
}

static void want(bool is_hurried)
{
    (void)is_hurried;
}

static const struct gm_gate_calls calls = {.want = want};

GM_EXPORT int gm_bench_bare(void *function, unsigned x, unsigned y, unsigned z, void *stream,
                            void **params)
{
    return gm_real_empty(function, x, y, z, stream, params);
}

GM_EXPORT int gm_bench_gated(void *function, unsigned x, unsigned y, unsigned z, void *stream,
                             void **params)
{
    gm_empty_call *call = gm_real_empty;
    if (__builtin_expect(!call, 0))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct gm_slot *slot = gm_gate_enter();
    if (__builtin_expect(!slot, 0))
        return (int)gm_gate_refusal();
    int result = call(function, x, y, z, stream, params);
    gm_gate_leave(slot);
    return result;
}

/* ---- ioctl ---- */

int gm_bench_ioctl(int fd, unsigned long request, ...); /* shim/entry/ioctl.c */

static __attribute__((noinline)) int gm_empty_ioctl(int fd, unsigned long request, ...)
{
    (void)fd;
    (void)request;
    return 0;
}

static int (*volatile gm_real_ioctl)(int, unsigned long, ...) = gm_empty_ioctl;

void *gm_real_dlsym(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return (void *)gm_empty_ioctl;
}

bool gm_reach_disabled(void)
{
    return false;
}

#define GM_IOCTL_CALL(name, call)                                                                  \
    GM_EXPORT int name(void *function, unsigned x, unsigned y, unsigned z, void *stream,           \
                       void **params)                                                              \
    {                                                                                              \
        static struct gm_rm_control control = {.command = GM_RM_GET_TIMESLICE};                    \
        (void)function, (void)x, (void)y, (void)z, (void)stream, (void)params;                     \
        return call;                                                                               \
    }
GM_IOCTL_CALL(gm_bench_ioctl_bare, gm_real_ioctl(1, TIOCGWINSZ, &control))
GM_IOCTL_CALL(gm_bench_ioctl_other, gm_bench_ioctl(1, TIOCGWINSZ, &control))
GM_IOCTL_CALL(gm_bench_ioctl_driver,
              gm_bench_ioctl(1, GM_RM_REQUEST(GM_RM_CONTROL, struct gm_rm_control), &control))

/* ---- the gate ---- */

GM_EXPORT _Bool gm_bench_attach(_Bool is_fenced)
{
    void *area = mmap(NULL, sizeof(struct gm_ctl) + sizeof(struct gm_stat), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return false;
    struct gm_ctl *ctl = area;
    struct gm_stat *stat = (struct gm_stat *)(void *)(ctl + 1);
    atomic_store(&ctl->gate, GM_GATE_OPEN);
    return (is_fenced || gm_gate_membarrier_register()) &&
           gm_gate_attach(ctl, stat, !is_fenced, &calls) == 0;
}
