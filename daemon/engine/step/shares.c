/* clang-format off */
/*
 * Shares: allocations that other programs of the same user have mapped (cuIpc*). Owns the list of
 * shares and their openers. Called by step.c for messages, and by files that count shared memory.
 *
 *   SHARE   The owner asks from inside its gate, so the allocation is in place. What of it is on
 *           the host comes to the GPU first, if it can: the owner is told to ask again. From then on
 *           it is *fixed*: it is neither evicted nor exchanged, so those who map it need not be told.
 *           The owner gets a number and a nonce. Programs of the same user that know both may open
 *           it.
 *   OPEN    Maps its frames into the opener as they are, also those on the host.
 *   SHUT    Unmaps them there.
 *
 * What is fixed on the host stays beyond the GPU of its owner, and counts on the host for as long as
 * anybody has it open. A fixed allocation stays fixed: nobody knows who still holds its name. A shared frame is never
 * reused. It is destroyed when the owner has given it up and the last opener has unmapped it or is
 * gone. Between the two it is an *orphan*.
 *
 * Fixed memory is taken off the scheduler's room and off the budget of each program. A SHARE that
 * would leave another program less than it needs to run is refused, and no program can allocate
 * more than what is left. So no program starves.
 */
/* clang-format on */
#include "daemon/engine/step/shares.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/exits.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"

/* Of one OPEN, batches that a program has not answered. */
#define GM_SHARE_MAPS_AT_ONCE 4

#define PLACES_A_MAP ((uint32_t)GM_ENTRIES_MAP)
#define PLACES_AN_UNMAP ((uint32_t)GM_ENTRIES_UNMAP)

/* Shares. */

static struct gm_share *find_owned(const struct gm_engine *engine, uint32_t owner, uint64_t va)
{
    struct gm_share *share = engine->shares;
    while (share && (share->owner != owner || share->va != va))
        share = share->next;
    return share;
}

static struct gm_share *find_share(const struct gm_engine *engine, uint32_t number)
{
    struct gm_share *share = engine->shares;
    while (share && share->id != number)
        share = share->next;
    return share;
}

/* Whether every program could still run if `bytes` more were fixed, of what `owner` has. */
static bool leaves_room(const struct gm_engine *engine, uint32_t owner, uint64_t bytes)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->table->apps[id].is_used || gm_group_is_one(engine, id, owner))
            continue; /* to the owner's group it makes no difference */
        const struct gm_room_input input = gm_engine_room_input(engine, id);
        if (!gm_room_may_fix(&input, bytes))
            return false;
    }
    return true;
}

/* Whether so much more of the app can stay on the host for good. Most of it was promised there. */
static bool has_host_room(const struct gm_engine *engine, uint32_t id, uint64_t bytes)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    const uint64_t more = gm_less(entry->held + bytes, entry->beyond);
    return more == 0 || gm_room_may_hold(&input, more);
}

static uint64_t bytes_on_gpu(const struct gm_table *table, uint32_t allocation)
{
    uint64_t bytes = 0;
    for (uint32_t c = table->allocations[allocation].first; c != GM_NONE;
         c = table->chunks[c].sibling)
        bytes += table->chunks[c].tier != GM_TIER_GPU ? 0 : gm_chunk_bytes(&table->chunks[c]);
    return bytes;
}

/* Whether the owner is to ask again, as its memory is to come to the GPU first. Only the first ask
 * sets the time. After it the answer is final, also where the owner asks long after. */
static bool comes_first(struct gm_engine *engine, uint32_t id, uint32_t index, uint64_t on_host)
{
    uint64_t until = engine->table->allocations[index].comes_until;
    if (until == 0 && on_host > 0) {
        until = engine->now + GM_SHARE_COMES_NS;
        gm_working_heat(engine->table, index);
        gm_engine_fit(engine, id);
    }
    const bool comes = on_host > 0 && engine->now < until && gm_engine_want_exchange(engine, id);
    gm_table_set_comes_until(engine->table, index, comes ? until : 0);
    return comes;
}

