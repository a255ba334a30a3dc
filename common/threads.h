/* Threads beside a program's own. Calls nothing but the C library. */
#ifndef GM_COMMON_THREADS_H
#define GM_COMMON_THREADS_H

#include <pthread.h>
#include <signal.h>

/* Start a detached thread in which no signal handler runs: run(argument). `name`: 15 characters at
 * most. 0 or -errno. */
static inline int gm_thread_start_on(void *(*run)(void *argument), void *argument, const char *name)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return -error;
    pthread_setname_np(thread, name);
    pthread_detach(thread);
    return 0;
}

static inline int gm_thread_start(void *(*run)(void *argument), const char *name)
{
    return gm_thread_start_on(run, NULL, name);
}

#endif
