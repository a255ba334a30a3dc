/* mux-ctl config: show what holds and why, and have the daemon check or reload its configuration.
 * Calls ask.c, select.c, columns.c and say.c. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/nearest.h"

#define WORDS 4
#define FROM_AT 40 /* the column of where a value comes from, where there is room */

/* Ask for an explanation: an object, which the caller deletes. NULL: *code, after one line. */
static cJSON *ask_why(const struct mux_options *options, const struct gm_msg_explain *body,
                      int *code)
{
    struct mux_question ask = {
        .question = GM_MSG_EXPLAIN, .body = body, .answer = GM_MSG_EXPLAIN_IS, .is_document = true};
    *code = mux_ask(options->socket, &ask);
    if (*code)
        return NULL;
    cJSON *root = cJSON_Parse(ask.text);
    free(ask.text);
    if (cJSON_IsObject(root) && !cJSON_HasObjectItem(root, "refused"))
        return root;
    mux_complain("config: %s", cJSON_IsObject(root) ? mux_word(root, "refused")
                                                    : "gpumuxd's answer is no document");
    cJSON_Delete(root);
    *code = MUX_FAILED;
    return NULL;
}

static int show(const struct mux_options *options)
{
    const struct gm_msg_explain body = {0};
    cJSON *status, *config;
    const cJSON *one;
    int code;
    cJSON *root = ask_why(options, &body, &code);
    if (!root)
        return code;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "options");
    if (options->is_json) { /* as in the status, and where it comes from */
        code = mux_get_status(options, &status);
        config = code ? NULL : cJSON_DetachItemFromObjectCaseSensitive(status, "config");
        if (code == 0 && !config)
            mux_complain("gpumuxd's status is not a status document");
        if (config)
            cJSON_AddItemToObject(config, "options",
                                  cJSON_DetachItemFromObjectCaseSensitive(root, "options"));
        cJSON_Delete(root);
        cJSON_Delete(status);
        return config ? mux_print_json(config, "the configuration") : code ? code : MUX_FAILED;
    }
    cJSON_ArrayForEach(one, list)
    {
        char line[PATH_MAX + 64];
        snprintf(line, sizeof line, "%s = %s", mux_word(one, "name"), mux_word(one, "value"));
        printf("%-*s # %s\n", FROM_AT, line, mux_word(one, "from"));
    }
    cJSON_Delete(root);
    return mux_written("the configuration");
}

/* Which rules bind a program, and why. */
static int explain(const struct mux_options *options)
{
    struct mux_selection whose = {.uid = getuid()};
    uint32_t class = 0;
    int code;
    if (!options->command) {
        mux_complain("config: explain which program? say --command=NAME, and --user=USER");
        return MUX_FAILED;
    }
    if (!mux_select(options, &whose))
        return MUX_FAILED;
    struct gm_msg_explain body = {.selects = GM_SET_UID | GM_SET_COMMAND, .uid = whose.uid};
    if (options->class && gm_class_index(options->class, &class))
        body.class = class + 1; /* 0: it does not ask */
    memcpy(body.command, whose.command, sizeof body.command);
    cJSON *root = ask_why(options, &body, &code);
    if (!root)
        return code;
    if (options->is_json)
        return mux_print_json(root, "what rules say");
    const cJSON *rule;
    cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(root, "rules"))
    {
        const char *why = mux_word(rule, "why");
        const bool is_all = strcmp(why, "-") == 0;
        printf("%s  %s  # %s\n",
               cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(rule, "binds")) ? "binds" : "  -  ",
               mux_word(rule, "rule"), mux_word(rule, "from"));
        if (!is_all)
            mux_wrap(why, 9, 0);
    }
    printf("It begins with class %s; rules say: %s\n", mux_word(root, "class"),
           strcmp(mux_word(root, "holds"), "-") == 0 ? "nothing" : mux_word(root, "holds"));
    cJSON_Delete(root);
    return mux_written("what rules say");
}

int mux_config(const struct mux_options *options)
{
    static const char *const words[WORDS] = {"show", "explain", "check", "reload"};
    const char *word = options->words[0];
    struct gm_msg_config body = {0};
    struct gm_msg_config_is answer = {0};
    size_t what = 0;
    while (word && what < WORDS && strcmp(word, words[what]) != 0)
        what++;
    if (word && what == WORDS) {
        struct gm_nearest nearest;
        gm_nearest_begin(&nearest, word, strlen(word));
        for (size_t i = 0; i < WORDS; i++)
            gm_nearest_look(&nearest, words[i]);
        if (nearest.best) {
            mux_complain("config: \"%.60s\": did you mean %s?", word, nearest.best);
            return MUX_FAILED;
        }
    }
    if (!word || what == WORDS || options->words[1]) {
        mux_complain("config: say show, explain, check or reload");
        return MUX_FAILED;
    }
    if (what != 1 && (options->command || options->user || options->class)) {
        mux_complain("config: %s takes no program", words[what]);
        return MUX_FAILED;
    }
    if (what <= 1)
        return what == 0 ? show(options) : explain(options);
    body.what = what == 2 ? GM_CONFIG_CHECK : GM_CONFIG_RELOAD;
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
