#include "daemon/service/session_starts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/core/tunables.h"
#include "daemon/memory/files.h"
#include "daemon/service/session_output.h"
#include "daemon/service/users.h"

#define SOON_MS 10u

/* Its answer takes up to `ns`. False: it cannot be told. */
static bool ask_to_wait(struct gm_session *session, uint64_t ns, const char *why)
{
    struct gm_msg_placed answer = {.wait_ns = ns};
    snprintf(answer.text, sizeof answer.text, "%s", why);
    session->is_told = true;
    return gm_session_send(session, GM_MSG_PLACED, &answer, NULL, 0, NULL, 0) == 0;
}

/* MPS is starting for it. Meanwhile it stays a visitor. False: it cannot wait. */
static bool joins_later(struct gm_session *session, const struct gm_joining *placed)
{
    if (!session->joining)
        session->joining = malloc(sizeof *session->joining);
    if (!session->joining)
        return false;
    *session->joining = *placed;
    uv_timer_stop(&session->timer); /* mps.h has limits of its own */
    if (!session->is_told)
        ask_to_wait(session, GM_MPS_WAIT_NS, "it waits until MPS has started");
    return true;
}

/* With the answer the session ends, or many that start at the same time would crowd each other
 * out. */
static void answer_placed(struct gm_session *session, struct gm_joining *placed)
{
    struct gm_msg_placed *answer = &placed->answer;
    if (session->is_sharing &&
        gm_mps_join(session->all->control->mps, session->pid, session->uid, session->gid,
                    session->part, answer->pipe, answer->sharing,
                    sizeof answer->sharing) == GM_MPS_SOON &&
        joins_later(session, placed))
        return;
    answer->part = answer->pipe[0] != '\0' ? session->part : 0;
    if (session->has_own_mps)
        snprintf(answer->sharing, sizeof answer->sharing, "its user's own MPS is used");
    if (gm_session_send(session, GM_MSG_PLACED, answer, placed->entries, placed->n, NULL, 0) == 0 &&
        !session->head)
        gm_session_lose(session, GM_LOG_DEBUG, "placed");
}

void gm_starts_settled(void *arg, uid_t uid)
{
    struct gm_sessions *all = arg;
    struct gm_session *session, *next;
    for (session = TAILQ_FIRST(&all->living); session; session = next) {
        next = TAILQ_NEXT(session, each);
        if (!session->joining || session->uid != uid)
            continue;
        struct gm_joining placed = *session->joining;
        free(session->joining);
        session->joining = NULL;
        gm_session_await(session, GM_SESSION_PATIENCE_MS);
        answer_placed(session, &placed);
    }
}

/*
 * PLACE. Its program connects anew for all else. One that waits until a GPU has room is no visitor
 * meanwhile, and has no time limit but --patience. It has its GPU from now on, also while MPS
 * starts: who comes next finds that much less.
 */
static void place(struct gm_session *session, const char *name,
                  const struct gm_place_request *request)
{
    struct gm_joining placed = {.n = 0};
    placed.n = gm_placing(session->all->control, name, request, &placed.answer, placed.entries);
    answer_placed(session, &placed);
}

/* Who fits waits for others that start: when they compute is looked at more often. */
static void look_again(struct gm_sessions *all)
{
    const struct gm_waiters *waiters = &all->control->waiters;
    const uint64_t now = gm_now();
    bool is_held = false;
    for (uint32_t i = 0; i < waiters->n; i++) {
        const uint64_t since = waiters->waiting[i].fits_since;
        is_held = is_held || (since != 0 && now - since < GM_BIND_HELD_NS);
    }
    uv_timer_start(&all->starts, all->on_starts, is_held ? SOON_MS : GM_BIND_LOOK_NS / GM_MS,
                   GM_BIND_LOOK_NS / GM_MS);
}

