/*
 * The kernels: host versions of those in tests/programs/kernels.cu and of the daemon's
 * (daemon/memory/hash.cu), by the same names and
 * parameters. On a GPU each is a grid-stride loop, so here one plain loop stands for the whole
 * grid.
 *
 * One row a kernel: its parameters in order, and its body, in which they are variables.
 */
#include "tests/simcuda/sim.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "bench/mix_math.h"
#include "daemon/memory/hash_layout.h"

#define SPIN_POLL_NS 20000ull
#define COUNT_REST_NS 100000ull
#define PIECE 4096ull /* elements between two looks at the channels: some microseconds */

static __thread int device; /* where this thread's kernel runs */

/* A loop over [0, n) that can be stopped between two pieces. */
#define EACH(i, n)                                                                                 \
    for (uint64_t from_ = 0, to_ = end_of_piece(0, n); from_ < (n);                                \
         from_ = to_, to_ = end_of_piece(to_, n), sim_pause_point())                               \
        for (uint64_t i = from_; i < to_; i++)

static inline uint64_t end_of_piece(uint64_t from, uint64_t n)
{
    return n - from < PIECE ? n : from + PIECE;
}

/* What the copy engines do. Instructions that are as fast as memmove() and memset(), of which a
 * sanitizer would look at each byte. */
void sim_engine_move(void *to, const void *from, size_t bytes)
{
#ifdef __x86_64__
    if ((uintptr_t)to - (uintptr_t)from >= bytes) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
        return;
    }
#endif
    memmove(to, from, bytes);
}

void sim_engine_set(void *p, size_t n, uint32_t element, uint32_t value)
{
    if (element == 2) {
        for (size_t x = 0; x < n; x++)
            ((uint16_t *)p)[x] = (uint16_t)value;
        return;
    }
#ifdef __x86_64__
    if (element == 4)
        __asm__ volatile("rep stosl" : "+D"(p), "+c"(n) : "a"(value) : "memory");
    else
        __asm__ volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(value) : "memory");
#else
    if (element == 4)
        for (size_t x = 0; x < n; x++)
            ((uint32_t *)p)[x] = value;
    else
        memset(p, (int)value, n);
#endif
}

enum { READS = 1, WRITES = 2 };

/* The kernel reads and writes n elements at `at`: what of them lies on the host crosses the link.
 */
static void touch(const void *at, uint64_t bytes, unsigned how)
{
    uint64_t from = (uint64_t)(uintptr_t)at, host = 0;
    const uint64_t end = from + bytes;
    pthread_mutex_lock(&sim_va_lock);
    size_t index = sim_range_index(from);
    for (const struct sim_range *r; (r = sim_range_at(index)) != NULL && r->start < end; index++) {
        const uint64_t begins = r->start > from ? r->start : from;
        const uint64_t ends = r->start + r->size < end ? r->start + r->size : end;
        host += r->device < 0 ? ends - begins : 0;
    }
    pthread_mutex_unlock(&sim_va_lock);
    if (host > 0 && (how & READS) != 0)
        sim_link_count(device, 0, host);
    if (host > 0 && (how & WRITES) != 0)
        sim_link_count(device, 1, host);
}

/* The i-th value of a stream: all of one differ. It is simple, so that memory is what takes time.
 */
static inline uint64_t gm_mix(uint64_t seed, uint64_t i)
{
    const uint64_t z = seed * 0xBF58476D1CE4E5B9ull + (i + 1) * 0x9E3779B97F4A7C15ull;
    return z ^ (z >> 32);
}

struct fill {
    uint64_t *p;
    uint64_t n, seed;
};
static void run_fill(const struct fill *a)
{
    touch(a->p, a->n * sizeof *a->p, WRITES);
    EACH(i, a->n)
    {
        a->p[i] = gm_mix(a->seed, i);
    }
}

struct verify {
    const uint64_t *p;
    uint64_t n, seed;
    unsigned long long *mismatches;
};
static void run_verify(const struct verify *a)
{
    unsigned long long bad = 0;
    touch(a->p, a->n * sizeof *a->p, READS);
    EACH(i, a->n)
    {
        bad += a->p[i] != gm_mix(a->seed, i);
    }
    if (bad > 0)
        __atomic_fetch_add(a->mismatches, bad, __ATOMIC_RELAXED);
}

