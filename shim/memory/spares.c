#include "shim/memory/spares.h"

#include <pthread.h>

#include "shim/gate/gate.h"
#include "shim/memory/chunks.h"

/* The driver finds memory at all of them, or soon, or still. */
enum gm_spare_state {
    GM_SPARE_HERE,
    GM_SPARE_COMING,  /* asked for ahead */
    GM_SPARE_LEAVING, /* taken out, on its way to the daemon */
};

struct gm_spare {
    struct gm_alloc alloc;
    enum gm_spare_state state;
    uint64_t at;      /* when it was put here */
    uint64_t keep_ns; /* how long it stays */
    bool is_ahead;    /* the program never had it */
    _Atomic uint32_t *in_vain;
};

static pthread_mutex_t gm_spares_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gm_spare gm_spares[GM_SPARES_ROOM]; /* the oldest first */
_Atomic uint32_t gm_spares_n;                     /* changed with the lock held */
static uint32_t gm_spares_n_ahead;                /* ... of them asked for ahead */
static uint64_t gm_spares_put_at;                 /* the latest put */
static uint64_t gm_spares_n_gone;                 /* released, or missed, so far */
static pthread_cond_t gm_spares_went = PTHREAD_COND_INITIALIZER;
/* What the program itself had at most, lately. */
static struct gm_spares_use {
    uint64_t since, latest, before;
} gm_spares_uses[GM_GPUS_MAX];
#define GM_SPARES_USE_NS 1000000000u
/*
 * Their ranges once more, for gm_spares_hold, which signal handlers and a fork's child come to and
 * which therefore takes no lock. Odd: they are being changed.
 */
static _Atomic uint64_t gm_spares_va[GM_SPARES_ROOM], gm_spares_span[GM_SPARES_ROOM];
static _Atomic uint32_t gm_spares_version;
/* After so many looks the one who changes them is this thread itself, or is not here. */
#define GM_SPARES_LOOKS 64
/* Somebody comes to look. Also for a while when there are none: a program that frees and allocates
 * in turn has none half of the time, and shall not have to wake the watcher with every free. */
static bool gm_spares_are_watched;

/* With the lock held; without those that leave, or with them. */
static uint64_t gm_spares_sum(int32_t gpu, bool has_leaving)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < gm_spares_n; i++) {
        const enum gm_spare_state state = gm_spares[i].state;
        if (gm_spares[i].alloc.gpu == gpu &&
            (state == GM_SPARE_HERE || (has_leaving && state == GM_SPARE_LEAVING)))
            bytes += gm_spares[i].alloc.span;
    }
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

/* With the lock held, after a change at `from`. */
static void gm_spares_publish(uint32_t from, uint32_t n)
{
    atomic_fetch_add(&gm_spares_version, 1);
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = from; i < n; i++) {
        atomic_store_explicit(&gm_spares_va[i], gm_spares[i].alloc.va, memory_order_relaxed);
        atomic_store_explicit(&gm_spares_span[i], gm_spares[i].alloc.span, memory_order_relaxed);
    }
    gm_spares_n = n;
    atomic_fetch_add(&gm_spares_version, 1);
}

/* With the lock held. */
static void gm_spares_remove(uint32_t i)
{
    const uint32_t n = gm_spares_n - 1;
    gm_spares_n_ahead -= gm_spares[i].is_ahead;
    for (uint32_t k = i; k < n; k++)
        gm_spares[k] = gm_spares[k + 1];
    gm_spares_publish(i, n);
}

/* With the lock held, and room for it. */
static void gm_spares_add(const struct gm_spare *spare)
{
    gm_spares[gm_spares_n] = *spare;
    gm_spares_n_ahead += spare->is_ahead;
    gm_spares_publish(gm_spares_n, gm_spares_n + 1);
}

/* With the lock held: it is here, from now on. */
static enum gm_spares_put gm_spares_begin(struct gm_spare *spare, uint64_t now)
{
    spare->state = GM_SPARE_HERE;
    spare->at = now;
    gm_spares_put_at = now;
    gm_spares_note(&spare->alloc, true);
    return gm_spares_are_watched ? GM_SPARES_KEPT : GM_SPARES_KEPT_FIRST;
}

/* With the lock held: where the one of `va` in `state` is, which there is. */
static uint32_t gm_spares_find(uint64_t va, enum gm_spare_state state)
{
    uint32_t i = 0;
    while (gm_spares[i].alloc.va != va || gm_spares[i].state != state)
        i++;
    return i;
}

