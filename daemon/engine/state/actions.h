/*
 * What the step wants done outside of it. The step posts actions, here and by what calls this; act/
 * carries them out in their order when a part of the step is over, and notes in each what came of
 * it; then the step takes that in (gm_engine_go_on), as it takes events in.
 *
 * Owns gm_engine.posted and carried. An action and what it points to lie here until the step has
 * taken it. There is always memory for the actions that must not fail: how many of them there can
 * be at a time follows from the sizes of the tables (gm_actions_open). Without memory for the
 * others an event is not shown to the views, and a program that cannot be told something is cut
 * off.
 */
#ifndef GM_DAEMON_ENGINE_STATE_ACTIONS_H
#define GM_DAEMON_ENGINE_STATE_ACTIONS_H

#include "daemon/engine/state/state.h"

enum gm_action_kind {
    GM_ACTION_EVENT, /* hand it to the views */
    GM_ACTION_SEND,  /* a message to a program */
    GM_ACTION_END,   /* ... and the end of its session */

    GM_ACTION_COPY,       /* between a frame and pinned pages */
    GM_ACTION_CLEAR,      /* a frame, or pinned pages */
    GM_ACTION_COPY_BELOW, /* between tiers below the GPU */

    GM_ACTION_CREATE,  /* make a frame on the GPU */
    GM_ACTION_ADOPT,   /* ... of pinned memory */
    GM_ACTION_DESTROY, /* either */
    GM_ACTION_AHEAD,   /* the frames of an allocation ahead were asked for: nothing to do */

    GM_ACTION_HASH, /* a frame */

    GM_ACTION_GATE,        /* open or close the gate of a client */
    GM_ACTION_UNPARK,      /* work of it may go on */
    GM_ACTION_DROP_CLIENT, /* an engine, or who made it, has it no more */

    GM_ACTION_TRIM,  /* give paged memory back, if all is to go */
    GM_ACTION_METER, /* take samples, or do not */

    /* Questions. */
    GM_ACTION_READ_WINDOW, /* what an app touched */
    GM_ACTION_ASK_DEVICE,  /* what the driver says is free on the GPU */
    GM_ACTION_ASK_STOP,    /* whether the process of an app stands still */
};

struct gm_action {
    struct gm_action *next;
    enum gm_action_kind kind;
    union {
        struct gm_event event;
        struct {
            struct gm_session *session;
            enum gm_msg_type type;
            const void *body, *entries;
            uint32_t n;
            const int *fds; /* frames': they are open until then */
            int n_fds;
        } send;
        struct {
            struct gm_session *session;
            enum gm_refusal reason;
            const char *text;
        } end;
        struct {
            enum gm_way way;
            uint64_t number; /* of that way */
            uint32_t chunk;
            uint32_t frame, page; /* CLEAR: one of them; the other is GM_NONE */
            uint64_t bytes, fence;
            bool is_refused; /* COPY out: the result */
        } copy;
        struct {
            uint32_t chunk;
            enum gm_tier from, to;
            uint32_t page, to_page;
            uint64_t bytes;
        } below;
        struct {
            uint32_t frame, chunk; /* GM_NONE: for nobody yet */
            uint64_t bytes;
            struct gm_made made; /* the result */
        } create;
        struct {
            uint32_t frame, chunk; /* frame GM_NONE: not any more */
            uint32_t page, owner;
            struct gm_made made; /* the result */
        } adopt;
        struct {
            uint32_t frame;
            uint64_t bytes;
            bool may_be_kept; /* another process may have it: look whether the driver has the
                                 memory again */
            bool is_kept;     /* the result */
        } destroy;
        struct {
            uint32_t app;
            struct gm_msg_alloc alloc;
        } ahead;
        struct {
            uint64_t number;
            uint32_t frame;
            uint64_t bytes;
        } hash;
        struct {
            struct gm_client *client;
            uint64_t epoch;
            bool is_open;
        } gate; /* UNPARK, DROP_CLIENT: of this client */
        struct {
            struct gm_trimmed *trimmed; /* for who asked: `gpu` is known */
            uid_t asker;
            bool is_all;
            uint64_t leaving; /* bytes of pinned memory that were, before */
        } trim;
        bool is_metering;
        struct {
            uint32_t app, from, to; /* gm_engine_read_window */
            uint32_t before;        /* the window that has ended, */
            bool is_whole;          /* ... if all that it touched is read */
            struct gm_use *uses;    /* the answer, for whom it is to free */
            int64_t n;
        } window;
        struct gm_device_room device; /* ASK_DEVICE: the answer */
        struct {
            uint32_t app;
            pid_t pid;
            enum gm_why why; /* the answer */
        } stop;
    };
};

/* Memory for those that must not fail. 0 or -ENOMEM. */
int gm_actions_open(struct gm_engine *engine);
void gm_actions_close(struct gm_engine *engine);

/* Post one. NULL: there is no memory for it. */
struct gm_action *gm_engine_post(struct gm_engine *engine, enum gm_action_kind kind);
/* ... for which there always is some. */
struct gm_action *gm_engine_post_surely(struct gm_engine *engine, enum gm_action_kind kind);
/* Memory that lasts as long as what is posted now. NULL: there is none. */
void *gm_engine_post_copy(struct gm_engine *engine, const void *what, size_t bytes);

/* Have the views told. Without memory for it they miss it. */
void gm_engine_post_event(struct gm_engine *engine, const struct gm_event *event);

/* Memory below the GPU is wanted, when what is posted now is carried out: as gm_hostpool_want,
 * gm_hostpool_make_units and gm_stores_want. The last word counts. */
void gm_engine_make_pinned(struct gm_engine *engine, uint64_t bytes);
void gm_engine_make_pinned_units(struct gm_engine *engine);
void gm_engine_make_paged(struct gm_engine *engine, uint64_t bytes);
/* ... once. */
struct gm_wants gm_engine_take_wants(struct gm_engine *engine);

/* What is posted is being carried out. Returns the first. */
struct gm_action *gm_engine_carry(struct gm_engine *engine);
/* All that was carried out is taken. */
void gm_engine_carried(struct gm_engine *engine);

#endif
