#include "shim/observe/windows.h"

#include <string.h>

#include "common/clock.h"
#include "common/windows.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/gate/hot.h"
#include "shim/tables/layouts.h"
#include "shim/tables/pages.h"
#include "shim/tables/tensors.h"

_Atomic bool gm_windows_is_on;
static _Atomic(_Atomic uint64_t *) gm_windows_words;
static _Atomic bool gm_windows_are_hidden;
/* Places that were touched in a window so far: its number, and how many. */
static _Atomic uint64_t gm_windows_order;

static uint32_t gm_windows_now(void)
{
    const struct gm_ctl *page = atomic_load_explicit(&gm_hot.page, memory_order_acquire);
    return atomic_load_explicit(&page->window, memory_order_relaxed);
}

/* Writes only words that change: every launch reads them. */
void gm_windows_mark(bool is_on, _Atomic uint64_t *words)
{
    const bool was_on = gm_windows_are_on();
    if (is_on)
        gm_windows_ask_anew();
    if (was_on && !is_on) {
        atomic_store(&gm_gate_stat()->marks_from, 0);
        gm_drain_follow(0);
    }
    if (is_on && atomic_load_explicit(&gm_windows_words, memory_order_relaxed) != words)
        atomic_store_explicit(&gm_windows_words, words, memory_order_release);
    if (was_on != is_on)
        atomic_store_explicit(&gm_windows_is_on, is_on, memory_order_release);
#define GM_WINDOWS_LAUNCH(symbol)                                                                  \
    {                                                                                              \
        __typeof__(gm_real.symbol) gm_usual = is_on ? NULL : gm_real.symbol;                       \
        if (__atomic_load_n(&gm_hot.symbol, __ATOMIC_RELAXED) != gm_usual)                         \
            __atomic_store_n(&gm_hot.symbol, gm_usual, __ATOMIC_RELAXED);                          \
    }
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_LAUNCH(kind)(GM_WINDOWS_LAUNCH(symbol))
#include "shim/driver/hooks.def"
#undef GM_HOOK
    /* A launch that is under way now may have found it off: it is of this window or one before. */
    if (!was_on && is_on) {
        const uint32_t window = gm_windows_now();
        gm_drain_follow(window);
        atomic_store(&gm_gate_stat()->marks_from, window);
    }
}

/* Work was submitted in this window. Writes only a word that changes: every launch reads it. */
static inline void gm_windows_work(uint32_t window)
{
    _Atomic uint32_t *works_in = &gm_gate_stat()->works_in;
    if (__builtin_expect(atomic_load_explicit(works_in, memory_order_relaxed) != window, 0))
        atomic_store_explicit(works_in, window, memory_order_relaxed);
}

static GM_COLD void gm_windows_hide(void)
{
    gm_windows_work(gm_windows_now());
    atomic_fetch_add_explicit(&gm_gate_stat()->unseen, 1, memory_order_relaxed);
}

void gm_windows_submitted(bool is_seen)
{
    gm_windows_work(gm_windows_now());
    if (!is_seen || atomic_load_explicit(&gm_windows_are_hidden, memory_order_relaxed))
        gm_windows_hide();
}

void gm_windows_crossed(uint64_t bytes, uint64_t launches)
{
    struct gm_stat *stat = gm_gate_stat();
    if (bytes > 0)
        atomic_fetch_add_explicit(&stat->link_bytes, bytes, memory_order_relaxed);
    if (launches > 0)
        atomic_fetch_add_explicit(&stat->link_launches, launches, memory_order_relaxed);
}

void gm_windows_hide_all(void)
{
    atomic_store_explicit(&gm_windows_are_hidden, true, memory_order_relaxed);
}

/* ---- marking ---- */

/* How many places were touched before in the window. Of two windows at once the newer one counts.
 */
static uint32_t gm_windows_next(uint32_t window)
{
    uint64_t was = atomic_load_explicit(&gm_windows_order, memory_order_relaxed), is;
    do {
        const int32_t ahead = (int32_t)((uint32_t)(was >> 32) - window);
        if (ahead > 0)
            return GM_WINDOW_ORDER_MAX;
        is = ahead == 0 ? was + 1 : (uint64_t)window << 32 | 1;
    } while (!atomic_compare_exchange_weak_explicit(&gm_windows_order, &was, is,
                                                    memory_order_relaxed, memory_order_relaxed));
    return (uint32_t)is - 1;
}

