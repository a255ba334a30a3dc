#include "shim/memory/freed.h"

#include <stdlib.h>

#include "common/chunk.h"
#include "common/locks.h"
#include "shim/gate/gate.h"
#include "shim/map/mapper.h"
#include "shim/memory/chunks.h"

static struct gm_lock gm_freed_lock = GM_LOCK_INITIALIZER(GM_LOCK_FREED);
static struct gm_freed *gm_freed_list;         /* the newest first */
static uint64_t gm_freed_puts;                 /* that were given */
_Atomic uint32_t gm_freed_n[GM_FREED_REASONS]; /* changed with the lock held */
/* The sizes of those with a word once more, for gm_freed_hold, which signal handlers and a fork's
 * child come to and which therefore takes no lock. Written before the word, as is the number of
 * words that were ever used. */
static _Atomic uint64_t gm_freed_span[GM_SPARES_MAX];
static _Atomic uint32_t gm_freed_top;

static _Atomic uint64_t *gm_freed_word(uint32_t i)
{
    return &gm_gate_stat()->spares[i];
}

static uint64_t gm_freed_va(uint64_t word)
{
    return word & ~(GM_CHUNK_MIN - 1);
}

static uint32_t gm_freed_words(void)
{
    return gm_freed_n[GM_FREED_SPARE] + gm_freed_n[GM_FREED_AHEAD];
}

static bool gm_freed_has_word(const struct gm_freed *freed)
{
    return freed->why == GM_FREED_SPARE || freed->why == GM_FREED_AHEAD;
}

/* With the lock held: a word that was not there lately. From when it is written, if it is not busy,
 * the daemon may take the range. */
static void gm_freed_say(const struct gm_freed *freed)
{
    const uint64_t number = ++gm_freed_puts << 2 & (GM_CHUNK_MIN - 1);
    atomic_store(&gm_freed_span[freed->word], freed->alloc.span);
    atomic_store(gm_freed_word(freed->word),
                 freed->alloc.va | number | (freed->is_coming ? GM_SPARE_BUSY | GM_SPARE_OWN : 0));
}

/* With the lock held. False: all words are taken, or there is no host memory. */
static bool gm_freed_add(const struct gm_freed *like)
{
    struct gm_freed *freed = NULL;
    if (!gm_freed_has_word(like) || gm_freed_words() < GM_SPARES_MAX)
        freed = malloc(sizeof(*freed));
    if (freed == NULL)
        return false;
    *freed = *like;
    freed->next = gm_freed_list;
    gm_freed_list = freed;
    atomic_fetch_add(&gm_freed_n[freed->why], 1);
    if (!gm_freed_has_word(freed))
        return true;
    while (atomic_load(gm_freed_word(freed->word)) != 0)
        freed->word++;
    if (freed->word >= gm_freed_top)
        gm_freed_top = freed->word + 1;
    gm_freed_say(freed);
    return true;
}

/* With the lock held. Before the range can be anybody's again. */
static void gm_freed_remove(struct gm_freed *freed)
{
    struct gm_freed **place = &gm_freed_list;
    while (*place != freed)
        place = &(*place)->next;
    *place = freed->next;
    if (gm_freed_has_word(freed))
        atomic_store(gm_freed_word(freed->word), 0);
    atomic_fetch_sub(&gm_freed_n[freed->why], 1);
    free(freed);
}

static bool gm_freed_is_busy(const struct gm_freed *freed)
{
    return (atomic_load(gm_freed_word(freed->word)) & GM_SPARE_BUSY) != 0;
}

/* With the lock held: change the word, if the daemon has not. */
static bool gm_freed_swap(const struct gm_freed *freed, bool is_busy)
{
    uint64_t word = atomic_load(gm_freed_word(freed->word));
    return (word & GM_SPARE_BUSY) == 0 &&
           atomic_compare_exchange_strong(gm_freed_word(freed->word), &word,
                                          is_busy ? word | GM_SPARE_BUSY | GM_SPARE_OWN : 0);
}

/* With the lock held. NULL: there is none with a word at `va`. */
static struct gm_freed *gm_freed_find(uint64_t va)
{
    struct gm_freed *freed = gm_freed_list;
    while (freed != NULL && !(gm_freed_has_word(freed) && freed->alloc.va == va))
        freed = freed->next;
    return freed;
}

/* ---- spares, and what comes ahead ---- */

bool gm_freed_put(const struct gm_alloc *alloc)
{
    const struct gm_freed spare = {.alloc = *alloc, .why = GM_FREED_SPARE};
    if (alloc->kind != GM_ALLOC_CHUNKS || alloc->is_shared)
        return false;
    gm_lock(&gm_freed_lock);
    const bool is_kept = gm_link_has_daemon() && gm_freed_add(&spare);
    gm_unlock(&gm_freed_lock);
    return is_kept;
}

bool gm_freed_take(int32_t gpu, uint64_t span, uint64_t *va)
{
    if (!gm_freed_exist() || !gm_link_has_daemon())
        return false; /* perhaps nothing is mapped there any more */
    gm_lock(&gm_freed_lock);
    struct gm_freed *freed = gm_freed_list;
    while (freed != NULL && !(gm_freed_has_word(freed) && freed->alloc.gpu == gpu &&
                              freed->alloc.span == span && gm_freed_swap(freed, false)))
        freed = freed->next;
    const bool is_found = freed != NULL;
    if (is_found) {
        *va = freed->alloc.va;
        gm_freed_remove(freed);
    }
    gm_unlock(&gm_freed_lock);
    return is_found;
}

