/*
 * What programs allocate and free, frames that are made ahead of that, and what is taken back from
 * programs that keep more than they use.
 */
#include "daemon/engine/step/allocs.h"

#include "common/sums.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/step/shares.h"

/* ---- frames ahead ---- */

/*
 * Memory that a program which grows may need next, and that nobody waits for
 * (shim/memory/ahead.h). It is no reason to pause anybody, nor to move or to destroy anything:
 * everything fits and is there, with this a part of the budget stays free, and its frames are made
 * first. All else is refused, and the program is as it was. What came is a spare (room.c) until
 * the program allocates it.
 */

/* If the device has less left than the budget, one part in so many of it. */
#define GM_AHEAD_DEVICE_SHARE 4
/* Whether all programs have all their memory, but for what is on its way to them ahead. */
static bool is_whole(const struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (engine->table->apps[id].is_used &&
            (engine->table->apps[id].missing > app->allocs.ahead_chunks ||
             app->allocs.pending > app->allocs.ahead || app->state == GM_APP_LOADING ||
             app->state == GM_APP_DRAINING))
            return false;
    }
    return engine->table->budget == gm_engine_offered(engine) &&
           !gm_engine_is_off(engine, GM_RETRY_FRAME) && !engine->create_more && !engine->waiting;
}

/* Whether the device has memory to spare. It may have less than the budget, as programs beside
 * gpumux use it as well: what the budget still allows could not be had then. */
static bool has_device_room(struct gm_engine *engine)
{
    const uint64_t allowed = engine->table->budget - engine->table->allocated;
    return engine->seen.is_known &&
           (engine->seen.free_bytes >= allowed ||
            engine->seen.free_bytes >= engine->seen.total / GM_AHEAD_DEVICE_SHARE);
}

/* Free frames that chunks of `bytes` lack, by their size. Returns how many. */
static uint32_t count_lacking(const struct gm_engine *engine, uint32_t pool, uint64_t bytes,
                              uint32_t lacking[GM_CHUNK_CLASSES])
{
    uint32_t n = 0;
    for (uint64_t left = bytes; left > 0; left -= gm_class_bytes(gm_chunk_next(left)))
        lacking[gm_chunk_next(left)]++;
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++) {
        const uint32_t has = engine->table->pools[pool].count[class];
        lacking[class] = lacking[class] > has ? lacking[class] - has : 0;
        n += lacking[class];
    }
    return n;
}

/* All but its frames is there. */
static bool may_come_ahead(const struct gm_engine *engine, uint32_t id,
                           const struct gm_msg_alloc *alloc)
{
    const struct gm_table *table = engine->table;
    const uint64_t taken = table->committed + table->orphaned;
    const uint64_t room = engine->room + table->fixed, most = room - room / GM_AHEAD_SHARE;
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    return !engine->stopping.is_on && engine->apps[id].state == GM_APP_RUNNING && taken <= most &&
           alloc->bytes <= most - taken && alloc->bytes <= gm_room_of(&input).gpu &&
           is_whole(engine);
}

/* Have the frames made that it lacks, if they are few. False: they cannot be had. */
static bool ask_frames(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    const uint32_t pool = engine->table->apps[id].pool;
    uint32_t lacking[GM_CHUNK_CLASSES] = {0};
    if (count_lacking(engine, pool, alloc->bytes, lacking) > GM_AHEAD_FRAMES ||
        !has_device_room(engine))
        return false;
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        for (; lacking[class] > 0; lacking[class]--)
            if (!gm_engine_ask_free_frame(engine, pool, class))
                return false;
    struct gm_action *action = gm_engine_post(engine, GM_ACTION_AHEAD);
    if (action) {
        action->ahead.app = id;
        action->ahead.alloc = *alloc;
    }
    return action != NULL;
}

void gm_engine_admit_made(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    uint32_t lacking[GM_CHUNK_CLASSES] = {0};
    if (!may_come_ahead(engine, id, alloc) ||
        count_lacking(engine, engine->table->apps[id].pool, alloc->bytes, lacking) > 0 ||
        gm_engine_commit(engine, id, alloc) != GM_WHY_NONE)
        gm_engine_refuse_alloc(engine, id, alloc->cookie);
}

void gm_engine_admit_ahead(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    uint32_t lacking[GM_CHUNK_CLASSES] = {0};
    if (!may_come_ahead(engine, id, alloc)) /* first: its size may be anything */
        gm_engine_refuse_alloc(engine, id, alloc->cookie);
    else if (count_lacking(engine, engine->table->apps[id].pool, alloc->bytes, lacking) == 0)
        gm_engine_admit_made(engine, id, alloc);
    else if (!ask_frames(engine, id, alloc))
        gm_engine_refuse_alloc(engine, id, alloc->cookie);
}

