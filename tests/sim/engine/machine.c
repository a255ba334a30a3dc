/* Virtual time, the trace, and failing. See machine.h. */
#include "tests/sim/engine/machine.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct machine machine;

/* ---- events: a heap, by time and by their order ---- */

struct event {
    uint64_t at, order;
    machine_event *fn;
    void *arg;
    uint64_t a, b;
};
static struct event *heap;
static size_t n_events, max_events;
static uint64_t next_order;

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

void machine_at(uint64_t at, machine_event *fn, void *arg, uint64_t a, uint64_t b)
{
    const struct event event = {.at = at > machine.now ? at : machine.now,
                                .order = next_order++,
                                .fn = fn,
                                .arg = arg,
                                .a = a,
                                .b = b};
    if (n_events == max_events) {
        max_events = max_events ? 2 * max_events : 1024;
        heap = realloc(heap, max_events * sizeof *heap);
        require(heap, "no memory for events");
    }
    size_t at_i = n_events++;
    for (; at_i > 0 && is_before(&event, &heap[(at_i - 1) / 2]); at_i = (at_i - 1) / 2)
        heap[at_i] = heap[(at_i - 1) / 2];
    heap[at_i] = event;
}

static struct event pop(void)
{
    const struct event first = heap[0], last = heap[--n_events];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < n_events; at = child) {
        if (child + 1 < n_events && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (is_before(&last, &heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

bool machine_step(uint64_t until)
{
    if (n_events == 0 || heap[0].at > until) {
        machine.now = until > machine.now && until != UINT64_MAX ? until : machine.now;
        return false;
    }
    const struct event event = pop();
    machine.now = event.at > machine.now ? event.at : machine.now;
    machine.steps++;
    machine.clock_reads = 0;
    cuda_leave();
    if (!machine.has_deaths) {
        event.fn(event.arg, event.a, event.b);
    } else if (setjmp(machine.death_point) == 0) {
        deaths_enter(true);
        event.fn(event.arg, event.a, event.b);
    } else {
        deaths_died();
    }
    deaths_enter(false);
    /* A GPU tells a client what it has, or hears its message, and takes it. Of a group each GPU may
     * go round for what each other one did. */
    require(machine.clock_reads <= machine.n_gpus * (machine.n_gpus > 2 ? machine.n_gpus : 2),
            "the engines read the clock %u times in one step: time is a value, read once an event",
            machine.clock_reads);
    programs_look();
    checks_run();
    return true;
}

void machine_run(uint64_t time)
{
    const uint64_t until = machine.now + time;
    while (machine_step(until))
        continue;
}

void machine_clear(void)
{
    n_events = 0;
    next_order = 0;
}

/* ---- chance ---- */

uint64_t chance_time(uint64_t usual)
{
    uint64_t time = usual / 4 + chance_below(usual * 3 / 2 + 1);
    if (machine_fails(FAULT_SLOW))
        time *= 100;
    return time;
}

static bool fails_at(uint64_t rate)
{
    if (!machine.is_faulty || chance_below(1000) >= rate)
        return false;
    machine.sums.faults++;
    return true;
}

bool machine_fails(enum fault fault)
{
    return fails_at(machine.faults[fault]);
}

bool gpu_fails(uint32_t gpu, enum fault fault)
{
    return fails_at(machine.gpus[gpu].faults[fault]);
}

/* ---- the trace ---- */

enum { TRACES = 60 };
static struct {
    uint64_t at, a, b, c;
    const char *what;
} traces[TRACES];
static uint64_t n_traces;

static void print_trace(FILE *file, uint64_t i)
{
    fprintf(file, "%12.6f  ", (double)traces[i % TRACES].at / 1e9);
    fprintf(file, traces[i % TRACES].what, traces[i % TRACES].a, traces[i % TRACES].b,
            traces[i % TRACES].c);
    fputc('\n', file);
}

void trace(const char *what, uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t i = n_traces++;
    traces[i % TRACES].at = machine.now;
    traces[i % TRACES].what = what;
    traces[i % TRACES].a = a;
    traces[i % TRACES].b = b;
    traces[i % TRACES].c = c;
    const uint64_t words[] = {machine.now, a, b, c, (uint64_t)what[0] << 8 | (uint64_t)what[1]};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        machine.hash = (machine.hash ^ words[k]) * 0x100000001b3ull;
    if (machine.is_verbose)
        print_trace(stdout, i);
}

static void print_end(void)
{
    if (!machine.is_verbose)
        for (uint64_t i = n_traces > TRACES ? n_traces - TRACES : 0; i < n_traces; i++)
            print_trace(stderr, i);
    fprintf(stderr, "sim_engine: seed %" PRIu64 ", step %" PRIu64 ", %.6f s: ", machine.seed,
            machine.steps, (double)machine.now / 1e9);
}

void fail(const char *format, ...)
{
    va_list list;
    fflush(stdout);
    print_end();
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\nsim_engine: `sim_engine %" PRIu64 "` shows every step\n", machine.seed);
    exit(1);
}

static void on_signal(int number)
{
    print_end(); /* the program is lost in any case */
    fprintf(stderr, "signal %d\n", number);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void catch_signals(void)
{
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGFPE, on_signal);
    signal(SIGPROF, on_signal); /* a seed that does not end: scenario_run */
}
