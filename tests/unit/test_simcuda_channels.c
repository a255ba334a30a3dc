/*
 * The simulated driver (tests/simcuda), channels: what runs can be stopped in the middle and goes
 * on, as on a GPU, through the kernel driver's own requests. This program learns the handles as the
 * shim does: its `ioctl` is found before the driver's.
 */
#include "shim/driver/rm.h"
#include "tests/simcuda/testing.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/wait.h>

#define LOOK_NS 20000000ull /* how long what stands is watched */
#define ALL_CHANNELS 20u    /* of a context */
#define COMPUTE_CHANNELS 8u
#define TRIES 200 /* at stopping in the middle; a few are enough */

/* ---- what libcuda asks of the kernel driver ---- */

struct seen {
    uint32_t client, object, parent, class_, engine;
};
static struct seen seen[512];
static uint32_t n_seen, n_wrapped;
static int driver_fd = -1;
static uint32_t last_timeslice_of; /* the group whose timeslice libcuda set last */

static int next_ioctl(int fd, unsigned long code, void *arg)
{
    static int (*next)(int, unsigned long, ...);
    if (next == NULL) {
        void *found = dlsym(RTLD_NEXT, "ioctl");
        memcpy(&next, &found, sizeof next);
    }
    return next(fd, code, arg);
}

static void note_made(struct seen made, uint64_t params)
{
    if (made.class_ == GM_RM_CLASS_CLIENT)
        made.client = made.object;
    if (made.class_ == GM_RM_CLASS_GROUP)
        made.engine = ((const struct gm_rm_group_params *)(uintptr_t)params)->engine;
    if (n_seen < sizeof seen / sizeof seen[0])
        seen[n_seen++] = made;
}

static void note(uint32_t number, uint32_t size, const void *arg)
{
    if (number == GM_RM_ALLOC && size == sizeof(struct gm_rm_alloc)) {
        const struct gm_rm_alloc *p = arg;
        if (p->status == GM_RM_OK)
            note_made((struct seen){p->client, p->object, p->parent, p->class_, 0}, p->params);
    } else if (number == GM_RM_ALLOC && size == sizeof(struct gm_rm_alloc_long)) {
        const struct gm_rm_alloc_long *p = arg;
        if (p->status == GM_RM_OK)
            note_made((struct seen){p->client, p->object, p->parent, p->class_, 0}, p->params);
    } else if (number == GM_RM_CONTROL && size == sizeof(struct gm_rm_control)) {
        const struct gm_rm_control *p = arg;
        if (p->command == GM_RM_SET_TIMESLICE && p->status == GM_RM_OK)
            last_timeslice_of = p->object;
    }
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long code, ...)
{
    va_list args;
    va_start(args, code);
    void *arg = va_arg(args, void *);
    va_end(args);
    const int result = next_ioctl(fd, code, arg);
    if (result != 0 || !GM_RM_IS_OURS(code))
        return result;
    driver_fd = fd;
    if (GM_RM_NUMBER(code) == GM_RM_WRAPPED) {
        const struct gm_rm_wrapped *p = arg;
        n_wrapped++;
        note(p->number, p->size, (const void *)(uintptr_t)p->pointer);
    } else {
        note(GM_RM_NUMBER(code), GM_RM_SIZE(code), arg);
    }
    return result;
}

/* ---- what the tests ask of it ---- */

static uint32_t request_control(int fd, uint32_t client, uint32_t object, uint32_t command,
                                void *params, uint32_t size)
{
    struct gm_rm_control p = {.client = client,
                              .object = object,
                              .command = command,
                              .params = (uint64_t)(uintptr_t)params,
                              .params_size = size,
                              .status = ~0u};
    return next_ioctl(fd, GM_RM_REQUEST(GM_RM_CONTROL, struct gm_rm_control), &p) == 0 ? p.status
                                                                                       : ~0u;
}

