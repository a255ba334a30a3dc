/*
 * The fake system: the clock, how much memory there is, the claim on the GPU, and the two system
 * calls that the engine makes. The linker puts __wrap_x in the place of x.
 */
#include "tests/sim/engine/machine.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/memory/limits.h"

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
        return __real_clock_gettime(clock, time);
    machine.clock_reads += clock == CLOCK_MONOTONIC;
    *time = gm_timespec(machine.now);
    return 0;
}

/* There may be no memory for a message to a program. */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    const bool is_message = n == 1 && size == sizeof(struct gm_batch);
    if (is_message && machine.is_faulty && draw(&machine.memory, 400) == 0)
        return NULL;
    return __real_calloc(n, size);
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list list;
    if (number == SYS_futex)
        return 0;
    require(number == SYS_pidfd_open, "a system call that is not faked: %ld", number);
    va_start(list, number);
    const pid_t pid = va_arg(list, pid_t);
    va_end(list);
    return uv_fake_pidfd(pid);
}

void gm_limits_read(struct gm_limits *limits, const char *root)
{
    (void)root;
    *limits = (struct gm_limits){.memory = UINT64_MAX, .group = UINT64_MAX};
}

int gm_limits_fit(const struct gm_limits *limits, uint64_t *pinned, uint64_t paged, char *why,
                  size_t why_size)
{
    (void)limits;
    (void)pinned;
    (void)paged;
    (void)why;
    (void)why_size;
    return 0;
}

int gm_claim_open(struct gm_claim **claim, const unsigned char uuid[16], gm_claim_user *user_name,
                  char *text, size_t size)
{
    (void)uuid;
    (void)user_name;
    (void)size;
    text[0] = '\0';
    *claim = NULL;
    return 0;
}

void gm_claim_close(struct gm_claim *claim)
{
    (void)claim;
}
