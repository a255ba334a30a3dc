#include "daemon/core/need.h"

#include "common/sums.h"

/* Pinned memory made ahead of what the GPU cannot hold, at most: 10 ms of both links, as the
 * streaming window, and pinned in 220 ms. */
#define GM_NEED_AHEAD_MAX (1 * GM_GIB)
/* ... and at least: two chunks of 32 MiB, as chunks of other sizes may have to go than come. */
#define GM_NEED_AHEAD_MIN (64 * GM_MIB)

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void gm_lately_note(struct gm_lately *lately, uint64_t now, uint64_t value)
{
    const uint64_t periods = (now - lately->since) / GM_LATELY_NS;
    if (periods > 0) {
        lately->before = periods == 1 ? lately->most : lately->value;
        lately->most = lately->value;
        lately->since += periods * GM_LATELY_NS;
    }
    lately->value = value;
    lately->most = greater(lately->most, value);
}

uint64_t gm_lately_most(const struct gm_lately *lately)
{
    return greater(lately->most, lately->before);
}

uint64_t gm_lately_falls_at(const struct gm_lately *lately)
{
    return gm_lately_most(lately) > lately->value ? lately->since + GM_LATELY_NS : UINT64_MAX;
}

void gm_lately_hold(struct gm_lately *lately, uint64_t now)
{
    lately->most = gm_lately_most(lately);
    lately->since = now;
}

void gm_lately_forget(struct gm_lately *lately)
{
    lately->most = lately->before = lately->value;
}

void gm_need_of(const struct gm_need_input *input, struct gm_need *need)
{
    const uint64_t frames = gm_least(input->committed - input->beyond, input->budget);
    const uint64_t below = input->committed - frames;
    const uint64_t held = gm_less(input->pinned_cap, gm_more(input->window, input->pinned_left));

    need->frames = frames;
    need->pinned = below;
    if (below > 0)
        need->pinned += gm_least(greater(below, GM_NEED_AHEAD_MIN), GM_NEED_AHEAD_MAX) +
                        gm_least(input->shadows, need->frames) + input->pinned_left;
    /* What lies below comes up through pinned memory, though everything fits on the GPU now. */
    if (input->is_stuck || input->lower_used > 0)
        need->pinned = greater(need->pinned, input->pinned_used + GM_NEED_AHEAD_MIN);
    /* A promotion frees its paged memory only at its end, so a window more is in use. */
    need->paged = below > held ? below - held + input->window : 0;
}