static struct gm_share *make_share(struct gm_engine *engine, uint32_t id, uint32_t index,
                                   const uint64_t *nonce)
{
    struct gm_table *table = engine->table;
    const struct gm_allocation *allocation = &table->allocations[index];
    const struct gm_app *app = &engine->apps[id];
    struct gm_share *share =
        nonce ? calloc(1, sizeof *share + allocation->chunks * sizeof *share->places) : NULL;

    if (!share)
        return NULL;
    share->nonce[0] = nonce[0] & GM_LEDGER_NONCE;
    share->nonce[1] = nonce[1] & GM_LEDGER_NONCE;
    /* Never 0. One that has ended may come again after a restart: who opens knows the nonce. */
    engine->next_share += engine->next_share == UINT32_MAX ? 2 : 1;
    share->id = engine->next_share;
    share->owner = id;
    share->uid = app->uid;
    share->va = allocation->va;
    share->bytes = allocation->bytes;
    for (uint32_t c = allocation->first; c != GM_NONE; c = table->chunks[c].sibling) {
        const struct gm_chunk *chunk = &table->chunks[c];
        share->places[share->n++] = (struct gm_share_place){
            .offset = chunk->va - share->va, .bytes = gm_chunk_bytes(chunk), .frame = chunk->frame};
    }
    share->left = share->n;
    share->next = engine->shares;
    engine->shares = share;
    return share;
}

static void answer_share(struct gm_engine *engine, uint32_t id, uint64_t cookie, CUresult result,
                         const struct gm_share *share)
{
    struct gm_msg_shared answer = {.cookie = cookie, .result = (int32_t)result};
    if (share) {
        answer.share = share->id;
        answer.nonce[0] = share->nonce[0];
        answer.nonce[1] = share->nonce[1];
    }
    gm_engine_say(engine, id, GM_MSG_SHARED, &answer);
}

void gm_engine_share(struct gm_engine *engine, uint32_t id, const struct gm_msg_share *ask,
                     const uint64_t *nonce)
{
    const uint32_t index = gm_table_find_allocation(engine->table, id, ask->va);
    struct gm_share *share = find_owned(engine, id, ask->va);
    CUresult result = CUDA_SUCCESS;
    uint64_t bytes, on_host;

    if (share || index == GM_NONE) {
        answer_share(engine, id, ask->cookie, share ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
                     share);
        return;
    }
    bytes = bytes_on_gpu(engine->table, index);
    on_host = engine->table->allocations[index].bytes - bytes;
    if (!gm_table_can_fix(engine->table, index))
        result = CUDA_ERROR_NOT_READY; /* not from inside the gate */
    else if (comes_first(engine, id, index, on_host))
        result = CUDA_ERROR_NOT_READY;
    else if (!leaves_room(engine, id, bytes) || !has_host_room(engine, id, on_host))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!(share = make_share(engine, id, index, nonce)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!share) {
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            gm_engine_emit(
                engine,
                &(struct gm_event){.kind = GM_EVENT_NOT_SHARED,
                                   .app = id,
                                   .not_shared = {.bytes = bytes, .shared = engine->table->fixed}});
        answer_share(engine, id, ask->cookie, result, NULL);
        return;
    }
    gm_engine_drop_shadows(engine, index);
    gm_table_fix(engine->table, index, share->id, share->nonce);
    gm_engine_fit(engine, engine->table->allocations[index].app);
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_SHARED,
                                      .app = id,
                                      .shared = {.share = share->id, .bytes = share->bytes}});
    for (uint32_t other = 0; other < engine->config.max_apps; other++)
        if (engine->table->apps[other].is_used)
            gm_engine_need_budget(engine, other);
    gm_engine_feed_size(engine, id);
    gm_engine_update_room(engine);
    gm_engine_tell_room(engine);
    answer_share(engine, id, ask->cookie, CUDA_SUCCESS, share);
}

/* Nobody maps it any more but, possibly, processes that end. */
static void end_place(struct gm_engine *engine, struct gm_share_place *place)
{
    gm_engine_condemn(engine, place->frame, GM_NONE);
    place->frame = GM_NONE;
}

