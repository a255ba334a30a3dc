/*
 * A preloaded library that fakes a program's clock, as libfaketime does: GM_FAKE_CLOCK is `fast`
 * (100 times), `slow` (a hundredth), `still`, or `jumps` (to and fro, by an hour, with each look).
 * Sleeps take as much less or more; nothing that has a limit ends where time stands still. The
 * simulated driver's own calls are left alone: that is the device.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define S 1000000000ll
#define EXPORT __attribute__((visibility("default")))
#define IS_DEVICE is_device(__builtin_return_address(0))
#define FOREVER (1ll << 60)

static char way(void)
{
    const char *text = getenv("GM_FAKE_CLOCK");
    return text ? text[1] : 'a';
}

static int is_device(const void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) != 0 && info.dli_fname &&
           strstr(info.dli_fname, "libcuda") != NULL;
}

static long long ns_of(const struct timespec *time)
{
    return time->tv_sec * S + time->tv_nsec;
}

static struct timespec time_of(long long ns)
{
    return (struct timespec){.tv_sec = ns / S, .tv_nsec = ns % S};
}

static long long look(clockid_t clock)
{
    static _Atomic long long began[2];
    static _Atomic unsigned looks;
    const int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    struct timespec time;
    syscall(SYS_clock_gettime, clock, &time);
    const long long now = ns_of(&time);
    if (clock > CLOCK_BOOTTIME || clock == CLOCK_PROCESS_CPUTIME_ID ||
        clock == CLOCK_THREAD_CPUTIME_ID || clock < 0)
        return now;
    long long none = 0, from;
    atomic_compare_exchange_strong(&began[is_wall], &none, now);
    from = atomic_load(&began[is_wall]);
    switch (way()) {
    case 'a': /* fast */
        return from + (now - from) * 100;
    case 'l': /* slow */
        return from + (now - from) / 100;
    case 't': /* still */
        return from;
    default: /* jumps */
        return now + (atomic_fetch_add(&looks, 1) % 2 ? 3600 * S : 0);
    }
}

/* How long it takes until `ns` of the faked clock have passed. */
static long long stretched(long long ns)
{
    switch (way()) {
    case 'a':
        return ns / 100;
    case 'l':
        return ns > FOREVER / 100 ? FOREVER : ns * 100;
    case 't':
        return ns > 0 ? FOREVER : 0;
    default:
        return ns;
    }
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (IS_DEVICE)
        return (int)syscall(SYS_clock_gettime, clock, time);
    *time = time_of(look(clock));
    return 0;
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    const long long ns = look(CLOCK_REALTIME);
    (void)zone;
    *time = (struct timeval){.tv_sec = ns / S, .tv_usec = ns % S / 1000};
    return 0;
}

EXPORT time_t time(time_t *to)
{
    const time_t now = look(CLOCK_REALTIME) / S;
    if (to)
        *to = now;
    return now;
}

EXPORT int nanosleep(const struct timespec *time, struct timespec *left)
{
    const struct timespec pause = IS_DEVICE ? *time : time_of(stretched(ns_of(time)));
    return (int)syscall(SYS_nanosleep, &pause, left);
}

EXPORT int ppoll(struct pollfd *wait, nfds_t n, const struct timespec *most, const sigset_t *mask)
{
    struct timespec pause = {0};
    if (most)
        pause = IS_DEVICE ? *most : time_of(stretched(ns_of(most)));
    return (int)syscall(SYS_ppoll, wait, n, most ? &pause : NULL, mask, (size_t)8);
}

EXPORT int poll(struct pollfd *wait, nfds_t n, int ms)
{
    const long long ns = ms * 1000000ll;
    const struct timespec pause = time_of(ms < 0 || IS_DEVICE ? ns : stretched(ns));
    return (int)syscall(SYS_ppoll, wait, n, ms < 0 ? NULL : &pause, NULL, (size_t)8);
}

/* `until` of the faked clock, as of the real one. */
static struct timespec real_of(clockid_t clock, const struct timespec *until)
{
    struct timespec now;
    const long long left = ns_of(until) - look(clock);
    syscall(SYS_clock_gettime, clock, &now);
    return time_of(ns_of(&now) + stretched(left > 0 ? left : 0));
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *change, pthread_mutex_t *mutex, clockid_t clock,
                                  const struct timespec *until)
{
    static int (*_Atomic real)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                               const struct timespec *);
    const struct timespec at = IS_DEVICE ? *until : real_of(clock, until);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    return real(change, mutex, clock, &at);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict change, pthread_mutex_t *restrict mutex,
                                  const struct timespec *restrict until)
{
    const struct timespec at = IS_DEVICE ? *until : real_of(CLOCK_REALTIME, until);
    static int (*_Atomic real)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                               const struct timespec *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    return real(change, mutex, CLOCK_REALTIME, &at);
}
