/*
 * Reads the options again while the daemon runs: the same command line, the configuration file and
 * its rules. SIGHUP asks for that, and mux-ctl config. A mistake, also one that only the next start
 * would meet (trial.h), changes nothing. What may change
 * (LIVE in options.def) changes at once; what else is different is named, and needs a restart.
 *
 * A worker reads, as the file or the names of users may be on a network; the loop then changes.
 * Owns struct gm_reload. main makes it. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_RELOAD_H
#define GM_DAEMON_SERVICE_RELOAD_H

#include <stdbool.h>
#include <uv.h>

#include "daemon/engine/machine.h"
#include "daemon/service/options_load.h"

/* Reading `number` has ended, and what may change has changed. `outcome`: one line, lent; with
 * `is_refused` it is the mistake. */
typedef void gm_reload_done(void *arg, uint64_t number, bool is_refused, const char *outcome);

/* Whether the next start would take these options: gm_trial. On a worker. */
typedef int gm_reload_trial(const struct gm_options *options, char warnings[GM_OPTIONS_WARNINGS],
                            char *why, size_t size);

struct gm_reload {
    uv_work_t work;
    uv_async_t answered; /* more is known of users: users.h */
    uv_loop_t *loop;
    struct gm_options *options; /* those that hold */
    struct gm_machine *machine; /* NULL: it ends */
    gm_reload_trial *trial;
    int argc;
    char **argv;
    gm_reload_done *done; /* NULL: nobody waits */
    void *arg;
    bool is_running;         /* the worker is at it */
    bool is_wanted;          /* ... and the file may have changed since: read it again then */
    bool is_check;           /* ... to say what would change; nothing changes */
    uint64_t read;           /* how often it has been read */
    struct gm_options fresh; /* the worker's */
    char warnings[GM_OPTIONS_WARNINGS];
    int error;                /* ... what came of it */
    char why[PATH_MAX + 512]; /* ... and the mistake */
    char outcome[1024];       /* one line: that, or what has changed */
};

/* Rules hold for what becomes known of users from now on. `options`, which were parsed from these
 * words, `machine` and the words outlive it. */
void gm_reload_init(struct gm_reload *reload, uv_loop_t *loop, struct gm_options *options,
                    struct gm_machine *machine, gm_reload_trial *trial, int argc, char **argv);

/* SIGHUP: read them again. What came of it is one line of the log, and one for each option that
 * needs a restart. */
void gm_reload_begin(struct gm_reload *reload);

/* Somebody else asks for it, or what it would do. Returns the number of the reading, which its
 * listener is told with the outcome. 0: not now. */
uint64_t gm_reload_ask(struct gm_reload *reload, bool is_check);

/* Tell `done` of each reading that ends, until gm_reload_stop. */
void gm_reload_listen(struct gm_reload *reload, gm_reload_done *done, void *arg);

/* The machine ends: what the worker still reads changes nothing. Run the loop afterwards. */
void gm_reload_stop(struct gm_reload *reload);

/* Of what has been read only what was said of the engine. */
struct gm_engine_tuning gm_reload_tuning(const struct gm_options *options);

#endif
