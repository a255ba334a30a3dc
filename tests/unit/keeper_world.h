/*
 * A real gpumux-keeper, in a folder of the test's own, for tests of what outlives the daemon.
 * GM_KEEPER is its program. Nothing here asserts, so forked processes may call it.
 */
#ifndef GM_TESTS_KEEPER_WORLD_H
#define GM_TESTS_KEEPER_WORLD_H

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/memory/kept.h"

#define PATIENCE_MS 60000

static char folder[64], path[96]; /* of the test; of the keeper's socket */
static pid_t keeper = -1;

/* A keeper that may have so many files; 0: as many as this process. */
static inline int keeper_start(rlim_t files)
{
    keeper = fork();
    if (keeper == 0) {
        const struct rlimit limit = {files, files};
        if (files > 0)
            setrlimit(RLIMIT_NOFILE, &limit);
        execl(GM_KEEPER, "gpumux-keeper", "--socket", path, (char *)NULL);
        _exit(127);
    }
    return keeper > 0 ? 0 : -1;
}

static inline void keeper_stop(void)
{
    if (keeper <= 0)
        return;
    kill(keeper, SIGKILL);
    waitpid(keeper, NULL, 0);
    keeper = -1;
}

/* The folder, and a keeper in it. */
static inline int keeper_begin(const char *test, rlim_t files)
{
    snprintf(folder, sizeof folder, "/tmp/gm-%s.XXXXXX", test);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/keeper.sock", folder);
    return keeper_start(files);
}

static inline int keeper_end(void)
{
    char command[96];
    keeper_stop();
    snprintf(command, sizeof command, "rm -rf %s", folder); /* a keeper that ends by itself may remove it */
    return system(command) == 0 ? 0 : -1;
}

/* As gm_kept_connect, to a keeper that may have just been started. */
static inline int keeper_connect(struct gm_kept *kept)
{
    int error = gm_kept_connect(kept, path);
    for (int i = 0; (error == -ENOENT || error == -ECONNREFUSED) && i < PATIENCE_MS; i++) {
        usleep(1000);
        error = gm_kept_connect(kept, path);
    }
    return error;
}

#endif
