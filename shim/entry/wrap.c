/*
 * The exported wrappers, one for every row of hooks.def, under the driver's own name.
 *
 * A wrapper does what its row's kind says (hooks.def). It holds no lock across the driver call, and
 * its only state is the thread's slot. Code that may block, allocate or talk to the daemon is
 * behind gm_gate_enter() and in the handlers.
 *
 * At the end the compiler checks that every row of hooks.def, own.def and pass.def has the type of
 * NVIDIA's typed pointer of that name and version.
 */
#include "shim/entry/arguments.h"
#include "shim/entry/load.h"
#include "shim/gate/gate.h"
#include "shim/gate/hot.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/pools.h"
#include "shim/memory/freed.h"
#include "shim/observe/replays.h"
#include "shim/observe/windows.h"

#include <cudaProfilerTypedefs.h>
#include <pthread.h>

/* Declares gm_real_call, the real function of `symbol`. The first call of the process finds it NULL
 * and resolves the driver. */
#define GM_FIND(symbol)                                                                            \
    __typeof__(gm_real.symbol) gm_real_call = __atomic_load_n(&gm_real.symbol, __ATOMIC_RELAXED);  \
    if (__builtin_expect(!gm_real_call, 0)) {                                                      \
        gm_real_load();                                                                            \
        gm_real_call = __atomic_load_n(&gm_real.symbol, __ATOMIC_RELAXED);                         \
        if (!gm_real_call)                                                                         \
            return gm_real_missing();                                                              \
    }

#define GM_DEFINE __attribute__((visibility("default"))) CUresult CUDAAPI

/*
 * On x86-64 arguments from the seventh on are on the stack. A compiler loads them into saved
 * registers before the gate and pushes them after it. If the code seems to change them in place, it
 * pushes them from there: less code.
 */
#ifdef __x86_64__
#define GM_TWELFTH(a, b, c, d, e, f, g, h, i, j, k, last, ...) last
#define GM_KEEP_ON_STACK(...)                                                                      \
    GM_TWELFTH(__VA_ARGS__, GM_KEEP, GM_KEEP, GM_KEEP, GM_KEEP, GM_KEEP, GM_KEEP_NONE,             \
               GM_KEEP_NONE, GM_KEEP_NONE, GM_KEEP_NONE, GM_KEEP_NONE, GM_KEEP_NONE, )             \
    (__VA_ARGS__)
#define GM_KEEP_NONE(...) (void)0
#define GM_KEEP(a, b, c, d, e, f, ...) __asm__ volatile("" : GM_EACH(GM_IN_PLACE, __VA_ARGS__))
#define GM_IN_PLACE(a) "+m"(a)
#else
#define GM_KEEP_ON_STACK(...) (void)0
#endif

/*
 * A wrapper that crosses the gate. Between two launches a framework fills the caches with its own
 * code, so a launch should touch few cache lines: the usual case is alone in two lines and begins
 * at a pair of lines, which is often fetched as one. All else is in a function of its own, which
 * gets the same arguments and starts again. `usual`: the real function, or NULL for the slow
 * function; `is_unusual`: take the slow function; `is_refused`, before the gate: the driver would
 * find an address invalid. Inside the gate `count` runs before the real call, `note` after it if it
 * succeeds.
 */
#define GM_WRAP_GATED(symbol, params, args, usual, is_unusual, is_refused, count, note)            \
    static GM_COLD CUresult CUDAAPI gm_slow_##symbol params                                        \
    {                                                                                              \
        if (is_refused)                                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        GM_FIND(symbol)                                                                            \
        struct gm_slot *gm_inside = gm_gate_enter();                                               \
        if (!gm_inside)                                                                            \
            return gm_gate_refusal();                                                              \
        count;                                                                                     \
        const CUresult gm_result = gm_real_call args;                                              \
        if (gm_result == CUDA_SUCCESS) {                                                           \
            note;                                                                                  \
        }                                                                                          \
        return gm_gate_leave_with(gm_inside, gm_result);                                           \
    }                                                                                              \
    __attribute__((aligned(GM_CACHE_PAIR))) GM_DEFINE symbol params                                \
    {                                                                                              \
        __typeof__(gm_real.symbol) gm_real_call = __atomic_load_n(&(usual), __ATOMIC_RELAXED);     \
        GM_KEEP_ON_STACK args;                                                                     \
        if (__builtin_expect(!gm_real_call || (is_unusual), 0))                                    \
            return gm_slow_##symbol args;                                                          \
        struct gm_slot *gm_inside = gm_gate_enter_fast();                                          \
        if (__builtin_expect(!gm_inside, 0))                                                       \
            return gm_slow_##symbol args;                                                          \
        return gm_gate_leave_with(gm_inside, gm_real_call args);                                   \
    }

