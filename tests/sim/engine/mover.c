/*
 * The fake mover: as mover.h says. Each direction is a stream: its copies begin and end in order,
 * and a copy in begins after the copy out that is its fence has ended on the GPU. A copy uses the
 * memory at both ends for as long as it runs (machine.h). The loop hears of its end later, and of
 * several at once. Each GPU has a mover of its own, which copies its memory only.
 */
#include "tests/sim/engine/machine.h"

#include <stdlib.h>

/* How often unchanged memory may be copied in a row. */
enum { VAIN_MOST = 3 };

struct copy {
    struct page *from[HANDLE_PAGES], *to[HANDLE_PAGES];
    uint32_t pages;
    uint64_t fence;
    bool is_clear;
    bool is_nowhere; /* its frame is not mapped: nothing is read or written */
    CUresult result;
};

struct way {
    struct copy copies[GM_WAY_DEPTH];
    uint64_t submitted, begun, ended, seen; /* begun is ended or one more */
    uint64_t bytes, under_way;
};

struct gm_mover {
    void (*on_done)(void *arg);
    void *arg;
    CUresult error;
    uint32_t gpu;
    bool is_waking, is_closed;
    struct way ways[GM_WAYS];
    uint64_t *count; /* of copies out that have ended */
};

static struct gm_mover *movers[GPUS]; /* those that are open */

static void begin_next(struct gm_mover *mover, enum gm_way way);

/* Of an event: its mover, unless that is closed; it may have been freed then. */
static bool is_open(const struct gm_mover *mover)
{
    for (uint32_t i = 0; i < GPUS; i++)
        if (movers[i] == mover)
            return true;
    return false;
}

uint64_t mover_ended(uint32_t gpu)
{
    return movers[gpu] ? movers[gpu]->ways[GM_WAY_OUT].ended : UINT64_MAX;
}

void gm_mover_count(struct gm_mover *mover, uint64_t *word, CUdeviceptr at)
{
    (void)at;
    mover->count = word;
}

static const char *name_of(enum gm_way way)
{
    return way == GM_WAY_OUT ? "a copy out" : "a copy in";
}

static void on_wake(void *arg, uint64_t a, uint64_t b)
{
    struct gm_mover *mover = arg;
    (void)a;
    (void)b;
    if (!is_open(mover) || mover->is_closed)
        return;
    mover->is_waking = false;
    for (int i = 0; i < GM_WAYS; i++) {
        struct way *way = &mover->ways[i];
        for (; way->seen < way->ended; way->seen++) {
            const struct copy *copy = &way->copies[(way->seen + 1) % GM_WAY_DEPTH];
            const uint64_t bytes = copy->is_clear ? 0 : (uint64_t)copy->pages << GM_CHUNK_SHIFT;
            way->bytes += copy->result == CUDA_SUCCESS ? bytes : 0;
            way->under_way -= bytes;
        }
    }
    trace("copies seen: %lu out, %lu in, of GPU %lu", mover->ways[0].seen, mover->ways[1].seen,
          mover->gpu);
    mover->on_done(mover->arg);
}

static void wake(struct gm_mover *mover)
{
    if (mover->is_waking)
        return;
    mover->is_waking = true;
    machine_at(machine.now + chance_time(50 * GM_US), on_wake, mover, 0, 0);
}

static void on_ended(void *arg, uint64_t w, uint64_t unused)
{
    struct gm_mover *mover = arg;
    (void)unused;
    if (!is_open(mover))
        return;
    struct way *way = &mover->ways[w];
    struct copy *copy = &way->copies[++way->ended % GM_WAY_DEPTH];
    const bool is_broken = copy->result != CUDA_SUCCESS;
    for (uint32_t i = 0; i < copy->pages && !copy->is_nowhere; i++) {
        if (copy->is_clear)
            page_end_clear(copy->to[i], is_broken);
        else if (is_broken)
            page_end_broken(copy->to[i], copy->from[i]);
        else
            page_end_copy(copy->to[i], copy->from[i]);
    }
    trace(w == GM_WAY_OUT ? "copy out %lu of GPU %lu ends (error %lu)"
                          : "copy in %lu of GPU %lu ends (error %lu)",
          way->ended, mover->gpu, copy->result);
    if (w == GM_WAY_OUT && mover->count)
        *mover->count = way->ended;
    wake(mover);
    begin_next(mover, (enum gm_way)w);
    if (w == GM_WAY_OUT)
        begin_next(mover, GM_WAY_IN);
}

