/*
 * Prototypes of the handlers: gm_on_<symbol>() for every HANDLE row of hooks.def. A handler
 * replaces the driver call. Only the wrapper calls it (entry/wrap.c), when gm_real is filled and
 * the driver has the call, and returns its result.
 *
 * In a program that is not live (gm_is_live) a handler makes the real call and nothing else. No
 * lock is held across a driver call or a request to the daemon. Handlers own no state. They call
 * memory, map, tables, the gate and the link.
 */
#ifndef GM_SHIM_HANDLERS_H
#define GM_SHIM_HANDLERS_H

#include "shim/driver/real.h"

#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_HANDLE(kind)(CUresult gm_on_##symbol params;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#endif