/* Where a thread marks, looked up once a call. */
struct gm_marker {
    _Atomic uint64_t *words;
    uint32_t window;
};

static inline struct gm_marker gm_marker(void)
{
    return (struct gm_marker){.words =
                                  atomic_load_explicit(&gm_windows_words, memory_order_acquire),
                              .window = gm_windows_now()};
}

static inline void gm_mark(const struct gm_marker *marker, uint32_t home, uint32_t times,
                           bool is_exact)
{
    /* A home of 0 is none: beyond the table of pages. */
    if (__builtin_expect(marker->words == NULL || home - 1 >= GM_WINDOW_PLACES - 1, 0)) {
        gm_windows_hide();
        return;
    }
    _Atomic uint64_t *word = &marker->words[home];
    const uint64_t there = atomic_load_explicit(word, memory_order_relaxed);
    if (__builtin_expect(gm_touch_is_in(there, marker->window), 1)) {
        atomic_store_explicit(word, gm_touch_again(there, times, is_exact), memory_order_relaxed);
        return;
    }
    const struct gm_touch first = {.window = marker->window,
                                   .order = gm_windows_next(marker->window),
                                   .count = times,
                                   .is_exact = is_exact};
    atomic_store_explicit(word, gm_touch_pack(first), memory_order_relaxed);
    gm_windows_work(marker->window); /* what it names is there before the window ends */
}

/* Ranges of so many places are large: 128 MiB, which take 0.1 us to mark. Those of a tensor of 40
 * GiB take 34 us, at each launch. */
#define GM_RANGE_LARGE 64u
#define GM_RANGES 256u /* a byte of a hash */

/* How often large ranges were touched: window << 40 | bits of a hash << 20 | times. */
static _Atomic uint64_t gm_ranges[GM_RANGES];

/* A large range is marked when it is touched for the 1st, 2nd, 4th, 8th ... time in a window. How
 * often to mark it now, so that the sum is right then; 0: not now. */
static uint32_t gm_range_times(uint32_t window, uint64_t place, uint64_t n, uint32_t times)
{
    const uint64_t home = gm_pages_home(place << GM_CHUNK_SHIFT); /* another memory, another one */
    const uint64_t key = (place * 0x9e3779b97f4a7c15ull + n + (home << 32)) * 0xd6e8feb86659fd93ull;
    const uint64_t most = (1u << 20) - 1;
    const uint64_t head = (uint64_t)(window & GM_WINDOW_MASK) << 40 | (key >> 36 & most) << 20;
    _Atomic uint64_t *range = &gm_ranges[key >> 56];
    const uint64_t there = atomic_load_explicit(range, memory_order_relaxed);
    const uint64_t before = (there & ~most) == head ? there & most : 0;
    if (before == most)
        return 0;
    atomic_store_explicit(range, head | (before + 1), memory_order_relaxed);
    if ((before & (before + 1)) != 0)
        return 0;
    const uint64_t more = before == 0 ? times : times * ((before + 1) / 2);
    return more < GM_WINDOW_COUNT_MAX ? (uint32_t)more : (uint32_t)GM_WINDOW_COUNT_MAX;
}

static void gm_mark_places(const struct gm_marker *marker, uint64_t place, uint64_t n,
                           uint32_t times, bool is_exact)
{
    if (n >= GM_RANGE_LARGE)
        times = gm_range_times(marker->window, place, n, times);
    if (times == 0)
        return;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t home = gm_pages_home((place + i) << GM_CHUNK_SHIFT);
        if (home == 0 && !gm_pages_have((place + i) << GM_CHUNK_SHIFT))
            return; /* the end of what is gpumux's */
        gm_mark(marker, home, times, is_exact);
        if (home == 0)
            return;
    }
}

void gm_windows_touch(uint64_t place, uint64_t n, uint32_t times, bool is_exact)
{
    const struct gm_marker marker = gm_marker();
    gm_mark_places(&marker, place, n, times, is_exact);
}

