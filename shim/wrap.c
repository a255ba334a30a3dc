/*
 * The exported wrappers, one for every row of hooks.def, under the driver's own name.
 *
 * A wrapper does what its row's kind says (hooks.def) and nothing else: no lock is held across the
 * driver call, and the only state is the thread's slot. What may block, allocate or talk to the
 * daemon is behind gm_gate_enter() and the handlers.
 *
 * The second half is the compiler's check of the tables: every row of hooks.def, own.def
 * and pass.def has the type that NVIDIA's typed pointer of that name and version has.
 */
#include "shim/gate.h"
#include "shim/handlers.h"
#include "shim/pools.h"
#include "shim/real.h"
#include "shim/spares.h"
#include "shim/uses.h"

#include <cudaProfilerTypedefs.h>
#include <pthread.h>

/*
 * Declares gm_real_call, the real function of `symbol`. The first call of the process finds it NULL
 * and resolves the driver; a pointer that must be loaded to be called anyway is the whole cost.
 */
#define GM_FIND(symbol)                                                                            \
    __typeof__(gm_real.symbol) gm_real_call = __atomic_load_n(&gm_real.symbol, __ATOMIC_RELAXED);  \
    if (__builtin_expect(!gm_real_call, 0)) {                                                      \
        gm_real_load();                                                                            \
        gm_real_call = __atomic_load_n(&gm_real.symbol, __ATOMIC_RELAXED);                         \
        if (!gm_real_call)                                                                         \
            return gm_real_missing();                                                              \
    }

#define GM_WRAP_GATED(symbol, args, count)                                                         \
    {                                                                                              \
        GM_FIND(symbol)                                                                            \
        struct gm_slot *gm_inside = gm_gate_enter();                                               \
        if (__builtin_expect(!gm_inside, 0))                                                       \
            return gm_gate_refusal();                                                              \
        count;                                                                                     \
        CUresult gm_result = gm_real_call args;                                                    \
        gm_gate_leave(gm_inside);                                                                  \
        return gm_result;                                                                          \
    }

#define GM_WRAP_SUBMIT(symbol, handler, args) GM_WRAP_GATED(symbol, args, (void)0)

/* The arguments as words: a, b, ... in uint64_t. */
#define GM_WORD(a) (uint64_t)(uintptr_t)(a)
#define GM_WORDS1(a) GM_WORD(a)
#define GM_WORDS2(a, ...) GM_WORD(a), GM_WORDS1(__VA_ARGS__)
#define GM_WORDS3(a, ...) GM_WORD(a), GM_WORDS2(__VA_ARGS__)
#define GM_WORDS4(a, ...) GM_WORD(a), GM_WORDS3(__VA_ARGS__)
#define GM_WORDS5(a, ...) GM_WORD(a), GM_WORDS4(__VA_ARGS__)
#define GM_WORDS6(a, ...) GM_WORD(a), GM_WORDS5(__VA_ARGS__)
#define GM_WORDS7(a, ...) GM_WORD(a), GM_WORDS6(__VA_ARGS__)
#define GM_WORDS8(a, ...) GM_WORD(a), GM_WORDS7(__VA_ARGS__)
#define GM_WORDS9(a, ...) GM_WORD(a), GM_WORDS8(__VA_ARGS__)
#define GM_NINTH(a, b, c, d, e, f, g, h, i, last, ...) last
#define GM_WORDS(...)                                                                              \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        GM_NINTH(__VA_ARGS__, GM_WORDS9, GM_WORDS8, GM_WORDS7, GM_WORDS6, GM_WORDS5, GM_WORDS4,    \
                 GM_WORDS3, GM_WORDS2, GM_WORDS1)                                                  \
        (__VA_ARGS__)                                                                              \
    }

/* Memory that was freed and is kept (spares.h) is none to the program. */
#define GM_WRAP_COPY(symbol, handler, args)                                                        \
    {                                                                                              \
        if (gm_spares_exist() &&                                                                   \
            gm_spares_hold(GM_WORDS args, sizeof(GM_WORDS args) / sizeof(uint64_t)))               \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        GM_WRAP_GATED(symbol, args, (void)0)                                                       \
    }

#define GM_WRAP_LAUNCH(symbol, handler, args)                                                      \
    GM_WRAP_GATED(symbol, args, if (gm_uses_are_counted()) gm_uses_of_##symbol args)

/* 1 while this thread is in a handler, or makes calls of its own behind one that is
 * none. Nobody here reads it: tests/gpu/crosscheck does, by name. */
static __thread volatile uint32_t gm_handling __attribute__((used, tls_model("initial-exec")));

#define GM_WRAP_SYNC(symbol, handler, args)                                                        \
    {                                                                                              \
        GM_FIND(symbol)                                                                            \
        struct gm_slot *gm_blocked = gm_sync_enter();                                              \
        CUresult gm_result = gm_real_call args;                                                    \
        gm_sync_leave(gm_blocked);                                                                 \
        if (__builtin_strstr(#symbol, "Synchronize") != NULL && gm_pools_have_excess()) {          \
            const uint32_t gm_before = gm_handling;                                                \
            gm_handling = 1;                                                                       \
            gm_pools_give_back_excess();                                                           \
            gm_handling = gm_before;                                                               \
        }                                                                                          \
        return gm_result;                                                                          \
    }

/*
 * A handler makes several driver calls, so all of gm_real must be there, not only its own member.
 * It takes locks and waits for the daemon's answers: a thread is not cancelled in the middle.
 */
#define GM_WRAP_HANDLE(symbol, handler, args)                                                      \
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
        return gm_result;                                                                          \
    }

#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    __attribute__((visibility("default")))                                                         \
    CUresult CUDAAPI symbol params GM_WRAP_##kind(symbol, gm_on_##symbol, args)
#include "shim/hooks.def"
#undef GM_HOOK

#define GM_CHECK(symbol, type)                                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), type),                        \
                   #symbol " is not a " #type);
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_CHECK(symbol, GM_PFN_##mode(PFN_##api##_v##since))
#include "shim/hooks.def"
#undef GM_HOOK
#define GM_OWN(api, symbol, since) GM_CHECK(symbol, PFN_##api##_v##since)
#include "shim/own.def"
#undef GM_OWN
#define GM_PASS(api, symbol, since, mode, reason)                                                  \
    GM_CHECK(symbol, GM_PFN_##mode(PFN_##api##_v##since))
#include "shim/pass.def"
#undef GM_PASS
