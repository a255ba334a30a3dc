/* See machine.h. */

#include "daemon/engine/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/binds.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/open.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/budget.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/set.h"
#include "daemon/engine/step/shares.h"
#include "daemon/memory/kept.h"
#include "daemon/memory/limits.h"

/* ---- opening and closing ---- */

/* A GPU that the daemon before had, and this one has not, would lose all that programs have there.
 */
static bool has_more_gpus(struct gm_kept *kept, uint32_t n)
{
    for (uint32_t i = n; i < GM_GPUS_MAX; i++)
        if (gm_kept_next(kept, GM_KEPT_LEDGER, i, GM_NONE) != GM_NONE)
            return true;
    return false;
}

int gm_machine_find_gpus(uint32_t gpus[GM_GPUS_MAX], uint32_t *n, char *why, size_t why_size)
{
    struct gm_cuda cuda;
    int count = 0;
    int error = gm_cuda_open(&cuda, why, why_size);
    if (error)
        return error;
    CUresult result = cuda.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS || count == 0) {
        snprintf(why, why_size,
                 "the CUDA driver cannot start (%s): mux-ctl doctor says "
                 "what is wrong",
                 gm_cuda_text(&cuda, result));
        error = -ENODEV;
    } else if (count > (int)GM_GPUS_MAX) {
        snprintf(why, why_size, "there are %d GPUs and one daemon shares %u: choose with --gpu",
                 count, GM_GPUS_MAX);
        error = -ENOSPC;
    }
    for (*n = 0; error == 0 && *n < (uint32_t)count; ++*n)
        gpus[*n] = *n;
    gm_cuda_close(&cuda);
    return error;
}

int gm_machine_fit(struct gm_host *host, struct gm_engine_config *config, uint32_t n,
                   bool is_in_group, char *why, size_t why_size)
{
    struct gm_limits limits;
    gm_limits_read(&limits, "");
    if (!is_in_group)
        limits.group = UINT64_MAX;
    const int error = gm_limits_fit(&limits, &config->pinned, config->paged, why, why_size);
    return error ? error : gm_host_open(host, config, n, why, why_size);
}

int gm_machine_open(struct gm_machine *machine, uv_loop_t *loop, const struct gm_engine_config *all,
                    const uint32_t *gpus, uint32_t n, char *why, size_t why_size)
{
    struct gm_engine_config config = *all;
    uint32_t opened = 0;
    *machine =
        (struct gm_machine){.loop = loop, .outlet = all->outlet, .max_apps = all->max_apps, .n = n};
    int error = gm_machine_fit(&machine->host, &config, n, true, why, why_size);
    if (error == 0 && has_more_gpus(all->kept, n)) {
        snprintf(why, why_size,
                 "programs have memory on more GPUs than these: choose with --gpu as before, or "
                 "end gpumux-keeper, and what they have is lost");
        error = -EAGAIN;
    }
    if (error)
        return error;
    machine->lifeline = all->lifeline;
    machine->kept = all->kept;
    machine->journal = all->journal;
    machine->clients = calloc(all->max_apps, sizeof(struct gm_client *));
    if (!machine->clients) {
        snprintf(why, why_size, "out of memory");
        error = -ENOMEM;
        goto close_engines;
    }
    for (; opened < n; opened++) {
        config.gpu = (int)gpus[opened];
        config.index = opened;
        config.engines = n;
        error = gm_engine_open(&machine->engines[opened], loop, &config, why, why_size);
        if (error)
            goto close_engines;
    }
    error = gm_binds_open(&machine->binds, machine->engines, n, machine->max_apps);
    if (error) {
        snprintf(why, why_size, "out of memory");
        goto close_engines;
    }
    error = gm_keep_open(&machine->keep, machine->max_apps);
    if (error) {
        snprintf(why, why_size, "no memory for the ledger of programs: %s", strerror(-error));
        goto close_binds;
    }
    return 0;

close_binds:
    gm_binds_close(&machine->binds);
close_engines:
    gm_kept_disconnect(all->kept); /* it holds on, for the next start */
    while (opened > 0)
        gm_engine_close(machine->engines[--opened]);
    free(machine->clients);
    return error;
}

static void on_saved(void *arg)
{
    struct gm_machine *machine = arg;
    if (--machine->unsaved == 0)
        machine->on_saved(machine->arg);
}

