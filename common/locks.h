/*
 * Mutexes with a rank. A thread takes locks in the order of their ranks only, so no two threads can
 * wait for each other. Builds with GM_DEBUG_LOCKS (Debug, and those with a sanitizer) assert it; in
 * others a lock is a mutex and nothing else, and nothing can fail.
 *
 * Condition variables wait with gm_lock_wait and gm_lock_wait_until, so that the rank is given up
 * meanwhile and taken again. Any thread; calls nothing but the C library.
 */
#ifndef GM_COMMON_LOCKS_H
#define GM_COMMON_LOCKS_H

#include <pthread.h>
#include <time.h>

/*
 * In the order in which they are taken: a room of the shim before the rooms that it uses. Two locks
 * of one rank are never held at the same time, and no lock of the shim across a call of the driver.
 */
/* clang-format off */
#define GM_LOCK_RANKS(X)                                                                           \
    X(USERS)           /* daemon: names of users; asks nobody under it */                          \
    X(STORES)          /* daemon: the queues of one crew of copying threads; wakes the loop */     \
    X(MOVER)           /* daemon: what of one direction has ended; wakes the loop */               \
    X(HASH)            /* daemon: which hashes have ended; wakes the loop */                        \
    X(METER)           /* daemon: samples of the link; wakes the loop */                            \
    X(OPENED)          /* shim/memory: what other programs share with this one */                  \
    X(MANAGED)         /* shim/memory: managed allocations */                                      \
    X(AHEAD)           /* shim/memory: which sizes came lately */                                  \
    X(FREED)           /* shim/memory: freed ranges that the daemon backs */                       \
    X(HEAP)            /* shim/memory: pools, their blocks and marks */                            \
    X(REPLAYS)         /* shim/observe: executable graphs */                                       \
    X(CONTROLS)        /* shim/observe: one thread at a time parks; held across its ioctl calls */ \
    X(USAGE)           /* shim/observe: what the driver takes; held across the question */         \
    X(CHANNELS)        /* shim/observe: the table of channels */                                   \
    X(PROFILES)        /* shim/tables: profiles of kernels; held across reading of their files */  \
    X(ALLOCS)          /* shim/tables: allocations by address */                                   \
    X(ARRAYS)          /* shim/tables: CUDA arrays */                                              \
    X(VMM)             /* shim/tables: the program's own mappings */                               \
    X(LINK)            /* shim/link: requests that wait for an answer */                           \
    X(POST)            /* shim/link: messages for which the socket had no room */                   \
    X(WORK)            /* shim/link: work for the link thread */                                   \
    X(CAPTURES)        /* shim/gate: open captures */                                              \
    X(CONTEXTS)        /* shim/gate: contexts, and where the drainer is */                         \
    X(CONTEXT_NUMBERS) /* shim/gate: numbers of contexts */                                        \
    X(DRAIN)           /* shim/gate: the open CLOSE and QUERY */                                   \
    X(LOG)             /* everybody: repeated lines; writes to the log's file */               \
    X(WRITER)          /* daemon: what waits to be written to one file */
/* clang-format on */

enum gm_lock_rank {
#define GM_LOCK_RANK(NAME) GM_LOCK_##NAME,
    GM_LOCK_RANKS(GM_LOCK_RANK)
#undef GM_LOCK_RANK
};

struct gm_lock {
    pthread_mutex_t mutex;
#ifdef GM_DEBUG_LOCKS
    enum gm_lock_rank rank;
#endif
};

#ifdef GM_DEBUG_LOCKS
#define GM_LOCK_INITIALIZER(rank)                                                                  \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, rank                                                            \
    }
/* locks.c: note that this thread takes, or gives up, a lock of this rank; assert the order. */
void gm_lock_enter(enum gm_lock_rank rank);
void gm_lock_leave(enum gm_lock_rank rank);
#define GM_LOCK_ENTER(lock) gm_lock_enter((lock)->rank)
#define GM_LOCK_LEAVE(lock) gm_lock_leave((lock)->rank)
#else
#define GM_LOCK_INITIALIZER(rank)                                                                  \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER                                                                  \
    }
#define GM_LOCK_ENTER(lock) ((void)(lock))
#define GM_LOCK_LEAVE(lock) ((void)(lock))
#endif

static inline void gm_lock_init(struct gm_lock *lock, enum gm_lock_rank rank)
{
    *lock = (struct gm_lock)GM_LOCK_INITIALIZER(rank);
    (void)rank;
}

static inline void gm_lock_destroy(struct gm_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

static inline void gm_lock(struct gm_lock *lock)
{
    GM_LOCK_ENTER(lock);
    pthread_mutex_lock(&lock->mutex);
}

static inline void gm_unlock(struct gm_lock *lock)
{
    GM_LOCK_LEAVE(lock); /* first: after it another thread may take the lock and free it */
    pthread_mutex_unlock(&lock->mutex);
}

static inline void gm_lock_wait(pthread_cond_t *change, struct gm_lock *lock)
{
    GM_LOCK_LEAVE(lock);
    pthread_cond_wait(change, &lock->mutex);
    GM_LOCK_ENTER(lock);
}

/* Until `until` of the monotonic clock at most (common/clock.h). 0 or ETIMEDOUT. */
static inline int gm_lock_wait_until(pthread_cond_t *change, struct gm_lock *lock,
                                     const struct timespec *until)
{
    GM_LOCK_LEAVE(lock);
    int error = pthread_cond_clockwait(change, &lock->mutex, CLOCK_MONOTONIC, until);
    GM_LOCK_ENTER(lock);
    return error;
}

#endif
