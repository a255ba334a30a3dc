/*
 * A small scheduler to try rules on: budget 100, quantum 100, retry 10, time starts at 1000; one
 * level without patience, plain round robin, unless the test says otherwise (setup_with).
 * `engine` plays an engine that needs no time: it closes what left the set, then opens what came
 * into it. For tests/unit/test_sched*.c only.
 */
#ifndef GM_TESTS_UNIT_SCHED_FIXTURE_H
#define GM_TESTS_UNIT_SCHED_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/core/sched.h"
#include "daemon/core/sched_account.h"
#include "daemon/core/sched_step.h"

enum { APPS = 8, BUDGET = 100, QUANTUM = 100, RETRY = 10 };

static struct gm_sched *sched;
static struct gm_sched_decision last;
static uint64_t now;
static bool is_open[APPS];

static inline int setup_with(const struct gm_sched_config *config)
{
    void *memory = aligned_alloc(16, gm_sched_size(config));
    sched = gm_sched_init(memory, config);
    memset(is_open, 0, sizeof is_open);
    now = 1000;
    return sched == NULL;
}

static inline int setup(void **state)
{
    (void)state;
    struct gm_sched_config config = {.max_apps = APPS,
                                     .budget = BUDGET,
                                     .levels = 1,
                                     .allotment_ns = QUANTUM,
                                     .slice_ns = QUANTUM,
                                     .patience_ns = GM_TIME_NEVER,
                                     .retry_ns = RETRY};
    return setup_with(&config);
}

static inline int teardown(void **state)
{
    (void)state;
    free(sched);
    return 0;
}

static inline int step(enum gm_sched_event_kind kind, uint32_t app, uint64_t bytes)
{
    struct gm_sched_event event = {.kind = kind, .app = app, .bytes = bytes};
    int fault = gm_sched_step(sched, now, &event, &last);
    if (fault == 0 && app < APPS && kind == GM_SCHED_OPENED)
        is_open[app] = true;
    if (fault == 0 && app < APPS && (kind == GM_SCHED_CLOSED || kind == GM_SCHED_LEAVE))
        is_open[app] = false;
    return fault;
}

static inline void event(enum gm_sched_event_kind kind, uint32_t app)
{
    assert_int_equal(step(kind, app, 0), 0);
}

static inline void size(uint32_t app, uint64_t bytes)
{
    assert_int_equal(step(GM_SCHED_SIZE, app, bytes), 0);
}

/* App `app` appears with `bytes` and wants. */
static inline void arrive(uint32_t app, uint64_t bytes)
{
    event(GM_SCHED_JOIN, app);
    size(app, bytes);
    event(GM_SCHED_WANT, app);
}

static inline bool is_in_set(uint32_t app)
{
    for (uint32_t i = 0; i < last.n_set; i++)
        if (last.set[i] == app)
            return true;
    return false;
}

static inline void engine(void)
{
    for (uint32_t app = 0; app < APPS; app++)
        if (is_open[app] && !is_in_set(app))
            event(GM_SCHED_CLOSED, app);
    for (uint32_t app = 0; app < APPS; app++)
        if (!is_open[app] && is_in_set(app))
            event(GM_SCHED_OPENED, app);
}

/* Time passes as an engine would see it: timers at wake_at and not else. */
static inline void pass(uint64_t ns)
{
    uint64_t end = now + ns;
    while (last.wake_at <= end) {
        assert_true(last.wake_at > now);
        now = last.wake_at;
        event(GM_SCHED_TIMER, 0);
        engine();
    }
    now = end;
}

static inline const char *text(const uint32_t *ids, uint32_t n)
{
    static char buffers[2][256];
    static unsigned turn;
    char *out = buffers[turn++ % 2];
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, 256 - used, i ? " %u" : "%u", ids[i]);
    return out;
}

#define expect_set(want) assert_string_equal(text(last.set, last.n_set), want)
#define expect_next(want) assert_string_equal(text(last.next, last.n_next), want)
#define expect_wake(want) assert_int_equal(last.wake_at, want)

static inline struct gm_sched_account account(uint32_t app)
{
    struct gm_sched_account a;
    assert_true(gm_sched_account(sched, now, app, &a));
    return a;
}

#define expect_reason(app, want) assert_int_equal(account(app).reason, want)

#define rule(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
