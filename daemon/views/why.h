/*
 * Reasons (core/why.h) as texts with their numbers. Called by the other files of this folder.
 */
#ifndef GM_DAEMON_VIEWS_WHY_H
#define GM_DAEMON_VIEWS_WHY_H

#include <stddef.h>

#include "daemon/core/bind.h"
#include "daemon/core/why.h"

/* "app 3 (pid 812, python3)". Returns `text`. */
char *gm_view_name(uint32_t app, int32_t pid, const char *name, char *text, size_t size);

/* Why an allocation was refused: "all tiers together hold 3.0G, and 2.9G are taken"; and which
 * options to raise, "" for none. Returns `text`. */
const char *gm_view_refusal(const struct gm_reason *refusal, char *text, size_t size);
const char *gm_view_raise(const struct gm_reason *refusal);

/* Why an app does not run, or is not all on the GPU; "" for NONE. `by`: who or which rule says so,
 * or ""; `app`: the name of the app that it waits for. Returns `text`. */
char *gm_view_reason(const struct gm_reason *why, const char *by, const char *app, char *text,
                     size_t size);

/* Why a program is on its GPU, and what it was expected to need; "" for NONE. Returns `text`. */
char *gm_view_placed(enum gm_why why, uint64_t need, enum gm_need_from from, char *text,
                     size_t size);

#endif
