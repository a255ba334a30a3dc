/*
 * Prototypes of the handlers: gm_on_<symbol>() for every HANDLE row of hooks.def. A handler is what
 * happens instead of, or around, that driver call. The wrapper calls it when gm_real is filled and
 * the row's own real function is there (entry/wrap.c), and returns what it returns.
 *
 * A handler of a program that is not live (gm_is_live) does the real call and nothing else: no
 * lock, no count. No lock is held across a driver call or a request to the daemon. Handlers own no
 * state, and only wrappers call them.
 */
#ifndef GM_SHIM_HANDLERS_H
#define GM_SHIM_HANDLERS_H

#include "shim/driver/real.h"

#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_HANDLE(kind)(CUresult gm_on_##symbol params;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#endif