struct verify_refill {
    uint64_t *p;
    uint64_t n, seed, next;
    unsigned long long *mismatches;
};
static void run_verify_refill(const struct verify_refill *a)
{
    unsigned long long bad = 0;
    touch(a->p, a->n * sizeof *a->p, READS | WRITES);
    EACH(i, a->n)
    {
        bad += a->p[i] != gm_mix(a->seed, i);
        a->p[i] = gm_mix(a->next, i);
    }
    if (bad > 0)
        __atomic_fetch_add(a->mismatches, bad, __ATOMIC_RELAXED);
}

struct verify_at {
    const uint64_t *p;
    uint64_t first, n, seed;
    unsigned long long *mismatches;
};
static void run_verify_at(const struct verify_at *a)
{
    unsigned long long bad = 0;
    touch(a->p + a->first, a->n * sizeof *a->p, READS);
    EACH(i, a->n)
    {
        bad += a->p[a->first + i] != gm_mix(a->seed, a->first + i);
    }
    if (bad > 0)
        __atomic_fetch_add(a->mismatches, bad, __ATOMIC_RELAXED);
}

struct verify_refill_at {
    uint64_t *p;
    uint64_t first, n, seed, next;
    unsigned long long *mismatches;
};
static void run_verify_refill_at(const struct verify_refill_at *a)
{
    unsigned long long bad = 0;
    touch(a->p + a->first, a->n * sizeof *a->p, READS | WRITES);
    EACH(i, a->n)
    {
        bad += a->p[a->first + i] != gm_mix(a->seed, a->first + i);
        a->p[a->first + i] = gm_mix(a->next, a->first + i);
    }
    if (bad > 0)
        __atomic_fetch_add(a->mismatches, bad, __ATOMIC_RELAXED);
}

struct verify_refill_in {
    uint64_t *p;
    const uint64_t *table;
    uint64_t k, n, seed, next;
    unsigned long long *mismatches;
};
static void run_verify_refill_in(const struct verify_refill_in *a)
{
    run_verify_refill(&(struct verify_refill){a->p + a->table[a->k] * a->n, a->n, a->seed, a->next,
                                              a->mismatches});
}

struct verify_through {
    const uint64_t *const *cell;
    uint64_t n, seed;
    unsigned long long *mismatches;
};
static void run_verify_through(const struct verify_through *a)
{
    run_verify(&(struct verify){*a->cell, a->n, a->seed, a->mismatches});
}

struct vector_add {
    const float *a, *b;
    float *c;
    uint64_t n;
};
static void run_vector_add(const struct vector_add *v)
{
    EACH(i, v->n)
    {
        v->c[i] = v->a[i] + v->b[i];
    }
}

struct matmul {
    const float *a, *b;
    float *c;
    uint32_t n;
};
static void run_matmul(const struct matmul *m)
{
    const size_t n = m->n;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t k = 0; k < n; k++)
                sum = fmaf(m->a[i * n + k], m->b[k * n + j], sum);
            m->c[i * n + j] = sum;
            sim_pause_point();
        }
    }
}

struct spin {
    uint64_t ns;
};
static void run_spin(const struct spin *a)
{
    sim_rest_until(sim_now() + a->ns);
}

struct spin_until {
    volatile uint32_t *flag;
};
static void run_spin_until(const struct spin_until *a)
{
    while (__atomic_load_n(a->flag, __ATOMIC_ACQUIRE) == 0)
        sim_rest_until(sim_now() + SPIN_POLL_NS);
}

struct sweep {
    uint64_t *p;
    uint64_t n;
};
static void run_sweep(const struct sweep *a)
{
    touch(a->p, a->n * sizeof *a->p, READS | WRITES);
    EACH(i, a->n)
    {
        a->p[i]++;
    }
}

