/* MAP, UNMAP and DROP messages and their answers. */
#ifndef GM_DAEMON_ENGINE_STEP_BATCHES_H
#define GM_DAEMON_ENGINE_STEP_BATCHES_H

#include "daemon/engine/state/state.h"

/* Numbers of batches of engine n begin at n times this. */
#define GM_ENGINE_BATCHES (1ull << 56)
/* Into the batch of this kind: a chunk (MAP, UNMAP) or a frame (DROP). */
void gm_engine_batch(struct gm_engine *engine, uint32_t app, enum gm_batch_kind kind,
                     uint32_t item);
/* Tell the chunk's app to map the frame it has, or to unmap it. */
void gm_engine_map(struct gm_engine *engine, uint32_t chunk);
void gm_engine_unmap(struct gm_engine *engine, uint32_t chunk);
/* The answer to batch `number` has come: take it from the queue; it is the caller's to free. NULL:
 * it was not asked, or the app cannot unmap, and its session ends. */
struct gm_batch *gm_engine_take_answer(struct gm_engine *engine, uint32_t app, uint64_t number,
                                       int32_t result);

/* Of an app that has left: the next batch without an answer, which is the caller's to free (NULL:
 * there is none); and the next chunk for which there was no batch (GM_NONE). */
struct gm_batch *gm_engine_take_unanswered(struct gm_engine *engine, uint32_t app);
uint32_t gm_engine_take_unsent(struct gm_engine *engine, uint32_t app);
/* Send what is in the batches. */
void gm_engine_flush(struct gm_engine *engine);
/* Have the app show that it is there, with an empty batch: memory moved for a stopped one is stuck.
 */
void gm_engine_ping(struct gm_engine *engine, uint32_t app);
/* Queues of a new app. */
void gm_engine_open_batches(struct gm_app *app);
void gm_engine_close_batches(struct gm_app *app);
/* Have `app` map (OPEN) or unmap (SHUT) `n` places of what it opens. False: there is no memory for
 * it. */
bool gm_engine_send_places(struct gm_engine *engine, enum gm_batch_kind kind, struct gm_open *open,
                           const uint32_t *places, uint32_t n);

/* Have `app` unmap (UNMAP, struct gm_span_entry) or drop (DROP, struct gm_frame_entry) `n` things
 * that are nothing of the table's. False: there is no memory for it. */
bool gm_engine_send_strays(struct gm_engine *engine, uint32_t app, enum gm_msg_type type,
                           const void *entries, uint32_t n);

#endif
