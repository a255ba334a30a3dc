#include "daemon/service/session_rejoin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/engine/lost.h"
#include "daemon/service/process.h"
#include "daemon/service/session_output.h"

static const struct gm_lost *find(const struct gm_session *session, uint32_t app)
{
    const struct gm_takeover *takeover = session->all->control->takeover;
    return takeover ? takeover->find(takeover->arg, app) : NULL;
}

/* Why the peer is not that program: it is told GM_REFUSE_UNKNOWN, and takes that for good. NULL: it
 * is. */
static const char *judge(const struct gm_session *session, const struct gm_lost *lost,
                         const struct gm_msg_rejoin *body)
{
    if (!lost)
        return "this daemon has taken over no program with that number";
    if (lost->uid != session->uid)
        return "the program with that number is another user's";
    if (lost->pid != session->pid ||
        !gm_starts_agree(lost->started, gm_process_started(session->pid)))
        return "the program with that number is another process";
    if (lost->nonce[0] != body->nonce[0] || lost->nonce[1] != body->nonce[1])
        return "the program with that number was told another nonce";
    return lost->refusal;
}

static void refuse(struct gm_session *session, uint32_t app, enum gm_refusal reason,
                   const char *why)
{
    char text[sizeof((struct gm_msg_refused){0}).text];
    snprintf(text, sizeof text, "app %u cannot come back: %s", app, why);
    gm_session_end(session, reason, text);
}

void gm_rejoin_begin(struct gm_session *session, const struct gm_msg_rejoin *body)
{
    if (gm_wire_common(body->oldest, body->newest) == 0) {
        gm_session_end_version(session, body->oldest, body->newest);
        return;
    }
    const struct gm_lost *lost = find(session, body->app);
    const char *why = judge(session, lost, body);
    if (why) {
        refuse(session, body->app, GM_REFUSE_UNKNOWN, why);
        return;
    }
    session->rejoining = calloc(1, sizeof *session->rejoining);
    if (!session->rejoining) {
        gm_session_end(session, GM_REFUSE_FULL, "the daemon has no memory left for it");
        return;
    }
    session->rejoining->body = *body;
}

/* Add what the message says. 0; -EPROTO: it holds more than there is; or -ENOMEM. */
static int collect(struct gm_rejoining *rejoining, uint32_t most,
                   const struct gm_wire_message *message)
{
    if (message->count > most || rejoining->n > most - message->count)
        return -EPROTO;
    if (message->count == 0)
        return 0;
    const size_t bytes = ((size_t)rejoining->n + message->count) * sizeof *rejoining->holds;
    struct gm_holds_entry *holds = realloc(rejoining->holds, bytes);
    if (!holds)
        return -ENOMEM;
    memcpy(holds + rejoining->n, message->entries, message->count * sizeof *holds);
    rejoining->holds = holds;
    rejoining->n += message->count;
    return 0;
}

bool gm_rejoin_holds(struct gm_session *session, const struct gm_wire_message *message)
{
    struct gm_rejoining *rejoining = session->rejoining;
    const struct gm_takeover *takeover = session->all->control->takeover;
    const uint32_t app = rejoining->body.app;
    char text[128];
    const struct gm_lost *lost = find(session, rejoining->body.app);
    enum gm_refusal reason = GM_REFUSE_UNKNOWN;
    /* Others may have come meanwhile. */
    const char *why = judge(session, lost, &rejoining->body);
    int error = why ? 0 : collect(rejoining, lost->most_holds, message);
    if (error == -EPROTO)
        why = "it holds more than there is";
    if (error == -ENOMEM) {
        reason = GM_REFUSE_FULL;
        why = "the daemon has no memory for what it says";
    }
    if (why) {
        refuse(session, app, reason, why);
        return false;
    }
    if (((const struct gm_msg_holds *)message->body)->is_last == 0)
        return false;
    const struct gm_rejoiner who = {
        .session = session, .body = &rejoining->body, .holds = rejoining->holds, .n = rejoining->n};
    const uint64_t waited = gm_now() - lost->since;
    snprintf(session->name, sizeof session->name, "%s", lost->name);
    error = takeover->rejoin(takeover->arg, lost, &who, text, sizeof text);
    if (error) { /* if it is not to blame, it may try again */
        refuse(session, app, error == -EPROTO ? GM_REFUSE_UNKNOWN : GM_REFUSE_FULL, text);
        return false;
    }
    session->app = app;
    gm_session_say(session, GM_LOG_INFO, "is back, %.1f s after this daemon took it over",
                   (double)waited / (double)GM_S);
    return true;
}

void gm_rejoin_anew(const struct gm_session *session)
{
    const struct gm_takeover *takeover = session->all->control->takeover;
    if (takeover)
        takeover->replace(takeover->arg, session->pid);
}
