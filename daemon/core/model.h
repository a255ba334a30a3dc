/*
 * State machines as tables: chunk, frame, shadow, client and app. A row says from which state an
 * event leads to which. What has no row is not legal: the setter changes nothing and tells
 * (GM_TURN_ILLEGAL), in every build.
 *
 * Each machine has one setter: gm_table_turn_chunk, gm_table_turn_shadow and gm_table_turn_frame in
 * the files of the table, turn in engine/client.c, and gm_engine_turn for apps. Pure data.
 */
#ifndef GM_CORE_MODEL_H
#define GM_CORE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define GM_MODELS(X)                                                                               \
    X(CHUNK, "chunk")                                                                              \
    X(FRAME, "frame") X(SHADOW, "the shadow of chunk") X(CLIENT, "client") X(APP, "app")

/* ---- chunks ---- */

#define GM_CHUNK_STATES(X)                                                                         \
    X(UNUSED)    /* a free slot of the table */                                                    \
    X(AWAY)      /* swapped: its copy is in a tier below the GPU, or it was never written */       \
    X(RESIDENT)  /* in a GPU frame, mapped */                                                      \
    X(ON_HOST)   /* mapped where its copy is, in pinned memory */                                  \
    X(LEAVING)   /* from its frame to pinned memory */                                             \
    X(RETURNING) /* it is to leave no more: being mapped again */                                  \
    X(COMING)    /* from pinned memory, or from nothing, to its frame, and being mapped */         \
    X(CLEARING)  /* never written: its pinned pages are being cleared */                           \
    X(MAPPING)   /* being mapped where it is, in pinned memory */                                  \
    X(UNMAPPING) /* was mapped there */                                                            \
    X(MOVING)    /* between two tiers below the GPU, or two places in one, to `to_tier` */         \
    X(ENDING)    /* freed: being unmapped */
#define GM_CHUNK_EVENTS(X)                                                                         \
    X(ADD)                                                                                         \
    X(EVICT)                                                                                       \
    X(UNDO) /* the copy out is not made */                                                         \
    X(FILL)                                                                                        \
    X(CLEAR)                                                                                       \
    X(MAP)   /* on the host */                                                                     \
    X(UNMAP) /* ... no more */                                                                     \
    X(MOVE)                                                                                        \
    X(DONE)                                                                                        \
    X(FAIL) /* it stays where it began */                                                          \
    X(FREED)                                                                                       \
    X(END) /* nothing refers to it any more */
#define GM_CHUNK_TURNS(X)                                                                          \
    X(UNUSED, ADD, AWAY)                                                                           \
    X(AWAY, FILL, COMING)                                                                          \
    X(AWAY, CLEAR, CLEARING)                                                                       \
    X(AWAY, MAP, MAPPING)                                                                          \
    X(AWAY, MOVE, MOVING)                                                                          \
    X(AWAY, END, UNUSED)                                                                           \
    X(RESIDENT, EVICT, LEAVING)                                                                    \
    X(RESIDENT, FREED, ENDING)                                                                     \
    X(RESIDENT, END, UNUSED)                                                                       \
    X(ON_HOST, UNMAP, UNMAPPING)                                                                   \
    X(ON_HOST, FREED, ENDING)                                                                      \
    X(ON_HOST, END, UNUSED)                                                                        \
    X(LEAVING, DONE, AWAY)                                                                         \
    X(LEAVING, UNDO, RETURNING)                                                                    \
    X(RETURNING, DONE, RESIDENT)                                                                   \
    X(RETURNING, FAIL, AWAY)                                                                       \
    X(COMING, DONE, RESIDENT)                                                                      \
    X(COMING, FAIL, AWAY)                                                                          \
    X(CLEARING, DONE, AWAY)                                                                        \
    X(MAPPING, DONE, ON_HOST)                                                                      \
    X(MAPPING, FAIL, AWAY)                                                                         \
    X(UNMAPPING, DONE, AWAY)                                                                       \
    X(MOVING, DONE, AWAY)                                                                          \
    X(MOVING, FAIL, AWAY)                                                                          \
    X(ENDING, DONE, AWAY)

/* ---- frames ---- */

#define GM_FRAME_STATES(X)                                                                         \
    X(UNUSED)    /* a free slot of the table */                                                    \
    X(FREE)      /* exists, no chunk in it */                                                      \
    X(USED)      /* belongs to `chunk`; GM_NONE: new, fixed and its chunk has ended, or mapped by  \
                    an app that is lost, perhaps */                                                \
    X(LEAVING)   /* still holds `chunk`, which is being evicted */                                 \
    X(CONDEMNED) /* exists until every import is dropped */
