/* clang-format off */
/*
 * mux-ctl: what its files share.
 *
 *   main.c           reads the command line, and calls one of:
 *   status.c, log.c  show what the daemon says, as JSON or by table.c and lines.c
 *   unshared.c       adds to the status what uses a GPU without gpumux
 *   top.c            shows it live: samples.c keeps it, screen.c draws it and takes keys
 *   ps.c             lists programs, as status does: apps.c
 *   set.c            changes settings of programs; evict.c: and waits until they left the GPU
 *   prefetch.c       has programs' memory brought to the GPU, and waits until it is there
 *   doctor.c         what this machine can do, and what is wrong: driver.c asks the driver
 *   exporter.c       mux-ctl metrics: metrics.c writes the status for Prometheus, this serves it
 *   trim.c           gives cached memory back
 *   forget.c         has what earlier runs needed forgotten
 *   run.c            starts programs with the shim; program.c: whether they can load it
 *   profile.c        starts programs with the profiler, learns what it recorded, shows profiles;
 *                    profiles.c: as tables
 *   cdi.c            writes what containers need
 *   completion.c     writes completions of shells
 *   find.c           called by run.c and profile.c: finds our libraries
 *   select.c         called by set.c and forget.c: whose programs are meant
 *   replace.c        called by profile.c and trace.c: writes a file whole, or not at all
 *   columns.c        called by those that show something: cuts and wraps text
 *   ask.c            called by all of those: asks the daemon
 *   say.c            called by all files: writes to standard error
 *
 * Every failure is one line on standard error, beginning with "mux-ctl: ".
 */
/* clang-format on */
#ifndef GM_DAEMON_CTL_CTL_H
#define GM_DAEMON_CTL_CTL_H

#include <argp.h>
#include <cjson/cJSON.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/appname.h"
#include "common/profile.h"
#include "common/settings.h"
#include "common/size.h"
#include "common/wire.h"
#include "daemon/profile/learn.h"

enum mux_exit {
    MUX_OK = 0,
    MUX_FAILED = 1,     /* wrong use, or an error */
    MUX_DOWN = 3,       /* no daemon runs */
    MUX_UNSHARED = 125, /* run --require: the daemon cannot serve the program */
    MUX_CANNOT_EXECUTE = 126,
    MUX_NOT_FOUND = 127,
};

#define MUX_COUNT_UNSAID UINT32_MAX

struct mux_options {
    const char *name;   /* of the command */
    char **words;       /* what follows it and is no option, up to NULL */
    const char *socket; /* NULL: where gm_sock_path says */
    bool is_json;
    bool is_long, is_quiet;     /* status, ps: all columns and whole lines; ps: pids only */
    unsigned sort;              /* status, ps: mux_sort_index */
    uint64_t watch_ns;          /* status; 0: once; top; 0: 1 s */
    uint16_t port;              /* metrics: serve there; 0: do not */
    const char *unix_path;      /* ... on this Unix socket; NULL: do not */
    bool is_once;               /* top: without a terminal */
    bool is_idle;               /* evict: until their next call */
    bool is_following;          /* log */
    bool is_verbose;            /* log: entries with their details */
    uint32_t count;             /* log: entries, or MUX_COUNT_UNSAID */
    const char *command, *user; /* set, pause, resume, forget, ps: whose; NULL: not said */
    const char *class, *weight; /* run: as settings; NULL: not said */
    const char *cap;            /* ... likewise */
    const char *group;          /* run: of the program; NULL: none */
    const char *need;           /* run: what it will need on the GPU; NULL: not said */
    bool is_required;           /* run: only if the daemon can serve the program */
    bool is_shown, is_learned;  /* profile: show profiles; learn records */
    bool is_installed;          /* cdi: put the document into its place */
    bool is_removed;            /* ... take it away */
    const char *output;         /* profile, trace: the file; NULL: not said */
    const char *kept;           /* profile: the folder of records that stays */
    uint32_t seconds;           /* trace: recorded; 0: not said */
};

/* One line on standard error. */
void mux_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flush standard output. MUX_FAILED, after one line, if `what` cannot be written. */
int mux_written(const char *what);

/* A file that is written in the place of another: as it is, that stays until all is written. */
struct mux_file {
    const char *path;
    FILE *file;
    char new[PATH_MAX + 16];
};
/* Open it, with exactly this mode. NULL, with errno: it cannot be written; EEXIST: what is there is
 * no ordinary file, or is a link. */
FILE *mux_begin_file(struct mux_file *file, const char *path, mode_t mode);
/* Close it, and put it into its place if is_good. False, with errno if is_good: it is not whole, and
 * what was there before stays. */
bool mux_end_file(struct mux_file *file, bool is_good);
/* Why a file is not written, by errno. */
const char *mux_file_error(int error);

