/* Traces of what happens: see tape.h. */
#include "daemon/views/tape.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/settings.h"
#include "common/text.h"
#include "daemon/core/snapshot.h"
#include "daemon/trace/trace.h"

/* A trace has the tiers so often: a switch of 4 GiB takes as long. */
#define GM_TAPE_TIERS_NS (100 * GM_MS)
/* Copies with less between them are one in a trace: 32 MiB take 0.6 ms. */
#define GM_TAPE_GAP_NS (1 * GM_MS)
/* No longer is one copy of a trace, so that its rate is seen: some 30 chunks of 32 MiB. */
#define GM_TAPE_SPAN_NS (20 * GM_MS)

/* Make room where there is none: the older half goes. */
static void put(struct gm_tape *tape, int32_t gpu, uint64_t now, struct gm_trace_line line)
{
    char text[GM_TRACE_LINE_MAX];
    if (!tape->text)
        return;
    line.gpu = (uint32_t)gpu;
    line.now = now;
    const size_t length = gm_trace_write(text, sizeof text, &line);
    size_t kept = (size_t)(tape->end - tape->begin);
    if (kept + length > GM_TAPE_BYTES) {
        const char *half = tape->text + kept / 2;
        const char *end = memchr(half, '\n', kept - kept / 2);
        const size_t cut = (size_t)(end - tape->text) + 1;
        kept -= cut;
        memmove(tape->text, tape->text + cut, kept);
        tape->begin += cut;
    }
    memcpy(tape->text + kept, text, length);
    tape->end += length;
}

/* ---- copies ---- */

static void end_span(struct gm_tape *tape, const struct gm_event *event, unsigned way)
{
    struct gm_tape_span *span = &tape->gpu[event->gpu].span[way];
    struct gm_trace_line line = {.row = GM_TRACE_ROW_COPIED,
                                 .number = {span->begin, span->end, span->bytes}};
    gm_trace_word(GM_TRACE_ROW_COPIED, (int)way, line.text);
    put(tape, event->device, event->at, line);
    span->begin = span->n > 0 ? span->end : 0;
    span->bytes = 0;
}

/* Those that are over for a while. */
static void end_spans(struct gm_tape *tape, const struct gm_event *event)
{
    for (unsigned way = 0; way < GM_TAPE_WAYS; way++) {
        const struct gm_tape_span *span = &tape->gpu[event->gpu].span[way];
        if (span->begin > 0 && span->n == 0 && event->at - span->end > GM_TAPE_GAP_NS)
            end_span(tape, event, way);
    }
}

/* Below the GPU everything comes from pinned memory, or goes there. */
static unsigned way_of(uint8_t from, uint8_t to)
{
    if (from == GM_TIER_NONE || from == to)
        return GM_TAPE_WAYS; /* it is cleared, or moves within a tier */
    if (to == GM_TIER_GPU)
        return GM_TAPE_IN;
    if (from == GM_TIER_GPU)
        return GM_TAPE_OUT;
    return to == GM_TIER_PINNED ? GM_TAPE_UP : GM_TAPE_DOWN;
}

static void note_copy(struct gm_tape *tape, const struct gm_event *event)
{
    const unsigned way = way_of(event->copy.from, event->copy.to);
    if (way == GM_TAPE_WAYS)
        return;
    struct gm_tape_span *span = &tape->gpu[event->gpu].span[way];
    if (span->begin == 0)
        span->begin = span->end = event->at;
    span->n++;
}

static void note_copied(struct gm_tape *tape, const struct gm_event *event)
{
    const unsigned way = way_of(event->copied.from, event->copied.to);
    struct gm_tape_span *span = way < GM_TAPE_WAYS ? &tape->gpu[event->gpu].span[way] : NULL;
    if (!span || span->n == 0)
        return;
    span->n--;
    span->bytes += event->copied.has_failed ? 0 : event->copied.bytes;
    span->end = event->at;
    if (span->end - span->begin > GM_TAPE_SPAN_NS)
        end_span(tape, event, way);
}

/* ---- events as rows ---- */

static struct gm_trace_line row_of(enum gm_trace_row row, uint32_t app)
{
    return (struct gm_trace_line){.row = row, .app = app};
}

static struct gm_trace_line of_turn(const struct gm_turn *turn)
{
    static const int words[GM_APP_STATES_N] = {
        [GM_APP_UNUSED] = -1, [GM_APP_PAUSED] = 0,   [GM_APP_LOADING] = 1,
        [GM_APP_RUNNING] = 2, [GM_APP_DRAINING] = 3, [GM_APP_GONE] = 4};
    struct gm_trace_line line = row_of(GM_TRACE_ROWS, turn->id);
    if (turn->model != GM_MODEL_APP || turn->to == GM_TURN_ILLEGAL || turn->from == GM_APP_UNUSED ||
        words[turn->to] < 0)
        return line; /* JOIN tells of its begin, and the scheduler's input of its end */
    line.row = GM_TRACE_ROW_STATE;
    gm_trace_word(GM_TRACE_ROW_STATE, words[turn->to], line.text);
    return line;
}

