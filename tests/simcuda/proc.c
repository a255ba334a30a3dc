/*
 * What cuGetProcAddress looks up (its two ABIs are in simcuda.c). The facts (which symbol serves
 * which API from which version on, in which stream mode) are the rows of shim/driver/hooks.def and
 * shim/driver/pass.def; a symbol that simcuda does not define is a weak reference that stays NULL,
 * hidden so that no other library can lend its own.
 */
#include "tests/simcuda/sim.h"

#include <string.h>

enum proc_mode { MODE_ANY, MODE_LEGACY, MODE_PTDS, MODE_PTSZ };

#define HIDDEN_WEAK(symbol)                                                                        \
    extern const char sim_entry_##symbol[] __attribute__((weak, visibility("hidden")));
#define GM_HOOK(api, symbol, since, mode, kind, params, args) HIDDEN_WEAK(symbol)
#define GM_PASS(api, symbol, since, mode, reason) HIDDEN_WEAK(symbol)
#include "shim/driver/hooks.def"
#include "shim/driver/pass.def"
#undef GM_HOOK
#undef GM_PASS

struct proc_row {
    const char *api;
    const char *entry;
    const char *symbol;
    int since;
    enum proc_mode mode;
};

#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    {#api, sim_entry_##symbol, #symbol, since, MODE_##mode},
#define GM_PASS(api, symbol, since, mode, reason)                                                  \
    {#api, sim_entry_##symbol, #symbol, since, MODE_##mode},
static const struct proc_row rows[] = {
#include "shim/driver/hooks.def"
#include "shim/driver/pass.def"
};
#undef GM_HOOK
#undef GM_PASS
#define N_ROWS (sizeof rows / sizeof rows[0])

bool sim_proc_knows(const char *api)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].entry != NULL && strcmp(rows[i].api, api) == 0)
            return true;
    }
    return false;
}

/*
 * The row for (api, version, flags), or NULL with *status. A caller that wants per-thread streams
 * gets that form where there is one.
 */
static const struct proc_row *find_row(const char *api, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult *status)
{
    const bool is_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct proc_row *best = NULL;
    bool is_known = false;
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct proc_row *row = &rows[i];
        if (row->entry == NULL || strcmp(row->api, api) != 0 || sim_is_without(row->symbol))
            continue;
        const bool has_mode = row->mode == MODE_ANY || (row->mode == MODE_LEGACY) != is_per_thread;
        if (!has_mode)
            continue;
        is_known = true;
        if (row->since <= version && (best == NULL || row->since > best->since))
            best = row;
    }
    *status = best != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
              : is_known   ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                           : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return best;
}

CUresult sim_proc_find(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == NULL || pfn == NULL || (flags & ~known) != 0 || version > CUDA_VERSION)
        return CUDA_ERROR_INVALID_VALUE;
    const struct proc_row *row = find_row(symbol, version, flags, status);
    *pfn = row != NULL ? (void *)(uintptr_t)row->entry : NULL;
    return CUDA_SUCCESS;
}
