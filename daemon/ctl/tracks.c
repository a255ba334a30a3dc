/* Reading recorded traces: see tracks.h. */
#include "daemon/ctl/tracks.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"

#define NOBODY UINT32_MAX

const char *mux_does_text(enum mux_does does)
{
    static const char *const texts[] = {
#define MUX_DOES_TEXT(NAME, words) [MUX_DOES_##NAME] = words,
        MUX_DOES(MUX_DOES_TEXT)
#undef MUX_DOES_TEXT
    };
    return texts[does];
}

const char *mux_user_of(uint64_t uid, char text[64])
{
    const struct passwd *user = uid <= UINT32_MAX ? getpwuid((uid_t)uid) : NULL;
    if (user)
        snprintf(text, 64, "%s", user->pw_name);
    else
        snprintf(text, 64, "%" PRIu64, uid);
    return text;
}

struct reader {
    struct mux_tracks *to;
    struct gm_trace_entry entry;
    uint32_t gpu;             /* that lines are about */
    uint32_t last;            /* app that was looked for last */
    bool has_begun, is_short; /* of memory */
};

/* Room for one more at the end of an array, all zero; NULL, and the reader is short, if there is
 * none. */
static void *more(struct reader *r, void *arrays, uint32_t *n, size_t size)
{
    void *array, *moved;
    memcpy(&array, arrays, sizeof array);
    if ((*n & (*n - 1)) == 0) { /* it is full: 0, 1, 2, 4, ... */
        moved = *n < UINT32_MAX / 2 ? realloc(array, (*n ? 2 * (size_t)*n : 1) * size) : NULL;
        if (!moved) {
            r->is_short = true;
            return NULL;
        }
        memcpy(arrays, &moved, sizeof moved);
        array = moved;
    }
    void *one = (char *)array + size * (*n)++;
    memset(one, 0, size);
    return one;
}
#define MORE(r, array) more(r, &(r)->to->array, &(r)->to->n_##array, sizeof *(r)->to->array)

/* ---- apps ---- */

static enum mux_does does_now(const struct mux_traced *app)
{
    enum { PAUSED, IS_LOADING, IS_RUNNING, IS_DRAINING }; /* of GM_TRACE_ROW_STATE */
    if (!app->is_live || app->state > IS_DRAINING)
        return MUX_DOES_NOTHING;
    switch (app->state) {
    case IS_LOADING:
        return MUX_DOES_LOADING;
    case IS_RUNNING:
        return app->wants ? MUX_DOES_RUNNING : MUX_DOES_OPEN;
    case IS_DRAINING:
        return MUX_DOES_DRAINING;
    default:
        return !app->wants ? MUX_DOES_NOTHING : app->is_parked ? MUX_DOES_PARKED : MUX_DOES_WAITING;
    }
}

/* What was so before the trace, and is told at its begin. */
static bool is_at_first(const struct reader *r)
{
    return r->to->is_part && r->entry.now == r->to->begin;
}

/* It may do something else now, since `at`. */
static void look(struct reader *r, uint32_t index, uint64_t at)
{
    struct mux_traced *app = &r->to->apps[index];
    const enum mux_does does = does_now(app);
    if (does == app->does)
        return;
    if (at < app->since)
        at = app->since;
    if (app->does != MUX_DOES_NOTHING && at > app->since) {
        struct mux_span *span = MORE(r, spans);
        if (span)
            *span =
                (struct mux_span){.app = index, .does = app->does, .begin = app->since, .end = at};
    }
    app->does = does;
    app->since = at;
}

static uint32_t add_app(struct reader *r, uint32_t id)
{
    struct mux_traced *app = MORE(r, apps);
    if (!app)
        return NOBODY;
    *app = (struct mux_traced){
        .gpu = r->gpu, .id = id, .is_live = true, .state = -1, .since = r->entry.now};
    return r->last = r->to->n_apps - 1;
}

static bool is_it(const struct reader *r, uint32_t index, uint32_t id)
{
    return index < r->to->n_apps && r->to->apps[index].is_live && r->to->apps[index].id == id &&
           r->to->apps[index].gpu == r->gpu;
}

