/*
 * An alarm of the loop: it calls a function when a time has come. The kernel wakes the loop some 50
 * us after that; libuv's own timers count milliseconds and are up to two of them late. An alarm
 * that is set again and again keeps the loop from no socket: both are found by the same look.
 *
 * Owns a file. Loop thread.
 */
#ifndef GM_DAEMON_MEMORY_ALARM_H
#define GM_DAEMON_MEMORY_ALARM_H

#include <stdint.h>
#include <uv.h>

struct gm_alarm {
    uv_poll_t poll;
    int fd;
    void (*fn)(void *arg);
    void (*on_closed)(void *arg);
    void *arg;
};

/* No time is set. 0 or -errno. */
int gm_alarm_open(struct gm_alarm *alarm, uv_loop_t *loop, void (*fn)(void *arg), void *arg);

/* Call fn(arg) once, at the time `at` or at once if that has passed, instead of when it was to be
 * called before. UINT64_MAX: never. */
void gm_alarm_set(struct gm_alarm *alarm, uint64_t at);

/* on_closed(arg) follows when nothing of *alarm is used any more. */
void gm_alarm_close(struct gm_alarm *alarm, void (*on_closed)(void *arg));

#endif
