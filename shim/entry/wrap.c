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

/* m(a), m(b), ... */
#define GM_EACH1(m, a) m(a)
#define GM_EACH2(m, a, ...) m(a), GM_EACH1(m, __VA_ARGS__)
#define GM_EACH3(m, a, ...) m(a), GM_EACH2(m, __VA_ARGS__)
#define GM_EACH4(m, a, ...) m(a), GM_EACH3(m, __VA_ARGS__)
#define GM_EACH5(m, a, ...) m(a), GM_EACH4(m, __VA_ARGS__)
#define GM_EACH6(m, a, ...) m(a), GM_EACH5(m, __VA_ARGS__)
#define GM_EACH7(m, a, ...) m(a), GM_EACH6(m, __VA_ARGS__)
#define GM_EACH8(m, a, ...) m(a), GM_EACH7(m, __VA_ARGS__)
#define GM_EACH9(m, a, ...) m(a), GM_EACH8(m, __VA_ARGS__)
#define GM_NINTH(a, b, c, d, e, f, g, h, i, last, ...) last
#define GM_EACH(m, ...)                                                                            \
    GM_NINTH(__VA_ARGS__, GM_EACH9, GM_EACH8, GM_EACH7, GM_EACH6, GM_EACH5, GM_EACH4, GM_EACH3,    \
             GM_EACH2, GM_EACH1)                                                                   \
    (m, __VA_ARGS__)

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
 * find an address invalid; `count` runs inside the gate.
 */
#define GM_WRAP_GATED(symbol, params, args, usual, is_unusual, is_refused, count)                  \
    static GM_COLD CUresult CUDAAPI gm_slow_##symbol params                                        \
    {                                                                                              \
        if (is_refused)                                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        GM_FIND(symbol)                                                                            \
        struct gm_slot *gm_inside = gm_gate_enter();                                               \
        if (!gm_inside)                                                                            \
            return gm_gate_refusal();                                                              \
        count;                                                                                     \
        return gm_gate_leave_with(gm_inside, gm_real_call args);                                   \
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
    GM_WRAP_GATED(symbol, params, args, gm_real.symbol, false, false, (void)0)

/* The arguments as words. A size counts as 0: it may look like an address, because ranges of the
 * driver may start at 12 GiB. */
#define GM_WORD(a) (uint64_t)(uintptr_t) _Generic((a), size_t : 0, default : (a))
#define GM_WORDS(...)                                                                              \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        GM_EACH(GM_WORD, __VA_ARGS__)                                                              \
    }

/* Whether a size is 0: then an address may be the end of an allocation. */
#define GM_NONE_AT(a) _Generic((a), size_t : (uint64_t)(uintptr_t)(a) == 0, default : 0)
#define GM_IS_EMPTY(...) (GM_ANY(GM_EACH(GM_NONE_AT, __VA_ARGS__)))
#define GM_ANY(...) gm_any((const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static inline bool gm_any(const int *are, size_t n)
{
    int is_any = 0;
    for (size_t i = 0; i < n; i++)
        is_any |= are[i];
    return is_any != 0;
}

/* What the arguments of a copy or set name: addresses, structs with addresses, lists of them, and
 * what cannot be read. */
#define GM_TOUCH(a)                                                                                \
    (_Generic((a), CUdeviceptr                                                                     \
              : gm_windows_of_address, void *                                                      \
              : gm_windows_of_address, const void *                                                \
              : gm_windows_of_address, const CUDA_MEMCPY2D *                                       \
              : gm_windows_of_copy_2d, const CUDA_MEMCPY3D *                                       \
              : gm_windows_of_copy_3d, const CUDA_MEMCPY3D_PEER *                                  \
              : gm_windows_of_copy_peer, CUDA_MEMCPY3D_BATCH_OP *                                  \
              : gm_windows_of_unknown, CUmemDecompressParams *                                     \
              : gm_windows_of_unknown, CUfunction                                                  \
              : gm_windows_of_unknown, default                                                     \
              : gm_windows_of_none)((const void *)(uintptr_t)(a), gm_extent))
#define GM_TOUCH_ALL(...) GM_EACH(GM_TOUCH, __VA_ARGS__)

/* The sizes among the arguments; UINT64_MAX for what is none. */
#define GM_SIZE_AT(a) _Generic((a), size_t : (uint64_t)(uintptr_t)(a), default : UINT64_MAX)
#define GM_SIZES(...)                                                                              \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        GM_EACH(GM_SIZE_AT, __VA_ARGS__)                                                           \
    }
/* Bytes of what a set writes each time. */
#define GM_UNIT_AT(a) _Generic((a), unsigned short : 2u, unsigned int : 4u, default : 1u)
#define GM_UNITS(...)                                                                              \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        GM_EACH(GM_UNIT_AT, __VA_ARGS__)                                                           \
    }