struct count {
    uint64_t *p;
    uint64_t n, stride;
    const volatile uint32_t *flag;
    uint64_t most;
    volatile uint64_t *steps;
    unsigned long long *mismatches;
};
/* All words in step, and a rest behind each step: the kernel takes time, not the processor's. */
static void run_count(const struct count *a)
{
    static __thread uint64_t *value; /* a fault leaves it behind */
    unsigned long long bad = 0;
    free(value);
    value = sim_alloc(a->n * sizeof *value);
    for (uint64_t i = 0; i < a->n; i++)
        value[i] = a->p[i * a->stride];
    for (uint64_t k = 0; k < a->most; k++) {
        if (__atomic_load_n(a->flag, __ATOMIC_ACQUIRE) != 0)
            break;
        EACH(i, a->n)
        {
            bad += a->p[i * a->stride] != value[i];
            a->p[i * a->stride] = ++value[i];
        }
        __atomic_store_n(a->steps, value[0], __ATOMIC_RELEASE);
        sim_rest_until(sim_now() + COUNT_REST_NS);
    }
    if (bad > 0)
        __atomic_fetch_add(a->mismatches, bad, __ATOMIC_RELAXED);
    free(value);
    value = NULL;
}

struct hash {
    struct gm_hash_launch launch;
};
static void run_hash(const struct hash *a)
{
    sim_hash_chunks(&a->launch);
}

/* Those of bench/mix.cu: all have the same parameters, and x as many elements for each of y. */
struct mix {
    const float *x;
    float *y;
    uint64_t n;
    uint32_t what;
};
#define MIX(name, per_element, value)                                                              \
    static void run_mix_##name(const struct mix *a)                                                \
    {                                                                                              \
        touch(a->x, (per_element)*a->n * sizeof *a->x, READS);                                     \
        touch(a->y, a->n * sizeof *a->y, WRITES);                                                  \
        EACH(i, a->n)                                                                              \
        {                                                                                          \
            a->y[i] = value;                                                                       \
        }                                                                                          \
    }
MIX(start, 0, gm_mix_random(a->what, i))
MIX(square, 1, a->x[i] * a->x[i])
MIX(price, 1, gm_mix_price(a->x[i]))
MIX(activate, 1, gm_mix_activation(a->x[i], a->what))
MIX(blur, 1, gm_mix_blur(a->x, i, a->n, a->what))
MIX(edges, 1, gm_mix_edges(a->x, i, a->n, a->what))
MIX(blend, 1, 0.5f * (a->x[i] + a->y[i]))
MIX(pool, 4, gm_mix_pool(a->x + 4 * i))

static void weigh(float *weights, uint32_t n, uint32_t seed, float middle)
{
    for (uint32_t i = 0; i < n; i++)
        weights[i] = gm_mix_random(seed, i) - middle;
}

static void run_mix_convolve(const struct mix *a)
{
    float weights[9 * GM_MIX_FILTERS];
    weigh(weights, 9 * GM_MIX_FILTERS, a->what, 0.4f);
    touch(a->x, a->n * sizeof *a->x, READS);
    touch(a->y, a->n * sizeof *a->y, WRITES);
    EACH(i, a->n)
    {
        a->y[i] = gm_mix_convolve(a->x, i, a->n, a->what, weights);
    }
}

static void run_mix_score(const struct mix *a)
{
    float weights[GM_MIX_WEIGHTS];
    weigh(weights, GM_MIX_WEIGHTS, a->what, 0.5f);
    touch(a->x, GM_MIX_FEATURES * a->n * sizeof *a->x, READS);
    touch(a->y, a->n * sizeof *a->y, WRITES);
    EACH(i, a->n)
    {
        a->y[i] = gm_mix_score(a->x + GM_MIX_FEATURES * i, weights);
    }
}

static void run_mix_reduce(const struct mix *a)
{
    uint64_t sum = 0;
    touch(a->x, a->n * sizeof *a->x, READS);
    EACH(i, a->n)
    {
        sum += gm_mix_whole(a->x[i]);
    }
    __atomic_fetch_add((uint64_t *)(void *)a->y, sum, __ATOMIC_RELAXED);
}

struct empty {
    char unused;
};
static void run_empty(const struct empty *a)
{
    (void)a;
}

/*
 * A parameter block as a GPU gets it, each parameter at its natural alignment, is the C struct of
 * the same members: the table takes offsets and sizes from the structs.
 */
