/*
 * The step: one event changes the state, and the engine goes round until nothing more can be done
 * now. It never blocks, and it knows no time but that of the event. It posts actions
 * (state/actions.h), which are carried out after each part of it. Two things it still does itself:
 * it reads and writes words that are shared with programs, and pages that it takes or gives back
 * may start a worker (tests/unit/reach.py names those calls).
 */
#ifndef GM_DAEMON_ENGINE_STEP_STEP_H
#define GM_DAEMON_ENGINE_STEP_STEP_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"

struct gm_holdings;

enum gm_input_kind {
    GM_INPUT_TIME,        /* nothing but time has passed */
    GM_INPUT_DEVICE,      /* look what the device has free, and follow if the budget is another */
    GM_INPUT_REFRESH,     /* ... and bring all up to date */
    GM_INPUT_JOIN,        /* the client is an app of this engine from now on */
    GM_INPUT_MESSAGE,     /* of the app */
    GM_INPUT_IMPORTED,    /* the app has imported memory of the client */
    GM_INPUT_LEFT,        /* its session is gone */
    GM_INPUT_EXITED,      /* its process has ended */
    GM_INPUT_CLOSED,      /* ... and the last copy of its connection is closed */
    GM_INPUT_COPIES,      /* copies of the mover have ended */
    GM_INPUT_HOST_COPIED, /* the copy of a chunk between host tiers has ended */
    GM_INPUT_HASHES,      /* hashes have ended */
    GM_INPUT_LINK,        /* the meter has counted, or cannot */
    GM_INPUT_PINNED,      /* pinned memory has grown, or was refused */
    GM_INPUT_LOST,        /* the GPU is lost: it decides nothing any more */
    GM_INPUT_SET,         /* an administrator or a user says something of programs */
    GM_INPUT_TUNE,        /* options and rules have changed */
    GM_INPUT_TRIM,        /* ... wants memory back */
    GM_INPUT_SAVE,        /* the daemon is about to end */
    GM_INPUT_AWAIT,       /* the client of a daemon before has yet to come back */
    GM_INPUT_AWAITED,     /* ... and no others have */
    GM_INPUT_RETURN,      /* it has */
    GM_INPUT_GIVE_UP,     /* it never will */
};

/* What has happened. */
struct gm_input {
    enum gm_input_kind kind;
    struct gm_device_room device; /* if it is asked for (gm_engine_needs_device) */
    uint32_t app;                 /* MESSAGE, IMPORTED, LEFT, EXITED, CLOSED, RETURN, GIVE_UP */
    union {
        struct gm_client *client; /* JOIN, IMPORTED */
        bool has_hung_up;         /* LEFT: nobody has its connection any more */
        struct {
            const struct gm_wire_message *message;
            const uint64_t *nonce; /* SHARE: two numbers that nobody can guess; NULL: none */
        };
        struct {
            const struct gm_ended *ended; /* each way in its order */
            uint32_t n;
        } copies;
        struct {
            const struct gm_ended_hash *ended; /* in their order */
            uint32_t n;
        } hashes;
        struct {
            uint32_t chunk;
            int error;
        } host_copied;
        struct {
            const struct gm_meter_sample *sample; /* NULL: none */
            const char *why_none;                 /* there is no meter; NULL: there is */
        } link;
        const char *error; /* LOST, PINNED: the driver's name of it */
        struct {
            const struct gm_set_request *request;
            struct gm_set_done *done;
            char *why;
            size_t why_size;
        } set;
        const struct gm_engine_tuning *tuning; /* TUNE */
        struct {
            uid_t asker;
            bool is_admin;
            struct gm_trimmed *trimmed;
        } trim;
        struct {
            void (*on_saved)(void *arg);
            void *arg;
        } save;
        struct {
            struct gm_client *client;
            const struct gm_client_record *record;
        } await;
        const struct gm_holdings *back; /* RETURN: what it has */
        bool is_over;                   /* GIVE_UP: its process has ended */
    };
};

/* Whether what follows from the input depends on what the device has free now. */
bool gm_engine_needs_device(const struct gm_input *input);
/* The input came at the time `now`. Of JOIN, SET, AWAIT and AWAITED 0, or -errno: of the first
 * three nothing has changed then; of JOIN -EAGAIN: it is to come again at once; and after AWAITED
 * the engine is to be closed. */
int gm_engine_step(struct gm_engine *engine, uint64_t now, const struct gm_input *input);
/* What was posted is carried out: take in what came of it, and do the next part of what follows
 * from the input. False: there is none, and nothing is posted. */
bool gm_engine_go_on(struct gm_engine *engine);

#endif
