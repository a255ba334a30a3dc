/* Lines of /proc/PID/mountinfo, and lists of words as there. Pure; calls nothing. */
#ifndef GM_COMMON_MOUNTS_H
#define GM_COMMON_MOUNTS_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* `from` of a file system is mounted at `at`. */
struct gm_mount {
    char from[PATH_MAX], at[PATH_MAX], type[32], options[PATH_MAX];
};

/* The kernel writes a blank as \040, and so on. In place. */
static inline void gm_mount_unescape(char *text)
{
    char *to = text;
    for (unsigned code; *text; to++) {
        const bool is_escaped =
            text[0] == '\\' && strspn(text + 1, "01234567") >= 3 && sscanf(text + 1, "%3o", &code);
        *to = is_escaped ? (char)code : *text;
        text += is_escaped ? 4 : 1;
    }
    *to = '\0';
}

/* A line: 30 23 0:26 FROM AT OPTIONS FIELDS... - TYPE SOURCE OPTIONS. False: it is none. */
static inline bool gm_mount_read(const char *line, struct gm_mount *mount)
{
    const char *behind = strstr(line, " - ");
    _Static_assert(PATH_MAX == 4096, "the widths below");
    if (!behind || sscanf(line, "%*s %*s %*s %4095s %4095s", mount->from, mount->at) != 2 ||
        sscanf(behind, " - %31s %*s %4095s", mount->type, mount->options) != 2)
        return false;
    gm_mount_unescape(mount->from);
    gm_mount_unescape(mount->at);
    return true;
}

/* Whether `list`, separated by commas, has `word`. */
static inline bool gm_mount_has(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

#endif
