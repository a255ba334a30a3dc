/*
 * What comes from outside: messages, the alarm, the ends of copies and processes, what an
 * administrator asks for. Each is an event for the step, with the time, which is read here alone.
 * Called by the machine, and by libuv and workers through open.c; nobody in the engine calls it.
 */
#include "daemon/engine/inlet.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/engine/act/act.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/device.h"
#include "daemon/engine/act/hashing.h"
#include "daemon/engine/act/meter.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/step.h"

/* Engines that something is to come to, by themselves or as this one changed them. */
static void set_alarms(const struct gm_host *host)
{
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        struct gm_engine *engine = host->engines[i];
        const uint64_t at = engine ? gm_engine_take_wake(engine) : 0;
        if (at != 0)
            gm_alarm_set(&engine->alarm, at);
    }
}

/* Decide what follows from the input, and do it, part by part. */
static int enter(struct gm_engine *engine, const struct gm_input *what)
{
    const uint64_t begin = gm_stopwatch();
    struct gm_input input = *what;
    bool has_more = true;
    gm_cuda_enter(&engine->cuda, engine->context);
    if (gm_engine_needs_device(&input))
        gm_engine_ask_device(engine, &input.device);
    uint64_t part = gm_stopwatch();
    const int result = gm_engine_step(engine, gm_now(), &input);
    gm_engine_count_deciding(engine, gm_stopwatch() - part);
    while (has_more) {
        gm_engine_act(engine);
        part = gm_stopwatch();
        has_more = gm_engine_go_on(engine);
        gm_engine_count_deciding(engine, gm_stopwatch() - part);
    }
    const uint64_t ns = gm_engine_take_deciding(engine);
    if (ns > 0)
        gm_engine_emit(
            engine, &(struct gm_event){.kind = GM_EVENT_DECIDED,
                                       .app = GM_NONE,
                                       .decided = {.ns = ns, .pass_ns = gm_stopwatch() - begin}});
    gm_engine_act(engine);
    gm_engine_carried(engine);
    set_alarms(engine->host);
    if (engine->stopping.is_over && !engine->is_closing) {
        gm_engine_halt(engine);
        engine->stopping.on_saved(engine->stopping.arg);
    }
    return result;
}

static void enter_kind(struct gm_engine *engine, enum gm_input_kind kind)
{
    enter(engine, &(struct gm_input){.kind = kind});
}

int gm_engine_join(struct gm_engine *engine, struct gm_client *client)
{
    int error;
    do
        error = enter(engine, &(struct gm_input){.kind = GM_INPUT_JOIN, .client = client});
    while (error == -EAGAIN);
    return error;
}

void gm_engine_message(struct gm_engine *engine, uint32_t id, const struct gm_wire_message *message)
{
    struct gm_input input = {.kind = GM_INPUT_MESSAGE, .app = id, .message = message};
    uint64_t nonce[2];
    if (message->type == GM_MSG_SHARE && gm_engine_draw_nonce(nonce))
        input.nonce = nonce;
    enter(engine, &input);
}

void gm_engine_imported(struct gm_engine *engine, uint32_t id, struct gm_client *partner)
{
    enter(engine, &(struct gm_input){.kind = GM_INPUT_IMPORTED, .app = id, .client = partner});
}

void gm_engine_leave(struct gm_engine *engine, uint32_t id, bool has_hung_up)
{
    enter(engine, &(struct gm_input){.kind = GM_INPUT_LEFT, .app = id, .has_hung_up = has_hung_up});
}

void gm_engine_on_copies(void *arg)
{
    struct gm_engine *engine = arg;
    const CUresult error = gm_mover_error(engine->mover);
    if (engine->is_closing)
        return;
    if (error == CUDA_SUCCESS) {
        struct gm_ended ended[GM_WAYS * GM_WAY_DEPTH];
        const uint32_t n = gm_engine_list_ended(engine, ended);
        enter(engine, &(struct gm_input){.kind = GM_INPUT_COPIES, .copies = {ended, n}});
        return;
    }
    enter(engine,
          &(struct gm_input){.kind = GM_INPUT_LOST, .error = gm_engine_error_text(engine, error)});
    engine->config.on_lost(engine->config.arg);
}

void gm_engine_on_host_copied(void *engine, uint32_t chunk, int error)
{
    enter(engine, &(struct gm_input){.kind = GM_INPUT_HOST_COPIED, .host_copied = {chunk, error}});
}

