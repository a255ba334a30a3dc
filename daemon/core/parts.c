/* Where time goes: see parts.h. */
#include "daemon/core/parts.h"

void gm_parts_pass(struct gm_parts *parts, uint64_t now)
{
    if (now <= parts->at)
        return; /* what was computed takes of the time to come */
    const uint64_t passed = now - parts->at;
    const uint64_t planned = parts->planned_ns < passed ? parts->planned_ns : passed;
    parts->at = now;
    parts->planned_ns = 0;
    parts->ns[GM_PART_PLAN] += planned;
    parts->ns[parts->now] += passed - planned;
    for (int way = 0; way < 2; way++)
        parts->way_ns[way] += parts->is_copying[way] ? passed : 0;
    parts->link_ns += parts->is_copying[0] || parts->is_copying[1] ? passed : 0;
}

void gm_parts_turn(struct gm_parts *parts, uint64_t now, const struct gm_under_way *under_way)
{
    gm_parts_pass(parts, now);
    parts->now = GM_PART_DRAIN;
    while (parts->now < GM_PART_OTHER && !under_way->has[parts->now])
        parts->now++;
    for (int way = 0; way < 2; way++)
        parts->is_copying[way] = under_way->is_copying[way];
}
