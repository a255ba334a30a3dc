/* What a program asks for: see wishes.h. */
#include "common/wishes.h"

#include <stdio.h>
#include <string.h>

#include "common/chunk.h"
#include "common/classes.h"
#include "common/settings.h"
#include "common/shm.h"

static uint32_t read_class(const char *word)
{
    uint32_t index;
    if (word == NULL || word[0] == '\0')
        return 0;
    return gm_class_index(word, &index) ? 1 + index : GM_HELLO_CLASS_UNKNOWN;
}

static uint32_t read_oversize(const char *word)
{
    if (word == NULL || word[0] == '\0')
        return GM_HELLO_OVERSIZE_UNSAID;
    if (strcmp(word, "refuse") == 0)
        return GM_HELLO_OVERSIZE_REFUSE;
    return strcmp(word, "host") == 0 ? GM_HELLO_OVERSIZE_HOST : GM_HELLO_OVERSIZE_UNKNOWN;
}

#define CAP_CUDA "CUDA_DEVICE_MEMORY_LIMIT"

/* The most device memory, of GPUMUX_CAP, else what other systems say. That of a single
 * device is the smallest of all devices' then, and 0 is no limit. */
static void read_cap(char *(*get)(const char *name), struct gm_msg_hello *hello)
{
    const char *ours = get("GPUMUX_CAP"), *general = get(CAP_CUDA);
    struct gm_settings said = {0};
    char why[256], word[64], name[64];
    if (ours != NULL && ours[0] != '\0') {
        const int length = snprintf(word, sizeof(word), "cap=%s", ours);
        const bool is_legal =
            length < (int)sizeof(word) && gm_settings_take(&said, word, why, sizeof(why)) == 0;
        hello->cap_is = is_legal ? GM_HELLO_CAP_OURS : GM_HELLO_CAP_UNKNOWN;
        hello->cap = said.cap;
        return;
    }
    const char *text = general != NULL && general[0] != '\0' ? general : get("GPU_MEMORY_LIMIT");
    for (unsigned i = 0; i <= GM_GPUS_MAX; i++) {
        uint64_t bytes = 0;
        if (text != NULL && text[0] != '\0' && gm_settings_parse_foreign(text, &bytes) != 0)
            hello->cap_is = GM_HELLO_CAP_UNKNOWN;
        if (bytes > 0 && (hello->cap == 0 || bytes < hello->cap))
            hello->cap = bytes;
        snprintf(name, sizeof(name), CAP_CUDA "_%u", i);
        text = get(name);
    }
    if (hello->cap_is == GM_HELLO_CAP_UNSAID && hello->cap > 0)
        hello->cap_is = hello->cap < GM_CHUNK_MIN ? GM_HELLO_CAP_UNKNOWN : GM_HELLO_CAP_FOREIGN;
}

void gm_wishes_read(char *(*get)(const char *name), struct gm_msg_hello *hello)
{
    hello->class = read_class(get("GPUMUX_CLASS"));
    hello->oversize = read_oversize(get("GPUMUX_OVERSIZE"));
    read_cap(get, hello);
}

const char *gm_wishes_wrong_class(uint32_t class)
{
    return class > GM_CLASSES ? "GPUMUX_CLASS is not " GM_CLASS_LIST : NULL;
}

const char *gm_wishes_wrong_oversize(uint32_t oversize)
{
    return oversize > GM_HELLO_OVERSIZE_HOST ? "GPUMUX_OVERSIZE is not refuse or host" : NULL;
}

const char *gm_wishes_wrong_cap(uint32_t cap_is)
{
    const bool is_known = cap_is == GM_HELLO_CAP_UNSAID || cap_is == GM_HELLO_CAP_OURS ||
                          cap_is == GM_HELLO_CAP_FOREIGN;
    return is_known ? NULL
                    : "GPUMUX_CAP, CUDA_DEVICE_MEMORY_LIMIT or GPU_MEMORY_LIMIT is no size of 2M "
                      "or more";
}
