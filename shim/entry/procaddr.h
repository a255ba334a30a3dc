/* Look-up of the tables by name: what dlsym.c needs of procaddr.c. */
#ifndef GM_SHIM_PROCADDR_H
#define GM_SHIM_PROCADDR_H

#include <stdbool.h>
#include <stdint.h>

/* A row of hooks.def (or of pass.def, then without a wrapper). */
struct gm_row {
    const char *api;
    const char *symbol;
    const void *real; /* its member of gm_real; NULL without a wrapper */
    void *wrapper;
    uint32_t since;
    uint32_t mode;
};

/*
 * The row of the hooked symbol `name`, or NULL if hooks.def has no such symbol. No lock, no
 * allocation; callable before any constructor ran.
 */
const struct gm_row *gm_find_hook(const char *name);

/* The real function of a row with a wrapper; NULL while it is not resolved. */
void *gm_row_real(const struct gm_row *row);

/* True if GPUMUX_DISABLE=1: nobody is given a wrapper who did not ask the linker for one. */
bool gm_reach_disabled(void);

#endif
