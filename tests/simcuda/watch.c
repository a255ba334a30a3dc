/* Who watches: an injected library, and a function that hears of every call. See watch.h. */
#include "tests/simcuda/watch.h"

#include "tests/simcuda/sim.h"

#include <dlfcn.h>
#include <stdlib.h>

static void (*_Atomic watcher)(const char *api);

SIM_API void simcuda_watch(void (*function)(const char *api))
{
    atomic_store(&watcher, function);
}

void sim_watch(const char *api)
{
    void (*function)(const char *) = atomic_load_explicit(&watcher, memory_order_acquire);
    if (function != NULL)
        function(api);
}

void sim_inject(void)
{
    static atomic_flag is_done = ATOMIC_FLAG_INIT;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (path == NULL || atomic_flag_test_and_set(&is_done))
        return;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*initialize)(void) = NULL;
    if (library != NULL)
        *(void **)&initialize = dlsym(library, "InitializeInjection");
    if (initialize != NULL)
        initialize();
}