static struct gm_trace_line of_switch(const struct gm_note *note)
{
    const struct gm_switch *took = &note->took;
    struct gm_trace_line line = row_of(GM_TRACE_ROW_SWITCH, note->app.app);
    line.number[GM_TRACE_TOTAL] = took->total_ns;
    for (unsigned part = 0; part < GM_PARTS; part++)
        line.number[GM_TRACE_PARTS + part] = took->part_ns[part];
    line.number[GM_TRACE_OUT] = took->bytes[GM_WAY_OUT];
    line.number[GM_TRACE_IN] = took->bytes[GM_WAY_IN];
    line.number[GM_TRACE_CLEAN] = took->clean;
    line.number[GM_TRACE_ZERO] = took->zero;
    line.number[GM_TRACE_DOWN] = took->lowered;
    line.number[GM_TRACE_UP] = took->raised;
    line.number[GM_TRACE_WAITED] = note->wait_ns;
    gm_text_add(line.text, sizeof line.text, "%s", gm_why_text(note->app.why));
    for (uint32_t i = 0; i < note->n_leavers && i < GM_NOTE_LEAVERS; i++)
        gm_text_add(line.text, sizeof line.text, "%s pid %d (%s)", i ? "," : "; in the place of",
                    (int)note->leavers[i].pid, gm_why_text(note->leavers[i].why));
    return line;
}

static struct gm_trace_line of_app(uint32_t app, int32_t pid, uint32_t uid, const char *name)
{
    struct gm_trace_line line = row_of(GM_TRACE_ROW_APP, app);
    line.number[0] = (uint64_t)pid;
    line.number[1] = uid;
    snprintf(line.text, sizeof line.text, "%s", name);
    return line;
}

/* Row GM_TRACE_ROWS: nothing that is shown. */
static struct gm_trace_line line_of(const struct gm_event *event)
{
    struct gm_trace_line line = row_of(GM_TRACE_ROWS, event->app);
    switch (event->kind) {
    case GM_EVENT_TURN:
        return of_turn(&event->turn.turn);
    case GM_EVENT_JOIN:
        return of_app(event->app, event->pid, event->uid, event->name);
    case GM_EVENT_SWITCH:
        return of_switch(event->switch_.note);
    case GM_EVENT_INPUT:
        gm_trace_put_event(&line, event->input.event);
        break;
    case GM_EVENT_POLICY:
        gm_trace_put_policy(&line, event->app, event->policy.policy);
        break;
    case GM_EVENT_PARKED:
        line.row = GM_TRACE_ROW_PARKED;
        break;
    case GM_EVENT_LEVEL:
        line.row = GM_TRACE_ROW_LEVEL;
        line.number[0] = event->level.note->from;
        line.number[1] = event->level.note->app.level;
        snprintf(line.text, sizeof line.text, "%s", gm_why_text(event->level.note->app.why));
        break;
    case GM_EVENT_SET:
        line.row = GM_TRACE_ROW_SAID;
        line.number[0] = event->set.note->by;
        gm_settings_format(&event->set.note->said, line.text, sizeof line.text);
        break;
    case GM_EVENT_REFUSED:
        line.row = GM_TRACE_ROW_REFUSED;
        line.number[0] = event->refused.note->refusal.bytes;
        line.number[1] = event->refused.note->n_refused;
        snprintf(line.text, sizeof line.text, "%s", gm_why_text(event->refused.note->refusal.why));
        break;
    default:
        break;
    }
    return line;
}

/* Before its first app a scheduler can be told its budget alone. */
static void note_input(struct gm_tape *tape, const struct gm_event *event)
{
    if (event->kind == GM_EVENT_INPUT && event->input.event->kind == GM_SCHED_ROOM)
        tape->gpu[event->gpu].config.budget = event->input.event->bytes;
    else
        tape->has_begun = true;
}

void gm_tape_event(struct gm_tape *tape, const struct gm_event *event)
{
    if (tape->text && event->at > tape->asked && event->at - tape->asked > GM_TAPE_KEPT_NS)
        gm_tape_close(tape);
    end_spans(tape, event); /* copies count while nobody asks, too: see tape.h */
    if (event->kind == GM_EVENT_SCHED)
        tape->gpu[event->gpu].config = *event->sched.config;
    else if (event->kind == GM_EVENT_COPY)
        note_copy(tape, event);
    else if (event->kind == GM_EVENT_COPIED)
        note_copied(tape, event);
    else if (event->kind == GM_EVENT_INPUT || event->kind == GM_EVENT_POLICY)
        note_input(tape, event);
    if (!tape->text)
        return;
    const struct gm_trace_line line = line_of(event);
    if (line.row != GM_TRACE_ROWS)
        put(tape, event->device, event->at, line);
}

/* ---- questions ---- */

struct answer {
    FILE *file;
    uint64_t now;
};