enum gm_spares_put gm_spares_put(const struct gm_alloc *alloc, uint64_t now)
{
    enum gm_spares_put put = GM_SPARES_REFUSED;
    if (alloc->kind != GM_ALLOC_CHUNKS || alloc->is_shared || !gm_link_is_up())
        return put;
    const struct gm_spare spare = {.alloc = *alloc, .keep_ns = GM_SPARES_KEEP_NS};
    const uint64_t most = gm_link_budget((uint32_t)alloc->gpu) / GM_SPARES_SHARE;
    pthread_mutex_lock(&gm_spares_lock);
    if (gm_spares_n - gm_spares_n_ahead < GM_SPARES_MAX && alloc->span <= most &&
        gm_spares_sum(alloc->gpu, false) <= most - alloc->span) {
        gm_spares_add(&spare);
        put = gm_spares_begin(&gm_spares[gm_spares_n - 1], now);
    }
    pthread_mutex_unlock(&gm_spares_lock);
    return put;
}

bool gm_spares_expect(const struct gm_alloc *alloc, uint64_t keep_ns, _Atomic uint32_t *in_vain)
{
    const struct gm_spare spare = {.alloc = *alloc,
                                   .state = GM_SPARE_COMING,
                                   .keep_ns = keep_ns,
                                   .is_ahead = true,
                                   .in_vain = in_vain};
    pthread_mutex_lock(&gm_spares_lock);
    const bool is_kept = gm_spares_n_ahead < GM_SPARES_AHEAD;
    if (is_kept)
        gm_spares_add(&spare);
    pthread_mutex_unlock(&gm_spares_lock);
    return is_kept;
}

enum gm_spares_put gm_spares_arrive(uint64_t va, uint64_t now)
{
    pthread_mutex_lock(&gm_spares_lock);
    struct gm_spare *spare = &gm_spares[gm_spares_find(va, GM_SPARE_COMING)];
    const enum gm_spares_put put = gm_spares_begin(spare, now);
    pthread_mutex_unlock(&gm_spares_lock);
    return put;
}

void gm_spares_miss(uint64_t va)
{
    pthread_mutex_lock(&gm_spares_lock);
    gm_spares_remove(gm_spares_find(va, GM_SPARE_COMING));
    gm_spares_n_gone++;
    pthread_mutex_unlock(&gm_spares_lock);
}

struct gm_spares_ahead gm_spares_ahead(int32_t gpu, uint64_t span)
{
    struct gm_spares_ahead ahead = {0};
    pthread_mutex_lock(&gm_spares_lock);
    for (uint32_t i = 0; i < gm_spares_n; i++) {
        const struct gm_spare *spare = &gm_spares[i];
        const uint64_t bytes = spare->is_ahead && spare->alloc.gpu == gpu ? spare->alloc.span : 0;
        ahead.coming += spare->state == GM_SPARE_COMING;
        ahead.bytes += bytes;
        ahead.bytes_here += spare->state != GM_SPARE_COMING ? bytes : 0;
        ahead.alike += spare->alloc.gpu == gpu && spare->alloc.span == span &&
                       spare->state != GM_SPARE_LEAVING;
    }
    pthread_mutex_unlock(&gm_spares_lock);
    return ahead;
}

bool gm_spares_take(int32_t gpu, uint64_t span, uint64_t *va)
{
    bool is_found = false;
    if (!gm_link_is_up())
        return false; /* perhaps nothing is mapped there any more */
    pthread_mutex_lock(&gm_spares_lock);
    for (uint32_t i = gm_spares_n; i-- > 0 && !is_found;) {
        is_found = gm_spares[i].alloc.gpu == gpu && gm_spares[i].alloc.span == span &&
                   gm_spares[i].state == GM_SPARE_HERE;
        if (is_found) {
            *va = gm_spares[i].alloc.va;
            gm_spares_note(&gm_spares[i].alloc, false);
            gm_spares_remove(i);
        }
    }
    pthread_mutex_unlock(&gm_spares_lock);
    return is_found;
}

#define GM_SPARES_ANY_TIME UINT64_MAX

/* Whether it has been here for as long as it should be. */
static bool gm_spares_is_over(const struct gm_spare *spare, uint64_t now)
{
    return now == GM_SPARES_ANY_TIME || (now >= spare->at && now - spare->at >= spare->keep_ns);
}

/* One of them, the oldest; or of those that came ahead; whose time is over. False: there is none.
 */