void gm_engine_call_off_ahead(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    const struct gm_app *app = &engine->apps[id];
    uint32_t index = table->apps[id].allocations.head, next;
    for (; index != GM_NONE && app->allocs.ahead > 0; index = next) {
        const struct gm_allocation *allocation = &table->allocations[index];
        next = allocation->next;
        if (allocation->is_ahead && allocation->is_pending && !allocation->is_freed)
            gm_engine_answer_alloc(engine, index, CUDA_ERROR_OUT_OF_MEMORY);
    }
}

/* ---- allocations ---- */

/*
 * Allocations: committed, answered, refused and freed. Owns gm_app.allocs, but for what waits
 * (waiting.c).
 */

static void free_allocation(struct gm_engine *engine, uint32_t index, struct gm_last_word last)
{
    const struct gm_allocation *allocation = &engine->table->allocations[index];
    uint32_t app = allocation->app, chunk = allocation->first, next;
    gm_engine_unshare(engine, app, allocation->va);
    gm_engine_drop_shadows(engine, index);
    const struct gm_table_app *entry = &engine->table->apps[app];
    const uint64_t held = entry->held;
    gm_table_free_allocation(engine->table, index, last);
    /* What was shared on the host stays there, as nobody's promise, until nobody has it open. */
    gm_table_set_beyond(engine->table, app, gm_less(entry->beyond, held - entry->held));
    gm_engine_forget_newest(engine, index);
    gm_engine_fit(engine, app); /* it has less beyond the GPU now */
    if (engine->apps[app].session)
        gm_engine_tell_room(engine); /* before FREED, which the last chunk may send */
    else
        gm_engine_count_aside(engine);
    gm_engine_fit_places(engine, app);
    for (chunk = allocation->first; chunk != GM_NONE; chunk = next) {
        next = engine->table->chunks[chunk].sibling;
        gm_engine_retire(engine, chunk);
    }
    gm_engine_want_memory(engine);
    if (engine->apps[app].state != GM_APP_GONE)
        gm_engine_feed_size(engine, app);
}

void gm_engine_free_allocations(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    uint32_t index, next;
    for (index = engine->table->apps[id].allocations.head; index != GM_NONE; index = next) {
        next = engine->table->allocations[index].next;
        if (!engine->table->allocations[index].is_freed)
            free_allocation(engine, index, (struct gm_last_word){.kind = GM_LAST_NONE});
    }
    app->allocs.pending = app->allocs.ahead = app->allocs.ahead_chunks = 0;
}

void gm_engine_answer_alloc(struct gm_engine *engine, uint32_t index, CUresult result)
{
    const struct gm_allocation *allocation = &engine->table->allocations[index];
    struct gm_app *app = &engine->apps[allocation->app];
    struct gm_msg_allocated answer = {.cookie = allocation->cookie, .result = (int32_t)result};

    gm_table_answer(engine->table, index);
    app->allocs.pending--;
    if (allocation->is_ahead) {
        app->allocs.ahead--;
        app->allocs.ahead_chunks -= (uint32_t)gm_chunk_count(allocation->bytes);
    }
    if (result != CUDA_SUCCESS) {
        /* Answered at its end, when nothing of it is mapped any more: the shim gives the addresses
         * back then. */
        const struct gm_last_word last = {
            .kind = GM_LAST_FAILED, .result = (int32_t)result, .cookie = allocation->cookie};
        free_allocation(engine, index, last);
    } else if (app->session && allocation->cookie != 0) {
        gm_engine_say(engine, allocation->app, GM_MSG_ALLOCATED, &answer);
    }
}

void gm_engine_expect_again(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    for (uint32_t at = table->apps[id].allocations.head; at != GM_NONE;
         at = table->allocations[at].next) {
        if (table->allocations[at].is_freed || table->allocations[at].is_pending ||
            table->allocations[at].missing == 0)
            continue;
        gm_table_await_answer(engine->table, at, 0, false);
        engine->apps[id].allocs.pending++;
    }
}

bool gm_engine_asked_again(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    struct gm_table *table = engine->table;
    const uint32_t at = gm_table_find_allocation(table, id, alloc->va);
    if (at == GM_NONE || alloc->cookie == 0 || alloc->cookie > engine->apps[id].client->again ||
        table->allocations[at].bytes != alloc->bytes ||
        (table->allocations[at].is_pending && table->allocations[at].cookie != 0))
        return false;
    engine->apps[id].allocs.pending += !table->allocations[at].is_pending;
    gm_table_await_answer(table, at, alloc->cookie, false);
    return true;
}

