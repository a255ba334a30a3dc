/* Reading options again: see reload.h. */
#include "daemon/service/reload.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "daemon/service/options_load.h"

void gm_reload_init(struct gm_reload *reload, uv_loop_t *loop, struct gm_options *options,
                    struct gm_machine *machine, int argc, char **argv)
{
    *reload = (struct gm_reload){
        .loop = loop, .options = options, .machine = machine, .argc = argc, .argv = argv};
    reload->work.data = reload;
}

struct gm_engine_tuning gm_reload_tuning(const struct gm_options *options)
{
    return (struct gm_engine_tuning){.is_prefetching = options->prefetch == 1,
                                     .best_class = options->best_class,
                                     .idle_ns = options->idle,
                                     .grace_ns = options->grace,
                                     .drain_deadline_ns = options->drain_deadline,
                                     .best_effort_share = options->best_effort_share};
}

/* Where the option stands now: "FILE:LINE: ", or "" if it is gone from there. */
static const char *place_of(const struct gm_options *options, enum gm_option option,
                            char text[PATH_MAX + 32])
{
    text[0] = '\0';
    if (options->given[option] && options->given[option] != GM_GIVEN_ON_LINE)
        snprintf(text, PATH_MAX + 32, "%s:%u: ", options->config, options->given[option]);
    return text;
}

/* Take what may change. Returns the names of that, with commas between them. */
static char *take(struct gm_options *options, const struct gm_options *fresh, char *names,
                  size_t size)
{
    char place[PATH_MAX + 32];
    size_t at = 0;
    names[0] = '\0';
    for (enum gm_option i = 0; i < GM_OPTIONS; i++) {
        const struct gm_option_row *row = &gm_option_rows[i];
        const bool is_same = gm_option_is_same(row, options, fresh);
        if (row->place == GM_PLACE_LINE)
            continue;
        if (row->when == GM_WHEN_START && !is_same)
            gm_log(GM_LOG_WARN, "%s%s has changed, which needs a restart",
                   place_of(fresh, i, place), row->name);
        if (row->when == GM_WHEN_START)
            continue;
        memcpy((char *)options + row->offset, (const char *)fresh + row->offset, row->size);
        options->given[i] = fresh->given[i];
        if (!is_same && at < size)
            at += (size_t)snprintf(names + at, size - at, "%s%s", at > 0 ? ", " : "", row->name);
    }
    memcpy(options->config, fresh->config, sizeof options->config);
    return names;
}

static void read_again(uv_work_t *work)
{
    struct gm_reload *reload = work->data;
    reload->error = gm_options_parse(&reload->fresh, reload->argc, reload->argv, reload->why,
                                     sizeof reload->why);
}

static void on_read(uv_work_t *work, int status)
{
    struct gm_reload *reload = work->data;
    const struct gm_options *options = reload->options;
    char names[512];
    reload->is_running = false;
    if (status || !reload->machine || reload->machine->is_stopping)
        return;
    if (reload->error) {
        gm_log(GM_LOG_ERROR, "SIGHUP: nothing was changed: %s", reload->why);
    } else {
        gm_options_warn(&reload->fresh);
        take(reload->options, &reload->fresh, names, sizeof names);
        gm_log_from(options->log_level);
        const struct gm_engine_tuning tuning = gm_reload_tuning(options);
        gm_machine_tune(reload->machine, &tuning);
        gm_log(GM_LOG_INFO, "SIGHUP: read %s again: %s%s",
               options->config[0] ? options->config : "the command line",
               names[0] ? "changed: " : "nothing has changed that can change now", names);
    }
    if (reload->is_wanted)
        gm_reload_begin(reload);
}

void gm_reload_stop(struct gm_reload *reload)
{
    reload->machine = NULL;
    if (reload->is_running)
        uv_cancel((uv_req_t *)&reload->work);
}

void gm_reload_begin(struct gm_reload *reload)
{
    reload->is_wanted = reload->is_running;
    if (reload->is_running)
        return;
    reload->is_running = uv_queue_work(reload->loop, &reload->work, read_again, on_read) == 0;
    if (!reload->is_running)
        gm_log(GM_LOG_ERROR, "SIGHUP: nothing was changed: out of memory");
}
