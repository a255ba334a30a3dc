/*
 * The status as a document, from a snapshot of the machine (core/snapshot.h) and the refusals that
 * the journal keeps. Computes nothing. Called by service/control.c, on the loop thread; calls log.c
 * and why.c.
 */
#ifndef GM_DAEMON_VIEWS_STATUS_H
#define GM_DAEMON_VIEWS_STATUS_H

#include <cjson/cJSON.h>

struct gm_journal;
struct gm_snapshot;

/* The machine's part of `mux-ctl status --json`: {"gpus":[...],"apps":[...],"totals":{...}}. See
 * mux-ctl(1), "JSON". The caller owns it; NULL: out of memory. */
cJSON *gm_view_status(const struct gm_snapshot *snapshot, const struct gm_journal *journal);

#endif
