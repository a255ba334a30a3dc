/*
 * Windows: marks the places that the program's launches, copies and sets touch, in the words that
 * the daemon reads (common/windows.h). The daemon asks for it while that can matter. Otherwise
 * hot.h has the real functions, and launches do not come here.
 *
 * The model: a launch touches what the profile of its kernel says (templates.h). Of one without a
 * profile every 8-byte word of its arguments that is an address of gpumux's marks its place. A
 * tensor's base pointer stands for the tensor; the daemon guesses its extent (daemon/core/working.h).
 * A tensor map stands for its tensor, all of it. A copy or set touches what it names, all of it. A
 * copy to or from the host touches nothing: its bytes cross the link wherever the memory is. They
 * are counted (gm_stat.link_bytes), as are launches whose arguments point to host memory. Whose an
 * address is that is not gpumux's, the driver is asked once a window for each 2 MiB; while nothing
 * is marked and a graph is read, at most ten times a second. What an
 * executable graph touches: replays.h.
 *
 * A large range is not walked over at each launch: how often it was touched is near.
 *
 * What cannot be read counts as unseen (gm_stat.unseen), so that the daemon knows that it does not
 * know: kernels whose parameters the driver does not tell or that have too many, launches of the
 * old forms, batches of 3D copies, addresses without a word, and everything while there are no
 * words or while textures show memory to kernels that do not name it. Pointers that a kernel reads
 * from memory cannot be seen at all.
 *
 * Any thread, without a lock. The link turns it on and off. Looks places and layouts up.
 */
#ifndef GM_SHIM_WINDOWS_H
#define GM_SHIM_WINDOWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/windows.h"
#include "shim/driver/real.h"
#include "shim/observe/templates.h"

/* Private to windows.h and windows.c. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_windows_is_on;

static inline bool gm_windows_are_on(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_windows_is_on, memory_order_relaxed), 0);
}

/* Start or stop marking. `words`: one for each place, mapped until the process ends; NULL: there
 * are none. Callers: each try to boot, when gm_real is filled; then the link, and a forked child.
 */
void gm_windows_mark(bool is_on, _Atomic uint64_t *words);

/* Work is submitted. `is_seen`: all that it touches is marked. */
void gm_windows_submitted(bool is_seen);
/* From now on nobody knows what work touches. */
void gm_windows_hide_all(void);

/* So many bytes, and launches on host memory, cross the link by the program's own doing: the daemon
 * then does not take what it counts there for reads of memory that it keeps on the host. */
void gm_windows_crossed(uint64_t bytes, uint64_t launches);

/* Whether a copy or set that names an address crosses the link. GM_CROSSES: it is host memory, and
 * the copy touches nothing. PERHAPS: the driver moves it as it likes (managed memory), or too many
 * questions were asked; the copy then counts for both. */
enum gm_crossing { GM_CROSSES_NOT, GM_CROSSES_PERHAPS, GM_CROSSES };
/* `is_host`: the call takes host memory there; else the driver is asked. */
enum gm_crossing gm_windows_crossing(uint64_t va, bool is_host);
/* A graph is about to be read, or marking begins. While nothing is marked, and so no window ends,
 * the driver is asked anew from now on, if that was not so for a tenth of a second. */
void gm_windows_ask_anew(void);
/* What an argument of a copy or set of `bytes` touches: nothing, an address, a struct that is what
 * the name says, or what cannot be read. */
void gm_windows_of_none(const void *unused, uint64_t bytes);
void gm_windows_of_address(const void *address, uint64_t bytes);
void gm_windows_of_copy_2d(const void *copy, uint64_t bytes);
void gm_windows_of_copy_3d(const void *copy, uint64_t bytes);
void gm_windows_of_copy_peer(const void *copy, uint64_t bytes);
/* Whether an address may reach into memory with another home, where the daemon cannot follow: it is
 * in a view, and beside that there may be others, of which one tensor covers many. */
static inline bool gm_windows_reaches_on(uint64_t va, uint32_t home)
{
    return home != (uint32_t)gm_window_place(va);
}

void gm_windows_of_unknown(const void *unused, uint64_t bytes);
/* Copies in a batch. */
void gm_windows_of_lists(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                         size_t n);

/* From the first byte of rows to their last one. A pitch of less than a row, such as 0, is that of
 * rows without gaps: the driver takes 0 so, and does not look at the pitch of a single row. */
static inline uint64_t gm_windows_rows(uint64_t pitch, uint64_t width, uint64_t height)
{
    return width == 0 || height == 0 ? 0 : (height - 1) * (pitch > width ? pitch : width) + width;
}

/* Call found() for what a launch with these dimensions touches: each address of gpumux's in a
 * kernel's arguments, or what the kernel's profile says, and the tensors of tensor maps. False:
 * that cannot be read, or it is not all. With 0 bytes: an address of host memory. */
bool gm_windows_look(CUfunction f, const uint32_t dimension[GM_DIMENSIONS], void **params,
                     void **extra, gm_touch_found *found, void *arg);
/* The same for what a copy touches. Returns how many bytes of it cross the link. */
uint64_t gm_windows_look_in_copy(const CUDA_MEMCPY3D *copy, gm_touch_found *found, void *arg);
/* The same for a set. */
uint64_t gm_windows_look_in_set(const CUDA_MEMSET_NODE_PARAMS *set, gm_touch_found *found,
                                void *arg);
/* Mark `n` places from `place` on, as touched so many times. `is_exact`: that is all; else
 * something behind them may be touched, too. */
void gm_windows_touch(uint64_t place, uint64_t n, uint32_t times, bool is_exact);

/* gm_windows_of_<symbol>() for every LAUNCH row of hooks.def: mark what the launch touches. */
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_LAUNCH(kind)(void gm_windows_of_##symbol params;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#endif
