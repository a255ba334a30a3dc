#include "daemon/memory/alarm.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/clock.h"

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct gm_alarm *alarm = poll->data;
    uint64_t times;
    (void)status;
    (void)events;
    if (read(alarm->fd, &times, sizeof times) == sizeof times) /* else it was set anew meanwhile */
        alarm->fn(alarm->arg);
}

int gm_alarm_open(struct gm_alarm *alarm, uv_loop_t *loop, void (*fn)(void *arg), void *arg)
{
    *alarm = (struct gm_alarm){.fn = fn, .arg = arg};
    alarm->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (alarm->fd < 0)
        return -errno;
    const int error = uv_poll_init(loop, &alarm->poll, alarm->fd);
    if (error != 0) {
        close(alarm->fd);
        return error;
    }
    alarm->poll.data = alarm;
    return uv_poll_start(&alarm->poll, UV_READABLE, on_ready);
}

void gm_alarm_set(struct gm_alarm *alarm, uint64_t at)
{
    struct itimerspec time = {0}; /* never */
    if (at != UINT64_MAX)
        time.it_value = gm_timespec(at != 0 ? at : 1);
    timerfd_settime(alarm->fd, TFD_TIMER_ABSTIME, &time, NULL);
}

static void on_closed(uv_handle_t *handle)
{
    struct gm_alarm *alarm = handle->data;
    close(alarm->fd);
    alarm->on_closed(alarm->arg);
}

void gm_alarm_close(struct gm_alarm *alarm, void (*fn)(void *arg))
{
    alarm->on_closed = fn;
    uv_close((uv_handle_t *)&alarm->poll, on_closed);
}
