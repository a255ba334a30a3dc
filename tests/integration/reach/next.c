/*
 * An interposing library, which comes behind the shim in the search order: its reach_probe calls
 * the next one, found with RTLD_NEXT. If that looked from the shim's place, it would find itself.
 */
#include <dlfcn.h>
#include <stddef.h>

int reach_probe(int depth);
int cuReachProbe(int depth);
int cuLaunchGrid(void);
void *reach_next_grid(void);

int reach_probe(int depth)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "reach_probe");
    return depth > 3 || !next ? -1 : 10 + next(depth + 1);
}

/* The same with a name of the driver's shape. */
int cuReachProbe(int depth)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "cuReachProbe");
    return depth > 3 || !next ? -1 : 10 + next(depth + 1);
}

/* And with a name that the shim hooks, which this library and the next one have too. */
int cuLaunchGrid(void)
{
    return 1;
}

void *reach_next_grid(void)
{
    return dlsym(RTLD_NEXT, "cuLaunchGrid");
}
