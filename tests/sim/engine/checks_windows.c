/* Checks of what programs mark, and what the engine reads of that (checks.c). */
#include "tests/sim/engine/checks.h"

#include "common/windows.h"
#include "daemon/engine/act/windows.h"

/* The words of the app as the engine reads them are what its program marked. */
static void check_words(const struct gm_engine *engine, const struct program *p, uint32_t from,
                        uint32_t to)
{
    static struct gm_use uses[PROGRAM_PAGES];
    const struct gm_table *table = engine->table;
    const int64_t n = gm_engine_read_window(engine, p->app, from, to, uses, PROGRAM_PAGES);
    int64_t at = 0;
    require(n >= 0, "the words of program %u cannot be read: %ld", p->number, (long)n);
    machine.sums.marks += (uint64_t)n;
    for (uint32_t i = 0; i < PROGRAM_PAGES; i++) {
        const uint64_t va = program_va(i);
        bool is_here = false;
        for (uint32_t a = table->apps[p->app].allocations.head; a != GM_NONE && !is_here;
             a = table->allocations[a].next)
            is_here = !table->allocations[a].is_freed && va >= table->allocations[a].va &&
                      va - table->allocations[a].va < table->allocations[a].bytes;
        if (!is_here || p->marked[i] <= from || p->marked[i] > to)
            continue;
        require(at < n && uses[at].va == va && uses[at].window == p->marked[i] &&
                    uses[at].count > 0,
                "program %u marked page %u in window %u, and the engine reads otherwise", p->number,
                i, p->marked[i]);
        at++;
    }
    require(at == n, "program %u did not mark what the engine reads", p->number);
}

/* What was marked in or after the first window whose work may not have ended is warm. */
static void check_lasting(const struct gm_engine *engine, const struct program *p, uint32_t from)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[p->app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling)
            for (uint64_t va = table->chunks[c].va;
                 va < table->chunks[c].va + gm_class_bytes(table->chunks[c].class);
                 va += GM_CHUNK_MIN) {
                const uint32_t page = (uint32_t)((va - program_va(0)) >> GM_CHUNK_SHIFT);
                require(page >= PROGRAM_PAGES || p->marked[page] < from ||
                            !table->chunks[c].is_cold,
                        "page %u of program %u is cold, marked in window %u by work of window %u "
                        "and later that may run",
                        page, p->number, p->marked[page], from);
                machine.sums.lasting += page < PROGRAM_PAGES && p->marked[page] >= from;
            }
}

/* What windows take for cold is older than some work of the program. */
static void check_worked(const struct gm_engine *engine, const struct program *p)
{
    const struct gm_table *table = engine->table;
    for (uint32_t a = table->apps[p->app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling) {
            const uint32_t page =
                (uint32_t)((table->chunks[c].va - program_va(0)) >> GM_CHUNK_SHIFT);
            const uint8_t region = page < PROGRAM_PAGES ? p->map[page].region : NO_REGION;
            require(!table->chunks[c].is_cold || region == NO_REGION ||
                        p->works > p->regions[region].works,
                    "page %u of program %u is cold, and it has not worked since it has that", page,
                    p->number);
        }
}

/* A window that has ended is whole if the program marked all that it touched in it, and so did all
 * of its work that may run. */
void check_windows(const struct gm_engine *engine, struct program *p)
{
    const struct gm_app *app = &engine->apps[p->app];
    const uint32_t k = engine->config.index;
    uint32_t *before = &p->window[k];
    const uint32_t now = app->windows.is_on ? app->windows.number : 0;
    require(now <= atomic_load(&p->ctl->window), "a window of program %u is not there yet",
            p->number);
    if (*before != 0 && now > *before) {
        const uint32_t marks_from = atomic_load(&p->stat->marks_from);
        const uint32_t lasts_from = atomic_load(&p->stat->lasts_from);
        const bool is_whole = marks_from < *before && p->hid_in < *before &&
                              (lasts_from == 0 || lasts_from > marks_from);
        require(app->windows.is_whole == is_whole || *before == p->begun_hidden[k],
                "window %u of program %u is %swhole", *before, p->number, is_whole ? "not " : "");
        machine.sums.windows++;
        if (!p->is_garbling)
            check_words(engine, p, now > 3 ? now - 3 : 0, now);
        if (!p->is_garbling && lasts_from != 0)
            check_lasting(engine, p, lasts_from);
        check_worked(engine, p);
    }
    /* It was not asked for a while, or the other GPU's engine gave the number, and it had hidden
     * something in it before this window began. */
    if (*before != now)
        p->begun_hidden[k] = p->hid_in == now ? now : 0;
    *before = now;
}
