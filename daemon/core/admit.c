#include "daemon/core/admit.h"

#include <stddef.h>

/* While a holder is kept behind the head, who is at work is looked at again so often. */
#define GM_ADMIT_LOOK_NS (1 * GM_S)

static bool does_fit(const struct gm_admit_input *input, const struct gm_admit_request *request)
{
    return request->bytes <= input->room && !request->is_barred;
}

static bool is_holder(const struct gm_admit_input *input, const struct gm_admit_request *request)
{
    return input->apps[request->app].held > 0;
}

/* Whether a holder that waits for nothing is at work. */
static bool is_any_at_work(const struct gm_admit_input *input)
{
    for (uint32_t app = 0; app < input->n_apps; app++)
        if (input->apps[app].held > 0 && input->apps[app].waits == 0 && input->apps[app].is_at_work)
            return true;
    return false;
}

/* The first request behind the head that is a holder's and fits. */
static const struct gm_admit_request *find_passing(const struct gm_admit_input *input)
{
    const struct gm_admit_request *request = input->first->next;
    while (request && !(is_holder(input, request) && does_fit(input, request)))
        request = request->next;
    return request;
}

/* Find the apps that can end, one after the other: the memory of each may be what the next one
 * waits for. The holders that are left are in a deadlock. */
static void find_ends(const struct gm_admit_input *input)
{
    uint64_t room = input->room;
    bool is_more = true;
    for (uint32_t i = 0; i < input->n_apps; i++) {
        input->apps[i].can_end = input->apps[i].waits == 0;
        input->apps[i].least = UINT64_MAX;
        room += input->apps[i].can_end ? input->apps[i].held : 0;
    }
    for (const struct gm_admit_request *at = input->first; at; at = at->next)
        if (at->bytes < input->apps[at->app].least)
            input->apps[at->app].least = at->bytes;
    while (is_more) { /* over apps, not requests: these are many more */
        is_more = false;
        for (uint32_t i = 0; i < input->n_apps; i++) {
            struct gm_admit_app *app = &input->apps[i];
            if (app->held == 0 || app->can_end || app->least > room)
                continue;
            app->can_end = is_more = true;
            room += app->held;
        }
    }
}

/* The last request in a deadlock that came no later than `since`; NULL: none. */
static const struct gm_admit_request *find_stuck(const struct gm_admit_input *input, uint64_t since)
{
    const struct gm_admit_request *last = NULL;
    for (const struct gm_admit_request *at = input->first; at; at = at->next)
        if (is_holder(input, at) && !input->apps[at->app].can_end && at->since <= since)
            last = at;
    return last;
}

struct gm_admit_decision gm_admit_step(struct gm_admit *admit, const struct gm_admit_input *input)
{
    const struct gm_admit_request *head = input->first, *stuck;

    if (head && does_fit(input, head))
        return (struct gm_admit_decision){.action = GM_ADMIT_GRANT, .request = head};
    if (head && !head->may_wait)
        return (struct gm_admit_decision){.action = GM_ADMIT_REFUSE, .request = head};
    const struct gm_admit_request *passing = head ? find_passing(input) : NULL;
    bool must_wait =
        passing && input->now - head->since >= input->patience_ns && is_any_at_work(input);
    if (passing && !must_wait)
        return (struct gm_admit_decision){.action = GM_ADMIT_GRANT, .request = passing};

    if (input->has_deadlocks)
        find_ends(input);
    if (!input->has_deadlocks || !find_stuck(input, UINT64_MAX)) {
        admit->stuck_since = 0;
        return (struct gm_admit_decision){.wake_at = must_wait ? input->now + GM_ADMIT_LOOK_NS
                                                               : UINT64_MAX};
    }
    stuck = find_stuck(input, admit->stuck_since);
    if (!stuck)
        admit->stuck_since = input->now; /* a new deadlock */
    if (input->now - admit->stuck_since < GM_ADMIT_STUCK_NS)
        return (struct gm_admit_decision){.wake_at = admit->stuck_since + GM_ADMIT_STUCK_NS};
    admit->stuck_since = 0; /* the next step begins anew if one is left */
    return (struct gm_admit_decision){.action = GM_ADMIT_BREAK, .request = stuck};
}