static void gm_mark_bytes(const struct gm_marker *marker, uint64_t va, uint64_t bytes)
{
    if (bytes == 0 || va + bytes - 1 < va)
        return;
    const uint64_t first = gm_window_place(va);
    gm_mark_places(marker, first, gm_window_place(va + bytes - 1) - first + 1, 1, true);
}

static void gm_windows_touch_bytes(void *unused, uint64_t va, uint64_t bytes)
{
    const struct gm_marker marker = gm_marker();
    (void)unused;
    gm_mark_bytes(&marker, va, bytes);
}

/* ---- the arguments of kernels ---- */

/* For a launch, `found` is known to the compiler: no call. */
#define GM_LOOK static inline __attribute__((always_inline))

static inline void gm_windows_found(void *marker, uint64_t va, uint64_t bytes)
{
    if (__builtin_expect(bytes == 0, 0))
        gm_windows_crossed(0, 1);
    else if (bytes == GM_REACHES) {
        const uint32_t home = gm_pages_home(va);
        if (__builtin_expect(gm_windows_reaches_on(va, home), 0))
            gm_windows_hide();
        gm_mark(marker, home, 1, false);
    } else
        gm_mark_bytes(marker, va, bytes);
}

/* Kernels and copies can be given memory that is not gpumux's: the host's, managed memory, or what
 * the driver has on the device. Which it is only the driver knows. */
enum gm_beyond {
    GM_BEYOND_DEVICE,
    GM_BEYOND_MANAGED,
    GM_BEYOND_HOST,  /* as the driver knows it: kernels can reach it */
    GM_BEYOND_OTHER, /* nothing that it knows: of the host, as a copy's */
    GM_BEYOND_UNASKED
};
#define GM_BEYOND_PAGES 256u /* a byte of a hash */
#define GM_BEYOND_MOST 1024u /* questions a window, each below a microsecond */

#define GM_BEYOND_NS (100 * GM_MS) /* how long an answer holds at least */

/* The last answers: page << 32 | stretch << 8 | enum gm_beyond. They hold for a stretch: a window,
 * or while nothing is marked until gm_windows_ask_anew ends it. */
static _Atomic uint64_t gm_beyond[GM_BEYOND_PAGES];
static _Atomic uint64_t gm_beyond_asked; /* stretch << 32 | questions in it */
static _Atomic uint32_t gm_beyond_readings;
static _Atomic uint64_t gm_beyond_ends; /* when the next of them may come */

void gm_windows_ask_anew(void)
{
    const uint64_t now = gm_now();
    uint64_t ends = atomic_load_explicit(&gm_beyond_ends, memory_order_relaxed);
    if (!gm_windows_are_on() && ends <= now &&
        atomic_compare_exchange_strong(&gm_beyond_ends, &ends, now + GM_BEYOND_NS))
        atomic_fetch_add_explicit(&gm_beyond_readings, 1, memory_order_relaxed);
}

/* Both only grow, so no two stretches that are near have one number. */
static uint32_t gm_beyond_stretch(void)
{
    return (gm_windows_now() + atomic_load_explicit(&gm_beyond_readings, memory_order_relaxed)) &
           GM_WINDOW_MASK;
}

static GM_COLD enum gm_beyond gm_beyond_ask(uint64_t word, uint32_t stretch)
{
    CUmemorytype type = 0;
    unsigned int is_managed = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *values[] = {&type, &is_managed};
    uint64_t asked = atomic_load_explicit(&gm_beyond_asked, memory_order_relaxed);
    if (asked >> 32 != stretch)
        asked = (uint64_t)stretch << 32;
    if ((uint32_t)asked >= GM_BEYOND_MOST || gm_real.cuPointerGetAttributes == NULL)
        return GM_BEYOND_UNASKED;
    atomic_store_explicit(&gm_beyond_asked, asked + 1, memory_order_relaxed);
    if (gm_real.cuPointerGetAttributes(2, which, values, word) != CUDA_SUCCESS)
        return GM_BEYOND_OTHER;
    if (is_managed != 0)
        return GM_BEYOND_MANAGED;
    return type == CU_MEMORYTYPE_DEVICE ? GM_BEYOND_DEVICE
           : type == CU_MEMORYTYPE_HOST ? GM_BEYOND_HOST
                                        : GM_BEYOND_OTHER;
}

