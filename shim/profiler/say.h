/* Lines of the profiler on standard error: what keeps it from recording. Calls the C library. */
#ifndef GM_PROFILER_SAY_H
#define GM_PROFILER_SAY_H

#include <stdarg.h>
#include <stdio.h>

static inline void __attribute__((format(printf, 1, 2))) gm_say(const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    fprintf(stderr, "gpumux-profile: %s\n", line);
}

#endif
