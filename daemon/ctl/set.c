/* mux-ctl set, pause, resume: change settings of programs. Calls ask.c and say.c. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/settings.h"
#include "common/size.h"

/* The one word that is no setting is a pid. */
static bool take_pid(const char *name, const char *word, bool has_settings, struct gm_msg_set *set)
{
    const char *other =
        has_settings ? "neither a pid nor a setting (class=, weight=, share=, paused=, oversize=, "
                       "cap=)"
                     : "no pid";
    uint64_t pid = 0;
    if (gm_parse_number(word, &pid) || pid == 0 || pid > INT32_MAX) {
        mux_complain("%s: \"%.60s\" is %s", name, word, other);
        return false;
    }
    if (set->selects & GM_SET_PID) {
        mux_complain("%s: \"%.60s\" is one word too many", name, word);
        return false;
    }
    set->selects |= GM_SET_PID;
    set->pid = (int32_t)pid;
    return true;
}

static bool take_user(const char *name, const char *user, struct gm_msg_set *set)
{
    const struct passwd *entry = getpwnam(user);
    uint64_t uid = 0;
    if (!entry && (gm_parse_number(user, &uid) || uid >= UINT32_MAX)) {
        mux_complain("%s: there is no user \"%.60s\"", name, user);
        return false;
    }
    set->selects |= GM_SET_UID;
    set->uid = entry ? entry->pw_uid : (uint32_t)uid;
    return true;
}

static bool take_command(const char *name, const char *command, struct gm_msg_set *set)
{
    if (*command == '\0' || strlen(command) > GM_COMMAND_MAX || strchr(command, '/')) {
        mux_complain("%s: --command takes a program's name: 1 to %u bytes, without its folder",
                     name, GM_COMMAND_MAX);
        return false;
    }
    set->selects |= GM_SET_COMMAND;
    snprintf(set->command, sizeof set->command, "%s", command);
    return true;
}

int mux_set(const struct mux_options *options)
{
    const char *const name = options->name, *settings = NULL;
    struct gm_settings said = {0};
    struct gm_msg_set set = {0};
    struct gm_msg_set_is answer = {0};
    char why[256];

    if (strcmp(name, "set") != 0)
        settings = strcmp(name, "pause") == 0 ? "paused=yes" : "paused=no";
    if (settings)
        gm_settings_take(&said, settings, why, sizeof why);
    for (char **word = options->words; *word; word++) {
        int error = settings ? -ENOENT : gm_settings_take(&said, *word, why, sizeof why);
        if (error && error != -ENOENT) {
            mux_complain("%s: %s", name, why);
            return MUX_FAILED;
        }
        if (error && !take_pid(name, *word, !settings, &set))
            return MUX_FAILED;
    }
    if ((options->command && !take_command(name, options->command, &set)) ||
        (options->user && !take_user(name, options->user, &set)))
        return MUX_FAILED;
    if (set.selects == 0) {
        mux_complain("%s: which program? say a pid, --command=NAME or --user=NAME", name);
        return MUX_FAILED;
    }
    if (said.has == 0) {
        mux_complain("%s: what? say class=, weight=, share=, paused=, oversize= or cap=", name);
        return MUX_FAILED;
    }
    set.settings = said.has;
    set.class = said.class;
    set.weight = said.weight;
    set.share = said.share;
    set.is_paused = said.is_paused;
    set.is_oversize = said.is_oversize;
    set.cap = said.cap;

    struct mux_question ask = {.question = GM_MSG_SET,
                               .body = &set,
                               .answer = GM_MSG_SET_IS,
                               .result = &answer,
                               .result_size = sizeof answer};
    int code = mux_ask(options->socket, &ask);
    if (code)
        return code;
    if (answer.is_refused) {
        mux_complain("%s: %s", name, answer.text);
        return MUX_FAILED;
    }
    printf("%u program%s changed\n", answer.changed, answer.changed == 1 ? "" : "s");
    if (answer.text[0] != '\0')
        printf("%s\n", answer.text);
    return mux_written("what was changed");
}
