#include "daemon/memory/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mounts.h"
#include "common/size.h"
#include "common/text.h"

/* ---- reading ---- */

static FILE *open_below(const char *root, const char *path)
{
    char whole[PATH_MAX];
    if (snprintf(whole, sizeof whole, "%s%s", root, path) >= (int)sizeof whole)
        return NULL;
    return fopen(whole, "re");
}

static void read_machine(struct gm_limits *limits, const char *root)
{
    FILE *file = open_below(root, "/proc/meminfo");
    char line[256];
    unsigned long long kib;

    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
            limits->memory = kib << 10;
        else if (sscanf(line, "SwapTotal: %llu kB", &kib) == 1)
            limits->swap = kib << 10;
    }
    if (file)
        fclose(file);
}

/* Take the limit in `path` if it is the smallest so far. "max" or no such file: no limit. */
static void read_limit(struct gm_limits *limits, const char *root, const char *path)
{
    FILE *file = open_below(root, path);
    unsigned long long bytes;

    if (!file)
        return;
    if (fscanf(file, "%llu", &bytes) == 1 && bytes < limits->group) {
        limits->group = bytes;
        snprintf(limits->group_file, sizeof limits->group_file, "%s", path);
    }
    fclose(file);
}

/*
 * Read the limits of `group` and of its parents, up to `top`, the group that is mounted at `mount`:
 * the kernel enforces all of them. A group that is not below `top` cannot be seen there.
 */
static void read_group(struct gm_limits *limits, const char *root, const char *mount,
                       const char *top, const char *group, const char *file)
{
    const size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top), least = strlen(mount);
    char path[PATH_MAX], limit[PATH_MAX];

    if (strncmp(group, top, n) != 0 || (group[n] != '/' && group[n] != '\0') ||
        strncmp(group, "/..", 3) == 0 ||
        snprintf(path, sizeof path, "%s%s", mount, group + n) >= (int)sizeof path)
        return;
    for (size_t length = strlen(path);; length = strlen(path)) {
        while (length > least && path[length - 1] == '/')
            path[--length] = '\0';
        if (snprintf(limit, sizeof limit, "%s/%s", path, file) < (int)sizeof limit)
            read_limit(limits, root, limit);
        if (length <= least)
            return;
        *strrchr(path, '/') = '\0';
    }
}

/* Find the process's group in the unified hierarchy (version 2), or in that of the memory
 * controller (version 1). */
static bool find_group(const char *root, bool is_unified, char group[PATH_MAX])
{
    FILE *file = open_below(root, "/proc/self/cgroup");
    char line[PATH_MAX + 256];
    bool is_found = false;

    while (file && !is_found && fgets(line, sizeof line, file)) { /* number:controllers:group */
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        is_found = is_unified ? controllers[1] == '\0' : gm_mount_has(controllers + 1, "memory");
        if (is_found)
            snprintf(group, PATH_MAX, "%s", path);
    }
    if (file)
        fclose(file);
    return is_found;
}

/* Read the limits wherever a hierarchy with memory limits is mounted. */
static void read_groups(struct gm_limits *limits, const char *root, bool is_unified)
{
    char group[PATH_MAX], line[3 * PATH_MAX];
    FILE *file;

    if (!find_group(root, is_unified, group))
        return;
    file = open_below(root, "/proc/self/mountinfo");
    while (file && fgets(line, sizeof line, file)) {
        struct gm_mount mount;
        if (!gm_mount_read(line, &mount))
            continue;
        if (is_unified && strcmp(mount.type, "cgroup2") == 0)
            read_group(limits, root, mount.at, mount.from, group, "memory.max");
        else if (!is_unified && strcmp(mount.type, "cgroup") == 0 &&
                 gm_mount_has(mount.options, "memory"))
            read_group(limits, root, mount.at, mount.from, group, "memory.limit_in_bytes");
    }
    if (file)
        fclose(file);
}

void gm_limits_read(struct gm_limits *limits, const char *root)
{
    *limits = (struct gm_limits){.memory = UINT64_MAX, .group = UINT64_MAX};
    read_machine(limits, root);
    read_groups(limits, root, true);
    read_groups(limits, root, false);
    /* A limit above the machine's memory is none; version 1 writes "none" as such a number. */
    if (limits->group >= limits->memory)
        limits->group = UINT64_MAX;
}

/* ---- judging ---- */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t room_for(const struct gm_limits *limits, bool is_group, uint64_t paged)
{
    if (is_group)
        return limits->group;
    return paged > 0 ? sum(limits->memory, limits->swap) : limits->memory;
}

/* Whether `pinned` and `paged` (either may be 0) fit together. Else `why` says why not. */
static bool do_fit(const struct gm_limits *limits, bool is_group, uint64_t pinned, uint64_t paged,
                   char *why, size_t size)
{
    const uint64_t room = room_for(limits, is_group, paged);
    const char *const lower = pinned == 0 ? "--paged" : paged == 0 ? "--pinned" : "them";
    char a[32], b[32], c[32];

    if (sum(pinned, paged) <= room)
        return true;
    gm_format_size(pinned, a, sizeof a);
    gm_format_size(paged, b, sizeof b);
    gm_format_size(room, c, sizeof c);
    if (pinned > 0 && paged > 0)
        snprintf(why, size, "--pinned %s and --paged %s together are more than ", a, b);
    else
        snprintf(why, size, "%s %s is more than ", lower, pinned > 0 ? a : b);
    if (is_group)
        gm_text_add(why, size,
                    "the %s that this control group may use (%s, MemoryMax= of a unit): lower %s, "
                    "or raise that limit",
                    c, limits->group_file, lower);
    else
        gm_text_add(why, size, "the %s of memory%s that this machine has: lower %s", c,
                    paged > 0 ? " and swap" : "", lower);
    return false;
}

int gm_limits_fit(const struct gm_limits *limits, uint64_t *pinned, uint64_t paged, char *why,
                  size_t why_size)
{
    /* Each alone first, so that the line names what has to change. */
    const uint64_t tries[][2] = {{*pinned, 0}, {0, paged}, {*pinned, paged}};

    for (size_t i = 0; i < 3; i++)
        for (int is_group = 1; is_group >= 0; is_group--)
            if (!do_fit(limits, is_group, tries[i][0], tries[i][1], why, why_size))
                return -EINVAL;
    if (*pinned == 0 && limits->memory != UINT64_MAX) {
        const uint64_t left = lesser(limits->group, sum(limits->memory, limits->swap)) - paged;
        *pinned = lesser(lesser(limits->memory, limits->group) / 2, left);
    }
    return 0;
}
