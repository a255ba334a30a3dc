/*
 * The fake hasher: as daemon/memory/hash.h says. A hash is of the tags of a chunk's pages; all are
 * 0: it is zero. The pages are read for as long as it runs. Hashes end in order, and the loop hears
 * of several at once. Each GPU has a hasher of its own, which hashes its memory only.
 */
#include "tests/sim/engine/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/memory/hash.h"

enum { DEPTH = GM_HASH_DEPTH };

struct hash {
    struct page *pages[HANDLE_PAGES];
    uint32_t n;
    struct gm_hashed hashed;
    CUresult result;
};

struct gm_hasher {
    void (*on_done)(void *arg);
    void *arg;
    struct hash hashes[DEPTH];
    uint64_t submitted, ended, seen, bytes;
    uint32_t gpu;
    bool is_waking, is_closed, is_busy;
};

static struct gm_hasher *hashers[GPUS]; /* those that are open */

static void begin_next(struct gm_hasher *hasher);

/* Of an event: its hasher, unless that is closed; it may have been freed then. */
static bool is_open(const struct gm_hasher *hasher)
{
    for (uint32_t i = 0; i < GPUS; i++)
        if (hashers[i] == hasher)
            return true;
    return false;
}

static void on_wake(void *arg, uint64_t a, uint64_t b)
{
    struct gm_hasher *hasher = arg;
    (void)a;
    (void)b;
    if (!is_open(hasher) || hasher->is_closed)
        return;
    hasher->is_waking = false;
    hasher->seen = hasher->ended;
    trace("hashes seen: %lu", hasher->seen, 0, 0);
    hasher->on_done(hasher->arg);
}

static void on_ended(void *arg, uint64_t a, uint64_t b)
{
    struct gm_hasher *hasher = arg;
    (void)a;
    (void)b;
    if (!is_open(hasher))
        return;
    struct hash *hash = &hasher->hashes[++hasher->ended % DEPTH];
    hash->hashed.is_zero = true;
    hash->hashed.hash[0] = 0xcbf29ce484222325ull;
    for (uint32_t i = 0; i < hash->n; i++) {
        hash->hashed.is_zero = hash->hashed.is_zero && hash->pages[i]->tag == 0;
        hash->hashed.hash[0] = (hash->hashed.hash[0] ^ hash->pages[i]->tag) * 0x100000001b3ull;
        page_end_read(hash->pages[i]);
    }
    hash->hashed.hash[1] = hash->n;
    hasher->bytes += (uint64_t)hash->n << GM_CHUNK_SHIFT;
    hasher->is_busy = false;
    if (!hasher->is_waking)
        machine_at(machine.now + chance_time(50 * GM_US), on_wake, hasher, 0, 0);
    hasher->is_waking = true;
    begin_next(hasher);
}

static void begin_next(struct gm_hasher *hasher)
{
    if (hasher->is_busy || hasher->ended == hasher->submitted)
        return;
    hasher->is_busy = true;
    machine_at(machine.now + chance_time(10 * GM_US), on_ended, hasher, 0, 0);
}

uint64_t gm_hasher_submit(struct gm_hasher *self, CUdeviceptr device, uint64_t bytes)
{
    require(gm_hasher_room(self) > 0, "too many hashes at once");
    struct hash *hash = &self->hashes[++self->submitted % DEPTH];
    *hash = (struct hash){.n = device == 0 ? 0 : (uint32_t)(bytes >> GM_CHUNK_SHIFT)};
    for (uint32_t i = 0; i < hash->n; i++) {
        hash->pages[i] = page_of(device + i * GM_CHUNK_MIN, self->gpu);
        page_begin_read(hash->pages[i], "a hash");
    }
    if (device == 0)
        hash->result = CUDA_ERROR_NOT_MAPPED;
    else if (gpu_fails(self->gpu, FAULT_HASH))
        hash->result = CUDA_ERROR_UNKNOWN;
    trace("submit hash %lu, %lu pages", self->submitted, hash->n, 0);
    begin_next(self);
    return self->submitted;
}

int gm_hasher_open(struct gm_hasher **out, uv_loop_t *loop, const struct gm_cuda *cuda,
                   CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                   size_t why_size)
{
    (void)loop;
    (void)cuda;
    if (gpu_fails(gpu_of(context), FAULT_HASH)) {
        snprintf(why, why_size, "this GPU does not hash");
        return -ENOTSUP;
    }
    struct gm_hasher *hasher = calloc(1, sizeof *hasher);
    require(hasher, "no memory");
    hasher->gpu = gpu_of(context);
    *out = hashers[hasher->gpu] = hasher;
    hasher->on_done = on_done;
    hasher->arg = arg;
    return 0;
}

void hasher_die(void)
{
    for (uint32_t k = 0; k < GPUS; k++) {
        for (uint64_t n = hashers[k] ? hashers[k]->ended + 1 : 1;
             hashers[k] && n <= hashers[k]->submitted; n++)
            for (uint32_t i = 0; i < hashers[k]->hashes[n % DEPTH].n; i++)
                page_end_read(hashers[k]->hashes[n % DEPTH].pages[i]);
        hashers[k] = NULL;
    }
}

void gm_hasher_close(struct gm_hasher *self)
{
    if (!self)
        return;
    self->is_closed = true;
    while (self->ended < self->submitted)
        require(machine_step(UINT64_MAX), "a hash does not end");
    hashers[self->gpu] = NULL;
    free(self);
}

uint64_t gm_hasher_room(const struct gm_hasher *self)
{
    return DEPTH - 1 - (self->submitted - self->seen);
}

uint64_t gm_hasher_done(const struct gm_hasher *self)
{
    return self->seen;
}

CUresult gm_hasher_result(const struct gm_hasher *self, uint64_t number, struct gm_hashed *hashed)
{
    const struct hash *hash = &self->hashes[number % DEPTH];
    require(number <= self->seen && self->submitted - number < DEPTH, "a hash is not known");
    *hashed = hash->hashed;
    return hash->result;
}

uint64_t gm_hasher_bytes(const struct gm_hasher *self)
{
    return self->bytes;
}

uint64_t gm_hasher_ns(const struct gm_hasher *self)
{
    (void)self;
    return 0;
}
