/* The memory of a ledger: see ledger.h. */
#include "daemon/engine/act/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/core/table_adopt.h"
#include "daemon/core/table_apps.h"
#include "daemon/memory/kept.h"

_Static_assert(GM_MOVER_UNCOUNTED == GM_LEDGER_UNCOUNTED, "what the mover says, the ledger says");

int gm_engine_make_ledger(const char *name, size_t bytes, void **memory)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    *memory = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0)
        *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*memory != MAP_FAILED)
        return fd;
    const int error = -errno;
    close(fd);
    return error;
}

void gm_engine_end_ledger(int fd, void *memory, size_t bytes)
{
    munmap(memory, bytes);
    close(fd);
}

/* Where the GPU reaches the page of this word. False: nowhere. */
static bool map_out(const struct gm_cuda *cuda, uint64_t *word, CUdeviceptr *at)
{
    if (cuda->cuMemHostRegister_v2(word, GM_LEDGER_PAGE, CU_MEMHOSTREGISTER_DEVICEMAP) !=
        CUDA_SUCCESS)
        return false;
    if (cuda->cuMemHostGetDevicePointer_v2(at, word, 0) == CUDA_SUCCESS)
        return true;
    cuda->cuMemHostUnregister(word);
    return false;
}

/* Of the GPU's name. */
uint64_t gm_engine_gpu_number(const struct gm_engine *engine)
{
    uint64_t number = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < sizeof engine->uuid.bytes; i++)
        number = (number ^ (uint8_t)engine->uuid.bytes[i]) * 0x100000001b3ull;
    return number;
}

int gm_engine_open_ledger(struct gm_engine *engine, uint64_t generation)
{
    const struct gm_table *table = engine->table;
    struct gm_ledger ledger = {.max_apps = table->max_apps,
                               .max_chunks = table->max_chunks,
                               .max_frames = table->max_frames,
                               .gpu = gm_engine_gpu_number(engine),
                               .pages = {[GM_TIER_PINNED] = gm_hostpool_pages(&engine->pool)}};
    for (unsigned tier = GM_TIER_PAGED; tier <= GM_TIER_DISK; tier++)
        ledger.pages[tier] =
            (uint32_t)(gm_stores_cap(engine->stores, (enum gm_tier)tier) >> GM_CHUNK_SHIFT);
    const size_t bytes = gm_ledger_size(&ledger);
    void *memory;
    const int fd = bytes > 0 ? gm_engine_make_ledger("gpumux-ledger", bytes, &memory) : -EOVERFLOW;
    if (fd < 0)
        return fd;
    gm_ledger_init(&ledger, memory);
    /* Where the GPU cannot count copies out there is none: it would not be exact. */
    CUdeviceptr out;
    if (!map_out(&engine->cuda, gm_ledger_out(&ledger), &out)) {
        gm_engine_end_ledger(fd, memory, bytes);
        return 0;
    }
    engine->ledger.fd = fd;
    engine->ledger.memory = memory;
    engine->ledger.bytes = bytes;
    engine->ledger.generation = generation;
    engine->ledger.is = ledger;
    gm_mover_count(engine->mover, gm_ledger_out(&ledger), out);
    gm_pages_keep(&engine->pool.pages, gm_ledger_chains(&ledger, GM_TIER_PINNED));
    for (unsigned tier = GM_TIER_PAGED; tier <= GM_TIER_DISK; tier++)
        gm_stores_keep(engine->stores, (enum gm_tier)tier,
                       gm_ledger_chains(&ledger, (enum gm_tier)tier));
    return 0;
}

int gm_engine_begin_ledger(struct gm_engine *engine)
{
    const uint64_t generation = engine->ledger.generation;
    if (!engine->ledger.memory)
        return 0;
    gm_table_keep_ledger(engine->table, &engine->ledger.is);
    gm_table_commit_all(engine->table);
    for (const struct gm_share *share = engine->shares; share; share = share->next) {
        const uint32_t at = share->owner == GM_NONE
                                ? GM_NONE
                                : gm_table_find_allocation(engine->table, share->owner, share->va);
        if (at != GM_NONE)
            gm_ledger_share_allocation(&engine->ledger.is, at, share->id, share->nonce);
    }
    gm_kept_mark(engine->config.kept, gm_ledger_made(&engine->ledger.is), GM_LEDGER_MAGIC);
    const int error = gm_kept_put(engine->config.kept, GM_KEPT_LEDGER, engine->config.index,
                                  generation & 1, generation, engine->ledger.fd);
    if (error == 0)
        gm_kept_drop(engine->config.kept, GM_KEPT_LEDGER, engine->config.index, !(generation & 1));
    return error;
}

void gm_engine_close_ledger(struct gm_engine *engine)
{
    if (!engine->ledger.memory)
        return;
    gm_table_keep_ledger(engine->table, &(struct gm_ledger){0});
    gm_kept_drop(engine->config.kept, GM_KEPT_LEDGER, engine->config.index,
                 engine->ledger.generation & 1);
    gm_kept_unmark(engine->config.kept, gm_ledger_made(&engine->ledger.is));
    engine->cuda.cuMemHostUnregister((char *)engine->ledger.memory + GM_LEDGER_PAGE);
    gm_engine_end_ledger(engine->ledger.fd, engine->ledger.memory, engine->ledger.bytes);
    engine->ledger.memory = NULL;
}
