/*
 * The tables: what memory there is, whose it is and where it is. Pure data: no I/O, no CUDA, no
 * allocation after init.
 *
 * Nobody writes a table but the functions below, and only the engine calls those that do. Each says
 * what has happened and sets all that follows from it: states, lists, sums, and whether the plan of
 * moves (core/plan.h) is stale. The planner and placement read.
 *
 *   app     a client: its committed bytes, and its chunks by where they are
 *   chunk   the unit of placement. Exactly one tier holds its data. `state` (model.h) says where it
 *           is and that it moves. The tier changes only when the move has ended: copy, then commit,
 *           then free. A chunk is *resident* (in a GPU frame), *mapped on host* (its pages in
 *           pinned memory are a host frame, which its app maps), or *swapped*. Its place,
 *           is_on_host, says which of the first two it is to be when its app runs (core/layout.h)
 *   frame   a piece of memory of one size class, made for one uid. At most one chunk holds it.
 *   pool    the free frames of one uid, by size class: memory never crosses users
 *   fixed   unevictable: other programs have the chunk mapped too, so it stays in its frame
 *   shadow  the pinned copy from which a chunk came to the GPU, kept beside it. If the chunk has
 *           not changed when it is evicted, nothing is copied. Its pages count as free: whoever
 *           wants them drops it
 *
 * Invariants, checked by gm_table_check:
 *   - The bytes of all GPU frames that exist (free, used or condemned) never exceed the budget.
 *   - A frame in use and its chunk point at each other.
 *   - A fixed chunk is settled in a fixed frame, and in no list of what can be evicted, until its
 *     allocation is freed.
 *   - A chunk in the GPU tier has a frame, or is on its way out of one.
 *   - Each app's committed bytes and missing chunks are those of its chunks.
 *   - A shadow is kept only of a chunk that can be evicted; its chunk is in its app's list of
 *     shadows and has pages.
 */
#ifndef GM_CORE_TABLE_H
#define GM_CORE_TABLE_H

#include "daemon/core/table_apps.h"
#include "daemon/core/table_check.h"
#include "daemon/core/table_chunks.h"
#include "daemon/core/table_frames.h"
#include "daemon/core/table_rows.h"

#endif
