/* What the service may write: see seen.h. */
#include "daemon/service/seen.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNIT "gpumuxd.service"
#define ASK                                                                                        \
    "exec timeout 10 systemctl show " UNIT " -p LoadState -p ProtectSystem -p ProtectHome "        \
    "-p PrivateTmp -p ReadWritePaths -p ReadOnlyPaths -p InaccessiblePaths -p StateDirectory "     \
    "-p CacheDirectory -p RuntimeDirectory 2> /dev/null"

/* ExecReload= has the unit's view. */
static bool is_in_unit(void)
{
    char line[PATH_MAX + 64];
    bool is = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !is && fgets(line, sizeof line, file))
        is = strstr(line, "/" UNIT) != NULL;
    if (file)
        fclose(file);
    return is;
}

void gm_seen_find(struct gm_seen *seen, const struct gm_options *options)
{
    seen->kind = GM_SEEN_AS_SERVICE;
    /* Another file than the service's is that of a daemon by hand. */
    const bool is_named =
        options->given[GM_OPTION_config] && strcmp(options->config, GM_CONFIG_SYSTEM) != 0;
    if (options->user || is_named || is_in_unit())
        return;
    if (geteuid() != 0) {
        seen->kind = GM_SEEN_BY_OTHER;
        return;
    }
    FILE *pipe = access("/run/systemd/system", F_OK) == 0 ? popen(ASK, "re") : NULL;
    if (!pipe)
        return;
    const size_t n = fread(seen->properties, 1, sizeof seen->properties - 1, pipe);
    seen->properties[n] = '\0';
    pclose(pipe);
    if (strstr(seen->properties, "LoadState=loaded\n"))
        seen->kind = GM_SEEN_BY_ROOT;
}

/* The value of a property. Returns `value`, "" where there is none. */
static const char *value_of(const struct gm_seen *seen, const char *name, char value[2048])
{
    const size_t length = strlen(name);
    value[0] = '\0';
    for (const char *line = seen->properties; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == '=')
            snprintf(value, 2048, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
    }
    return value;
}

/* What is known of a path: as in a mount table the longest one that has it counts. */
struct answer {
    const char *path;
    size_t longest;
    bool is_writable;
    const char *by; /* the property that says so */
};

/* The folders of a list, with `base` before each. */
static void look(struct answer *answer, const char *base, const char *list, const char *by,
                 bool is_writable)
{
    char words[2048], folder[PATH_MAX], *rest = words, *word;
    snprintf(words, sizeof words, "%s", list);
    while ((word = strsep(&rest, " ")) != NULL) {
        word += strspn(word, "-+"); /* it need not be there; in the unit's root */
        const size_t length = (size_t)snprintf(folder, sizeof folder, "%s%s", base, word);
        const char *path = answer->path;
        const bool is_root = strcmp(folder, "/") == 0;
        if (!*word || length >= sizeof folder || length < answer->longest)
            continue;
        if (!is_root &&
            (strncmp(path, folder, length) != 0 || (path[length] != '/' && path[length] != '\0')))
            continue;
        *answer = (struct answer){path, length, is_writable, by};
    }
}

int gm_seen_try(const struct gm_seen *seen, const char *folder, char *why, size_t size)
{
    char path[PATH_MAX], value[2048];
    struct answer answer = {.path = path, .is_writable = true};
    if (seen->kind != GM_SEEN_BY_ROOT || !realpath(folder, path))
        return 0;
    const bool is_off = strcmp(value_of(seen, "ProtectSystem", value), "no") == 0 || !*value;
    if (strcmp(value, "strict") == 0)
        look(&answer, "", "/", "ProtectSystem", false);
    else if (!is_off)
        look(&answer, "", strcmp(value, "full") == 0 ? "/usr /boot /efi /etc" : "/usr /boot /efi",
             "ProtectSystem", false);
    if (*value_of(seen, "ProtectHome", value) && strcmp(value, "no") != 0)
        look(&answer, "", "/home /root /run/user", "ProtectHome", false);
    if (*value_of(seen, "PrivateTmp", value) && strcmp(value, "no") != 0)
        look(&answer, "", "/tmp /var/tmp", "PrivateTmp",
             strcmp(path, "/tmp") == 0 || strcmp(path, "/var/tmp") == 0);
    look(&answer, "/var/lib/", value_of(seen, "StateDirectory", value), "", true);
    look(&answer, "/var/cache/", value_of(seen, "CacheDirectory", value), "", true);
    look(&answer, "/run/", value_of(seen, "RuntimeDirectory", value), "", true);
    look(&answer, "", value_of(seen, "ReadWritePaths", value), "", true);
    look(&answer, "", value_of(seen, "ReadOnlyPaths", value), "ReadOnlyPaths", false);
    look(&answer, "", value_of(seen, "InaccessiblePaths", value), "InaccessiblePaths", false);
    if (answer.is_writable)
        return 0;
    snprintf(why, size,
             "the service may not write in %s (%s= of " UNIT "): choose another folder, or "
             "systemctl edit gpumuxd and add ReadWritePaths=%s below [Service]",
             folder, answer.by, folder);
    return -EROFS;
}
