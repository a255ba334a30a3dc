/* What a program asks for: see wishes.h. */
#include "common/wishes.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "common/classes.h"
#include "common/settings.h"

uint32_t gm_wishes_read_class(char *(*get)(const char *name))
{
    const char *word = get("GPUMUX_CLASS");
    uint32_t index;
    if (word == NULL || word[0] == '\0')
        return 0;
    return gm_class_index(word, &index) ? 1 + index : GM_HELLO_CLASS_UNKNOWN;
}

static uint32_t read_weight(const char *text)
{
    struct gm_settings said = {0};
    char why[256], word[64];
    if (text == NULL || text[0] == '\0')
        return 0;
    const int length = snprintf(word, sizeof(word), "weight=%s", text);
    const bool is_legal =
        length < (int)sizeof(word) && gm_settings_take(&said, word, why, sizeof(why)) == 0;
    return is_legal ? said.weight : GM_HELLO_WEIGHT_UNKNOWN;
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
#define CAP_DEVICES 64 /* numbers of devices that are looked for */

/* The devices that the program may use, a bit each: the numbers in CUDA_VISIBLE_DEVICES. All, if it
 * does not say so: their names (UUIDs) do not tell the numbers. */
static uint64_t read_devices(const char *text)
{
    uint64_t devices = 0;
    for (bool is_more = text != NULL; is_more;) {
        char *end;
        text += strspn(text, " ");
        if (isalpha((unsigned char)*text))
            return UINT64_MAX;
        const unsigned long number = strtoul(text, &end, 10);
        if (!isdigit((unsigned char)*text) || number >= CAP_DEVICES)
            break; /* CUDA's list ends there, too */
        devices |= 1ull << number;
        end += strspn(end, " ");
        is_more = *end == ',';
        text = end + 1;
    }
    return devices != 0 ? devices : UINT64_MAX;
}

static const char *look(char *(*get)(const char *name), const char *name)
{
    const char *text = get(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static void take_foreign(struct gm_msg_hello *hello, const char *text)
{
    uint64_t bytes = 0;
    if (text != NULL && gm_settings_parse_foreign(text, &bytes) != 0)
        hello->cap_is = GM_HELLO_CAP_UNKNOWN;
    if (bytes > 0 && (hello->cap == 0 || bytes < hello->cap))
        hello->cap = bytes;
}

/*
 * What other systems say. A device has its number on the machine (or in the container), which is
 * the number that CUDA_VISIBLE_DEVICES has. What is said of a device comes before what is said of
 * all. The smallest of the devices that are meant counts, as there is one cap for all, and 0 is no
 * limit.
 */
static void read_foreign_cap(char *(*get)(const char *name), struct gm_msg_hello *hello)
{
    const uint64_t devices = read_devices(get("CUDA_VISIBLE_DEVICES"));
    const char *general = look(get, CAP_CUDA);
    bool is_general = false; /* a device has no limit of its own */
    if (general == NULL)
        general = look(get, "GPU_MEMORY_LIMIT");
    for (unsigned i = 0; i < CAP_DEVICES; i++) {
        char name[64];
        if ((devices >> i & 1) == 0)
            continue;
        snprintf(name, sizeof(name), CAP_CUDA "_%u", i);
        const char *its = look(get, name);
        is_general = is_general || its == NULL;
        take_foreign(hello, its);
    }
    if (is_general)
        take_foreign(hello, general);
    if (hello->cap_is == GM_HELLO_CAP_UNSAID && hello->cap > 0)
        hello->cap_is = hello->cap < GM_CHUNK_MIN ? GM_HELLO_CAP_UNKNOWN : GM_HELLO_CAP_FOREIGN;
}

/* The most device memory: GPUMUX_CAP, else what other systems say. */
static void read_cap(char *(*get)(const char *name), struct gm_msg_hello *hello)
{
    const char *ours = look(get, "GPUMUX_CAP");
    struct gm_settings said = {0};
    char why[256], word[64];
    if (ours == NULL) {
        read_foreign_cap(get, hello);
        return;
    }
    const int length = snprintf(word, sizeof(word), "cap=%s", ours);
    const bool is_legal =
        length < (int)sizeof(word) && gm_settings_take(&said, word, why, sizeof(why)) == 0;
    hello->cap_is = is_legal ? GM_HELLO_CAP_OURS : GM_HELLO_CAP_UNKNOWN;
    hello->cap = said.cap;
}

void gm_wishes_read(char *(*get)(const char *name), struct gm_msg_hello *hello)
{
    hello->class = gm_wishes_read_class(get);
    hello->weight = read_weight(get("GPUMUX_WEIGHT"));
    hello->oversize = read_oversize(get("GPUMUX_OVERSIZE"));
    read_cap(get, hello);
}

enum gm_sched_class gm_wishes_class(uint32_t said)
{
    return said >= 1 && said <= GM_CLASSES ? (enum gm_sched_class)(said - 1) : GM_CLASS_AUTO;
}

const char *gm_wishes_wrong_class(uint32_t class)
{
    return class > GM_CLASSES ? "GPUMUX_CLASS is not " GM_CLASS_LIST : NULL;
}

const char *gm_wishes_wrong_weight(uint32_t weight)
{
    return weight != 0 && (weight < GM_SCHED_WEIGHT_MIN || weight > GM_SCHED_WEIGHT_MAX)
               ? "GPUMUX_WEIGHT is not a number from 0.1 to 10"
               : NULL;
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
