/* mux-ctl trim: give memory that no program needs back to the system. Calls ask.c and say.c. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>

int mux_trim(const struct mux_options *options)
{
    const struct gm_msg_trim body = {0};
    struct gm_msg_trim_is answer = {0};
    char gpu[32], pinned[32], paged[32];
    const int code =
        mux_exchange(options, GM_MSG_TRIM, &body, GM_MSG_TRIM_IS, &answer, sizeof answer);
    if (code)
        return code;
    if (options->is_json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "gpu_bytes", (double)answer.gpu);
        cJSON_AddNumberToObject(json, "pinned_bytes", (double)answer.pinned);
        cJSON_AddNumberToObject(json, "paged_bytes", (double)answer.paged);
        return mux_print_json(json, "what was given back");
    }
    printf("given back: %s of the GPU, %s pinned, %s paged\n",
           gm_format_size(answer.gpu, gpu, sizeof gpu),
           gm_format_size(answer.pinned, pinned, sizeof pinned),
           gm_format_size(answer.paged, paged, sizeof paged));
    return mux_written("what was given back");
}
