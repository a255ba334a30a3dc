/* mux-ctl status: get the status document and print it. Calls ask.c, say.c, unshared.c
 * and table.c. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

static int show(cJSON *status, const struct mux_options *options)
{
    if (!mux_add_unshared(status))
        return MUX_FAILED;
    if (options->is_json)
        return mux_print_json(cJSON_Duplicate(status, true), "the status");
    mux_table(status, options);
    return mux_written("the status");
}

int mux_status(const struct mux_options *options)
{
    bool is_watched = options->watch_ns > 0;
    bool is_screen = is_watched && !options->is_json && isatty(STDOUT_FILENO);
    struct timespec pause = {.tv_sec = (time_t)(options->watch_ns / GM_S),
                             .tv_nsec = (long)(options->watch_ns % GM_S)};

    bool is_told = false;
    for (bool is_first = true;; is_first = false) {
        struct mux_question ask;
        cJSON *status;
        int code = mux_try_status(options, &ask, &status);
        while (!is_first && mux_is_awaited(&ask, code, &is_told)) {
            nanosleep(&pause, NULL);
            code = mux_try_status(options, &ask, &status);
        }
        if (code) {
            mux_complain("%s", ask.why);
            return code;
        }
        if (is_screen)
            fputs("\033[H\033[2J", stdout);
        else if (!is_first && !options->is_json)
            putchar('\n');
        code = show(status, options);
        cJSON_Delete(status);
        if (code || !is_watched)
            return code;
        nanosleep(&pause, NULL);
    }
}
