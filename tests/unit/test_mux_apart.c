/* daemon/ctl/apart: work in a process of its own, which hangs, ends or comes late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/ctl/apart.h"

#define LONG (60 * GM_S)

enum { COUNT, HANG, END, LOOK };

struct memory {
    unsigned calls;
    pid_t pid;
    dev_t output;
    int files;
};

static int files(void)
{
    int n = 0;
    for (int fd = 3; fd < 256; fd++)
        n += dup2(fd, fd) == fd;
    return n;
}

static void work(unsigned char what, void *memory)
{
    struct memory *own = memory;
    struct stat output;
    own->calls++;
    own->pid = getpid();
    own->output = fstat(STDOUT_FILENO, &output) == 0 ? output.st_rdev : 0;
    own->files = files();
    while (what == HANG)
        pause();
    if (what == END)
        _exit(1);
}

static struct mux_apart fresh(void)
{
    return (struct mux_apart){.work = work, .size = sizeof(struct memory)};
}

static void end(struct mux_apart *apart)
{
    if (apart->pid > 0) {
        kill(apart->pid, SIGKILL);
        if (!apart->is_late)
            close(apart->fd);
        waitpid(apart->pid, NULL, 0);
    }
}

/* One process for all, with what was there before. */
static void it_stays(void **state)
{
    struct mux_apart apart = fresh();
    struct memory *memory = mux_apart_memory(&apart);
    (void)state;
    assert_true(mux_apart_do(&apart, COUNT, LONG));
    const pid_t first = memory->pid;
    assert_int_not_equal(first, getpid());
    assert_true(mux_apart_do(&apart, COUNT, LONG));
    assert_int_equal(memory->pid, first);
    assert_int_equal(memory->calls, 2);
    end(&apart);
}

/* It has no file of ours: who reads our output would wait for its end. */
static void no_files(void **state)
{
    struct mux_apart apart = fresh();
    struct memory *memory = mux_apart_memory(&apart);
    int ends[2];
    struct pollfd output;
    struct stat null;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_true(mux_apart_do(&apart, LOOK, LONG));
    assert_int_equal(memory->files, 1);
    assert_int_equal(stat("/dev/null", &null), 0);
    assert_int_equal(memory->output, null.st_rdev);
    close(ends[1]);
    output = (struct pollfd){.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&output, 1, 0), 1);
    assert_true(output.revents & POLLHUP);
    close(ends[0]);
    end(&apart);
}

/* Who hangs is let go at the limit, and killed; the next work has another process, and other
 * memory.
 */
static void it_hangs(void **state)
{
    struct mux_apart apart = fresh();
    (void)state;
    const uint64_t begun = gm_now();
    assert_false(mux_apart_do(&apart, HANG, 50 * GM_MS));
    assert_false(apart.has_ended);
    assert_null(apart.memory);
    assert_true(gm_now() - begun >= 50 * GM_MS && gm_now() - begun < 20 * GM_S);
    const pid_t hung = apart.pid;
    while (!mux_apart_do(&apart, COUNT, LONG))
        assert_true(gm_now() - begun < 20 * GM_S);
    const struct memory *other = mux_apart_memory(&apart);
    assert_int_equal(other->calls, 1);
    assert_int_equal(waitpid(hung, NULL, WNOHANG), -1); /* nothing of it is left */
    assert_int_equal(errno, ECHILD);
    end(&apart);
}

/* While one is left that cannot be killed, as inside a driver, no other one starts. */
static void it_is_left(void **state)
{
    struct mux_apart apart = fresh();
    (void)state;
    assert_false(mux_apart_do(&apart, HANG, 50 * GM_MS));
    const pid_t killed = apart.pid;
    waitpid(killed, NULL, 0);
    apart.pid = fork(); /* in its place one that lives on */
    if (apart.pid == 0)
        for (;;)
            pause();
    const pid_t left = apart.pid;
    const uint64_t begun = gm_now();
    assert_false(mux_apart_do(&apart, COUNT, LONG));
    assert_true(gm_now() - begun < 20 * GM_S); /* nor does anybody wait for it */
    assert_int_equal(apart.pid, left);
    end(&apart);
}

/* One that ends in the middle is as one that hangs, at once. */
static void it_ends(void **state)
{
    struct mux_apart apart = fresh();
    (void)state;
    const uint64_t begun = gm_now();
    assert_false(mux_apart_do(&apart, END, LONG));
    assert_true(apart.has_ended);
    assert_true(gm_now() - begun < 20 * GM_S);
    while (!mux_apart_do(&apart, COUNT, LONG))
        assert_true(gm_now() - begun < 20 * GM_S);
    end(&apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_stays),   cmocka_unit_test(no_files), cmocka_unit_test(it_hangs),
        cmocka_unit_test(it_is_left), cmocka_unit_test(it_ends),
    };
    return cmocka_run_group_tests_name("mux_apart", tests, NULL, NULL);
}