void gm_machine_save(struct gm_machine *machine, void (*then)(void *arg), void *arg)
{
    if (machine->is_stopping)
        return;
    machine->is_stopping = true;
    machine->unsaved = machine->n;
    machine->on_saved = then;
    machine->arg = arg;
    for (uint32_t i = 0; i < machine->n; i++)
        gm_engine_save(machine->engines[i], on_saved, machine);
}

void gm_machine_saved(const struct gm_machine *machine, uint32_t *whole, uint32_t *left,
                      uint32_t *lost)
{
    *whole = *left = *lost = 0;
    for (uint32_t id = 0; id < machine->max_apps; id++) {
        uint32_t apps = 0, given_up = 0, open = 0;
        for (uint32_t i = 0; i < machine->n; i++) {
            const struct gm_app *app = &machine->engines[i]->apps[id];
            given_up += app->state != GM_APP_UNUSED && app->is_given_up;
            apps += app->state != GM_APP_UNUSED && app->state != GM_APP_GONE;
            open += app->state == GM_APP_RUNNING || app->state == GM_APP_DRAINING;
        }
        *lost += given_up > 0;
        *whole += given_up == 0 && apps > 0 && open == apps;
        *left += given_up == 0 && open < apps;
    }
}

void gm_machine_halt(struct gm_machine *machine)
{
    machine->is_stopping = true;
    for (uint32_t i = 0; i < machine->n; i++)
        gm_engine_halt(machine->engines[i]);
}

void gm_machine_close(struct gm_machine *machine)
{
    gm_kept_unmark(machine->kept, gm_clients_made(&machine->keep.clients));
    gm_keep_close(&machine->keep);
    for (uint32_t i = 0; i < machine->n; i++)
        gm_engine_close(machine->engines[i]);
    for (uint32_t id = 0; id < machine->max_apps; id++)
        if (machine->clients[id]) /* of a daemon before: it has not come back */
            gm_client_drop(machine->clients[id]);
    gm_binds_close(&machine->binds);
    free(machine->clients);
}

/* ---- coming and going ---- */

static bool is_free(const struct gm_machine *machine, uint32_t id)
{
    for (uint32_t i = 0; i < machine->n; i++)
        if (machine->engines[i]->apps[id].state != GM_APP_UNUSED)
            return false;
    return machine->clients[id] == NULL;
}

int gm_machine_places(const struct gm_machine *machine)
{
    int n = 0;
    for (uint32_t id = 0; id < machine->max_apps; id++)
        n += is_free(machine, id);
    return machine->is_stopping ? -ESHUTDOWN : n;
}

uint32_t gm_machine_places_of(const struct gm_machine *machine, uid_t owner)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < machine->max_apps; id++) {
        bool is_its = machine->clients[id] && machine->clients[id]->owner == owner;
        for (uint32_t i = 0; i < machine->n; i++) {
            const struct gm_client *client = machine->engines[i]->apps[id].client;
            is_its = is_its || (client && client->owner == owner);
        }
        n += is_its;
    }
    return n;
}

void gm_machine_keep(struct gm_machine *machine)
{
    for (uint32_t id = 0; id < machine->max_apps; id++)
        if (machine->clients[id])
            gm_keep_client(&machine->keep, machine->clients[id]);
}

/* It has ended, and so may have the lowest id of its group: from the highest on, so that at no
 * store one of the others stands alone. */
static void on_client_ended(void *arg, const struct gm_client *client)
{
    struct gm_machine *machine = arg;
    for (uint32_t id = machine->max_apps; id-- > 0;)
        if (machine->clients[id])
            gm_keep_client(&machine->keep, machine->clients[id]);
    gm_keep_end(&machine->keep, client->id);
}

/* Make the client an app of GPU `gpu`. 0 or -errno. */
static int enter(struct gm_machine *machine, struct gm_client *client, uint32_t gpu)
{
    if (client->engines[gpu])
        return 0;
    const int error = gm_engine_join(machine->engines[gpu], client);
    gm_machine_keep(machine); /* it may run with others now */
    return error;
}

int gm_machine_welcome(struct gm_machine *machine, struct gm_client *client)
{
    struct gm_gpu_entry gpus[GM_GPUS_MAX] = {0};
    for (uint32_t i = 0; i < machine->n; i++) {
        gm_engine_describe(machine->engines[i], &gpus[i]);
        gm_engine_tell_newcomer(machine->engines[i], client);
    }
    return gm_client_welcome(client, &machine->outlet, machine->lifeline, gpus, machine->n);
}

