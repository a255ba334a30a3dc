/* Options and their values: see options.h. */
#include "daemon/service/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/chunk.h"
#include "common/classes.h"
#include "common/clock.h"
#include "common/size.h"
#include "common/sock.h"
#include "common/text.h"
#include "daemon/core/sched.h"

const struct gm_option_row gm_option_rows[GM_OPTIONS] = {
#define GM_OPTION(name, member, kind, argument, place, when, min, max, otherwise, example, help)   \
    {name,                                                                                         \
     argument,                                                                                     \
     otherwise,                                                                                    \
     help,                                                                                         \
     min,                                                                                          \
     max,                                                                                          \
     offsetof(struct gm_options, member),                                                          \
     sizeof((struct gm_options *)NULL)->member,                                                    \
     GM_KIND_##kind,                                                                               \
     GM_PLACE_##place,                                                                             \
     GM_WHEN_##when},
#include "daemon/service/options.def"
#undef GM_OPTION
};

const struct gm_gone_row gm_gone_rows[GM_GONES] = {
#define GM_GONE(name, argument, advice) {name, argument, advice},
#include "daemon/service/gone.def"
#undef GM_GONE
};

/* What a value of each kind looks like, for error messages. */
static const char *const kind_looks[] = {
    [GM_KIND_GPUS] = "a number, several (for example 0,1), or all",
    [GM_KIND_NUMBER] = "a number",
    [GM_KIND_SIZE] = "a size (for example 24G or 512MiB)",
    [GM_KIND_BUDGET] = "a size (for example 24G or 512MiB) or a percentage (for example 80%)",
    [GM_KIND_DURATION] = "a time (for example 500ms or 4s)",
    [GM_KIND_PATH] = "a path",
    [GM_KIND_PLACE] = "a folder and a size (for example /var/tmp:100G)",
    [GM_KIND_WORD] = "one of",
    [GM_KIND_CLASS] = GM_CLASS_LIST,
    [GM_KIND_LEVEL] = "error, warn, info or debug",
    [GM_KIND_FLAG] = "yes or no",
};

static const struct {
    const char *name;
    enum gm_log_level level;
} levels[] = {
    {"error", GM_LOG_ERROR}, {"warn", GM_LOG_WARN}, {"info", GM_LOG_INFO}, {"debug", GM_LOG_DEBUG}};

const char *gm_options_word(enum gm_option option, uint32_t choice, char *text, size_t size)
{
    const char *word = gm_option_rows[option].argument;
    while (choice-- > 0 && word[strcspn(word, "|")])
        word += strcspn(word, "|") + 1;
    snprintf(text, size, "%.*s", (int)strcspn(word, "|"), word);
    return text;
}

const char *gm_options_level_name(enum gm_log_level level)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (levels[i].level == level)
            return levels[i].name;
    return "?";
}

static int parse_bounded(const struct gm_option_row *row, int (*parse)(const char *, uint64_t *),
                         const char *text, uint64_t *value)
{
    uint64_t parsed = 0;
    int error = parse(text, &parsed);
    if (error)
        return error;
    if (parsed < row->min || parsed > row->max)
        return -ERANGE;
    *value = parsed;
    return 0;
}

static int parse_budget(const struct gm_option_row *row, const char *text, struct gm_budget *budget)
{
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '%') {
        char digits[8];
        uint64_t percent = 0;
        if (length > sizeof digits)
            return -EINVAL;
        memcpy(digits, text, length - 1);
        digits[length - 1] = '\0';
        int error = gm_parse_number(digits, &percent);
        if (error)
            return error;
        if (percent < 1 || percent > 100)
            return -ERANGE;
        *budget = (struct gm_budget){.percent = (uint32_t)percent};
        return 0;
    }
    uint64_t bytes = 0;
    int error = parse_bounded(row, gm_parse_size, text, &bytes);
    if (error == 0)
        *budget = (struct gm_budget){.bytes = bytes};
    return error;
}

/* The size follows the last colon. */
static int parse_place(const struct gm_option_row *row, const char *text, struct gm_place *place)
{
    const char *colon = strrchr(text, ':');
    uint64_t bytes = 0;
    if (!colon || colon == text)
        return -EINVAL;
    int error = parse_bounded(row, gm_parse_size, colon + 1, &bytes);
    if (error)
        return error;
    if ((size_t)(colon - text) >= sizeof place->dir)
        return -ERANGE;
    memset(place, 0, sizeof *place);
    memcpy(place->dir, text, (size_t)(colon - text));
    place->bytes = bytes;
    return 0;
}