/* Which of apps[] has this number now. One that nobody told of is new. */
static uint32_t find_app(struct reader *r, uint32_t id)
{
    if (is_it(r, r->last, id))
        return r->last;
    for (uint32_t i = r->to->n_apps; i-- > 0;)
        if (is_it(r, i, id))
            return r->last = i;
    return add_app(r, id);
}

static void end_app(struct reader *r, uint32_t index)
{
    r->to->apps[index].is_live = false;
    look(r, index, r->entry.now);
}

/* ---- lines ---- */

static void set_gpu(struct reader *r, const struct gm_trace_view *view)
{
    uint32_t i = 0;
    while (i < r->to->n_gpus && r->to->gpus[i].index != view->number[0])
        i++;
    if (i == r->to->n_gpus && !MORE(r, gpus))
        return;
    r->gpu = i;
    r->to->gpus[i].index = view->number[0];
    if (view->text[0])
        memcpy(r->to->gpus[i].name, view->text, sizeof view->text);
}

static void take_event(struct reader *r, struct mux_event *event, bool has_app)
{
    const uint32_t app = has_app ? find_app(r, r->entry.view.app) : NOBODY;
    if (event)
        *event = (struct mux_event){
            .gpu = r->gpu, .app = app, .at = r->entry.now, .view = r->entry.view};
}

static void take_copies(struct reader *r)
{
    const struct gm_trace_view *view = &r->entry.view;
    struct mux_copies *copies = MORE(r, copies);
    if (!copies)
        return;
    *copies = (struct mux_copies){.gpu = r->gpu,
                                  .way = gm_trace_find_word(view->row, view->text),
                                  .begin = view->number[0],
                                  .end = view->number[1],
                                  .bytes = view->number[2]};
    copies->end = copies->end > r->entry.now ? r->entry.now : copies->end;
    copies->begin = copies->begin < r->to->begin ? r->to->begin : copies->begin;
    if (copies->begin >= copies->end) /* it was before the trace, or takes no time */
        r->to->n_copies--;
}

static void take_app(struct reader *r)
{
    const struct gm_trace_view *view = &r->entry.view;
    uint32_t index = find_app(r, view->app);
    if (index != NOBODY && r->to->apps[index].name[0]) { /* its leave was lost */
        end_app(r, index);
        index = add_app(r, view->app);
    }
    if (index == NOBODY)
        return;
    struct mux_traced *app = &r->to->apps[index];
    app->pid = view->number[0];
    app->uid = view->number[1];
    snprintf(app->name, sizeof app->name, "%s", view->text[0] ? view->text : "?");
}

static void take_state(struct reader *r)
{
    const uint32_t index = find_app(r, r->entry.view.app);
    if (index == NOBODY)
        return;
    struct mux_traced *app = &r->to->apps[index];
    app->state = gm_trace_find_word(GM_TRACE_ROW_STATE, r->entry.view.text);
    if (app->state != 0) /* paused; parked comes before it */
        app->is_parked = false;
    look(r, index, r->entry.now);
}

static void take_parked(struct reader *r)
{
    const uint32_t index = find_app(r, r->entry.view.app);
    if (index == NOBODY)
        return;
    r->to->apps[index].is_parked = true;
    if (!is_at_first(r))
        take_event(r, MORE(r, parks), true);
    look(r, index, r->entry.now);
}

static void take_tiers(struct reader *r)
{
    struct mux_tiers *tiers = MORE(r, tiers);
    if (!tiers)
        return;
    tiers->gpu = r->gpu;
    tiers->at = r->entry.now;
    memcpy(tiers->bytes, r->entry.view.number, sizeof tiers->bytes);
}

