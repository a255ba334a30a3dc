/*
 * A program that links the driver: its references find the shim's exports first. The look-ups that
 * a statically linked cudart makes, in its order, get a wrapper exactly where the tables say so.
 */
#include "reach.h"

#include <cuda.h>

enum mode { ANY, LEGACY, PTDS, PTSZ };

static const struct row {
    const char *api, *symbol;
    int since;
    enum mode mode;
    bool is_hook;
} rows[] = {
#define GM_HOOK(api, symbol, since, mode, kind, params, args) {#api, #symbol, since, mode, true},
#include "shim/driver/hooks.def"
#undef GM_HOOK
#define GM_PASS(api, symbol, since, mode, reason) {#api, #symbol, since, mode, false},
#include "shim/driver/pass.def"
#undef GM_PASS
};

static const struct {
    const char *name;
    int version;
    cuuint64_t flags;
} lookups[] = {
#define GM_LOOKUP(name, version, flags) {name, version, flags},
#include "tests/programs/cudart_order.def"
#undef GM_LOOKUP
};

/* The row that the documentation of cuGetProcAddress selects. */
static const struct row *select_row(const char *api, int version, cuuint64_t flags)
{
    const struct row *best[2] = {NULL, NULL};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int own = rows[i].mode == PTDS || rows[i].mode == PTSZ;
        if (strcmp(rows[i].api, api) == 0 && rows[i].since <= version &&
            (!best[own] || best[own]->since < rows[i].since))
            best[own] = &rows[i];
    }
    return (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && best[1] ? best[1] : best[0];
}

int main(void)
{
    size_t hooked = 0, passed = 0, missing = 0;

    CHECK(gm_is_wrapper((void *)cuStreamQuery, "cuStreamQuery"), "linked");
    CHECK(gm_is_wrapper((void *)cuMemAlloc_v2, "cuMemAlloc_v2"), "linked");
    CHECK(gm_in_driver((void *)cuDriverGetVersion), "linked");

    for (size_t i = 0; i < sizeof(lookups) / sizeof(lookups[0]); i++) {
        const char *name = lookups[i].name;
        const struct row *row = select_row(name, lookups[i].version, lookups[i].flags);
        void *found = NULL;
        CUdriverProcAddressQueryResult status;
        CUresult result =
            cuGetProcAddress_v2(name, &found, lookups[i].version, lookups[i].flags, &status);
        if (result != CUDA_SUCCESS || !found) {
            missing++;
        } else if (row && row->is_hook) {
            hooked++;
            CHECK(gm_is_wrapper(found, row->symbol), "%s %d: from %s", name, lookups[i].version,
                  gm_owner(found));
        } else {
            passed++;
            CHECK(gm_in_driver(found), "%s %d: from %s", name, lookups[i].version, gm_owner(found));
        }
    }
    printf("%zu wrapped, %zu passed through, %zu not in this driver\n", hooked, passed, missing);
    CHECK(hooked > 20 && passed > 0, "the driver answers");
    return gm_failed ? 1 : 0;
}
