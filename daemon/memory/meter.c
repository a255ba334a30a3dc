#include "daemon/memory/meter.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/locks.h"
#include "common/text.h"

/* NVML, as far as it is asked: the numbers are those of nvml.h. */
enum {
    NVML_SUCCESS = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_LINK_OUT = 0,    /* NVML_PCIE_UTIL_TX_BYTES: the GPU sends */
    NVML_LINK_IN = 1,     /* NVML_PCIE_UTIL_RX_BYTES */
    NVML_BYTES_OUT = 197, /* NVML_FI_DEV_PCIE_COUNT_TX_BYTES */
    NVML_BYTES_IN = 198,  /* NVML_FI_DEV_PCIE_COUNT_RX_BYTES */
    NVML_IS_UINT = 1,     /* NVML_VALUE_TYPE_UNSIGNED_INT */
};
struct nvml_field {
    unsigned int id, scope;
    long long at, latency;
    int type, result;
    union {
        unsigned int of_uint;
        unsigned long long of_any;
    } value;
};
typedef struct nvml_device *nvml_device;

#define SAMPLES 16u
/* Between two looks at counters of bytes. With the look itself a thirtieth of a processor. */
#define LOOK_NS (10 * GM_MS)
/* Counters of 32 bits begin anew after 68 ms of the fastest link: what two looks farther apart
 * differ by is not known. */
#define LOOK_MOST_NS (60 * GM_MS)
/* What a counter of rates covers (NVML's manual). */
#define RATE_COVER_NS (20 * GM_MS)

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error)(int result);
    int (*by_uuid)(const char *uuid, nvml_device *device);
    int (*throughput)(nvml_device device, int counter, unsigned int *kb_a_second);
    int (*fields)(nvml_device device, int n, struct nvml_field *fields);
};

struct gm_meter {
    uv_async_t wake;
    void (*on_news)(void *arg);
    void *arg;
    char uuid[48];
    uv_thread_t thread;
    /* The thread's alone. */
    struct nvml nvml;
    nvml_device device;
    bool has_bytes;     /* counters of bytes: */
    uint64_t looked_at; /* ... when the last look began; 0: not in this run */
    uint64_t counted[GM_WAYS];

    struct gm_lock lock; /* of what follows */
    pthread_cond_t more;
    bool is_on, is_stopping;
    uint64_t runs; /* times that it was turned on: a sample that was begun before is of no use */
    enum gm_meter_state state;
    char why[160]; /* written before the state is OFF */
    uint64_t n, taken;
    struct gm_meter_sample samples[SAMPLES]; /* sample n: [n % SAMPLES] */
};

/* ---- the thread ---- */

/* False, and one line in `why`. */
static bool load(struct gm_meter *meter)
{
    struct nvml *nvml = &meter->nvml;
    const struct {
        const char *name;
        void **to;
    } symbols[] = {
        {"nvmlInit_v2", (void **)&nvml->init},
        {"nvmlShutdown", (void **)&nvml->shutdown},
        {"nvmlErrorString", (void **)&nvml->error},
        {"nvmlDeviceGetHandleByUUID", (void **)&nvml->by_uuid},
        {"nvmlDeviceGetPcieThroughput", (void **)&nvml->throughput},
    };
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library) {
        snprintf(meter->why, sizeof meter->why, "there is no NVML (libnvidia-ml.so.1)");
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        *symbols[i].to = dlsym(nvml->library, symbols[i].name);
        if (!*symbols[i].to) {
            snprintf(meter->why, sizeof meter->why, "NVML has no %s", symbols[i].name);
            return false;
        }
    }
    *(void **)&nvml->fields = dlsym(nvml->library, "nvmlDeviceGetFieldValues"); /* or not */
    return true;
}

/* False: `result` is an error, and `why` says of what. */
static bool succeeds(struct gm_meter *meter, int result, const char *what)
{
    if (result == NVML_SUCCESS)
        return true;
    const char *text = meter->nvml.error(result);
    snprintf(meter->why, sizeof meter->why, "NVML does not %s (%s)", what, text ? text : "?");
    return false;
}