/* Of an address that is not gpumux's. */
static enum gm_beyond gm_beyond_of(uint64_t word)
{
    const uint64_t page = word >> GM_CHUNK_SHIFT;
    const uint32_t stretch = gm_beyond_stretch();
    _Atomic uint64_t *answer = &gm_beyond[(page * 0x9e3779b97f4a7c15ull) >> 56];
    uint64_t there = atomic_load_explicit(answer, memory_order_relaxed);
    if (there >> 8 != (page << 24 | stretch)) {
        there = page << 32 | (uint64_t)stretch << 8 | gm_beyond_ask(word, stretch);
        atomic_store_explicit(answer, there, memory_order_relaxed);
    }
    return (enum gm_beyond)(there & 0xff);
}

/* Pages below 4 GiB are nobody's; many small numbers look like them. */
static inline bool gm_beyond_may_be(uint64_t word)
{
    return word >> 32 != 0 && word >> GM_WINDOW_VA_BITS == 0;
}

/* Whether a word of arguments that is no address of gpumux's is one of host memory. */
static bool gm_beyond_is_host(uint64_t word)
{
    const enum gm_beyond beyond = gm_beyond_of(word);
    return beyond == GM_BEYOND_HOST || beyond == GM_BEYOND_MANAGED;
}

/* The words in `bytes` of arguments at `from`, the first of them at from + skip; of gpumux's and of
 * the host's memory, or `is_host_only`. */
GM_LOOK void gm_look_in(const void *from, size_t skip, size_t bytes, bool is_host_only,
                        gm_touch_found *found, void *arg)
{
    const unsigned char *at = from;
    for (size_t i = skip; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, sizeof(word));
        if (!gm_pages_have(word)) {
            if (gm_beyond_may_be(word) && gm_beyond_is_host(word))
                found(arg, word, 0);
        } else if (!is_host_only) {
            found(arg, word, GM_REACHES);
        }
    }
}

/* The tensors of the maps among `bytes` of arguments at `from`: maps lie at multiples of 64. */
static GM_COLD void gm_look_for_tensors(const void *from, size_t bytes, gm_touch_found *found,
                                        void *arg)
{
    uint64_t va, length;
    for (size_t i = 0; i + GM_TENSOR_MAP_BYTES <= bytes; i += GM_TENSOR_MAP_ALIGN)
        if (gm_tensors_find((const char *)from + i, &va, &length) && gm_pages_have(va))
            found(arg, va, length);
}

#define GM_LOOK_FOR_TENSORS(from, bytes, found, arg)                                               \
    do {                                                                                           \
        if (gm_tensors_exist() && (bytes) >= GM_TENSOR_MAP_BYTES)                                  \
            gm_look_for_tensors(from, bytes, found, arg);                                          \
    } while (0)

typedef CUresult gm_param_info(void *f, size_t index, size_t *offset, size_t *bytes);

static CUresult gm_windows_function_info(void *f, size_t index, size_t *offset, size_t *bytes)
{
    return gm_real.cuFuncGetParamInfo((CUfunction)f, index, offset, bytes);
}

static CUresult gm_windows_kernel_info(void *f, size_t index, size_t *offset, size_t *bytes)
{
    return gm_real.cuKernelGetParamInfo((CUkernel)f, index, offset, bytes);
}

/* Only the driver knows how many parameters there are, and their sizes. False: it does not say. */
static bool gm_windows_ask(CUfunction f, struct gm_layout *layout)
{
    gm_param_info *info = gm_windows_function_info;
    layout->n = 0;
    for (uint32_t i = 0; gm_real.cuFuncGetParamInfo != NULL && i < GM_LAYOUT_PARAMS; i++) {
        size_t offset = 0, bytes = 0;
        CUresult result = info(f, i, &offset, &bytes);
        if (i == 0 && result == CUDA_ERROR_INVALID_HANDLE && gm_real.cuKernelGetParamInfo != NULL) {
            info = gm_windows_kernel_info;
            result = info(f, i, &offset, &bytes);
        }
        if (result != CUDA_SUCCESS)
            return result == CUDA_ERROR_INVALID_VALUE; /* that was all of them */
        /* Words are where the kernel finds them at a multiple of 8. */
        const uint32_t skip = (uint32_t)(8 - offset % 8) % 8;
        if (bytes < skip + 8)
            continue;
        if (bytes >= GM_LAYOUT_BYTES)
            return false;
        if (layout->n == GM_LAYOUT_PARTS) {
            layout->n = GM_LAYOUT_MORE;
            return true;
        }
        layout->part[layout->n++] = gm_layout_part(i, (uint32_t)bytes, skip);
    }
    return false;
}