static void end_share_if_over(struct gm_engine *engine, struct gm_share *share)
{
    struct gm_share **link = &engine->shares;
    if (share->left > 0 || share->opens > 0)
        return;
    while (*link != share)
        link = &(*link)->next;
    *link = share->next;
    free(share);
}

void gm_engine_unshare(struct gm_engine *engine, uint32_t owner, uint64_t va)
{
    struct gm_share *share = find_owned(engine, owner, va);
    if (!share)
        return;
    share->owner = GM_NONE;
    if (share->opens > 0)
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_UNSHARED,
                                                  .app = owner,
                                                  .unshared = {.share = share->id,
                                                               .bytes = share->bytes,
                                                               .opens = share->opens}});
}

void gm_engine_leave_share(struct gm_engine *engine, uint32_t frame)
{
    struct gm_share *share = find_share(engine, engine->table->frames[frame].share);
    share->left--;
    for (uint32_t k = 0; k < share->n; k++) {
        uint32_t i = (share->left_at + k) % share->n;
        if (share->places[i].frame != frame)
            continue;
        share->left_at = i + 1;
        if (share->opens > 0)
            gm_table_orphan_frame(engine->table, frame);
        else
            end_place(engine, &share->places[i]);
        break;
    }
    end_share_if_over(engine, share);
}

/* Openings. */

static struct gm_open *find_open(const struct gm_engine *engine, uint32_t id, uint64_t va)
{
    struct gm_open *open = engine->opens;
    while (open && (open->app != id || open->va != va))
        open = open->next;
    return open;
}

static bool has_open(const struct gm_engine *engine, uint32_t id, const struct gm_share *share)
{
    for (const struct gm_open *open = engine->opens; open; open = open->next)
        if (open->app == id && open->share == share)
            return true;
    return false;
}

static void set_mapped(struct gm_open *open, uint32_t place, bool is_mapped)
{
    uint8_t bit = (uint8_t)(1u << (place % 8));
    open->is_mapped[place / 8] =
        (uint8_t)(is_mapped ? open->is_mapped[place / 8] | bit : open->is_mapped[place / 8] & ~bit);
}

static bool is_mapped(const struct gm_open *open, uint32_t place)
{
    return open->is_mapped[place / 8] & (1u << (place % 8));
}

/* It is open no more. With the last opening of what its owner gave up, that ends as well. */
static void end_open(struct gm_engine *engine, struct gm_open *open)
{
    struct gm_share *share = open->share;
    struct gm_open **link = &engine->opens;

    while (*link != open)
        link = &(*link)->next;
    *link = open->next;
    free(open);
    if (--share->opens > 0)
        return;
    for (uint32_t i = 0; i < share->n; i++) {
        uint32_t frame = share->places[i].frame;
        if (frame != GM_NONE && engine->table->frames[frame].chunk == GM_NONE)
            end_place(engine, &share->places[i]);
    }
    end_share_if_over(engine, share);
}

void gm_engine_forget_opens(struct gm_engine *engine, uint32_t id)
{
    struct gm_open *open = engine->opens;
    while (open) {
        struct gm_open *next = open->next;
        if (open->app == id)
            end_open(engine, open);
        open = next;
    }
}

static void answer_open(struct gm_engine *engine, uint32_t id, uint64_t cookie, CUresult result)
{
    struct gm_msg_opened answer = {.cookie = cookie, .result = (int32_t)result};
    gm_engine_say(engine, id, GM_MSG_OPENED, &answer);
}

static void answer_shut(struct gm_engine *engine, uint32_t id, uint64_t cookie, CUresult result)
{
    struct gm_msg_shut_is answer = {.cookie = cookie, .result = (int32_t)result};
    gm_engine_say(engine, id, GM_MSG_SHUT_IS, &answer);
}

/* Ask for more of it to be mapped, as far as there is something left and not too much on its way.
 */
static void send_maps(struct gm_engine *engine, struct gm_open *open)
{
    uint32_t places[PLACES_A_MAP];
    while (open->asked < open->share->n && open->unanswered < GM_SHARE_MAPS_AT_ONCE) {
        uint32_t n = 0;
        while (n < PLACES_A_MAP && open->asked < open->share->n)
            places[n++] = open->asked++;
        open->unanswered += gm_engine_send_places(engine, GM_BATCH_OPEN, open, places, n);
    }
}

