/*
 * The settings that a program begins with: what rules say of it, and what its environment asks for;
 * or what the daemon before knew. Owns gm_app.policy.ignored. Called by apps.c; calls settings.c,
 * rules.c, sizes.c and policy.c.
 */
#include "daemon/engine/step/wishes.h"

#include <stdio.h>

#include "common/text.h"
#include "common/wishes.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/policy.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/rules.h"
#include "daemon/engine/step/sizes.h"

/* Something that its environment asks for cannot be, and counts as not said. */
static void ignore_wish(struct gm_engine *engine, uint32_t id, const char *why)
{
    char *ignored = engine->apps[id].policy.ignored;
    gm_text_add(ignored, sizeof engine->apps[id].policy.ignored, "%s%s", *ignored ? "; " : "", why);
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_IGNORED, .app = id, .ignored.why = why});
}

/* Whether its user may have what `wish` asks for, in the words of its environment. */
static bool may_wish(struct gm_engine *engine, uint32_t id, const struct gm_settings *said,
                     const char *wish)
{
    char why[256], text[256];
    if (engine->apps[id].client->is_admin || gm_engine_may_say(engine, id, said, why, sizeof why))
        return true;
    snprintf(text, sizeof text, "%s: %.190s", wish, why);
    ignore_wish(engine, id, text);
    return false;
}

static void take_class(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const struct gm_settings said = {.has = GM_SET_CLASS, .class = (uint8_t)gm_wishes_class(wish)};
    const char *wrong = gm_wishes_wrong_class(wish);
    char text[64];
    if (wrong) {
        ignore_wish(engine, id, wrong);
    } else if (wish > 0) {
        snprintf(text, sizeof text, "GPUMUX_CLASS=%s", gm_class_name(said.class));
        if (may_wish(engine, id, &said, text))
            gm_engine_set_own(&engine->apps[id], &said);
    }
}

static void take_weight(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const struct gm_settings said = {.has = GM_SET_WEIGHT, .weight = wish};
    const char *wrong = gm_wishes_wrong_weight(wish);
    char text[64], number[24];
    if (wrong) {
        ignore_wish(engine, id, wrong);
    } else if (wish > 0) {
        snprintf(text, sizeof text, "GPUMUX_WEIGHT=%s",
                 gm_format_thousandths(said.weight, number, sizeof number));
        if (may_wish(engine, id, &said, text))
            gm_engine_set_own(&engine->apps[id], &said);
    }
}

static void take_oversize(struct gm_engine *engine, uint32_t id, uint32_t wish)
{
    const char *wrong = gm_wishes_wrong_oversize(wish);
    struct gm_settings said;
    if (wrong)
        ignore_wish(engine, id, wrong);
    else if (gm_engine_read_oversize(wish, &said) &&
             may_wish(engine, id, &said, "GPUMUX_OVERSIZE=host"))
        gm_engine_set_own(&engine->apps[id], &said);
}

/* GPUMUX_CAP, or what other systems say. */
static void take_cap(struct gm_engine *engine, uint32_t id, const struct gm_wishes *wishes)
{
    const struct gm_settings said = {.has = GM_SET_CAP, .cap = wishes->cap & ~(GM_CHUNK_MIN - 1)};
    const char *wrong = gm_wishes_wrong_cap(wishes->cap_is);
    char why[256], text[64], number[24];

    if (wishes->cap_is == GM_HELLO_CAP_UNSAID)
        return;
    if (!wrong && !gm_settings_are_legal(&said))
        wrong = gm_wishes_wrong_cap(GM_HELLO_CAP_UNKNOWN);
    if (wrong) {
        ignore_wish(engine, id, wrong);
        return;
    }
    if (wishes->cap_is == GM_HELLO_CAP_FOREIGN && said.cap > gm_engine_offered(engine))
        return; /* it is told the budget, which is less */
    snprintf(text, sizeof text, "a cap of %s in its environment",
             gm_settings_format_cap(said.cap, number, sizeof number));
    if (!may_wish(engine, id, &said, text))
        return;
    if (gm_engine_check_cap(engine, id, said.cap, why, sizeof why) != 0)
        ignore_wish(engine, id, why);
    else
        gm_engine_set_own(&engine->apps[id], &said);
}

void gm_engine_first_policy(struct gm_engine *engine, uint32_t id, const struct gm_wishes *wishes)
{
    struct gm_app *app = &engine->apps[id];
    char text[512];

    if (gm_engine_take_rule(engine, id, GM_SET_SETTINGS, text, sizeof text))
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_RULED, .app = id, .ruled.rule = text});
    take_class(engine, id, wishes->class);
    take_weight(engine, id, wishes->weight);
    take_oversize(engine, id, wishes->oversize);
    gm_engine_check_rule(engine, id);
    take_cap(engine, id, wishes);
    gm_engine_take_totals(engine, id);
    gm_engine_recap(engine, id);
    if (app->policy.own.has)
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_WISHED,
                                                  .app = id,
                                                  .wished.settings = &app->policy.own});
    if (app->client->is_oversize && !gm_engine_has_host_frames(engine))
        gm_engine_happened(engine, id, GM_EVENT_NO_OVERSIZE);
    if (app->policy.admin.has | app->policy.own.has || gm_group_other_here(engine, id) != GM_NONE)
        gm_engine_apply_policy(engine, id);
    gm_engine_begin_notes(engine, id);
}

void gm_engine_keep_policy(struct gm_engine *engine, uint32_t id,
                           const struct gm_client_record *record)
{
    gm_engine_set_again(&engine->apps[id], record);
    gm_engine_take_said_cap(engine, id);
    gm_engine_take_totals(engine, id);
}

void gm_engine_policy_again(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    gm_engine_take_totals(engine, id); /* its user may be known by now */
    if (app->policy.admin.has | app->policy.own.has || gm_group_other_here(engine, id) != GM_NONE)
        gm_engine_apply_policy(engine, id);
    gm_engine_begin_notes(engine, id);
}