void gm_engine_on_grown(void *engine)
{
    const CUresult error = ((struct gm_engine *)engine)->pool.refusal;
    enter(engine, &(struct gm_input){.kind = GM_INPUT_PINNED,
                                     .error = error ? gm_engine_error_text(engine, error) : NULL});
}

void gm_engine_on_hashes(void *arg)
{
    struct gm_engine *engine = arg;
    struct gm_ended_hash ended[GM_HASH_DEPTH];
    if (engine->is_closing)
        return;
    const uint32_t n = gm_engine_list_hashes(engine, ended);
    enter(engine, &(struct gm_input){.kind = GM_INPUT_HASHES, .hashes = {ended, n}});
}

void gm_engine_on_link(void *arg)
{
    struct gm_engine *engine = arg;
    struct gm_meter_sample sample;
    if (engine->is_closing)
        return;
    struct gm_input input = {.kind = GM_INPUT_LINK,
                             .link = {.why_none = gm_engine_why_no_meter(engine)}};
    bool has = gm_engine_take_sample(engine, &sample);
    do {
        input.link.sample = has ? &sample : NULL;
        enter(engine, &input);
        has = gm_engine_take_sample(engine, &sample);
    } while (has);
}

void gm_engine_on_alarm(void *engine)
{
    enter_kind(engine, GM_INPUT_TIME);
}

static void on_copies_closed(struct gm_client *client)
{
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        if (client->engines[i])
            enter(client->engines[i],
                  &(struct gm_input){.kind = GM_INPUT_CLOSED, .app = client->id});
}

void gm_engine_on_exit(void *unused, struct gm_client *client)
{
    (void)unused;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        struct gm_engine *engine = client->engines[i];
        if (!engine)
            continue;
        gm_client_died(client, engine->loop, &engine->config.outlet, on_copies_closed);
        enter(engine, &(struct gm_input){.kind = GM_INPUT_EXITED, .app = client->id});
    }
}

/* ---- requests ---- */

void gm_engine_describe(struct gm_engine *engine, struct gm_gpu_entry *gpu)
{
    enter_kind(engine, GM_INPUT_DEVICE);
    gpu->budget = gm_engine_offered(engine);
    memcpy(gpu->uuid, engine->uuid.bytes, sizeof gpu->uuid);
}

int gm_engine_set(struct gm_engine *engine, const struct gm_set_request *request,
                  struct gm_set_done *done, char *why, size_t why_size)
{
    return enter(engine,
                 &(struct gm_input){.kind = GM_INPUT_SET, .set = {request, done, why, why_size}});
}

void gm_engine_tune(struct gm_engine *engine, const struct gm_engine_tuning *tuning)
{
    enter(engine, &(struct gm_input){.kind = GM_INPUT_TUNE, .tuning = tuning});
}

void gm_engine_trim(struct gm_engine *engine, uid_t asker, bool is_admin,
                    struct gm_trimmed *trimmed)
{
    enter(engine, &(struct gm_input){.kind = GM_INPUT_TRIM, .trim = {asker, is_admin, trimmed}});
}

void gm_engine_refresh(struct gm_engine *engine)
{
    enter_kind(engine, GM_INPUT_REFRESH);
}

void gm_engine_save(struct gm_engine *engine, void (*on_saved)(void *arg), void *arg)
{
    if (!engine->stopping.is_on)
        enter(engine, &(struct gm_input){.kind = GM_INPUT_SAVE, .save = {on_saved, arg}});
}

/* ---- programs of the daemon before ---- */

int gm_engine_await(struct gm_engine *engine, struct gm_client *client,
                    const struct gm_client_record *record)
{
    return enter(engine, &(struct gm_input){.kind = GM_INPUT_AWAIT, .await = {client, record}});
}

int gm_engine_awaited(struct gm_engine *engine)
{
    return enter(engine, &(struct gm_input){.kind = GM_INPUT_AWAITED});
}

void gm_engine_return(struct gm_engine *engine, uint32_t app, const struct gm_holdings *has)
{
    enter(engine, &(struct gm_input){.kind = GM_INPUT_RETURN, .app = app, .back = has});
}

void gm_engine_give_up(struct gm_engine *engine, uint32_t app, bool is_over)
{
    enter(engine, &(struct gm_input){.kind = GM_INPUT_GIVE_UP, .app = app, .is_over = is_over});
}
