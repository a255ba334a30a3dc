/*
 * Fake libuv: as much of it as daemon/engine and daemon/memory/hostpool use. The loop is the
 * machine's queue of events. An alarm comes at its time, or a little later. Work runs in one event,
 * as in a thread of its own, and its end is reported in another. A poll watches the end of a
 * process.
 */
#include "tests/sim/engine/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that no file has: closing one does nothing. */
enum { PIDFDS = 1 << 21, POLLS = 64, OF_CONNECTION = -1 };

static struct {
    pid_t pid;
    bool has_exited;
    uv_poll_t *poll;
} watches[POLLS];
static unsigned works; /* under way */

void uv_fake_die(void)
{
    memset(watches, 0, sizeof watches);
    works = 0;
}

void uv_fake_begin(void)
{
    memset(watches, 0, sizeof watches);
    works = 0;
}

void uv_fake_end(void)
{
    for (unsigned i = 0; i < POLLS; i++)
        require(!watches[i].poll, "a poll was not closed");
    require(works == 0, "work did not end");
}

/* ---- alarms ---- */

int gm_alarm_open(struct gm_alarm *alarm, uv_loop_t *loop, void (*fn)(void *arg), void *arg)
{
    (void)loop;
    *alarm = (struct gm_alarm){.fn = fn, .arg = arg};
    return 0;
}

/* Alarm number `id`, if it was not set anew. */
static void on_alarm(void *arg, uint64_t id, uint64_t unused)
{
    struct gm_alarm *alarm = arg;
    (void)unused;
    if (alarm->fd != (int)id)
        return;
    alarm->fd = 0;
    trace("alarm", 0, 0, 0);
    alarm->fn(alarm->arg);
}

void gm_alarm_set(struct gm_alarm *alarm, uint64_t at)
{
    static int ids;
    alarm->fd = at != UINT64_MAX ? ++ids : 0;
    if (alarm->fd != 0)
        machine_at((at > machine.now ? at : machine.now) + chance_below(GM_MS), on_alarm, alarm,
                   (uint64_t)alarm->fd, 0);
}

static void on_alarm_closed(void *arg, uint64_t a, uint64_t b)
{
    struct gm_alarm *alarm = arg;
    (void)a;
    (void)b;
    alarm->on_closed(alarm->arg);
}

void gm_alarm_close(struct gm_alarm *alarm, void (*fn)(void *arg))
{
    alarm->fd = 0;
    alarm->on_closed = fn;
    machine_at(machine.now, on_alarm_closed, alarm, 0, 0);
}

/* ---- closing ---- */

static void on_closed(void *arg, uint64_t a, uint64_t b)
{
    uv_handle_t *handle = arg;
    (void)b;
    if (a == machine.daemon_life)
        handle->close_cb(handle);
}

void uv_close(uv_handle_t *handle, uv_close_cb fn)
{
    for (unsigned i = 0; i < POLLS; i++)
        if ((uv_handle_t *)watches[i].poll == handle)
            watches[i].poll = NULL;
    handle->close_cb = fn;
    machine_at(machine.now, on_closed, handle, machine.daemon_life, 0);
}

/* ---- work ---- */

static void on_work_over(void *arg, uint64_t a, uint64_t b)
{
    uv_work_t *work = arg;
    (void)b;
    if (a != machine.daemon_life)
        return;
    works--;
    machine.moved_at = machine.now;
    trace("work ends", 0, 0, 0);
    work->after_work_cb(work, 0);
}

static void on_work(void *arg, uint64_t a, uint64_t b)
{
    uv_work_t *work = arg;
    (void)b;
    if (a != machine.daemon_life)
        return;
    work->work_cb(work);
    machine_at(machine.now + chance_time(GM_MS), on_work_over, work, a, 0);
}

int uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb fn, uv_after_work_cb after)
{
    work->loop = loop;
    work->work_cb = fn;
    work->after_work_cb = after;
    works++;
    machine_at(machine.now + chance_time(20 * GM_MS), on_work, work, machine.daemon_life, 0);
    return 0;
}

int uv_run(uv_loop_t *loop, uv_run_mode mode)
{
    (void)loop;
    (void)mode;
    require(machine_step(UINT64_MAX), "the loop waits for nothing");
    return 0;
}

/* ---- the end of a process ---- */

int uv_fake_pidfd(pid_t pid)
{
    for (int i = 0; i < POLLS; i++) {
        if (watches[i].poll || (watches[i].pid && !watches[i].has_exited))
            continue;
        watches[i].pid = pid;
        watches[i].has_exited = false;
        return PIDFDS + i;
    }
    errno = EMFILE;
    return -1;
}

static void on_end_seen(void *arg, uint64_t i, uint64_t events)
{
    uv_poll_t *poll = arg;
    if (watches[i].poll != poll)
        return;
    trace("process %lu ended (event %lu)", (uint64_t)watches[i].pid, events, 0);
    uv_poll_cb fn = NULL;
    memcpy(&fn, &poll->u.reserved[0], sizeof fn);
    fn(poll, 0, (int)events);
}

static void end_watch(unsigned i, int events)
{
    watches[i].has_exited = true;
    if (watches[i].poll)
        machine_at(machine.now + chance_time(GM_MS), on_end_seen, watches[i].poll, i,
                   (uint64_t)events);
}

void uv_fake_exit(pid_t pid)
{
    for (unsigned i = 0; i < POLLS; i++) {
        if (watches[i].pid == pid && !watches[i].has_exited)
            end_watch(i, UV_READABLE);
    }
}

int uv_fake_connection(void)
{
    return uv_fake_pidfd(OF_CONNECTION);
}

void uv_fake_hang_up(int fd)
{
    end_watch((unsigned)(fd - PIDFDS), UV_DISCONNECT);
}

int uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd)
{
    poll->loop = loop;
    watches[fd - PIDFDS].poll = poll;
    return 0;
}

int uv_poll_start(uv_poll_t *poll, int events, uv_poll_cb fn)
{
    (void)events;
    memcpy(&poll->u.reserved[0], &fn, sizeof fn);
    return 0;
}

int uv_poll_stop(uv_poll_t *poll)
{
    (void)poll;
    return 0;
}