static const struct seen *find_seen(uint32_t class_)
{
    for (uint32_t i = 0; i < n_seen; i++) {
        if (seen[i].class_ == class_)
            return &seen[i];
    }
    return NULL;
}

/* The engine of the group that a channel is in. */
static uint32_t engine_of(const struct seen *channel)
{
    for (uint32_t i = 0; i < n_seen; i++) {
        if (seen[i].object == channel->parent && seen[i].class_ == GM_RM_CLASS_GROUP)
            return seen[i].engine;
    }
    return 0;
}

enum which { COMPUTE = 1, COPY = 2, ALL = 3 };

/* The channels that were seen from number `from` on. */
static struct gm_rm_disable list(uint32_t from, enum which which)
{
    struct gm_rm_disable p;
    memset(&p, 0, sizeof p);
    for (uint32_t i = from; i < n_seen; i++) {
        if (!GM_RM_IS_CHANNEL(seen[i].class_))
            continue;
        const bool is_compute = engine_of(&seen[i]) == GM_RM_ENGINE_GRAPHICS;
        if ((which & (is_compute ? COMPUTE : COPY)) == 0)
            continue;
        p.client[p.n] = seen[i].client;
        p.channel[p.n++] = seen[i].object;
    }
    return p;
}

static uint32_t set(struct gm_rm_disable *p, bool is_disable)
{
    const struct seen *subdevice = find_seen(GM_RM_CLASS_SUBDEVICE);
    p->is_disable = is_disable;
    return request_control(driver_fd, subdevice->client, subdevice->object, GM_RM_DISABLE_CHANNELS,
                           p, sizeof *p);
}

static void park(enum which which)
{
    struct gm_rm_disable p = list(0, which);
    assert_int_equal(set(&p, true), GM_RM_OK);
}

static void resume(void)
{
    struct gm_rm_disable p = list(0, ALL);
    assert_int_equal(set(&p, false), GM_RM_OK);
}

static void look(void)
{
    usleep(LOOK_NS / 1000);
}

/* ---- objects ---- */

