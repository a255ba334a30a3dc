/*
 * gpumux.h: optional hints for programs that want to know about gpumux.
 *
 * No program needs this: an unmodified CUDA program runs under gpumux as it is. One that wants to
 * say in its log why it waited, or to choose larger buffers when it has the card for itself, can ask
 * here. There is no library to link: the symbol is there when libgpumux.so is preloaded, and absent
 * otherwise.
 */
#ifndef GPUMUX_H
#define GPUMUX_H

#ifdef __cplusplus
extern "C" {
#endif

enum gpumux_state {
    GPUMUX_ABSENT = 0, /* libgpumux.so is not preloaded */
    GPUMUX_COLD = 1,   /* it is, and waits for the first context, allocation or launch */
    GPUMUX_SHARED = 2, /* connected: the GPU's memory and time are shared through gpumuxd */
    GPUMUX_ALONE = 3,  /* no daemon, switched off, or lost: the program runs on the plain driver */
};

/* Defined by libgpumux.so. Takes no lock and makes no system call. Use gpumux_state() below. */
extern int gpumux_state_(void) __attribute__((weak));

/* The state of this process now: an enum gpumux_state. Callable at any time, from any thread. */
static inline int gpumux_state(void)
{
    return gpumux_state_ ? gpumux_state_() : GPUMUX_ABSENT;
}

#ifdef __cplusplus
}
#endif
#endif
