/* mux-ctl forget: have what earlier runs of programs needed forgotten. Calls ask.c, select.c and
 * say.c. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

int mux_forget(const struct mux_options *options)
{
    struct mux_selection whose = {0};
    struct gm_msg_forgotten answer = {0};
    if (!mux_select(options, &whose))
        return MUX_FAILED;
    struct gm_msg_forget forget = {.selects = whose.selects, .uid = whose.uid};
    memcpy(forget.command, whose.command, sizeof forget.command);
    const int code =
        mux_demand(options, GM_MSG_FORGET, &forget, GM_MSG_FORGOTTEN, &answer, sizeof answer);
    if (code)
        return code;
    printf("%u command%s forgotten\n", answer.count, answer.count == 1 ? "" : "s");
    return mux_written("what was forgotten");
}
