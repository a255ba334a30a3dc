/*
 * What a program asks for in its environment: GPUMUX_CLASS, GPUMUX_OVERSIZE, GPUMUX_CAP, and what
 * other systems say instead of the last. The shim sends it in HELLO, and the class in PLACE, too;
 * mux-ctl looks for mistakes. Calls settings.h.
 */
#ifndef GM_COMMON_WISHES_H
#define GM_COMMON_WISHES_H

#include "common/classes.h"
#include "common/wire.h"

/* Fill in class, weight, oversize, cap_is and cap. A word that is not known counts as such. `get`
 * is getenv or secure_getenv. */
void gm_wishes_read(char *(*get)(const char *name), struct gm_msg_hello *hello);

/* GPUMUX_CLASS alone, as HELLO and PLACE say it. */
uint32_t gm_wishes_read_class(char *(*get)(const char *name));

/* The class that such a number asks for. Auto: none, or none that is known. */
enum gm_sched_class gm_wishes_class(uint32_t said);

/* What is wrong with each, as one line says it; NULL: nothing. */
const char *gm_wishes_wrong_class(uint32_t class);
const char *gm_wishes_wrong_weight(uint32_t weight);
const char *gm_wishes_wrong_oversize(uint32_t oversize);
const char *gm_wishes_wrong_cap(uint32_t cap_is);

#endif