static void begin_next(struct gm_mover *mover, enum gm_way w)
{
    struct way *way = &mover->ways[w];
    if (way->begun > way->ended || way->begun == way->submitted)
        return;
    struct copy *copy = &way->copies[(way->begun + 1) % GM_WAY_DEPTH];
    if (w == GM_WAY_IN && copy->fence > mover->ways[GM_WAY_OUT].ended)
        return;
    way->begun++;
    if (w == GM_WAY_IN && gpu_fails(mover->gpu, FAULT_COPY_IN))
        copy->result = CUDA_ERROR_UNKNOWN;
    for (uint32_t i = 0; i < copy->pages && !copy->is_nowhere; i++) {
        if (!copy->is_clear)
            page_begin_read(copy->from[i], name_of(w));
        page_begin_write(copy->to[i], name_of(w));
    }
    machine_at(machine.now + chance_time(copy->pages * machine.page_ns), on_ended, mover, w, 0);
}

static uint64_t submit(struct gm_mover *mover, enum gm_way w, const struct copy *copy)
{
    struct way *way = &mover->ways[w];
    require(way->submitted - way->seen < GM_WAY_DEPTH - 1, "too many copies at once");
    way->copies[++way->submitted % GM_WAY_DEPTH] = *copy;
    struct copy *own = &way->copies[way->submitted % GM_WAY_DEPTH];
    if (copy->is_nowhere)
        own->result = CUDA_ERROR_INVALID_VALUE;
    else if (w == GM_WAY_OUT && gpu_fails(mover->gpu, FAULT_COPY_OUT))
        own->result = CUDA_ERROR_UNKNOWN;
    way->under_way += copy->is_clear ? 0 : (uint64_t)copy->pages << GM_CHUNK_SHIFT;
    machine.sums.copies += !copy->is_clear;
    machine.sums.clears += copy->is_clear;
    trace(w == GM_WAY_OUT  ? "submit copy out %lu, %lu pages"
          : copy->is_clear ? "submit clear %lu, %lu pages, behind copy out %lu"
                           : "submit copy in %lu, %lu pages, behind copy out %lu",
          way->submitted, copy->pages, copy->fence);
    begin_next(mover, w);
    return way->submitted;
}

/* One that was under way may have ended, and have been counted. */
static void die(struct gm_mover *mover, enum gm_way w)
{
    struct way *way = &mover->ways[w];
    if (way->begun == way->ended)
        return;
    const struct copy *copy = &way->copies[(way->ended + 1) % GM_WAY_DEPTH];
    const bool is_whole = draw_percent(&machine.death, 50);
    for (uint32_t i = 0; i < copy->pages && !copy->is_nowhere; i++) {
        if (copy->is_clear)
            page_end_clear(copy->to[i], !is_whole);
        else if (is_whole)
            page_end_copy(copy->to[i], copy->from[i]);
        else
            page_end_broken(copy->to[i], copy->from[i]);
    }
    if (is_whole && w == GM_WAY_OUT && mover->count && copy->result == CUDA_SUCCESS &&
        draw_percent(&machine.death, 50))
        *mover->count = way->ended + 1;
}

void mover_die(void)
{
    for (uint32_t i = 0; i < GPUS; i++) {
        for (int way = 0; way < GM_WAYS && movers[i]; way++)
            die(movers[i], (enum gm_way)way);
        movers[i] = NULL;
    }
}

static void device_pages(const struct gm_mover *mover, CUdeviceptr at, uint64_t bytes,
                         struct page **pages)
{
    for (uint64_t i = 0; at != 0 && i < bytes >> GM_CHUNK_SHIFT; i++)
        pages[i] = page_of(at + (i << GM_CHUNK_SHIFT), mover->gpu);
}

/* Memory that is all zero needs no copy, as the GPU hashes it; nor what is as its copy, again and
 * again: one may have been made without a hash, and one with the first. The copy is there by
 * chance if others had its pages and wrote nothing, or if the memory was zero in between, so that
 * there was no copy. */
