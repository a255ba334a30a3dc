#include "shim/spares.h"

#include <pthread.h>

#include "shim/gate.h"
#include "shim/link.h"
#include "shim/release.h"

struct gm_spare {
    struct gm_alloc alloc;
    uint64_t at; /* when it was put here */
};

static pthread_mutex_t gm_spares_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gm_spare gm_spares[GM_SPARES_MAX]; /* the oldest first */
_Atomic uint32_t gm_spares_n;                    /* changed with the lock held */
static uint64_t gm_spares_put_at;                /* the latest put */
/* Somebody comes to look. Also for a while when there are none: a program that frees and allocates
 * in turn has none half of the time, and shall not have to wake the watcher with every free. */
static bool gm_spares_are_watched;

/* With the lock held. */
static uint64_t gm_spares_sum(int32_t gpu)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < gm_spares_n; i++)
        if (gm_spares[i].alloc.gpu == gpu)
            bytes += gm_spares[i].alloc.span;
    return bytes;
}

/* The daemon lets others wait for them, a moment. */
static void gm_spares_note(const struct gm_alloc *alloc, bool is_put)
{
    struct gm_stat *stat = gm_gate_stat();
    if (is_put)
        atomic_fetch_add(&stat->spare_bytes, alloc->span);
    else
        atomic_fetch_sub(&stat->spare_bytes, alloc->span);
}

/* With the lock held. */
static void gm_spares_remove(uint32_t i)
{
    gm_spares_n--;
    for (; i < gm_spares_n; i++)
        gm_spares[i] = gm_spares[i + 1];
}

enum gm_spares_put gm_spares_put(const struct gm_alloc *alloc, uint64_t now)
{
    enum gm_spares_put put = GM_SPARES_REFUSED;
    if (alloc->kind != GM_ALLOC_CHUNKS || alloc->is_shared || !gm_link_is_up())
        return put;
    const uint64_t most = gm_link_budget((uint32_t)alloc->gpu) / GM_SPARES_SHARE;
    pthread_mutex_lock(&gm_spares_lock);
    if (gm_spares_n < GM_SPARES_MAX && alloc->span <= most &&
        gm_spares_sum(alloc->gpu) <= most - alloc->span) {
        gm_spares[gm_spares_n++] = (struct gm_spare){.alloc = *alloc, .at = now};
        gm_spares_put_at = now;
        gm_spares_note(alloc, true);
        put = gm_spares_are_watched ? GM_SPARES_KEPT : GM_SPARES_KEPT_FIRST;
    }
    pthread_mutex_unlock(&gm_spares_lock);
    return put;
}

bool gm_spares_take(int32_t gpu, uint64_t span, uint64_t *va)
{
    bool is_found = false;
    if (!gm_link_is_up())
        return false; /* perhaps nothing is mapped there any more */
    pthread_mutex_lock(&gm_spares_lock);
    for (uint32_t i = gm_spares_n; i-- > 0 && !is_found;) {
        is_found = gm_spares[i].alloc.gpu == gpu && gm_spares[i].alloc.span == span;
        if (is_found) {
            *va = gm_spares[i].alloc.va;
            gm_spares_note(&gm_spares[i].alloc, false);
            gm_spares_remove(i);
        }
    }
    pthread_mutex_unlock(&gm_spares_lock);
    return is_found;
}

bool gm_spares_release(int32_t gpu, uint64_t until)
{
    bool is_any = false;
    for (;;) {
        struct gm_alloc alloc;
        bool is_found = false;
        pthread_mutex_lock(&gm_spares_lock);
        for (uint32_t i = 0; i < gm_spares_n && !is_found; i++) {
            is_found = (gpu < 0 || gm_spares[i].alloc.gpu == gpu) && gm_spares[i].at <= until;
            if (is_found) {
                alloc = gm_spares[i].alloc;
                gm_spares_remove(i);
            }
        }
        pthread_mutex_unlock(&gm_spares_lock);
        if (!is_found)
            return is_any;
        gm_release(&alloc);
        gm_spares_note(&alloc, false);
        is_any = true;
    }
}

uint64_t gm_spares_bytes(int32_t gpu)
{
    pthread_mutex_lock(&gm_spares_lock);
    const uint64_t bytes = gm_spares_sum(gpu);
    pthread_mutex_unlock(&gm_spares_lock);
    return bytes;
}

bool gm_spares_hold(const uint64_t *words, size_t n)
{
    bool is_in = false;
    if (!gm_spares_exist())
        return false;
    pthread_mutex_lock(&gm_spares_lock);
    for (uint32_t i = 0; i < gm_spares_n; i++)
        for (size_t k = 0; k < n; k++)
            is_in = is_in || words[k] - gm_spares[i].alloc.va < gm_spares[i].alloc.span;
    pthread_mutex_unlock(&gm_spares_lock);
    return is_in;
}

uint64_t gm_spares_watch(uint64_t now)
{
    if (now >= GM_SPARES_KEEP_NS)
        gm_spares_release(-1, now - GM_SPARES_KEEP_NS);
    pthread_mutex_lock(&gm_spares_lock);
    uint64_t next = UINT64_MAX;
    if (gm_spares_n > 0)
        next = gm_spares[0].at + GM_SPARES_KEEP_NS;
    else if (gm_spares_put_at + GM_SPARES_KEEP_NS > now)
        next = gm_spares_put_at + GM_SPARES_KEEP_NS;
    gm_spares_are_watched = next != UINT64_MAX;
    pthread_mutex_unlock(&gm_spares_lock);
    return next;
}
