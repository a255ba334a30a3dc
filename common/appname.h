/*
 * What an app is called: the name that HELLO says, that status shows and that rules match. A
 * program that an interpreter runs has the name of its script, module or archive, not the
 * interpreter's.
 */
#ifndef GM_COMMON_APPNAME_H
#define GM_COMMON_APPNAME_H

#include <stddef.h>

#define GM_APPNAME_SIZE 64u /* bytes of a name with its NUL, as in HELLO */

/*
 * The name for the command line at `line`: `length` bytes in which each word ends with a NUL, as in
 * /proc/PID/cmdline. `exe` is the path of the executed file, or NULL. Writes legal text without a
 * '/' (common/text.h) to `name`; "" if neither has a name. Pure.
 */
void gm_appname(const char *line, size_t length, const char *exe, char name[GM_APPNAME_SIZE]);

/* This process's own name. `buffer` is scratch space; a command line that does not fit is cut. Does
 * not allocate. */
void gm_appname_own(char *buffer, size_t size, char name[GM_APPNAME_SIZE]);

#endif
