/*
 * Constants from tunables.def. Counts are numbers that an array may be as long as; times and sizes
 * are 64 bits wide. Included by the core and the engine.
 */
#ifndef GM_CORE_TUNABLES_H
#define GM_CORE_TUNABLES_H

#include <stdint.h>

#include "common/units.h"

#define GM_COUNT(NAME, value, unit, why) enum { NAME = (value) };
#define GM_TIME(NAME, value, why) static const uint64_t NAME __attribute__((unused)) = (value);
#define GM_BYTES(NAME, value, why) static const uint64_t NAME __attribute__((unused)) = (value);
#include "daemon/core/tunables.def"
#undef GM_COUNT
#undef GM_TIME
#undef GM_BYTES

#endif
