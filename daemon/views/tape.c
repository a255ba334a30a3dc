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

/* ---- lines for mux-ctl ---- */

/* Make room: the older half goes. A line of it may say which GPU the rest is about. */
static void drop_half(struct gm_tape *tape)
{
    const size_t length = (size_t)(tape->end - tape->begin);
    size_t cut = 0;
    while (cut < length / 2) {
        const char *line = tape->text + cut;
        const char *end = memchr(line, '\n', length - cut);
        const char *word = memchr(line, ' ', (size_t)(end - line));
        if (strncmp(word, " gpu index=", 11) == 0)
            tape->first = (int32_t)strtol(word + 11, NULL, 10);
        cut = (size_t)(end - tape->text) + 1;
    }
    memmove(tape->text, tape->text + cut, length - cut);
    tape->begin += cut;
}

static void put(struct gm_tape *tape, const char *line, size_t length)
{
    if (tape->end - tape->begin + length > GM_TAPE_BYTES)
        drop_half(tape);
    memcpy(tape->text + (tape->end - tape->begin), line, length);
    tape->end += length;
}

static void put_gpu(struct gm_tape *tape, int32_t gpu, uint64_t now)
{
    char line[GM_TRACE_LINE_MAX];
    const struct gm_trace_view view = {.row = GM_TRACE_ROW_GPU, .number = {(uint64_t)gpu}};
    if (gpu == tape->last)
        return;
    tape->last = gpu;
    put(tape, line, gm_trace_view(line, sizeof line, now, &view));
}

/* Lines are in the order of their times, also those of several GPUs. */
static uint64_t clamp(struct gm_tape *tape, uint64_t now)
{
    tape->now = now > tape->now ? now : tape->now;
    return tape->now;
}

static void put_view(struct gm_tape *tape, int32_t gpu, uint64_t now,
                     const struct gm_trace_view *view)
{
    char line[GM_TRACE_LINE_MAX];
    if (!tape->text)
        return;
    put_gpu(tape, gpu, clamp(tape, now));
    put(tape, line, gm_trace_view(line, sizeof line, tape->now, view));
}

/* ---- copies ---- */