static void test_the_objects(void **state)
{
    (void)state;
    assert_int_equal(list(0, COMPUTE).n, COMPUTE_CHANNELS);
    assert_int_equal(list(0, ALL).n, ALL_CHANNELS);
    assert_non_null(find_seen(GM_RM_CLASS_COMPUTE_HOPPER));
    assert_non_null(find_seen(GM_RM_CLASS_SUBDEVICE));
    assert_true(n_wrapped > 0);
    assert_int_equal(last_timeslice_of, find_seen(GM_RM_CLASS_GROUP)->object);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    const struct seen *subdevice = find_seen(GM_RM_CLASS_SUBDEVICE);
    struct gm_rm_disable p = list(0, ALL);
    const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(next_ioctl(other, GM_RM_REQUEST(GM_RM_CONTROL, struct gm_rm_control), &p), -1);
    close(other);
    assert_int_equal(next_ioctl(driver_fd, _IO(GM_RM_MAGIC, GM_RM_CONTROL), &p), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(
        request_control(driver_fd, 77, subdevice->object, GM_RM_DISABLE_CHANNELS, &p, sizeof p),
        GM_RM_INVALID_CLIENT);
    assert_int_equal(request_control(driver_fd, subdevice->client, subdevice->parent,
                                     GM_RM_DISABLE_CHANNELS, &p, sizeof p),
                     GM_RM_INVALID_OBJECT_HANDLE);
    assert_int_equal(request_control(driver_fd, subdevice->client, subdevice->object,
                                     GM_RM_DISABLE_CHANNELS, &p, sizeof p - 4),
                     GM_RM_INVALID_ARGUMENT);
    p.n = GM_RM_DISABLE_MOST + 1;
    assert_int_equal(set(&p, true), GM_RM_INVALID_ARGUMENT);
    p = list(0, ALL);
    p.channel[3]++; /* is none */
    p.channel[3] += 1000;
    assert_int_equal(set(&p, true), GM_RM_OBJECT_NOT_FOUND);
    ok(launch("gm_empty", NULL, NULL));
    ok(cuCtxSynchronize());
}

static void test_timeslices(void **state)
{
    (void)state;
    const struct seen *group = find_seen(GM_RM_CLASS_GROUP);
    struct gm_rm_timeslice slice = {0};
    assert_int_equal(request_control(driver_fd, group->client, group->object, GM_RM_GET_TIMESLICE,
                                     &slice, sizeof slice),
                     GM_RM_OK);
    assert_int_equal(slice.us, GM_RM_TIMESLICE_DEFAULT_US);
    slice.us = 1;
    assert_int_equal(request_control(driver_fd, group->client, group->object, GM_RM_SET_TIMESLICE,
                                     &slice, sizeof slice),
                     GM_RM_OK);
    slice.us = 0;
    assert_int_equal(request_control(driver_fd, group->client, group->object, GM_RM_GET_TIMESLICE,
                                     &slice, sizeof slice),
                     GM_RM_OK);
    assert_int_equal(slice.us, 1);
}

/* ---- stopping in the middle ---- */

#define WORDS (48 * MIB / 8)

/* Work on device memory from its first word to its last, whose words become `value`. */
static CUdeviceptr memory;
static uint64_t *pinned;

static void sweep_all(CUstream stream, uint64_t value)
{
    (void)value;
    uint64_t n = WORDS;
    void *params[] = {&memory, &n};
    ok(launch("gm_sweep", stream, params));
}

static void set_all(CUstream stream, uint64_t value)
{
    ok(cuMemsetD8Async(memory, (unsigned char)value, WORDS * 8, stream));
}

static void copy_all(CUstream stream, uint64_t value)
{
    for (size_t i = 0; i < WORDS; i++)
        pinned[i] = value;
    ok(cuMemcpyHtoDAsync(memory, pinned, WORDS * 8, stream));
}

static void check_stops_in_the_middle(void (*work)(CUstream, uint64_t), enum which which,
                                      uint64_t unit)
{
    const volatile uint64_t *word = (const uint64_t *)(uintptr_t)memory;
    CUstream stream;
    bool is_middle = false;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuMemsetD8(memory, 0, WORDS * 8));
    ok(cuCtxSynchronize());
    uint64_t value = 0;
    while (!is_middle) {
        assert_true(++value < TRIES);
        work(stream, value * unit);
        usleep((useconds_t)(gm_now() % 8000));
        park(which);
        is_middle = word[0] == value * unit && word[WORDS - 1] == (value - 1) * unit;
        if (is_middle) {
            size_t at = 0;
            while (word[at] == value * unit)
                at++;
            look();
            assert_int_equal(word[at - 1], value * unit);
            assert_int_equal(word[at], (value - 1) * unit);
            assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        }
        resume();
        ok(cuStreamSynchronize(stream));
        for (size_t i = 0; i < WORDS; i++)
            assert_int_equal(word[i], value * unit);
    }
    ok(cuStreamDestroy(stream));
}

static void test_a_kernel_stops(void **state)
{
    (void)state;
    check_stops_in_the_middle(sweep_all, ALL, 1);
    check_stops_in_the_middle(sweep_all, COMPUTE, 1);
}

static void test_a_set_stops(void **state)
{
    (void)state;
    check_stops_in_the_middle(set_all, ALL, 0x0101010101010101ull);
}

static void test_a_copy_stops(void **state)
{
    (void)state;
    check_stops_in_the_middle(copy_all, ALL, 1);
    check_stops_in_the_middle(copy_all, COPY, 1);
}

