/*
 * Time as it is. What the shim asks of the C library by these names comes here, and goes to the
 * kernel or to the C library itself. So a library that fakes a program's clock (libfaketime)
 * changes neither how long the shim waits nor what it answers, and a daemon whose clock runs right
 * need not wait for it. The system calls are those of the C library, for programs that filter
 * theirs. Nothing here is exported: the program's own calls go where they went.
 *
 * Not in the object library that test programs link, whose clock would change.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/entry/load.h"

typedef int gm_clock_get(clockid_t clock, struct timespec *time);
typedef int gm_clock_wait(pthread_cond_t *change, pthread_mutex_t *mutex, clockid_t clock,
                          const struct timespec *until);

extern void __tsan_init(void) __attribute__((weak)); /* NULL: no such program */

/* NULL: before the constructor, or a C library of another make. */
static gm_clock_get *_Atomic gm_clock_real_get;
static gm_clock_wait *_Atomic gm_clock_real_wait;

__attribute__((constructor)) static void gm_clock_begin(void)
{
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *get = library ? gm_real_dlsym(library, "clock_gettime") : NULL;
    void *wait = library ? gm_real_dlsym(library, "pthread_cond_clockwait") : NULL;
    /* It was in libpthread once, and ThreadSanitizer must see that a wait gives the mutex away.
     * Then a library that fakes it is believed. */
    if (!wait || __tsan_init)
        wait = gm_real_dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    atomic_store(&gm_clock_real_get, (gm_clock_get *)get);
    atomic_store(&gm_clock_real_wait, (gm_clock_wait *)wait);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    gm_clock_get *real = atomic_load_explicit(&gm_clock_real_get, memory_order_relaxed);
    return real ? real(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
}

int pthread_cond_clockwait(pthread_cond_t *change, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until)
{
    if (!atomic_load(&gm_clock_real_wait))
        gm_clock_begin();
    return atomic_load(&gm_clock_real_wait)(change, mutex, clock, until);
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    return (int)syscall(SYS_clock_nanosleep, CLOCK_REALTIME, 0, time, left);
}

/* Declared here: the header's own may be inline. */
struct pollfd;
int poll(struct pollfd *wait, unsigned long n, int ms);
int ppoll(struct pollfd *wait, unsigned long n, const struct timespec *most, const void *mask);

int ppoll(struct pollfd *wait, unsigned long n, const struct timespec *most, const void *mask)
{
    struct timespec time = most ? *most : (struct timespec){0}; /* the kernel changes it */
    return (int)syscall(SYS_ppoll, wait, n, most ? &time : NULL, mask, (size_t)8);
}

int poll(struct pollfd *wait, unsigned long n, int ms)
{
#ifdef SYS_poll
    return (int)syscall(SYS_poll, wait, n, ms);
#else
    const struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    return ppoll(wait, n, ms < 0 ? NULL : &most, NULL);
#endif
}