/* The same for unmapping what is mapped. */
static void send_unmaps(struct gm_engine *engine, struct gm_open *open)
{
    uint32_t places[PLACES_AN_UNMAP];
    while (open->asked < open->share->n && open->unanswered < GM_SHARE_MAPS_AT_ONCE) {
        uint32_t n = 0;
        for (; n < PLACES_AN_UNMAP && open->asked < open->share->n; open->asked++)
            if (is_mapped(open, open->asked))
                places[n++] = open->asked;
        if (n > 0)
            open->unanswered += gm_engine_send_places(engine, GM_BATCH_SHUT, open, places, n);
    }
}

/* Go on with it after an answer, as far as that allows. It may have ended then. */
static void step_open(struct gm_engine *engine, struct gm_open *open)
{
    if (open->stage == GM_OPEN_OPENING && open->result == 0)
        send_maps(engine, open);
    if (open->stage == GM_OPEN_OPENING && open->unanswered == 0) {
        if (open->result == 0) {
            open->stage = GM_OPEN_OPEN;
            answer_open(engine, open->app, open->cookie, CUDA_SUCCESS);
            return;
        }
        open->stage = GM_OPEN_FAILING;
        open->asked = 0;
    }
    if (open->stage != GM_OPEN_FAILING && open->stage != GM_OPEN_SHUTTING)
        return;
    send_unmaps(engine, open);
    if (open->unanswered > 0)
        return;
    if (open->stage == GM_OPEN_FAILING)
        answer_open(engine, open->app, open->cookie, (CUresult)open->result);
    else
        answer_shut(engine, open->app, open->cookie, CUDA_SUCCESS);
    end_open(engine, open);
}

void gm_engine_places_done(struct gm_engine *engine, const struct gm_batch *batch, int32_t result)
{
    struct gm_open *open = batch->open;
    open->unanswered--;
    if (result == 0)
        for (uint32_t i = 0; i < batch->n; i++)
            set_mapped(open, batch->items[i], batch->kind == GM_BATCH_OPEN);
    else if (open->result == 0)
        open->result = result;
    step_open(engine, open);
}

/* What the name stands for; NULL: nothing (any more) that this program may have. */
static struct gm_share *find_named(struct gm_engine *engine, uint32_t id,
                                   const struct gm_msg_open *ask)
{
    struct gm_share *share = find_share(engine, ask->share);
    if (!share || share->owner == GM_NONE || share->bytes != ask->bytes ||
        ask->gpu != engine->config.index ||
        ((share->nonce[0] ^ ask->nonce[0]) | (share->nonce[1] ^ ask->nonce[1])) != 0)
        return NULL;
    if (share->uid == engine->apps[id].uid)
        return share;
    gm_engine_emit(
        engine,
        &(struct gm_event){.kind = GM_EVENT_NOT_OPENED, .app = id, .not_opened.user = share->uid});
    return NULL;
}

void gm_engine_unite(struct gm_engine *engine, uint32_t id, const struct gm_client *partner)
{
    const struct gm_client *client = engine->apps[id].client;
    const enum gm_union made = gm_group_unite(client, partner);
    if (made == GM_UNION_NONE)
        return;
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_UNITED,
                                              .app = id,
                                              .united = {.partner = partner->id,
                                                         .partner_pid = partner->pid,
                                                         .is_made = made == GM_UNION_MADE,
                                                         .is_large = made == GM_UNION_LARGE,
                                                         .group = gm_group_name(client->group)}});
}

void gm_engine_unite_owners(struct gm_engine *engine, uint32_t id)
{
    for (const struct gm_open *open = engine->opens; open; open = open->next)
        if (open->app == id && open->share->owner != GM_NONE)
            gm_engine_unite(engine, id, engine->apps[open->share->owner].client);
}

void gm_engine_unite_kin(struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *kin;
    while ((kin = gm_group_take_kin(engine->apps[id].client)) != NULL)
        gm_engine_unite(engine, id, kin);
}

