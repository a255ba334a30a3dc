/* Whose programs a command means: a pid, --command and --user. Called by set.c, forget.c, evict.c
 * and prefetch.c; calls say.c. */
#include "daemon/ctl/ctl.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/settings.h"

bool mux_select_pid(const struct mux_options *options, const char *word, const char *other,
                    struct mux_selection *selection)
{
    uint64_t pid = 0;
    if (gm_parse_number(word, &pid) || pid == 0 || pid > INT32_MAX) {
        mux_complain("%s: \"%.60s\" is %s", options->name, word, other);
        return false;
    }
    if (selection->selects & GM_SET_PID) {
        mux_complain("%s: \"%.60s\" is one word too many", options->name, word);
        return false;
    }
    selection->selects |= GM_SET_PID;
    selection->pid = (int32_t)pid;
    return true;
}

static bool select_user(const struct mux_options *options, struct mux_selection *selection)
{
    const struct passwd *entry = getpwnam(options->user);
    uint64_t uid = 0;
    if (!entry && (gm_parse_number(options->user, &uid) || uid >= UINT32_MAX)) {
        mux_complain("%s: there is no user \"%.60s\"", options->name, options->user);
        return false;
    }
    selection->selects |= GM_SET_UID;
    selection->uid = entry ? entry->pw_uid : (uint32_t)uid;
    return true;
}

static bool select_command(const struct mux_options *options, struct mux_selection *selection)
{
    const char *command = options->command;
    if (*command == '\0' || strlen(command) > GM_COMMAND_MAX || strchr(command, '/')) {
        mux_complain("%s: --command takes a program's name: 1 to %u bytes, without its folder",
                     options->name, GM_COMMAND_MAX);
        return false;
    }
    selection->selects |= GM_SET_COMMAND;
    snprintf(selection->command, sizeof selection->command, "%s", command);
    return true;
}

bool mux_select(const struct mux_options *options, struct mux_selection *selection)
{
    return (!options->command || select_command(options, selection)) &&
           (!options->user || select_user(options, selection));
}

static bool is_selected(const cJSON *app, const struct gm_msg_set *whose)
{
    return (getuid() == 0 || mux_number(app, "uid") == getuid()) &&
           (!(whose->selects & GM_SET_PID) || mux_number(app, "pid") == whose->pid) &&
           (!(whose->selects & GM_SET_UID) || mux_number(app, "uid") == whose->uid) &&
           (!(whose->selects & GM_SET_COMMAND) ||
            gm_command_matches(whose->command, mux_word(app, "name")));
}

bool mux_is_meant(const cJSON *apps, const cJSON *app, const struct gm_msg_set *whose)
{
    const char *group = mux_word(app, "group");
    const cJSON *other;
    if (is_selected(app, whose))
        return true;
    if (strcmp(group, "-") == 0)
        return false; /* it has none */
    cJSON_ArrayForEach(other, apps)
    {
        if (strcmp(mux_word(other, "group"), group) == 0 &&
            mux_number(other, "uid") == mux_number(app, "uid") && is_selected(other, whose))
            return true;
    }
    return false;
}