static inline bool gm_windows_layout(CUfunction f, struct gm_layout *layout)
{
    if (gm_layouts_find(f, layout))
        return true;
    const uint32_t generation = gm_layouts_generation();
    if (!gm_windows_ask(f, layout))
        return false;
    layout->kernel = gm_templates_kernel(f);
    gm_layouts_keep(f, generation, layout);
    return true;
}

GM_LOOK bool gm_look_in_params(CUfunction f, const uint32_t *dimension, void **params,
                               gm_touch_found *found, void *arg)
{
    struct gm_layout layout;
    if (!gm_windows_layout(f, &layout))
        return false;
    if (params == NULL)
        return layout.n == 0; /* else they were given in an older way */
    const bool has_templates =
        __builtin_expect(layout.kernel != NULL, 0) &&
        !atomic_load_explicit(&layout.kernel->is_wrong, memory_order_relaxed);
    for (uint32_t i = 0; i < layout.n && i < GM_LAYOUT_PARTS; i++) {
        const uint32_t part = layout.part[i], param = gm_layout_param(part);
        if (params[param] == NULL)
            continue;
        GM_LOOK_FOR_TENSORS(params[param], gm_layout_bytes(part), found, arg);
        gm_look_in(params[param], gm_layout_skip(part), gm_layout_bytes(part), has_templates, found,
                   arg);
    }
    if (has_templates)
        return gm_templates_look(layout.kernel, dimension, params, found, arg);
    return layout.n != GM_LAYOUT_MORE;
}

/* All parameters in one buffer, laid out as for the kernel. */
GM_LOOK bool gm_look_in_extra(void **extra, gm_touch_found *found, void *arg)
{
    const void *buffer = NULL;
    size_t bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != NULL)
            bytes = *(const size_t *)extra[i + 1];
        else
            return false; /* unknown */
    }
    if (bytes > GM_LAYOUT_BYTES)
        return false;
    if (buffer != NULL) {
        GM_LOOK_FOR_TENSORS(buffer, bytes, found, arg);
        gm_look_in(buffer, 0, bytes, false, found, arg);
    }
    return true;
}

GM_LOOK bool gm_look(CUfunction f, const uint32_t *dimension, void **params, void **extra,
                     gm_touch_found *found, void *arg)
{
    if (params != NULL || extra == NULL)
        return gm_look_in_params(f, dimension, params, found, arg);
    return gm_look_in_extra(extra, found, arg);
}

bool gm_windows_look(CUfunction f, const uint32_t dimension[GM_DIMENSIONS], void **params,
                     void **extra, gm_touch_found *found, void *arg)
{
    return gm_look(f, dimension, params, extra, found, arg);
}

static void gm_windows_of(CUfunction f, const uint32_t *dimension, void **params, void **extra)
{
    struct gm_marker marker = gm_marker();
    gm_windows_submitted(gm_look(f, dimension, params, extra, gm_windows_found, &marker));
}

/* ---- the launches ---- */

#define GM_WINDOWS_OF_KERNEL(symbol)                                                               \
    void gm_windows_of_##symbol(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,   \
                                unsigned int bx, unsigned int by, unsigned int bz,                 \
                                unsigned int shared, CUstream stream, void **params, void **extra) \
    {                                                                                              \
        (void)shared, (void)stream;                                                                \
        gm_windows_of(f, (const uint32_t[GM_DIMENSIONS]){gx, gy, gz, bx, by, bz}, params, extra);  \
    }
GM_WINDOWS_OF_KERNEL(cuLaunchKernel)
GM_WINDOWS_OF_KERNEL(cuLaunchKernel_ptsz)

#define GM_WINDOWS_OF_EX(symbol)                                                                   \
    void gm_windows_of_##symbol(const CUlaunchConfig *config, CUfunction f, void **params,         \
                                void **extra)                                                      \
    {                                                                                              \
        static const uint32_t none[GM_DIMENSIONS];                                                 \
        gm_windows_of(f, config != NULL ? GM_DIMENSIONS_OF(config) : none, params, extra);         \
    }
