/* clang-format off */
/*
 * mux-ctl: what its files share.
 *
 *   main.c           reads the command line, and calls one of:
 *   status.c, log.c  show what the daemon says, as JSON or by table.c and lines.c
 *   set.c            changes what is said of programs
 *   trim.c           has memory given back
 *   run.c            starts programs under the shim
 *   ask.c            below all of those: asks the daemon
 *   say.c            at the bottom: what goes to standard error
 *
 * Every failure is one line on standard error, beginning with "mux-ctl: ".
 */
/* clang-format on */
#ifndef GM_DAEMON_CTL_CTL_H
#define GM_DAEMON_CTL_CTL_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire.h"

enum mux_exit {
    MUX_OK = 0,
    MUX_FAILED = 1,     /* bad usage, or it did not work */
    MUX_DOWN = 3,       /* no daemon answers */
    MUX_UNSHARED = 125, /* run --require: the program would not be served, and was not started */
    MUX_CANNOT_EXECUTE = 126,
    MUX_NOT_FOUND = 127,
};

#define MUX_COUNT_UNSAID UINT32_MAX

struct mux_options {
    const char *name;   /* of the command */
    char **words;       /* what follows it and is no option, up to NULL */
    const char *socket; /* NULL: where gm_sock_path says */
    bool is_json;
    uint64_t watch_ns;          /* status; 0: once */
    bool is_following;          /* log */
    uint32_t count;             /* log: entries, or MUX_COUNT_UNSAID */
    const char *command, *user; /* set, pause, resume: whose; NULL: not said */
    bool is_required;           /* run: only if the daemon can serve the program */
};

/* One line on standard error. */
void mux_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* MUX_OK: what was printed has arrived. MUX_FAILED, after one line that says what could not be
 * written. */
int mux_written(const char *what);

/* One question and what came back. */
struct mux_question {
    enum gm_msg_type question, answer;
    const void *body; /* of the question */
    bool is_document; /* the answer is a memfd: into `text`, the caller's to free */
    char *text;
    void *result; /* else its body goes here */
    size_t result_size;
    char why[1536]; /* there is no answer */
};

/* Ask the daemon at `socket`, NULL: where there is one. MUX_OK; or another with the reason in
 * `why`. */
int mux_try(const char *socket, struct mux_question *ask);

/* The same, but the reason is one line on standard error. */
int mux_ask(const char *socket, struct mux_question *ask);

/* The commands. Each returns an enum mux_exit. mux_set: also `pause` and `resume`. mux_run returns
 * only if the program was not started. */
int mux_status(const struct mux_options *options);
int mux_log(const struct mux_options *options);
int mux_set(const struct mux_options *options);
int mux_trim(const struct mux_options *options);
int mux_run(const struct mux_options *options);

/* Write the daemon's status document to standard output, for people. */
void mux_table(const cJSON *status);

/* A member as a number; 0 if there is none. */
static inline double mux_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* A member's text; "-" if there is none. */
static inline const char *mux_word(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) && item->valuestring[0] ? item->valuestring : "-";
}

/* GB/s, of bytes that were copied in so many milliseconds; 0 if there were none. */
static inline double mux_rate(double bytes, double ms)
{
    return ms > 0 ? bytes / ms / 1e6 : 0.0;
}

/* One entry of the log as one line, without its end, for people. Returns `text`. */
char *mux_line(const cJSON *entry, char *text, size_t size);
/* The same for a refusal in the status: who was refused what, and why. */
char *mux_refusal(const cJSON *entry, char *text, size_t text_size);

#endif
