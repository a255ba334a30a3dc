/* The text of a recorded trace: see trace.h. */
#include "daemon/trace/trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "daemon/core/sched_step.h"

#define MAGIC GM_TRACE_MAGIC

/* What follows the name of an event. */
static const struct {
    const char *name;
    bool has_app, has_bytes, has_ago, has_user;
} events[] = {
    [GM_SCHED_JOIN] = {"join", .has_app = true, .has_user = true},
    [GM_SCHED_LEAVE] = {"leave", .has_app = true},
    [GM_SCHED_WANT] = {"want", .has_app = true},
    [GM_SCHED_IDLE] = {"idle", .has_app = true, .has_ago = true},
    [GM_SCHED_SIZE] = {"size", .has_app = true, .has_bytes = true},
    [GM_SCHED_OPENED] = {"opened", .has_app = true},
    [GM_SCHED_CLOSED] = {"closed", .has_app = true},
    [GM_SCHED_BUSY] = {"busy", .has_app = true},
    [GM_SCHED_HURRY] = {"hurry", .has_app = true},
    [GM_SCHED_TIE] = {"tie", .has_app = true},
    [GM_SCHED_UNTIE] = {"untie", .has_app = true},
    [GM_SCHED_WASTE] = {"waste", .has_app = true},
    [GM_SCHED_TIMER] = {"timer", .has_app = false},
    [GM_SCHED_ROOM] = {"room", .has_bytes = true},
};
enum { EVENTS = sizeof events / sizeof *events };

/* clang-format off */
#define GM_PART(NAME, name, shown, words) " " #name "_ns"
#define GM_TRACE_SWITCH switch_numbers
static const char switch_numbers[] = "total_ns"
#include "common/parts.def"
    " out in clean zero down up waited_ns";
#undef GM_PART

static const struct {
    const char *name, *numbers, *text;
    bool has_app;
} rows[] = {
#define GM_TRACE_ROW(NAME, name, has_app, numbers, text, about) {#name, numbers, text, has_app},
#include "daemon/trace/trace.def"
#undef GM_TRACE_ROW
};
/* clang-format on */

/* The next of a list of words; its length, 0 at the end of the list. */
static size_t next_of(const char **list, const char **word)
{
    *list += strspn(*list, " ");
    *word = *list;
    const size_t n = strcspn(*list, " ");
    *list += n;
    return n;
}

const char *gm_trace_word(enum gm_trace_row row, int n, char word[16])
{
    const char *list = rows[row].text, *at = NULL;
    size_t length = 0;
    for (int i = 0; i <= n; i++)
        length = next_of(&list, &at);
    snprintf(word, 16, "%.*s", (int)length, at);
    return word;
}

int gm_trace_find_word(enum gm_trace_row row, const char *text)
{
    const char *list = rows[row].text, *word;
    const size_t length = strlen(text);
    size_t n;
    for (int i = 0; (n = next_of(&list, &word)) > 0; i++)
        if (n == length && memcmp(word, text, n) == 0)
            return i;
    return -1;
}

/* ---- Writing ---- */

__attribute__((format(printf, 3, 4))) static size_t print(char *line, size_t size,
                                                          const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, size, format, arguments);
    va_end(arguments);
    return n < 0 ? 0 : (size_t)n;
}

size_t gm_trace_config(char *line, size_t size, const struct gm_sched_config *config)
{
    return print(line, size,
                 MAGIC " %u max_apps=%" PRIu32 " budget=%" PRIu64 " levels=%" PRIu32
                       " allotment_ns=%" PRIu64 " slice_ns=%" PRIu64 " patience_ns=%" PRIu64
                       " retry_ns=%" PRIu64 "\n",
                 GM_TRACE_VERSION, config->max_apps, config->budget, config->levels,
                 config->allotment_ns, config->slice_ns, config->patience_ns, config->retry_ns);
}

