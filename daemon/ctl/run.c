/*
 * mux-ctl run: start a program with the shim preloaded. Calls program.c, find.c, ask.c and say.c.
 *
 * It looks at the program, and asks the daemon to reserve a place for this process, which becomes
 * the program. If the program cannot load the library or there is no place, it runs without gpumux,
 * and one line says why. With --require it is then not started.
 */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/appname.h"
#include "common/wishes.h"

/* Say why the program is not shared. `how` follows "runs unshared". */
static void complain(const struct mux_options *options, const char *name, const char *how,
                     const char *why)
{
    mux_complain("%s %s%s: %s", name,
                 options->is_required ? "is not started, as it would run unshared"
                                      : "runs unshared",
                 options->is_required ? "" : how, why);
}

/* Whether the program can load the library. If not, say why. */
static bool is_loadable(const struct mux_options *options, const struct mux_program *program,
                        const char *name)
{
    char why[sizeof program->name + sizeof program->why + 2];
    if (program->why[0] == '\0' || (program->is_unknown && !options->is_required))
        return true;
    snprintf(why, sizeof why, "%s %s", program->name, program->why);
    complain(options, name, "", why);
    return false;
}

/* Whether the daemon reserves a place for the program. If not, say why. */
static bool is_served(const struct mux_options *options, const char *name)
{
    const char *off = getenv("GPUMUX_DISABLE");
    struct gm_msg_reserve reserve = {.is_required = options->is_required};
    struct gm_msg_reserved answer = {0};
    struct mux_question ask = {.question = GM_MSG_RESERVE,
                               .body = &reserve,
                               .answer = GM_MSG_RESERVED,
                               .result = &answer,
                               .result_size = sizeof answer};

    snprintf(reserve.name, sizeof reserve.name, "%s", name);
    if (off && strcmp(off, "1") == 0) {
        complain(options, name, "", "GPUMUX_DISABLE=1 is in the environment");
        return false;
    }
    if (mux_try(options->socket, &ask) != MUX_OK) {
        complain(options, name, "", ask.why);
        return false;
    }
    if (answer.is_refused) /* the program itself will ask again */
        complain(options, name, ", unless there is room at its first CUDA call", answer.text);
    return !answer.is_refused;
}

/* Say which wishes of the environment are mistakes: the program does not see the daemon's log. */
static void check_wishes(const char *name)
{
    struct gm_msg_hello hello = {0};
    gm_wishes_read(getenv, &hello);
    const char *const wrong[] = {
        gm_wishes_wrong_class(hello.class), gm_wishes_wrong_weight(hello.weight),
        gm_wishes_wrong_oversize(hello.oversize), gm_wishes_wrong_cap(hello.cap_is)};
    const char *group = getenv("GPUMUX_GROUP"), *place = getenv("GPUMUX_PLACE");
    const char *need = getenv("GPUMUX_NEED");
    uint64_t bytes;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (wrong[i])
            mux_complain("%s: %s runs without it", wrong[i], name);
    if (place && *place && strcmp(place, "off") != 0 && strcmp(place, "order") != 0)
        mux_complain("GPUMUX_PLACE is not off or order: %s runs without it", name);
    if (need && *need && gm_parse_size(need, &bytes) != 0)
        mux_complain("GPUMUX_NEED is no size: %s runs without it", name);
    if (group && strlen(group) >= sizeof hello.group)
        mux_complain("GPUMUX_GROUP is longer than 63 bytes: %s runs without it", name);
}

/* Set a variable to two texts, each of which may be missing, with a colon between them. */
static int join(const char *name, const char *first, const char *second)
{
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", first ? first : "",
                 first && *first && second && *second ? ":" : "", second ? second : "") < 0)
        return -1;
    const int error = setenv(name, text, 1);
    free(text);
    return error;
}

/*
 * The library comes behind those of the user. A sanitizer's run-time library must come first in
 * LD_PRELOAD. Where the program is linked with it instead, it comes behind ours, which it takes for
 * a mistake unless ASAN_OPTIONS says otherwise; what the user has set there counts more.
 */
static int set_preload(const char *shim)
{
    return join("LD_PRELOAD", getenv("LD_PRELOAD"), shim) ||
           join("ASAN_OPTIONS", "verify_asan_link_order=0", getenv("ASAN_OPTIONS"));
}

int mux_run(const struct mux_options *options)
{
    char **argv = options->words;
    char shim[PATH_MAX], real[PATH_MAX];
    char name[GM_APPNAME_SIZE];
    struct mux_program program;

    if (!argv[0]) {
        mux_complain("run: which program? mux-ctl run -- PROGRAM [ARGUMENT...]");
        return MUX_FAILED;
    }
    if (!mux_find(MUX_SHIM, "../shim/" MUX_SHIM, "GPUMUX_LIB", shim))
        return MUX_FAILED;
    if (strpbrk(shim, " :\t\n")) {
        mux_complain("%s cannot be preloaded: the dynamic linker splits paths at blanks and colons",
                     shim);
        return MUX_FAILED;
    }
    /* Do not bother the daemon with a program that does not exist. */
    if (strchr(argv[0], '/') && access(argv[0], X_OK))
        return mux_not_executed(argv[0], errno);
    mux_look(argv, &program);
    mux_name(argv, name);
    if (!(is_loadable(options, &program, name) && is_served(options, name)) && options->is_required)
        return MUX_UNSHARED;
    if ((options->class && setenv("GPUMUX_CLASS", options->class, 1)) ||
        (options->weight && setenv("GPUMUX_WEIGHT", options->weight, 1)) ||
        (options->cap && setenv("GPUMUX_CAP", options->cap, 1))) {
        mux_complain("the environment cannot be set: %s", strerror(errno));
        return MUX_FAILED;
    }
    check_wishes(name);
    const char *socket = options->socket;
    if (socket && realpath(socket, real))
        socket = real; /* the program may change its working directory */
    if ((!program.is_harmed && set_preload(shim)) ||
        (socket && setenv("GPUMUX_SOCKET", socket, 1)) ||
        (options->group && setenv("GPUMUX_GROUP", options->group, 1)) ||
        (options->need && setenv("GPUMUX_NEED", options->need, 1))) {
        mux_complain("the environment cannot be set: %s", strerror(errno));
        return MUX_FAILED;
    }
    execvp(argv[0], argv);
    return mux_not_executed(argv[0], errno);
}
