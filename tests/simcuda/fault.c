/*
 * Faults. Work that touches memory which is not there ends in the middle, and its context dies of
 * it, as on a GPU; the process lives on. What else in the process touches such memory dies by
 * SIGSEGV as ever: this handler takes itself away for it.
 */
#include "tests/simcuda/sim.h"

#include <setjmp.h>
#include <signal.h>

static __thread sigjmp_buf *way_out; /* of the work that this thread does; NULL: none */
static struct sigaction before;

static void on_fault(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    if (way_out != NULL && info->si_code > 0)
        siglongjmp(*way_out, 1);
    sigaction(number, &before, NULL);
    if (info->si_code <= 0) /* sent: it does not come again by itself */
        raise(number);
}

void sim_fault_open(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault,
                             .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, &before);
}

bool sim_fault_ends(void (*work)(const void *), const void *argument)
{
    sigjmp_buf here;
    way_out = &here;
    const bool is_over = sigsetjmp(here, 0) != 0;
    if (!is_over)
        work(argument);
    way_out = NULL;
    return is_over;
}

void sim_fault(void)
{
    siglongjmp(*way_out, 1);
}
