/*
 * The name of an app, as HELLO sends it, status shows it and rules match it. If an interpreter runs
 * a script, module or archive, that gives the name. Called by shim/link and mux-ctl; calls text.h.
 */
#ifndef GM_COMMON_APPNAME_H
#define GM_COMMON_APPNAME_H

#include <stddef.h>
#include <stdint.h>

#define GM_APPNAME_SIZE 64u /* bytes of a name with its NUL, as in HELLO */

/*
 * The name for a command line of `length` bytes, in which each word ends with a NUL as in
 * /proc/PID/cmdline. `exe` is the path of the executed file, or NULL. Writes legal text
 * (common/text.h) without a '/'; "" if there is no name. Pure.
 */
void gm_appname(const char *line, size_t length, const char *exe, char name[GM_APPNAME_SIZE]);

/* The name of this process. What Python's multiprocessing started has the name of the program that
 * did. `buffer` is scratch space of more than PATH_MAX bytes, of which a command line gets the
 * rest: a longer one is cut. Does not allocate. */
void gm_appname_own(char *buffer, size_t size, char name[GM_APPNAME_SIZE]);

/* A number for the processes of this program: those that descend, through whatever others, from the
 * same one of its name. It is that one's, with the name space of pids in which that is its number:
 * each container has a 1. Reads the memory of the ancestors, which may make it wait. */
uint64_t gm_appname_family(char *buffer, size_t size, const char *name);

#endif
