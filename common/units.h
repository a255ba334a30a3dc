/* Units of times (nanoseconds) and sizes (bytes). */
#ifndef GM_COMMON_UNITS_H
#define GM_COMMON_UNITS_H

#define GM_US 1000ull
#define GM_MS 1000000ull
#define GM_S 1000000000ull

#define GM_MIB (1ull << 20)
#define GM_GIB (1ull << 30)

#endif
