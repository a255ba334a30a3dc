/* Settings: see settings.h. Integers only: no locale, no rounding. */
#include "common/settings.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "common/chunk.h"
#include "common/size.h"
#include "common/text.h"
#include "common/wire.h"

#define SHOWN 48 /* bytes of a wrong word in messages */

static const char *show(const char *text, char shown[SHOWN])
{
    snprintf(shown, SHOWN, "%s", text);
    gm_text_clean(shown, SHOWN);
    return shown;
}

/* Parse a number with up to `decimals` decimals, in units of the last one. A negative one is
 * -ERANGE. */
static int take_decimal(const char *text, size_t length, unsigned decimals, uint32_t *value)
{
    uint64_t sum = 0;
    unsigned behind = 0;
    bool is_behind = false, is_large = false, is_negative = length > 1 && text[0] == '-';
    size_t i = is_negative ? 1 : 0;

    if (i == length || text[i] == '.' || text[length - 1] == '.')
        return -EINVAL;
    for (; i < length; i++) {
        if (text[i] == '.' && !is_behind) {
            is_behind = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9')
            return -EINVAL;
        behind += is_behind;
        sum = sum * 10 + (uint64_t)(text[i] - '0');
        is_large = is_large || sum > UINT32_MAX;
        sum = is_large ? 0 : sum;
    }
    if (behind > decimals || is_negative || is_large)
        return -ERANGE;
    for (; behind < decimals; behind++)
        sum *= 10;
    if (sum > UINT32_MAX)
        return -ERANGE;
    *value = (uint32_t)sum;
    return 0;
}

static int take_class(struct gm_settings *settings, const char *text, char *why, size_t size)
{
    uint32_t index;
    char shown[SHOWN];
    if (!gm_class_index(text, &index)) {
        snprintf(why, size, "class: \"%s\" is not " GM_CLASS_LIST, show(text, shown));
        return -EINVAL;
    }
    settings->class = (uint8_t)index;
    return 0;
}

static int take_weight(struct gm_settings *settings, const char *text, char *why, size_t size)
{
    char shown[SHOWN], least[24], most[24];
    uint32_t weight = 0;
    int error = take_decimal(text, strlen(text), 3, &weight);
    if (error == 0 && (weight < GM_SCHED_WEIGHT_MIN || weight > GM_SCHED_WEIGHT_MAX))
        error = -ERANGE;
    if (error == -EINVAL)
        snprintf(why, size, "weight: \"%s\" is not a number (for example 2 or 0.5)",
                 show(text, shown));
    else if (error)
        snprintf(why, size,
                 "weight: \"%s\" is out of range: from %s to %s, with at most three decimals",
                 show(text, shown), gm_format_thousandths(GM_SCHED_WEIGHT_MIN, least, sizeof least),
                 gm_format_thousandths(GM_SCHED_WEIGHT_MAX, most, sizeof most));
    else
        settings->weight = weight;
    return error;
}

static int take_share(struct gm_settings *settings, const char *text, char *why, size_t size)
{
    char shown[SHOWN];
    uint32_t share = 0;
    size_t length = strlen(text);
    int error = -EINVAL;
    if (length > 0 && text[length - 1] == '%')
        error = take_decimal(text, length - 1, 1, &share);
    if (error == 0 && (share < 1 || share > GM_SCHED_SHARE_ALL))
        error = -ERANGE;
    if (error == -EINVAL)
        snprintf(why, size, "share: \"%s\" is not a percentage (for example 50%%)",
                 show(text, shown));
    else if (error)
        snprintf(why, size,
                 "share: \"%s\" is out of range: from 0.1%% to 100%%, with at most one "
                 "decimal",
                 show(text, shown));
    else
        settings->share = share;
    return error;
}

static const char *const paused_words[GM_PAUSED_WORDS] = {[GM_PAUSED_NO] = "no",
                                                          [GM_PAUSED_YES] = "yes",
                                                          [GM_PAUSED_EVICTED] = "evicted",
                                                          [GM_PAUSED_IDLE] = "idle"};

bool gm_settings_set_paused(struct gm_settings *settings, uint32_t as)
{
    settings->is_paused = as != GM_PAUSED_NO;
    settings->is_evicted = as == GM_PAUSED_EVICTED || as == GM_PAUSED_IDLE;
    settings->is_until_call = as == GM_PAUSED_IDLE;
    return as < GM_PAUSED_WORDS;
}

uint32_t gm_settings_paused(const struct gm_settings *settings)
{
    return !settings->is_paused      ? GM_PAUSED_NO
           : settings->is_until_call ? GM_PAUSED_IDLE
           : settings->is_evicted    ? GM_PAUSED_EVICTED
                                     : GM_PAUSED_YES;
}

const char *gm_settings_paused_word(uint32_t as)
{
    return as < GM_PAUSED_WORDS ? paused_words[as] : "unknown";
}

static int take_paused(struct gm_settings *settings, const char *text, char *why, size_t size)
{
    char shown[SHOWN];
    for (uint32_t as = 0; as < GM_PAUSED_WORDS; as++) {
        if (strcmp(text, paused_words[as]) != 0)
            continue;
        gm_settings_set_paused(settings, as);
        return 0;
    }
    snprintf(why, size, "paused: \"%s\" is not no, yes, evicted or idle", show(text, shown));
    return -EINVAL;
}

static int take_oversize(struct gm_settings *settings, const char *text, char *why, size_t size)
{
    char shown[SHOWN];
    if (strcmp(text, "host") != 0 && strcmp(text, "refuse") != 0) {
        snprintf(why, size, "oversize: \"%s\" is not host or refuse", show(text, shown));
        return -EINVAL;
    }
    settings->is_oversize = strcmp(text, "host") == 0;
    return 0;
}

static int take_cap(struct gm_settings *settings, const char *text, char *why, size_t size)
{
    char shown[SHOWN];
    uint64_t bytes = 0;
    int error = strcmp(text, "none") == 0 ? 0 : gm_parse_size(text, &bytes);
    if (error == 0 && strcmp(text, "none") != 0 && bytes < GM_CHUNK_MIN)
        error = -ERANGE;
    if (error == -EINVAL)
        snprintf(why, size, "cap: \"%s\" is not a size (for example 6G), nor none",
                 show(text, shown));
    else if (error)
        snprintf(why, size, "cap: \"%s\" is out of range: 2M or more, or none", show(text, shown));
    else
        settings->cap = bytes & ~(GM_CHUNK_MIN - 1);
    return error;
}

static const struct {
    const char *name;
    uint32_t flag;
    int (*take)(struct gm_settings *settings, const char *text, char *why, size_t size);
} kinds[] = {
    {"class", GM_SET_CLASS, take_class},          {"weight", GM_SET_WEIGHT, take_weight},
    {"share", GM_SET_SHARE, take_share},          {"paused", GM_SET_PAUSED, take_paused},
    {"oversize", GM_SET_OVERSIZE, take_oversize}, {"cap", GM_SET_CAP, take_cap},
};

int gm_settings_take(struct gm_settings *settings, const char *word, char *why, size_t why_size)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].name);
        const char *value = word + length + 1;
        if (strncmp(word, kinds[i].name, length) != 0)
            continue;
        if (word[length] == '\0' && kinds[i].flag == GM_SET_PAUSED)
            value = "yes";
        else if (word[length] != '=')
            continue;
        if (settings->has & kinds[i].flag) {
            snprintf(why, why_size, "%s is said twice", kinds[i].name);
            return -EEXIST;
        }
        int error = kinds[i].take(settings, value, why, why_size);
        if (error == 0)
            settings->has |= kinds[i].flag;
        return error;
    }
    return -ENOENT;
}

