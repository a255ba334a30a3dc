/*
 * What the unit tests of simcuda share: a device of 256 MiB in a folder of its own, the primary
 * context, a module, launching by name. Everything is static inline: each test program has its own.
 */
#ifndef GM_SIMCUDA_TESTING_H
#define GM_SIMCUDA_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/clock.h"
#include "tests/simcuda/roles.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY (256 * MIB) /* of the device */

static char directory[64];
static CUcontext context;
static CUmodule module;

#define ok(call) assert_int_equal(call, CUDA_SUCCESS)

static inline uint64_t now(void)
{
    return gm_now();
}

static inline size_t free_memory(void)
{
    size_t has_free = 0, total = 0;
    ok(cuMemGetInfo(&has_free, &total));
    assert_int_equal(total, MEMORY);
    return has_free;
}

static inline CUfunction function(const char *name)
{
    CUfunction f;
    ok(cuModuleGetFunction(&f, module, name));
    return f;
}

static inline CUresult launch(const char *name, CUstream stream, void **params)
{
    return cuLaunchKernel(function(name), 4, 1, 1, 128, 1, 1, 0, stream, params, NULL);
}

static inline CUresult fill(CUdeviceptr p, uint64_t n, uint64_t seed, CUstream stream)
{
    void *params[] = {&p, &n, &seed};
    return launch("gm_fill", stream, params);
}

static inline unsigned long long mismatches(CUdeviceptr p, uint64_t n, uint64_t seed)
{
    unsigned long long *count;
    ok(cuMemHostAlloc((void **)&count, sizeof *count, 0));
    *count = 0;
    void *params[] = {&p, &n, &seed, &count};
    ok(launch("gm_verify", NULL, params));
    ok(cuCtxSynchronize());
    const unsigned long long found = *count;
    ok(cuMemFreeHost(count));
    return found;
}

static inline void set_up_driver(void)
{
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
    ok(cuModuleLoadData(&module, roles_ptx));
}

static inline void remove_directory(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char name[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%.200s/%s", path, entry->d_name);
        if (unlink(name) != 0)
            remove_directory(name);
    }
    closedir(dir);
    rmdir(path);
}

static inline int set_up(void **state)
{
    (void)state;
    set_up_driver();
    return 0;
}

/* A new folder, and the environment that makes it the device's. 0 or -1. */
static inline int make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/test-simcuda-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return -1;
    setenv("SIMCUDA_DIR", directory, 1);
    setenv("SIMCUDA_MEMORY", "256M", 1);
    return 0;
}

#endif