static void check_copy_out(const struct copy *copy)
{
    struct page *to = copy->to[0];
    bool is_same = to->takes - to->taken < 2, is_zero = true;
    for (uint32_t i = 0; i < copy->pages; i++) {
        is_same = is_same && copy->from[i]->tag == copy->to[i]->tag && !copy->from[i]->is_back;
        is_zero = is_zero && copy->from[i]->tag == 0;
        copy->from[i]->is_back = false;
    }
    to->taken = to->takes;
    to->vain = is_same ? to->vain + 1 : 0;
    require(!is_zero, "memory is copied out that is all zero");
    require(to->vain <= VAIN_MOST, "memory is copied out that is as its copy");
}

uint64_t gm_mover_submit(struct gm_mover *self, enum gm_way way, CUdeviceptr device,
                         const struct gm_hostpool *pool, uint32_t page, uint64_t bytes,
                         uint64_t fence)
{
    struct copy copy = {
        .pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT), .fence = fence, .is_nowhere = device == 0};
    device_pages(self, device, bytes, way == GM_WAY_OUT ? copy.from : copy.to);
    require(pinned_pages(pool, page, way == GM_WAY_OUT ? copy.to : copy.from, copy.pages) ==
                copy.pages,
            "a chain of pages is too short");
    if (way == GM_WAY_OUT && machine.is_calm && !machine.is_saving && device != 0)
        check_copy_out(&copy);
    return submit(self, way, &copy);
}

uint64_t gm_mover_copy(struct gm_mover *self, enum gm_way way, CUdeviceptr to, CUdeviceptr from,
                       uint64_t bytes, uint64_t fence)
{
    struct copy copy = {.pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT), .fence = fence};
    device_pages(self, to, bytes, copy.to);
    device_pages(self, from, bytes, copy.from);
    return submit(self, way, &copy);
}

uint64_t gm_mover_clear(struct gm_mover *self, CUdeviceptr device, uint64_t bytes, uint64_t fence)
{
    struct copy copy = {.pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT),
                        .fence = fence,
                        .is_clear = true,
                        .is_nowhere = device == 0};
    device_pages(self, device, bytes, copy.to);
    return submit(self, GM_WAY_IN, &copy);
}

int gm_mover_open(struct gm_mover **out, uv_loop_t *loop, const struct gm_cuda *cuda,
                  CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                  size_t why_size)
{
    (void)loop;
    (void)cuda;
    (void)why;
    (void)why_size;
    struct gm_mover *mover = calloc(1, sizeof *mover);
    require(mover, "no memory");
    mover->gpu = gpu_of(context);
    *out = movers[mover->gpu] = mover;
    mover->on_done = on_done;
    mover->arg = arg;
    return 0;
}

/* Waits for all copies. */
void gm_mover_close(struct gm_mover *self)
{
    self->is_closed = true;
    for (int i = 0; i < GM_WAYS; i++)
        while (self->ways[i].ended < self->ways[i].submitted)
            require(machine_step(UINT64_MAX), "a copy does not end");
    movers[self->gpu] = NULL;
    free(self);
}

uint64_t gm_mover_room(const struct gm_mover *self, enum gm_way w)
{
    const struct way *way = &self->ways[w];
    const uint64_t used = way->submitted - way->seen;
    const uint64_t most =
        machine.mover_room < GM_WAY_DEPTH - 1 ? machine.mover_room : GM_WAY_DEPTH - 1;
    return used < most ? most - used : 0;
}

uint64_t gm_mover_done(const struct gm_mover *self, enum gm_way way)
{
    return self->ways[way].seen;
}

uint64_t gm_mover_under_way(const struct gm_mover *self, enum gm_way way)
{
    return self->ways[way].under_way;
}

uint64_t gm_mover_bytes(const struct gm_mover *self, enum gm_way way)
{
    return self->ways[way].bytes;
}

CUresult gm_mover_result(const struct gm_mover *self, enum gm_way way, uint64_t number)
{
    return self->ways[way].copies[number % GM_WAY_DEPTH].result;
}

CUresult gm_mover_error(const struct gm_mover *self)
{
    return self->error;
}

void mover_lose_context(uint32_t gpu)
{
    movers[gpu]->error = CUDA_ERROR_LAUNCH_FAILED;
    wake(movers[gpu]);
}
