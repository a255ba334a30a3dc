#include "daemon/memory/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/locks.h"
#include "daemon/memory/hash_ptx.h"

struct entry {
    uint64_t bytes;
    CUresult result; /* of the launch */
};

/* A launch: hashes up to number `last`, since the one before. */
struct batch {
    uint64_t last;
    bool is_launched; /* with an event before and one behind it */
};

/* seen <= ended <= posted; launched <= submitted. Batches count from 1, too. */
struct gm_hasher {
    const struct gm_cuda *cuda;
    CUcontext context;
    uint64_t tile_keys[GM_HASH_LANES][GM_HASH_TILES];
    struct gm_hash_launch launch; /* the one that is filled */
    uint32_t n_jobs, most_tiles;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    CUevent begins[GM_HASH_DEPTH], ends[GM_HASH_DEPTH]; /* of batch n: [n % GM_HASH_DEPTH] */
    struct gm_hash_tile *tiles; /* pinned: GM_HASH_TILES for each hash, by its number */
    struct entry entries[GM_HASH_DEPTH];
    uint64_t submitted, seen, bytes;
    uint64_t batches; /* made */
    uv_async_t wake;
    uv_prepare_t rest; /* before the loop waits: launch what was submitted */
    unsigned handles;
    void (*on_done)(void *arg);
    void *arg;
    uv_thread_t waiter;
    bool has_waiter;
    struct gm_lock lock; /* of what follows */
    pthread_cond_t more;
    struct batch posted_batches[GM_HASH_DEPTH];
    uint64_t posted, ended, ns;
    CUresult error; /* the first wait that failed: no hash is known since */
    bool is_stopping;
};

/* ---- the key, and the host's part of the hash ---- */

