/* The machine's ledger: see keep.h. */
#include "daemon/engine/keep.h"

#include <string.h>

#include "daemon/core/sched_account.h"
#include "daemon/engine/act/ledger.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/state.h"

_Static_assert(GM_CLIENTS_GPUS == GM_GPUS_MAX, "a client may use each of them");

int gm_keep_open(struct gm_keep *keep, uint32_t max_clients)
{
    void *memory;
    keep->bytes = gm_clients_size(max_clients);
    const int fd = gm_engine_make_ledger("gpumux-clients", keep->bytes, &memory);
    if (fd < 0)
        return fd;
    keep->fd = fd;
    gm_clients_init(&keep->clients, memory, max_clients);
    return 0;
}

void gm_keep_close(struct gm_keep *keep)
{
    gm_engine_end_ledger(keep->fd, keep->clients.memory, keep->bytes);
    keep->clients.memory = NULL; /* nothing is written any more */
}

/* Settings select programs, not GPUs: they are the same on each. */
static void fill_settings(struct gm_client_record *record, const struct gm_app *app)
{
    gm_client_settings_from(&record->admin, &app->policy.admin);
    gm_client_settings_from(&record->own, &app->policy.own);
    record->said = app->policy.said;
    record->pauser = app->policy.pauser;
    record->is_paused_by_rule = app->policy.is_paused_by_rule;
}

static void fill_turns(struct gm_client_record *record, const struct gm_engine *engine,
                       uint32_t index, uint32_t id)
{
    struct gm_sched_account account;
    if (!gm_sched_account(engine->sched, engine->now, engine->apps[id].unit, &account))
        return;
    record->turns[index].level = account.level;
    record->turns[index].charged_ns = account.charged_ns;
    record->turns[index].run_ns = account.run_ns + engine->apps[id].back.run_ns;
    record->turns[index].wait_ns = account.wait_ns + engine->apps[id].back.wait_ns;
}

static void fill_group(struct gm_client_record *record, const struct gm_group *group)
{
    record->group_of = group->clients->id;
    record->is_group_said = group->all != NULL;
    memset(record->group, 0, sizeof record->group);
    memcpy(record->group, group->name, strlen(group->name));
    record->turns[0].kin = gm_group_kin(group);
}

/* All of it holds on but with whom it runs: others may open its memory before it is back. */
void gm_keep_lost(struct gm_keep *keep, const struct gm_client *client,
                  const struct gm_client_record *record)
{
    struct gm_client_record is = *record;
    fill_group(&is, client->group);
    gm_clients_write(&keep->clients, client->id, &is);
}

void gm_keep_client(struct gm_keep *keep, const struct gm_client *client)
{
    struct gm_client_record before;
    if (!keep->clients.memory) /* the machine is being closed */
        return;
    if (client->lost_at != 0) {
        if (gm_clients_read(&keep->clients, client->id, &before) == GM_LEDGER_IS)
            gm_keep_lost(keep, client, &before);
        return;
    }
    struct gm_client_record record = {.pid = (uint32_t)client->pid,
                                      .uid = client->uid,
                                      .started = client->started,
                                      .nonce = {client->nonce[0], client->nonce[1]},
                                      .is_gone = client->session == NULL,
                                      .epoch = client->epoch,
                                      .class = client->wishes.class,
                                      .oversize = client->wishes.oversize,
                                      .cap_is = client->wishes.cap_is,
                                      .flags = (client->wishes.has_part ? GM_CLIENT_HAS_PART : 0) |
                                               (client->is_admin ? GM_CLIENT_IS_ADMIN : 0),
                                      .cap = client->wishes.cap};
    memcpy(record.name, client->name, strlen(client->name));
    fill_group(&record, client->group);
    for (uint32_t i = GM_GPUS_MAX; i-- > 0;) {
        const struct gm_engine *engine = client->engines[i];
        if (!engine)
            continue;
        record.engines |= 1u << i;
        fill_settings(&record, &engine->apps[client->id]);
        fill_turns(&record, engine, i, client->id);
    }
    gm_clients_write(&keep->clients, client->id, &record);
}

void gm_keep_end(struct gm_keep *keep, uint32_t id)
{
    gm_clients_end(&keep->clients, id);
}
