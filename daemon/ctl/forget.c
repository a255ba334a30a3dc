/* mux-ctl forget: have what earlier runs of programs needed forgotten. Calls ask.c and say.c. */
#include "daemon/ctl/ctl.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "common/settings.h"
#include "common/size.h"

int mux_forget(const struct mux_options *options)
{
    struct gm_msg_forget forget = {0};
    struct gm_msg_forgotten answer = {0};
    struct mux_question ask = {.question = GM_MSG_FORGET,
                               .body = &forget,
                               .answer = GM_MSG_FORGOTTEN,
                               .result = &answer,
                               .result_size = sizeof answer};
    if (options->user) {
        const struct passwd *entry = getpwnam(options->user);
        uint64_t uid = 0;
        if (!entry && (gm_parse_number(options->user, &uid) || uid >= UINT32_MAX)) {
            mux_complain("forget: there is no user \"%.60s\"", options->user);
            return MUX_FAILED;
        }
        forget.selects |= GM_SET_UID;
        forget.uid = entry ? entry->pw_uid : (uint32_t)uid;
    }
    if (options->command) {
        const char *command = options->command;
        if (*command == '\0' || strlen(command) > GM_COMMAND_MAX || strchr(command, '/')) {
            mux_complain("forget: --command takes a program's name: 1 to %u bytes, without its "
                         "folder",
                         GM_COMMAND_MAX);
            return MUX_FAILED;
        }
        forget.selects |= GM_SET_COMMAND;
        snprintf(forget.command, sizeof forget.command, "%s", command);
    }
    int code = mux_ask(options->socket, &ask);
    if (code)
        return code;
    if (answer.is_refused) {
        mux_complain("forget: %s", answer.text);
        return MUX_FAILED;
    }
    printf("%u command%s forgotten\n", answer.count, answer.count == 1 ? "" : "s");
    return mux_written("what was forgotten");
}
