/*
 * A list, and a pair of sockets that wakes the link thread. No eventfd: the program may close fds
 * that it does not know and reuse the number for a file of its own, and a send to that fails, but a
 * write would not. After a loss for good the link thread waits on a condition.
 */
#include "shim/link/work.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/locks.h"
#include "shim/link/files.h"

#define GM_WORK_SOME 16 /* between two messages of the daemon */

/* On the stack of the thread that waits. */
struct gm_work {
    CUresult (*work)(void *argument);
    void *argument;
    CUresult result;
    bool is_done;
    pthread_cond_t done;
    struct gm_work *next;
};

static int gm_work_wake[2] = {-1, -1}; /* the link thread reads the first */

/* Guards what follows. */
static struct gm_lock gm_work_lock = GM_LOCK_INITIALIZER(GM_LOCK_WORK);
static pthread_cond_t gm_work_comes = PTHREAD_COND_INITIALIZER;
static struct gm_work *gm_work_list; /* in order */
static struct gm_work **gm_work_end = &gm_work_list;

int gm_work_open(void)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gm_work_wake) != 0)
        return -errno;
    gm_work_wake[0] = gm_files_lift(gm_work_wake[0]);
    gm_work_wake[1] = gm_files_lift(gm_work_wake[1]);
    return 0;
}

void gm_work_close(void)
{
    for (int i = 0; i < 2; i++) {
        if (gm_work_wake[i] >= 0)
            close(gm_work_wake[i]);
        gm_work_wake[i] = -1;
    }
}

int gm_work_fd(void)
{
    return gm_work_wake[0];
}

/* A full socket wakes the link thread already. */
void gm_work_knock(void)
{
    send(gm_work_wake[1], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

CUresult gm_work_run(CUresult (*work)(void *argument), void *argument)
{
    struct gm_work mine = {.work = work, .argument = argument};
    pthread_cond_init(&mine.done, NULL);
    gm_lock(&gm_work_lock);
    *gm_work_end = &mine;
    gm_work_end = &mine.next;
    pthread_cond_signal(&gm_work_comes);
    gm_work_knock();
    while (!mine.is_done)
        gm_lock_wait(&mine.done, &gm_work_lock);
    gm_unlock(&gm_work_lock);
    pthread_cond_destroy(&mine.done);
    return mine.result;
}

/* Do at most `most` works. Call it with the lock; it is released during each. */
static void gm_work_do(unsigned most)
{
    for (; gm_work_list != NULL && most > 0; most--) {
        struct gm_work *first = gm_work_list;
        gm_work_list = first->next;
        if (gm_work_list == NULL)
            gm_work_end = &gm_work_list;
        gm_unlock(&gm_work_lock);
        CUresult result = first->work(first->argument);
        gm_lock(&gm_work_lock);
        first->result = result;
        first->is_done = true;
        pthread_cond_signal(&first->done); /* with the lock: then *first is gone */
    }
}

void gm_work_some(void)
{
    char bytes[64];
    while (recv(gm_work_wake[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        continue;
    gm_lock(&gm_work_lock);
    gm_work_do(GM_WORK_SOME);
    if (gm_work_list != NULL)
        gm_work_knock();
    gm_unlock(&gm_work_lock);
}

void gm_work_forever(void)
{
    gm_lock(&gm_work_lock);
    for (;;) {
        while (gm_work_list == NULL)
            gm_lock_wait(&gm_work_comes, &gm_work_lock);
        gm_work_do(UINT32_MAX);
    }
}
