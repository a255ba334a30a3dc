/*
 * shim/link/place: what becomes of a program's environment, before a daemon that this test plays.
 * Each case runs in a process of its own.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/sock.h"
#include "shim/link/place.h"

#define LIST "CUDA_VISIBLE_DEVICES"
#define PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define PART "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define UUID "00000000-0000-0000-0000-000000000000"

enum answer { NO_DAEMON, SILENT, HANGS_UP, REFUSES, GARBAGE, ANSWERS };

/* What the daemon does, and what it heard. */
struct played {
    enum answer answer;
    uint32_t n;
    uint32_t tokens[8];
    uint32_t heard, flags; /* tokens, and flags */
    uint64_t family;
    char second[GM_TOKEN_SIZE];
    const char *pipe; /* of the MPS that it names */
    uint32_t part;    /* there */
};

extern char **environ;

static char where[sizeof((struct sockaddr_un){0}.sun_path)];
static int listener;

static void answer_one(struct played *d)
{
    static _Alignas(8) uint8_t buffer[GM_WIRE_MAX];
    struct gm_place_entry entries[8];
    struct gm_msg_placed placed = {.text = "because", .part = d->part};
    struct gm_msg_refused refused = {.reason = GM_REFUSE_PROTOCOL, .text = "bad message (?)"};
    struct gm_wire_message message = {0};
    snprintf(placed.pipe, sizeof placed.pipe, "%s", d->pipe ? d->pipe : "");
    int fds[GM_WIRE_FDS], n_fds, fd = accept(listener, NULL, NULL);
    if (d->answer != HANGS_UP) {
        const ssize_t length = gm_sock_receive(fd, buffer, sizeof buffer, fds, &n_fds);
        assert_true(length > 0);
        assert_int_equal(gm_wire_decode(buffer, (size_t)length, 0, GM_UP, GM_SESSION_NEW, &message),
                         GM_WIRE_OK);
        assert_int_equal(message.type, GM_MSG_PLACE);
        d->heard = message.count;
        d->flags = ((const struct gm_msg_place *)message.body)->flags;
        d->family = ((const struct gm_msg_place *)message.body)->family;
        if (message.count > 1)
            memcpy(d->second, ((const struct gm_token_entry *)message.entries)[1].text,
                   sizeof d->second);
    }
    memset(entries, 0, sizeof entries);
    for (uint32_t i = 0; i < d->n; i++) {
        entries[i].token = d->tokens[i];
        entries[i].uuid[0] = (uint8_t)(0xa0 + d->tokens[i]);
    }
    if (d->answer == REFUSES)
        gm_sock_send_message(fd, GM_MSG_REFUSED, &refused, NULL, 0, NULL, 0);
    if (d->answer == GARBAGE)
        assert_true(send(fd, entries, sizeof entries, 0) > 0);
    if (d->answer == ANSWERS)
        gm_sock_send_message(fd, GM_MSG_PLACED, &placed, entries, d->n, NULL, 0);
    if (d->answer == SILENT)
        assert_true(recv(fd, buffer, 1, 0) <= 0); /* until it gives up */
    close(fd);
}

static void listen_here(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(where, sizeof where, "/tmp/gm-order.%d.sock", (int)getpid());
    memcpy(address.sun_path, where, sizeof where);
    unlink(where);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 8), 0);
    setenv("GPUMUX_SOCKET", where, 1);
}

static const char *look(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "(none)";
}

static bool is(const char *name, const char *value)
{
    if (strcmp(look(name), value) == 0)
        return true;
    fprintf(stderr, "%s is \"%.100s\" instead of \"%.100s\"\n", name, look(name), value);
    return false;
}

/* Run gm_place in a child, with `list` and what `more` ("A=1 B=2") sets; NULL: none. In the child
 * the list is then `expected`, and `from` once it is undone. */