size_t gm_trace_event(char *line, size_t size, uint64_t now, const struct gm_sched_event *event)
{
    assert((unsigned)event->kind < EVENTS);
    bool has_app = events[event->kind].has_app, has_bytes = events[event->kind].has_bytes;
    bool has_user = events[event->kind].has_user;
    uint64_t number = has_bytes ? event->bytes : has_user ? event->user : event->ago_ns;
    char app_text[16] = "", number_text[24] = "";
    if (has_app)
        snprintf(app_text, sizeof app_text, " %" PRIu32, event->app);
    if (has_bytes || ((has_user || events[event->kind].has_ago) && number > 0))
        snprintf(number_text, sizeof number_text, " %" PRIu64, number);
    return print(line, size, "%" PRIu64 " %s%s%s\n", now, events[event->kind].name, app_text,
                 number_text);
}

size_t gm_trace_policy(char *line, size_t size, uint64_t now, uint32_t app,
                       const struct gm_sched_policy *policy)
{
    assert(policy->class < GM_CLASSES);
    return print(
        line, size,
        "%" PRIu64 " set %" PRIu32 " class=%s weight=%" PRIu32 " share=%" PRIu32 " paused=%d\n",
        now, app, gm_class_name(policy->class), policy->weight, policy->share, policy->is_paused);
}

size_t gm_trace_view(char *line, size_t size, uint64_t now, const struct gm_trace_view *view)
{
    char whole[GM_TRACE_LINE_MAX] = "", text[GM_TRACE_TEXT];
    const char *list = rows[view->row].numbers, *name;
    size_t n, length;
    gm_text_add(whole, sizeof whole, "%" PRIu64 " %s", now, rows[view->row].name);
    if (rows[view->row].has_app)
        gm_text_add(whole, sizeof whole, " %" PRIu32, view->app);
    for (unsigned i = 0; (n = next_of(&list, &name)) > 0; i++)
        gm_text_add(whole, sizeof whole, " %.*s=%" PRIu64, (int)n, name, view->number[i]);
    memcpy(text, view->text, sizeof text);
    gm_text_clean(text, sizeof text);
    for (length = strlen(text); length > 0 && text[length - 1] == ' ';)
        text[--length] = '\0';
    assert(!rows[view->row].text || !*rows[view->row].text ||
           gm_trace_find_word(view->row, text) >= 0);
    if (rows[view->row].text && *text)
        gm_text_add(whole, sizeof whole, " %s", text);
    return print(line, size, "%s\n", whole);
}

/* ---- Reading ---- */

struct reader {
    const char *at; /* the next byte of the line */
    char *why;
    size_t why_size;
    bool is_wrong; /* `why` holds the first error */
};

__attribute__((format(printf, 2, 3))) static void wrong(struct reader *r, const char *format, ...)
{
    if (r->is_wrong)
        return;
    r->is_wrong = true;
    if (r->why_size == 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->why, r->why_size, format, arguments);
    va_end(arguments);
    for (char *c = r->why; *c; c++) /* `why` may quote the line */
        if (*c < 0x20 || *c > 0x7e)
            *c = '?';
}

/* The next word, up to a blank or the end. Returns its length. */
static int next_word(struct reader *r, const char **word, const char *what)
{
    *word = r->at;
    size_t n = strcspn(r->at, " \n");
    if (r->is_wrong)
        return 0;
    if (n == 0)
        wrong(r, "%s is missing", what);
    if (n > GM_TRACE_LINE_MAX)
        wrong(r, "%s is longer than any", what);
    if (r->is_wrong)
        return 0;
    r->at += n;
    if (*r->at == ' ')
        r->at++;
    else if (*r->at == '\n' && r->at[1] == '\0')
        r->at++;
    return (int)n;
}

