/*
 * mux-ctl run: start a program with the shim preloaded.
 *
 * The daemon need not be there: then the program runs as if not preloaded.
 */
#include "daemon/mux_ctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHIM "libgpumux.so"

/* The folder of this program's own file. Returns false if it cannot be told. */
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

/*
 * The shim's path: $GPUMUX_LIB; beside us in a build tree; where it is installed relative to us (an
 * installation may have been moved); where it was to be installed.
 */
static bool find_shim(char path[PATH_MAX])
{
    static const char *const places[] = {"../shim/" SHIM, GM_LIBDIR_FROM_BINDIR "/" SHIM};
    char folder[PATH_MAX], joined[PATH_MAX + 256];
    const char *chosen = getenv("GPUMUX_LIB");

    if (chosen && *chosen) {
        if (realpath(chosen, path))
            return true;
        mux_complain("GPUMUX_LIB names %s: %s", chosen, strerror(errno));
        return false;
    }
    if (own_folder(folder)) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            snprintf(joined, sizeof joined, "%s/%s", folder, places[i]);
            if (realpath(joined, path))
                return true;
        }
    }
    if (realpath(GM_LIBDIR "/" SHIM, path))
        return true;
    mux_complain(SHIM " is neither beside mux-ctl nor in " GM_LIBDIR
                      ": install gpumux, or set GPUMUX_LIB");
    return false;
}

int mux_run(const struct mux_options *options, char **argv)
{
    char shim[PATH_MAX], real[PATH_MAX];
    const char *before = getenv("LD_PRELOAD");
    char *preload = NULL;

    if (!find_shim(shim))
        return MUX_FAILED;
    if (strpbrk(shim, " :\t\n")) {
        mux_complain("%s cannot be preloaded: the dynamic linker splits paths at blanks and colons",
                     shim);
        return MUX_FAILED;
    }
    if (asprintf(&preload, "%s%s%s", shim, before && *before ? ":" : "",
                 before && *before ? before : "") < 0) {
        mux_complain("out of memory");
        return MUX_FAILED;
    }
    const char *socket = options->socket;
    if (socket && realpath(socket, real))
        socket = real; /* the program may change its folder */
    if (setenv("LD_PRELOAD", preload, 1) || (socket && setenv("GPUMUX_SOCKET", socket, 1))) {
        mux_complain("the environment cannot be set: %s", strerror(errno));
        free(preload);
        return MUX_FAILED;
    }
    free(preload);
    execvp(argv[0], argv);
    int error = errno;
    mux_complain("%s: %s", argv[0], strerror(error));
    return error == ENOENT || error == ENOTDIR ? MUX_NOT_FOUND : MUX_CANNOT_EXECUTE;
}
