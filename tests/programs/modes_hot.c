/* gm_worker's modes about use: some memory is worked on more often than the rest. See worker.h. */
#include "tests/programs/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

#define GM_HOT_LAUNCHES 64u
#define GM_HOT_WORDS 4096u /* a launch looks at, so that many are quick */
#define GM_GUEST_BYTES (32ull << 20)
#define GM_LASTING_BYTES (16ull << 20)

/* The buffer that is the hot one now: in mode hot the first, else each for --hold. */
static uint32_t which(const struct gm_worker *worker)
{
    uint64_t hold = worker->hold_ns > 0 ? worker->hold_ns : 1;
    if (worker->mode[0] == 'h')
        return 0;
    return (uint32_t)((gm_now() - worker->started_ns) / hold % worker->allocs);
}

static void look(const struct gm_worker *worker, const struct gm_buffer *buffer,
                 const struct gm_counter *counter)
{
    struct gm_buffer part = *buffer;
    part.bytes = GM_HOT_WORDS * 8;
    for (uint32_t k = 0; k < GM_HOT_LAUNCHES; k++)
        gm_buffer_verify(worker, &part, counter, NULL);
}

/* Mode guests: memory that comes, is looked at a lot, then not at all, and goes at any time. */
struct gm_guests {
    struct gm_worker *worker;
    pthread_t thread;
    _Atomic bool is_over;
};

static void *run_guests(void *argument)
{
    struct gm_guests *guests = argument;
    struct gm_worker *worker = guests->worker;
    struct gm_counter counter;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    gm_counter_make(worker, &counter);
    for (uint64_t i = 0; !guests->is_over; i++) {
        struct gm_buffer guest;
        uint64_t random = gm_mix(worker->seed, i);
        gm_buffer_make(worker, &guest, GM_GUEST_BYTES, random, NULL);
        for (uint64_t n = random % 8; n > 0; n--)
            look(worker, &guest, &counter);
        GM_CU(worker, cuStreamSynchronize, NULL);
        struct timespec pause = {.tv_nsec = (long)(random >> 8) % 700000000};
        nanosleep(&pause, NULL);
        if (random >> 40 & 1) /* else it is given back as it is, wherever that is */
            worker->mismatches += gm_buffer_check_host(worker, &guest, 0);
        gm_buffer_free(worker, &guest);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
    }
    gm_counter_free(worker, &counter);
    return NULL;
}

/* Every buffer is verified and rewritten once an iteration, one of them is looked at many times. */
void gm_mode_hot(struct gm_worker *worker)
{
    struct gm_guests guests = {.worker = worker};
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    struct gm_counter counter;
    bool has_guests = worker->mode[0] == 'g';
    uint64_t wrong = 0;

    gm_counter_make(worker, &counter);
    if (has_guests && pthread_create(&guests.thread, NULL, run_guests, &guests) != 0)
        gm_fail(worker, "no thread");
    for (; gm_is_more(worker, worker->done) && wrong == 0; worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++) {
            look(worker, &buffers[which(worker)], &counter);
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
            wrong = gm_counter_read(worker, &counter, NULL);
        }
    }
    guests.is_over = true;
    if (has_guests)
        pthread_join(guests.thread, NULL);
    worker->mismatches += wrong;
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
    gm_counter_free(worker, &counter);
    gm_buffers_free(worker, buffers);
}

/* A kernel that looks at memory of its own until that is not 0. */
struct gm_lasting {
    CUdeviceptr flag; /* 0: there is none */
    uint64_t at;
    CUstream stream;
};

static void begin_lasting(const struct gm_worker *worker, struct gm_lasting *lasting)
{
    GM_CU(worker, cuMemAlloc, &lasting->flag, GM_LASTING_BYTES);
    GM_CU(worker, cuMemsetD32, lasting->flag, 0, 1);
    GM_CU(worker, cuStreamCreate, &lasting->stream, CU_STREAM_NON_BLOCKING);
    void *args[] = {&lasting->flag};
    gm_launch(worker, GM_KERNEL_SPIN_UNTIL, lasting->stream, args);
}

static void end_lasting(const struct gm_worker *worker, struct gm_lasting *lasting)
{
    GM_CU(worker, cuMemsetD32, lasting->flag, 1, 1);
    GM_CU(worker, cuStreamSynchronize, lasting->stream);
    GM_CU(worker, cuStreamDestroy, lasting->stream);
    GM_CU(worker, cuMemFree, lasting->flag);
}

/* Mode part: of its buffers it works on the first. Mode lasts: and once --signal is there a kernel
 * begins that does not end. Mode moves: on each for --hold. Mode grows: it gets them one by one,
 * --hold after each other, and works on the newest until it has all; then on all of them. */
void gm_mode_part(struct gm_worker *worker)
{
    const bool grows = worker->mode[0] == 'g';
    struct gm_buffer *buffers = grows ? calloc(worker->allocs, sizeof *buffers) : NULL;
    const struct timespec pause = {.tv_sec = (time_t)(worker->hold_ns / GM_S),
                                   .tv_nsec = (long)(worker->hold_ns % GM_S)};
    struct gm_lasting lasting = {0};
    struct gm_counter counter;
    uint64_t wrong = 0;

    if (!grows)
        buffers = gm_buffers_make(worker, NULL);
    gm_counter_make(worker, &counter);
    for (uint32_t i = 0; grows && i < worker->allocs && wrong == 0; i++) {
        gm_buffer_make(worker, &buffers[i], worker->bytes / worker->allocs, gm_mix(worker->seed, i),
                       NULL);
        gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        wrong = gm_counter_read(worker, &counter, NULL);
        nanosleep(&pause, NULL);
    }
    if (grows)
        gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done) && wrong == 0; worker->done++) {
        const uint32_t one = worker->mode[0] == 'm' ? which(worker) : 0;
        if (worker->mode[0] == 'l' && lasting.flag == 0 && access(worker->signal, F_OK) == 0)
            begin_lasting(worker, &lasting);
        for (uint32_t i = grows ? 0 : one; i < (grows ? worker->allocs : one + 1); i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        wrong = gm_counter_read(worker, &counter, NULL);
    }
    if (lasting.flag != 0)
        end_lasting(worker, &lasting);
    worker->mismatches += wrong;
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
    gm_counter_free(worker, &counter);
    gm_buffers_free(worker, buffers);
}
