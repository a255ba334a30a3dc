/*
 * Events as lines of the daemon's log. Called by journal.c; calls why.c and common/log.
 */
#ifndef GM_DAEMON_VIEWS_TELL_H
#define GM_DAEMON_VIEWS_TELL_H

#include "daemon/core/events.h"

void gm_view_tell(const struct gm_event *event);

#endif