static void test_copies_have_channels_of_their_own(void **state)
{
    (void)state;
    CUstream stream;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    park(COMPUTE);
    copy_all(stream, 7);
    ok(cuStreamSynchronize(stream)); /* a large copy over the link goes on */
    ok(cuMemcpyHtoDAsync(memory, pinned, 64, stream));
    look();
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    resume();
    ok(cuStreamSynchronize(stream));
    park(COPY);
    ok(launch("gm_empty", stream, NULL));
    ok(cuStreamSynchronize(stream));
    resume();
    ok(cuStreamDestroy(stream));
}

/* Whichever channel is left out. */
static void test_an_incomplete_list_has_no_effect(void **state)
{
    (void)state;
    for (uint32_t left_out = 0; left_out < COMPUTE_CHANNELS; left_out++) {
        struct gm_rm_disable p = list(0, COMPUTE);
        p.channel[left_out] = p.channel[--p.n];
        assert_int_equal(set(&p, true), GM_RM_OK);
        sweep_all(NULL, 0);
        ok(cuCtxSynchronize());
        assert_int_equal(set(&p, false), GM_RM_OK);
    }
}

/* ---- around it ---- */

struct waiter {
    CUresult (*call)(void);
    _Atomic bool has_begun, has_returned;
};

static void *run_waiter(void *argument)
{
    struct waiter *w = argument;
    ok(cuCtxSetCurrent(context));
    w->has_begun = true;
    ok(w->call());
    w->has_returned = true;
    return NULL;
}

static CUresult synchronize_stream(void)
{
    return cuStreamSynchronize(NULL);
}

static CUresult copy_out(void)
{
    return cuMemcpyDtoH(pinned, memory, WORDS * 8);
}

static void test_synchronizing_waits(void **state)
{
    (void)state;
    CUresult (*const calls[])(void) = {cuCtxSynchronize, synchronize_stream, copy_out};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct waiter waiter = {.call = calls[i]};
        pthread_t thread;
        park(ALL);
        ok(launch("gm_empty", NULL, NULL));
        assert_int_equal(pthread_create(&thread, NULL, run_waiter, &waiter), 0);
        while (!waiter.has_begun)
            usleep(1000);
        look();
        assert_false(waiter.has_returned);
        resume();
        pthread_join(thread, NULL);
    }
}

