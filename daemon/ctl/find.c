/* What mux-ctl needs to start programs: our libraries, names, and why it failed. Calls say.c. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/appname.h"

/* The folder of this executable. */
static bool own_folder(char folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length <= 0)
        return false;
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

bool mux_seek(const char *library, const char *built, const char *variable, char *path, char *why,
              size_t size)
{
    char folder[PATH_MAX], joined[PATH_MAX + 256];
    const char *chosen = getenv(variable);

    if (chosen && *chosen) {
        if (realpath(chosen, path))
            return true;
        snprintf(why, size, "%s names %s: %s", variable, chosen, strerror(errno));
        return false;
    }
    if (own_folder(folder)) {
        snprintf(joined, sizeof joined, "%s/%s", folder, built);
        if (realpath(joined, path))
            return true;
        snprintf(joined, sizeof joined, "%s/" GM_LIBDIR_FROM_BINDIR "/%s", folder, library);
        if (realpath(joined, path))
            return true;
    }
    snprintf(joined, sizeof joined, GM_LIBDIR "/%s", library);
    if (realpath(joined, path))
        return true;
    snprintf(why, size,
             "%s is neither beside mux-ctl nor in " GM_LIBDIR ": install gpumux, or set %s",
             library, variable);
    return false;
}

bool mux_find(const char *library, const char *built, const char *variable, char *path)
{
    char why[PATH_MAX + 256];
    if (mux_seek(library, built, variable, path, why, sizeof why))
        return true;
    mux_complain("%s", why);
    return false;
}

void mux_name(char **argv, char name[GM_APPNAME_SIZE])
{
    char line[4096];
    size_t length = 0;
    for (; *argv && length + strlen(*argv) < sizeof line; argv++) {
        memcpy(line + length, *argv, strlen(*argv) + 1);
        length += strlen(*argv) + 1;
    }
    gm_appname(line, length, NULL, name);
}

int mux_not_executed(const char *program, int error)
{
    mux_complain("%s: %s", program, strerror(error));
    return error == ENOENT || error == ENOTDIR ? MUX_NOT_FOUND : MUX_CANNOT_EXECUTE;
}