GM_WINDOWS_OF_EX(cuLaunchKernelEx)
GM_WINDOWS_OF_EX(cuLaunchKernelEx_ptsz)

#define GM_WINDOWS_OF_COOPERATIVE(symbol)                                                          \
    void gm_windows_of_##symbol(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,   \
                                unsigned int bx, unsigned int by, unsigned int bz,                 \
                                unsigned int shared, CUstream stream, void **params)               \
    {                                                                                              \
        (void)shared, (void)stream;                                                                \
        gm_windows_of(f, (const uint32_t[GM_DIMENSIONS]){gx, gy, gz, bx, by, bz}, params, NULL);   \
    }
GM_WINDOWS_OF_COOPERATIVE(cuLaunchCooperativeKernel)
GM_WINDOWS_OF_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)

void gm_windows_of_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int n,
                                                        unsigned int flags)
{
    (void)flags;
    for (unsigned int i = 0; list != NULL && i < n; i++)
        gm_windows_of(list[i].function, GM_DIMENSIONS_OF(&list[i]), list[i].kernelParams, NULL);
}

/* ---- copies and sets ---- */

enum gm_crossing gm_windows_crossing(uint64_t va, bool is_host)
{
    if (gm_pages_have(va))
        return GM_CROSSES_NOT;
    if (is_host || !gm_beyond_may_be(va))
        return GM_CROSSES;
    switch (gm_beyond_of(va)) {
    case GM_BEYOND_DEVICE:
        return GM_CROSSES_NOT;
    case GM_BEYOND_MANAGED:
    case GM_BEYOND_UNASKED:
        return GM_CROSSES_PERHAPS;
    default:
        return GM_CROSSES;
    }
}

static enum gm_crossing gm_crossing_of(enum gm_crossing one, enum gm_crossing other)
{
    return one > other ? one : other;
}

void gm_windows_of_none(const void *unused, uint64_t bytes)
{
    (void)unused, (void)bytes;
}

void gm_windows_of_unknown(const void *unused, uint64_t bytes)
{
    (void)unused, (void)bytes;
    gm_windows_hide();
}

void gm_windows_of_address(const void *address, uint64_t bytes)
{
    gm_windows_touch_bytes(NULL, (uint64_t)(uintptr_t)address, bytes);
}

void gm_windows_of_lists(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                         size_t n)
{
    for (size_t i = 0; to != NULL && from != NULL && bytes != NULL && i < n; i++) {
        const enum gm_crossing crossing =
            gm_crossing_of(gm_windows_crossing(to[i], false), gm_windows_crossing(from[i], false));
        if (crossing != GM_CROSSES_NOT)
            gm_windows_crossed(bytes[i], 0);
        if (crossing == GM_CROSSES)
            continue;
        gm_windows_touch_bytes(NULL, from[i], bytes[i]);
        gm_windows_touch_bytes(NULL, to[i], bytes[i]);
    }
}

/* One side of a copy of structs: where its bytes begin, and how far they reach. */
struct gm_copy_side {
    CUmemorytype type;
    uint64_t device, host;         /* as the struct has them */
    uint64_t x, y, z, pitch, rows; /* of a slice */
};

static uint64_t gm_copy_pitch(const struct gm_copy_side *side, uint64_t width)
{
    return side->pitch != 0 ? side->pitch : width;
}

/* From one slice to the next. */
static uint64_t gm_copy_slice(const struct gm_copy_side *side, uint64_t width, uint64_t height)
{
    return gm_copy_pitch(side, width) * (side->rows != 0 ? side->rows : height);
}

static uint64_t gm_copy_extent(const struct gm_copy_side *side, uint64_t width, uint64_t height,
                               uint64_t depth)
{
    return (depth - 1) * gm_copy_slice(side, width, height) +
           gm_windows_rows(side->pitch, width, height);
}

