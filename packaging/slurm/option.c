/* The option --gpumux: see option.h. */
#include "packaging/slurm/option.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/nearest.h"
#include "common/settings.h"
#include "common/size.h"
#include "common/text.h"

#define SHOWN 48 /* bytes of a wrong word in messages */

static const char *const names[GM_SPANK_WORDS] = {
    [GM_SPANK_CLASS] = "class", [GM_SPANK_WEIGHT] = "weight",     [GM_SPANK_CAP] = "cap",
    [GM_SPANK_NEED] = "need",   [GM_SPANK_OVERSIZE] = "oversize", [GM_SPANK_GROUP] = "group"};
const char *const gm_spank_variables[GM_SPANK_WORDS] = {
    [GM_SPANK_CLASS] = "GPUMUX_CLASS",       [GM_SPANK_WEIGHT] = "GPUMUX_WEIGHT",
    [GM_SPANK_CAP] = "GPUMUX_CAP",           [GM_SPANK_NEED] = "GPUMUX_NEED",
    [GM_SPANK_OVERSIZE] = "GPUMUX_OVERSIZE", [GM_SPANK_GROUP] = "GPUMUX_GROUP"};

static int complain(char *why, size_t size, const char *word, size_t length, const char *what)
{
    char shown[SHOWN];
    snprintf(shown, sizeof shown, "%.*s", (int)(length < SHOWN ? length : SHOWN - 1), word);
    gm_text_clean(shown, sizeof shown);
    snprintf(why, size, "\"%s\" %s", shown, what);
    return -EINVAL;
}

/* The word of this name. None: GM_SPANK_WORDS, with what was meant, or NULL, in *meant. */
static unsigned find(const char *word, size_t length, const char **meant)
{
    struct gm_nearest nearest;
    unsigned i = 0;
    gm_nearest_begin(&nearest, word, length);
    for (; i < GM_SPANK_WORDS; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], word, length) == 0)
            break;
        gm_nearest_look(&nearest, names[i]);
    }
    *meant = nearest.best;
    return i;
}

/* Whether the value is one, as the program's library will read it. */
static int check(unsigned i, const char *value, char *why, size_t size)
{
    struct gm_settings settings = {0};
    char word[96];
    uint64_t bytes;
    switch (i) {
    case GM_SPANK_NEED:
        if (gm_parse_size(value, &bytes) != 0 || bytes == 0)
            return complain(why, size, value, strlen(value), "is no size that a program needs");
        return 0;
    case GM_SPANK_GROUP:
        if (!*value || !gm_text_is_legal(value, strlen(value) + 1))
            return complain(why, size, value, strlen(value), "is no name of a group");
        return 0;
    default:
        snprintf(word, sizeof word, "%s=%s", names[i], value);
        return gm_settings_take(&settings, word, why, size) == 0 ? 0 : -EINVAL;
    }
}

static int take(const char *word, size_t length, struct gm_spank_option *option, char *why,
                size_t size)
{
    const char *meant;
    char what[96];
    size_t name = 0;
    while (name < length && word[name] != ':' && word[name] != '=')
        name++;
    const unsigned i = find(word, name, &meant);
    if (i == GM_SPANK_WORDS) {
        if (meant)
            snprintf(what, sizeof what, "is unknown: did you mean %s:?", meant);
        else
            snprintf(what, sizeof what,
                     "is unknown: class:, weight:, cap:, need:, oversize:, group:, or off alone");
        return complain(why, size, word, name, what);
    }
    if (name == length)
        return complain(why, size, word, length, "has no value: put it behind a colon");
    if (option->values[i][0])
        return complain(why, size, word, length, "is said twice");
    const size_t value = length - name - 1;
    if (value >= sizeof option->values[i])
        return complain(why, size, word, length, "is too long");
    memcpy(option->values[i], word + name + 1, value);
    option->values[i][value] = '\0';
    return check(i, option->values[i], why, size);
}

int gm_spank_read(const char *text, struct gm_spank_option *option, char *why, size_t why_size)
{
    struct gm_spank_option read = {.is_on = true};
    if (!text || !*text || strcmp(text, "on") == 0 || strcmp(text, "off") == 0) {
        read.is_off = text && strcmp(text, "off") == 0;
        read.is_on = !read.is_off;
        *option = read;
        return 0;
    }
    while (true) {
        const size_t length = strcspn(text, ",");
        if (take(text, length, &read, why, why_size) != 0)
            return -EINVAL;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    *option = read;
    return 0;
}