#define RUN(name)                                                                                  \
    static void call_##name(const uint8_t *params)                                                 \
    {                                                                                              \
        struct name a;                                                                             \
        memcpy(&a, params, sizeof a);                                                              \
        run_##name(&a);                                                                            \
    }                                                                                              \
    _Static_assert(sizeof(struct name) <= SIM_PARAMS_MAX, "parameters of " #name)
RUN(fill);
RUN(verify);
RUN(verify_refill);
RUN(verify_at);
RUN(verify_refill_at);
RUN(verify_refill_in);
RUN(verify_through);
RUN(vector_add);
RUN(matmul);
RUN(spin);
RUN(spin_until);
RUN(sweep);
RUN(count);
RUN(hash);
RUN(empty);

#define RUN_MIX(name)                                                                              \
    static void call_mix_##name(const uint8_t *params)                                             \
    {                                                                                              \
        struct mix a;                                                                              \
        memcpy(&a, params, sizeof a);                                                              \
        run_mix_##name(&a);                                                                        \
    }
#define MIXES(X)                                                                                   \
    X(start)                                                                                       \
    X(square)                                                                                      \
    X(price)                                                                                       \
    X(activate)                                                                                    \
    X(blur)                                                                                        \
    X(edges)                                                                                       \
    X(blend)                                                                                       \
    X(pool)                                                                                        \
    X(convolve)                                                                                    \
    X(score)                                                                                       \
    X(reduce)
MIXES(RUN_MIX)

#define KERNEL(name, n, ...)                                                                       \
    {                                                                                              \
        "gm_" #name, call_##name, n,                                                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define P(name, member)                                                                            \
    {                                                                                              \
        offsetof(struct name, member), sizeof(((struct name *)0)->member)                          \
    }

#define KERNEL_MIX(name) KERNEL(mix_##name, 4, P(mix, x), P(mix, y), P(mix, n), P(mix, what)),

static const struct sim_kernel kernels[] = {
    KERNEL(fill, 3, P(fill, p), P(fill, n), P(fill, seed)),
    KERNEL(verify, 4, P(verify, p), P(verify, n), P(verify, seed), P(verify, mismatches)),
    KERNEL(verify_refill, 5, P(verify_refill, p), P(verify_refill, n), P(verify_refill, seed),
           P(verify_refill, next), P(verify_refill, mismatches)),
    KERNEL(verify_at, 5, P(verify_at, p), P(verify_at, first), P(verify_at, n), P(verify_at, seed),
           P(verify_at, mismatches)),
    KERNEL(verify_refill_at, 6, P(verify_refill_at, p), P(verify_refill_at, first),
           P(verify_refill_at, n), P(verify_refill_at, seed), P(verify_refill_at, next),
           P(verify_refill_at, mismatches)),
    KERNEL(verify_refill_in, 7, P(verify_refill_in, p), P(verify_refill_in, table),
           P(verify_refill_in, k), P(verify_refill_in, n), P(verify_refill_in, seed),
           P(verify_refill_in, next), P(verify_refill_in, mismatches)),
    KERNEL(verify_through, 4, P(verify_through, cell), P(verify_through, n),
           P(verify_through, seed), P(verify_through, mismatches)),
    KERNEL(vector_add, 4, P(vector_add, a), P(vector_add, b), P(vector_add, c), P(vector_add, n)),
    KERNEL(matmul, 4, P(matmul, a), P(matmul, b), P(matmul, c), P(matmul, n)),
    KERNEL(spin, 1, P(spin, ns)),
    KERNEL(spin_until, 1, P(spin_until, flag)),
    KERNEL(sweep, 2, P(sweep, p), P(sweep, n)),
    KERNEL(count, 7, P(count, p), P(count, n), P(count, stride), P(count, flag), P(count, most),
           P(count, steps), P(count, mismatches)),
    KERNEL(hash, 1, P(hash, launch)),
    KERNEL(empty, 0, {0, 0}),
    MIXES(KERNEL_MIX)};

const struct sim_kernel *sim_kernel_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strlen(kernels[i].name) == length && memcmp(kernels[i].name, name, length) == 0)
            return &kernels[i];
    }
    return NULL;
}

void sim_kernel_run(const struct sim_kernel *kernel, const uint8_t *params, int on)
{
    device = on;
    kernel->run(params);
}
