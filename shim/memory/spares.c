#include "shim/memory/spares.h"

#include "common/chunk.h"
#include "common/locks.h"
#include "shim/gate/gate.h"
#include "shim/map/mapper.h"
#include "shim/memory/chunks.h"

struct gm_spare {
    struct gm_alloc alloc;
    _Atomic uint32_t *in_vain; /* NULL: the program had it */
    bool is_coming;            /* asked for ahead, and not there yet */
    bool is_leaving;           /* this side gives it back */
};

static struct gm_lock gm_spares_lock = GM_LOCK_INITIALIZER(GM_LOCK_SPARES);
/* Guarded by the lock. Number i is word i of gm_stat.spares, and there is none where that is 0. */
static struct gm_spare gm_spares[GM_SPARES_MAX];
static uint64_t gm_spares_puts;
static uint32_t gm_spares_n_ahead; /* of them, asked for ahead */
_Atomic uint32_t gm_spares_n;      /* changed with the lock held */
/* Their sizes once more, for gm_spares_hold, which signal handlers and a fork's child come to and
 * which therefore takes no lock. Written before the word. */
static _Atomic uint64_t gm_spares_span[GM_SPARES_MAX];

static _Atomic uint64_t *gm_spares_word(uint32_t i)
{
    return &gm_gate_stat()->spares[i];
}

static uint64_t gm_spares_va(uint64_t word)
{
    return word & ~(GM_CHUNK_MIN - 1);
}

/* With the lock held: a word for `va` that was not there lately. */
static uint64_t gm_spares_new_word(uint64_t va)
{
    return va | (++gm_spares_puts << 1 & (GM_CHUNK_MIN - 1));
}

/* With the lock held. False: all places are taken. */
static bool gm_spares_add(const struct gm_spare *spare)
{
    uint32_t i = 0;
    if (gm_spares_n == GM_SPARES_MAX)
        return false;
    while (atomic_load(gm_spares_word(i)) != 0)
        i++;
    gm_spares[i] = *spare;
    gm_spares_n_ahead += spare->in_vain != NULL;
    atomic_fetch_add(&gm_spares_n, 1);
    atomic_store(&gm_spares_span[i], spare->alloc.span);
    /* From here on, if nothing is said against it, the daemon may take it. */
    atomic_store(gm_spares_word(i),
                 gm_spares_new_word(spare->alloc.va) | (spare->is_coming ? GM_SPARE_BUSY : 0));
    return true;
}

/* With the lock held, after its word was set to 0. */
static void gm_spares_removed(uint32_t i)
{
    gm_spares_n_ahead -= gm_spares[i].in_vain != NULL;
    atomic_fetch_sub(&gm_spares_n, 1);
}

/* With the lock held: swap the word of number i, if the daemon has not. */
static bool gm_spares_swap(uint32_t i, uint64_t word, uint64_t next)
{
    return (word & GM_SPARE_BUSY) == 0 &&
           atomic_compare_exchange_strong(gm_spares_word(i), &word, next);
}

bool gm_spares_put(const struct gm_alloc *alloc)
{
    const struct gm_spare spare = {.alloc = *alloc};
    if (alloc->kind != GM_ALLOC_CHUNKS || alloc->is_shared)
        return false;
    gm_lock(&gm_spares_lock);
    const bool is_kept = gm_link_is_up() && gm_spares_add(&spare);
    gm_unlock(&gm_spares_lock);
    return is_kept;
}

bool gm_spares_take(int32_t gpu, uint64_t span, uint64_t *va)
{
    bool is_found = false;
    if (!gm_spares_exist() || !gm_link_is_up())
        return false; /* perhaps nothing is mapped there any more */
    gm_lock(&gm_spares_lock);
    for (uint32_t i = 0, seen = 0; i < GM_SPARES_MAX && seen < gm_spares_n && !is_found; i++) {
        const uint64_t word = atomic_load(gm_spares_word(i));
        seen += word != 0;
        is_found = word != 0 && gm_spares[i].alloc.gpu == gpu && gm_spares[i].alloc.span == span &&
                   gm_spares_swap(i, word, 0);
        if (is_found) {
            *va = gm_spares[i].alloc.va;
            gm_spares_removed(i);
        }
    }
    gm_unlock(&gm_spares_lock);
    return is_found;
}

/* With the lock held: the number of the one at `va`; GM_SPARES_MAX: there is none. */
static uint32_t gm_spares_find(uint64_t va)
{
    uint32_t i = 0;
    while (i < GM_SPARES_MAX && gm_spares_va(atomic_load(gm_spares_word(i))) != va)
        i++;
    return i;
}

/* The one at `va`, which is nobody's to take, ends. Before its range can be anybody's again. */
static void gm_spares_end(uint64_t va)
{
    gm_lock(&gm_spares_lock);
    const uint32_t i = gm_spares_find(va);
    if (gm_spares[i].in_vain != NULL)
        atomic_fetch_add(gm_spares[i].in_vain, 1);
    atomic_store(gm_spares_word(i), 0);
    gm_spares_removed(i);
    gm_unlock(&gm_spares_lock);
}

bool gm_spares_expect(const struct gm_alloc *alloc, _Atomic uint32_t *in_vain)
{
    const struct gm_spare spare = {.alloc = *alloc, .in_vain = in_vain, .is_coming = true};
    gm_lock(&gm_spares_lock);
    const bool is_kept = gm_spares_n_ahead < GM_SPARES_AHEAD && gm_spares_add(&spare);
    gm_unlock(&gm_spares_lock);
    return is_kept;
}

