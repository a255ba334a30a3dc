/* common/writer: whoever puts never waits for the file, and what is lost is counted. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "common/writer.h"

#define ROOM 4096u
#define LONG_NS (100 * GM_S)

static const char line[] =
    "0123456789012345678901234567890123456789012345678901234567890123456789\n";
static int ends[2];

static int set_up(void **state)
{
    (void)state;
    return pipe2(ends, O_CLOEXEC);
}

static int tear_down(void **state)
{
    (void)state;
    return close(ends[0]);
}

static size_t notice(char *text, size_t size, uint64_t lost)
{
    return (size_t)snprintf(text, size, "lost %llu\n", (unsigned long long)lost);
}

/* All that was written. */
static char *read_all(void)
{
    static char text[1 << 20];
    size_t length = 0;
    ssize_t n;
    close(ends[1]);
    while ((n = read(ends[0], text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)n;
    assert_int_equal(n, 0);
    text[length] = '\0';
    return text;
}

static void test_in_order(void **state)
{
    (void)state;
    struct gm_writer *writer = gm_writer_open(ends[1], ROOM, notice, "test");
    char text[32], expected[32 * 20] = "";
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "line %d\n", i);
        strcat(expected, text);
        assert_true(gm_writer_put(writer, text, strlen(text), i % 2 ? LONG_NS : 0));
    }
    assert_true(gm_writer_flush(writer, LONG_NS));
    assert_string_equal(read_all(), expected);
}

/* Nobody reads: nobody waits. When somebody does, all that was not dropped comes, whole, and how
 * many lines were. */
static void test_nobody_reads(void **state)
{
    (void)state;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], "full\n", 5) > 0)
        continue;
    fcntl(ends[1], F_SETFL, 0);
    struct gm_writer *writer = gm_writer_open(ends[1], ROOM, notice, "test");
    const uint64_t begun = gm_now();
    unsigned taken = 0, lost = 0;
    while (lost < 1000)
        if (gm_writer_put(writer, line, sizeof line - 1, 0))
            taken++;
        else
            lost++;
    assert_true(gm_now() - begun < 60 * GM_S);
    assert_false(gm_writer_flush(writer, 1));
    unsigned came = 0, said = 0, n;
    char text[128];
    FILE *file = fdopen(dup(ends[0]), "r");
    while (said < lost) { /* it may say so more than once */
        assert_non_null(fgets(text, sizeof text, file));
        if (sscanf(text, "lost %u", &n) == 1) {
            said += n;
        } else if (strcmp(text, "full\n") != 0) {
            assert_string_equal(text, line);
            came++;
        }
    }
    assert_int_equal(said, lost);
    assert_int_equal(came, taken);
    fclose(file);
    assert_true(gm_writer_put(writer, line, sizeof line - 1, LONG_NS));
    assert_true(gm_writer_flush(writer, LONG_NS));
    assert_string_equal(read_all(), line);
}

/* Who waits for its line waits once: no more while the file takes nothing. */
static void test_patience(void **state)
{
    (void)state;
    struct gm_writer *writer = gm_writer_open(ends[1], 1 << 20, notice, "test");
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    const uint64_t begun = gm_now();
    for (int i = 0; i < 10000; i++)
        gm_writer_put(writer, line, sizeof line - 1, GM_MS);
    assert_true(gm_now() - begun < 30 * GM_S); /* 10 s if each waited, and more */
    assert_false(gm_writer_flush(writer, GM_MS));
}

/* A file that takes no more may have room again. */
static void test_errors(void **state)
{
    (void)state;
    const int own = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(own >= 0);
    struct gm_writer *writer = gm_writer_open(own, ROOM, notice, "test");
    for (int i = 0; i < 7; i++)
        assert_true(gm_writer_put(writer, line, sizeof line - 1, LONG_NS));
    assert_int_equal(dup3(ends[1], own, O_CLOEXEC), own);
    assert_true(gm_writer_put(writer, line, sizeof line - 1, LONG_NS));
    assert_true(gm_writer_flush(writer, LONG_NS));
    close(own);
    char expected[128];
    snprintf(expected, sizeof expected, "%slost 7\n", line);
    assert_string_equal(read_all(), expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_patience, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_errors, set_up, tear_down),
    };
    signal(SIGPIPE, SIG_IGN); /* test_patience leaves a pipe full */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
