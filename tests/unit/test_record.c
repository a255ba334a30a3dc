/*
 * The recording: what was told comes back from the file by daemon/trace, in order; what is at the
 * path already; a file that cannot grow.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdbool.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/views/record.h"

static char folder[64], path[96], old[112], why[PATH_MAX + 256];
static uv_loop_t loop;
static struct gm_record *record;
static uint64_t most;

static const struct gm_sched_config config = {.max_apps = 8,
                                              .budget = 1000,
                                              .levels = 4,
                                              .allotment_ns = 8,
                                              .slice_ns = 4,
                                              .patience_ns = 60,
                                              .retry_ns = 4};

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/gm-record-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/trace", folder);
    snprintf(old, sizeof old, "%s.old", path);
    record = NULL;
    most = 1 << 30;
    return uv_loop_init(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    uv_run(&loop, UV_RUN_DEFAULT);
    unlink(path);
    unlink(old);
    return rmdir(folder) ? -1 : uv_loop_close(&loop);
}

static int open_record(void)
{
    why[0] = '\0';
    return gm_record_open(&record, &loop, path, most, why, sizeof why);
}

static void tell(enum gm_sched_event_kind kind, uint64_t now, uint32_t app, uint64_t bytes)
{
    const struct gm_sched_event event = {.kind = kind, .app = app, .bytes = bytes};
    gm_record_event(record, now, &event);
}

static void end_record(void)
{
    gm_record_close(record);
    uv_run(&loop, UV_RUN_DEFAULT);
}

/* Every line of the file must parse; returns how many there are, the last in *entry. */
static unsigned read_back(struct gm_trace_entry *entry)
{
    char line[GM_TRACE_LINE_MAX];
    unsigned n = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    memset(entry, 0, sizeof *entry);
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(line[strlen(line) - 1], '\n');
        if (gm_trace_parse(line, entry, why, sizeof why))
            fail_msg("line %u: %s", n + 1, why);
        n++;
    }
    fclose(file);
    return n;
}

static bool ends_whole(void)
{
    char last = '\n';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const off_t size = lseek(fd, 0, SEEK_END);
    assert_true(size <= 0 || pread(fd, &last, 1, size - 1) == 1);
    close(fd);
    return last == '\n';
}

/* A thread writes the file: wait until so many lines are in it. */
static void await_lines(struct gm_trace_entry *entry, unsigned least)
{
    unsigned n = 0;
    while (n < least) {
        usleep(1000);
        struct stat found;
        assert_int_equal(stat(path, &found), 0);
        n = ends_whole() ? read_back(entry) : 0;
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    const struct gm_sched_policy policy = {.class = GM_CLASS_BATCH, .weight = 500, .share = 250};
    struct gm_trace_entry entry;
    struct stat found;

    assert_int_equal(open_record(), 0);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0600);
    gm_record_config(record, &config);
    tell(GM_SCHED_JOIN, 100, 3, 0);
    gm_record_policy(record, 110, 3, &policy);
    tell(GM_SCHED_SIZE, 105, 3, 77); /* the scheduler takes it for 110 */
    end_record();
    assert_int_equal(read_back(&entry), 4);
    assert_int_equal(entry.kind, GM_TRACE_EVENT);
    assert_int_equal(entry.now, 110);
    assert_int_equal(entry.event.bytes, 77);
    assert_int_equal(entry.config.patience_ns, 60);
}

/* More than is kept in memory; and what is kept is written within about a second by itself. */
static void test_buffer(void **state)
{
    (void)state;
    struct gm_trace_entry entry;
    const unsigned many = 20000;
    assert_int_equal(open_record(), 0);
    gm_record_config(record, &config);
    for (unsigned i = 0; i < many; i++)
        tell(GM_SCHED_WANT, i, i % 8, 0);
    await_lines(&entry, many / 2);
    uv_run(&loop, UV_RUN_ONCE);
    await_lines(&entry, many + 1);
    tell(GM_SCHED_TIMER, many, 0, 0);
    end_record();
    assert_int_equal(read_back(&entry), many + 2);
    assert_int_equal(entry.now, many);
}