void gm_spares_arrive(uint64_t va)
{
    gm_lock(&gm_spares_lock);
    const uint32_t i = gm_spares_find(va);
    gm_spares[i].is_coming = false;
    atomic_store(gm_spares_word(i), gm_spares_new_word(va));
    gm_unlock(&gm_spares_lock);
}

void gm_spares_miss(uint64_t va)
{
    gm_lock(&gm_spares_lock);
    const uint32_t i = gm_spares_find(va);
    atomic_store(gm_spares_word(i), 0);
    gm_spares_removed(i);
    gm_unlock(&gm_spares_lock);
}

struct gm_spares_ahead gm_spares_ahead(int32_t gpu, uint64_t span)
{
    struct gm_spares_ahead ahead = {0};
    gm_lock(&gm_spares_lock);
    for (uint32_t i = 0, seen = 0; i < GM_SPARES_MAX && seen < gm_spares_n; i++) {
        const struct gm_spare *spare = &gm_spares[i];
        if (atomic_load(gm_spares_word(i)) == 0)
            continue;
        const bool is_here = spare->alloc.gpu == gpu;
        seen++;
        ahead.coming += spare->is_coming;
        ahead.bytes += is_here && spare->in_vain != NULL ? spare->alloc.span : 0;
        ahead.bytes_coming += is_here && spare->is_coming ? spare->alloc.span : 0;
        ahead.alike += is_here && spare->alloc.span == span;
    }
    gm_unlock(&gm_spares_lock);
    return ahead;
}

bool gm_spares_taken(uint64_t va)
{
    struct gm_alloc alloc;
    gm_lock(&gm_spares_lock);
    const uint32_t i = gm_spares_find(va);
    const bool is_taken = va != 0 && i < GM_SPARES_MAX && !gm_spares[i].is_coming &&
                          !gm_spares[i].is_leaving &&
                          (atomic_load(gm_spares_word(i)) & GM_SPARE_BUSY) != 0;
    if (is_taken)
        alloc = gm_spares[i].alloc;
    gm_unlock(&gm_spares_lock);
    if (!is_taken)
        return false;
    gm_spares_end(va);
    gm_release_range(&alloc, CUDA_SUCCESS);
    return true;
}

/* One of them on `gpu` begins to leave. With `is_lost` also one that the daemon took. */
static bool gm_spares_begin_leaving(int32_t gpu, bool is_lost, struct gm_alloc *alloc)
{
    bool is_found = false;
    gm_lock(&gm_spares_lock);
    for (uint32_t i = 0; i < GM_SPARES_MAX && !is_found; i++) {
        const uint64_t word = atomic_load(gm_spares_word(i));
        struct gm_spare *spare = &gm_spares[i];
        if (word == 0 || spare->is_coming || spare->is_leaving ||
            (gpu >= 0 && spare->alloc.gpu != gpu))
            continue;
        is_found = gm_spares_swap(i, word, word | GM_SPARE_BUSY) || is_lost;
        if (is_found) {
            spare->is_leaving = true;
            *alloc = spare->alloc;
        }
    }
    gm_unlock(&gm_spares_lock);
    return is_found;
}

void gm_spares_release(int32_t gpu)
{
    struct gm_alloc alloc;
    /* Others may put more meanwhile: it ends all the same. */
    for (uint32_t n = gm_spares_n; n > 0 && gm_spares_begin_leaving(gpu, false, &alloc); n--) {
        const CUresult result = gm_release_chunks(&alloc);
        gm_spares_end(alloc.va);
        gm_release_range(&alloc, result);
    }
}

void gm_spares_lose(void)
{
    struct gm_alloc alloc;
    while (gm_spares_begin_leaving(-1, true, &alloc)) {
        const CUresult result = gm_mapper_release(alloc.va, alloc.span);
        gm_spares_end(alloc.va);
        gm_release_range(&alloc, result);
    }
}

uint64_t gm_spares_bytes(int32_t gpu)
{
    uint64_t bytes = 0;
    gm_lock(&gm_spares_lock);
    for (uint32_t i = 0, seen = 0; i < GM_SPARES_MAX && seen < gm_spares_n; i++) {
        const uint64_t word = atomic_load(gm_spares_word(i));
        seen += word != 0;
        if (word != 0 && (word & GM_SPARE_BUSY) == 0 && gm_spares[i].alloc.gpu == gpu)
            bytes += gm_spares[i].alloc.span;
    }
    gm_unlock(&gm_spares_lock);
    return bytes;
}

bool gm_spares_hold(const uint64_t *words, size_t n)
{
    for (uint32_t i = 0, seen = 0; i < GM_SPARES_MAX && seen < gm_spares_n; i++) {
        const uint64_t word = atomic_load(gm_spares_word(i));
        const uint64_t span = atomic_load(&gm_spares_span[i]);
        /* A word that is another one now was of a range that came or went just now: it is not
         * missed, as whoever frees or allocates that in another thread is not done with it yet. */
        if (word == 0 || ((atomic_load(gm_spares_word(i)) ^ word) & ~(uint64_t)GM_SPARE_BUSY) != 0)
            continue;
        seen++;
        for (size_t k = 0; k < n; k++)
            if (words[k] - gm_spares_va(word) < span)
                return true;
    }
    return false;
}