static bool gm_spares_release_one(int32_t gpu, uint64_t now, bool is_ahead)
{
    struct gm_alloc alloc;
    bool is_found = false;
    pthread_mutex_lock(&gm_spares_lock);
    for (uint32_t i = 0; i < gm_spares_n && !is_found; i++) {
        struct gm_spare *spare = &gm_spares[i];
        is_found = spare->state == GM_SPARE_HERE && (gpu < 0 || spare->alloc.gpu == gpu) &&
                   (spare->is_ahead || !is_ahead) && gm_spares_is_over(spare, now);
        if (is_found) {
            alloc = spare->alloc;
            spare->state = GM_SPARE_LEAVING;
            if (spare->is_ahead)
                atomic_fetch_add(spare->in_vain, 1);
        }
    }
    pthread_mutex_unlock(&gm_spares_lock);
    if (!is_found)
        return false;
    const CUresult result = gm_release_chunks(&alloc);
    gm_spares_note(&alloc, false);
    pthread_mutex_lock(&gm_spares_lock);
    /* Before its range can be anybody's again. */
    gm_spares_remove(gm_spares_find(alloc.va, GM_SPARE_LEAVING));
    gm_spares_n_gone++;
    pthread_cond_broadcast(&gm_spares_went);
    pthread_mutex_unlock(&gm_spares_lock);
    gm_release_range(&alloc, result);
    return true;
}

uint64_t gm_spares_most(int32_t gpu, uint64_t use, uint64_t now)
{
    pthread_mutex_lock(&gm_spares_lock);
    struct gm_spares_use *most = &gm_spares_uses[gpu];
    if (now - most->since >= GM_SPARES_USE_NS) {
        most->before = now - most->since < 2 * GM_SPARES_USE_NS ? most->latest : 0;
        most->latest = 0;
        most->since = now;
    }
    most->latest = use > most->latest ? use : most->latest;
    const uint64_t bytes = most->latest > most->before ? most->latest : most->before;
    pthread_mutex_unlock(&gm_spares_lock);
    return bytes;
}

bool gm_spares_shrink(int32_t gpu)
{
    return gm_spares_release_one(gpu, GM_SPARES_ANY_TIME, false);
}

bool gm_spares_release(int32_t gpu)
{
    bool is_any = false;
    for (uint32_t n = gm_spares_n; n > 0 && gm_spares_release_one(gpu, GM_SPARES_ANY_TIME, false);
         n--)
        is_any = true;
    return is_any;
}

void gm_spares_release_ahead(void)
{
    for (uint32_t n = GM_SPARES_AHEAD;
         gm_spares_exist() && n > 0 && gm_spares_release_one(-1, GM_SPARES_ANY_TIME, true); n--)
        continue;
}

/* With the lock held. */
static bool gm_spares_leave(void)
{
    for (uint32_t i = 0; i < gm_spares_n; i++)
        if (gm_spares[i].state == GM_SPARE_LEAVING)
            return true;
    return false;
}

uint64_t gm_spares_gone(bool is_waiting)
{
    pthread_mutex_lock(&gm_spares_lock);
    while (is_waiting && gm_spares_leave())
        pthread_cond_wait(&gm_spares_went, &gm_spares_lock);
    const uint64_t gone = gm_spares_n_gone;
    pthread_mutex_unlock(&gm_spares_lock);
    return gone;
}

uint64_t gm_spares_bytes(int32_t gpu)
{
    pthread_mutex_lock(&gm_spares_lock);
    const uint64_t bytes = gm_spares_sum(gpu, true);
    pthread_mutex_unlock(&gm_spares_lock);
    return bytes;
}

bool gm_spares_hold(const uint64_t *words, size_t n)
{
    for (unsigned looks = 0; gm_spares_exist() && looks < GM_SPARES_LOOKS; looks++) {
        const uint32_t version = atomic_load(&gm_spares_version);
        const uint32_t n_spares = gm_spares_n;
        bool is_in = false;
        if (version % 2 != 0)
            continue;
        for (uint32_t i = 0; i < n_spares; i++) {
            const uint64_t va = atomic_load_explicit(&gm_spares_va[i], memory_order_relaxed);
            const uint64_t span = atomic_load_explicit(&gm_spares_span[i], memory_order_relaxed);
            for (size_t k = 0; k < n; k++)
                is_in = is_in || words[k] - va < span;
        }
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load(&gm_spares_version) == version)
            return is_in;
    }
    return false;
}

void gm_spares_leave_alone(void)
{
    pthread_mutex_lock(&gm_spares_lock);
    gm_spares_are_watched = false;
    pthread_mutex_unlock(&gm_spares_lock);
}

uint64_t gm_spares_watch(uint64_t now)
{
    gm_spares_release_one(-1, now, false);
    pthread_mutex_lock(&gm_spares_lock);
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < gm_spares_n; i++) {
        const struct gm_spare *spare = &gm_spares[i];
        if (spare->state == GM_SPARE_HERE && spare->at + spare->keep_ns < next)
            next = spare->at + spare->keep_ns;
    }
    if (next == UINT64_MAX && gm_spares_put_at + GM_SPARES_KEEP_NS > now)
        next = gm_spares_put_at + GM_SPARES_KEEP_NS;
    gm_spares_are_watched = next != UINT64_MAX;
    pthread_mutex_unlock(&gm_spares_lock);
    return next;
}