struct mux_question {
    enum gm_msg_type question, answer;
    const void *body; /* of the question */
    bool is_document; /* the answer is a memfd, whose text goes to `text`; the caller frees it */
    char *text;
    void *result; /* if not, the body of the answer goes here */
    size_t result_size;
    char why[1536]; /* why there is no answer */
    bool is_away;   /* ... there is no daemon, or it ended before it answered */
};

/* Ask the daemon at `socket`; NULL: at the first place of gm_sock_path that answers. Not MUX_OK:
 * the reason is in `why`. */
int mux_try(const char *socket, struct mux_question *ask);

/* The same, with the reason on standard error. */
int mux_ask(const char *socket, struct mux_question *ask);

/* Of a daemon that has answered before, and is asked again and again: whether to wait until there
 * is one again. Says so when it goes and when it is back; `is_told` is this function's. */
bool mux_is_awaited(const struct mux_question *ask, int code, bool *is_told);

/* How a verb begins: ask, and take the answer, an object of the message's size. Returns MUX_OK, or
 * the exit code after one line. */
int mux_exchange(const struct mux_options *options, enum gm_msg_type question, const void *body,
                 enum gm_msg_type answer, void *result, size_t result_size);
/* The same with an answer that can be a refusal, which begins as struct gm_msg_set_is does. */
int mux_demand(const struct mux_options *options, enum gm_msg_type question, const void *body,
               enum gm_msg_type answer, void *result, size_t result_size);
/* The status document, which the caller deletes. */
int mux_get_status(const struct mux_options *options, cJSON **status);
/* The same without a word of what goes wrong: that is in *ask. */
int mux_try_status(const struct mux_options *options, struct mux_question *ask, cJSON **status);
/* Print JSON as one line, and delete it. */
int mux_print_json(cJSON *json, const char *what);

/* Whose programs are meant, as the wire has it. */
struct mux_selection {
    uint32_t selects; /* enum gm_set_select */
    int32_t pid;
    uint32_t uid;
    char command[64];
};
/* Add --command and --user. False, after one line: there is no such user, or it is no name. */
bool mux_select(const struct mux_options *options, struct mux_selection *selection);
/* Add a word that is to be a pid; `other` says what else it could have been. */
bool mux_select_pid(const struct mux_options *options, const char *word, const char *other,
                    struct mux_selection *selection);

/* Whether it is meant by what SET says, itself or as one of its group: `apps` are the status's.
 * Others' programs are root's to set. */
bool mux_is_meant(const cJSON *apps, const cJSON *app, const struct gm_msg_set *whose);

/* set.c: what the command line of a command such as `set` says: whose settings, and which. `fixed`
 * is the setting of a command that takes none; NULL. False, after one line: that makes no sense. */
bool mux_read_set(const struct mux_options *options, const char *fixed, struct gm_msg_set *set);

/* Settings as the wire has them, of nobody yet. */
struct gm_msg_set mux_set_of(const struct gm_settings *said);

/* What commands.def says of a command; the last one has no name. */
struct mux_command {
    const char *name;
    int (*run)(const struct mux_options *options);
    bool has_words;
    const char *words, *does, *more, *examples;
};
extern const struct mux_command mux_commands[];
/* Its n-th option; NULL: it has no more. */
const struct argp_option *mux_option(size_t command, size_t n);

/* The commands. Each returns an enum mux_exit. mux_run returns
 * only if the program was not started. */
int mux_status(const struct mux_options *options);
int mux_ps(const struct mux_options *options);
int mux_cdi(const struct mux_options *options);
int mux_completion(const struct mux_options *options);
int mux_help(const struct mux_options *options);
int mux_version(const struct mux_options *options);
int mux_log(const struct mux_options *options);
int mux_set(const struct mux_options *options);
int mux_pause(const struct mux_options *options);
int mux_resume(const struct mux_options *options);
int mux_evict(const struct mux_options *options);
int mux_prefetch(const struct mux_options *options);
int mux_metrics(const struct mux_options *options);
int mux_trace(const struct mux_options *options);
int mux_top(const struct mux_options *options);
int mux_doctor(const struct mux_options *options);
int mux_trim(const struct mux_options *options);
int mux_forget(const struct mux_options *options);
int mux_config(const struct mux_options *options);
int mux_run(const struct mux_options *options);
int mux_profile(const struct mux_options *options);

/* cdi.c: where runtimes read the document. Whether what is there is ours, and not what would be
 * written now. `why` is not "": what would be cannot be said. */
#define MUX_CDI_FILE "/etc/cdi/gpumux.json"
bool mux_cdi_is_stale(char *why, size_t size);

/* The path of our library: what the variable names; `built`, relative to this executable in a build
 * folder; the same in an installation, which may have been moved; or the configured folder. False,
 * after one line: it is nowhere. `path` has PATH_MAX bytes. */