static bool read_counter(struct gm_meter *meter, int counter, uint64_t *rate)
{
    unsigned int kb = 0;
    if (!succeeds(meter, meter->nvml.throughput(meter->device, counter, &kb),
                  "count what crosses the link"))
        return false;
    *rate = (uint64_t)kb * 1000;
    return true;
}

/* The bytes since the last look. Returns what NVML says. */
static int look(struct gm_meter *meter, uint64_t bytes[GM_WAYS])
{
    struct nvml_field fields[GM_WAYS] = {
        [GM_WAY_OUT] = {.id = NVML_BYTES_OUT}, [GM_WAY_IN] = {.id = NVML_BYTES_IN}};
    int result = NVML_NOT_SUPPORTED;
    if (meter->nvml.fields)
        result = meter->nvml.fields(meter->device, GM_WAYS, fields);
    for (int way = 0; way < GM_WAYS && result == NVML_SUCCESS; way++) {
        const bool is_uint = fields[way].type == NVML_IS_UINT;
        const uint64_t now = is_uint ? fields[way].value.of_uint : fields[way].value.of_any;
        bytes[way] = now - meter->counted[way];
        if (is_uint)
            bytes[way] &= UINT32_MAX;
        meter->counted[way] = now;
        result = fields[way].result;
    }
    return result;
}

static bool begin(struct gm_meter *meter)
{
    uint64_t rate;
    if (!load(meter) || !succeeds(meter, meter->nvml.init(), "start"))
        return false;
    uint64_t bytes[GM_WAYS];
    if (succeeds(meter, meter->nvml.by_uuid(meter->uuid, &meter->device), "know the GPU")) {
        meter->has_bytes = look(meter, bytes) == NVML_SUCCESS;
        if (meter->has_bytes || read_counter(meter, NVML_LINK_IN, &rate))
            return true;
    }
    meter->nvml.shutdown();
    return false;
}

/* From the last look to this one. A look tells of some moment while it lasts, so a sample begins
 * with the last one and ends behind this one. What it covers is 0 if nothing is known. */
static bool sample_bytes(struct gm_meter *meter, struct gm_meter_sample *sample)
{
    const uint64_t now = gm_now();
    uint64_t bytes[GM_WAYS];
    if (!succeeds(meter, look(meter, bytes), "count what crosses the link"))
        return false;
    sample->begin = meter->looked_at;
    sample->end = gm_now();
    sample->ns = sample->cover = now - meter->looked_at;
    if (meter->looked_at == 0 || sample->end - sample->begin > LOOK_MOST_NS)
        sample->cover = 0;
    const uint64_t most = sample->end - sample->begin; /* so long the bytes may have taken */
    for (int way = 0; way < GM_WAYS && sample->cover > 0; way++)
        sample->rate[way] = bytes[way] * 1000 / (most / 1000 + 1) * 1000;
    meter->looked_at = now;
    return true;
}

static bool sample_rates(struct gm_meter *meter, struct gm_meter_sample *sample)
{
    sample->begin = gm_now();
    const bool is_good = read_counter(meter, NVML_LINK_IN, &sample->rate[GM_WAY_IN]) &&
                         read_counter(meter, NVML_LINK_OUT, &sample->rate[GM_WAY_OUT]);
    sample->end = gm_now();
    sample->ns = sample->end - sample->begin;
    sample->cover = RATE_COVER_NS;
    return is_good;
}

static bool sample_once(struct gm_meter *meter, struct gm_meter_sample *sample)
{
    return meter->has_bytes ? sample_bytes(meter, sample) : sample_rates(meter, sample);
}

static void turn(struct gm_meter *meter, enum gm_meter_state state)
{
    gm_lock(&meter->lock);
    meter->state = state;
    uv_async_send(&meter->wake); /* under the lock, for the reason that mover.c gives */
    gm_unlock(&meter->lock);
}

/* Whether there is one more to be taken, and in which run; waits while the meter is not to run. */
static bool wait_for_more(struct gm_meter *meter, uint64_t *run)
{
    gm_lock(&meter->lock);
    const struct timespec until = gm_timespec(meter->looked_at + LOOK_NS);
    if (meter->is_on && meter->has_bytes)
        gm_lock_wait_until(&meter->more, &meter->lock, &until);
    while (!meter->is_on && !meter->is_stopping)
        gm_lock_wait(&meter->more, &meter->lock);
    const bool is_over = meter->is_stopping;
    if (meter->runs != *run)
        meter->looked_at = 0;
    *run = meter->runs;
    gm_unlock(&meter->lock);
    return !is_over;
}

