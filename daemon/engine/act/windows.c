/*
 * Words of allocations that lie near each other are read with one call. One call reads at most
 * WORDS, and skips gaps below GAP, which cost less than a call.
 */
#include "daemon/engine/act/windows.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/windows.h"

#define WORDS 8192u /* 64 KiB: 16 GiB of addresses */
#define GAP 512u    /* words of a page */

/* Places of an allocation. */
struct span {
    uint64_t first, end;
};

struct reading {
    int fd;
    struct span *spans; /* ascending */
    uint32_t n;
    uint64_t from, end; /* places whose words are here */
    uint64_t words[WORDS];
};

static bool has_words(const struct gm_allocation *allocation)
{
    return !allocation->is_freed && allocation->bytes > 0 &&
           allocation->va + allocation->bytes - 1 >= allocation->va &&
           gm_window_has(allocation->va + allocation->bytes - 1);
}

uint32_t gm_engine_places_of(const struct gm_engine *engine, uint32_t app)
{
    const struct gm_table *table = engine->table;
    uint64_t places = 0;
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        if (has_words(&table->allocations[a]))
            places += gm_chunk_round(table->allocations[a].bytes) >> GM_CHUNK_SHIFT;
    return places < GM_WINDOW_PLACES ? (uint32_t)places : (uint32_t)GM_WINDOW_PLACES;
}

static int compare_spans(const void *a, const void *b)
{
    const uint64_t left = ((const struct span *)a)->first, right = ((const struct span *)b)->first;
    return (left > right) - (left < right);
}

/* The app's allocations by address. 0 or -ENOMEM. */
static int list_spans(const struct gm_engine *engine, uint32_t app, struct reading *reading)
{
    const struct gm_table *table = engine->table;
    uint32_t room = 0;
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        room++;
    reading->n = 0;
    reading->spans = malloc((room + 1) * sizeof *reading->spans);
    if (!reading->spans)
        return -ENOMEM;
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next) {
        const struct gm_allocation *allocation = &table->allocations[a];
        if (!has_words(allocation))
            continue;
        reading->spans[reading->n++] =
            (struct span){.first = gm_window_place(allocation->va),
                          .end = gm_window_place(allocation->va + allocation->bytes - 1) + 1};
    }
    qsort(reading->spans, reading->n, sizeof *reading->spans, compare_spans);
    return 0;
}

/* Have the words from `place` of span `i` on. 0 or -errno. */
static int fetch(struct reading *reading, uint32_t i, uint64_t place)
{
    uint64_t end = reading->spans[i].end;
    for (i++; i < reading->n && end - place < WORDS && reading->spans[i].first < end + GAP; i++)
        if (reading->spans[i].end > end)
            end = reading->spans[i].end;
    if (end - place > WORDS)
        end = place + WORDS;
    const size_t bytes = (end - place) * sizeof *reading->words;
    const ssize_t got =
        pread(reading->fd, reading->words, bytes, (off_t)gm_window_offset(place << GM_CHUNK_SHIFT));
    if (got < 0)
        return -errno;
    if ((size_t)got != bytes)
        return -EIO; /* the file is short */
    reading->from = place;
    reading->end = end;
    return 0;
}

/* Those of `uses` up to `max` that were touched. Returns how many or -errno. */
static int64_t read_spans(struct reading *reading, uint32_t from, uint32_t to, struct gm_use *uses,
                          uint32_t max)
{
    uint64_t next = 0; /* places below it are done: spans that overlap count once */
    uint32_t n = 0;
    for (uint32_t i = 0; i < reading->n; i++) {
        uint64_t place = reading->spans[i].first > next ? reading->spans[i].first : next;
        for (; place < reading->spans[i].end; place++) {
            const int error = place < reading->end ? 0 : fetch(reading, i, place);
            if (error)
                return error;
            const struct gm_touch touch = gm_touch_unpack(reading->words[place - reading->from]);
            const uint32_t age = gm_window_age(to, touch);
            if (touch.window == 0 || age >= to - from || n == max)
                continue;
            uses[n++] = (struct gm_use){.va = place << GM_CHUNK_SHIFT,
                                        .count = touch.count,
                                        .is_exact = touch.is_exact != 0,
                                        .window = to - age,
                                        .order = touch.order};
        }
        next = place;
    }
    return n;
}

int64_t gm_engine_read_window(const struct gm_engine *engine, uint32_t app, uint32_t from,
                              uint32_t to, struct gm_use *uses, uint32_t max)
{
    const struct gm_client *client = engine->apps[app].client;
    struct reading *reading = malloc(sizeof *reading);
    if (!reading)
        return -ENOMEM;
    reading->fd = client->fds[1];
    reading->from = reading->end = 0;
    int64_t n = list_spans(engine, app, reading);
    if (n == 0)
        n = read_spans(reading, from, to, uses, max);
    free(reading->spans);
    free(reading);
    return n;
}

void gm_engine_answer_window(const struct gm_engine *engine, struct gm_action *action)
{
    const uint32_t app = action->window.app, room = gm_engine_places_of(engine, app);
    struct gm_use *uses = malloc((room + 1) * sizeof *uses);
    action->window.uses = uses;
    action->window.n = uses ? gm_engine_read_window(engine, app, action->window.from,
                                                    action->window.to, uses, room)
                            : -ENOMEM;
}
