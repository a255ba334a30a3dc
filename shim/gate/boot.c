/* One thread starts the shim; others wait on the state word. Driver calls of the start itself go
 * to the real driver (gm_boot_is_mine). */
#include "shim/gate/boot.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic uint32_t gm_boot_state; /* enum gm_boot_state */
static gm_boot_start *_Atomic gm_boot_how;
static __thread bool gm_boot_is_mine __attribute__((tls_model("initial-exec")));
static bool gm_boot_is_child; /* set before the child makes threads */

void gm_boot_by(gm_boot_start *start)
{
    atomic_store(&gm_boot_how, start);
    atomic_thread_fence(memory_order_release);
}

static void gm_boot_set(enum gm_boot_state state)
{
    atomic_store(&gm_boot_state, state);
    syscall(SYS_futex, &gm_boot_state, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

enum gm_boot_state gm_boot(void)
{
    for (;;) {
        uint32_t state = atomic_load_explicit(&gm_boot_state, memory_order_acquire);
        if (state >= GM_BOOT_LIVE)
            return (enum gm_boot_state)state;
        if (gm_boot_is_mine)
            return GM_BOOT_COLD;
        if (state == GM_BOOT_BOOT) {
            syscall(SYS_futex, &gm_boot_state, FUTEX_WAIT_PRIVATE, GM_BOOT_BOOT, NULL, NULL, 0);
            continue;
        }
        atomic_thread_fence(memory_order_acquire); /* with gm_boot_by's */
        gm_boot_start *start = atomic_load(&gm_boot_how);
        if (start == NULL)
            return GM_BOOT_COLD;
        gm_boot_is_mine = true; /* before BOOT: a signal handler must not wait for its own thread */
        if (!atomic_compare_exchange_strong(&gm_boot_state, &state, GM_BOOT_BOOT)) {
            gm_boot_is_mine = false;
            continue;
        }
        int saved = errno;
        enum gm_boot_state next = start();
        gm_boot_is_mine = false;
        gm_boot_set(next);
        errno = saved;
        return next;
    }
}

bool gm_boot_is_over(void)
{
    return atomic_load_explicit(&gm_boot_state, memory_order_acquire) >= GM_BOOT_LIVE;
}

bool gm_boot_has_begun(void)
{
    const uint32_t state = atomic_load(&gm_boot_state);
    return state == GM_BOOT_BOOT || state == GM_BOOT_LIVE;
}

void gm_boot_part(void)
{
    gm_boot_is_mine = false;
    gm_boot_is_child = true;
    atomic_store(&gm_boot_state, GM_BOOT_DEAD);
}

bool gm_boot_is_forked(void)
{
    return gm_boot_is_child;
}
