/* mux-ctl trim: give memory that no program needs back to the system. Calls ask.c and say.c. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>

#include "common/size.h"

int mux_trim(const struct mux_options *options)
{
    const struct gm_msg_trim body = {0};
    struct gm_msg_trim_is answer = {0};
    struct mux_question ask = {.question = GM_MSG_TRIM,
                               .body = &body,
                               .answer = GM_MSG_TRIM_IS,
                               .result = &answer,
                               .result_size = sizeof answer};
    char gpu[32], pinned[32], paged[32];

    int code = mux_ask(options->socket, &ask);
    if (code)
        return code;
    printf("given back: %s of the GPU, %s pinned, %s paged\n",
           gm_format_size(answer.gpu, gpu, sizeof gpu),
           gm_format_size(answer.pinned, pinned, sizeof pinned),
           gm_format_size(answer.paged, paged, sizeof paged));
    return mux_written("what was given back");
}