#define GM_FRAME_EVENTS(X)                                                                         \
    X(MAKE)                                                                                        \
    X(TAKE)                                                                                        \
    X(LEAVE)                                                                                       \
    X(GIVE)                                                                                        \
    X(CLEAN)  /* it reads as zero now, or soon */                                                  \
    X(SOIL)   /* ... and does not after all */                                                     \
    X(ORPHAN) /* its chunk has ended, or left; others may still map it */                          \
    X(CONDEMN)                                                                                     \
    X(KEEP) /* what it waited for is over, and others may use it */                                \
    X(END)
#define GM_FRAME_TURNS(X)                                                                          \
    X(UNUSED, MAKE, USED)                                                                          \
    X(FREE, TAKE, USED)                                                                            \
    X(FREE, CLEAN, FREE)                                                                           \
    X(FREE, SOIL, FREE)                                                                            \
    X(FREE, CONDEMN, CONDEMNED)                                                                    \
    X(USED, TAKE, USED) /* a new one, or one on the host */                                        \
    X(USED, ORPHAN, USED)                                                                          \
    X(USED, LEAVE, LEAVING)                                                                        \
    X(USED, GIVE, FREE)                                                                            \
    X(USED, CONDEMN, CONDEMNED)                                                                    \
    X(USED, END, UNUSED) /* a new one that cannot be made */                                       \
    X(LEAVING, TAKE, USED)                                                                         \
    X(LEAVING, GIVE, FREE)                                                                         \
    X(LEAVING, ORPHAN, USED)                                                                       \
    X(LEAVING, CONDEMN, CONDEMNED)                                                                 \
    X(CONDEMNED, KEEP, FREE)                                                                       \
    X(CONDEMNED, END, UNUSED)

/* ---- shadows: the old copy of a chunk that is on the GPU ---- */

#define GM_SHADOW_STATES(X)                                                                        \
    X(NONE)                                                                                        \
    X(KEPT)    /* its pages may be taken at any time */                                            \
    X(CLAIMED) /* the chunk is being evicted into these pages, which still have it */              \
    X(LOST)    /* others took its pages: with more memory it would be there */
#define GM_SHADOW_EVENTS(X)                                                                        \
    X(KEEP)  /* the chunk has come to the GPU */                                                   \
    X(CLAIM) /* its eviction begins */                                                             \
    X(DROP)  /* it is of no use any more */                                                        \
    X(LOSE)  /* its pages are wanted */                                                            \
    X(END)   /* the pages are the chunk's copy again, old or new; or they are freed */
#define GM_SHADOW_TURNS(X)                                                                         \
    X(NONE, KEEP, KEPT)                                                                            \
    X(KEPT, CLAIM, CLAIMED)                                                                        \
    X(KEPT, DROP, NONE)                                                                            \
    X(KEPT, LOSE, LOST)                                                                            \
    X(CLAIMED, END, NONE)                                                                          \
    X(LOST, DROP, NONE)

/* ---- clients: the one gate that a program has, whatever GPUs it uses ---- */

#define GM_CLIENT_STATES(X)                                                                        \
    X(QUIET)   /* its gate is closed, and it is quiet, as before it first ran */                   \
    X(OPEN)    /* its gate is open */                                                              \
    X(CLOSING) /* its gate is closed, and it has not answered CLOSE */                             \
    X(BUSY)    /* ... it has, and its work has not ended */
#define GM_CLIENT_EVENTS(X)                                                                        \
    X(SHUT)    /* an engine wants the gate closed */                                               \
    X(DRAINED) /* it answers that it is quiet */                                                   \
    X(KEEPS)   /* it answers that it is not */                                                     \
    X(LET)     /* no engine wants the gate closed any more */                                      \
    X(RUNS)    /* it has come back from the daemon before, and work of it may run */
#define GM_CLIENT_TURNS(X)                                                                         \
    X(QUIET, LET, OPEN)                                                                            \
    X(QUIET, RUNS, BUSY)                                                                           \
    X(OPEN, SHUT, CLOSING)                                                                         \
    X(CLOSING, DRAINED, QUIET)                                                                     \
    X(CLOSING, KEEPS, BUSY)                                                                        \
    X(CLOSING, LET, OPEN) /* no answer came in time */                                             \
    X(BUSY, LET, OPEN)

/* ---- apps ---- */

#define GM_APP_STATES(X)                                                                           \
    X(UNUSED)                                                                                      \
    X(PAUSED)   /* its gate is closed and it is quiet: its mappings may change */                  \
    X(LOADING)  /* chosen, its missing chunks are on their way */                                  \
    X(RUNNING)  /* its gate is open */                                                             \
    X(DRAINING) /* its gate is closed, it is not yet known to be quiet: nothing of it may move */  \
    X(GONE)     /* its connection ended; what it held is being put away */                         \
    X(LOST)     /* of a daemon that has ended: its program has yet to come back, and may have      \
                   mapped what the ledger says: nothing of that moves */
