/* A library that is opened with RTLD_DEEPBIND: see opens.c. */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

int reach_which(void);
int reach_which(void)
{
    return 2;
}

int reach_ask_which(void);
int reach_ask_which(void)
{
    return reach_which();
}

extern void *reach_bound[2];
void *reach_bound[2] = {(void *)cuMemAlloc_v2, (void *)cuDriverGetVersion};

/* What it is bound to when its constructors run. */
extern void *reach_bound_first;
void *reach_bound_first;

__attribute__((constructor)) static void begin(void)
{
    reach_bound_first = reach_bound[0];
}

void *reach_look_up(const char *name);
void *reach_look_up(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}