bool mux_find(const char *library, const char *built, const char *variable, char *path);
/* The same with the line in `why`. */
bool mux_seek(const char *library, const char *built, const char *variable, char *path, char *why,
              size_t size);

/* The name under which the daemon will know the program. */
void mux_name(char **argv, char name[GM_APPNAME_SIZE]);

/* Say why the program was not executed. Returns the exit code. */
int mux_not_executed(const char *program, int error);

/* Print a profile as a table. */
void mux_show_profile(const char *path, const struct gm_profile *profile);

/* Print how the launches of the records are predicted, and by what. */
void mux_show_lessons(const struct gm_records *records, const struct gm_profile *profile,
                      const struct gm_lesson *lessons);

#define MUX_SHIM "libgpumux.so"

/* What can be told of a program before it is started. */
struct mux_program {
    char name[64]; /* of the file that is executed in the end */
    char why[256]; /* it will not be shared: "is a static program"; "": nothing speaks against it */
    bool is_harmed;  /* with the library in LD_PRELOAD it ends, or its linker writes an error */
    bool is_unknown; /* nobody can tell, and `why` says why not */
};

/* Write the trace `from`, which lies at `path`, as JSON trace events. False, after one line: it is
 * none. What of it cannot be written, `to` knows. */
bool mux_export(FILE *from, const char *path, FILE *to);

/* Look at the program of a command line. */
void mux_look(char **argv, struct mux_program *program);

/* unshared.c: add to each GPU of a status what uses it without gpumux: "unshared", null if nobody
 * knows. False, after one line: out of memory. */
bool mux_add_unshared(cJSON *status);

/* Print the status document as a table. */
void mux_table(const cJSON *status, const struct mux_options *options);

/* The programs of a status that --user and --command mean, in the order of --sort. The caller frees
 * `app`, which points into the status. */
struct mux_apps {
    const cJSON **app;
    size_t n;
    bool has_several_gpus;
};
bool mux_sort_apps(const cJSON *status, const struct mux_options *options, struct mux_apps *apps);
/* Print them as a table. */
void mux_show_apps(const cJSON *status, const struct mux_options *options);

/* What the programs of a user have together. */
struct mux_user {
    const char *name; /* of the status */
    unsigned programs;
    double resident, occupied, total; /* bytes */
    double run_s, wait_s;
};
/* The caller frees `users`, even after false: out of memory. */
bool mux_sum_users(const struct mux_apps *apps, struct mux_user **users, size_t *n_users);

#define MUX_SORT_LIST "state, memory, run, wait, user, name or pid"
/* The number of an order of programs; false: there is none of this name. And its name; NULL. */
bool mux_sort_index(const char *name, unsigned *index);
const char *mux_sort_name(unsigned index);

/* columns.c: characters of a text; of a line of the terminal, very many where there is none; cut
 * `text` to `most` characters; print `text` behind `indent` blanks, and `more` of them on further
 * lines, broken at blanks if possible. */
int mux_width(const char *text);
int mux_columns(void);
void mux_cut(char *text, int most);
void mux_wrap(const char *text, int indent, int more);

#define MUX_CELL 256
/* "12.3s", "4m05s", "3h20m", "2d04h". Returns `text`. */
char *mux_seconds(double seconds, char text[MUX_CELL]);

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

/* lines.c: "drain 1.2, copies 3.4": where the time of a switch went, in ms. Its parts are its whole
 * time; those that would be shown as 0.0 are left out. */
char *mux_parts(const cJSON *entry, char *text, size_t text_size);

static inline const char *mux_bytes(double bytes, char text[32])
{
    return gm_format_size(bytes > 0 && bytes < 9e18 ? (uint64_t)bytes : 0, text, 32);
}

/* A member as a size: "1.5 GiB". Returns `text`. */
static inline const char *mux_size(const cJSON *object, const char *key, char text[32])
{
    return mux_bytes(mux_number(object, key), text);
}

/* The GPU memory that a program occupies: also what is on its way away or there. */
static inline double mux_occupied(const cJSON *app)
{
    const double device = mux_number(app, "device_bytes"), here = mux_number(app, "resident_bytes");
    return device > here ? device : here;
}

/* The rate in GB/s; 0 if `ms` is 0. */
static inline double mux_rate(double bytes, double ms)
{
    return ms > 0 ? bytes / ms / 1e6 : 0.0;
}

/* One entry of the log as text, without a newline. Returns `text`. */
char *mux_line(const cJSON *entry, char *text, size_t size);
/* What that leaves out, a line each, without the last newline: each part of a switch, and who left
 * and why; "": nothing. Returns `text`. */
char *mux_details(const cJSON *entry, char *text, size_t size);
/* The same for a refusal in the status. */
char *mux_refusal(const cJSON *entry, char *text, size_t text_size);

#endif