static void expect(struct played *d, const char *list, const char *more, const char *expected,
                   const char *from, bool is_made)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        char copy[256], *rest = copy;
        snprintf(copy, sizeof copy, "%s", more ? more : "");
        for (char *word; (word = strsep(&rest, " ")) != NULL;)
            if (*word)
                putenv(strdup(word));
        if (list)
            setenv(LIST, list, 1);
        setenv("KEPT", "yes", 1);
        if (d->answer == NO_DAEMON)
            setenv("GPUMUX_SOCKET", "/nowhere/at/all", 1);
        const uint64_t begun = gm_now();
        bool has_mps;
        const bool was_made = gm_place(&has_mps) || has_mps;
        const bool is_quick = gm_now() - begun < 1500 * GM_SLOW * GM_MS;
        const bool is_right =
            was_made == is_made && is_quick && is(LIST, expected) && is("KEPT", "yes");
        setenv("LATER", "yes", 1);
        gm_place_undo();
        _exit(is_right && is(LIST, from) && is("KEPT", "yes") && is("LATER", "yes") ? 0 : 1);
    }
    if (d->answer != NO_DAEMON)
        answer_one(d);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void orders_lists(void **state)
{
    struct played d = {.answer = ANSWERS, .n = 2, .tokens = {1, 0}};
    (void)state;
    expect(&d, "0,1", NULL, "1,0", "0,1", true);
    assert_int_equal(d.heard, 2);
    assert_int_equal(d.flags, GM_PLACE_HAS_LIST);
    assert_int_equal((uint32_t)d.family, getpid()); /* of the same name */
    expect(&d, "GPU-77,3,-1,5", NULL, "3,GPU-77,-1,5", "GPU-77,3,-1,5", true);
    assert_int_equal(d.heard, 4);
    assert_string_equal(d.second, "3");
    expect(&d, NULL, "CUDA_DEVICE_ORDER=PCI_BUS_ID",
           "GPU-a1000000" /**/ "-0000-0000-0000-"
           "000000000000,GPU-a0000000-0000-0000-0000-000000000000",
           "(none)", true);
    assert_int_equal(d.heard, 0);
    assert_int_equal(d.flags, GM_PLACE_BY_BUS);
}

/* Without an answer that makes sense everything stays, and soon. */
static void stays(void **state)
{
    const enum answer bad[] = {NO_DAEMON, SILENT, HANGS_UP, REFUSES, GARBAGE};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct played d = {.answer = bad[i], .n = 2, .tokens = {1, 0}};
        expect(&d, "0,1", NULL, "0,1", "0,1", false);
        expect(&d, NULL, NULL, "(none)", "(none)", false);
    }
    struct played d = {.answer = ANSWERS};
    expect(&d, "0,1", NULL, "0,1", "0,1", false);
    /* orders that are none */
    const uint32_t wrong[][3] = {{0, 0, 2}, {0, 1, 3}, {1, 2, UINT32_MAX}, {3, 4, 5}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        d.n = 3;
        memcpy(d.tokens, wrong[i], sizeof wrong[i]);
        expect(&d, "0,1,2", NULL, "0,1,2", "0,1,2", false);
        expect(&d, "0,1", NULL, "0,1", "0,1", false);
    }
    d = (struct played){.answer = ANSWERS, .n = 2, .tokens = {1, 0}};
    expect(&d, "", NULL, "", "", false);
}

static void what_is_said(void **state)
{
    struct played d = {.answer = ANSWERS};
    (void)state;
    expect(&d, NULL, "GPUMUX_PLACE=off", "(none)", "(none)", false);
    assert_int_equal(d.flags, GM_PLACE_SAYS_OFF);
    expect(&d, NULL, "GPUMUX_PLACE=order LOCAL_RANK=1", "(none)", "(none)", false);
    assert_int_equal(d.flags, GM_PLACE_SAYS_ORDER | GM_PLACE_IS_RANKED);
    expect(&d, NULL, "GPUMUX_PLACE=sideways SLURM_LOCALID=0", "(none)", "(none)", false);
    assert_int_equal(d.flags, GM_PLACE_IS_RANKED);
    expect(&d, NULL, "GPUMUX_GROUP=ring", "(none)", "(none)", false);
    assert_int_equal(d.flags, GM_PLACE_IS_RANKED);
    expect(&d, NULL, "GPUMUX_PLACE= LOCAL_RANK=", "(none)", "(none)", false);
    assert_int_equal(d.flags, 0);
}

