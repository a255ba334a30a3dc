/* The text of a trace: see trace.h. */
#include "daemon/trace/trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
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

/* Whether it is one that the row can have. */
static bool is_text(const struct gm_trace_line *line)
{
    const char *words = rows[line->row].text;
    return !words || !*words || gm_trace_find_word(line->row, line->text) >= 0;
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
    assert(is_text(line));
    if (rows[line->row].text && *text)
        gm_text_add(whole, sizeof whole, " %s", text);
    return (size_t)snprintf(to, size, "%s\n", whole);
}

/* ---- Reading ---- */

bool gm_trace_parse(const char *text, struct gm_trace_line *to)
{
    struct gm_trace_line line = {.row = 0};
    char again[GM_TRACE_LINE_MAX], *at;
    const char *name;
    line.now = strtoull(text, &at, 10);
    line.gpu = (uint32_t)strtoull(at, &at, 10);
    at += *at == ' ';
    const size_t length = strcspn(at, " ");
    while (line.row < GM_TRACE_ROWS &&
           (strlen(rows[line.row].name) != length || memcmp(at, rows[line.row].name, length) != 0))
        line.row++;
    if (line.row == GM_TRACE_ROWS)
        return false;
    at += length;
    if (rows[line.row].has_app)
        line.app = (uint32_t)strtoull(at, &at, 10);
    const char *list = rows[line.row].numbers;
    for (unsigned i = 0; next_of(&list, &name) > 0; i++) {
        if (!(at = strchr(at, '=')))
            return false;
        line.number[i] = strtoull(at + 1, &at, 10);
    }
    snprintf(line.text, sizeof line.text, "%s", at + (*at == ' '));
    if (line.now == GM_TIME_NEVER || !is_text(&line))
        return false;
    /* What is not as it would be written is another spelling, or does not belong there. */
    const size_t written = gm_trace_write(again, sizeof again, &line);
    if (written != strlen(text) + 1 || memcmp(again, text, written - 1) != 0)
        return false;
    *to = line;
    return true;
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
    else if (gm_trace_parse(text, &reader->line))
        return 1;
    else
        snprintf(reader->why, sizeof reader->why, "not a line of a trace");
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
