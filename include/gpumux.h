/*
 * gpumux.h: optional hints for programs that want to know about gpumux.
 *
 * No program needs this: an unmodified CUDA program runs under gpumux as it is. One that wants to
 * say in its log why it waited, or to choose larger buffers when it has the card for itself, can
 * ask here. There is no library to link: the symbol is there when libgpumux.so is preloaded, and
 * absent otherwise.
 */
#ifndef GPUMUX_H
#define GPUMUX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpumux_state {
    GPUMUX_ABSENT = 0, /* libgpumux.so is not preloaded */
    GPUMUX_COLD = 1,   /* it is, and waits for the first context, allocation or launch */
    GPUMUX_SHARED = 2, /* the GPU's memory and time are shared through gpumuxd, which may be away for now */
    GPUMUX_ALONE = 3,  /* no daemon, switched off, or lost: the program runs on the plain driver */
};

/* Defined by libgpumux.so. Takes no lock and makes no system call. Use gpumux_state() below. */
extern int gpumux_state_(void) __attribute__((weak));

/* The state of this process now: an enum gpumux_state. Callable at any time, from any thread. */
static inline int gpumux_state(void)
{
    return gpumux_state_ ? gpumux_state_() : GPUMUX_ABSENT;
}

/*
 * Work of this process on the GPU comes in `after_us` microseconds and takes about `for_us`, say
 * one request to a model. If the process is latency-critical (class latency or interactive) and the
 * daemon runs with --latency-mode=hint, the best-effort programs beside it stand still meanwhile,
 * for 50 ms at most.
 *
 * Requests at a steady rate are announced without it. While a program calls this, it announces all
 * of them itself.
 *
 * Call it a millisecond ahead: stopping takes 0.7. Later helps less, and a newer call takes the
 * place of one whose time has not come. It returns nothing and never fails: a hint that is of no
 * use, or one of more than a thousand a second, is ignored and counted (`mux-ctl status --json`).
 * Any thread may call it; it never waits.
 *
 * A program that is to run without gpumux as well finds it so, and links nothing:
 *
 *     void (*expect)(uint64_t, uint64_t) =
 *         (void (*)(uint64_t, uint64_t))dlsym(RTLD_DEFAULT, "gpumux_expect");
 *     if (expect)
 *         expect(1000, 1200);
 */
extern void gpumux_expect(uint64_t after_us, uint64_t for_us) __attribute__((weak));

#ifdef __cplusplus
}
#endif
#endif