bool gm_settings_are_legal(const struct gm_settings *settings)
{
    if (settings->has & ~(uint32_t)GM_SET_SETTINGS)
        return false;
    if ((settings->has & GM_SET_CLASS) && settings->class >= GM_CLASSES)
        return false;
    if ((settings->has & GM_SET_CAP) &&
        (settings->cap % GM_CHUNK_MIN != 0 || settings->cap > INT64_MAX))
        return false;
    if ((settings->has & GM_SET_WEIGHT) &&
        (settings->weight < GM_SCHED_WEIGHT_MIN || settings->weight > GM_SCHED_WEIGHT_MAX))
        return false;
    return !(settings->has & GM_SET_SHARE) ||
           (settings->share >= 1 && settings->share <= GM_SCHED_SHARE_ALL);
}

char *gm_format_thousandths(uint32_t value, char *text, size_t size)
{
    unsigned behind = value % 1000, digits = 3;
    while (digits > 0 && behind % 10 == 0) {
        behind /= 10;
        digits--;
    }
    if (digits == 0)
        snprintf(text, size, "%u", value / 1000);
    else
        snprintf(text, size, "%u.%0*u", value / 1000, (int)digits, behind);
    return text;
}

char *gm_settings_format(const struct gm_settings *settings, char *text, size_t size)
{
    char class[32] = "", weight[32] = "", share[32] = "", cap[32] = "", number[24];
    if (settings->has & GM_SET_CLASS)
        snprintf(class, sizeof class, " class=%s", gm_class_name(settings->class));
    if (settings->has & GM_SET_WEIGHT)
        snprintf(weight, sizeof weight, " weight=%s",
                 gm_format_thousandths(settings->weight, number, sizeof number));
    if (settings->has & GM_SET_SHARE) /* thousandths of the whole: tenths of a percent */
        snprintf(share, sizeof share, " share=%s%%",
                 gm_format_thousandths(settings->share * 100, number, sizeof number));
    char paused[32] = "";
    const uint32_t as = gm_settings_paused(settings);
    if (settings->has & GM_SET_PAUSED)
        snprintf(paused, sizeof paused, " paused%s%s", as == GM_PAUSED_YES ? "" : "=",
                 as == GM_PAUSED_YES ? "" : paused_words[as]);
    const char *oversize = "";
    if (settings->has & GM_SET_OVERSIZE)
        oversize = settings->is_oversize ? " oversize=host" : " oversize=refuse";
    if (settings->has & GM_SET_CAP)
        snprintf(cap, sizeof cap, " cap=%s",
                 gm_settings_format_cap(settings->cap, number, sizeof number));
    char all[192];
    snprintf(all, sizeof all, "%s%s%s%s%s%s", class, weight, share, paused, oversize, cap);
    snprintf(text, size, "%s", all[0] ? all + 1 : "");
    return text;
}