void gm_engine_open_share(struct gm_engine *engine, uint32_t id, const struct gm_msg_open *ask)
{
    struct gm_open *open = find_open(engine, id, ask->va);
    struct gm_share *share;

    if (ask->va == 0 || ask->va % GM_CHUNK_MIN || ask->bytes == 0 || ask->bytes % GM_CHUNK_MIN ||
        ask->bytes > UINT64_MAX - ask->va ||
        (open && ask->cookie > engine->apps[id].client->again) ||
        gm_table_find_allocation(engine->table, id, ask->va) != GM_NONE) {
        gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "an opening that cannot be");
        return;
    }
    if (open && open->stage == GM_OPEN_OPEN) { /* a daemon before has opened it */
        answer_open(engine, id, ask->cookie, CUDA_SUCCESS);
        return;
    }
    share = find_named(engine, id, ask);
    if (!share) {
        answer_open(engine, id, ask->cookie, CUDA_ERROR_INVALID_VALUE);
        return;
    }
    if (share->owner == id || open || has_open(engine, id, share)) {
        answer_open(engine, id, ask->cookie,
                    share->owner == id ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_ALREADY_MAPPED);
        return;
    }
    open = calloc(1, sizeof *open + share->n / 8 + 1);
    if (!open) {
        answer_open(engine, id, ask->cookie, CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    *open = (struct gm_open){
        .next = engine->opens, .share = share, .va = ask->va, .cookie = ask->cookie, .app = id};
    engine->opens = open;
    share->opens++;
    gm_engine_emit(
        engine, &(struct gm_event){
                    .kind = GM_EVENT_OPENED,
                    .app = id,
                    .opened = {.share = share->id, .owner = share->owner, .bytes = share->bytes}});
    gm_engine_unite(engine, id, engine->apps[share->owner].client);
    step_open(engine, open);
}

bool gm_engine_has_open(const struct gm_engine *engine, uint32_t id, uint64_t va)
{
    return find_open(engine, id, va) != NULL;
}

void gm_engine_shut(struct gm_engine *engine, uint32_t id, const struct gm_msg_shut *ask)
{
    struct gm_open *open = find_open(engine, id, ask->va);
    if (!open || open->stage != GM_OPEN_OPEN) {
        const bool is_again = !open && ask->cookie <= engine->apps[id].client->again;
        answer_shut(engine, id, ask->cookie, is_again ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
        return;
    }
    open->cookie = ask->cookie;
    open->stage = GM_OPEN_SHUTTING;
    open->asked = 0;
    step_open(engine, open);
}

/* Of the daemon before. */

static struct gm_share *new_share(struct gm_engine *engine, uint32_t id, uint32_t places)
{
    struct gm_share *share = calloc(1, sizeof *share + places * sizeof *share->places);
    if (!share)
        return NULL;
    share->id = id;
    share->owner = GM_NONE;
    share->next = engine->shares;
    engine->shares = share;
    engine->next_share = id > engine->next_share ? id : engine->next_share;
    return share;
}

int gm_engine_adopt_share(struct gm_engine *engine, uint32_t at,
                          const struct gm_ledger_allocation *is)
{
    const struct gm_table *table = engine->table;
    struct gm_share *share = new_share(engine, is->share, table->allocations[at].chunks);
    if (!share)
        return -ENOMEM;
    share->nonce[0] = is->nonce[0];
    share->nonce[1] = is->nonce[1];
    share->owner = is->app;
    share->uid = table->pools[table->apps[is->app].pool].uid;
    share->va = is->va;
    share->bytes = is->bytes;
    for (uint32_t c = table->allocations[at].first; c != GM_NONE; c = table->chunks[c].sibling)
        share->places[share->n++] =
            (struct gm_share_place){.offset = table->chunks[c].va - is->va,
                                    .bytes = gm_chunk_bytes(&table->chunks[c]),
                                    .frame = table->chunks[c].frame};
    share->left = share->n;
    return 0;
}

/* Where an orphan lies in what was shared is known when somebody says where it is mapped. */
#define UNKNOWN UINT64_MAX

/* Somebody may have it open who has an import of any of it. */
static bool may_have(const struct gm_engine *engine, uint32_t id, const struct gm_share *share)
{
    for (uint32_t i = 0; i < share->n; i++)
        if (share->places[i].frame != GM_NONE &&
            gm_table_has_import(engine->table, id, share->places[i].frame))
            return true;
    return false;
}

static int expect_opens(struct gm_engine *engine, struct gm_share *share)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->table->apps[id].is_used || share->owner == id || !may_have(engine, id, share))
            continue;
        struct gm_open *open = calloc(1, sizeof *open + share->n / 8 + 1);
        if (!open)
            return -ENOMEM;
        *open = (struct gm_open){
            .next = engine->opens, .share = share, .app = id, .stage = GM_OPEN_OPEN};
        engine->opens = open;
        share->opens++;
    }
    return 0;
}