/* Place those for whom there is room now. */
static void serve_waiters(struct gm_sessions *all)
{
    struct gm_waiters *waiters = &all->control->waiters;
    for (uint32_t i = 0; i < waiters->n; i++) { /* who may not have been known when it came */
        struct gm_place_request *request = &waiters->waiting[i].request;
        request->owner = gm_users_owner(request->uid);
    }
    for (uint32_t left = waiters->n; left > 0 && waiters->n > 0; left--) {
        const uint32_t which = gm_binds_next(&all->machine->binds, waiters->waiting, waiters->n,
                                             all->control->options->patience);
        if (which == GM_BIND_NONE) {
            look_again(all);
            return;
        }
        struct gm_session *session = waiters->who[which].session;
        const struct gm_place_request request = waiters->waiting[which].request;
        char name[sizeof waiters->who[0].name];
        memcpy(name, waiters->who[which].name, sizeof name);
        gm_session_wait_ends(session);
        gm_session_await(session, GM_SESSION_PATIENCE_MS);
        place(session, name, &request);
    }
}

void gm_starts_look(uv_timer_t *timer)
{
    serve_waiters(timer->data);
}

/* Whether one more may wait, without taking what others need. */
static bool has_room_to_wait(const struct gm_sessions *all, const struct gm_session *session)
{
    const struct gm_waiters *waiters = &all->control->waiters;
    const uid_t owner = gm_users_owner(session->uid);
    uint32_t of_user = 0;
    for (uint32_t i = 0; i < waiters->n; i++)
        of_user += gm_users_owner(waiters->waiting[i].request.uid) == owner;
    return waiters->n < GM_BIND_WAITERS && of_user < GM_BIND_WAITERS_USER &&
           !gm_files_is_reserved(session->fd);
}

void gm_starts_place(struct gm_session *session, const struct gm_wire_message *message)
{
    struct gm_sessions *all = session->all;
    struct gm_waiters *waiters = &all->control->waiters;
    const struct gm_msg_place *body = message->body;
    const struct gm_placing who = {.pid = session->pid,
                                   .uid = session->uid,
                                   .owner = gm_users_owner(session->uid),
                                   .body = body,
                                   .tokens = message->entries,
                                   .n = message->count};
    struct gm_place_request request;
    session->is_sharing = gm_placing_shares(all->control, &who, &session->part);
    session->has_own_mps = session->is_sharing && (body->flags & GM_PLACE_HAS_MPS) != 0;
    if (session->has_own_mps) {
        session->is_sharing = false; /* the driver joins that by itself */
        gm_log_like(GM_LOG_INFO, "own mps", "%s (pid %d): its user's own MPS is used", body->name,
                    (int)session->pid);
    }
    if (!gm_placing_read(all->control, &all->view, &who, &request) ||
        !has_room_to_wait(all, session)) {
        place(session, body->name, &request);
        return;
    }
    const uint32_t at = waiters->n++;
    waiters->waiting[at] = (struct gm_waiting){.request = request, .since = gm_now()};
    waiters->who[at].session = session;
    memcpy(waiters->who[at].name, body->name, sizeof waiters->who[at].name);
    session->is_starting = true;
    gm_session_settle(session);
    if (at == 0)
        uv_timer_start(&all->starts, all->on_starts, GM_BIND_LOOK_NS / GM_MS,
                       GM_BIND_LOOK_NS / GM_MS);
    serve_waiters(all);
    if (!session->is_starting)
        return; /* there was room */
    uv_timer_stop(&session->timer);
    const bool is_fit = waiters->waiting[waiters->n - 1].fits_since != 0; /* it came last */
    if (!is_fit)
        gm_session_say(session, GM_LOG_INFO, "%s waits until a GPU has room for it", body->name);
    ask_to_wait(session,
                all->control->options->patience + (session->is_sharing ? GM_MPS_WAIT_NS : 0),
                is_fit ? "others start on its GPU: it waits for a moment"
                       : "no GPU has room for it beside the others: it waits");
}