/* An allocation is answered when the app may go on with it: mapped if its gate is open, at once if
 * it is closed and quiet. While it drains the gate may still reopen, so the answer waits; also
 * while the app is held, as its gate opens soon. */
void gm_engine_answer_allocs(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    uint32_t index = engine->table->apps[id].allocations.head, next;
    for (; index != GM_NONE && app->allocs.pending > 0; index = next) {
        const struct gm_allocation *allocation = &engine->table->allocations[index];
        next = allocation->next;
        if (!allocation->is_pending || allocation->is_freed)
            continue;
        const bool is_paused = app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING;
        if ((is_paused && !app->places.is_held) ||
            ((is_paused || app->state == GM_APP_RUNNING) && allocation->missing == 0))
            gm_engine_answer_alloc(engine, index, CUDA_SUCCESS);
    }
}

void gm_engine_answer_refused(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        uint32_t index = engine->table->apps[id].allocations.head, next;
        for (; index != GM_NONE && engine->apps[id].allocs.pending > 0; index = next) {
            const struct gm_allocation *allocation = &engine->table->allocations[index];
            next = allocation->next;
            /* Who is back hears it when it asks again: its addresses are its own until then. */
            if (allocation->is_refused && allocation->is_pending && allocation->cookie != 0)
                gm_engine_answer_alloc(engine, index, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
}

enum gm_why gm_engine_commit(struct gm_engine *engine, uint32_t id,
                             const struct gm_msg_alloc *alloc)
{
    struct gm_table *table = engine->table;
    struct gm_app *app = &engine->apps[id];
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    const uint64_t beyond = gm_less(alloc->bytes, gm_room_of(&input).gpu);
    enum gm_why why = gm_room_refuses(&input, alloc->bytes);
    uint32_t index = GM_NONE;

    if (why == GM_WHY_NONE)
        index = gm_table_add_allocation(table, id, alloc->va, alloc->bytes);
    if (index == GM_NONE)
        return why == GM_WHY_NONE ? GM_WHY_FULL : why;
    gm_engine_reclaim_host(engine, id, beyond);
    gm_table_set_beyond(table, id, table->apps[id].beyond + beyond);
    gm_table_await_answer(table, index, alloc->cookie, (alloc->flags & GM_ALLOC_AHEAD) != 0);
    app->allocs.pending++;
    if (alloc->flags & GM_ALLOC_AHEAD) {
        app->allocs.ahead++;
        app->allocs.ahead_chunks += (uint32_t)gm_chunk_count(alloc->bytes);
    }
    gm_engine_place_new(engine, index);
    gm_engine_want_memory(engine);
    gm_engine_need_budget(engine, id);
    gm_engine_tell_room(engine); /* before ALLOCATED */
    gm_engine_feed_size(engine, id);
    return GM_WHY_NONE;
}

void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t id, uint64_t cookie)
{
    struct gm_msg_allocated answer = {.cookie = cookie, .result = CUDA_ERROR_OUT_OF_MEMORY};
    gm_engine_say(engine, id, GM_MSG_ALLOCATED, &answer);
}

/* A spare of its program's is the daemon's again: as if FREE had come, but TAKEN is the answer. */
static void take_back(struct gm_engine *engine, uint32_t index)
{
    gm_engine_happened(engine, engine->table->allocations[index].app, GM_EVENT_FREE);
    free_allocation(engine, index, (struct gm_last_word){.kind = GM_LAST_TAKEN});
}

void gm_engine_frees(struct gm_engine *engine, uint32_t id, const struct gm_msg_free *free_msg)
{
    uint32_t index = gm_table_find_allocation(engine->table, id, free_msg->va);
    struct gm_msg_freed answer = {.cookie = free_msg->cookie, .result = CUDA_ERROR_INVALID_VALUE};

    gm_engine_happened(engine, id, GM_EVENT_FREE);
    if (index != GM_NONE && engine->table->allocations[index].is_pending &&
        engine->table->allocations[index].cookie == 0) {
        gm_table_answer(engine->table, index); /* it did not ask for it again */
        engine->apps[id].allocs.pending--;
    }
    if (index == GM_NONE || engine->table->allocations[index].is_pending) {
        if (index == GM_NONE && free_msg->cookie <= engine->apps[id].client->again)
            answer.result = CUDA_SUCCESS; /* the daemon before has freed it */
        gm_engine_say(engine, id, GM_MSG_FREED, &answer);
        return;
    }
    const struct gm_last_word last = {.kind = GM_LAST_FREED, .cookie = free_msg->cookie};
    free_allocation(engine, index, last);
}

/* ---- what is taken back ---- */

/*
 * Takes spares back (room.c). A spare is cached memory, not used memory. It is taken when
 *
 *   an allocation does not fit beside it     gm_engine_make_room
 *   its program is paused, or idle           gm_engine_take_spares; nothing of it is copied
 *   its program has not used it for a while  gm_engine_age_spares
 *   memory is to go back to the system       gm_engine_take_spares, for trim and a smaller budget
 *
 * Taking one is a compare-and-swap on its word in shared memory, which only one side wins. The
 * allocation is freed from then on, as if the program had sent FREE: what was promised for it can
 * be promised to others at once. When nothing of it is mapped any more, TAKEN tells the program. A
 * program whose words lie loses memory of its own.
 *
 * Owns gm_app.spares.
 */

/* Take the spare that `word`, number i, says there is. Returns its bytes; 0: it is none any more.
 */
static uint64_t take(struct gm_engine *engine, uint32_t id, uint32_t i, uint64_t word)
{
    const uint32_t index = gm_engine_spare_of(engine, id, word);
    if (index == GM_NONE || !atomic_compare_exchange_strong(&engine->apps[id].stat->spares[i],
                                                            &word, word | GM_SPARE_BUSY))
        return 0;
    const uint64_t bytes = engine->table->allocations[index].bytes;
    take_back(engine, index);
    return bytes;
}

void gm_engine_take_busy_spares(struct gm_engine *engine, uint32_t id)
{
    for (uint32_t i = 0; i < GM_SPARES_MAX && gm_engine_has_spares(engine, id); i++) {
        const uint64_t word = atomic_load(&engine->apps[id].stat->spares[i]);
        const struct gm_msg_taken taken = {.va = word & ~(GM_CHUNK_MIN - 1)};
        if ((word & GM_SPARE_BUSY) == 0 || (word & GM_SPARE_OWN) != 0)
            continue; /* the program has it, and says what becomes of it */
        const uint32_t index = gm_table_find_allocation(engine->table, id, taken.va);
        if (index != GM_NONE)
            take_back(engine, index);
        else if (!gm_engine_is_of_another(engine, id, taken.va))
            gm_engine_say(engine, id, GM_MSG_TAKEN, &taken);
    }
}

uint64_t gm_engine_take_spares(struct gm_engine *engine, uint32_t id, uint64_t least)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < GM_SPARES_MAX && bytes < least && gm_engine_has_spares(engine, id);
         i++)
        bytes += take(engine, id, i, atomic_load(&engine->apps[id].stat->spares[i]));
    return bytes;
}

