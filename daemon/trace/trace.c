/* The text of a trace: see trace.h. */
#include "daemon/trace/trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "common/text.h"
#include "daemon/core/sched_step.h"

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

size_t gm_trace_write(char *to, size_t size, const struct gm_trace_line *line)
{
    char whole[GM_TRACE_LINE_MAX] = "", text[GM_TRACE_TEXT];
    const char *list = rows[line->row].numbers, *name;
    size_t n, length;
    gm_text_add(whole, sizeof whole, "%" PRIu64 " %" PRIu32 " %s", line->now, line->gpu,
                rows[line->row].name);
    if (rows[line->row].has_app)
        gm_text_add(whole, sizeof whole, " %" PRIu32, line->app);
    for (unsigned i = 0; (n = next_of(&list, &name)) > 0; i++)
        gm_text_add(whole, sizeof whole, " %.*s=%" PRIu64, (int)n, name, line->number[i]);
    memcpy(text, line->text, sizeof text);
    gm_text_clean(text, sizeof text);
    for (length = strlen(text); length > 0 && text[length - 1] == ' ';)
        text[--length] = '\0';
    assert(!rows[line->row].text || !*rows[line->row].text ||
           gm_trace_find_word(line->row, text) >= 0);
    if (rows[line->row].text && *text)
        gm_text_add(whole, sizeof whole, " %s", text);
    return (size_t)snprintf(to, size, "%s\n", whole);
}

/* ---- Reading ---- */

struct reader {
    const char *line, *at; /* and its next byte */
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
    gm_text_clean(r->why, r->why_size); /* it may quote the line */
}

/* What stands before the next blank, or the end: its bytes. A blank is before all but the first. */
static int next_word(struct reader *r, const char **word, const char *what)
{
    r->at += *r->at == ' ' && r->at > r->line;
    *word = r->at;
    const size_t n = strcspn(r->at, " ");
    if (n == 0 || n > GM_TRACE_LINE_MAX)
        wrong(r, n == 0 ? "%s is missing" : "%s is longer than any", what);
    r->at += r->is_wrong ? 0 : n;
    return r->is_wrong ? 0 : (int)n;
}

/* A number without a sign, leading zeros or anything else; with "name=" before it where the name is
 * a number's. */
static uint64_t next_number(struct reader *r, const char *what, bool is_named, uint64_t most)
{
    const char *word;
    int n = next_word(r, &word, what);
    const int name = is_named ? (int)strlen(what) : 0;
    if (is_named && (n <= name || memcmp(word, what, (size_t)name) != 0 || word[name] != '='))
        wrong(r, "%s= is missing", what);
    if (r->is_wrong)
        return 0;
    word += name + is_named;
    n -= name + is_named;
    uint64_t value = 0;
    bool is_large = false, is_number = n > 0 && (word[0] != '0' || n == 1);
    for (int i = 0; i < n && is_number; i++) {
        const uint64_t digit = (uint64_t)(unsigned char)word[i] - '0';
        is_number = digit <= 9;
        is_large = is_large || __builtin_mul_overflow(value, (uint64_t)10, &value) ||
                   __builtin_add_overflow(value, digit, &value);
    }
    if (!is_number)
        wrong(r, "%s is not a number: %.*s", what, n, word);
    else if (is_large || value > most)
        wrong(r, "%s is %.*s, more than %" PRIu64, what, n, word, most);
    return value;
}

/* The rest of the line. A blank at its end would be a second spelling. */
static void parse_text(struct reader *r, struct gm_trace_line *line)
{
    const char *words = rows[line->row].text;
    const size_t n = strlen(r->at);
    if (n > 0 && r->at[n - 1] == ' ')
        wrong(r, "a blank at the end of the line");
    if (n > 0 && !words)
        wrong(r, "more than belongs there:%.40s", r->at);
    if (n > sizeof line->text)
        wrong(r, "a text of more than %zu bytes", sizeof line->text - 1);
    if (r->is_wrong)
        return;
    if (n > 0)
        memcpy(line->text, r->at + 1, n);
    if (!gm_text_is_legal(line->text, sizeof line->text))
        wrong(r, "the text is not legal: %.40s", line->text);
    else if (words && *words && gm_trace_find_word(line->row, line->text) < 0)
        wrong(r, "\"%.40s\" is none of: %s", line->text, words);
}

int gm_trace_parse(const char *text, struct gm_trace_line *to, char *why, size_t why_size)
{
    struct reader r = {text, text, why, why_size, false};
    struct gm_trace_line line = {.row = 0};
    const char *word, *name;
    char one[24];
    line.now = next_number(&r, "the time", false, GM_TIME_NEVER - 1);
    line.gpu = (uint32_t)next_number(&r, "the GPU", false, INT32_MAX);
    const int length = next_word(&r, &word, "the row");
    while (line.row < GM_TRACE_ROWS && (strlen(rows[line.row].name) != (size_t)length ||
                                        memcmp(word, rows[line.row].name, (size_t)length) != 0))
        line.row++;
    if (line.row == GM_TRACE_ROWS)
        wrong(&r, "an unknown row: %.*s", length, word);
    if (r.is_wrong)
        return -EINVAL;
    if (rows[line.row].has_app)
        line.app = (uint32_t)next_number(&r, "the app", false, UINT32_MAX);
    const char *list = rows[line.row].numbers;
    size_t n;
    for (unsigned i = 0; (n = next_of(&list, &name)) > 0; i++) {
        snprintf(one, sizeof one, "%.*s", (int)n, name);
        line.number[i] = next_number(&r, one, true, UINT64_MAX);
    }
    parse_text(&r, &line);
    if (r.is_wrong)
        return -EINVAL;
    *to = line;
    return 0;
}