static void ten_thousand_tokens(void **state)
{
    static char list[60000], swapped[60000];
    struct played d = {.answer = ANSWERS, .n = 2, .tokens = {1, 0}};
    size_t at = 0;
    (void)state;
    for (int i = 0; i < 10000; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", i > 0 ? "," : "", i);
    memcpy(swapped, list, sizeof list);
    memcpy(swapped, "1,0", 3);
    expect(&d, list, NULL, swapped, list, true);
    assert_int_equal(d.heard, GM_DEVICES_VISIBLE);
    memset(list, 'x', 50000);
    list[50000] = '\0';
    expect(&d, list, NULL, list, list, false);
    assert_int_equal(d.heard, 0);
}

/* Run gm_place in a child that has `own` as its folder of MPS, or none. The folder is `expected` in
 * between, and then `own` again. */
static void expect_pipe(struct played *d, const char *own, const char *expected)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        bool has_mps;
        if (own)
            setenv(PIPE, own, 1);
        const bool is_made = gm_place(&has_mps);
        const bool is_new = strcmp(expected, own ? own : "(none)") != 0;
        const bool is_right =
            is_made == is_new && has_mps == is_new && is(PIPE, expected) && is(LIST, "(none)");
        gm_place_undo();
        _exit(is_right && is(PIPE, own ? own : "(none)") && is(LIST, "(none)") ? 0 : 1);
    }
    answer_one(d);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void joins_mps(void **state)
{
    struct played d = {.answer = ANSWERS, .pipe = "/run/gpumux/gpumux.sock.mps/7/pipe"};
    (void)state;
    expect_pipe(&d, NULL, d.pipe);
    assert_int_equal(d.flags & GM_PLACE_HAS_MPS, 0);
    expect_pipe(&d, "", d.pipe); /* empty: none */
    assert_int_equal(d.flags & GM_PLACE_HAS_MPS, 0);
    d.pipe = NULL;
    expect_pipe(&d, "/tmp/own", "/tmp/own");
    assert_int_equal(d.flags & GM_PLACE_HAS_MPS, GM_PLACE_HAS_MPS);
    d.pipe = "not/absolute";
    expect_pipe(&d, NULL, "(none)");
}

/* Run gm_place in a child that has `own` as its part of the multiprocessors, or none. It is
 * `expected` in between, and then `own` again. */
static void expect_part(struct played *d, const char *own, const char *expected)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        bool has_mps;
        if (own)
            setenv(PART, own, 1);
        gm_place(&has_mps);
        const bool is_right = is(PART, expected);
        gm_place_undo();
        _exit(is_right && is(PART, own ? own : "(none)") ? 0 : 1);
    }
    answer_one(d);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* What a rule gives, and what the user says if that is less. */
static void has_a_part(void **state)
{
    struct played d = {.answer = ANSWERS, .pipe = "/run/x/7/pipe", .part = 505};
    (void)state;
    expect_part(&d, NULL, "50.5");
    expect_part(&d, "60", "50.5");
    expect_part(&d, "all", "50.5"); /* no number */
    expect_part(&d, "-3", "50.5");
    expect_part(&d, "20.25", "20.25");
    d.part = 0;
    expect_part(&d, "60", "60");
    expect_part(&d, NULL, "(none)");
    d.part = 1001; /* is none */
    expect_part(&d, NULL, "(none)");
    d.part = 505;
    d.pipe = NULL; /* it does not join */
    expect_part(&d, NULL, "(none)");
}

/* A program may have no environment at all. */
static void empty_environment(void **state)
{
    struct played d = {.answer = ANSWERS, .n = 2, .tokens = {1, 0}};
    int status = 0;
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        static char *one[2];
        char text[256];
        snprintf(text, sizeof text, "GPUMUX_SOCKET=%s", where);
        one[0] = text;
        environ = one;
        bool has_mps;
        const bool is_made = gm_place(&has_mps);
        clearenv();
        gm_place_undo();
        _exit(is_made && environ && !environ[0] ? 0 : 1);
    }
    answer_one(&d);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_lists),      cmocka_unit_test(stays),
        cmocka_unit_test(what_is_said),      cmocka_unit_test(ten_thousand_tokens),
        cmocka_unit_test(empty_environment), cmocka_unit_test(joins_mps),
        cmocka_unit_test(has_a_part),
    };
    unsetenv(LIST);
    unsetenv("CUDA_DEVICE_ORDER");
    unsetenv(PIPE);
    listen_here();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(where);
    return failed;
}
