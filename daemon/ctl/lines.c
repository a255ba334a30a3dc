/* Entries of the log as text. Every member is optional, so that daemons of other versions can be
 * shown. Called by log.c and table.c; pure. */
#include "daemon/ctl/ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/text.h"

struct line {
    char *text;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line->text + line->length, line->size - line->length, format, list);
    va_end(list);
    if (n > 0) /* cut what does not fit */
        line->length +=
            (size_t)n < line->size - line->length ? (size_t)n : line->size - line->length - 1;
}

/* "2026-03-27 14:03:07.250", local. */
static void add_time(struct line *line, double seconds)
{
    struct tm broken = {0};
    time_t whole = seconds > 0 && seconds < 1e11 ? (time_t)seconds : 0;
    char text[32] = "";
    unsigned ms = (unsigned)((seconds - (double)whole) * 1000.0 + 0.5);
    if (localtime_r(&whole, &broken))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &broken);
    add(line, "%s.%03u  ", text, ms > 999 ? 999 : ms);
}

/* "app 3 (pid 812, python3) L2" */
static void add_party(struct line *line, const cJSON *party)
{
    add(line, "app %.0f (pid %.0f, %s) L%.0f", mux_number(party, "app"), mux_number(party, "pid"),
        mux_word(party, "name"), mux_number(party, "level"));
}

/* The reasons of core/sched: why an app comes, and why another goes. */
static const struct {
    const char *word, *comes, *goes;
} reasons[] = {
    {"fits", "there is room", "there is room"},
    {"slice", "its turn", "its turn is over"},
    {"first", "it goes first", "others go first"},
    {"rested", "it came back from a rest", "others came back from a rest"},
    {"patience", "it had waited for long", "another had waited for long"},
    {"idle", "idle", "idle"},
    {"turn", "its turn", "its turn was over"},
    {"priority", "priority", "others have priority"},
    {"other-user", "its user had less", "another user had less of the time"},
    {"room", "room", "no room beside others"},
    {"paused", "paused", "paused"},
    {"share", "share", "its share was used up"},
    {"left", "left", "it ended"},
};

static const char *reason(const cJSON *party, bool is_coming)
{
    const char *why = mux_word(party, "why");
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (strcmp(why, reasons[i].word) == 0)
            return is_coming ? reasons[i].comes : reasons[i].goes;
    return why;
}

/* Where there are several. */
static void add_gpu(struct line *line, const cJSON *entry)
{
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(entry, "gpu")))
        add(line, "GPU %.0f, ", mux_number(entry, "gpu"));
}

char *mux_parts(const cJSON *entry, char *text, size_t text_size)
{
    static const struct {
        const char *key, *shown;
    } parts[] = {
/* clang-format off */
#define GM_PART(NAME, name, shown, words) {#name "_ms", shown},
#include "common/parts.def"
#undef GM_PART
        /* clang-format on */
    };
    struct line line = {text, text_size, 0};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (mux_number(entry, parts[i].key) >= 0.05)
            add(&line, "%s%s %.1f", line.length ? ", " : "", parts[i].shown,
                mux_number(entry, parts[i].key));
    return text;
}

static void add_switch(struct line *line, const cJSON *entry)
{
    const cJSON *left = cJSON_GetObjectItemCaseSensitive(entry, "left"), *party;
    const double more = mux_number(entry, "left_count") - cJSON_GetArraySize(left);
    char out[32], in[32], parts[256];

    add_party(line, entry);
    add(line, ": %s", reason(entry, true));
    if (mux_number(entry, "waited_s") > 0)
        add(line, ", after %.2f s", mux_number(entry, "waited_s"));
    cJSON_ArrayForEach(party, left)
    {
        add(line, "%s", party == left->child ? "; for " : ", ");
        add_party(line, party);
        add(line, ": %s", reason(party, false));
    }
    if (more > 0)
        add(line, " and %.0f more", more);
    mux_parts(entry, parts, sizeof parts);
    add(line, "; %.1f ms%s%s%s, %s out, %s in, at %.1f GB/s", mux_number(entry, "total_ms"),
        parts[0] ? " (" : "", parts, parts[0] ? ")" : "", mux_size(entry, "bytes_out", out),
        mux_size(entry, "bytes_in", in),
        mux_rate(mux_number(entry, "bytes_out") + mux_number(entry, "bytes_in"),
                 mux_number(entry, "link_ms")));
    if (mux_number(entry, "bytes_clean") + mux_number(entry, "bytes_zero") > 0)
        add(line, "; not copied out: %s unchanged, %s zero", mux_size(entry, "bytes_clean", out),
            mux_size(entry, "bytes_zero", in));
    if (mux_number(entry, "bytes_lowered") + mux_number(entry, "bytes_raised") > 0)
        add(line, "; from pinned memory %s down, %s up to it",
            mux_size(entry, "bytes_lowered", out), mux_size(entry, "bytes_raised", in));
}

