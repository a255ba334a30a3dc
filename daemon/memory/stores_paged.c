#include "daemon/memory/stores_paged.h"

#include <string.h>
#include <sys/mman.h>

#include "common/log.h"
#include "daemon/memory/stores_rows.h"

#define TRIM_EVERY_MS 20u

static uint32_t slab_pages(const struct gm_stores *stores, uint32_t slab)
{
    const uint32_t left = stores->paged.max_pages - slab * GM_SLAB_PAGES;
    return left < GM_SLAB_PAGES ? left : GM_SLAB_PAGES;
}

static void set_warm(struct gm_stores *stores, uint32_t slab)
{
    if (stores->slabs[slab].state == GM_SLAB_COLD)
        stores->warm += slab_pages(stores, slab);
    stores->slabs[slab].state = GM_SLAB_WARM;
}

static void set_cold(struct gm_stores *stores, uint32_t slab)
{
    if (stores->slabs[slab].state != GM_SLAB_COLD)
        stores->warm -= slab_pages(stores, slab);
    stores->slabs[slab].state = GM_SLAB_COLD;
}

static void on_timer(uv_timer_t *timer);

void gm_paged_start_trimming(struct gm_stores *stores)
{
    if (stores->is_trimming)
        return;
    stores->is_trimming = true;
    uv_timer_start(&stores->timer, on_timer, 1 + stores->keep_ms, 0);
}

/* Hand slabs to the workers until as much is warm as is wanted: partly used slabs first, then free
 * ones, in the order in which they are taken. */
static void start_fill(struct gm_stores *stores)
{
    struct gm_stores_crew *crew = &stores->crews[GM_CREW_MEMORY];
    struct gm_stores_fill *fill = &stores->fill;
    uint32_t slabs = 0;

    if (fill->is_busy || stores->is_resting)
        return;
    for (unsigned list = 0; list < GM_CHUNK_CLASSES; list++) {
        for (uint32_t slab = stores->paged.heads[list];
             slab != GM_NONE && slabs < GM_FILL_SLABS && stores->warm < stores->wanted;
             slab = stores->paged.slabs[slab].next) {
            if (stores->slabs[slab].state != GM_SLAB_COLD)
                continue;
            stores->slabs[slab].state = GM_SLAB_FILLING;
            stores->warm += slab_pages(stores, slab);
            fill->slab[slabs++] = slab;
        }
    }
    if (slabs == 0)
        return;
    fill->is_busy = true;
    gm_lock(&crew->lock);
    fill->slabs = slabs;
    fill->taken = fill->filled = 0;
    fill->error = 0;
    pthread_cond_broadcast(&crew->more);
    gm_unlock(&crew->lock);
}

void gm_paged_end_fill(struct gm_stores *stores)
{
    struct gm_stores_crew *crew = &stores->crews[GM_CREW_MEMORY];
    struct gm_stores_fill *fill = &stores->fill;

    gm_lock(&crew->lock);
    const bool has_ended = fill->filled == fill->slabs * GM_SLAB_PAGES;
    const int error = fill->error;
    gm_unlock(&crew->lock);
    if (!fill->is_busy || !has_ended)
        return;
    for (uint32_t i = 0; i < fill->slabs; i++) {
        stores->slabs[fill->slab[i]].used_at = gm_stores_now(stores);
        if (error)
            set_cold(stores, fill->slab[i]);
        else
            set_warm(stores, fill->slab[i]);
    }
    fill->is_busy = false;
    if (error && !stores->refusal)
        gm_log(GM_LOG_WARN, "paged memory: the system has no more now (%s)", strerror(-error));
    stores->refusal = error;
    stores->is_resting = error != 0;
    start_fill(stores);
    gm_paged_start_trimming(stores); /* it may not be wanted any more */
}

static void roll_period(struct gm_stores *stores)
{
    const uint64_t now = gm_stores_now(stores),
                   periods = (now - stores->period_at) / stores->keep_ms;
    if (periods == 0)
        return;
    stores->most_before = periods == 1 ? stores->most : stores->wanted;
    stores->most = stores->wanted;
    stores->period_at += periods * stores->keep_ms;
}

void gm_stores_want(struct gm_stores *stores, uint64_t bytes)
{
    const uint64_t pages = bytes / GM_CHUNK_MIN + (bytes % GM_CHUNK_MIN != 0);
    const uint32_t all = stores->paged.pages, wanted = pages < all ? (uint32_t)pages : all;

    roll_period(stores);
    if (wanted < stores->wanted || !stores->is_asked)
        gm_paged_start_trimming(stores);
    stores->is_asked = true;
    if (wanted > stores->most)
        stores->most = wanted;
    stores->wanted = wanted;
    stores->is_resting = false;
    start_fill(stores);
}

uint64_t gm_stores_held(const struct gm_stores *stores)
{
    uint64_t pages = 0;
    for (uint32_t slab = 0; slab * GM_SLAB_PAGES < stores->paged.max_pages; slab++)
        if (stores->slabs[slab].used_at != 0)
            pages += slab_pages(stores, slab);
    return pages * GM_CHUNK_MIN;
}