static void end_span(struct gm_tape *tape, const struct gm_event *event, unsigned way)
{
    struct gm_tape_span *span = &tape->gpu[event->gpu].span[way];
    struct gm_trace_view view = {.row = GM_TRACE_ROW_COPIED,
                                 .number = {span->begin, span->end, span->bytes}};
    gm_trace_word(GM_TRACE_ROW_COPIED, (int)way, view.text);
    put_view(tape, event->device, event->at, &view);
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

static struct gm_trace_view row_of(enum gm_trace_row row, uint32_t app)
{
    return (struct gm_trace_view){.row = row, .app = app};
}

static struct gm_trace_view of_turn(const struct gm_turn *turn)
{
    static const int words[GM_APP_STATES_N] = {
        [GM_APP_UNUSED] = -1, [GM_APP_PAUSED] = 0,   [GM_APP_LOADING] = 1,
        [GM_APP_RUNNING] = 2, [GM_APP_DRAINING] = 3, [GM_APP_GONE] = 4};
    struct gm_trace_view view = row_of(GM_TRACE_ROWS, turn->id);
    if (turn->model != GM_MODEL_APP || turn->to == GM_TURN_ILLEGAL || turn->from == GM_APP_UNUSED ||
        words[turn->to] < 0)
        return view; /* JOIN tells of its begin, and the scheduler's input of its end */
    view.row = GM_TRACE_ROW_STATE;
    gm_trace_word(GM_TRACE_ROW_STATE, words[turn->to], view.text);
    return view;
}

static struct gm_trace_view of_switch(const struct gm_note *note)
{
    const struct gm_switch *took = &note->took;
    struct gm_trace_view view = row_of(GM_TRACE_ROW_SWITCH, note->app.app);
    view.number[GM_TRACE_TOTAL] = took->total_ns;
    for (unsigned part = 0; part < GM_PARTS; part++)
        view.number[GM_TRACE_PARTS + part] = took->part_ns[part];
    view.number[GM_TRACE_OUT] = took->bytes[GM_WAY_OUT];
    view.number[GM_TRACE_IN] = took->bytes[GM_WAY_IN];
    view.number[GM_TRACE_CLEAN] = took->clean;
    view.number[GM_TRACE_ZERO] = took->zero;
    view.number[GM_TRACE_DOWN] = took->lowered;
    view.number[GM_TRACE_UP] = took->raised;
    view.number[GM_TRACE_WAITED] = note->wait_ns;
    gm_text_add(view.text, sizeof view.text, "%s", gm_why_text(note->app.why));
    for (uint32_t i = 0; i < note->n_leavers && i < GM_NOTE_LEAVERS; i++)
        gm_text_add(view.text, sizeof view.text, "%s pid %d (%s)", i ? "," : "; in the place of",
                    (int)note->leavers[i].pid, gm_why_text(note->leavers[i].why));
    return view;
}

static void put_view_of(struct gm_tape *tape, const struct gm_event *event)
{
    struct gm_trace_view view = row_of(GM_TRACE_ROWS, event->app);
    if (!tape->text)
        return;
    switch (event->kind) {
    case GM_EVENT_TURN:
        view = of_turn(&event->turn.turn);
        break;
    case GM_EVENT_JOIN:
        view.row = GM_TRACE_ROW_APP;
        view.number[0] = (uint64_t)event->pid;
        view.number[1] = event->uid;
        snprintf(view.text, sizeof view.text, "%s", event->name);
        break;
    case GM_EVENT_PARKED:
        view.row = GM_TRACE_ROW_PARKED;
        break;
    case GM_EVENT_SWITCH:
        view = of_switch(event->switch_.note);
        break;
    case GM_EVENT_LEVEL:
        view.row = GM_TRACE_ROW_LEVEL;
        view.number[0] = event->level.note->from;
        view.number[1] = event->level.note->app.level;
        snprintf(view.text, sizeof view.text, "%s", gm_why_text(event->level.note->app.why));
        break;
    case GM_EVENT_SET:
        view.row = GM_TRACE_ROW_SAID;
        view.number[0] = event->set.note->by;
        gm_settings_format(&event->set.note->said, view.text, sizeof view.text);
        break;
    case GM_EVENT_REFUSED:
        view.row = GM_TRACE_ROW_REFUSED;
        view.number[0] = event->refused.note->refusal.bytes;
        view.number[1] = event->refused.note->n_refused;
        snprintf(view.text, sizeof view.text, "%s", gm_why_text(event->refused.note->refusal.why));
        break;
    default:
        return;
    }
    if (view.row != GM_TRACE_ROWS)
        put_view(tape, event->device, event->at, &view);
}

/* What the scheduler is told, as one line. Before it has an app, its budget alone can change. */
static void put_input(struct gm_tape *tape, const struct gm_event *event)
{
    char line[GM_TRACE_LINE_MAX];
    if (event->kind == GM_EVENT_INPUT && event->input.event->kind == GM_SCHED_ROOM)
        tape->gpu[event->gpu].config.budget = event->input.event->bytes;
    else
        tape->has_begun = true;
    if (!tape->text)
        return;
    put_gpu(tape, event->device, clamp(tape, event->at));
    put(tape, line,
        event->kind == GM_EVENT_INPUT
            ? gm_trace_event(line, sizeof line, tape->now, event->input.event)
            : gm_trace_policy(line, sizeof line, tape->now, event->app, event->policy.policy));
}

void gm_tape_event(struct gm_tape *tape, const struct gm_event *event)
{
    if (tape->text && event->at > tape->asked && event->at - tape->asked > GM_TAPE_KEPT_NS)
        gm_tape_close(tape);
    end_spans(tape, event); /* copies count while nobody asks, too: see tape.h */
    switch (event->kind) {
    case GM_EVENT_SCHED:
        tape->gpu[event->gpu].config = *event->sched.config;
        break;
    case GM_EVENT_COPY:
        note_copy(tape, event);
        break;
    case GM_EVENT_COPIED:
        note_copied(tape, event);
        break;
    case GM_EVENT_INPUT:
    case GM_EVENT_POLICY:
        put_input(tape, event);
        break;
    default:
        put_view_of(tape, event);
        break;
    }
}

/* ---- questions ---- */

struct answer {
    char *text;
    size_t size;
    FILE *file;
    uint64_t now;
};

static void say(struct answer *answer, const struct gm_trace_view *view)
{
    char line[GM_TRACE_LINE_MAX];
    gm_trace_view(line, sizeof line, answer->now, view);
    fputs(line, answer->file);
}

static struct gm_trace_view tiers_of(const struct gm_snapshot_gpu *gpu)
{
    return (struct gm_trace_view){.row = GM_TRACE_ROW_TIERS,
                                  .number = {gpu->used, gpu->tiers.pinned_used,
                                             gpu->tiers.paged_used, gpu->tiers.disk_used,
                                             gpu->tiers.on_host}};
}

static void say_app(struct answer *answer, const struct gm_snapshot_app *app)
{
    char line[GM_TRACE_LINE_MAX];
    struct gm_trace_view view = row_of(GM_TRACE_ROW_APP, app->id);
    view.number[0] = (uint64_t)app->pid;
    view.number[1] = app->uid;
    snprintf(view.text, sizeof view.text, "%s", app->name);
    say(answer, &view);
    const char *state = app->state == GM_SHOWN_LOADING    ? "loading"
                        : app->state == GM_SHOWN_DRAINING ? "draining"
                        : app->state == GM_SHOWN_GONE     ? "gone"
                        : app->is_running                 ? "running"
                                                          : "paused";
    view = row_of(GM_TRACE_ROW_STATE, app->id);
    snprintf(view.text, sizeof view.text, "%s", state);
    say(answer, &view);
    view = row_of(GM_TRACE_ROW_PARKED, app->id);
    if (app->is_parked)
        say(answer, &view);
    if (app->state == GM_SHOWN_IDLE || app->state == GM_SHOWN_PAUSED ||
        app->state == GM_SHOWN_STOPPED)
        return;
    const struct gm_sched_event want = {.kind = GM_SCHED_WANT, .app = app->id};
    gm_trace_event(line, sizeof line, answer->now, &want);
    fputs(line, answer->file);
}

/* Who is there now, and how they are. */
static void say_all(struct gm_tape *tape, const struct gm_snapshot *snapshot, struct answer *answer,
                    uint64_t wall)
{
    char line[GM_TRACE_LINE_MAX];
    struct gm_trace_view begin = {.row = GM_TRACE_ROW_BEGIN, .number = {wall}};
    snprintf(begin.text, sizeof begin.text, tape->has_begun ? "part" : "whole");
    for (uint32_t i = 0; i < snapshot->n_gpus; i++) {
        const struct gm_snapshot_gpu *gpu = &snapshot->gpus[i];
        struct gm_trace_view view = row_of(GM_TRACE_ROW_GPU, 0);
        if (i == 0) {
            gm_trace_config(line, sizeof line, &tape->gpu[gpu->index].config);
            fputs(line, answer->file);
            say(answer, &begin);
        }
        view.number[0] = (uint64_t)gpu->device;
        snprintf(view.text, sizeof view.text, "%s", gpu->name);
        say(answer, &view);
        view = tiers_of(gpu);
        say(answer, &view);
        for (uint32_t k = 0; k < snapshot->n_apps; k++)
            if (snapshot->apps[k].device == gpu->device)
                say_app(answer, &snapshot->apps[k]);
        tape->last = -1; /* the next line says whose it is */
    }
}

static void put_tiers(struct gm_tape *tape, const struct gm_snapshot *snapshot, uint64_t now)
{
    if (now - tape->tiers_at < GM_TAPE_TIERS_NS)
        return;
    tape->tiers_at = now;
    for (uint32_t i = 0; i < snapshot->n_gpus; i++) {
        const struct gm_trace_view view = tiers_of(&snapshot->gpus[i]);
        put_view(tape, snapshot->gpus[i].device, now, &view);
    }
}

/* The lines since then. */
static void say_since(const struct gm_tape *tape, struct answer *answer, uint64_t since)
{
    const uint64_t from = since < tape->begin || since > tape->end ? tape->begin : since;
    if (from != since) {
        struct gm_trace_view view = row_of(GM_TRACE_ROW_LOST, 0);
        view.number[0] = since < from ? from - since : 0;
        if (tape->begin < tape->end)
            answer->now = strtoull(tape->text, NULL, 10);
        say(answer, &view);
        view = row_of(GM_TRACE_ROW_GPU, 0);
        view.number[0] = (uint64_t)tape->first;
        if (tape->first >= 0)
            say(answer, &view);
    }
    fwrite(tape->text + (from - tape->begin), 1, (size_t)(tape->end - from), answer->file);
}

cJSON *gm_tape_ask(struct gm_tape *tape, const struct gm_snapshot *snapshot, uint64_t since,
                   uint64_t now, uint64_t wall)
{
    struct answer answer = {0};
    if (!tape->text) {
        tape->text = malloc(GM_TAPE_BYTES);
        tape->begin = tape->end = tape->end + 1; /* what was before is lost to who asks further */
        tape->first = tape->last = -1;
    }
    answer.file = open_memstream(&answer.text, &answer.size);
    if (!tape->text || !answer.file) {
        if (answer.file)
            fclose(answer.file);
        free(answer.text);
        return NULL;
    }
    tape->asked = now;
    answer.now = clamp(tape, now);
    put_tiers(tape, snapshot, now);
    if (since == 0)
        say_all(tape, snapshot, &answer, wall);
    else
        say_since(tape, &answer, since);
    const bool is_whole = fclose(answer.file) == 0;
    cJSON *object = is_whole ? cJSON_CreateObject() : NULL;
    if (object && (!cJSON_AddNumberToObject(object, "next", (double)tape->end) ||
                   !cJSON_AddStringToObject(object, "text", answer.text))) {
        cJSON_Delete(object);
        object = NULL;
    }
    free(answer.text);
    return object;
}

void gm_tape_close(struct gm_tape *tape)
{
    free(tape->text);
    tape->text = NULL;
}