#define GM_APP_EVENTS(X)                                                                           \
    X(JOIN)    /* a program said HELLO */                                                          \
    X(CHOSEN)  /* it came into the scheduler's set */                                              \
    X(DROPPED) /* it fell out of the set */                                                        \
    X(LOADED)  /* every chunk is on the GPU and mapped */                                          \
    X(QUIET)   /* it drained */                                                                    \
    X(BUSY)    /* it did not drain in time */                                                      \
    X(LEAVE)   /* its connection ended */                                                          \
    X(END)     /* nothing of it is left */                                                         \
    X(AWAIT)   /* this daemon has taken its memory over */                                         \
    X(RETURN)  /* its program has come back, and is quiet */                                       \
    X(RAN_ON)  /* ... and was not */
#define GM_APP_TURNS(X)                                                                            \
    X(UNUSED, JOIN, PAUSED)                                                                        \
    X(PAUSED, CHOSEN, LOADING)                                                                     \
    X(LOADING, DROPPED, PAUSED)                                                                    \
    X(LOADING, LOADED, RUNNING)                                                                    \
    X(RUNNING, DROPPED, DRAINING)                                                                  \
    X(DRAINING, QUIET, PAUSED)                                                                     \
    X(DRAINING, BUSY, RUNNING)                                                                     \
    X(PAUSED, LEAVE, GONE)                                                                         \
    X(LOADING, LEAVE, GONE)                                                                        \
    X(RUNNING, LEAVE, GONE)                                                                        \
    X(DRAINING, LEAVE, GONE)                                                                       \
    X(GONE, END, UNUSED)                                                                           \
    X(UNUSED, AWAIT, LOST)                                                                         \
    X(LOST, RETURN, PAUSED)                                                                        \
    X(LOST, RAN_ON, RUNNING)                                                                       \
    X(LOST, LEAVE, GONE)

/* clang-format off */
#define GM_MODEL_NAME(NAME, words) GM_MODEL_##NAME,
enum gm_model { GM_MODELS(GM_MODEL_NAME) GM_MODELS_N };
#undef GM_MODEL_NAME
#define GM_STATE(NAME) GM_CHUNK_##NAME,
enum gm_chunk_state { GM_CHUNK_STATES(GM_STATE) GM_CHUNK_STATES_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_CHUNK_EV_##NAME,
enum gm_chunk_event { GM_CHUNK_EVENTS(GM_STATE) GM_CHUNK_EVENTS_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_FRAME_##NAME,
enum gm_frame_state { GM_FRAME_STATES(GM_STATE) GM_FRAME_STATES_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_FRAME_EV_##NAME,
enum gm_frame_event { GM_FRAME_EVENTS(GM_STATE) GM_FRAME_EVENTS_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_SHADOW_##NAME,
enum gm_shadow { GM_SHADOW_STATES(GM_STATE) GM_SHADOW_STATES_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_SHADOW_EV_##NAME,
enum gm_shadow_event { GM_SHADOW_EVENTS(GM_STATE) GM_SHADOW_EVENTS_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_CLIENT_##NAME,
enum gm_client_state { GM_CLIENT_STATES(GM_STATE) GM_CLIENT_STATES_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_CLIENT_EV_##NAME,
enum gm_client_event { GM_CLIENT_EVENTS(GM_STATE) GM_CLIENT_EVENTS_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_APP_##NAME,
enum gm_app_state { GM_APP_STATES(GM_STATE) GM_APP_STATES_N };
#undef GM_STATE
#define GM_STATE(NAME) GM_APP_EV_##NAME,
enum gm_app_event { GM_APP_EVENTS(GM_STATE) GM_APP_EVENTS_N };
#undef GM_STATE
/* clang-format on */

/* One change of a state, or an event that is not legal in its state. */
struct gm_turn {
    uint8_t model; /* enum gm_model */
    uint8_t from, event;
    uint8_t to; /* GM_TURN_ILLEGAL: nothing has changed */
    uint32_t id;
    uint32_t app; /* whose it is; GM_NONE: nobody's */
};
#define GM_TURN_ILLEGAL 0xffu

/* The state that follows, or GM_TURN_ILLEGAL. */
uint8_t gm_model_next(enum gm_model model, unsigned state, unsigned event);

/* The names of the tables: "chunk", "AWAY", "FILL". */
const char *gm_model_text(enum gm_model model);
const char *gm_model_state_text(enum gm_model model, unsigned state);
const char *gm_model_event_text(enum gm_model model, unsigned event);
/* An app's state as people read it: "paused". */
const char *gm_app_state_text(enum gm_app_state state);

#endif