enum trim { TRIM_NOT, TRIM_LATER, TRIM_NOW };

/* Whether to give back a free slab. */
static enum trim judge_slab(const struct gm_stores *stores, uint32_t slab)
{
    const struct gm_paged_slab *this = &stores->slabs[slab];
    const uint32_t kept = stores->most > stores->most_before ? stores->most : stores->most_before;
    const uint32_t rest = stores->warm - slab_pages(stores, slab); /* if it is warm: without it */

    if (this->used_at == 0 || this->state == GM_SLAB_FILLING)
        return TRIM_NOT;
    if (this->state == GM_SLAB_WARM && rest < stores->wanted)
        return TRIM_NOT;
    if (this->state == GM_SLAB_WARM && rest < kept)
        return TRIM_LATER;
    if (this->used_at <= stores->trimmed_at)
        return TRIM_NOW;
    return gm_stores_now(stores) - this->used_at < stores->keep_ms ? TRIM_LATER : TRIM_NOW;
}

void gm_paged_give_back(struct gm_stores *stores, uint32_t slab)
{
    madvise(stores->memory + slab * GM_SLAB_BYTES, slab_pages(stores, slab) * GM_CHUNK_MIN,
            stores->paged_fd >= 0 ? MADV_REMOVE : MADV_DONTNEED);
    stores->slabs[slab].used_at = 0;
    set_cold(stores, slab);
}

/* The last free slab of its list; GM_NONE: none is free. */
static uint32_t last_slab(const struct gm_stores *stores)
{
    const struct gm_pages *pages = &stores->paged;
    uint32_t last = pages->heads[GM_CHUNK_CLASSES - 1];
    while (last != GM_NONE && pages->slabs[last].next != GM_NONE)
        last = pages->slabs[last].next;
    return last;
}

/* Give back slabs that are not wanted and have been free long enough. The timer stops when none is
 * left to wait for; the next gm_stores_free or gm_stores_want starts it. */
static void on_timer(uv_timer_t *timer)
{
    struct gm_stores *stores = timer->data;
    const uint32_t odd = stores->paged.max_pages / GM_SLAB_PAGES; /* its number, if there is one */
    uint32_t slab = last_slab(stores);
    uint64_t wait = 0;
    unsigned given = 0;

    roll_period(stores);
    /* A last slab with fewer pages is in another list. */
    bool is_odd = stores->paged.max_pages % GM_SLAB_PAGES && gm_slab_is_free(&stores->paged, odd);
    while (is_odd || slab != GM_NONE) {
        const uint32_t this = is_odd ? odd : slab;
        const enum trim verdict = judge_slab(stores, this);
        if (verdict == TRIM_NOW && given == GM_TRIM_SLABS) {
            wait = TRIM_EVERY_MS;
            break;
        }
        if (verdict == TRIM_NOW) {
            gm_paged_give_back(stores, this);
            given++;
        } else if (verdict == TRIM_LATER) {
            wait = 1 + stores->keep_ms / 4;
        }
        if (!is_odd)
            slab = stores->paged.slabs[slab].prev;
        is_odd = false;
    }
    stores->is_trimming = wait != 0;
    if (wait)
        uv_timer_start(timer, on_timer, wait, 0);
}

uint64_t gm_stores_trim(struct gm_stores *stores)
{
    const uint32_t warm = stores->warm;
    uint64_t bytes = 0;

    roll_period(stores);
    stores->most = stores->most_before = stores->wanted;
    stores->trimmed_at = gm_stores_now(stores);
    for (uint32_t slab = last_slab(stores); slab != GM_NONE; slab = stores->paged.slabs[slab].prev)
        if (judge_slab(stores, slab) == TRIM_NOW) {
            bytes += slab_pages(stores, slab) * GM_CHUNK_MIN;
            stores->warm -=
                stores->slabs[slab].state == GM_SLAB_WARM ? slab_pages(stores, slab) : 0;
        }
    stores->warm = warm; /* the timer gives them back, batch by batch */
    stores->is_trimming = true;
    uv_timer_start(&stores->timer, on_timer, 0, 0);
    return bytes;
}

bool gm_stores_is_trimming(const struct gm_stores *stores)
{
    uint32_t slab = last_slab(stores);
    while (slab != GM_NONE && judge_slab(stores, slab) != TRIM_NOW)
        slab = stores->paged.slabs[slab].prev;
    return slab != GM_NONE;
}

void gm_paged_use(struct gm_stores *stores, uint32_t page)
{
    const uint64_t now = gm_stores_now(stores);
    while (page != GM_NONE) {
        const uint32_t slab = page / GM_SLAB_PAGES;
        stores->slabs[slab].used_at = now;
        if (stores->slabs[slab].state == GM_SLAB_COLD && stores->paged.slabs[slab].free_map == 0)
            set_warm(stores, slab); /* copies will populate all of it */
        gm_pages_run(&stores->paged, &page, GM_SLAB_PAGES);
    }
}
