/* Explanations: see explain.h. */
#include "daemon/service/explain.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/size.h"
#include "common/text.h"
#include "common/wishes.h"
#include "daemon/core/snapshot.h"
#include "daemon/engine/snapshot.h"
#include "daemon/service/users.h"

/* What the daemon found out for an option that nobody gave; "": nothing. */
static void compute(const struct gm_control *control, const struct gm_snapshot *snapshot,
                    enum gm_option option, char *text, size_t size)
{
    uint64_t pinned = 0;
    char bytes[32];
    for (uint32_t i = 0; i < snapshot->n_gpus; i++) {
        pinned += snapshot->gpus[i].tiers.pinned_cap;
        if (option == GM_OPTION_gpu_budget)
            gm_text_add(text, size, "%s%s", i > 0 ? ", " : "",
                        gm_format_size(snapshot->gpus[i].budget, bytes, sizeof bytes));
    }
    if (option == GM_OPTION_pinned)
        gm_format_size(pinned, text, size);
    if (option == GM_OPTION_history)
        snprintf(text, size, "%s", control->history ? control->history : "");
}

static bool add_option(cJSON *list, const char *name, const char *value, const char *from)
{
    cJSON *object = cJSON_CreateObject();
    if (cJSON_AddStringToObject(object, "name", name) &&
        cJSON_AddStringToObject(object, "value", value) &&
        cJSON_AddStringToObject(object, "from", from) && cJSON_AddItemToArray(list, object))
        return true;
    cJSON_Delete(object);
    return false;
}

static const char *place_of(const struct gm_options *options, const struct gm_rule *rule,
                            char *text, size_t size)
{
    return gm_options_origin(options, rule->line ? rule->line : GM_GIVEN_ON_LINE, text, size);
}

static bool add_options(const struct gm_control *control, const struct gm_snapshot *snapshot,
                        cJSON *list)
{
    const struct gm_options *options = control->options;
    char value[PATH_MAX + 64], from[PATH_MAX + 64];
    bool is_whole = list != NULL;
    for (enum gm_option i = 0; i < GM_OPTIONS && is_whole; i++) {
        gm_option_format(options, i, value, sizeof value);
        gm_options_origin(options, options->given[i], from, sizeof from);
        if (!*value) {
            compute(control, snapshot, i, value, sizeof value);
            snprintf(from, sizeof from, "computed");
        }
        is_whole = !*value || add_option(list, gm_option_rows[i].name, value, from);
        for (uint32_t k = 0; i == GM_OPTION_rules && k < options->rules.n && is_whole; k++)
            is_whole = add_option(list, "rule",
                                  gm_rule_format(&options->rules.rule[k], value, sizeof value),
                                  place_of(options, &options->rules.rule[k], from, sizeof from));
    }
    return is_whole;
}

static bool add_rules(const struct gm_options *options, const struct gm_msg_explain *body,
                      cJSON *list)
{
    char text[1024], from[PATH_MAX + 64];
    for (uint32_t i = 0; list && i < options->rules.n; i++) {
        const struct gm_rule *rule = &options->rules.rule[i];
        cJSON *object = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, object)) {
            cJSON_Delete(object);
            return false;
        }
        if (!cJSON_AddStringToObject(object, "rule", gm_rule_format(rule, text, sizeof text)) ||
            !cJSON_AddStringToObject(object, "from", place_of(options, rule, from, sizeof from)) ||
            !cJSON_AddBoolToObject(object, "binds",
                                   gm_rules_explain(&options->rules, i, body->uid, body->command,
                                                    gm_wishes_class(body->class), text,
                                                    sizeof text)) ||
            !cJSON_AddStringToObject(object, "why", text))
            return false;
    }
    return list != NULL;
}

static bool add_result(const struct gm_options *options, const struct gm_msg_explain *body,
                       cJSON *root)
{
    const enum gm_sched_class asks = gm_wishes_class(body->class);
    struct gm_settings ruled;
    char text[1024];
    gm_rules_result(&options->rules, body->uid, body->command, asks, &ruled, text, sizeof text);
    const bool is_admin = body->uid == 0 || body->uid == geteuid();
    const enum gm_sched_class class =
        gm_rules_class(&ruled, options->best_class, is_admin, body->class > 0, asks);
    return cJSON_AddStringToObject(root, "class", gm_class_name(class)) &&
           cJSON_AddStringToObject(root, "holds", text);
}

char *gm_explain_refusal(const char *why)
{
    cJSON *root = cJSON_CreateObject();
    char *text =
        cJSON_AddStringToObject(root, "refused", why) ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}

char *gm_explain(const struct gm_control *control, uid_t asker, bool is_admin,
                 const struct gm_msg_explain *body)
{
    const bool is_program = body->selects == (GM_SET_UID | GM_SET_COMMAND);
    if (!is_program && body->selects != 0)
        return gm_explain_refusal("neither the options nor a program is meant");
    if (is_program && (!body->command[0] || gm_wishes_wrong_class(body->class)))
        return gm_explain_refusal("no program is called so, or there is no such class");
    if (is_program && !is_admin && body->uid != asker)
        return gm_explain_refusal("only root may ask about other users' programs");
    struct gm_snapshot *snapshot = is_program ? NULL : gm_machine_snapshot(control->machine);
    cJSON *root = cJSON_CreateObject();
    const bool is_whole =
        is_program
            ? add_rules(control->options, body, cJSON_AddArrayToObject(root, "rules")) &&
                  add_result(control->options, body, root)
            : snapshot && add_options(control, snapshot, cJSON_AddArrayToObject(root, "options"));
    char *text = is_whole ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    free(snapshot);
    return text;
}
