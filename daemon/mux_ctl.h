/*
 * mux-ctl: what its files share. mux_ctl.c reads the command line, mux_status.c asks the daemon,
 * mux_table.c shows the answer to people, mux_run.c starts programs under the shim.
 *
 * Every failure is one line on standard error, beginning with "mux-ctl: ".
 */
#ifndef GM_DAEMON_MUX_CTL_H
#define GM_DAEMON_MUX_CTL_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

enum mux_exit {
    MUX_OK = 0,
    MUX_FAILED = 1, /* bad usage, or it did not work */
    MUX_DOWN = 3,   /* no daemon answers */
    MUX_CANNOT_EXECUTE = 126,
    MUX_NOT_FOUND = 127,
};

struct mux_options {
    const char *socket; /* NULL: where gm_sock_path says */
    bool is_json;
    uint64_t watch_ns; /* 0: once */
};

/* One line on standard error. */
void mux_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `mux-ctl status`. Returns an enum mux_exit. */
int mux_status(const struct mux_options *options);

/* `mux-ctl run -- argv`: returns an enum mux_exit, and only if the program could not be started. */
int mux_run(const struct mux_options *options, char **argv);

/* Write the daemon's status document to standard output, for people. */
void mux_table(const cJSON *status);

#endif
