/* The memory of a ledger: see ledger.h. */
#include "daemon/engine/act/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/core/table_apps.h"

_Static_assert(GM_MOVER_UNCOUNTED == GM_LEDGER_UNCOUNTED, "what the mover says, the ledger says");

int gm_engine_open_ledger(struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    struct gm_ledger ledger = {.max_apps = table->max_apps,
                               .max_chunks = table->max_chunks,
                               .max_frames = table->max_frames,
                               .pages = {[GM_TIER_PINNED] = gm_hostpool_pages(&engine->pool)}};
    for (unsigned tier = GM_TIER_PAGED; tier <= GM_TIER_DISK; tier++)
        ledger.pages[tier] =
            (uint32_t)(gm_stores_cap(engine->stores, (enum gm_tier)tier) >> GM_CHUNK_SHIFT);
    const size_t bytes = gm_ledger_size(&ledger);
    void *memory = MAP_FAILED;
    int error;
    if (bytes == 0)
        return -EOVERFLOW;
    const int fd = memfd_create("gpumux-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK))
        goto fail;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        goto fail;
    gm_ledger_init(&ledger, memory);
    /* Where the GPU cannot count copies out there is none: it would not be exact. */
    if (engine->cuda.cuMemHostRegister_v2(gm_ledger_out(&ledger), GM_LEDGER_PAGE, 0) !=
        CUDA_SUCCESS) {
        munmap(memory, bytes);
        close(fd);
        return 0;
    }
    engine->ledger.fd = fd;
    engine->ledger.memory = memory;
    engine->ledger.bytes = bytes;
    gm_mover_count(engine->mover, gm_ledger_out(&ledger));
    gm_table_keep_ledger(engine->table, &ledger);
    gm_pages_keep(&engine->pool.pages, gm_ledger_chains(&ledger, GM_TIER_PINNED));
    for (unsigned tier = GM_TIER_PAGED; tier <= GM_TIER_DISK; tier++)
        gm_stores_keep(engine->stores, (enum gm_tier)tier,
                       gm_ledger_chains(&ledger, (enum gm_tier)tier));
    return 0;

fail:
    error = -errno;
    close(fd);
    return error;
}

void gm_engine_close_ledger(struct gm_engine *engine)
{
    if (!engine->ledger.memory)
        return;
    gm_table_keep_ledger(engine->table, &(struct gm_ledger){0});
    engine->cuda.cuMemHostUnregister((char *)engine->ledger.memory + GM_LEDGER_PAGE);
    munmap(engine->ledger.memory, engine->ledger.bytes);
    close(engine->ledger.fd);
    engine->ledger.memory = NULL;
}
