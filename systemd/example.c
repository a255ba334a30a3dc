/*
 * Writes the example of the daemon's configuration file to standard output, from options.def: run
 * by the build. Every line can be used as it is, and all of them together.
 */
#include <stdio.h>
#include <string.h>

#include "common/sock.h"
#include "daemon/service/options.h"

#define WIDTH 100u

/* Write words as a comment. */
static void comment(const char *text)
{
    size_t column = 1;
    printf("#");
    while (*text) {
        const size_t length = strcspn(text, " ");
        if (column + 1 + length > WIDTH) {
            printf("\n#");
            column = 1;
        }
        printf(" %.*s", (int)length, text);
        column += 1 + length;
        text += length;
        text += strspn(text, " ");
    }
    printf("\n");
}

static void option(const char *name, const char *argument, enum gm_option_kind kind,
                   const char *otherwise, const char *example, const char *help)
{
    char text[1024];
    const char *value = kind == GM_KIND_FLAG ? "no" : *example ? example : otherwise;
    snprintf(text, sizeof text, "%s%s%s.%s%s%s", help,
             kind == GM_KIND_FLAG || *argument ? ": " : "",
             kind == GM_KIND_FLAG ? "yes or no" : argument, *otherwise ? " Default: " : "",
             otherwise, *otherwise ? "." : "");
    printf("\n");
    comment(text);
    printf("#%s = %s\n", name, value);
}

#define SHOW_LINE(...)
#define SHOW_BOTH(name, argument, kind, otherwise, example, help)                                  \
    option(name, argument, GM_KIND_##kind, otherwise, example, help);

int main(void)
{
    comment(
        "Options of gpumuxd. The daemon reads " GM_CONFIG_SYSTEM ", and with --user "
        "~/.config/" GM_CONFIG_USER ". Each line is `name = value`, with the names of "
        "`gpumuxd --help`. The command line wins. Every line below shows a default or an "
        "example: remove its # to use it, then have the daemon read it: systemctl reload gpumuxd. "
        "It says in its log what needs a restart.");
#define GM_OPTION(name, member, kind, argument, place, when, min, max, otherwise, example, help)   \
    SHOW_##place(name, argument, kind, otherwise, example, help)
#include "daemon/service/options.def"
#undef GM_OPTION
    return fflush(stdout) || ferror(stdout);
}