/* A number from `least` to `most`, without a sign, leading zeros or anything else. */
static uint64_t next_number(struct reader *r, const char *what, uint64_t least, uint64_t most)
{
    const char *word;
    int n = next_word(r, &word, what);
    uint64_t value = 0;
    bool is_large = false, is_number = n > 0 && (word[0] != '0' || n == 1);
    for (int i = 0; i < n && is_number; i++) {
        uint64_t digit = (uint64_t)(unsigned char)word[i] - '0';
        is_number = digit <= 9;
        is_large = is_large || __builtin_mul_overflow(value, (uint64_t)10, &value) ||
                   __builtin_add_overflow(value, digit, &value);
    }
    if (!r->is_wrong && !is_number)
        wrong(r, "%s is not a number: %.*s", what, n, word);
    if (!r->is_wrong && (is_large || value < least || value > most))
        wrong(r, "%s is %.*s, not from %" PRIu64 " to %" PRIu64, what, n, word, least, most);
    return r->is_wrong ? 0 : value;
}

/* "name=" */
static void next_name(struct reader *r, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(r->at, name, n) != 0 || r->at[n] != '=')
        wrong(r, "%s= is missing", name);
    else
        r->at += n + 1;
}

static uint64_t next_setting(struct reader *r, const char *name, uint64_t most)
{
    next_name(r, name);
    return next_number(r, name, 0, most);
}

static bool is_word(const char *word, int n, const char *text)
{
    return strlen(text) == (size_t)n && memcmp(word, text, (size_t)n) == 0;
}

/* The line must end here. A blank at the end would be a second spelling. */
static void expect_end(struct reader *r, const char *line)
{
    if (r->at > line && r->at[-1] == ' ' && strcmp(r->at, *r->at ? "\n" : "") == 0)
        wrong(r, "a blank at the end of the line");
    else if (*r->at != '\0')
        wrong(r, "more than belongs there: %.40s", r->at);
}

static void parse_config(struct reader *r, struct gm_trace_entry *e)
{
    const char *word;
    int n = next_word(r, &word, "the header");
    if (!is_word(word, n, MAGIC))
        wrong(r, "not a trace of a scheduler: it does not begin with " MAGIC);
    next_number(r, "the version", GM_TRACE_VERSION, GM_TRACE_VERSION);
    struct gm_sched_config *c = &e->config;
    c->max_apps = (uint32_t)next_setting(r, "max_apps", UINT32_MAX);
    c->budget = next_setting(r, "budget", UINT64_MAX);
    c->levels = (uint32_t)next_setting(r, "levels", UINT32_MAX);
    c->allotment_ns = next_setting(r, "allotment_ns", UINT64_MAX);
    c->slice_ns = next_setting(r, "slice_ns", UINT64_MAX);
    c->patience_ns = next_setting(r, "patience_ns", UINT64_MAX);
    c->retry_ns = next_setting(r, "retry_ns", UINT64_MAX);
    if (!r->is_wrong && gm_sched_size(c) == 0)
        wrong(r, "settings that no scheduler can have");
    e->kind = GM_TRACE_CONFIG;
}

static void parse_policy(struct reader *r, struct gm_trace_entry *e)
{
    const char *word;
    char name[16];
    uint32_t class = GM_CLASS_AUTO;
    next_name(r, "class");
    int n = next_word(r, &word, "class");
    if (!r->is_wrong) {
        snprintf(name, sizeof name, "%.*s", n, word);
        if ((size_t)n >= sizeof name || !gm_class_index(name, &class))
            wrong(r, "an unknown class: %.*s", n, word);
    }
    e->kind = GM_TRACE_POLICY;
    e->policy.class = (uint8_t) class;
    next_name(r, "weight");
    e->policy.weight = (uint32_t)next_number(r, "weight", GM_SCHED_WEIGHT_MIN, GM_SCHED_WEIGHT_MAX);
    next_name(r, "share");
    e->policy.share = (uint32_t)next_number(r, "share", 1, GM_SCHED_SHARE_ALL);
    e->policy.is_paused = next_setting(r, "paused", 1) != 0;
}