static void put(struct gm_meter *meter, const struct gm_meter_sample *sample, uint64_t run)
{
    gm_lock(&meter->lock);
    if (meter->is_on && meter->runs == run && sample->cover > 0) {
        meter->samples[++meter->n % SAMPLES] = *sample;
        uv_async_send(&meter->wake);
    }
    gm_unlock(&meter->lock);
}

static void measure(void *arg)
{
    struct gm_meter *meter = arg;
    struct gm_meter_sample sample;
    uint64_t run = 0;
    const bool has_begun = begin(meter);
    bool is_good = has_begun;
    if (is_good)
        turn(meter, GM_METER_READY);
    while (is_good && wait_for_more(meter, &run)) {
        is_good = sample_once(meter, &sample);
        if (is_good)
            put(meter, &sample, run);
    }
    if (has_begun)
        meter->nvml.shutdown();
    if (meter->nvml.library)
        dlclose(meter->nvml.library);
    if (!is_good)
        turn(meter, GM_METER_OFF);
}

/* ---- the loop ---- */

static void on_wake(uv_async_t *async)
{
    struct gm_meter *meter = async->data;
    meter->on_news(meter->arg);
}

static void free_meter(uv_handle_t *handle)
{
    free(handle->data);
}

static void write_uuid(char text[48], const uint8_t uuid[16])
{
    snprintf(text, 48, "GPU");
    for (int i = 0; i < 16; i++)
        gm_text_add(text, 48, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                    (unsigned)uuid[i]);
}

struct gm_meter *gm_meter_open(uv_loop_t *loop, const uint8_t uuid[16], void (*on_news)(void *arg),
                               void *arg)
{
    struct gm_meter *meter = calloc(1, sizeof *meter);
    if (!meter || uv_async_init(loop, &meter->wake, on_wake) != 0) {
        free(meter);
        return NULL;
    }
    meter->wake.data = meter;
    meter->on_news = on_news;
    meter->arg = arg;
    write_uuid(meter->uuid, uuid);
    gm_lock_init(&meter->lock, GM_LOCK_METER);
    pthread_cond_init(&meter->more, NULL);
    if (uv_thread_create(&meter->thread, measure, meter) == 0)
        return meter;
    gm_lock_destroy(&meter->lock);
    pthread_cond_destroy(&meter->more);
    uv_close((uv_handle_t *)&meter->wake, free_meter);
    return NULL;
}

void gm_meter_close(struct gm_meter *meter)
{
    if (!meter)
        return;
    gm_lock(&meter->lock);
    meter->is_stopping = true;
    pthread_cond_signal(&meter->more);
    gm_unlock(&meter->lock);
    uv_thread_join(&meter->thread);
    gm_lock_destroy(&meter->lock);
    pthread_cond_destroy(&meter->more);
    uv_close((uv_handle_t *)&meter->wake, free_meter);
}

enum gm_meter_state gm_meter_state(struct gm_meter *meter, const char **why)
{
    *why = "no thread can be made";
    if (!meter)
        return GM_METER_OFF;
    gm_lock(&meter->lock);
    const enum gm_meter_state state = meter->state;
    gm_unlock(&meter->lock);
    *why = meter->why;
    return state;
}

void gm_meter_run(struct gm_meter *meter, bool is_on)
{
    if (!meter)
        return;
    gm_lock(&meter->lock);
    if (is_on && !meter->is_on)
        meter->runs++;
    meter->is_on = is_on;
    if (!is_on)
        meter->taken = meter->n;
    pthread_cond_signal(&meter->more);
    gm_unlock(&meter->lock);
}

bool gm_meter_take(struct gm_meter *meter, struct gm_meter_sample *sample)
{
    gm_lock(&meter->lock);
    if (meter->n - meter->taken > SAMPLES)
        meter->taken = meter->n - SAMPLES;
    const bool has_more = meter->taken < meter->n;
    if (has_more)
        *sample = meter->samples[++meter->taken % SAMPLES];
    gm_unlock(&meter->lock);
    return has_more;
}