/* *va: where its bytes begin; 0: in an array. */
static enum gm_crossing gm_copy_side_at(const struct gm_copy_side *side, uint64_t width,
                                        uint64_t height, uint64_t *va)
{
    const bool is_host = side->type == CU_MEMORYTYPE_HOST;
    *va = 0;
    if (!is_host && side->type != CU_MEMORYTYPE_DEVICE && side->type != CU_MEMORYTYPE_UNIFIED)
        return GM_CROSSES_NOT;
    *va = is_host ? side->host : side->device;
    const enum gm_crossing crossing = gm_windows_crossing(*va, is_host);
    *va += side->z * gm_copy_slice(side, width, height) + side->y * gm_copy_pitch(side, width) +
           side->x;
    return crossing;
}

static uint64_t gm_look_in_sides(const struct gm_copy_side *from, const struct gm_copy_side *to,
                                 uint64_t width, uint64_t height, uint64_t depth,
                                 gm_touch_found *found, void *arg)
{
    uint64_t src, dst;
    if (width == 0 || height == 0 || depth == 0)
        return 0;
    const enum gm_crossing crossing = gm_crossing_of(gm_copy_side_at(from, width, height, &src),
                                                     gm_copy_side_at(to, width, height, &dst));
    if (src != 0 && crossing != GM_CROSSES)
        found(arg, src, gm_copy_extent(from, width, height, depth));
    if (dst != 0 && crossing != GM_CROSSES)
        found(arg, dst, gm_copy_extent(to, width, height, depth));
    return crossing != GM_CROSSES_NOT ? width * height * depth : 0;
}

#define GM_COPY_SIDE(copy, side, z_at, height)                                                     \
    (&(const struct gm_copy_side){.type = (copy)->side##MemoryType,                                \
                                  .device = (copy)->side##Device,                                  \
                                  .host = (uint64_t)(uintptr_t)(copy)->side##Host,                 \
                                  .x = (copy)->side##XInBytes,                                     \
                                  .y = (copy)->side##Y,                                            \
                                  .z = (z_at),                                                     \
                                  .pitch = (copy)->side##Pitch,                                    \
                                  .rows = (height)})
#define GM_LOOK_IN_FLAT(copy, found, arg)                                                          \
    gm_look_in_sides(GM_COPY_SIDE(copy, src, 0, 0), GM_COPY_SIDE(copy, dst, 0, 0),                 \
                     (copy)->WidthInBytes, (copy)->Height, 1, found, arg)
#define GM_LOOK_IN_DEEP(copy, found, arg)                                                          \
    gm_look_in_sides(GM_COPY_SIDE(copy, src, (copy)->srcZ, (copy)->srcHeight),                     \
                     GM_COPY_SIDE(copy, dst, (copy)->dstZ, (copy)->dstHeight),                     \
                     (copy)->WidthInBytes, (copy)->Height, (copy)->Depth, found, arg)

uint64_t gm_windows_look_in_copy(const CUDA_MEMCPY3D *copy, gm_touch_found *found, void *arg)
{
    return GM_LOOK_IN_DEEP(copy, found, arg);
}

uint64_t gm_windows_look_in_set(const CUDA_MEMSET_NODE_PARAMS *set, gm_touch_found *found,
                                void *arg)
{
    const struct gm_copy_side nothing = {.type = CU_MEMORYTYPE_ARRAY};
    const struct gm_copy_side to = {
        .type = CU_MEMORYTYPE_UNIFIED, .device = set->dst, .pitch = set->pitch};
    return gm_look_in_sides(&nothing, &to, set->width * set->elementSize, set->height, 1, found,
                            arg);
}

#define GM_WINDOWS_OF_COPY(name, type, LOOK)                                                       \
    void gm_windows_of_copy_##name(const void *copy, uint64_t bytes)                               \
    {                                                                                              \
        const type *at = copy;                                                                     \
        (void)bytes;                                                                               \
        if (at != NULL)                                                                            \
            gm_windows_crossed(LOOK(at, gm_windows_touch_bytes, NULL), 0);                         \
    }
GM_WINDOWS_OF_COPY(2d, CUDA_MEMCPY2D, GM_LOOK_IN_FLAT)
GM_WINDOWS_OF_COPY(3d, CUDA_MEMCPY3D, GM_LOOK_IN_DEEP)
GM_WINDOWS_OF_COPY(peer, CUDA_MEMCPY3D_PEER, GM_LOOK_IN_DEEP)