static void test_work_submitted_meanwhile_runs_after(void **state)
{
    (void)state;
    const uint64_t *word = (const uint64_t *)(uintptr_t)memory;
    uint32_t *flag;
    CUevent event;
    ok(cuMemHostAlloc((void **)&flag, sizeof *flag, 0));
    ok(cuEventCreate(&event, 0));
    ok(cuMemsetD8(memory, 0, WORDS * 8));
    ok(cuCtxSynchronize());
    *flag = 0;
    park(ALL);
    ok(fill(memory, WORDS, 5, NULL));
    ok(cuStreamWriteValue32(NULL, (CUdeviceptr)(uintptr_t)flag, 1, 0));
    ok(cuEventRecord(event, NULL));
    look();
    assert_int_equal(word[0], 0);
    assert_int_equal(__atomic_load_n(flag, __ATOMIC_ACQUIRE), 0);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    resume();
    ok(cuEventSynchronize(event));
    assert_int_equal(__atomic_load_n(flag, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(mismatches(memory, WORDS, 5), 0);
    ok(cuEventDestroy(event));
    ok(cuMemFreeHost(flag));
}

/* A kernel that waits for the host looks at its flag only while its channels are enabled. */
static void test_a_waiting_kernel_stops(void **state)
{
    (void)state;
    uint32_t *flag;
    ok(cuMemHostAlloc((void **)&flag, sizeof *flag, 0));
    *flag = 0;
    void *params[] = {&flag};
    ok(launch("gm_spin_until", NULL, params));
    park(ALL);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    look();
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    resume();
    ok(cuCtxSynchronize());
    ok(cuMemFreeHost(flag));
}

/* One that counts in device memory stands still, in every turn, and is right at the end. It may
 * stop between a step and the report of that step. */
static void test_a_counting_kernel_stops(void **state)
{
    (void)state;
    struct {
        uint64_t flag, steps;
        unsigned long long mismatches;
    } * host;
    ok(cuMemHostAlloc((void **)&host, sizeof *host, 0));
    memset(host, 0, sizeof *host);
    uint64_t n = 1024, stride = WORDS / n, most = UINT64_MAX;
    const uint64_t *flag = &host->flag, *steps = &host->steps;
    const unsigned long long *count = &host->mismatches;
    const volatile uint64_t *first = (const uint64_t *)(uintptr_t)memory;
    void *params[] = {&memory, &n, &stride, &flag, &most, &steps, &count};
    ok(cuMemsetD8(memory, 0, WORDS * 8));
    ok(launch("gm_count", NULL, params));
    uint64_t last = 0;
    for (int turn = 0; turn < 5; turn++) {
        while (__atomic_load_n(steps, __ATOMIC_ACQUIRE) == last)
            usleep(1000);
        park(ALL);
        last = __atomic_load_n(steps, __ATOMIC_ACQUIRE);
        const uint64_t word = *first;
        assert_true(word == last || word == last + 1);
        look();
        assert_int_equal(__atomic_load_n(steps, __ATOMIC_ACQUIRE), last);
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(first[i * stride], word);
        resume();
    }
    __atomic_store_n((uint32_t *)&host->flag, 1, __ATOMIC_RELEASE);
    ok(cuCtxSynchronize());
    assert_int_equal(host->mismatches, 0);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(first[i * stride], host->steps);
    ok(cuMemFreeHost(host));
}

struct host_function {
    _Atomic bool has_begun, may_end;
};

static void CUDA_CB wait_on_host(void *data)
{
    struct host_function *f = data;
    f->has_begun = true;
    while (!f->may_end)
        usleep(1000);
}

/* One that runs goes on and keeps nobody from parking; one behind it does not begin. */
static void test_host_functions_are_not_stopped(void **state)
{
    (void)state;
    struct host_function first = {0}, second = {.may_end = true};
    ok(cuLaunchHostFunc(NULL, wait_on_host, &first));
    ok(cuLaunchHostFunc(NULL, wait_on_host, &second));
    while (!first.has_begun)
        usleep(1000);
    park(ALL);
    first.may_end = true;
    look();
    assert_false(second.has_begun);
    resume();
    ok(cuCtxSynchronize());
    assert_true(second.has_begun);
}

/* ---- other memory behind the same addresses ---- */

static CUmemGenericAllocationHandle new_frame(void)
{
    const CUmemAllocationProp prop = roles_prop();
    CUmemGenericAllocationHandle handle;
    ok(cuMemCreate(&handle, 16 * MIB, &prop, 0));
    return handle;
}

static void map(CUdeviceptr at, CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc desc = roles_access();
    ok(cuMemMap(at, 16 * MIB, 0, handle, 0));
    ok(cuMemSetAccess(at, 16 * MIB, &desc, 1));
}

/* The kernel is in the middle of it when its memory is taken away, and comes back elsewhere. */
static void test_remapping_while_parked(void **state)
{
    (void)state;
    const uint64_t n = 16 * MIB / 8;
    CUdeviceptr at, aside;
    CUstream stream;
    CUmemGenericAllocationHandle old = new_frame();
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuMemAddressReserve(&at, 16 * MIB, 0, 0, 0));
    ok(cuMemAddressReserve(&aside, 16 * MIB, 0, 0, 0));
    map(at, old);
    ok(fill(at, n, 3, stream));
    uint64_t seed = 3;
    unsigned long long *count;
    ok(cuMemHostAlloc((void **)&count, sizeof *count, 0));
    *count = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t next = seed + 1;
        void *params[] = {&at, (void *)&n, &seed, &next, &count};
        ok(launch("gm_verify_refill", stream, params));
        seed = next;
        usleep((useconds_t)(gm_now() % 4000));
        park(ALL);
        CUmemGenericAllocationHandle new = new_frame();
        map(aside, new);
        memcpy((void *)(uintptr_t)aside, (const void *)(uintptr_t)at, 16 * MIB);
        ok(cuMemUnmap(at, 16 * MIB));
        ok(cuMemUnmap(aside, 16 * MIB));
        ok(cuMemRelease(old));
        usleep(1000);
        map(at, new);
        old = new;
        resume();
    }
    ok(cuStreamSynchronize(stream));
    assert_int_equal(*count, 0);
    assert_int_equal(mismatches(at, n, seed), 0);
    ok(cuMemUnmap(at, 16 * MIB));
    ok(cuMemRelease(old));
    ok(cuMemAddressFree(at, 16 * MIB));
    ok(cuMemAddressFree(aside, 16 * MIB));
    ok(cuMemFreeHost(count));
    ok(cuStreamDestroy(stream));
}

