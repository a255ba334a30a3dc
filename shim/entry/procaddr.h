/* The tables hooks.def and pass.def by name, for dlsym.c and dlopen.c. Owns their hash tables. */
#ifndef GM_SHIM_PROCADDR_H
#define GM_SHIM_PROCADDR_H

#include <stdbool.h>
#include <stdint.h>

/* A row of hooks.def, or of pass.def, which has no wrapper. */
struct gm_row {
    const char *api;
    const char *symbol;
    const void *real; /* its member of gm_real; NULL without a wrapper */
    void *wrapper;
    uint32_t since;
    uint32_t mode;
};

/* The row of hooks.def for symbol `name`, or NULL. No lock, no allocation; callable before any
 * constructor ran. */
const struct gm_row *gm_find_hook(const char *name);

/* The real function of a row with a wrapper; NULL while it is not resolved. */
void *gm_row_real(const struct gm_row *row);

/* GPUMUX_DISABLE=1: look-ups return no wrappers. */
bool gm_reach_disabled(void);

#endif
