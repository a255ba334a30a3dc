/* mux-ctl config: show what holds, and have the daemon check or reload its configuration. Calls
 * ask.c and say.c. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/size.h"

/* A member of the status as the file has it: "gpu_budget_bytes" is gpu-budget, a size. */
static void show_member(const cJSON *member)
{
    static const char *const units[] = {"_bytes", "_s", "_percent"};
    char name[64], text[64];
    snprintf(name, sizeof name, "%s", member->string);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const size_t length = strlen(name), unit = strlen(units[i]);
        if (length <= unit || strcmp(name + length - unit, units[i]) != 0 ||
            !cJSON_IsNumber(member))
            continue;
        name[length - unit] = '\0';
        if (i == 0)
            gm_format_size((uint64_t)member->valuedouble, text, sizeof text);
        else
            snprintf(text, sizeof text, "%g%s", member->valuedouble, i == 1 ? "s" : "%");
        break;
    }
    const bool has_unit = strlen(name) < strlen(member->string);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    if (has_unit)
        printf("%s = %s\n", name, text);
    else if (cJSON_IsNumber(member))
        printf("%s = %g\n", name, member->valuedouble);
    else if (cJSON_IsBool(member))
        printf("%s = %s\n", name, cJSON_IsTrue(member) ? "yes" : "no");
    else if (cJSON_IsString(member) && member->valuestring[0])
        printf("%s = %s\n", name, member->valuestring);
}

/* What was not given has no line. */
static bool is_said(const cJSON *member)
{
    const bool is_part = strcmp(member->string, "gpu_budget_bytes") == 0 ||
                         strcmp(member->string, "gpu_budget_percent") == 0 ||
                         strcmp(member->string, "pinned_bytes") == 0 ||
                         strcmp(member->string, "disk_bytes") == 0;
    return !is_part || member->valuedouble != 0;
}

static int show(const struct mux_options *options)
{
    cJSON *status;
    const int code = mux_get_status(options, &status);
    if (code)
        return code;
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(status, "config"), *member, *rule;
    if (options->is_json && cJSON_IsObject(config)) {
        cJSON *shown = cJSON_Duplicate(config, true);
        cJSON_Delete(status);
        return mux_print_json(shown, "the configuration");
    }
    cJSON_ArrayForEach(member, config)
    {
        if (is_said(member))
            show_member(member);
    }
    cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(config, "rules"))
    {
        if (cJSON_IsString(rule))
            printf("rule = %s\n", rule->valuestring);
    }
    const bool is_whole = cJSON_IsObject(config);
    cJSON_Delete(status);
    if (!is_whole) {
        mux_complain("gpumuxd's status is not a status document");
        return MUX_FAILED;
    }
    return mux_written("the configuration");
}

int mux_config(const struct mux_options *options)
{
    static const char *const words[] = {"show", "check", "reload"};
    const char *word = options->words[0];
    struct gm_msg_config body = {0};
    struct gm_msg_config_is answer = {0};
    size_t what = 0;
    while (word && what < 3 && strcmp(word, words[what]) != 0)
        what++;
    if (word && what == 3) {
        struct gm_nearest nearest;
        gm_nearest_begin(&nearest, word, strlen(word));
        for (size_t i = 0; i < 3; i++)
            gm_nearest_look(&nearest, words[i]);
        if (nearest.best) {
            mux_complain("config: \"%.60s\": did you mean %s?", word, nearest.best);
            return MUX_FAILED;
        }
    }
    if (!word || what == 3 || options->words[1]) {
        mux_complain("config: say show, check or reload");
        return MUX_FAILED;
    }
    if (what == 0)
        return show(options);
    body.what = what == 1 ? GM_CONFIG_CHECK : GM_CONFIG_RELOAD;
    const int code =
        mux_demand(options, GM_MSG_CONFIG, &body, GM_MSG_CONFIG_IS, &answer, sizeof answer);
    if (code)
        return code;
    if (options->is_json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "text", answer.text);
        return mux_print_json(json, "what has changed");
    }
    printf("%s\n", answer.text);
    return mux_written("what has changed");
}