static void find_owner(const struct gm_machine *machine, struct gm_client *client)
{
    if (machine->outlet.owner)
        gm_client_count_for(client, machine->outlet.owner(client->uid));
}

/* A client, which is an app of no GPU yet. */
static int welcome(struct gm_machine *machine, const struct gm_newcomer *who,
                   struct gm_group *group, struct gm_client **out)
{
    struct gm_client *client;
    uint32_t id = 0;
    if (machine->is_stopping)
        return -ESHUTDOWN;
    while (id < machine->max_apps && !is_free(machine, id))
        id++;
    if (id == machine->max_apps)
        return -ENOSPC;
    int error = gm_client_open(&client, id, who, group, machine->kept);
    if (error)
        return error;
    find_owner(machine, client);
    gm_engine_judge_oversize(machine->engines[0], client);
    error = gm_client_await(client, machine->loop, gm_engine_on_exit, NULL);
    if (error == 0)
        error = gm_machine_welcome(machine, client);
    if (error) {
        gm_client_drop(client);
        return error;
    }
    gm_client_watch(client, on_client_ended, machine);
    machine->clients[id] = *out = client;
    return 0;
}

int gm_machine_join(struct gm_machine *machine, const struct gm_newcomer *who, const char *name,
                    uint32_t *id, char *why, size_t why_size)
{
    struct gm_group *group = NULL;
    struct gm_client *client;
    int error = 0;
    if (name[0] != '\0')
        error = gm_groups_find(&machine->groups, name, who->uid, &group, why, why_size);
    if (error)
        return error;
    error = welcome(machine, who, group, &client);
    if (error) {
        gm_groups_sweep(&machine->groups); /* it may be the first of its group */
        snprintf(why, why_size, "cannot take one more program: %s", strerror(-error));
        return error;
    }
    *id = client->id;
    if (machine->n == 1)
        enter(machine, client, 0); /* if that fails, its first allocation tries again */
    gm_machine_keep(machine);
    return 0;
}

int gm_machine_put(struct gm_machine *machine, struct gm_client *client,
                   const struct gm_client_record *record)
{
    int error = 0;
    gm_client_watch(client, on_client_ended, machine);
    machine->clients[client->id] = client;
    find_owner(machine, client);
    gm_engine_skip_refusals(client);
    gm_engine_judge_oversize(machine->engines[0], client);
    for (uint32_t i = 0; i < machine->n && error == 0; i++)
        if (machine->engines[i]->table->apps[client->id].is_used)
            error = gm_engine_await(machine->engines[i], client, record);
    gm_keep_lost(&machine->keep, client, record);
    return error;
}

void gm_machine_returned(struct gm_machine *machine, struct gm_client *client)
{
    if (machine->n == 1)
        enter(machine, client, 0); /* likewise */
    gm_machine_keep(machine);
}

/* No client has this id any more. The caller drops it. */
static struct gm_client *let_go(struct gm_machine *machine, uint32_t id)
{
    struct gm_client *client = machine->clients[id];
    machine->clients[id] = NULL;
    gm_client_left(client);
    gm_keep_client(&machine->keep, client);
    return client;
}

void gm_machine_leave(struct gm_machine *machine, uint32_t id, bool has_hung_up)
{
    struct gm_client *client = let_go(machine, id);
    for (uint32_t i = 0; i < machine->n; i++)
        if (client->engines[i])
            gm_engine_leave(machine->engines[i], id, has_hung_up);
    gm_client_drop(client);
}

void gm_machine_give_up(struct gm_machine *machine, uint32_t id, bool is_over)
{
    struct gm_client *client = let_go(machine, id);
    for (uint32_t i = 0; i < machine->n; i++)
        if (client->engines[i])
            gm_engine_give_up(machine->engines[i], id, is_over);
    gm_client_drop(client);
}

void gm_machine_beat(struct gm_machine *machine)
{
    for (uint32_t id = 0; id < machine->max_apps; id++) {
        struct gm_client *client = machine->clients[id];
        if (!client)
            continue;
        atomic_fetch_add(&client->ctl->beat, 1);
        for (uint32_t i = 0; i < machine->n; i++)
            if (!client->engines[i]) /* else the engine tells it */
                gm_engine_tell_newcomer(machine->engines[i], client);
    }
    gm_machine_keep(machine);
}

