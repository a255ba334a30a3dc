#include "daemon/core/hint.h"

#include "daemon/core/tunables.h"

/* Nobody knows what comes after that. */
#define GM_HINT_AHEAD_NS (10 * GM_S)
/* So much may be owed: two holds of the longest kind in a row. What more is allowed at once is
 * less in the long run. */
#define GM_HOLD_BURST_NS (125 * GM_MS)

bool gm_hint_take(struct gm_hint_rate *rate, uint64_t now, uint64_t after_us, uint64_t for_us,
                  struct gm_hold *hold)
{
    if (now - rate->since >= GM_S)
        *rate = (struct gm_hint_rate){.since = now};
    if (rate->n >= GM_HINTS_A_SECOND)
        return false;
    rate->n++;
    if (for_us == 0 || after_us > GM_HINT_AHEAD_NS / GM_US)
        return false;
    const uint64_t at = now + after_us * GM_US;
    const uint64_t most = GM_HOLD_MOST_NS;
    const uint64_t needs = for_us < most / GM_US ? for_us * GM_US : most;
    hold->begin = after_us * GM_US > GM_HINT_LEAD_NS ? at - GM_HINT_LEAD_NS : now;
    hold->end = at + needs < hold->begin + most ? at + needs : hold->begin + most;
    return hold->end > hold->begin + GM_HINT_LEAD_NS;
}

bool gm_hold_grant(struct gm_hold_account *account, uint32_t share, struct gm_hold *hold)
{
    const struct gm_hold *last = &account->last;
    uint64_t from = hold->begin; /* what comes before is charged */
    if (hold->begin >= last->begin && hold->begin <= last->end)
        from = last->end;
    if (hold->end <= from)
        return true;
    if (share >= 100)
        return false;
    /* So that in a second, and with what was owed at its begin, no more than the rest is used. */
    const uint64_t rest = GM_S * (100 - share) / 100, price = GM_S + GM_HOLD_BURST_NS;
    const uint64_t paid_at = account->paid_at > from ? account->paid_at : from;
    if (paid_at - from >= GM_HOLD_BURST_NS)
        return false;
    const uint64_t most = (GM_HOLD_BURST_NS - (paid_at - from)) * rest / price;
    if (hold->end - from > most)
        hold->end = from + most;
    if (hold->end <= hold->begin + GM_HINT_LEAD_NS)
        return false;
    account->paid_at = paid_at + (hold->end - from) * price / rest;
    account->last = *hold;
    return true;
}
