/* service/past: what earlier runs needed, and its file. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/service/past.h"

#define G (1ull << 30)
#define M (1ull << 20)
#define HEADER "# gpumux history 1: what programs needed; `mux-ctl forget` deletes lines\n"
#define LINE(command)                                                                              \
    "uid=7 runs=3 last=2026-11-26 most=12288M needed=4096M time=87% took=90ms command=" command "\n"

static uv_loop_t loop;
static struct gm_past *past;
static char dir[64], path[96], other[128];

static void open_past(void)
{
    assert_int_equal(uv_loop_init(&loop), 0);
    past = gm_past_open(&loop, path);
    assert_non_null(past);
}

static void close_past(void)
{
    gm_past_close(past);
    uv_run(&loop, UV_RUN_DEFAULT);
    gm_past_free(past);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/gm-past.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/history", dir);
    snprintf(other, sizeof other, "%s.damaged", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    rmdir(path);
    unlink(other);
    return rmdir(dir);
}

static void write_text(const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fchmod(fileno(file), 0600), 0); /* whatever the umask says */
    assert_int_equal(fclose(file), 0);
}

static const char *read_text(const char *from)
{
    static char text[1 << 18];
    FILE *file = fopen(from, "r");
    if (!file)
        return "(none)";
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void note(uid_t uid, const char *command, uint64_t bytes)
{
    const struct gm_past_run run = {
        .most = bytes, .needed = bytes / 2, .time = 500, .took_ms = bytes / M};
    gm_past_note(past, uid, command, &run);
}

static void expect(uid_t uid, const char *command, enum gm_need_from from, uint64_t needed)
{
    struct gm_past_run run;
    assert_int_equal(gm_past_find(past, uid, command, &run), from);
    assert_int_equal(run.needed, needed);
    if (from == GM_NEED_REMEMBERED)
        assert_int_equal(run.time, 500);
    else
        assert_int_equal(run.time, GM_BIND_WHOLE);
}

static void remembered(void **state)
{
    (void)state;
    open_past();
    expect(7, "train.py", GM_NEED_UNKNOWN, 0);
    note(7, "train.py", 4 * G);
    expect(7, "train.py", GM_NEED_REMEMBERED, 2 * G);
    expect(8, "train.py", GM_NEED_UNKNOWN, 0); /* another user's */
    note(7, "chat", 8 * G);
    expect(7, "new", GM_NEED_MEAN, 3 * G);
    note(7, "train.py", 8 * G); /* more counts at once */
    expect(7, "train.py", GM_NEED_REMEMBERED, 4 * G);
    note(7, "train.py", 0); /* less by a quarter */
    expect(7, "train.py", GM_NEED_REMEMBERED, 3 * G);
    note(7, "", 8 * G); /* it has no name */
    note(9, "a name of sixty-three bytes, with blanks and signs = 100% ööö xxx", UINT64_MAX);
    note(9, "long", UINT64_MAX);
    close_past();
    open_past();
    expect(7, "train.py", GM_NEED_REMEMBERED, 3 * G);
    expect(7, "chat", GM_NEED_REMEMBERED, 4 * G);
    struct gm_past_run run;
    assert_int_equal(gm_past_find(past, 7, "new", &run), GM_NEED_MEAN);
    assert_int_equal(run.took_ms, 0); /* others say nothing of that */
    gm_past_find(past, 7, "chat", &run);
    assert_int_equal(run.took_ms, 8192);
    gm_past_find(past, 9, "long", &run);
    assert_int_equal(run.took_ms, UINT32_MAX);
    close_past();
    struct stat found;
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    assert_non_null(strstr(read_text(path),
                           " most=6144M needed=3072M time=50% took=6144ms command=train.py\n"));
}

/* It is written while the daemon runs, too. */
static void written_soon(void **state)
{
    (void)state;
    open_past();
    note(7, "chat", G);
    for (int i = 0; i < 200 && strcmp(read_text(path), "(none)") == 0; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(50000);
    }
    assert_non_null(strstr(read_text(path), "command=chat\n"));
    note(7, "chat2", G);
    close_past();
    assert_non_null(strstr(read_text(path), "command=chat2\n"));
}

/* What could not be written is, as soon as it can be. */
static void written_again(void **state)
{
    char in_the_way[128];
    (void)state;
    open_past();
    snprintf(in_the_way, sizeof in_the_way, "%s.new", path);
    assert_int_equal(mkdir(in_the_way, 0700), 0);
    note(7, "chat", G);
    for (int i = 0; i < 60; i++, usleep(50000)) /* it is tried */
        uv_run(&loop, UV_RUN_NOWAIT);
    assert_string_equal(read_text(path), "(none)");
    assert_int_equal(rmdir(in_the_way), 0);
    for (int i = 0; i < 200 && strcmp(read_text(path), "(none)") == 0; i++, usleep(50000))
        uv_run(&loop, UV_RUN_NOWAIT);
    assert_non_null(strstr(read_text(path), "command=chat\n"));
    for (int i = 0; i < 20 && uv_loop_alive(&loop); i++, usleep(50000))
        uv_run(&loop, UV_RUN_NOWAIT);
    assert_false(uv_loop_alive(&loop)); /* nothing is left to write */
    close_past();
}

static void forgotten(void **state)
{
    (void)state;
    open_past();
    note(7, "train.py", G);
    note(7, "train2.py", G);
    note(7, "chat", G);
    note(8, "train.py", G);
    assert_int_equal(gm_past_forget(past, false, 7, "train*"), 2);
    expect(7, "train.py", GM_NEED_MEAN, G / 2);
    expect(8, "train.py", GM_NEED_REMEMBERED, G / 2);
    assert_int_equal(gm_past_forget(past, false, 9, NULL), 0);
    assert_int_equal(gm_past_forget(past, true, 0, NULL), 2);
    expect(8, "train.py", GM_NEED_UNKNOWN, 0);
    close_past();
    assert_string_equal(read_text(path), HEADER);
}

/* One user's commands do not push out another's, and the file has an end. */
static void bounded(void **state)
{
    char name[32];
    (void)state;
    open_past();
    note(8, "mine", G);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "churn%d", i);
        note(7, name, G);
    }
    expect(8, "mine", GM_NEED_REMEMBERED, G / 2);
    expect(7, "churn999", GM_NEED_REMEMBERED, G / 2);
    expect(7, "churn1", GM_NEED_MEAN, G / 2);
    assert_int_equal(gm_past_forget(past, false, 7, NULL), GM_PAST_USER);
    for (uid_t uid = 100; uid < 1100; uid++)
        note(uid, "x", G);
    expect(8, "mine", GM_NEED_UNKNOWN, 0); /* the oldest of all */
    assert_int_equal(gm_past_forget(past, true, 0, NULL), GM_PAST_MOST);
    close_past();
}