static void add_restart(struct line *line, const cJSON *entry)
{
    static const struct {
        const char *key, *text;
    } others[] = {
        {"cut", "live and cannot, and keep their memory until they end (mux-ctl ps names them)"},
        {"ended", "have ended"},
        {"broken", "are unknown"}};
    const char *names = mux_word(entry, "programs"), *wrong = mux_word(entry, "wrong");
    const double taken = mux_number(entry, "taken");
    add(line, "in %.2f s; %.0f program%s of the daemon before may come back",
        mux_number(entry, "took_s"), taken, taken == 1 ? "" : "s");
    if (taken > 0)
        add(line, ": %s", names);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (mux_number(entry, others[i].key) > 0)
            add(line, "; %.0f %s", mux_number(entry, others[i].key), others[i].text);
    if (strcmp(wrong, "-") != 0)
        add(line, "; %s", wrong);
}

/* Used for the log and the status. */
static void add_refusal(struct line *line, const cJSON *entry)
{
    char bytes[32];
    add(line, "refused %s", mux_size(entry, "bytes", bytes));
    if (mux_number(entry, "count") > 1)
        add(line, ", the last of %.0f refusals", mux_number(entry, "count"));
    add(line, ": %s", mux_word(entry, "text"));
    if (strcmp(mux_word(entry, "raise"), "-") != 0)
        add(line, ": raise %s", mux_word(entry, "raise"));
}

/* A line of its own, below the entry. */
__attribute__((format(printf, 2, 3))) static void add_row(struct line *line, const char *format,
                                                          ...)
{
    char row[512];
    va_list list;
    va_start(list, format);
    vsnprintf(row, sizeof row, format, list);
    va_end(list);
    gm_text_clean(row, sizeof row);
    add(line, "%s    %s", line->length ? "\n" : "", row);
}

static void add_leavers(struct line *line, const cJSON *entry)
{
    const cJSON *left = cJSON_GetObjectItemCaseSensitive(entry, "left"), *party;
    const double more = mux_number(entry, "left_count") - cJSON_GetArraySize(left);
    cJSON_ArrayForEach(party, left)
    {
        char who[320];
        struct line one = {who, sizeof who, 0};
        add_party(&one, party);
        add_row(line, "left     %s: %s", who, reason(party, false));
    }
    if (more > 0)
        add_row(line, "left     %.0f more", more);
}

static void add_all_parts(struct line *line, const cJSON *entry)
{
    static const struct {
        const char *key, *shown, *words;
    } parts[] = {
/* clang-format off */
#define GM_PART(NAME, name, shown, words) {#name "_ms", shown, words},
#include "common/parts.def"
#undef GM_PART
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (mux_number(entry, parts[i].key) > 0)
            add_row(line, "%-7s %10.3f ms  %s", parts[i].shown, mux_number(entry, parts[i].key),
                    parts[i].words);
    add_row(line, "in all  %10.3f ms, with copies out %.3f, in %.3f, either %.3f",
            mux_number(entry, "total_ms"), mux_number(entry, "out_ms"), mux_number(entry, "in_ms"),
            mux_number(entry, "link_ms"));
}

char *mux_details(const cJSON *entry, char *text, size_t text_size)
{
    struct line line = {text, text_size, 0};
    text[0] = '\0';
    if (strcmp(mux_word(entry, "kind"), "switch") == 0) {
        add_leavers(&line, entry);
        add_all_parts(&line, entry);
    } else if (cJSON_GetObjectItemCaseSensitive(entry, "set")) {
        add_row(&line, "now      class=%s weight=%g share=%g%%%s", mux_word(entry, "class"),
                mux_number(entry, "weight"), mux_number(entry, "share_percent"),
                cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "paused")) ? " paused" : "");
    }
    return text;
}

char *mux_refusal(const cJSON *entry, char *text, size_t text_size)
{
    struct line line = {text, text_size, 0};
    text[0] = '\0';
    add_party(&line, entry);
    add(&line, ": ");
    add_refusal(&line, entry);
    gm_text_clean(text, text_size);
    return text;
}

char *mux_line(const cJSON *entry, char *text, size_t text_size)
{
    struct line line = {text, text_size, 0};
    const char *kind = mux_word(entry, "kind");

    text[0] = '\0';
    add_time(&line, mux_number(entry, "time_s"));
    add(&line, "%-7s ", kind);
    add_gpu(&line, entry);
    if (strcmp(kind, "restart") == 0) {
        add_restart(&line, entry);
    } else if (strcmp(kind, "switch") == 0) {
        add_switch(&line, entry);
    } else if (strcmp(kind, "level") == 0) {
        add_party(&line, entry);
        add(&line, ": from level %.0f, %s", mux_number(entry, "from_level"),
            mux_word(entry, "why"));
    } else if (strcmp(kind, "refused") == 0) {
        add_party(&line, entry);
        add(&line, ": ");
        add_refusal(&line, entry);
    } else {
        add_party(&line, entry);
        add(&line, ": %s, by %s", mux_word(entry, "set"), mux_word(entry, "by"));
    }
    gm_text_clean(text, text_size);
    return text;
}
