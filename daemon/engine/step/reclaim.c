/*
 * Takes spares back (spares.c). A spare is cached memory, not used memory. It is taken when
 *
 *   an allocation does not fit beside it     gm_engine_make_room
 *   its program is paused, or idle           gm_engine_take_spares; nothing of it is copied
 *   its program has not used it for a while  gm_engine_age_spares
 *   memory is to go back to the system       gm_engine_take_spares, for trim and a smaller budget
 *
 * Taking one is a compare-and-swap on its word in shared memory, which only one side wins. The
 * allocation is freed from then on, as if the program had sent FREE: what was promised for it can
 * be promised to others at once. When nothing of it is mapped any more, TAKEN tells the program.
 * A program whose words lie loses memory of its own.
 *
 * Owns gm_app.spares.
 */
#include "daemon/engine/step/reclaim.h"

#include "common/sums.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/step/ahead.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/spares.h"

/* Take the spare that `word`, number i, says there is. Returns its bytes; 0: it is none any more.
 */
static uint64_t take(struct gm_engine *engine, uint32_t id, uint32_t i, uint64_t word)
{
    const uint32_t index = gm_engine_spare_of(engine, id, word);
    if (index == GM_NONE || !atomic_compare_exchange_strong(&engine->apps[id].stat->spares[i],
                                                            &word, word | GM_SPARE_BUSY))
        return 0;
    const uint64_t bytes = engine->table->allocations[index].bytes;
    gm_engine_take_back(engine, index);
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
            gm_engine_take_back(engine, index);
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