static void say(const struct answer *answer, int32_t gpu, struct gm_trace_line line)
{
    char text[GM_TRACE_LINE_MAX];
    line.gpu = (uint32_t)gpu;
    line.now = answer->now;
    gm_trace_write(text, sizeof text, &line);
    fputs(text, answer->file);
}

static struct gm_trace_line of_tiers(const struct gm_snapshot_gpu *gpu)
{
    return (struct gm_trace_line){.row = GM_TRACE_ROW_TIERS,
                                  .number = {gpu->used, gpu->tiers.pinned_used,
                                             gpu->tiers.paged_used, gpu->tiers.disk_used,
                                             gpu->tiers.on_host}};
}

static void say_app(const struct answer *answer, const struct gm_snapshot_app *app)
{
    struct gm_trace_line state = row_of(GM_TRACE_ROW_STATE, app->id);
    snprintf(state.text, sizeof state.text, "%s",
             app->state == GM_SHOWN_LOADING    ? "loading"
             : app->state == GM_SHOWN_DRAINING ? "draining"
             : app->state == GM_SHOWN_GONE     ? "gone"
             : app->is_running                 ? "running"
                                               : "paused");
    say(answer, app->device, of_app(app->id, app->pid, app->uid, app->name));
    say(answer, app->device, state);
    if (app->is_parked)
        say(answer, app->device, row_of(GM_TRACE_ROW_PARKED, app->id));
    if (app->state != GM_SHOWN_IDLE && app->state != GM_SHOWN_PAUSED &&
        app->state != GM_SHOWN_STOPPED)
        say(answer, app->device, row_of(GM_TRACE_ROW_WANT, app->id));
}

/* Who is there now, and how they are. */
static void say_all(const struct gm_tape *tape, const struct gm_snapshot *snapshot,
                    const struct answer *answer, uint64_t wall)
{
    struct gm_trace_line line = {.row = GM_TRACE_ROW_BEGIN, .number = {wall}};
    gm_trace_word(GM_TRACE_ROW_BEGIN, tape->has_begun, line.text);
    fputs(GM_TRACE_MAGIC "\n", answer->file);
    say(answer, 0, line);
    for (uint32_t i = 0; i < snapshot->n_gpus; i++) {
        const struct gm_snapshot_gpu *gpu = &snapshot->gpus[i];
        line = row_of(GM_TRACE_ROW_GPU, 0);
        snprintf(line.text, sizeof line.text, "%s", gpu->name);
        say(answer, gpu->device, line);
        gm_trace_put_config(&line, &tape->gpu[gpu->index].config);
        say(answer, gpu->device, line);
        say(answer, gpu->device, of_tiers(gpu));
    }
    for (uint32_t i = 0; i < snapshot->n_apps; i++)
        say_app(answer, &snapshot->apps[i]);
}

static void put_tiers(struct gm_tape *tape, const struct gm_snapshot *snapshot, uint64_t now)
{
    if (now - tape->tiers_at < GM_TAPE_TIERS_NS)
        return;
    tape->tiers_at = now;
    for (uint32_t i = 0; i < snapshot->n_gpus; i++)
        put(tape, snapshot->gpus[i].device, now, of_tiers(&snapshot->gpus[i]));
}

/* The lines since then. */
static void say_since(const struct gm_tape *tape, const struct answer *answer, uint64_t since)
{
    const uint64_t from = since < tape->begin || since > tape->end ? tape->begin : since;
    if (from != since) {
        const bool has_lines = tape->begin < tape->end;
        const struct answer first = {answer->file,
                                     has_lines ? strtoull(tape->text, NULL, 10) : answer->now};
        struct gm_trace_line lost = row_of(GM_TRACE_ROW_LOST, 0);
        lost.number[0] = since < from ? from - since : 0;
        say(&first, 0, lost);
    }
    fwrite(tape->text + (from - tape->begin), 1, (size_t)(tape->end - from), answer->file);
}

cJSON *gm_tape_ask(struct gm_tape *tape, const struct gm_snapshot *snapshot, uint64_t since,
                   uint64_t now, uint64_t wall)
{
    char *text = NULL;
    size_t size;
    if (!tape->text) {
        tape->text = malloc(GM_TAPE_BYTES);
        tape->begin = tape->end = tape->end + 1; /* what was before is lost to who asks further */
    }
    const struct answer answer = {open_memstream(&text, &size), now};
    bool is_whole = tape->text && answer.file;
    if (is_whole) {
        tape->asked = now;
        put_tiers(tape, snapshot, now);
        if (since == 0)
            say_all(tape, snapshot, &answer, wall);
        else
            say_since(tape, &answer, since);
    }
    is_whole = answer.file && fclose(answer.file) == 0 && is_whole;
    cJSON *object = is_whole ? cJSON_CreateObject() : NULL;
    if (object && (!cJSON_AddNumberToObject(object, "next", (double)tape->end) ||
                   !cJSON_AddStringToObject(object, "text", text))) {
        cJSON_Delete(object);
        object = NULL;
    }
    free(text);
    return object;
}

void gm_tape_close(struct gm_tape *tape)
{
    free(tape->text);
    tape->text = NULL;
}