static int adopt_orphans(struct gm_engine *engine, uint32_t number, uint32_t first)
{
    const struct gm_table *table = engine->table;
    uint32_t n = 0;
    for (uint32_t i = first; i < table->max_frames; i++)
        n += table->frames[i].state != GM_FRAME_UNUSED && table->frames[i].share == number;
    struct gm_share *share = new_share(engine, number, n);
    if (!share)
        return -ENOMEM;
    for (uint32_t i = first; i < table->max_frames; i++)
        if (table->frames[i].state != GM_FRAME_UNUSED && table->frames[i].share == number) {
            const uint64_t bytes = gm_class_bytes(table->frames[i].class);
            share->places[share->n++] =
                (struct gm_share_place){.offset = UNKNOWN, .bytes = bytes, .frame = i};
            share->bytes += bytes;
            share->uid = table->pools[table->frames[i].pool].uid;
        }
    return 0;
}

int gm_engine_adopt_orphans(struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    struct gm_share *share, *next;
    int error = 0;
    for (uint32_t i = 0; i < table->max_frames && error == 0; i++) {
        const struct gm_frame *frame = &table->frames[i];
        if (frame->state != GM_FRAME_UNUSED && frame->share != 0 &&
            !find_share(engine, frame->share))
            error = adopt_orphans(engine, frame->share, i);
    }
    for (share = engine->shares; share && error == 0; share = share->next)
        error = expect_opens(engine, share);
    for (share = engine->shares; share && error == 0; share = next) {
        next = share->next;
        for (uint32_t i = 0; i < share->n && share->owner == GM_NONE && share->opens == 0; i++)
            end_place(engine, &share->places[i]);
        end_share_if_over(engine, share);
    }
    return error;
}

static struct gm_open *open_in(const struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    const uint32_t number = engine->table->frames[frame].share;
    struct gm_open *open = number == 0 ? NULL : engine->opens;
    while (open && (open->app != id || open->share->id != number))
        open = open->next;
    return open;
}

bool gm_engine_may_have_open(const struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    return open_in(engine, id, frame) != NULL;
}

bool gm_engine_is_open(const struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    const struct gm_open *open = open_in(engine, id, frame);
    return open && open->va != 0;
}

/* Where it is mapped as a whole; 0: it is not. */
static uint64_t opened_at(const struct gm_share *share, const uint64_t *va)
{
    uint64_t from = UINT64_MAX;
    for (uint32_t i = 0; i < share->n; i++) {
        const struct gm_share_place *place = &share->places[i];
        const uint64_t at = place->frame == GM_NONE ? 0 : va[place->frame];
        if (at == 0 || at == UINT64_MAX)
            return 0;
        const uint64_t offset = place->offset == UNKNOWN ? 0 : place->offset;
        if (at < offset || (place->offset != UNKNOWN && i > 0 && at - offset != from))
            return 0;
        from = at - offset < from ? at - offset : from;
    }
    return from == UINT64_MAX ? 0 : from;
}

void gm_engine_confirm_opens(struct gm_engine *engine, uint32_t id, const uint64_t *va)
{
    for (struct gm_open *open = engine->opens; open; open = open->next) {
        struct gm_share *share = open->share;
        if (open->app != id || open->va != 0)
            continue;
        open->va = opened_at(share, va);
        for (uint32_t i = 0; i < share->n && open->va != 0; i++) {
            set_mapped(open, i, true);
            if (share->places[i].offset == UNKNOWN)
                share->places[i].offset = va[share->places[i].frame] - open->va;
        }
    }
}

