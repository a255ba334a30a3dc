/*
 * What a program asks for in its environment: GPUMUX_CLASS, GPUMUX_OVERSIZE, GPUMUX_CAP, and what
 * other systems say instead of the last. The shim sends it in HELLO; mux-ctl looks for mistakes.
 * Calls settings.h.
 */
#ifndef GM_COMMON_WISHES_H
#define GM_COMMON_WISHES_H

#include "common/wire.h"

/* Fill in class, weight, oversize, cap_is and cap. A word that is not known counts as such. `get` is getenv
 * or secure_getenv. */
void gm_wishes_read(char *(*get)(const char *name), struct gm_msg_hello *hello);

/* What is wrong with each, as one line says it; NULL: nothing. */
const char *gm_wishes_wrong_class(uint32_t class);
const char *gm_wishes_wrong_weight(uint32_t weight);
const char *gm_wishes_wrong_oversize(uint32_t oversize);
const char *gm_wishes_wrong_cap(uint32_t cap_is);

#endif