static void take_view(struct reader *r)
{
    const struct gm_trace_view *view = &r->entry.view;
    switch (view->row) {
    case GM_TRACE_ROW_BEGIN:
        r->to->wall = view->number[0];
        r->to->is_part = gm_trace_find_word(view->row, view->text) == 1;
        break;
    case GM_TRACE_ROW_GPU:
        set_gpu(r, view);
        break;
    case GM_TRACE_ROW_APP:
        take_app(r);
        break;
    case GM_TRACE_ROW_STATE:
        take_state(r);
        break;
    case GM_TRACE_ROW_PARKED:
        take_parked(r);
        break;
    case GM_TRACE_ROW_COPIED:
        take_copies(r);
        break;
    case GM_TRACE_ROW_SWITCH:
        take_event(r, MORE(r, switches), true);
        break;
    case GM_TRACE_ROW_TIERS:
        take_tiers(r);
        break;
    case GM_TRACE_ROW_REFUSED:
    case GM_TRACE_ROW_LEVEL:
    case GM_TRACE_ROW_SAID:
    case GM_TRACE_ROW_LOST:
        take_event(r, MORE(r, events), view->row != GM_TRACE_ROW_LOST);
        break;
    default:
        break;
    }
}

static void take_input(struct reader *r)
{
    const struct gm_sched_event *event = &r->entry.event;
    if (event->kind != GM_SCHED_WANT && event->kind != GM_SCHED_IDLE &&
        event->kind != GM_SCHED_LEAVE)
        return;
    const uint32_t index = find_app(r, event->app);
    if (index == NOBODY)
        return;
    if (event->kind == GM_SCHED_LEAVE) {
        end_app(r, index);
        return;
    }
    r->to->apps[index].wants = event->kind == GM_SCHED_WANT;
    look(r, index, event->ago_ns < r->entry.now ? r->entry.now - event->ago_ns : 0);
}

static void take(struct reader *r)
{
    if (r->entry.kind == GM_TRACE_CONFIG)
        return;
    if (!r->has_begun)
        r->to->begin = r->entry.now;
    r->has_begun = true;
    r->to->end = r->entry.now;
    const bool is_view = r->entry.kind == GM_TRACE_VIEW;
    if (r->to->n_gpus == 0 && !(is_view && (r->entry.view.row == GM_TRACE_ROW_BEGIN ||
                                            r->entry.view.row == GM_TRACE_ROW_GPU)))
        set_gpu(r, &(struct gm_trace_view){0}); /* it does not say which */
    if (is_view)
        take_view(r);
    else if (r->entry.kind == GM_TRACE_EVENT)
        take_input(r);
}

static bool read_lines(struct reader *r, FILE *file, const char *path)
{
    char *line = NULL, why[200];
    size_t size = 0;
    uint64_t number = 0;
    ssize_t n;
    bool is_good = true;
    while (is_good && (errno = 0, n = getline(&line, &size, file)) >= 0) {
        number++;
        if (line[n - 1] != '\n' && number > 1)
            break; /* it is being written, or who wrote it was killed */
        if (strlen(line) != (size_t)n)
            snprintf(why, sizeof why, "a zero byte in the line");
        is_good =
            strlen(line) == (size_t)n && gm_trace_parse(line, &r->entry, why, sizeof why) == 0;
        if (is_good)
            take(r);
        else
            mux_complain("%s:%" PRIu64 ": %s", path, number, why);
        if (is_good && r->is_short) {
            mux_complain("%s: out of memory", path);
            is_good = false;
        }
    }
    if (is_good && ferror(file)) {
        mux_complain("%s: %s", path, strerror(errno));
        is_good = false;
    }
    if (is_good && !r->has_begun) {
        mux_complain("%s: nothing is recorded there", path);
        is_good = false;
    }
    free(line);
    return is_good;
}

bool mux_read_tracks(const char *path, struct mux_tracks *tracks)
{
    struct reader r = {.to = tracks};
    memset(tracks, 0, sizeof *tracks);
    FILE *file = fopen(path, "re");
    if (!file) {
        mux_complain("%s: %s", path, strerror(errno));
        return false;
    }
    const bool is_good = read_lines(&r, file, path);
    fclose(file);
    for (uint32_t i = 0; is_good && i < tracks->n_apps; i++) {
        if (tracks->apps[i].is_live)
            end_app(&r, i);
    }
    if (r.is_short && is_good)
        mux_complain("%s: out of memory", path);
    return is_good && !r.is_short;
}

void mux_free_tracks(struct mux_tracks *tracks)
{
    free(tracks->gpus);
    free(tracks->apps);
    free(tracks->spans);
    free(tracks->copies);
    free(tracks->switches);
    free(tracks->events);
    free(tracks->parks);
    free(tracks->tiers);
}
