/* Text on terminals: how wide it is, cutting and wrapping it. Calls nothing. */
#include "daemon/ctl/ctl.h"

#include <limits.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WRAPPED 20 /* the narrowest that text is wrapped to */

static bool is_inside(char byte) /* a continuation byte of UTF-8 */
{
    return ((unsigned char)byte & 0xc0u) == 0x80u;
}

int mux_width(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += !is_inside(*text);
    return n;
}

int mux_columns(void)
{
    struct winsize size = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                           : INT_MAX / 2;
}

void mux_cut(char *text, int most)
{
    int n = 0;
    for (; *text; text++) {
        n += !is_inside(*text);
        if (n > most) {
            *text = '\0';
            return;
        }
    }
}

void mux_wrap(const char *text, int indent, int more)
{
    const int line = mux_columns();
    for (int at = indent; *text; at = indent + more) {
        const int room = line - at > WRAPPED ? line - at : WRAPPED;
        size_t end = 0, blank = 0;
        for (int n = 0; text[end] && (n < room || is_inside(text[end])); end++) {
            n += !is_inside(text[end]);
            blank = text[end] == ' ' ? end : blank;
        }
        if (text[end] && text[end] != ' ' && blank > 0)
            end = blank;
        printf("%*s%.*s\n", at, "", (int)end, text);
        for (text += end; *text == ' ';)
            text++;
    }
}