/* The index of `text` among the words of the row's argument. */
static int parse_choice(const struct gm_option_row *row, const char *text, uint32_t *choice)
{
    const char *word = row->argument;
    for (uint32_t i = 0;; i++) {
        size_t length = strcspn(word, "|");
        if (strlen(text) == length && memcmp(word, text, length) == 0) {
            *choice = i;
            return 0;
        }
        if (word[length] == '\0')
            return -EINVAL;
        word += length + 1;
    }
}

static int parse_class(const char *text, enum gm_sched_class *class)
{
    uint32_t index;
    if (!gm_class_index(text, &index))
        return -EINVAL;
    *class = (enum gm_sched_class)index;
    return 0;
}

/* Different numbers with commas between them, or "all". */
static int parse_gpus(const struct gm_option_row *row, const char *text, struct gm_gpus *gpus)
{
    struct gm_gpus found = {0};
    char list[512];
    char *rest = list, *number;

    if (strcmp(text, "all") == 0) {
        *gpus = found;
        return 0;
    }
    if (strlen(text) >= sizeof list)
        return -EINVAL;
    memcpy(list, text, strlen(text) + 1);
    while ((number = strsep(&rest, ",")) != NULL) {
        uint64_t value = 0;
        int error = parse_bounded(row, gm_parse_number, number, &value);
        if (error)
            return error;
        for (uint32_t i = 0; i < found.n; i++)
            if (found.gpu[i] == value)
                return -EINVAL;
        if (found.n == GM_GPUS_MAX)
            return -EINVAL;
        found.gpu[found.n++] = (uint32_t)value;
    }
    *gpus = found;
    return 0;
}

char *gm_options_gpus(const struct gm_gpus *gpus, char *text, size_t size)
{
    snprintf(text, size, "%s", gpus->n == 0 ? "all" : "");
    for (uint32_t i = 0; i < gpus->n; i++)
        gm_text_add(text, size, "%s%u", i > 0 ? "," : "", gpus->gpu[i]);
    return text;
}

/* All kinds but RULES. */
static int parse(void *member, const struct gm_option_row *row, const char *text)
{
    uint64_t value = 0;
    int error = 0;

    switch (row->kind) {
    case GM_KIND_GPUS:
        return parse_gpus(row, text, member);
    case GM_KIND_NUMBER:
        error = parse_bounded(row, gm_parse_number, text, &value);
        if (error == 0)
            *(uint32_t *)member = (uint32_t)value;
        return error;
    case GM_KIND_SIZE:
        return parse_bounded(row, gm_parse_size, text, member);
    case GM_KIND_BUDGET:
        return parse_budget(row, text, member);
    case GM_KIND_DURATION:
        return parse_bounded(row, gm_parse_duration, text, member);
    case GM_KIND_PATH:
        if (*text == '\0')
            return -EINVAL;
        if (strlen(text) >= PATH_MAX)
            return -ERANGE;
        memcpy(member, text, strlen(text) + 1);
        return 0;
    case GM_KIND_PLACE:
        return parse_place(row, text, member);
    case GM_KIND_WORD:
        return parse_choice(row, text, member);
    case GM_KIND_CLASS:
        return parse_class(text, member);
    case GM_KIND_RULES:
        break;
    case GM_KIND_LEVEL:
        for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
            if (strcmp(text, levels[i].name) == 0) {
                *(enum gm_log_level *)member = levels[i].level;
                return 0;
            }
        }
        return -EINVAL;
    case GM_KIND_FLAG:
        *(bool *)member = strcmp(text, "yes") == 0;
        return *(bool *)member || strcmp(text, "no") == 0 ? 0 : -EINVAL;
    }
    return -EINVAL;
}

static void format_bound(const struct gm_option_row *row, uint64_t bound, char *text, size_t size)
{
    if (row->kind == GM_KIND_SIZE || row->kind == GM_KIND_BUDGET || row->kind == GM_KIND_PLACE)
        gm_format_size(bound, text, size);
    else if (row->kind == GM_KIND_DURATION && bound > 0 && bound % GM_S == 0)
        snprintf(text, size, "%llus", (unsigned long long)(bound / GM_S));
    else if (row->kind == GM_KIND_DURATION)
        snprintf(text, size, "%llums", (unsigned long long)(bound / GM_MS));
    else
        snprintf(text, size, "%llu", (unsigned long long)bound);
}

