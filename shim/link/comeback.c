#include "shim/link/comeback.h"

struct gm_comeback_row {
    enum gm_link_state to;
    unsigned actions;
    bool is_known;
};

#define GM_TO(state, actions)                                                                      \
    {                                                                                              \
        GM_LINK_##state, (actions), true                                                           \
    }

/* TIME is not here: it follows from the times. */
static const struct gm_comeback_row gm_comeback_rows[GM_LINK_STATES][GM_LINK_EVENTS] = {
    [GM_LINK_UP] =
        {
            [GM_LINK_EV_HANG_UP] = GM_TO(LOST, GM_LINK_DO_PART),
            [GM_LINK_EV_ENDED] = GM_TO(GONE, GM_LINK_DO_PART | GM_LINK_DO_GIVE_UP),
        },
    [GM_LINK_LOST] =
        {
            [GM_LINK_EV_CONNECTED] = GM_TO(REJOIN, 0),
            [GM_LINK_EV_NOBODY] = GM_TO(GONE, GM_LINK_DO_GIVE_UP),
        },
    [GM_LINK_REJOIN] =
        {
            [GM_LINK_EV_HANG_UP] = GM_TO(LOST, GM_LINK_DO_HANG_UP),
            [GM_LINK_EV_WELCOME] = GM_TO(UP, GM_LINK_DO_GO_ON),
            [GM_LINK_EV_LATER] = GM_TO(LOST, GM_LINK_DO_HANG_UP),
            [GM_LINK_EV_REFUSED] = GM_TO(GONE, GM_LINK_DO_HANG_UP | GM_LINK_DO_GIVE_UP),
            [GM_LINK_EV_NO_FILES] = GM_TO(REJOIN, 0),
            [GM_LINK_EV_NOBODY] = GM_TO(GONE, GM_LINK_DO_HANG_UP | GM_LINK_DO_GIVE_UP),
        },
};

static uint64_t gm_comeback_refuse_at(const struct gm_comeback *comeback)
{
    if (comeback->is_refusing || comeback->limit_ns > UINT64_MAX - comeback->lost_at)
        return UINT64_MAX;
    return comeback->lost_at + comeback->limit_ns;
}

/* LOST: try again after the gap; REJOIN: look again. */
static void gm_comeback_again(struct gm_comeback *comeback, uint64_t now)
{
    comeback->try_at = now + comeback->gap;
    comeback->gap =
        comeback->gap < GM_COMEBACK_GAP_MAX / 2 ? 2 * comeback->gap : GM_COMEBACK_GAP_MAX;
}

/* The one setter of the state. */
static unsigned gm_comeback_turn(struct gm_comeback *comeback, const struct gm_comeback_row *row,
                                 uint64_t now)
{
    const enum gm_link_state from = comeback->state;
    comeback->state = row->to;
    comeback->is_deaf = from == GM_LINK_REJOIN && row->to == GM_LINK_REJOIN;
    switch (row->to) {
    case GM_LINK_LOST:
        if (from == GM_LINK_UP) {
            comeback->lost_at = now;
            comeback->gap = GM_COMEBACK_GAP_MIN;
            comeback->is_refusing = comeback->is_told = false;
        }
        gm_comeback_again(comeback, now);
        break;
    case GM_LINK_REJOIN:
        if (comeback->is_deaf)
            gm_comeback_again(comeback, now);
        break;
    case GM_LINK_UP:
    case GM_LINK_GONE:
        break;
    }
    return row->actions;
}

static unsigned gm_comeback_pass(struct gm_comeback *comeback, uint64_t now)
{
    unsigned actions = 0;
    if (comeback->state != GM_LINK_LOST && comeback->state != GM_LINK_REJOIN)
        return 0;
    if (now >= gm_comeback_refuse_at(comeback)) {
        comeback->is_refusing = true;
        actions |= GM_LINK_DO_REFUSE;
    }
    if (comeback->state == GM_LINK_LOST && now >= comeback->try_at) {
        actions |= GM_LINK_DO_CONNECT | (comeback->is_told ? 0 : GM_LINK_DO_TELL);
        comeback->is_told = true;
        gm_comeback_again(comeback, now);
    }
    if (now >= comeback->try_at)
        comeback->is_deaf = false;
    return actions;
}

unsigned gm_comeback_step(struct gm_comeback *comeback, enum gm_link_event event, uint64_t now)
{
    const struct gm_comeback_row *row = &gm_comeback_rows[comeback->state][event];
    if (event == GM_LINK_EV_TIME)
        return gm_comeback_pass(comeback, now);
    return row->is_known ? gm_comeback_turn(comeback, row, now) : 0;
}

uint64_t gm_comeback_due(const struct gm_comeback *comeback)
{
    const bool is_away = comeback->state == GM_LINK_LOST || comeback->state == GM_LINK_REJOIN;
    const uint64_t refuse_at = gm_comeback_refuse_at(comeback);
    const bool is_to_try = comeback->state == GM_LINK_LOST || comeback->is_deaf;
    const uint64_t at = is_to_try ? comeback->try_at : UINT64_MAX;
    if (!is_away)
        return UINT64_MAX;
    return at < refuse_at ? at : refuse_at;
}
