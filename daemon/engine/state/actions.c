#include "daemon/engine/state/actions.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Some 300 actions. */
#define BLOCK_BYTES (64u << 10)

/* Memory of actions, of which the last part is in use. */
struct gm_action_block {
    struct gm_action_block *next;
    size_t used, bytes;
    _Alignas(max_align_t) char memory[];
};

static struct gm_action_block *new_block(size_t bytes)
{
    struct gm_action_block *block = malloc(sizeof *block + bytes);
    if (block) {
        block->next = NULL;
        block->used = 0;
        block->bytes = bytes;
    }
    return block;
}

static void *take(struct gm_action_block *block, size_t bytes)
{
    bytes = (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    if (!block || block->bytes - block->used < bytes)
        return NULL;
    void *memory = &block->memory[block->used];
    block->used += bytes;
    return memory;
}

/* NULL: there is none. */
static void *get(struct gm_actions *actions, size_t bytes)
{
    void *memory = take(actions->blocks, bytes);
    if (memory)
        return memory;
    struct gm_action_block *block =
        new_block(bytes + _Alignof(max_align_t) > BLOCK_BYTES ? 2 * bytes : BLOCK_BYTES);
    if (!block)
        return NULL;
    block->next = actions->blocks;
    actions->blocks = block;
    return take(block, bytes);
}

/* One block stays. */
static void clear(struct gm_actions *actions)
{
    while (actions->blocks && actions->blocks->next) {
        struct gm_action_block *block = actions->blocks;
        actions->blocks = block->next;
        free(block);
    }
    if (actions->blocks)
        actions->blocks->used = 0;
    if (actions->reserve)
        actions->reserve->used = 0;
    actions->first = actions->last = NULL;
}

static int open_actions(struct gm_actions *actions, size_t bytes)
{
    actions->reserve = new_block(bytes);
    return actions->reserve ? 0 : -ENOMEM;
}

int gm_actions_open(struct gm_engine *engine)
{
    /* The end of each session; frames; copies of the mover, and of the stores, which are bounded by
     * their bytes (GM_BELOW_AT_ONCE each in memory and with the disk, and a slab). */
    const size_t below = 2 * GM_BELOW_AT_ONCE / GM_CHUNK_MIN + GM_CHUNK_MAX / GM_CHUNK_MIN + 2;
    const size_t frames = GM_CREATE_AT_ONCE + GM_AHEAD_FRAMES + GM_REAP_AT_ONCE + GM_ADOPT_AT_ONCE;
    /* ... and of each app, closing and opening, parked, and its client as it ends. */
    const size_t most = 6 * (size_t)engine->config.max_apps + GM_HASH_DEPTH + frames +
                        GM_WAYS * GM_WAY_DEPTH + below;
    const size_t bytes = most * (sizeof(struct gm_action) + _Alignof(max_align_t));
    const int error = open_actions(&engine->posted, bytes);
    return error ? error : open_actions(&engine->carried, bytes);
}

static void close_actions(struct gm_actions *actions)
{
    clear(actions);
    free(actions->blocks);
    free(actions->reserve);
}

void gm_actions_close(struct gm_engine *engine)
{
    close_actions(&engine->posted);
    close_actions(&engine->carried);
}

static struct gm_action *add(struct gm_engine *engine, struct gm_action *action,
                             enum gm_action_kind kind)
{
    struct gm_actions *actions = &engine->posted;
    if (!action)
        return NULL;
    memset(action, 0, sizeof *action);
    action->kind = kind;
    if (actions->last)
        actions->last->next = action;
    else
        actions->first = action;
    actions->last = action;
    return action;
}

struct gm_action *gm_engine_post(struct gm_engine *engine, enum gm_action_kind kind)
{
    return add(engine, get(&engine->posted, sizeof(struct gm_action)), kind);
}

struct gm_action *gm_engine_post_surely(struct gm_engine *engine, enum gm_action_kind kind)
{
    void *memory = get(&engine->posted, sizeof(struct gm_action));
    if (!memory)
        memory = take(engine->posted.reserve, sizeof(struct gm_action));
    assert(memory);
    return add(engine, memory, kind);
}

void *gm_engine_post_copy(struct gm_engine *engine, const void *what, size_t bytes)
{
    void *memory = get(&engine->posted, bytes);
    if (memory && bytes > 0)
        memcpy(memory, what, bytes);
    return memory;
}

/* What an event points to that holds for the moment only, of so many bytes; 0: a text. */
static const struct {
    size_t at, bytes;
} pointers[GM_EVENTS] = {
    [GM_EVENT_UNITED] = {offsetof(struct gm_event, united.group), 0},
    [GM_EVENT_UNCHECKED] = {offsetof(struct gm_event, unchecked.why), 0},
    [GM_EVENT_HASH_OFF] = {offsetof(struct gm_event, hash_off.why), 0},
    [GM_EVENT_COPY_FAILED] = {offsetof(struct gm_event, copy_failed.error), 0},
    [GM_EVENT_LOST] = {offsetof(struct gm_event, lost.error), 0},
    [GM_EVENT_RULED] = {offsetof(struct gm_event, ruled.rule), 0},
    [GM_EVENT_IGNORED] = {offsetof(struct gm_event, ignored.why), 0},
    [GM_EVENT_WISHED] = {offsetof(struct gm_event, wished.settings), sizeof(struct gm_settings)},
    [GM_EVENT_SCHED] = {offsetof(struct gm_event, sched.config), sizeof(struct gm_sched_config)},
    [GM_EVENT_INPUT] = {offsetof(struct gm_event, input.event), sizeof(struct gm_sched_event)},
    [GM_EVENT_POLICY] = {offsetof(struct gm_event, policy.policy), sizeof(struct gm_sched_policy)},
    [GM_EVENT_SWITCH] = {offsetof(struct gm_event, switch_.note), sizeof(struct gm_note)},
    [GM_EVENT_LEVEL] = {offsetof(struct gm_event, level.note), sizeof(struct gm_note)},
    [GM_EVENT_SET] = {offsetof(struct gm_event, set.note), sizeof(struct gm_note)},
    [GM_EVENT_RESTARTED] = {offsetof(struct gm_event, restarted.note), sizeof(struct gm_note)},
    [GM_EVENT_REFUSED] = {offsetof(struct gm_event, refused.note), sizeof(struct gm_note)},
};

/* A copy of what is there, in its place. False: there is no memory for it. */
static bool keep(struct gm_engine *engine, const void **what, size_t bytes)
{
    if (*what)
        *what = gm_engine_post_copy(engine, *what, bytes > 0 ? bytes : strlen(*what) + 1);
    return *what != NULL;
}

void gm_engine_post_event(struct gm_engine *engine, const struct gm_event *event)
{
    struct gm_event told = *event;
    const size_t at = pointers[told.kind].at;
    if (at > 0 && !keep(engine, (const void **)((char *)&told + at), pointers[told.kind].bytes))
        return;
    if (told.name && !keep(engine, (const void **)&told.name, 0))
        return;
    struct gm_action *action = gm_engine_post(engine, GM_ACTION_EVENT);
    if (action)
        action->event = told;
}

void gm_engine_make_pinned(struct gm_engine *engine, uint64_t bytes)
{
    engine->wants.has_pinned = true;
    engine->wants.pinned = bytes;
}

void gm_engine_make_pinned_units(struct gm_engine *engine)
{
    engine->wants.has_units = true;
}

void gm_engine_make_paged(struct gm_engine *engine, uint64_t bytes)
{
    engine->wants.has_paged = true;
    engine->wants.paged = bytes;
}

struct gm_wants gm_engine_take_wants(struct gm_engine *engine)
{
    const struct gm_wants wants = engine->wants;
    engine->wants = (struct gm_wants){0};
    return wants;
}

struct gm_action *gm_engine_carry(struct gm_engine *engine)
{
    const struct gm_actions posted = engine->posted;
    engine->posted = engine->carried;
    engine->carried = posted;
    return engine->carried.first;
}

void gm_engine_carried(struct gm_engine *engine)
{
    clear(&engine->carried);
}