static int draw(void *to, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t n = getrandom((char *)to + at, size - at, 0);
        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Each number below the prime with the same chance. */
static int draw_below_prime(uint64_t *numbers, size_t n)
{
    int error = draw(numbers, n * sizeof *numbers);
    for (size_t i = 0; i < n && error == 0; i++) {
        numbers[i] &= GM_HASH_PRIME;
        while (error == 0 && numbers[i] == GM_HASH_PRIME) {
            error = draw(&numbers[i], sizeof numbers[i]);
            numbers[i] &= GM_HASH_PRIME;
        }
    }
    return error;
}

int gm_hash_draw(struct gm_hash_key *key, uint64_t tiles[GM_HASH_LANES][GM_HASH_TILES])
{
    int error = draw(key->nh, sizeof key->nh);
    for (int lane = 0; lane < GM_HASH_LANES && error == 0; lane++) {
        error = draw_below_prime(key->fold[lane], 2 * GM_HASH_PASSES);
        if (error == 0)
            error = draw_below_prime(key->tree[lane], GM_HASH_LEVELS);
        if (error == 0)
            error = draw_below_prime(tiles[lane], GM_HASH_TILES);
    }
    return error;
}

void gm_hash_finish(const uint64_t keys[GM_HASH_LANES][GM_HASH_TILES],
                    const struct gm_hash_tile *tiles, uint32_t n, struct gm_hashed *hashed)
{
    uint64_t has_data = 0;
    for (int lane = 0; lane < GM_HASH_LANES; lane++) {
        unsigned __int128 sum = 0; /* of 256 products below 2^122 */
        for (uint32_t i = 0; i < n; i++) {
            has_data |= tiles[i].lane[0] & GM_HASH_HAS_DATA;
            sum += (unsigned __int128)keys[lane][i] * (tiles[i].lane[lane] & GM_HASH_PRIME);
            sum = (sum & GM_HASH_PRIME) + (sum >> 61);
        }
        hashed->hash[lane] = (uint64_t)(sum % GM_HASH_PRIME);
    }
    hashed->is_zero = has_data == 0;
}

/* ---- launches ---- */

static CUresult launch(struct gm_hasher *hasher)
{
    void *params[] = {&hasher->launch};
    return hasher->cuda->cuLaunchKernel(hasher->function, hasher->most_tiles, hasher->n_jobs, 1,
                                        GM_HASH_THREADS, 1, 1, 0, hasher->stream, params, NULL);
}

static void add_job(struct gm_hasher *hasher, CUdeviceptr device, uint64_t bytes, uint32_t slot)
{
    const uint32_t tiles = (uint32_t)(bytes / GM_HASH_TILE);
    assert(bytes % GM_HASH_TILE == 0 && tiles > 0 && tiles <= GM_HASH_TILES);
    hasher->launch.jobs[hasher->n_jobs++] =
        (struct gm_hash_job){.address = device, .tiles = tiles, .result = slot * GM_HASH_TILES};
    if (tiles > hasher->most_tiles)
        hasher->most_tiles = tiles;
}

static void clear_jobs(struct gm_hasher *hasher)
{
    memset(hasher->launch.jobs, 0, sizeof hasher->launch.jobs);
    hasher->n_jobs = hasher->most_tiles = 0;
}

/* The waiter learns of a batch: what was submitted last. */
static void hand_over(struct gm_hasher *hasher, bool is_launched)
{
    const uint64_t n = ++hasher->batches;
    gm_lock(&hasher->lock);
    hasher->posted_batches[n % GM_HASH_DEPTH] =
        (struct batch){.last = hasher->submitted, .is_launched = is_launched};
    hasher->posted = n;
    pthread_cond_signal(&hasher->more);
    gm_unlock(&hasher->lock);
}

/* Launch what was submitted. The waiter learns of its end also if the driver refused it. */
static void post(struct gm_hasher *hasher)
{
    const struct gm_cuda *cuda = hasher->cuda;
    const uint64_t n = hasher->batches + 1;
    if (hasher->n_jobs == 0)
        return;
    CUresult result = cuda->cuEventRecord(hasher->begins[n % GM_HASH_DEPTH], hasher->stream);
    if (result == CUDA_SUCCESS)
        result = launch(hasher);
    if (result == CUDA_SUCCESS)
        result = cuda->cuEventRecord(hasher->ends[n % GM_HASH_DEPTH], hasher->stream);
    if (result != CUDA_SUCCESS)
        cuda->cuStreamSynchronize(hasher->stream); /* it may read the chunks, and write results */
    for (uint32_t i = 0; i < hasher->n_jobs; i++)
        hasher->entries[(hasher->submitted - i) % GM_HASH_DEPTH].result = result;
    clear_jobs(hasher);
    hand_over(hasher, result == CUDA_SUCCESS);
}

static void on_rest(uv_prepare_t *prepare)
{
    post(prepare->data);
}

uint64_t gm_hasher_room(const struct gm_hasher *hasher)
{
    return GM_HASH_DEPTH - 1 - (hasher->submitted - hasher->seen);
}

uint64_t gm_hasher_submit(struct gm_hasher *hasher, CUdeviceptr device, uint64_t bytes)
{
    if (device == 0)
        post(hasher); /* those before it */
    const uint64_t number = ++hasher->submitted;
    struct entry *entry = &hasher->entries[number % GM_HASH_DEPTH];
    *entry = (struct entry){.bytes = bytes};
    if (device == 0) {
        entry->result = CUDA_ERROR_NOT_MAPPED;
        hand_over(hasher, false);
        return number;
    }
    add_job(hasher, device, bytes, (uint32_t)(number % GM_HASH_DEPTH));
    if (hasher->n_jobs == GM_HASH_JOBS)
        post(hasher);
    return number;
}

/* ---- the waiter ---- */

/* Wait for a batch. How long it took, in nanoseconds. */
static CUresult wait_batch(const struct gm_hasher *hasher, uint64_t n, uint64_t *ns)
{
    const uint32_t at = (uint32_t)(n % GM_HASH_DEPTH);
    float ms = 0;
    CUresult result = hasher->cuda->cuEventSynchronize(hasher->ends[at]);
    if (result == CUDA_SUCCESS &&
        hasher->cuda->cuEventElapsedTime(&ms, hasher->begins[at], hasher->ends[at]) == CUDA_SUCCESS)
        *ns = (uint64_t)((double)ms * 1e6);
    return result;
}

static void wait_hashes(void *arg)
{
    struct gm_hasher *hasher = arg;
    hasher->cuda->cuCtxSetCurrent(hasher->context);
    for (uint64_t n = 1;; n++) {
        uint64_t ns = 0;
        CUresult result = CUDA_SUCCESS;
        gm_lock(&hasher->lock);
        while (hasher->posted < n && !hasher->is_stopping)
            gm_lock_wait(&hasher->more, &hasher->lock);
        const bool is_over = hasher->posted < n;
        const struct batch batch = hasher->posted_batches[n % GM_HASH_DEPTH];
        gm_unlock(&hasher->lock);
        if (is_over)
            return;
        if (batch.is_launched)
            result = wait_batch(hasher, n, &ns);
        /* Under the lock, for the reason that mover.c gives. */
        gm_lock(&hasher->lock);
        hasher->ended = batch.last;
        hasher->ns += ns;
        if (hasher->error == CUDA_SUCCESS)
            hasher->error = result;
        uv_async_send(&hasher->wake);
        gm_unlock(&hasher->lock);
    }
}

static void on_wake(uv_async_t *async)
{
    struct gm_hasher *hasher = async->data;
    gm_lock(&hasher->lock);
    const uint64_t ended = hasher->ended;
    const CUresult error = hasher->error;
    gm_unlock(&hasher->lock);
    for (; hasher->seen < ended; hasher->seen++) {
        struct entry *entry = &hasher->entries[(hasher->seen + 1) % GM_HASH_DEPTH];
        if (entry->result == CUDA_SUCCESS)
            entry->result = error;
        hasher->bytes += entry->result == CUDA_SUCCESS ? entry->bytes : 0;
    }
    hasher->on_done(hasher->arg);
}

uint64_t gm_hasher_done(const struct gm_hasher *hasher)
{
    return hasher->seen;
}

CUresult gm_hasher_result(const struct gm_hasher *hasher, uint64_t number, struct gm_hashed *hashed)
{
    const uint32_t at = (uint32_t)(number % GM_HASH_DEPTH);
    const struct entry *entry = &hasher->entries[at];
    if (entry->result == CUDA_SUCCESS)
        gm_hash_finish(hasher->tile_keys, hasher->tiles + at * GM_HASH_TILES,
                       (uint32_t)(entry->bytes / GM_HASH_TILE), hashed);
    return entry->result;
}

uint64_t gm_hasher_bytes(const struct gm_hasher *hasher)
{
    return hasher->bytes;
}

uint64_t gm_hasher_ns(const struct gm_hasher *hasher)
{
    struct gm_hasher *lockable = (struct gm_hasher *)(uintptr_t)hasher;
    gm_lock(&lockable->lock);
    const uint64_t ns = hasher->ns;
    gm_unlock(&lockable->lock);
    return ns;
}

/* ---- opening and closing ---- */

/* Hash the one tile at `data` now. */
static CUresult hash_now(struct gm_hasher *hasher, const void *data, struct gm_hashed *hashed)
{
    add_job(hasher, (CUdeviceptr)(uintptr_t)data, GM_HASH_TILE, 0);
    CUresult result = launch(hasher);
    clear_jobs(hasher);
    if (result == CUDA_SUCCESS)
        result = hasher->cuda->cuStreamSynchronize(hasher->stream);
    gm_hash_finish(hasher->tile_keys, hasher->tiles, 1, hashed);
    return result;
}

static bool is_equal(const struct gm_hashed *a, const struct gm_hashed *b)
{
    return memcmp(a->hash, b->hash, sizeof a->hash) == 0 && a->is_zero == b->is_zero;
}

/* See whether the kernel does on this machine what it must, on a tile behind the first results. */
static int try_kernel(struct gm_hasher *hasher, char *why, size_t why_size)
{
    unsigned char *data = (unsigned char *)&hasher->tiles[GM_HASH_DEPTH * GM_HASH_TILES / 2];
    struct gm_hashed zero, one, again, other;
    CUresult result = CUDA_SUCCESS;
    const char *wrong = NULL;

    memset(data, 0, GM_HASH_TILE);
    result = hash_now(hasher, data, &zero);
    for (uint32_t i = 0; i < GM_HASH_TILE; i++)
        data[i] = (unsigned char)((i * 2654435761u) >> 24);
    if (result == CUDA_SUCCESS)
        result = hash_now(hasher, data, &one);
    if (result == CUDA_SUCCESS)
        result = hash_now(hasher, data, &again);
    data[GM_HASH_TILE - 1] ^= 0x80;
    if (result == CUDA_SUCCESS)
        result = hash_now(hasher, data, &other);
    if (result != CUDA_SUCCESS)
        wrong = gm_cuda_text(hasher->cuda, result);
    else if (!zero.is_zero || one.is_zero || !is_equal(&one, &again) || is_equal(&one, &other))
        wrong = "it gives wrong results";
    if (!wrong)
        return 0;
    snprintf(why, why_size, "the GPU does not run the hash kernel (%s)", wrong);
    return -EIO;
}

static CUresult load(struct gm_hasher *hasher)
{
    const struct gm_cuda *cuda = hasher->cuda;
    CUresult result = cuda->cuModuleLoadData(&hasher->module, gm_hash_ptx);
    if (result == CUDA_SUCCESS)
        result = cuda->cuModuleGetFunction(&hasher->function, hasher->module, GM_HASH_KERNEL);
    if (result == CUDA_SUCCESS)
        result = cuda->cuStreamCreate(&hasher->stream, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < GM_HASH_DEPTH; i++) {
        result = cuda->cuEventCreate(&hasher->begins[i], CU_EVENT_DEFAULT);
        if (result == CUDA_SUCCESS)
            result = cuda->cuEventCreate(&hasher->ends[i], CU_EVENT_BLOCKING_SYNC);
    }
    if (result == CUDA_SUCCESS)
        result = cuda->cuMemHostAlloc((void **)&hasher->tiles,
                                      GM_HASH_DEPTH * GM_HASH_TILES * sizeof *hasher->tiles, 0);
    hasher->launch.results = (uint64_t)(uintptr_t)hasher->tiles;
    return result;
}

static void free_hasher(uv_handle_t *handle)
{
    struct gm_hasher *hasher = handle->data;
    if (--hasher->handles > 0)
        return;
    explicit_bzero(hasher, sizeof *hasher); /* the key */
    free(hasher);
}

int gm_hasher_open(struct gm_hasher **out, uv_loop_t *loop, const struct gm_cuda *cuda,
                   CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                   size_t why_size)
{
    struct gm_hasher *hasher = calloc(1, sizeof *hasher);
    int error = hasher ? 0 : -ENOMEM;
    if (error == 0)
        error = gm_hash_draw(&hasher->launch.key, hasher->tile_keys);
    if (error == 0)
        error = uv_async_init(loop, &hasher->wake, on_wake);
    if (error) {
        snprintf(why, why_size, "no hashes: %s", strerror(-error));
        free(hasher);
        return error;
    }
    hasher->cuda = cuda;
    hasher->context = context;
    hasher->on_done = on_done;
    hasher->arg = arg;
    hasher->wake.data = hasher->rest.data = hasher;
    hasher->handles = 2;
    gm_lock_init(&hasher->lock, GM_LOCK_HASH);
    pthread_cond_init(&hasher->more, NULL);
    uv_prepare_init(loop, &hasher->rest);
    uv_prepare_start(&hasher->rest, on_rest);
    uv_unref((uv_handle_t *)&hasher->rest);
    const CUresult result = load(hasher);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "the driver does not take the hash kernel (%s)",
                 gm_cuda_text(cuda, result));
        error = -EIO;
    }
    if (error == 0)
        error = try_kernel(hasher, why, why_size);
    if (error == 0 && uv_thread_create(&hasher->waiter, wait_hashes, hasher) != 0) {
        snprintf(why, why_size, "cannot start the thread that waits for hashes");
        error = -EAGAIN;
    }
    if (error) {
        gm_hasher_close(hasher);
        return error;
    }
    hasher->has_waiter = true;
    *out = hasher;
    return 0;
}

void gm_hasher_close(struct gm_hasher *hasher)
{
    if (!hasher)
        return;
    const struct gm_cuda *cuda = hasher->cuda;
    if (hasher->has_waiter) {
        post(hasher);
        gm_lock(&hasher->lock);
        hasher->is_stopping = true;
        pthread_cond_signal(&hasher->more);
        gm_unlock(&hasher->lock);
        uv_thread_join(&hasher->waiter);
    }
    if (hasher->stream)
        cuda->cuStreamDestroy_v2(hasher->stream);
    for (unsigned i = 0; i < GM_HASH_DEPTH; i++) {
        if (hasher->begins[i])
            cuda->cuEventDestroy_v2(hasher->begins[i]);
        if (hasher->ends[i])
            cuda->cuEventDestroy_v2(hasher->ends[i]);
    }
    if (hasher->module)
        cuda->cuModuleUnload(hasher->module);
    if (hasher->tiles)
        cuda->cuMemFreeHost(hasher->tiles);
    gm_lock_destroy(&hasher->lock);
    pthread_cond_destroy(&hasher->more);
    uv_close((uv_handle_t *)&hasher->rest, free_hasher);
    uv_close((uv_handle_t *)&hasher->wake, free_hasher);
}
