/*
 * The fake meter: as daemon/memory/meter.h says. What crosses the link has nothing to do with what
 * programs do: nothing for a while, then a lot, as the seed has it. So the engine finds memory
 * guilty at random, and whatever it does about that must be right. Answers come sooner than those
 * of the real one, so that more happens.
 */
#include "tests/sim/engine/machine.h"

#include <stdlib.h>

#include "daemon/memory/meter.h"

enum { SAMPLES = 4 };

struct gm_meter {
    void (*on_news)(void *arg);
    void *arg;
    struct chance chance; /* of its own, so that other machines stay as they are */
    bool is_on, is_under_way;
    enum gm_meter_state state;
    unsigned busy_percent;
    uint64_t begin, busy_until, turn_at;
    uint32_t n, taken;
    struct gm_meter_sample samples[SAMPLES];
    uint32_t number; /* among `meters` */
};

static struct gm_meter *meters[GPUS]; /* those that are open */

static bool is_open(const struct gm_meter *meter)
{
    for (uint32_t i = 0; i < GPUS; i++)
        if (meters[i] == meter)
            return true;
    return false;
}

static void begin_next(struct gm_meter *meter);

static void put(struct gm_meter *meter)
{
    struct gm_meter_sample *sample = &meter->samples[++meter->n % SAMPLES];
    *sample = (struct gm_meter_sample){.begin = meter->begin, .end = machine.now};
    sample->ns = sample->cover = machine.now - meter->begin;
    if (machine.now >= meter->turn_at) {
        meter->turn_at = machine.now + draw(&meter->chance, 400 * GM_MS);
        meter->busy_until = draw_percent(&meter->chance, meter->busy_percent) ? meter->turn_at : machine.now;
    }
    if (machine.now < meter->busy_until && !machine.has_quiet_link)
        sample->rate[draw(&meter->chance, GM_WAYS)] = draw(&meter->chance, 50) << 30;
}

static void on_sample(void *arg, uint64_t a, uint64_t b)
{
    struct gm_meter *meter = arg;
    (void)a;
    (void)b;
    if (!is_open(meter))
        return;
    meter->is_under_way = false;
    if (!meter->is_on || meter->state != GM_METER_READY)
        return;
    put(meter);
    if (draw(&meter->chance, 5000) == 0)
        meter->state = GM_METER_OFF;
    begin_next(meter);
    trace("a sample of the link", meter->n, 0, 0);
    meter->on_news(meter->arg);
}

static void begin_next(struct gm_meter *meter)
{
    if (meter->is_under_way || !meter->is_on || meter->state != GM_METER_READY)
        return;
    meter->is_under_way = true;
    meter->begin = machine.now;
    machine_at(machine.now + GM_MS + draw(&meter->chance, 4 * GM_MS), on_sample, meter, 0, 0);
}

static void on_started(void *arg, uint64_t a, uint64_t b)
{
    struct gm_meter *meter = arg;
    (void)a;
    (void)b;
    if (!is_open(meter))
        return;
    meter->state = draw_percent(&meter->chance, 20) ? GM_METER_OFF : GM_METER_READY;
    begin_next(meter);
    meter->on_news(meter->arg);
}

struct gm_meter *gm_meter_open(uv_loop_t *loop, const uint8_t uuid[16], void (*on_news)(void *arg),
                               void *arg)
{
    (void)loop;
    (void)uuid;
    struct gm_meter *meter = calloc(1, sizeof *meter);
    require(meter, "no memory");
    meter->on_news = on_news;
    meter->arg = arg;
    while (meters[meter->number]) /* those of a seed are the same, whatever ran before */
        meter->number++;
    meter->chance.state = machine.seed * 0x9E3779B97F4A7C15ull + meter->number;
    meter->busy_percent = draw_percent(&meter->chance, 50) ? 2 : 40; /* so that trials go on */
    meters[meter->number] = meter;
    machine_at(machine.now + draw(&meter->chance, GM_S), on_started, meter, 0, 0);
    return meter;
}

void gm_meter_close(struct gm_meter *meter)
{
    if (!meter)
        return;
    meters[meter->number] = NULL;
    free(meter);
}

enum gm_meter_state gm_meter_state(struct gm_meter *meter, const char **why)
{
    *why = "the simulated one has ended";
    return meter ? meter->state : GM_METER_OFF;
}

void gm_meter_run(struct gm_meter *meter, bool is_on)
{
    if (!meter)
        return;
    meter->is_on = is_on;
    if (!is_on)
        meter->taken = meter->n;
    begin_next(meter);
}

bool gm_meter_take(struct gm_meter *meter, struct gm_meter_sample *sample)
{
    if (meter->n - meter->taken > SAMPLES)
        meter->taken = meter->n - SAMPLES;
    if (meter->taken == meter->n)
        return false;
    *sample = meter->samples[++meter->taken % SAMPLES];
    return true;
}

void meter_die(void)
{
    for (uint32_t i = 0; i < GPUS; i++)
        meters[i] = NULL;
}