/* How many bytes a copy or set with these arguments reaches over, from each address that it names:
 * of one size, so many elements; of an offset in an array and a size, the size; of a pitch, a width
 * and a height, pitch times height. */
static inline uint64_t gm_extent_of(const uint64_t *sizes, const uint64_t *units, size_t n)
{
    uint64_t size[3] = {0}, unit = 1;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        unit *= units[i];
        if (sizes[i] != UINT64_MAX && found < 3)
            size[found++] = sizes[i];
    }
    return found == 3 ? size[0] * size[2] : found == 2 ? size[1] : size[0] * unit;
}

/* Whether the arguments are those of a batch of copies: two lists of addresses, one of sizes, and
 * how many there are. */
#define GM_IS_LIST_AT(a) _Generic((a), CUdeviceptr * : 1, default : 0)
#define GM_IS_BATCH(...) (GM_ANY(GM_EACH(GM_IS_LIST_AT, __VA_ARGS__)))

static inline void gm_touch_lists(const uint64_t *words, const uint64_t *sizes)
{
    gm_windows_of_lists((const CUdeviceptr *)(uintptr_t)words[0],
                        (const CUdeviceptr *)(uintptr_t)words[1],
                        (const size_t *)(uintptr_t)words[2], sizes[3]);
}

/* Whether an argument is a list that cannot be read. Its call has flags of an address's type. */
#define GM_UNREAD_AT(a) _Generic((a), CUDA_MEMCPY3D_BATCH_OP * : 1, default : 0)
#define GM_IS_UNREAD(...) (GM_ANY(GM_EACH(GM_UNREAD_AT, __VA_ARGS__)))

/* Whether an argument is an address that is not of this program's device memory. */
#define GM_AWAY(a) gm_windows_is_away((uint64_t)(uintptr_t)(a))
#define GM_AWAY_AT(a)                                                                              \
    _Generic((a), CUdeviceptr                                                                      \
             : GM_AWAY(a), void *                                                                  \
             : GM_AWAY(a), const void *                                                            \
             : GM_AWAY(a), default                                                                 \
             : 0)
#define GM_IS_AWAY(...) (GM_ANY(GM_EACH(GM_AWAY_AT, __VA_ARGS__)))

/* Mark what a copy or set touches. */
#define GM_COPY_TOUCHES(args)                                                                      \
    if (gm_windows_are_on() && GM_IS_BATCH args)                                                   \
        gm_touch_lists(GM_WORDS args, GM_SIZES args);                                              \
    else if (gm_windows_are_on()) {                                                                \
        const uint64_t gm_extent =                                                                 \
            gm_extent_of(GM_SIZES args, GM_UNITS args, sizeof(GM_SIZES args) / sizeof(uint64_t));  \
        if (!GM_IS_UNREAD args && GM_IS_AWAY args)                                                                       \
            gm_windows_crossed(gm_extent, 0);                                                      \
        else                                                                                       \
            (void)(GM_TOUCH_ALL args);                                                             \
    }

/* To the program, memory that was freed and is kept (freed.h) does not exist. */
#define GM_WRAP_COPY(symbol, handler, params, args)                                                \
    GM_WRAP_GATED(symbol, params, args, gm_real.symbol, gm_freed_exist() || gm_windows_are_on(),   \
                  gm_freed_exist() && !GM_IS_EMPTY args &&                                         \
                      gm_freed_hold(GM_WORDS args, sizeof(GM_WORDS args) / sizeof(uint64_t)),      \
                  GM_COPY_TOUCHES(args))

#define GM_WRAP_LAUNCH(symbol, handler, params, args)                                              \
    GM_WRAP_GATED(symbol, params, args, gm_hot.symbol, false, false,                               \
                  if (gm_windows_are_on()) gm_windows_of_##symbol args)

/* A launch of a graph has only to be marked. */
#define GM_WRAP_REPLAY(symbol, handler, params, args)                                              \
    GM_WRAP_GATED(symbol, params, args, gm_real.symbol,                                            \
                  __builtin_strstr(#symbol, "GraphLaunch") != NULL ? gm_windows_are_on()           \
                                                                   : gm_replays_are_noted(),       \
                  false, if (gm_replays_are_noted()) gm_replays_on_##symbol args)

/* 1 while this thread is in a handler, or in gm_pools_give_back_excess: a signal handler then must
 * not take locks. tests/gpu/crosscheck reads it by name. */
static __thread volatile uint32_t gm_handling __attribute__((used, tls_model("initial-exec")));

#define GM_WRAP_SYNC(symbol, handler, params, args)                                                \
    GM_DEFINE symbol params                                                                        \
    {                                                                                              \
        GM_FIND(symbol)                                                                            \
        struct gm_slot *gm_blocked = gm_sync_enter();                                              \
        CUresult gm_result = gm_real_call args;                                                    \
        gm_sync_leave(gm_blocked);                                                                 \
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
