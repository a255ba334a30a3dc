/*
 * mux-ctl log: the decisions that the daemon has kept, and with --follow those to come. Entries are
 * numbered, so lost ones are noticed. Calls ask.c, lines.c and say.c.
 */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

#define LOOK_NS (250 * GM_MS) /* between two questions */
#define FOLLOWED 10u          /* entries that --follow shows first */

static void print_entry(const cJSON *entry, const struct mux_options *options)
{
    char line[2048], details[8192];
    if (!options->is_json) {
        puts(mux_line(entry, line, sizeof line));
        if (options->is_verbose && *mux_details(entry, details, sizeof details))
            puts(details);
        return;
    }
    char *printed = cJSON_PrintUnformatted(entry);
    if (printed)
        puts(printed);
    cJSON_free(printed);
}

static void print_gap(uint64_t lost, double kept, bool is_json)
{
    if (is_json)
        printf("{\"kind\":\"gap\",\"lost\":%llu}\n", (unsigned long long)lost);
    else
        printf("... %llu entr%s lost: the daemon keeps the last %.0f\n", (unsigned long long)lost,
               lost == 1 ? "y was" : "ies were", kept);
}

/* The daemon that is followed, and the last entry that was printed. */
struct place {
    uint64_t seq;
    double pid, started;
    bool is_known, is_told; /* ... that it has ended */
};

/* The daemon before has ended, and with it its numbers: entries count anew. */
static void print_restart(double pid, bool is_json)
{
    if (is_json)
        printf("{\"kind\":\"restart\",\"pid\":%.0f}\n", pid);
    else
        printf("... gpumuxd was restarted (pid %.0f)\n", pid);
}

/* It says so itself, in an entry that is to be printed. */
static bool tells_restart(const cJSON *log)
{
    const cJSON *entries = cJSON_GetObjectItemCaseSensitive(log, "entries"), *entry;
    cJSON_ArrayForEach(entry, entries)
    {
        if (strcmp(mux_word(entry, "kind"), "restart") == 0)
            return true;
    }
    return false;
}

/* Print the last `count` entries of an answer. */
static void print_entries(const cJSON *log, uint32_t count, const struct mux_options *options,
                          struct place *place)
{
    const cJSON *entries = cJSON_GetObjectItemCaseSensitive(log, "entries"), *entry;
    int left = cJSON_GetArraySize(entries);
    cJSON_ArrayForEach(entry, entries)
    {
        uint64_t seq = (uint64_t)mux_number(entry, "seq");
        if ((uint32_t)left-- > count) {
            place->seq = seq; /* older than the last `count` */
            continue;
        }
        if (place->seq > 0 && seq > place->seq + 1)
            print_gap(seq - place->seq - 1, mux_number(log, "kept"), options->is_json);
        place->seq = seq;
        print_entry(entry, options);
    }
}

/* Once: MUX_OK also if the daemon that was followed is away. */
static int look(const struct mux_options *options, uint32_t count, struct place *place)
{
    const struct gm_msg_log body = {.since = place->seq};
    struct mux_question ask = {
        .question = GM_MSG_LOG, .body = &body, .answer = GM_MSG_LOG_IS, .is_document = true};
    const int code = mux_try(options->socket, &ask);
    if (place->is_known && mux_is_awaited(&ask, code, &place->is_told))
        return MUX_OK;
    if (code) {
        mux_complain("%s", ask.why);
        return code;
    }
    cJSON *log = cJSON_Parse(ask.text);
    free(ask.text);
    if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(log, "schema"))) {
        cJSON_Delete(log);
        mux_complain("gpumuxd's log is not a log document");
        return MUX_FAILED;
    }
    bool is_other = place->is_known && (mux_number(log, "pid") != place->pid ||
                                        mux_number(log, "started_s") != place->started);
    place->is_known = true;
    place->pid = mux_number(log, "pid");
    place->started = mux_number(log, "started_s");
    if (is_other) { /* it was asked for what follows an entry of the one before */
        place->seq = 0;
        if (!tells_restart(log))
            print_restart(place->pid, options->is_json);
    } else {
        print_entries(log, count, options, place);
    }
    cJSON_Delete(log);
    return mux_written("the log") ? MUX_FAILED : MUX_OK;
}

static void on_interrupt(int signal)
{
    (void)signal;
    _exit(MUX_OK); /* all output was flushed */
}

int mux_log(const struct mux_options *options)
{
    const struct timespec pause = {.tv_nsec = (long)LOOK_NS};
    struct sigaction quiet = {.sa_handler = on_interrupt};
    struct place place = {0};
    sigset_t interrupts, before;
    uint32_t count = options->count;

    if (count == MUX_COUNT_UNSAID && options->is_following)
        count = FOLLOWED;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    sigaddset(&interrupts, SIGTERM);
    if (options->is_following) {
        sigaction(SIGINT, &quiet, NULL);
        sigaction(SIGTERM, &quiet, NULL);
    }
    for (;;) {
        sigprocmask(SIG_BLOCK, &interrupts, &before); /* never end inside a line */
        int code = look(options, count, &place);
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (code || !options->is_following)
            return code;
        count = MUX_COUNT_UNSAID;
        nanosleep(&pause, NULL);
    }
}
