/* Reading options again: see reload.h. */
#include "daemon/service/reload.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/text.h"
#include "daemon/service/options_load.h"
#include "daemon/service/users.h"

/* From the thread that asks. */
static void on_answer(void *arg)
{
    uv_async_send(&((struct gm_reload *)arg)->answered);
}

static void on_answered(uv_async_t *answered)
{
    struct gm_reload *reload = answered->data;
    if (!reload->machine || reload->machine->is_stopping)
        return;
    const struct gm_engine_tuning tuning = gm_reload_tuning(reload->options);
    gm_machine_tune(reload->machine, &tuning);
}

void gm_reload_init(struct gm_reload *reload, uv_loop_t *loop, struct gm_options *options,
                    struct gm_machine *machine, gm_reload_trial *trial, int argc, char **argv)
{
    *reload = (struct gm_reload){.loop = loop,
                                 .options = options,
                                 .machine = machine,
                                 .trial = trial,
                                 .argc = argc,
                                 .argv = argv};
    reload->work.data = reload;
    uv_async_init(loop, &reload->answered, on_answered);
    reload->answered.data = reload;
    gm_users_listen(on_answer, reload);
}

struct gm_engine_tuning gm_reload_tuning(const struct gm_options *options)
{
    return (struct gm_engine_tuning){.best_class = options->best_class, .idle_ns = options->idle};
}

/* The names of options, with commas between them. */
static void add_name(char names[512], const char *name)
{
    gm_text_add(names, 512, "%s%s", *names ? ", " : "", name);
}

/* What is different: what may change now, and what needs a restart. */
static void compare(const struct gm_options *options, const struct gm_options *fresh,
                    char live[512], char restart[512])
{
    live[0] = restart[0] = '\0';
    for (enum gm_option i = 0; i < GM_OPTIONS; i++) {
        const struct gm_option_row *row = &gm_option_rows[i];
        if (row->place != GM_PLACE_LINE && !gm_option_is_same(row, options, fresh))
            add_name(row->when == GM_WHEN_LIVE ? live : restart, row->name);
    }
}

/* Take what may change, and log what cannot. */
static void take(struct gm_options *options, const struct gm_options *fresh)
{
    char place[PATH_MAX + 32];
    for (enum gm_option i = 0; i < GM_OPTIONS; i++) {
        const struct gm_option_row *row = &gm_option_rows[i];
        if (row->place == GM_PLACE_LINE)
            continue;
        if (row->when == GM_WHEN_LIVE) {
            memcpy((char *)options + row->offset, (const char *)fresh + row->offset, row->size);
        } else if (!gm_option_is_same(row, options, fresh)) {
            gm_log(GM_LOG_WARN, "%s%s has changed, which needs a restart",
                   gm_options_place(fresh, i, place), row->name);
            continue;
        }
        options->given[i] = fresh->given[i]; /* lines move */
    }
    memcpy(options->config, fresh->config, sizeof options->config);
}

static void read_again(uv_work_t *work)
{
    struct gm_reload *reload = work->data;
    reload->error = gm_options_parse(&reload->fresh, reload->argc, reload->argv, reload->why,
                                     sizeof reload->why);
    if (reload->error == 0) /* only on_read changes reload->options */
        reload->error =
            gm_options_find_lost(reload->options, &reload->fresh, reload->why, sizeof reload->why);
    if (reload->error == 0) /* the next start would end with it */
        reload->error =
            reload->trial(&reload->fresh, reload->warnings, reload->why, sizeof reload->why);
}

/* "changed: rule, idle; need a restart: slice; gone: quantum (line 7)" */
static void say_outcome(struct gm_reload *reload)
{
    char live[512], restart[512];
    compare(reload->options, &reload->fresh, live, restart);
    const bool is_none = !live[0] && !restart[0];
    const char *verb = reload->is_check ? "would change: " : "changed: ";
    snprintf(reload->outcome, sizeof reload->outcome, "%s%s%s%s%s",
             is_none   ? "nothing has changed"
             : live[0] ? verb
                       : "",
             live, live[0] && restart[0] ? "; " : "", restart[0] ? "need a restart: " : "",
             restart);
    const char *before = "; gone: ";
    for (size_t i = 0; i < GM_GONES; i++) {
        if (!reload->fresh.gone_line[i])
            continue;
        gm_text_add(reload->outcome, sizeof reload->outcome, "%s%s (line %u)", before,
                    gm_gone_rows[i].name, reload->fresh.gone_line[i]);
        before = ", ";
    }
}

/* There is no mistake: what may change does. */
static void change(struct gm_reload *reload)
{
    const struct gm_options *options = reload->options;
    gm_options_warn(&reload->fresh, reload->warnings);
    take(reload->options, &reload->fresh);
    gm_log_from(options->log_level);
    gm_users_ask_again(); /* they may belong to other groups by now: on_answered */
    const struct gm_engine_tuning tuning = gm_reload_tuning(options);
    gm_machine_tune(reload->machine, &tuning);
    gm_log(GM_LOG_INFO, "reload: read %s again: %s",
           options->config[0] ? options->config : "the command line", reload->outcome);
}

static void on_read(uv_work_t *work, int status)
{
    struct gm_reload *reload = work->data;
    reload->is_running = false;
    if (status || !reload->machine || reload->machine->is_stopping)
        return;
    reload->read++;
    if (reload->error)
        snprintf(reload->outcome, sizeof reload->outcome, "%.1000s", reload->why);
    else
        say_outcome(reload);
    if (!reload->is_check && reload->error)
        gm_log(GM_LOG_ERROR, "reload: nothing was changed: %s", reload->why);
    else if (!reload->is_check)
        change(reload);
    if (reload->done) /* before the next one: it has its own outcome */
        reload->done(reload->arg, reload->read, reload->error != 0, reload->outcome);
    if (reload->is_wanted)
        gm_reload_begin(reload);
}

void gm_reload_listen(struct gm_reload *reload, gm_reload_done *done, void *arg)
{
    reload->done = done;
    reload->arg = arg;
}

void gm_reload_stop(struct gm_reload *reload)
{
    reload->machine = NULL;
    gm_users_listen(NULL, NULL);
    uv_close((uv_handle_t *)&reload->answered, NULL);
    if (reload->is_running)
        uv_cancel((uv_req_t *)&reload->work);
}

uint64_t gm_reload_ask(struct gm_reload *reload, bool is_check)
{
    if (reload->is_running || !reload->machine)
        return 0;
    reload->is_check = is_check;
    reload->is_running = uv_queue_work(reload->loop, &reload->work, read_again, on_read) == 0;
    return reload->is_running ? reload->read + 1 : 0;
}

void gm_reload_begin(struct gm_reload *reload)
{
    reload->is_wanted = reload->is_running;
    if (!reload->is_running && gm_reload_ask(reload, false) == 0)
        gm_log(GM_LOG_ERROR, "reload: nothing was changed: out of memory");
}
