/* mux-ctl status: get the status document and print it. Calls ask.c, say.c and table.c. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

static int show(const char *text, bool is_json)
{
    cJSON *status = cJSON_Parse(text);
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(status, "schema");
    if (!cJSON_IsNumber(schema)) {
        cJSON_Delete(status);
        mux_complain("gpumuxd's status is not a status document");
        return MUX_FAILED;
    }
    if (is_json) {
        char *printed = cJSON_PrintUnformatted(status); /* one line per status */
        if (printed)
            puts(printed);
        cJSON_free(printed);
    } else {
        mux_table(status);
    }
    cJSON_Delete(status);
    return mux_written("the status");
}

int mux_status(const struct mux_options *options)
{
    bool is_watched = options->watch_ns > 0;
    bool is_screen = is_watched && !options->is_json && isatty(STDOUT_FILENO);
    struct timespec pause = {.tv_sec = (time_t)(options->watch_ns / GM_S),
                             .tv_nsec = (long)(options->watch_ns % GM_S)};

    for (bool is_first = true;; is_first = false) {
        const struct gm_msg_status body = {0};
        struct mux_question ask = {.question = GM_MSG_STATUS,
                                   .body = &body,
                                   .answer = GM_MSG_STATUS_IS,
                                   .is_document = true};
        int code = mux_ask(options->socket, &ask);
        if (code)
            return code;
        if (is_screen)
            fputs("\033[H\033[2J", stdout);
        else if (!is_first && !options->is_json)
            putchar('\n');
        code = show(ask.text, options->is_json);
        free(ask.text);
        if (code || !is_watched)
            return code;
        nanosleep(&pause, NULL);
    }
}
