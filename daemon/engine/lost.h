/*
 * Programs of the daemon before, which have not come yet, for those who take them over and those
 * who hear them: service/session_rejoin.c finds out whether a peer is one of them, gm_takeover does
 * the rest. Without a gm_takeover there are none.
 */
#ifndef GM_DAEMON_ENGINE_LOST_H
#define GM_DAEMON_ENGINE_LOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/wire.h"
#include "daemon/engine/state/engine.h"

/* All of it is as the daemon before knew it. */
struct gm_lost {
    uint32_t app;
    pid_t pid;
    uint64_t started; /* in clock ticks since the machine's start: a pid may be used again; 0: it
                       * could not be read */
    uid_t uid;
    uint64_t nonce[2];
    const char *name;
    uint64_t since;      /* when this daemon took it over */
    const char *refusal; /* why it cannot come back; NULL: it can */
    uint32_t most_holds; /* frames that it can have imported */
};

/* Whether two starts, of processes with one number, may be of one process. One that could not be
 * read says nothing: then a pidfd or a nonce tells. */
static inline bool gm_starts_agree(uint64_t one, uint64_t other)
{
    return one == 0 || other == 0 || one == other;
}

/* What such a program says of itself. */
struct gm_rejoiner {
    struct gm_session *session;
    const struct gm_msg_rejoin *body;
    const struct gm_holds_entry *holds;
    uint32_t n;
};

struct gm_takeover {
    void *arg;
    /* The program that had this id. NULL: there is none. It stays until the next call of either. */
    const struct gm_lost *(*find)(void *arg, uint32_t app);
    /* It has come: make it an app with its id, and send WELCOME through its session. Everything in
     * `who` but its identity is as the program says. 0; or -errno, and one line for it in `why`. */
    int (*rejoin)(void *arg, const struct gm_lost *lost, const struct gm_rejoiner *who, char *why,
                  size_t why_size);
    /* The process has said HELLO: if it is that of such a program, it has executed another one, and
     * what that had is gone. */
    void (*replace)(void *arg, pid_t pid);
};

#endif
