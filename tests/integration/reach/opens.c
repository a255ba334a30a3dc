/*
 * The exported dlopen is seen by nobody: who calls it has his own paths searched (reach_opens was
 * linked with one to the folder of its library), and errors are the C library's. It leaves
 * RTLD_DEEPBIND out: the loader itself binds such a library to the wrappers, however the library is
 * named, before any of its code runs. With the argument "disabled", and GPUMUX_DISABLE=1, the flag
 * means what it means.
 */
#include "reach.h"

#include <cuda.h>

#define LIBRARY "libreach_deep.so"

/* Also of the deep library, which calls its own only if it is bound deeply. */
int reach_which(void);
__attribute__((visibility("default"))) int reach_which(void)
{
    return 1;
}

typedef int which(void);
typedef void *lookup(const char *name);

static void check_deep(void *library, const char *what)
{
    CHECK(library, "%s: %s", what, dlerror());
    if (!library)
        return;
    void **bound = dlsym(library, "reach_bound");
    lookup *look_up = (lookup *)dlsym(library, "reach_look_up");
    void **first = dlsym(library, "reach_bound_first");
    CHECK(first && gm_is_wrapper(*first, "cuMemAlloc_v2"), "%s: what its constructor sees, from %s",
          what, first ? gm_owner(*first) : "");
    CHECK(bound && gm_is_wrapper(bound[0], "cuMemAlloc_v2"), "%s: a pointer in its data, from %s",
          what, bound ? gm_owner(bound[0]) : "");
    CHECK(bound && gm_in_driver(bound[1]), "%s: what is not hooked", what);
    CHECK(look_up && gm_is_wrapper(look_up("cuLaunchKernel"), "cuLaunchKernel"),
          "%s: what it looks up", what);
}

/* Once it is not loaded any more, the next call binds it anew. */
static void close_deep(void *library)
{
    if (library)
        dlclose(library);
}

static int check_disabled(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    which *ask = library ? (which *)dlsym(library, "reach_ask_which") : NULL;
    CHECK(ask && ask() == 2, "disabled: it is not bound deeply");
    printf("opens, disabled: %s\n", gm_failed ? "failed" : "passed");
    return gm_failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    char path[4096];
    const char *slash = strrchr(argv[0], '/');
    snprintf(path, sizeof(path), "%.*s/deep/%s", slash ? (int)(slash - argv[0]) : 1,
             slash ? argv[0] : ".", LIBRARY);
    if (argc > 1 && strcmp(argv[1], "disabled") == 0)
        return check_disabled(path);

    void *found = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CHECK(found, "the program's own path: %s", dlerror());
    close_deep(found);
    found = dlopen("$ORIGIN/deep/" LIBRARY, RTLD_LAZY | RTLD_DEEPBIND);
    check_deep(found, "what is to be expanded");
    close_deep(found);
    found = dlopen(LIBRARY, RTLD_NOW | RTLD_DEEPBIND);
    check_deep(found, "what is looked for");
    close_deep(found);
    CHECK(!dlopen("./no/such/library.so", RTLD_LAZY | RTLD_DEEPBIND), "what is not there");
    const char *error = dlerror();
    CHECK(error && strstr(error, "no/such/library.so"), "%s", error ? error : "no error");
    CHECK(dlopen(NULL, RTLD_NOW), "the program itself");

    found = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    check_deep(found, "now");
    close_deep(found);
    check_deep(dlopen(path, RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND), "lazy");
    printf("opens: %s\n", gm_failed ? "failed" : "passed");
    return gm_failed ? 1 : 0;
}