bool gm_freed_expect(const struct gm_alloc *alloc, _Atomic uint32_t *in_vain)
{
    const struct gm_freed ahead = {
        .alloc = *alloc, .why = GM_FREED_AHEAD, .in_vain = in_vain, .is_coming = true};
    gm_lock(&gm_freed_lock);
    const bool is_kept = gm_freed_n[GM_FREED_AHEAD] < GM_FREED_AHEAD_MAX && gm_freed_add(&ahead);
    gm_unlock(&gm_freed_lock);
    return is_kept;
}

void gm_freed_arrive(uint64_t va)
{
    gm_lock(&gm_freed_lock);
    struct gm_freed *freed = gm_freed_find(va);
    freed->is_coming = false;
    gm_freed_say(freed);
    gm_unlock(&gm_freed_lock);
}

void gm_freed_miss(uint64_t va)
{
    gm_lock(&gm_freed_lock);
    gm_freed_remove(gm_freed_find(va));
    gm_unlock(&gm_freed_lock);
}

struct gm_freed_sums gm_freed_sums(int32_t gpu, uint64_t span)
{
    struct gm_freed_sums sums = {0};
    gm_lock(&gm_freed_lock);
    for (const struct gm_freed *freed = gm_freed_list; freed != NULL; freed = freed->next) {
        const bool is_here = gm_freed_has_word(freed) && freed->alloc.gpu == gpu;
        const uint64_t bytes = is_here ? freed->alloc.span : 0;
        sums.coming += freed->is_coming;
        sums.alike += is_here && bytes == span;
        sums.ahead_bytes += freed->why == GM_FREED_AHEAD ? bytes : 0;
        sums.coming_bytes += freed->is_coming ? bytes : 0;
        sums.ready_bytes += is_here && !gm_freed_is_busy(freed) ? bytes : 0;
    }
    gm_unlock(&gm_freed_lock);
    return sums;
}

/* Nobody can take it any more, and nothing of it is mapped, or `result` says why something is. */
static void gm_freed_give(struct gm_freed *freed, CUresult result)
{
    const struct gm_alloc alloc = freed->alloc;
    if (freed->in_vain != NULL)
        atomic_fetch_add(freed->in_vain, 1);
    gm_lock(&gm_freed_lock);
    gm_freed_remove(freed);
    gm_unlock(&gm_freed_lock);
    gm_release_range(&alloc, result);
}

bool gm_freed_taken(uint64_t va)
{
    gm_lock(&gm_freed_lock);
    struct gm_freed *freed = gm_freed_find(va);
    const bool is_taken =
        freed != NULL && !freed->is_coming && !freed->is_leaving && gm_freed_is_busy(freed);
    gm_unlock(&gm_freed_lock);
    if (is_taken) /* it is this thread's */
        gm_freed_give(freed, CUDA_SUCCESS);
    return is_taken;
}

/* One on `gpu` begins to leave. With `is_lost` also one that the daemon took. NULL: there is none.
 */
static struct gm_freed *gm_freed_begin_leaving(int32_t gpu, bool is_lost)
{
    gm_lock(&gm_freed_lock);
    struct gm_freed *freed = gm_freed_list;
    while (freed != NULL &&
           (!gm_freed_has_word(freed) || freed->is_coming || freed->is_leaving ||
            (gpu >= 0 && freed->alloc.gpu != gpu) || !(gm_freed_swap(freed, true) || is_lost)))
        freed = freed->next;
    if (freed != NULL)
        freed->is_leaving = true;
    gm_unlock(&gm_freed_lock);
    return freed;
}

void gm_freed_release(int32_t gpu)
{
    struct gm_freed *freed;
    /* Others may put more meanwhile: it ends all the same. */
    for (uint32_t n = gm_freed_words();
         n > 0 && (freed = gm_freed_begin_leaving(gpu, false)) != NULL; n--)
        gm_freed_give(freed, gm_release_chunks(&freed->alloc));
}

void gm_freed_lose(void)
{
    struct gm_freed *freed;
    while ((freed = gm_freed_begin_leaving(-1, true)) != NULL)
        gm_freed_give(freed, gm_mapper_release(freed->alloc.va, freed->alloc.span));
}

bool gm_freed_hold(const uint64_t *words, size_t n)
{
    for (uint32_t i = 0; i < gm_freed_top; i++) {
        const uint64_t word = atomic_load(gm_freed_word(i));
        const uint64_t span = atomic_load(&gm_freed_span[i]);
        /* A word that is another one now was of a range that came or went just now: it is not
         * missed, as whoever frees or allocates that in another thread is not done with it yet. */
        if (word == 0 || ((atomic_load(gm_freed_word(i)) ^ word) & ~(uint64_t)GM_SPARE_BUSY) != 0)
            continue;
        for (size_t k = 0; k < n; k++)
            if (words[k] - gm_freed_va(word) < span)
                return true;
    }
    return false;
}

/* ---- what waits for the GPU ---- */

bool gm_freed_await(const struct gm_alloc *alloc, enum gm_freed_why why, struct gm_mark *mark)
{
    const struct gm_freed freed = {.alloc = *alloc, .why = why, .mark = mark};
    gm_lock(&gm_freed_lock);
    const bool is_kept = gm_freed_add(&freed);
    gm_unlock(&gm_freed_lock);
    return is_kept;
}

struct gm_freed *gm_freed_next(enum gm_freed_why why, struct gm_freed *last, bool is_over)
{
    gm_lock(&gm_freed_lock);
    struct gm_freed *freed = last != NULL ? last->next : gm_freed_list;
    while (freed != NULL && (freed->why != why || freed->is_leaving))
        freed = freed->next;
    if (freed != NULL)
        freed->is_leaving = true;
    if (last != NULL)
        last->is_leaving = false;
    if (is_over)
        gm_freed_remove(last);
    gm_unlock(&gm_freed_lock);
    return freed;
}
