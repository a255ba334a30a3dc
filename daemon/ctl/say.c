/* Error messages of mux-ctl. Calls common/ only. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

void mux_complain(const char *format, ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    gm_text_clean(text, sizeof text);
    fprintf(stderr, "mux-ctl: %s\n", text);
}

int mux_written(const char *what)
{
    if (!fflush(stdout) && !ferror(stdout))
        return MUX_OK;
    mux_complain("%s cannot be written: %s", what, strerror(errno));
    return MUX_FAILED;
}
