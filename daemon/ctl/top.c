/*
 * mux-ctl top: a live view of GPUs and programs. Calls ask.c, samples.c, apps.c and, where the
 * build has ncurses, screen.c. With --once it needs no terminal.
 */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/ctl/samples.h"
#include "daemon/ctl/screen.h"

#define ONCE_NS (500 * GM_MS) /* between the two samples of --once */

static int take(const struct mux_options *options, struct mux_samples *samples)
{
    cJSON *status;
    const int code = mux_get_status(options, &status);
    if (code)
        return code;
    if (mux_take_sample(samples, status))
        return MUX_OK;
    mux_complain("out of memory");
    return MUX_FAILED;
}

static int once(const struct mux_options *options)
{
    const struct timespec pause = {.tv_nsec = (long)ONCE_NS};
    struct mux_samples samples = {0};
    int code = take(options, &samples);
    if (code == MUX_OK && options->is_json) {
        nanosleep(&pause, NULL);
        code = take(options, &samples);
    }
    if (code == MUX_OK && options->is_json) {
        code = mux_print_json(mux_samples_json(&samples, options), "the view");
    } else if (code == MUX_OK) {
        mux_table(samples.status, options);
        code = mux_written("the view");
    }
    mux_free_samples(&samples);
    return code;
}

int mux_top(const struct mux_options *options)
{
    if (options->is_once)
        return once(options);
    if (options->is_json) {
        mux_complain("top: --json needs --once");
        return MUX_FAILED;
    }
#ifdef GM_HAS_CURSES
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        mux_complain("top: there is no terminal: say --once, or mux-ctl status --watch=2s");
        return MUX_FAILED;
    }
    struct mux_samples samples = {0};
    int code = take(options, &samples); /* a daemon that is down is told before the screen is */
    if (code == MUX_OK)
        code = mux_screen(options, &samples);
    mux_free_samples(&samples);
    return code;
#else
    mux_complain("top: this mux-ctl was built without ncurses (libncurses-dev): say --once, or "
                 "mux-ctl status --watch=2s");
    return MUX_FAILED;
#endif
}
