/*
 * The meter: what crosses the link between a GPU and the host, whoever reads or writes (NVML's PCIe
 * counters). Owns libnvidia-ml, and the thread that asks it.
 *
 * Where the driver has counters of all bytes since its start, a sample is the difference of two
 * looks 10 ms apart, and nothing is missed (H200, driver 580: a look takes 0.3 ms, and up to 20
 * while kernels keep the link busy). Otherwise NVML measures rates: an answer takes 42 ms, and each
 * covers some 20 ms of the time between `begin` and `end`, so one sample may miss a burst: take the
 * mean of many.
 *
 * Samples follow one another while the meter is told to run; else the thread sleeps. The loop takes
 * them in their order.
 *
 * Called by the engine on the loop thread. Calls nothing of the daemon.
 */
#ifndef GM_DAEMON_MEMORY_METER_H
#define GM_DAEMON_MEMORY_METER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/chunk.h"

struct gm_meter;

struct gm_meter_sample {
    uint64_t begin, end;    /* gm_now() before the first question, and after the last answer */
    uint64_t ns;            /* the time that it stands for, */
    uint64_t cover;         /* ... and what of that the rates are of */
    uint64_t rate[GM_WAYS]; /* bytes a second, from the GPU and to it */
};

enum gm_meter_state {
    GM_METER_STARTS, /* NVML is being asked whether there are counters */
    GM_METER_READY,
    GM_METER_OFF, /* there are none, or they fail: for good */
};

/*
 * Of the GPU with that UUID. `on_news(arg)` is called on the loop thread when the state is another
 * one, and when samples have come. NULL: no thread could be made.
 */
struct gm_meter *gm_meter_open(uv_loop_t *loop, const uint8_t uuid[16], void (*on_news)(void *arg),
                               void *arg);
/* Waits for an answer of NVML that is under way. NULL: nothing happens. The loop must run once more
 * afterwards. */
void gm_meter_close(struct gm_meter *meter);

/* OFF: `why` says why, for as long as the meter is open. Of NULL, too. */
enum gm_meter_state gm_meter_state(struct gm_meter *meter, const char **why);

/* Take samples from now on, or do not. */
void gm_meter_run(struct gm_meter *meter, bool is_on);

/* The next sample; false: there is none. A loop that is late misses the oldest. */
bool gm_meter_take(struct gm_meter *meter, struct gm_meter_sample *sample);

#endif