static void write_file(const char *at, const char *text)
{
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void expect_file(const char *at, const char *begin)
{
    char text[256] = "";
    FILE *file = fopen(at, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, strlen(begin), file) == strlen(begin));
    fclose(file);
    assert_memory_equal(text, begin, strlen(begin));
}

static void test_what_is_there(void **state)
{
    (void)state;
    /* an older trace steps aside, an even older one goes */
    write_file(path, "gpumux-sched-trace 2 of before\n1 timer\n");
    write_file(old, "gpumux-sched-trace 2 of long before\n");
    assert_int_equal(open_record(), 0);
    end_record();
    expect_file(old, "gpumux-sched-trace 2 of before\n");

    /* an empty file, or one of a start that came to nothing, is no loss: the older one stays */
    static const char *const nothing[] = {"", "gpumux-sched-trace 2 of a start that failed\n"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        write_file(path, nothing[i]);
        assert_int_equal(open_record(), 0);
        end_record();
        expect_file(old, "gpumux-sched-trace 2 of before\n");
    }

    /* nor does a trace replace what is none */
    write_file(path, "gpumux-sched-trace 2 of before\n1 timer\n");
    write_file(old, "precious\n");
    assert_int_equal(open_record(), -EEXIST);
    assert_non_null(strstr(why, "cannot be kept as"));
    expect_file(old, "precious\n");
    expect_file(path, "gpumux-sched-trace 2 of before\n");
    unlink(old);

    /* anything else is left alone */
    write_file(path, "precious\n");
    assert_int_equal(open_record(), -EEXIST);
    assert_non_null(strstr(why, "is there and no trace of gpumuxd"));
    expect_file(path, "precious\n");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(open_record(), -EEXIST);
    assert_non_null(strstr(why, "not a regular file"));
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(open_record(), -EEXIST);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(open_record(), -EEXIST);
    rmdir(path);

    snprintf(path, sizeof path, "%s/none/trace", folder);
    assert_int_equal(open_record(), -ENOENT);
    assert_non_null(strstr(why, "cannot be recorded to: No such file"));
}

/* A file that cannot grow ends with its last whole line, and nothing else happens. */
static void test_full(void **state)
{
    (void)state;
    struct rlimit before, limit;
    struct gm_trace_entry entry;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1000;
    assert_int_equal(open_record(), 0);
    gm_record_config(record, &config);
    tell(GM_SCHED_JOIN, 1, 3, 0);
    uv_run(&loop, UV_RUN_ONCE);
    await_lines(&entry, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (unsigned i = 2; i < 200; i++)
        tell(GM_SCHED_WANT, i, 3, 0);
    end_record();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    const unsigned lines = read_back(&entry); /* as many as fit, whole */
    assert_in_range(lines, 2, 100);
    assert_int_equal(entry.now, lines - 1);
}

/* It ends with the last whole line that fits, and takes nothing after that, however short. */
static void test_most(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1000, 1001, 1013, 65536, 200000};
    struct gm_trace_entry entry;
    struct stat found;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned told = 1;
        most = sizes[i];
        assert_int_equal(open_record(), 0);
        gm_record_config(record, &config);
        for (; told < 20000; told++)
            tell(GM_SCHED_SIZE, told, 3, 1000000 + told);
        tell(GM_SCHED_TIMER, told, 0, 0);
        end_record();
        assert_int_equal(stat(path, &found), 0);
        assert_in_range(found.st_size, most - 40, most);
        unsigned lines = read_back(&entry);
        assert_int_equal(entry.now, lines - 1);
        assert_int_equal(entry.event.bytes, 1000000 + lines - 1);
    }
}

/* Nothing is recorded. */
static void test_none(void **state)
{
    (void)state;
    gm_record_config(NULL, &config);
    tell(GM_SCHED_JOIN, 1, 3, 0);
    gm_record_close(NULL);
}

#define RECORD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECORD(test_round_trip), RECORD(test_buffer), RECORD(test_what_is_there),
        RECORD(test_full),       RECORD(test_most),   RECORD(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
