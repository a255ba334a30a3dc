/* Whether staging keeps up. See staging.h. */
#include "daemon/core/staging.h"

/* Bytes that a switch to `app` brings in. */
static uint64_t bytes_away(const struct gm_table_app *app)
{
    return app->bytes[GM_TIER_PINNED] + app->bytes[GM_TIER_PAGED] + app->bytes[GM_TIER_DISK];
}

void gm_staging_note(struct gm_staging *staging, const struct gm_table_app *app)
{
    const uint64_t away = bytes_away(app);
    if (away < GM_STAGING_TELLS)
        return;
    if (app->bytes[GM_TIER_PAGED] + app->bytes[GM_TIER_DISK] > away / 5 * GM_STAGING_BEHIND_FIFTHS)
        staging->behind = GM_STAGING_BEHIND_FOR;
    else if (staging->behind > 0)
        staging->behind--;
}

uint64_t gm_staging_left(const struct gm_staging *staging, const struct gm_table_app *app,
                         bool is_next)
{
    if (staging->behind == 0)
        return 0;
    return is_next ? bytes_away(app) / GM_STAGING_LEFT : UINT64_MAX;
}