char *gm_option_format(const struct gm_options *options, enum gm_option option, char *text,
                       size_t size)
{
    const struct gm_option_row *row = &gm_option_rows[option];
    const void *member = (const char *)options + row->offset;
    const struct gm_budget *budget = member;
    const struct gm_place *place = member;
    char bytes[32];
    text[0] = '\0';
    switch (row->kind) {
    case GM_KIND_GPUS:
        return gm_options_gpus(member, text, size);
    case GM_KIND_BUDGET:
        if (budget->percent)
            snprintf(text, size, "%u%%", budget->percent);
        else if (budget->bytes)
            format_bound(row, budget->bytes, text, size);
        break;
    case GM_KIND_PLACE:
        if (place->bytes)
            snprintf(text, size, "%s:%s", place->dir,
                     gm_format_size(place->bytes, bytes, sizeof bytes));
        break;
    case GM_KIND_SIZE:
    case GM_KIND_DURATION:
        if (*(const uint64_t *)member || row->otherwise[0])
            format_bound(row, *(const uint64_t *)member, text, size);
        break;
    case GM_KIND_NUMBER:
        format_bound(row, *(const uint32_t *)member, text, size);
        break;
    case GM_KIND_PATH:
        snprintf(text, size, "%s", (const char *)member);
        break;
    case GM_KIND_WORD:
        gm_options_word(option, *(const uint32_t *)member, text, size);
        break;
    case GM_KIND_CLASS:
        snprintf(text, size, "%s", gm_class_name(*(const enum gm_sched_class *)member));
        break;
    case GM_KIND_LEVEL:
        snprintf(text, size, "%s", gm_options_level_name(*(const enum gm_log_level *)member));
        break;
    case GM_KIND_FLAG:
        snprintf(text, size, "%s", *(const bool *)member ? "yes" : "no");
        break;
    case GM_KIND_RULES:
        break;
    }
    return text;
}

char *gm_options_origin(const struct gm_options *options, unsigned given, char *text, size_t size)
{
    if (given == GM_GIVEN_ON_LINE)
        snprintf(text, size, "command line");
    else if (given)
        snprintf(text, size, "%s:%u", options->config, given);
    else
        snprintf(text, size, "default");
    return text;
}

const char *gm_option_show(const char *text, char shown[64])
{
    snprintf(shown, 64, "%s", text);
    gm_text_clean(shown, 64);
    return shown;
}

static void explain(const struct gm_option_row *row, int error, const char *text, char *why,
                    size_t size)
{
    char shown[64], min[32], max[32];
    gm_option_show(text, shown);
    if (error != -ERANGE) {
        bool is_choice = row->kind == GM_KIND_WORD;
        snprintf(why, size, "\"%s\" is not %s%s%s", shown, kind_looks[row->kind],
                 is_choice ? " " : "", is_choice ? row->argument : "");
        return;
    }
    if (row->kind == GM_KIND_PATH) {
        snprintf(why, size, "the path is longer than %d bytes", PATH_MAX - 1);
        return;
    }
    format_bound(row, row->min, min, sizeof min);
    format_bound(row, row->max, max, sizeof max);
    if (row->kind == GM_KIND_BUDGET && strchr(text, '%'))
        snprintf(why, size, "\"%s\" is out of range: from 1%% to 100%%", shown);
    else if (row->max == INT64_MAX)
        snprintf(why, size, "\"%s\" is out of range: at least %s, less than 8 EiB", shown, min);
    else
        snprintf(why, size, "\"%s\" is out of range: from %s to %s", shown, min, max);
}

int gm_option_take(struct gm_options *options, const struct gm_option_row *row, const char *text,
                   unsigned line, char *why, size_t size)
{
    void *member = (char *)options + row->offset;
    if (row->kind == GM_KIND_RULES)
        return gm_rules_add(member, text, line, why, size);
    int error = parse(member, row, text);
    if (error)
        explain(row, error, text, why, size);
    return error;
}

static bool are_same_rules(const struct gm_rules *a, const struct gm_rules *b)
{
    char text[2][512];
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->rule[i].uid != b->rule[i].uid ||
            strcmp(gm_rule_format(&a->rule[i], text[0], sizeof text[0]),
                   gm_rule_format(&b->rule[i], text[1], sizeof text[1])) != 0)
            return false;
    return true;
}

bool gm_option_is_same(const struct gm_option_row *row, const struct gm_options *a,
                       const struct gm_options *b)
{
    const void *one = (const char *)a + row->offset, *other = (const char *)b + row->offset;
    switch (row->kind) {
    case GM_KIND_RULES:
        return are_same_rules(one, other);
    case GM_KIND_PATH: /* behind its end a shorter one keeps what was there before */
        return strcmp(one, other) == 0;
    case GM_KIND_PLACE: {
        const struct gm_place *place[2] = {one, other};
        return place[0]->bytes == place[1]->bytes && strcmp(place[0]->dir, place[1]->dir) == 0;
    }
    case GM_KIND_BUDGET: {
        const struct gm_budget *budget[2] = {one, other};
        return budget[0]->bytes == budget[1]->bytes && budget[0]->percent == budget[1]->percent;
    }
    default:
        return memcmp(one, other, row->size) == 0;
    }
}
