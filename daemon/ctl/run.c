/*
 * mux-ctl run: start a program with the shim preloaded. Calls ask.c and say.c.
 *
 * It asks the daemon whether it can serve the program. If not, the program runs without gpumux, and
 * one line says why. With --require it is then not started; otherwise the daemon reserves a place
 * for this process, which becomes the program.
 */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/appname.h"

#define SHIM "libgpumux.so"

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

/* The shim's path: $GPUMUX_LIB; relative to this executable, in a build folder or an installation,
 * which may have been moved; or the configured folder. */
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

/* The name under which the daemon will know the program. */
static void name_of(char **argv, char name[GM_APPNAME_SIZE])
{
    char line[4096];
    size_t length = 0;
    for (; *argv && length + strlen(*argv) < sizeof line; argv++) {
        memcpy(line + length, *argv, strlen(*argv) + 1);
        length += strlen(*argv) + 1;
    }
    gm_appname(line, length, NULL, name);
}

/* Whether the daemon can serve the program. If not, say why. */
static bool is_served(const struct mux_options *options, char **argv)
{
    const char *off = getenv("GPUMUX_DISABLE");
    struct gm_msg_reserve reserve = {.is_kept = options->is_required};
    struct gm_msg_reserved answer = {0};
    struct mux_question ask = {.question = GM_MSG_RESERVE,
                               .body = &reserve,
                               .answer = GM_MSG_RESERVED,
                               .result = &answer,
                               .result_size = sizeof answer};

    name_of(argv, reserve.name);
    if (off && strcmp(off, "1") == 0)
        snprintf(ask.why, sizeof ask.why, "GPUMUX_DISABLE=1 is in the environment");
    else if (mux_try(options->socket, &ask) == MUX_OK && answer.is_refused)
        snprintf(ask.why, sizeof ask.why, "%s", answer.text);
    if (ask.why[0] == '\0')
        return true;
    mux_complain("%s %s: %s", reserve.name,
                 options->is_required ? "is not started, as it would run unshared"
                                      : "runs unshared",
                 ask.why);
    return false;
}

static int execution_failed(const char *program, int error)
{
    mux_complain("%s: %s", program, strerror(error));
    return error == ENOENT || error == ENOTDIR ? MUX_NOT_FOUND : MUX_CANNOT_EXECUTE;
}

int mux_run(const struct mux_options *options)
{
    char **argv = options->words;
    char shim[PATH_MAX], real[PATH_MAX];
    const char *before = getenv("LD_PRELOAD");
    char *preload = NULL;

    if (!argv[0]) {
        mux_complain("run: which program? mux-ctl run -- PROGRAM [ARGUMENT...]");
        return MUX_FAILED;
    }
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
        socket = real; /* the program may change its working directory */
    if (setenv("LD_PRELOAD", preload, 1) || (socket && setenv("GPUMUX_SOCKET", socket, 1)) ||
        (options->group && setenv("GPUMUX_GROUP", options->group, 1))) {
        mux_complain("the environment cannot be set: %s", strerror(errno));
        free(preload);
        return MUX_FAILED;
    }
    free(preload);
    /* Do not bother the daemon with a program that does not exist. */
    if (strchr(argv[0], '/') && access(argv[0], X_OK))
        return execution_failed(argv[0], errno);
    if (!is_served(options, argv) && options->is_required)
        return MUX_UNSHARED;
    execvp(argv[0], argv);
    return execution_failed(argv[0], errno);
}