/* The rest of the line. A blank before nothing, or at the end, would be a second spelling. */
static void parse_text(struct reader *r, struct gm_trace_view *view)
{
    const char *words = rows[view->row].text;
    if (r->is_wrong || !words)
        return;
    size_t n = strcspn(r->at, "\n");
    if (n >= sizeof view->text)
        wrong(r, "a text of more than %zu bytes", sizeof view->text - 1);
    if (r->is_wrong)
        return;
    if ((n > 0 ? r->at[n - 1] : r->at[-1]) == ' ')
        wrong(r, "a blank at the end of the line");
    memcpy(view->text, r->at, n);
    r->at += n + (r->at[n] == '\n' && r->at[n + 1] == '\0');
    if (!gm_text_is_legal(view->text, sizeof view->text))
        wrong(r, "the text is not legal: %.40s", view->text);
    else if (*words && gm_trace_find_word(view->row, view->text) < 0)
        wrong(r, "\"%.40s\" is none of: %s", view->text, words);
}

static void parse_view(struct reader *r, struct gm_trace_entry *e, enum gm_trace_row row)
{
    const char *list = rows[row].numbers, *name;
    char one[24];
    size_t n;
    e->kind = GM_TRACE_VIEW;
    e->view = (struct gm_trace_view){.row = row};
    if (rows[row].has_app)
        e->view.app = (uint32_t)next_number(r, "the app", 0, e->config.max_apps - 1);
    for (unsigned i = 0; (n = next_of(&list, &name)) > 0; i++) {
        snprintf(one, sizeof one, "%.*s", (int)n, name);
        e->view.number[i] = next_setting(r, one, UINT64_MAX);
    }
    parse_text(r, &e->view);
}

static void parse_entry(struct reader *r, struct gm_trace_entry *e)
{
    const char *word;
    uint64_t now = next_number(r, "the time", 0, GM_TIME_NEVER - 1);
    if (!r->is_wrong && now < e->now)
        wrong(r, "the time goes back: %" PRIu64 " after %" PRIu64, now, e->now);
    int n = next_word(r, &word, "the event");
    uint32_t kind = 0;
    while (kind < EVENTS && !is_word(word, n, events[kind].name))
        kind++;
    bool is_policy = is_word(word, n, "set");
    unsigned row = 0;
    while (row < GM_TRACE_ROWS && !is_word(word, n, rows[row].name))
        row++;
    if (!r->is_wrong && kind == EVENTS && row == GM_TRACE_ROWS && !is_policy)
        wrong(r, "an unknown event: %.*s", n, word);
    if (r->is_wrong)
        return;
    e->now = now;
    e->event = (struct gm_sched_event){.kind = GM_SCHED_TIMER};
    if (row < GM_TRACE_ROWS) {
        parse_view(r, e, (enum gm_trace_row)row);
        return;
    }
    if (is_policy || events[kind].has_app)
        e->event.app = (uint32_t)next_number(r, "the app", 0, e->config.max_apps - 1);
    if (is_policy) {
        parse_policy(r, e);
        return;
    }
    e->kind = GM_TRACE_EVENT;
    e->event.kind = (enum gm_sched_event_kind)kind;
    if (events[kind].has_bytes)
        e->event.bytes = next_number(r, "the size", 0, UINT64_MAX);
    if (events[kind].has_ago && *r->at != '\0')
        e->event.ago_ns = next_number(r, "the time it is idle", 1, UINT64_MAX);
    if (events[kind].has_user && *r->at != '\0' && *r->at != '\n')
        e->event.user = (uint32_t)next_number(r, "the user", 1, UINT32_MAX);
}

int gm_trace_parse(const char *line, struct gm_trace_entry *entry, char *why, size_t why_size)
{
    struct reader r = {line, why, why_size, false};
    struct gm_trace_entry e = *entry;
    if (e.kind == GM_TRACE_NOTHING)
        parse_config(&r, &e);
    else
        parse_entry(&r, &e);
    expect_end(&r, line);
    if (r.is_wrong)
        return -EINVAL;
    *entry = e;
    return 0;
}
