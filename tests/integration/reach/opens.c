/*
 * The exported dlopen is seen by nobody: who calls it has his own paths searched (reach_opens was
 * linked with one to the folder of its library), errors are the C library's, and RTLD_DEEPBIND
 * means what it means. A deep library that is linked with the driver has the wrappers all the same.
 */
#include "reach.h"

#include <cuda.h>

#define LIBRARY "libreach_deep.so"

/* Also of the deep library, which must call its own. */
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
    which *ask = (which *)dlsym(library, "reach_ask_which");
    void **bound = dlsym(library, "reach_bound");
    lookup *look_up = (lookup *)dlsym(library, "reach_look_up");
    CHECK(ask && ask() == 2, "%s: it is not bound deeply", what);
    CHECK(bound && gm_is_wrapper(bound[0], "cuMemAlloc_v2"), "%s: a pointer in its data, from %s",
          what, bound ? gm_owner(bound[0]) : "");
    CHECK(bound && gm_in_driver(bound[1]), "%s: what is not hooked", what);
    CHECK(look_up && gm_is_wrapper(look_up("cuLaunchKernel"), "cuLaunchKernel"),
          "%s: what it looks up", what);
}

int main(int argc, char **argv)
{
    char path[4096];
    const char *slash = strrchr(argv[0], '/');
    (void)argc;
    snprintf(path, sizeof(path), "%.*s/deep/%s", slash ? (int)(slash - argv[0]) : 1,
             slash ? argv[0] : ".", LIBRARY);

    void *found = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CHECK(found, "the program's own path: %s", dlerror());
    if (found)
        dlclose(found);
    found = dlopen("$ORIGIN/deep/" LIBRARY, RTLD_LAZY | RTLD_DEEPBIND);
    CHECK(found, "what is to be expanded: %s", dlerror());
    if (found)
        dlclose(found);
    CHECK(!dlopen("./no/such/library.so", RTLD_LAZY | RTLD_DEEPBIND), "what is not there");
    const char *error = dlerror();
    CHECK(error && strstr(error, "no/such/library.so"), "%s", error ? error : "no error");
    CHECK(dlopen(NULL, RTLD_NOW), "the program itself");

    check_deep(dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND), "now");
    check_deep(dlopen(path, RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND), "lazy");
    printf("opens: %s\n", gm_failed ? "failed" : "passed");
    return gm_failed ? 1 : 0;
}