/* ---- several contexts ---- */

static void test_each_context_has_its_own(void **state)
{
    (void)state;
    const uint32_t before = n_seen;
    CUcontext other;
    ok(cuCtxCreate(&other, NULL, 0, 0));
    struct gm_rm_disable p = list(before, ALL);
    assert_int_equal(p.n, ALL_CHANNELS);
    assert_int_equal(set(&p, true), GM_RM_OK);
    ok(cuCtxSetCurrent(context));
    ok(launch("gm_empty", NULL, NULL));
    ok(cuCtxSynchronize());  /* the first one works */
    ok(cuCtxDestroy(other)); /* idle: it can go while it is parked */
    ok(cuCtxSetCurrent(context));
    assert_int_equal(set(&p, false), GM_RM_OBJECT_NOT_FOUND);
    n_seen = before;
    for (int i = 0; i < 3; i++) { /* its places are free again, and a new one works */
        ok(cuCtxCreate(&other, NULL, 0, 0));
        ok(cuMemsetD8(memory, 1, WORDS * 8));
        ok(cuCtxSynchronize());
        ok(cuCtxDestroy(other));
        n_seen = before;
    }
    ok(cuCtxSetCurrent(context));
}

/* ---- other environments, in processes of their own ---- */

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void start_role(void)
{
    NEED(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS &&
         cuModuleLoadData(&module, roles_ptx) == CUDA_SUCCESS);
}

