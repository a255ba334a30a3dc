/*
 * mux-ctl log: what the scheduler decided, as far back as the daemon keeps it, and with --follow
 * what it decides from now on. Entries are numbered; what is missing between two is said.
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
#define FOLLOWED 10u          /* entries that --follow begins with */

static void print_entry(const cJSON *entry, bool is_json)
{
    char line[2048];
    if (!is_json) {
        puts(mux_line(entry, line, sizeof line));
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

/* What is followed: the daemon that the first answer came from, and the last entry seen. */
struct place {
    uint64_t seq;
    double pid, started;
    bool is_known;
};

/* Print an answer's entries, the last `count` of them, and move on behind them. */
static void print_entries(const cJSON *log, uint32_t count, bool is_json, struct place *place)
{
    const cJSON *entries = cJSON_GetObjectItemCaseSensitive(log, "entries"), *entry;
    int left = cJSON_GetArraySize(entries);
    cJSON_ArrayForEach(entry, entries)
    {
        uint64_t seq = (uint64_t)mux_number(entry, "seq");
        if ((uint32_t)left-- > count) {
            place->seq = seq; /* older than was asked for */
            continue;
        }
        if (place->seq > 0 && seq > place->seq + 1)
            print_gap(seq - place->seq - 1, mux_number(log, "kept"), is_json);
        place->seq = seq;
        print_entry(entry, is_json);
    }
}

/* Ask once and print. MUX_OK, or another after one line. */
static int look(const struct mux_options *options, uint32_t count, struct place *place)
{
    const struct gm_msg_log body = {.since = place->seq};
    struct mux_question ask = {
        .question = GM_MSG_LOG, .body = &body, .answer = GM_MSG_LOG_IS, .is_document = true};
    int code = mux_ask(options->socket, &ask);
    if (code)
        return place->is_known ? MUX_DOWN : code; /* it was there a moment ago */
    cJSON *log = cJSON_Parse(ask.text);
    free(ask.text);
    if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(log, "schema"))) {
        cJSON_Delete(log);
        mux_complain("gpumuxd's log is not a log document");
        return MUX_FAILED;
    }
    bool is_other = place->is_known && (mux_number(log, "pid") != place->pid ||
                                        mux_number(log, "started_s") != place->started);
    if (is_other) {
        mux_complain("gpumuxd was started anew: what is followed here has ended");
        code = MUX_DOWN;
    } else {
        place->is_known = true;
        place->pid = mux_number(log, "pid");
        place->started = mux_number(log, "started_s");
        print_entries(log, count, options->is_json, place);
    }
    cJSON_Delete(log);
    return mux_written("the log") ? MUX_FAILED : code;
}

static void on_interrupt(int signal)
{
    (void)signal;
    _exit(MUX_OK); /* between two answers everything is written */
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
        sigprocmask(SIG_BLOCK, &interrupts, &before); /* no half line */
        int code = look(options, count, &place);
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (code || !options->is_following)
            return code;
        count = MUX_COUNT_UNSAID;
        nanosleep(&pause, NULL);
    }
}
