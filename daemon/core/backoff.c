#include "daemon/core/backoff.h"

#include "daemon/core/tunables.h"

void gm_backoff_fail(struct gm_backoff *backoff, uint64_t now)
{
    if (backoff->at > now)
        return;
    const uint64_t wait = backoff->wait == 0 ? GM_RETRY_NS : 2 * backoff->wait;
    backoff->wait = wait < GM_RETRY_MOST_NS ? wait : GM_RETRY_MOST_NS;
    backoff->at = now + backoff->wait;
}

void gm_backoff_go_well(struct gm_backoff *backoff, uint64_t now)
{
    if (backoff->at <= now)
        backoff->wait = 0;
}

bool gm_backoff_come(struct gm_backoff *backoff, uint64_t now)
{
    if (backoff->at == 0 || backoff->at > now)
        return false;
    backoff->at = 0;
    return true;
}