void gm_engine_end_unconfirmed(struct gm_engine *engine, uint32_t id)
{
    struct gm_open *open = engine->opens;
    while (open) {
        struct gm_open *next = open->next;
        if (open->app == id && open->va == 0)
            end_open(engine, open);
        open = next;
    }
}

/* Sums. */

uint64_t gm_engine_shared_bytes(const struct gm_engine *engine, uint32_t id)
{
    uint64_t bytes = 0;
    for (const struct gm_share *share = engine->shares; share; share = share->next)
        bytes += share->owner == id ? share->bytes : 0;
    return bytes;
}

uint64_t gm_engine_opened_bytes(const struct gm_engine *engine, uint32_t id)
{
    uint64_t bytes = 0;
    for (const struct gm_open *open = engine->opens; open; open = open->next)
        bytes += open->app == id ? open->share->bytes : 0;
    return bytes;
}

void gm_engine_close_shares(struct gm_engine *engine)
{
    while (engine->opens) {
        struct gm_open *open = engine->opens;
        engine->opens = open->next;
        free(open);
    }
    while (engine->shares) {
        struct gm_share *share = engine->shares;
        engine->shares = share->next;
        free(share);
    }
}

/* ---- frames that nobody needs ---- */

/*
 * What a chunk lets go of: its frame and its pages. Some of it is used again at once; a frame that
 * somebody else may reach ends when that is over (frames.c), or with the memory that it is shared
 * as.
 */

/* Whom a frame of the chunk waits for that is nobody's any more. */
static uint32_t exit_of(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const struct gm_app *app = &engine->apps[chunk->app];
    const bool is_awaited = gm_engine_is_left(app) && !app->exit.is_late;
    return app->state == GM_APP_GONE && is_awaited ? chunk->app : GM_NONE;
}

/* The pages of a chunk are in its tier's store; on its way between GPU and pinned memory, in the
 * latter. Those of a host frame go with it, when no program can reach it any more. */
void gm_engine_free_pages(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const enum gm_tier tier =
        chunk->tier > GM_TIER_PINNED ? (enum gm_tier)chunk->tier : GM_TIER_PINNED;
    if (chunk->host_frame != GM_NONE)
        gm_engine_condemn(engine, chunk->host_frame, exit_of(engine, chunk));
    gm_engine_forget_host_frame(engine, index);
    const uint32_t page = gm_table_leave_pages(engine->table, index);
    if (page != GM_NONE)
        gm_stores_free(engine->stores, tier, page);
}

/* Its program is gone. */
static void end_frame(struct gm_engine *engine, const struct gm_chunk *chunk, uint32_t frame)
{
    gm_engine_condemn(engine, frame, exit_of(engine, chunk));
    if (!engine->apps[chunk->app].exit.is_late)
        gm_table_keep_frame(engine->table, frame, false);
}

void gm_engine_give_up_frame(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const uint32_t frame = chunk->frame;
    gm_engine_again(engine);
    if (frame == GM_NONE)
        return;
    if (engine->table->frames[frame].share != 0)
        gm_engine_leave_share(engine, frame);
    else if (engine->table->frames[frame].is_host)
        ; /* it stays as long as the data in its pages: gm_engine_free_pages */
    else if (engine->apps[chunk->app].state != GM_APP_GONE || gm_engine_is_over(engine, chunk->app))
        gm_engine_free_frame(engine, frame);
    else
        end_frame(engine, chunk, frame);
}

void gm_engine_end_awaiting(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const uint32_t exit = gm_engine_is_left(app) ? id : GM_NONE;
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        const struct gm_frame *frame = &engine->table->frames[i];
        if (frame->state == GM_FRAME_USED && frame->chunk == GM_NONE && frame->share == 0 &&
            frame->mapper == id)
            gm_engine_condemn(engine, i, exit);
    }
    gm_table_set_lost(engine->table, id, false);
}
