/*
 * cuGetProcAddress, both ABIs. The CUDA runtime asks it for some 440 functions before cuInit.
 *
 * The real resolver answers first. Its answer is replaced by a wrapper only if
 *
 *   - libcuda exports the answer's address under a hooked symbol of that api; or
 *   - (name, version, stream mode) selects a hooked row, and the driver gives the same address for
 *     the version in which that row's ABI began.
 *
 * A newer ABI of the same name, which these tables do not know, has another address and passes
 * through. Nothing is guessed from suffixes. symbolStatus is the driver's. Names may be empty or
 * NULL.
 *
 * The tables are hashed once, at load, or by the first look-up of an earlier constructor. Inserting
 * is a compare-and-swap in row order, so threads that race build the same table.
 */
#include "shim/entry/procaddr.h"
#include "shim/driver/real.h"
#include "shim/handlers/handlers.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum mode { ANY, LEGACY, PTDS, PTSZ };

static const struct gm_row rows[] = {
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    {#api, #symbol, &gm_real.symbol, (void *)symbol, since, mode},
#include "shim/driver/hooks.def"
#undef GM_HOOK
#define GM_PASS(api, symbol, since, mode, reason) {#api, #symbol, NULL, NULL, since, mode},
#include "shim/driver/pass.def"
#undef GM_PASS
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Open addressing; a slot holds a row's index plus 1. At most a third full. */
#define SLOTS 2048u
_Static_assert(ROWS * 3 < SLOTS, "grow the hash tables");
static _Atomic uint16_t by_api[SLOTS];
static _Atomic uint16_t by_symbol[SLOTS]; /* rows of hooks.def only */
static _Atomic bool is_built;

static uint32_t hash_name(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

static void insert(_Atomic uint16_t *table, const char *name, uint16_t number)
{
    for (uint32_t i = hash_name(name);; i++) {
        uint16_t seen = 0;
        if (atomic_compare_exchange_strong(&table[i % SLOTS], &seen, number) || seen == number)
            return;
    }
}

__attribute__((constructor)) static void build(void)
{
    if (atomic_load_explicit(&is_built, memory_order_acquire))
        return;
    for (size_t i = 0; i < ROWS; i++) {
        insert(by_api, rows[i].api, (uint16_t)(i + 1));
        if (rows[i].wrapper)
            insert(by_symbol, rows[i].symbol, (uint16_t)(i + 1));
    }
    atomic_store_explicit(&is_built, true, memory_order_release);
}

/* The row in slot `*i`, or NULL at the end of the chain; increments *i. */
static const struct gm_row *next_row(const _Atomic uint16_t *table, uint32_t *i)
{
    uint16_t number = atomic_load_explicit(&table[(*i)++ % SLOTS], memory_order_relaxed);
    return number ? &rows[number - 1] : NULL;
}

void *gm_row_real(const struct gm_row *row)
{
    typedef void *__attribute__((may_alias)) any_pointer;
    return __atomic_load_n((const any_pointer *)row->real, __ATOMIC_RELAXED);
}

bool gm_reach_disabled(void)
{
    static _Atomic int known; /* 0: not read yet; else 1 + the answer */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);

    if (!answer) {
        const char *value = getenv("GPUMUX_DISABLE");
        answer = 1 + (value && strcmp(value, "1") == 0);
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

const struct gm_row *gm_find_hook(const char *name)
{
    const struct gm_row *row;

    build();
    for (uint32_t i = hash_name(name); (row = next_row(by_symbol, &i));) {
        if (strcmp(row->symbol, name) == 0)
            break;
    }
    return row;
}

/* The real resolver, of one of the two ABIs. */
static CUresult ask_driver(bool is_v2, const char *name, void **pfn, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult *status)
{
    return is_v2 ? gm_real.cuGetProcAddress_v2(name, pfn, version, flags, status)
                 : gm_real.cuGetProcAddress(name, pfn, version, flags);
}

/* The answer for `name`, for which the driver found `found`. */
static void *substitute(bool is_v2, const char *name, void *found, int version, cuuint64_t flags)
{
    const bool is_per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct gm_row *row, *shared = NULL, *per_thread = NULL;

    build();
    for (uint32_t i = hash_name(name); (row = next_row(by_api, &i));) {
        if (strcmp(row->api, name) != 0)
            continue;
        if (row->wrapper && gm_row_real(row) == found)
            return row->wrapper;
        if (version < 0 || row->since > (uint32_t)version)
            continue;
        const struct gm_row **best = row->mode == PTDS || row->mode == PTSZ ? &per_thread : &shared;
        if (!*best || (*best)->since < row->since)
            *best = row;
    }

    /* Like the driver: the per-thread form if there is one, else the other. */
    row = is_per_thread && per_thread ? per_thread : shared;
    if (row && row->wrapper) {
        void *first = NULL;
        CUdriverProcAddressQueryResult status;
        if (row->since == (uint32_t)version)
            return row->wrapper;
        if (ask_driver(is_v2, name, &first, (int)row->since, flags, &status) == CUDA_SUCCESS &&
            first == found)
            return row->wrapper;
    }

    /* Some drivers answer to exact symbols, too. */
    row = gm_find_hook(name);
    return row && gm_row_real(row) == found ? row->wrapper : found;
}

static CUresult get_proc_address(bool is_v2, const char *name, void **pfn, int version,
                                 cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    CUresult result = ask_driver(is_v2, name, pfn, version, flags, status);

    if (result == CUDA_SUCCESS && pfn && *pfn && name && *name && !gm_reach_disabled())
        *pfn = substitute(is_v2, name, *pfn, version, flags);
    return result;
}

CUresult gm_on_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    return get_proc_address(false, symbol, pfn, cudaVersion, flags, NULL);
}

CUresult gm_on_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                   cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)
{
    return get_proc_address(true, symbol, pfn, cudaVersion, flags, symbolStatus);
}
