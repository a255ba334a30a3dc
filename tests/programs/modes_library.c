/*
 * gm_worker's modes about libraries that use CUDA: opened with RTLD_DEEPBIND, or in a namespace of
 * their own. --signal names the library (driver.c built as one): all calls go through it.
 */
#include "tests/programs/worker.h"

#include <dlfcn.h>

typedef int gm_open(struct gm_driver *driver, bool per_thread, const char **why);

static void take_driver(struct gm_worker *worker, void *library)
{
    const char *why = dlerror();
    gm_open *open_it = library == NULL ? NULL : (gm_open *)dlsym(library, "gm_driver_open");
    if (open_it == NULL)
        gm_fail(worker, "%s: %s", worker->signal, why != NULL ? why : "not a library of a driver");
    if (open_it(&worker->cu, false, &why) != 0)
        gm_fail(worker, "%s: no %s", worker->signal, why);
}

void gm_mode_deepbind(struct gm_worker *worker)
{
    take_driver(worker, dlopen(worker->signal, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND));
    gm_mode_verify(worker);
}

void gm_mode_lazybind(struct gm_worker *worker)
{
    take_driver(worker, dlopen(worker->signal, RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND));
    gm_mode_verify(worker);
}

void gm_mode_namespace(struct gm_worker *worker)
{
    take_driver(worker, dlmopen(LM_ID_NEWLM, worker->signal, RTLD_NOW | RTLD_LOCAL));
    gm_open_cuda(worker);
    gm_mode_verify(worker);
    gm_close_cuda(worker);
}