int gm_trace_next(struct gm_trace_reader *reader)
{
    char text[GM_TRACE_LINE_MAX];
    size_t n = 0;
    int c;
    while ((c = getc(reader->file)) != EOF && c != '\n' && c != '\0' && n + 1 < sizeof text)
        text[n++] = (char)c;
    text[n] = '\0';
    if (ferror(reader->file)) {
        const int error = errno;
        snprintf(reader->why, sizeof reader->why, "%s", strerror(error));
        return -error;
    }
    if (c == EOF && (n == 0 || reader->number > 0))
        return 0; /* who writes it is not ready, or was killed */
    reader->number++;
    if (c == '\0')
        snprintf(reader->why, sizeof reader->why, "a zero byte in the line");
    else if (reader->number == 1 && strcmp(text, GM_TRACE_MAGIC) == 0)
        return gm_trace_next(reader);
    else if (reader->number == 1)
        snprintf(reader->why, sizeof reader->why, "it does not begin with " GM_TRACE_MAGIC);
    else if (c != '\n')
        snprintf(reader->why, sizeof reader->why, "the line is longer than any");
    else if (gm_trace_parse(text, &reader->line, reader->why, sizeof reader->why) == 0)
        return 1;
    return -EINVAL;
}

/* ---- what a scheduler is told ---- */

_Static_assert(GM_TRACE_ROW_ROOM - GM_TRACE_ROW_JOIN == GM_SCHED_ROOM, "trace.def lacks an event");

void gm_trace_put_config(struct gm_trace_line *line, const struct gm_sched_config *config)
{
    *line = (struct gm_trace_line){.row = GM_TRACE_ROW_SCHED,
                                   .number = {config->max_apps, config->budget, config->levels,
                                              config->allotment_ns, config->slice_ns,
                                              config->patience_ns, config->retry_ns}};
}

bool gm_trace_config(const struct gm_trace_line *line, struct gm_sched_config *config)
{
    const uint64_t *is = line->number;
    *config = (struct gm_sched_config){.max_apps = (uint32_t)is[0],
                                       .budget = is[1],
                                       .levels = (uint32_t)is[2],
                                       .allotment_ns = is[3],
                                       .slice_ns = is[4],
                                       .patience_ns = is[5],
                                       .retry_ns = is[6]};
    return line->row == GM_TRACE_ROW_SCHED && is[0] <= UINT32_MAX && is[2] <= UINT32_MAX &&
           gm_sched_size(config) > 0;
}

void gm_trace_put_event(struct gm_trace_line *line, const struct gm_sched_event *event)
{
    *line = (struct gm_trace_line){.row = (enum gm_trace_row)(GM_TRACE_ROW_JOIN + (int)event->kind),
                                   .app = event->app};
    if (event->kind == GM_SCHED_JOIN) {
        line->number[0] = event->user;
        line->number[1] = event->level;
        line->number[2] = event->charged_ns;
    } else {
        line->number[0] = event->kind == GM_SCHED_IDLE ? event->ago_ns : event->bytes;
    }
}

bool gm_trace_event(const struct gm_trace_line *line, struct gm_sched_event *event)
{
    const uint64_t *is = line->number;
    *event = (struct gm_sched_event){.app = line->app};
    if (line->row < GM_TRACE_ROW_JOIN || line->row > GM_TRACE_ROW_ROOM)
        return false;
    event->kind = (enum gm_sched_event_kind)(line->row - GM_TRACE_ROW_JOIN);
    if (event->kind == GM_SCHED_JOIN) {
        event->user = (uint32_t)is[0];
        event->level = (uint32_t)is[1];
        event->charged_ns = is[2];
        return is[0] <= UINT32_MAX && is[1] <= UINT32_MAX;
    }
    if (event->kind == GM_SCHED_IDLE)
        event->ago_ns = is[0];
    else
        event->bytes = is[0];
    return true;
}

void gm_trace_put_policy(struct gm_trace_line *line, uint32_t app,
                         const struct gm_sched_policy *policy)
{
    *line = (struct gm_trace_line){.row = GM_TRACE_ROW_SET,
                                   .app = app,
                                   .number = {policy->weight, policy->share, policy->is_paused}};
    gm_trace_word(GM_TRACE_ROW_SET, policy->class, line->text);
}

bool gm_trace_policy(const struct gm_trace_line *line, struct gm_sched_policy *policy)
{
    const uint64_t *is = line->number;
    if (line->row != GM_TRACE_ROW_SET)
        return false;
    *policy = (struct gm_sched_policy){.class = (uint8_t)gm_trace_find_word(line->row, line->text),
                                       .weight = (uint32_t)is[0],
                                       .share = (uint32_t)is[1],
                                       .is_paused = is[2] != 0};
    return is[0] <= UINT32_MAX && is[1] <= UINT32_MAX && is[2] <= 1;
}
