/* Placing programs: see placing.h. */
#include "daemon/service/placing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/nodes.h"
#include "common/wishes.h"
#include "daemon/service/users.h"
#include "daemon/views/why.h"

struct gm_view gm_view_own(void)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    return (struct gm_view){
        .nodes = gm_nodes(),
        .is_part = getenv("CUDA_VISIBLE_DEVICES") != NULL,
        .is_by_bus = order && strcmp(order, "PCI_BUS_ID") == 0,
    };
}

/* Why the order stays, by what was said; NONE: it need not. */
static enum gm_why why_as_is(const struct gm_control *control, const struct gm_placing *who,
                             const struct gm_start *start)
{
    const uint32_t flags = who->body->flags;
    if ((flags & GM_PLACE_SAYS_OFF) != 0)
        return GM_WHY_BIND_OFF;
    if ((flags & GM_PLACE_SAYS_ORDER) != 0)
        return GM_WHY_NONE;
    if ((flags & GM_PLACE_IS_RANKED) != 0)
        return GM_WHY_BIND_RANKED;
    if (start->place != GM_PLACE_UNSAID)
        return start->place == GM_PLACE_OFF ? GM_WHY_BIND_OFF : GM_WHY_NONE;
    return control->options->place == 0 ? GM_WHY_BIND_OFF : GM_WHY_NONE;
}

/* The devices that it sees, in its order. Returns why the order stays all the same. */
static enum gm_why read_devices(const struct gm_devices *devices, const struct gm_view *view,
                                const struct gm_placing *who, struct gm_place_request *request)
{
    const uint32_t flags = who->body->flags;
    const bool is_by_bus = (flags & GM_PLACE_BY_BUS) != 0;
    const bool has_numbers = !view->is_part && is_by_bus == view->is_by_bus;
    if (who->body->nodes != view->nodes)
        return GM_WHY_BIND_VIEW;
    if ((flags & GM_PLACE_HAS_LIST) != 0) {
        request->n = gm_devices_read(devices, who->tokens, who->n, has_numbers, request->device);
        return request->n > 0 ? GM_WHY_NONE : GM_WHY_BIND_LIST;
    }
    if (!has_numbers)
        return GM_WHY_BIND_VIEW;
    for (; request->n < devices->n; request->n++)
        request->device[request->n] = request->n;
    return GM_WHY_NONE;
}

/* What it will need, and who says so. */
static void expect(const struct gm_control *control, const struct gm_placing *who,
                   const struct gm_start *start, struct gm_place_request *request)
{
    struct gm_past_run run;
    request->need_from = gm_past_find(control->past, who->uid, who->body->name, &run);
    request->program.need = run.needed;
    request->program.time = run.time;
    request->program.took_ns = run.took_ms * GM_MS;
    if (who->body->need != 0)
        request->need_from = GM_NEED_DECLARED;
    else if (start->need != 0)
        request->need_from = GM_NEED_RULE;
    if (request->need_from == GM_NEED_DECLARED)
        request->program.need = who->body->need;
    if (request->need_from == GM_NEED_RULE)
        request->program.need = start->need;
}

/* Where one GPU is shared there is nothing to say. */
static void tell(const char *name, bool has_choice, const struct gm_place_request *request,
                 const struct gm_place_answer *chosen, struct gm_msg_placed *answer)
{
    char user[GM_USERS_NAME], kind[64], why[256];
    gm_view_placed(chosen->why, request->program.need, request->need_from, why, sizeof why);
    if (chosen->gpu == GM_BIND_NONE || !chosen->is_changed) {
        if (has_choice)
            snprintf(answer->text, sizeof answer->text, "%.180s", why);
        return;
    }
    snprintf(answer->text, sizeof answer->text, "GPU %d comes first: %.150s", chosen->device, why);
    snprintf(kind, sizeof kind, "placed of %u", request->uid);
    gm_log_like(GM_LOG_INFO, kind, "%s (pid %d, %s): %s", name, (int)request->pid,
                gm_users_name(request->uid, user), answer->text);
}

/* Whether it is to wait while no GPU has room. Ranks do not: their others may wait for them. */
static bool may_wait(const struct gm_control *control, const struct gm_placing *who,
                     const struct gm_start *start, const struct gm_place_request *request)
{
    const bool is_fit = start->admit != GM_ADMIT_UNSAID ? start->admit == GM_ADMIT_FIT
                                                        : control->options->admit == 1;
    return is_fit && request->n > 0 && (who->body->flags & GM_PLACE_IS_RANKED) == 0 &&
           !gm_binds_has_family(&control->machine->binds, request);
}

bool gm_placing_read(struct gm_control *control, const struct gm_view *view,
                     const struct gm_placing *who, struct gm_place_request *request)
{
    struct gm_machine *machine = control->machine;
    struct gm_start start;
    memset(request, 0, sizeof *request);
    request->pid = who->pid;
    request->uid = who->uid;
    request->owner = who->owner;
    gm_rules_start(&control->options->rules, who->uid, who->body->name,
                   gm_wishes_class(who->body->class), &start);
    expect(control, who, &start, request);
    request->as_is = why_as_is(control, who, &start);
    const enum gm_why unread = read_devices(&machine->binds.devices, view, who, request);
    if (request->as_is == GM_WHY_NONE)
        request->as_is = machine->n < 2 ? GM_WHY_BIND_ONLY : unread;
    /* As it says: whoever lies about that has the order of another program of its user. */
    request->family = who->body->family != 0 ? who->body->family : (uint64_t)who->pid;
    return may_wait(control, who, &start, request);
}

bool gm_placing_shares(const struct gm_control *control, const struct gm_placing *who,
                       uint32_t *part)
{
    const struct gm_rules *rules = &control->options->rules;
    const uint32_t asks = gm_wishes_class(who->body->class);
    struct gm_settings ruled;
    struct gm_start start;
    char text[512];
    gm_rules_find(rules, who->uid, who->body->name, asks, &ruled, text, sizeof text);
    *part = ruled.has & GM_SET_SHARE ? ruled.share : 0;
    gm_rules_start(rules, who->uid, who->body->name, asks, &start);
    return start.mps != GM_MPS_UNSAID ? start.mps == GM_MPS_ON
                                      : control->options->space_sharing == 1;
}

uint32_t gm_placing(struct gm_control *control, const char *name,
                    const struct gm_place_request *request, struct gm_msg_placed *answer,
                    struct gm_place_entry entries[GM_DEVICES_VISIBLE])
{
    struct gm_binds *binds = &control->machine->binds;
    struct gm_place_answer chosen;
    gm_binds_place(binds, request, &chosen);
    memset(answer, 0, sizeof *answer);
    memset(entries, 0, GM_DEVICES_VISIBLE * sizeof *entries);
    tell(name, control->machine->n > 1, request, &chosen, answer);
    for (uint32_t i = 0; chosen.is_changed && i < request->n; i++) {
        const uint32_t token = chosen.order[i];
        entries[i].token = token;
        memcpy(entries[i].uuid, binds->devices.uuid[request->device[token]],
               sizeof entries[i].uuid);
    }
    return chosen.is_changed ? request->n : 0;
}