static CUresult role_launch(const char *name, void **params)
{
    CUfunction f;
    NEED(cuModuleGetFunction(&f, module, name) == CUDA_SUCCESS);
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

/* SIMCUDA_NO=channels */
static void role_without(void)
{
    start_role();
    NEED(n_seen == 0 && driver_fd < 0);
    NEED(role_launch("gm_empty", NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
}

/* SIMCUDA_DISABLE_CHANNELS=0x1b, SIMCUDA_SET_TIMESLICE=0x56 */
static void role_refused(void)
{
    start_role();
    struct gm_rm_disable p = list(0, ALL);
    struct gm_rm_timeslice slice = {5};
    const struct seen *group = find_seen(GM_RM_CLASS_GROUP);
    NEED(p.n == ALL_CHANNELS && set(&p, true) == GM_RM_INSUFFICIENT_PERMISSIONS);
    NEED(request_control(driver_fd, group->client, group->object, GM_RM_SET_TIMESLICE, &slice,
                         sizeof slice) == GM_RM_NOT_SUPPORTED);
    NEED(role_launch("gm_empty", NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
}

/* Both: ignored */
static void role_ignored(void)
{
    start_role();
    struct gm_rm_disable p = list(0, ALL);
    struct gm_rm_timeslice slice = {5};
    const struct seen *group = find_seen(GM_RM_CLASS_GROUP);
    NEED(p.n == ALL_CHANNELS && set(&p, true) == GM_RM_OK);
    NEED(role_launch("gm_empty", NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
    NEED(request_control(driver_fd, group->client, group->object, GM_RM_SET_TIMESLICE, &slice,
                         sizeof slice) == GM_RM_OK);
    NEED(request_control(driver_fd, group->client, group->object, GM_RM_GET_TIMESLICE, &slice,
                         sizeof slice) == GM_RM_OK);
    NEED(slice.us == GM_RM_TIMESLICE_DEFAULT_US);
}

/* SIMCUDA_LAUNCH_NS: work that takes time takes it while it is not parked. */
static void role_long_kernel(void)
{
    start_role();
    struct gm_rm_disable p = list(0, ALL);
    const uint64_t start = gm_now();
    NEED(role_launch("gm_empty", NULL) == CUDA_SUCCESS);
    const uint64_t parked = gm_now();
    NEED(set(&p, true) == GM_RM_OK);
    usleep(60000);
    const uint64_t resumed = gm_now();
    NEED(set(&p, false) == GM_RM_OK);
    NEED(cuCtxSynchronize() == CUDA_SUCCESS);
    NEED(gm_now() - start - (resumed - parked) + LOOK_NS / 10 >= 60000000);
}

static const char *program;

static int run_role(const char *role, const char *disable, const char *timeslice, const char *no,
                    const char *launch_ns)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        if (disable != NULL)
            setenv("SIMCUDA_DISABLE_CHANNELS", disable, 1);
        if (timeslice != NULL)
            setenv("SIMCUDA_SET_TIMESLICE", timeslice, 1);
        if (no != NULL)
            setenv("SIMCUDA_NO", no, 1);
        if (launch_ns != NULL)
            setenv("SIMCUDA_LAUNCH_NS", launch_ns, 1);
        execl(program, program, role, (char *)NULL);
        _exit(126);
    }
    waitpid(child, &status, 0);
    return status;
}

static void test_other_environments(void **state)
{
    (void)state;
    assert_int_equal(run_role("without", NULL, NULL, "channels", NULL), 0);
    assert_int_equal(run_role("refused", "0x1b", "0x56", NULL, NULL), 0);
    assert_int_equal(run_role("ignored", "ignored", "ignored", NULL, NULL), 0);
    assert_int_equal(run_role("long", NULL, NULL, NULL, "60000000"), 0);
    assert_int_not_equal(run_role("ignored", "perhaps", NULL, NULL, NULL), 0);
}

static int set_up_memory(void **state)
{
    set_up(state);
    if (list(0, ALL).n == 0) /* every test would fail */
        return -1;
    ok(cuMemAlloc(&memory, WORDS * 8));
    ok(cuMemHostAlloc((void **)&pinned, WORDS * 8, 0));
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } roles[] = {{"without", role_without},
                 {"refused", role_refused},
                 {"ignored", role_ignored},
                 {"long", role_long_kernel}};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0] && argc > 1; i++) {
        if (strcmp(argv[1], roles[i].name) == 0) {
            roles[i].run();
            return 0;
        }
    }
    program = argv[0];
    alarm(300); /* work that is never started again would wait for ever */
    if (make_directory() != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_objects),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_timeslices),
        cmocka_unit_test(test_a_kernel_stops),
        cmocka_unit_test(test_a_set_stops),
        cmocka_unit_test(test_a_copy_stops),
        cmocka_unit_test(test_copies_have_channels_of_their_own),
        cmocka_unit_test(test_an_incomplete_list_has_no_effect),
        cmocka_unit_test(test_synchronizing_waits),
        cmocka_unit_test(test_work_submitted_meanwhile_runs_after),
        cmocka_unit_test(test_a_waiting_kernel_stops),
        cmocka_unit_test(test_a_counting_kernel_stops),
        cmocka_unit_test(test_host_functions_are_not_stopped),
        cmocka_unit_test(test_remapping_while_parked),
        cmocka_unit_test(test_each_context_has_its_own),
        cmocka_unit_test(test_other_environments),
    };
    const int failed = cmocka_run_group_tests(tests, set_up_memory, NULL);
    remove_directory(directory);
    return failed;
}
