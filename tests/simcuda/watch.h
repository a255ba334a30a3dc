/* What simcuda tells a tool. A real driver tells CUPTI; cupti.c is one that simcuda tells. */
#ifndef GM_SIMCUDA_WATCH_H
#define GM_SIMCUDA_WATCH_H

/*
 * Call `function` at each call that is judged to be allowed, before it does anything, in the
 * caller's thread, with the name of its API: without the suffixes that tell its forms apart. NULL:
 * nobody.
 */
void simcuda_watch(void (*function)(const char *api));

#endif