#define GM_WRAP_SUBMIT(symbol, handler, params, args)                                              \
    GM_WRAP_GATED(symbol, params, args, gm_real.symbol, false, false, (void)0, (void)0)

/* To the program, memory that was freed and is kept (freed.h) does not exist. */
#define GM_WRAP_COPY(symbol, handler, params, args)                                                \
    GM_WRAP_GATED(symbol, params, args, gm_real.symbol, gm_freed_exist() || gm_windows_are_on(),   \
                  gm_freed_exist() && !GM_IS_EMPTY args &&                                         \
                      gm_freed_hold(GM_WORDS args, sizeof(GM_WORDS args) / sizeof(uint64_t)),      \
                  GM_COPY_TOUCHES(args), (void)0)

#define GM_WRAP_LAUNCH(symbol, handler, params, args)                                              \
    GM_WRAP_GATED(symbol, params, args, gm_hot.symbol, false, false,                               \
                  if (gm_windows_are_on()) gm_windows_of_##symbol args, (void)0)

/* A launch of a graph has only to be marked, before it is submitted. What other calls change is
 * noted when they have done so: a graph that was not updated is as it was. */
#define GM_IS_GRAPH_LAUNCH(symbol) (__builtin_strstr(#symbol, "GraphLaunch") != NULL)
#define GM_REPLAY(symbol, args)                                                                    \
    if (gm_replays_are_noted())                                                                    \
    gm_replays_on_##symbol args
#define GM_WRAP_REPLAY(symbol, handler, params, args)                                              \
    GM_WRAP_GATED(symbol, params, args, gm_real.symbol,                                            \
                  GM_IS_GRAPH_LAUNCH(symbol) ? gm_windows_are_on() : gm_replays_are_noted(),       \
                  false, if (GM_IS_GRAPH_LAUNCH(symbol)) GM_REPLAY(symbol, args),                  \
                  if (!GM_IS_GRAPH_LAUNCH(symbol)) GM_REPLAY(symbol, args))

/* 1 while this thread is in a handler, or in gm_pools_give_back_excess: a signal handler then must
 * not take locks. tests/gpu/crosscheck reads it by name. */
static __thread volatile uint32_t gm_handling __attribute__((used, tls_model("initial-exec")));

#define GM_WRAP_SYNC(symbol, handler, params, args)                                                \
    GM_DEFINE symbol params                                                                        \
    {                                                                                              \
        GM_FIND(symbol)                                                                            \
        CUresult gm_result = gm_real_call args;                                                    \
        gm_gate_waited();                                                                          \
        if (__builtin_strstr(#symbol, "Synchronize") != NULL && gm_pools_have_excess() &&          \
            gm_handling == 0) {                                                                    \
            gm_handling = 1;                                                                       \
            gm_pools_give_back_excess();                                                           \
            gm_handling = 0;                                                                       \
        }                                                                                          \
        return gm_gate_result(gm_result);                                                          \
    }

/* A handler makes several driver calls, so it needs all of gm_real. It takes locks and waits for
 * the daemon, so its thread cannot be cancelled meanwhile. */
#define GM_WRAP_HANDLE(symbol, handler, params, args)                                              \
    GM_DEFINE symbol params                                                                        \
    {                                                                                              \
        int gm_cancel;                                                                             \
        if (!gm_real_load() || !gm_real.symbol)                                                    \
            return gm_real_missing();                                                              \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &gm_cancel);                                \
        const uint32_t gm_before = gm_handling;                                                    \
        gm_handling = 1;                                                                           \
        CUresult gm_result = handler args;                                                         \
        gm_handling = gm_before;                                                                   \
        pthread_setcancelstate(gm_cancel, NULL);                                                   \
        return gm_gate_result(gm_result);                                                          \
    }

#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_WRAP_##kind(symbol, gm_on_##symbol, params, args)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#define GM_CHECK(symbol, type)                                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), type),                        \
                   #symbol " is not a " #type);
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_CHECK(symbol, GM_PFN_##mode(PFN_##api##_v##since))
#include "shim/driver/hooks.def"
#undef GM_HOOK
#define GM_OWN(api, symbol, since) GM_CHECK(symbol, PFN_##api##_v##since)
#include "shim/driver/own.def"
#undef GM_OWN
#define GM_PASS(api, symbol, since, mode, reason)                                                  \
    GM_CHECK(symbol, GM_PFN_##mode(PFN_##api##_v##since))
#include "shim/driver/pass.def"
#undef GM_PASS