/* ---- messages ---- */

static bool is_gpu(struct gm_machine *machine, const struct gm_client *client, uint32_t gpu)
{
    if (gpu < machine->n)
        return true;
    machine->outlet.end(client->session, GM_REFUSE_PROTOCOL, "a GPU that is not there");
    return false;
}

static void on_enter(struct gm_machine *machine, struct gm_client *client,
                     const struct gm_msg_enter *body)
{
    struct gm_msg_entered answer = {.cookie = body->cookie};
    if (!is_gpu(machine, client, body->gpu))
        return;
    if (enter(machine, client, body->gpu) != 0)
        answer.result = CUDA_ERROR_NOT_READY;
    machine->outlet.send(client->session, GM_MSG_ENTERED, &answer, NULL, 0, NULL, 0);
}

static void on_alloc(struct gm_machine *machine, struct gm_client *client,
                     const struct gm_wire_message *message)
{
    const struct gm_msg_alloc *body = message->body;
    const struct gm_msg_allocated refusal = {.cookie = body->cookie,
                                             .result = CUDA_ERROR_OUT_OF_MEMORY};
    if (!is_gpu(machine, client, body->gpu))
        return;
    if (enter(machine, client, body->gpu) == 0)
        gm_engine_message(machine->engines[body->gpu], client->id, message);
    else
        machine->outlet.send(client->session, GM_MSG_ALLOCATED, &refusal, NULL, 0, NULL, 0);
}

static void on_open(struct gm_machine *machine, struct gm_client *client,
                    const struct gm_wire_message *message)
{
    const struct gm_msg_open *body = message->body;
    const struct gm_msg_opened refusal = {.cookie = body->cookie,
                                          .result = CUDA_ERROR_OUT_OF_MEMORY};
    if (!is_gpu(machine, client, body->gpu))
        return;
    if (enter(machine, client, body->gpu) == 0) {
        gm_engine_message(machine->engines[body->gpu], client->id, message);
        gm_machine_keep(machine); /* it may run with others now */
    } else
        machine->outlet.send(client->session, GM_MSG_OPENED, &refusal, NULL, 0, NULL, 0);
}

/* The engine in whose memory `va` is; the first that the client uses if there is none, to say so.
 * NULL: it uses none. */
static struct gm_engine *engine_at(const struct gm_client *client, uint64_t va,
                                   bool (*has)(const struct gm_engine *, uint32_t id, uint64_t va))
{
    struct gm_engine *first = NULL;
    for (uint32_t i = GM_GPUS_MAX; i-- > 0;) {
        struct gm_engine *engine = client->engines[i];
        if (engine && has(engine, client->id, va))
            return engine;
        first = engine ? engine : first;
    }
    return first;
}

static bool has_allocation(const struct gm_engine *engine, uint32_t id, uint64_t va)
{
    return gm_table_find_allocation(engine->table, id, va) != GM_NONE;
}

/* Give the message to one engine. */
static void hand_on(struct gm_machine *machine, struct gm_client *client, struct gm_engine *engine,
                    const struct gm_wire_message *message)
{
    if (engine)
        gm_engine_message(engine, client->id, message);
    else
        machine->outlet.end(client->session, GM_REFUSE_PROTOCOL, "a message out of place");
}

/* ... and to all that the client uses. */
static void hand_round(struct gm_client *client, const struct gm_wire_message *message)
{
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        if (client->engines[i])
            gm_engine_message(client->engines[i], client->id, message);
}

/* A thread waits at the gate of a program of which no context was seen: it may use any GPU. */
static void enter_all(struct gm_machine *machine, struct gm_client *client)
{
    for (uint32_t i = 0; i < machine->n; i++)
        if (client->engines[i])
            return;
    for (uint32_t i = 0; i < machine->n; i++)
        enter(machine, client, i);
}