char *gm_settings_format_cap(uint64_t bytes, char *text, size_t size)
{
    static const char units[] = "MGT";
    uint64_t n = bytes >> 20;
    unsigned unit = 0;
    for (; n > 0 && n % 1024 == 0 && units[unit + 1] != '\0'; unit++)
        n /= 1024;
    if (bytes == 0)
        snprintf(text, size, "none");
    else
        snprintf(text, size, "%llu%c", (unsigned long long)n, units[unit]);
    return text;
}

int gm_settings_parse_foreign(const char *text, uint64_t *bytes)
{
    static const char *const behind[] = {"", "b", "B", "ib", "iB"};
    static const char units[] = "kmgt";
    const char *const unit = text + strspn(text, "0123456789");
    char digits[24];
    const size_t length = (size_t)(unit - text);
    if (length == 0 || length >= sizeof digits)
        return length == 0 ? -EINVAL : -ERANGE;
    memcpy(digits, text, length);
    digits[length] = '\0';
    uint64_t n;
    int error = gm_parse_number(digits, &n);
    if (error)
        return error;
    const char *letter = *unit != '\0' ? strchr(units, *unit | 0x20) : NULL;
    const char *rest = letter ? unit + 1 : unit;
    bool is_known = false;
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++)
        is_known = is_known || strcmp(rest, behind[i]) == 0;
    if (!is_known)
        return -EINVAL;
    const unsigned shift = letter ? 10 * (unsigned)(letter - units + 1) : 0;
    if (n > (uint64_t)INT64_MAX >> shift)
        return -ERANGE;
    *bytes = n << shift;
    return 0;
}

bool gm_command_matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, 0) == 0;
}
