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

#define GM_PROTOTYPE_HANDLE(handler, params) CUresult handler params;
#define GM_PROTOTYPE_SUBMIT(handler, params)
#define GM_PROTOTYPE_COPY(handler, params)
#define GM_PROTOTYPE_LAUNCH(handler, params)
#define GM_PROTOTYPE_SYNC(handler, params)
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_PROTOTYPE_##kind(gm_on_##symbol, params)
#include "shim/driver/hooks.def"
#undef GM_HOOK
#undef GM_PROTOTYPE_HANDLE
#undef GM_PROTOTYPE_SUBMIT
#undef GM_PROTOTYPE_COPY
#undef GM_PROTOTYPE_LAUNCH
#undef GM_PROTOTYPE_SYNC

#endif
