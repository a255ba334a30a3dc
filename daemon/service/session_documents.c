#include "daemon/service/session_documents.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/service/session_output.h"

void gm_documents_ask(struct gm_session *session, enum gm_msg_type answer, uint64_t since)
{
    session->answer = answer;
    session->asked.since = since;
    session->stands = GM_STANDS_ASKING;
    TAILQ_INSERT_TAIL(&session->all->asking, session, stand);
    gm_session_watch(session);
}

/* Whose document is made next: of the user who had none for longest, the one who asked first. NULL:
 * nobody's now. */
static struct gm_session *next_asking(const struct gm_sessions *all, uint64_t now)
{
    struct gm_session *session, *next = NULL;
    TAILQ_FOREACH(session, &all->asking, stand)
    {
        if (session->user->is_trusted)
            return session;
        if (!next || session->user->document_at < next->user->document_at)
            next = session;
    }
    return now >= all->document_at ? next : NULL;
}

static struct gm_session *find_asking(const struct gm_sessions *all, enum gm_msg_type answer,
                                      uint64_t since)
{
    struct gm_session *session;
    TAILQ_FOREACH(session, &all->asking, stand)
    {
        if (session->answer == answer && session->asked.since == since)
            break;
    }
    return session;
}

static char *make(struct gm_control *control, enum gm_msg_type answer, uint64_t since)
{
    if (answer == GM_MSG_STATUS_IS)
        return gm_control_status(control);
    return answer == GM_MSG_LOG_IS ? gm_control_log(control, since)
                                   : gm_control_trace(control, since);
}

/* Make what `first` asks for, and give it to all who ask for that. The body of STATUS_IS, LOG_IS
 * and TRACE_IS is the document's length. */
static void answer_all(struct gm_sessions *all, const struct gm_session *first)
{
    const enum gm_msg_type answer = first->answer;
    const uint64_t since = first->asked.since;
    struct gm_session *session;
    uint64_t bytes;
    char why[128];

    char *text = make(all->control, answer, since);
    int fd = gm_control_seal(text, &bytes);
    if (fd < 0)
        snprintf(why, sizeof why, "the document cannot be made: %s", strerror(-fd));
    /* Sending can end sessions, so look for the next one anew. */
    while ((session = find_asking(all, answer, since)) != NULL) {
        gm_session_step_out(session);
        if (fd < 0) {
            gm_session_end(session, GM_REFUSE_FULL, why);
            continue;
        }
        gm_session_await(session, GM_SESSION_PATIENCE_MS);
        if (gm_session_send(session, answer, &bytes, NULL, 0, &fd, 1) == 0)
            gm_session_watch(session);
    }
    if (fd >= 0)
        close(fd);
}

static void on_alarm(uv_timer_t *alarm)
{
    (void)alarm; /* on_round follows */
}

void gm_documents_answer(struct gm_sessions *all)
{
    struct gm_session *first;
    uint64_t now = gm_now();
    while ((first = next_asking(all, now)) != NULL) {
        struct gm_bound *user = first->user;
        const uint64_t begun = now;
        answer_all(all, first);
        now = user->document_at = gm_now();
        if (!user->is_trusted) /* however often root asks, others have theirs */
            all->document_at = now + (now - begun) * GM_SESSION_DOCUMENTS;
    }
    if (!TAILQ_EMPTY(&all->asking))
        uv_timer_start(&all->alarm, on_alarm, (all->document_at - now) / GM_MS + 1, 0);
}