void gm_machine_message(struct gm_machine *machine, uint32_t id,
                        const struct gm_wire_message *message)
{
    struct gm_client *client = machine->clients[id];
    uint64_t index;
    if (message->type == GM_MSG_DRAINED && !gm_client_answer(client, message->body)) {
        machine->outlet.end(client->session, GM_REFUSE_PROTOCOL,
                            "it says that it is parked, and goes on");
        return;
    }
    switch (message->type) {
    case GM_MSG_ENTER:
        on_enter(machine, client, message->body);
        break;
    case GM_MSG_ALLOC:
        on_alloc(machine, client, message);
        break;
    case GM_MSG_OPEN:
        on_open(machine, client, message);
        break;
    case GM_MSG_FREE:
        hand_on(machine, client,
                engine_at(client, ((const struct gm_msg_free *)message->body)->va, has_allocation),
                message);
        break;
    case GM_MSG_SHARE:
        hand_on(machine, client,
                engine_at(client, ((const struct gm_msg_share *)message->body)->va, has_allocation),
                message);
        break;
    case GM_MSG_SHUT:
        hand_on(
            machine, client,
            engine_at(client, ((const struct gm_msg_shut *)message->body)->va, gm_engine_has_open),
            message);
        break;
    case GM_MSG_DONE:
        index = ((const struct gm_msg_done *)message->body)->batch / GM_ENGINE_BATCHES;
        hand_on(machine, client, index < GM_GPUS_MAX ? client->engines[index] : NULL, message);
        break;
    case GM_MSG_WANT:
        enter_all(machine, client);
        hand_round(client, message);
        break;
    default:
        hand_round(client, message);
        break;
    }
}

/* The program of that process, be it yet to come back to this daemon, if it is of this user and
 * says that it exported memory. */
static struct gm_client *find_exporter(struct gm_machine *machine, pid_t pid, uid_t uid)
{
    for (uint32_t id = 0; id < machine->max_apps && pid > 0; id++) {
        struct gm_client *client = machine->clients[id];
        if (client && (client->session || client->lost_at != 0) && client->pid == pid &&
            client->uid == uid && atomic_load(&client->stat->exports) > 0)
            return client;
    }
    return NULL;
}

void gm_machine_imported(struct gm_machine *machine, uint32_t id, pid_t exporter)
{
    struct gm_client *client = machine->clients[id];
    struct gm_client *partner = find_exporter(machine, exporter, client->uid);
    uint32_t gpu = 0;
    while (gpu < machine->n && !client->engines[gpu])
        gpu++;
    if (partner && gpu < machine->n) {
        gm_engine_imported(machine->engines[gpu], id, partner);
        gm_machine_keep(machine);
    }
}

/* ---- what main, mux-ctl and the views ask ---- */

void gm_machine_tune(struct gm_machine *machine, const struct gm_engine_tuning *tuning)
{
    for (uint32_t id = 0; id < machine->max_apps; id++)
        if (machine->clients[id])
            find_owner(machine, machine->clients[id]);
    for (uint32_t i = 0; i < machine->n; i++)
        gm_engine_tune(machine->engines[i], tuning);
    gm_machine_keep(machine);
}

void gm_machine_trim(struct gm_machine *machine, uid_t asker, bool is_admin,
                     struct gm_trimmed *trimmed)
{
    *trimmed = (struct gm_trimmed){0};
    for (uint32_t i = 0; i < machine->n; i++) {
        struct gm_trimmed one;
        gm_engine_trim(machine->engines[i], asker, is_admin, &one);
        trimmed->gpu += one.gpu;
        trimmed->pinned += one.pinned;
        trimmed->paged += one.paged;
    }
}

bool gm_machine_is_trimming(const struct gm_machine *machine)
{
    for (uint32_t i = 0; i < machine->n; i++)
        if (gm_engine_is_trimming(machine->engines[i]))
            return true;
    return false;
}

int gm_machine_set(struct gm_machine *machine, const struct gm_set_request *request,
                   struct gm_set_done *done, char *why, size_t why_size)
{
    int outcome = -ENOENT;
    *done = (struct gm_set_done){0};
    why[0] = '\0';
    for (uint32_t i = 0; i < machine->n; i++) {
        const int error = gm_engine_check_set(machine->engines[i], request, why, why_size);
        if (error)
            return error;
    }
    for (uint32_t i = 0; i < machine->n; i++) {
        char one[256];
        struct gm_set_done here = {0};
        int error = gm_engine_set(machine->engines[i], request, &here, one, sizeof one);
        if (error && (outcome == 0 || (i > 0 && error == -ENOENT)))
            continue; /* such programs are on other GPUs */
        if (error)
            snprintf(why, why_size, "%s", one);
        outcome = error;
        done->changed += here.changed;
        if (here.later.why != GM_WHY_NONE)
            done->later = here.later;
    }
    gm_machine_keep(machine);
    return outcome;
}