void gm_engine_take_all_spares(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        gm_engine_take_spares(engine, id, UINT64_MAX);
}

void gm_engine_age_spares(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (engine->now < app->spares.look_at)
        return;
    app->spares.look_at = engine->now + GM_SPARES_KEEP_NS;
    for (uint32_t i = 0; i < GM_SPARES_MAX && gm_engine_has_spares(engine, id); i++) {
        const uint64_t word = atomic_load(&app->stat->spares[i]);
        if (word != app->spares.seen[i] || take(engine, id, i, word) == 0)
            app->spares.seen[i] = word;
    }
}

/* What an allocation lacks: room in the tiers, and on the GPU beside those that run. */
static uint64_t lacking(const struct gm_engine *engine, uint32_t asker, uint64_t bytes)
{
    const uint64_t short_of_tiers = gm_less(bytes, gm_engine_left(engine));
    uint64_t together = bytes; /* as the program says */
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const enum gm_app_state state = engine->apps[id].state;
        if (id == asker || state == GM_APP_RUNNING || state == GM_APP_LOADING ||
            state == GM_APP_DRAINING)
            together = gm_more(together, gm_room_promised(engine->table, id));
    }
    const uint64_t short_of_gpu = gm_less(together, engine->room);
    return short_of_gpu > short_of_tiers ? short_of_gpu : short_of_tiers;
}

void gm_engine_make_room(struct gm_engine *engine, uint32_t asker, uint64_t bytes)
{
    const struct gm_room_input input = gm_engine_room_input(engine, asker);
    if (gm_room_is_capped(&input))
        gm_engine_take_spares(engine, asker, gm_less(bytes, gm_room_of(&input).gpu));
    uint64_t lacks = lacking(engine, asker, bytes);
    for (uint32_t id = 0; id < engine->config.max_apps && lacks > 0; id++)
        gm_engine_call_off_ahead(engine, id);
    lacks = lacks > 0 ? lacking(engine, asker, bytes) : 0;
    for (uint32_t k = 0; k < engine->config.max_apps && lacks > 0; k++) {
        /* Those of the asker first: it has no use for them now. */
        const uint32_t id = k == 0 ? asker : k <= asker ? k - 1 : k;
        const uint64_t taken = gm_engine_take_spares(engine, id, lacks);
        lacks -= taken < lacks ? taken : lacks;
    }
}