static void good_file(void **state)
{
    (void)state;
    write_text(HEADER LINE("a") LINE("b c"), strlen(HEADER LINE("a") LINE("b c")));
    open_past();
    struct gm_past_run run;
    assert_int_equal(gm_past_find(past, 7, "b c", &run), GM_NEED_REMEMBERED);
    assert_int_equal(run.most, 12 * G);
    assert_int_equal(run.needed, 4 * G);
    assert_int_equal(run.time, 870);
    close_past();
    assert_string_equal(read_text(path), HEADER LINE("a") LINE("b c"));
    assert_string_equal(read_text(other), "(none)");
}

/* A file that is damaged is put aside whole, and nothing of it counts. */
static void damaged_files(void **state)
{
    static char large[GM_PAST_MOST * 300u + 1000u];
    const char *const bad[] = {
        "x",
        "# gpumux history 2: of another version\n",
        HEADER "\n",
        HEADER LINE("a") "uid=7 runs=3",
        HEADER LINE("a") "uid=7 runs=3 last=2026-11-26 most=1M needed=1M time=87% command=b",
        HEADER "uid=-7 runs=3 last=2026-11-26 most=1M needed=1M time=87% command=b\n",
        HEADER "uid=7 runs=3 last=2026-11-26 most=1G needed=1M time=87% command=b\n",
        HEADER
        "uid=7 runs=3 last=2026-11-26 most=99999999999999999999M needed=1M time=87% command=b\n",
        HEADER "uid=7 runs=3 last=2026-11-26 most=18446744073709M needed=1M time=187% command=b\n",
        HEADER "uid=7 runs=3 last=2026-11-26 most=1M needed=1M time=87% took=1s command=b\n",
        HEADER
        "uid=7 runs=3 last=2026-11-26 most=1M needed=1M time=87% took=4294967296ms command=b\n",
        HEADER "uid=7 runs=3 last=20261126 most=1M needed=1M time=87% command=b\n",
        HEADER "uid=7 runs=3 last=2026-11-26 most=1M needed=1M time=87% command=\n",
        HEADER "uid=7 runs=3 last=2026-11-26 most=1M needed=1M time=87% command=\x01\n",
        HEADER "uid=7 runs=3 last=2026-11-26 most=1M needed=1M time=87% command="
               "0123456789012345678901234567890123456789012345678901234567890123\n",
        HEADER LINE("a") LINE("a"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text(bad[i], strlen(bad[i]));
        open_past();
        expect(7, "a", GM_NEED_UNKNOWN, 0);
        assert_string_equal(read_text(other), bad[i]);
        note(7, "a", G);
        close_past();
        assert_non_null(strstr(read_text(path), "command=a\n"));
    }
    const char with_nul[] = HEADER LINE("a") "\0" LINE("b");
    write_text(with_nul, sizeof with_nul - 1);
    open_past();
    expect(7, "a", GM_NEED_UNKNOWN, 0);
    close_past();
    /* too many lines, and no line at all */
    size_t at = (size_t)snprintf(large, sizeof large, "%s", HEADER);
    for (uint32_t i = 0; i <= GM_PAST_MOST; i++)
        at += (size_t)snprintf(
            large + at, sizeof large - at,
            "uid=7 runs=1 last=2026-11-26 most=1M needed=1M time=1%% command=%u\n", i);
    write_text(large, at);
    open_past();
    expect(7, "1", GM_NEED_UNKNOWN, 0);
    close_past();
    memset(large, 'x', sizeof large - 1);
    write_text(large, sizeof large - 1);
    open_past();
    expect(7, "1", GM_NEED_UNKNOWN, 0);
    close_past();
}

/* What is no file stays, and nothing is written there. */
static void no_file(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    open_past();
    note(7, "a", G);
    expect(7, "a", GM_NEED_REMEMBERED, G / 2);
    close_past();
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    open_past();
    note(7, "a", G);
    close_past();
    /* a folder that is not there: it is said, and goes on in memory */
    unlink(path);
    snprintf(path, sizeof path, "%s/not/there", dir);
    open_past();
    note(7, "a", G);
    expect(7, "a", GM_NEED_REMEMBERED, G / 2);
    close_past();
    path[0] = '\0';
    open_past();
    note(7, "a", G);
    expect(7, "a", GM_NEED_REMEMBERED, G / 2);
    close_past();
}

/* A file that others may have written is not believed, and stays as it is. */
static void others_file(void **state)
{
    const char text[] = HEADER LINE("a");
    (void)state;
    for (int i = 0; i < 3; i++) {
        char elsewhere[sizeof path + 8];
        snprintf(elsewhere, sizeof elsewhere, "%s.real", path);
        write_text(text, strlen(text));
        if (i < 2)
            assert_int_equal(chmod(path, i == 0 ? 0620 : 0602), 0);
        else
            assert_int_equal(rename(path, elsewhere) != 0 || symlink(elsewhere, path) != 0, 0);
        open_past();
        expect(7, "a", GM_NEED_UNKNOWN, 0);
        note(7, "a", G);
        close_past();
        assert_string_equal(read_text(path), text);
        assert_string_equal(read_text(other), "(none)");
        unlink(elsewhere);
    }
}

#define PAST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAST(remembered),    PAST(written_soon), PAST(written_again),
        PAST(forgotten),     PAST(bounded),      PAST(good_file),
        PAST(damaged_files), PAST(no_file),      PAST(others_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
