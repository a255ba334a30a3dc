/*
 * Stopping in the middle. Whatever works for a context does so between sim_group_enter and
 * sim_group_leave of one of its channel groups, and on the way looks often whether that group was
 * stopped (sim_pause_point); then it stands until the group is started. So nobody touches memory
 * while a group is stopped and sim_group_await has returned.
 *
 * The counters are atomic: an operation of a group that runs takes no lock. stop_lock guards the
 * rest; it is inside every other lock.
 */
#include "tests/simcuda/sim.h"

_Atomic uint32_t sim_stops;

static pthread_mutex_t stop_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread struct sim_group *current; /* in which this thread is */

static void give(struct sim_group *g)
{
    if (atomic_fetch_sub(&g->running, 1) != 1 || !atomic_load(&g->is_stopped))
        return;
    pthread_mutex_lock(&stop_lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&stop_lock);
}

/* First be counted, then look: sim_group_stop does it the other way round. */
static void take(struct sim_group *g)
{
    for (;;) {
        atomic_fetch_add(&g->running, 1);
        if (!atomic_load(&g->is_stopped))
            return;
        give(g);
        pthread_mutex_lock(&stop_lock);
        while (atomic_load(&g->is_stopped))
            pthread_cond_wait(&changed, &stop_lock);
        pthread_mutex_unlock(&stop_lock);
    }
}

void sim_group_enter(struct sim_group *g)
{
    take(g);
    current = g;
}

void sim_group_leave(void)
{
    give(current);
    current = NULL;
}

void sim_group_pause(void)
{
    give(current);
    take(current);
}

void sim_rest_until(uint64_t ns)
{
    give(current);
    sim_sleep_until(ns);
    take(current);
}

void sim_work_until(uint64_t ns, uint64_t stopped_ns)
{
    for (;;) {
        const uint64_t end = ns + atomic_load(&current->stopped_ns) - stopped_ns;
        if (sim_now() >= end)
            return;
        sim_rest_until(end);
    }
}

void sim_group_stop(struct sim_group *g)
{
    pthread_mutex_lock(&stop_lock);
    if (!atomic_load(&g->is_stopped)) {
        g->since = sim_now();
        atomic_fetch_add(&sim_stops, 1);
        atomic_store(&g->is_stopped, true);
    }
    pthread_mutex_unlock(&stop_lock);
}

void sim_group_start(struct sim_group *g)
{
    pthread_mutex_lock(&stop_lock);
    if (atomic_load(&g->is_stopped)) {
        atomic_fetch_add(&g->stopped_ns, sim_now() - g->since);
        atomic_fetch_sub(&sim_stops, 1);
        atomic_store(&g->is_stopped, false);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&stop_lock);
}

void sim_group_await(struct sim_group *g)
{
    pthread_mutex_lock(&stop_lock);
    while (atomic_load(&g->is_stopped) && atomic_load(&g->running) > 0)
        pthread_cond_wait(&changed, &stop_lock);
    pthread_mutex_unlock(&stop_lock);
}
