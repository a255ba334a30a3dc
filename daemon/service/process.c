/* What the system says of a process: see process.h. */
#include "daemon/service/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mounts.h"

/* Threads of a process without its first one at which is looked for one that lives. */
#define THREADS_MOST 64

/* Files and processes in one look for who has a socket, at some microsecond each; when a process
 * was started takes as long as so many. */
#define LOOKS_MOST 32768
#define STAT_COSTS 16

__attribute__((format(printf, 4, 5))) static bool
read_file(const struct gm_process_system *system, char *text, size_t size, const char *format, ...)
{
    char path[1024];
    va_list list;
    const int before =
        snprintf(path, sizeof path, "%s", system && system->root ? system->root : "");
    va_start(list, format);
    const int length = vsnprintf(path + before, sizeof path - (size_t)before, format, list);
    va_end(list);
    if (length < 0 || (size_t)(before + length) >= sizeof path)
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t got = read(fd, text, size - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* The first two fields behind the command. */
static bool parse(const char *text, char *state, int *parent)
{
    const char *behind = strrchr(text, ')'); /* the command may hold anything */
    return behind && sscanf(behind, ") %c %d", state, parent) == 2;
}

pid_t gm_process_parent(pid_t pid)
{
    char state, text[512];
    int parent;
    return read_file(NULL, text, sizeof text, "/proc/%d/stat", (int)pid) &&
                   parse(text, &state, &parent) && parent > 0
               ? parent
               : 0;
}

static uint64_t started(const struct gm_process_system *system, pid_t pid)
{
    char text[1024];
    unsigned long long ticks = 0;
    if (!read_file(system, text, sizeof text, "/proc/%d/stat", (int)pid))
        return 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%llu", &ticks) == 1 ? ticks : 0;
}

uint64_t gm_process_started(pid_t pid)
{
    return started(NULL, pid);
}

/* ---- who has the other end of a socket ---- */

/* The inode of the other end, which only the kernel's sock_diag knows. 0: it cannot be known. */
static uint64_t other_end(int fd)
{
    struct {
        struct nlmsghdr header;
        struct unix_diag_req body;
    } ask = {
        {.nlmsg_len = sizeof ask, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        {.sdiag_family = AF_UNIX,
         .udiag_states = UINT32_MAX,
         .udiag_show = UDIAG_SHOW_PEER,
         .udiag_cookie = {UINT32_MAX, UINT32_MAX}}};
    struct {
        struct nlmsghdr header;
        struct unix_diag_msg body;
        struct nlattr peer;
        uint32_t inode;
        char rest[256];
    } answer;
    struct stat is;
    const int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    bool is_known = diag >= 0 && fstat(fd, &is) == 0;
    ask.body.udiag_ino = is_known ? (uint32_t)is.st_ino : 0;
    /* The kernel has answered when send() returns. */
    is_known = is_known && send(diag, &ask, sizeof ask, 0) == (ssize_t)sizeof ask &&
               recv(diag, &answer, sizeof answer, 0) >= (ssize_t)offsetof(typeof(answer), rest) &&
               answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
               answer.peer.nla_type == UNIX_DIAG_PEER;
    if (diag >= 0)
        close(diag);
    return is_known ? answer.inode : 0;
}

/* Links are read, and no file is asked: that of a user's file system may never answer. */
static bool has_open(int all, const char *pid, const char *target, int *left)
{
    char path[64], link[64];
    snprintf(path, sizeof path, "%.20s/fd", pid);
    const int fd = openat(all, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *files = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    bool is_found = false;
    while (files && !is_found && (*left)-- > 0 && (entry = readdir(files)) != NULL) {
        const ssize_t length = readlinkat(fd, entry->d_name, link, sizeof link - 1);
        link[length > 0 ? length : 0] = '\0';
        is_found = strcmp(link, target) == 0;
    }
    if (files)
        closedir(files);
    else if (fd >= 0)
        close(fd);
    return is_found;
}

pid_t gm_process_holder_in(const struct gm_process_system *system, uid_t uid, uint64_t since,
                           uint64_t inode)
{
    char path[512], target[48];
    int left = LOOKS_MOST;
    pid_t found = 0;
    snprintf(path, sizeof path, "%s/proc", system->root ? system->root : "");
    snprintf(target, sizeof target, "socket:[%" PRIu64 "]", inode);
    DIR *all = inode != 0 ? opendir(path) : NULL;
    const struct dirent *entry;
    while (all && found == 0 && left-- > 0 && (entry = readdir(all)) != NULL) {
        struct stat is;
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || fstatat(dirfd(all), entry->d_name, &is, 0) != 0 || is.st_uid != uid)
            continue;
        left -= STAT_COSTS;
        if (started(system, pid) >= since && has_open(dirfd(all), entry->d_name, target, &left))
            found = pid;
    }
    if (all)
        closedir(all);
    return found;
}

pid_t gm_process_holder(uid_t uid, uint64_t since, int socket)
{
    const struct gm_process_system here = {.root = NULL};
    return gm_process_holder_in(&here, uid, since, other_end(socket));
}

/* ---- control groups ---- */

/* What lies at `from` of a hierarchy is mounted at `at`. */
static void take_mount(struct gm_cgroup_mount *mount, const char *from, const char *at)
{
    if (mount->at[0] != '\0' || strlen(at) >= sizeof mount->at ||
        strlen(from) >= sizeof mount->from)
        return;
    snprintf(mount->at, sizeof mount->at, "%s", at);
    snprintf(mount->from, sizeof mount->from, "%s", strcmp(from, "/") == 0 ? "" : from);
}

static void take_line(struct gm_process_system *system, const char *line)
{
    struct gm_mount mount;
    if (!gm_mount_read(line, &mount))
        return;
    if (strcmp(mount.type, "cgroup2") == 0)
        take_mount(&system->unified, mount.from, mount.at);
    if (strcmp(mount.type, "cgroup") == 0 && gm_mount_has(mount.options, "freezer"))
        take_mount(&system->freezer, mount.from, mount.at);
}

static void find_mounts(struct gm_process_system *system)
{
    char path[512], *line = NULL;
    size_t size = 0;
    system->is_read = true;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", system->root ? system->root : "");
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (getline(&line, &size, file) >= 0)
        take_line(system, line);
    free(line);
    fclose(file);
}

/* The text of a file of the group at `path`. */
static bool read_group(const struct gm_process_system *system, const struct gm_cgroup_mount *mount,
                       const char *path, const char *file, char *text, size_t size)
{
    const size_t skipped = strlen(mount->from);
    if (mount->at[0] == '\0' || strncmp(path, mount->from, skipped) != 0 ||
        (path[skipped] != '/' && path[skipped] != '\0'))
        return false;
    return read_file(system, text, size, "%s%s/%s", mount->at, path + skipped, file);
}

/* Both files tell of the groups around it as well: a group in a frozen one is frozen. */
static bool is_frozen_at(const struct gm_process_system *system, const char *line)
{
    char names[256], text[512];
    const char *path = strchr(line, ':');
    path = path ? strchr(path + 1, ':') : NULL;
    if (!path)
        return false;
    path++;
    if (strncmp(line, "0::", 3) == 0)
        return read_group(system, &system->unified, path, "cgroup.events", text, sizeof text) &&
               strstr(text, "frozen 1") != NULL;
    return sscanf(line, "%*d:%255[^:]", names) == 1 && gm_mount_has(names, "freezer") &&
           read_group(system, &system->freezer, path, "freezer.state", text, sizeof text) &&
           (strncmp(text, "FROZEN", 6) == 0 || strncmp(text, "FREEZING", 8) == 0);
}

static bool is_frozen(struct gm_process_system *system, pid_t pid)
{
    char text[4096], *rest = NULL;
    if (!system->is_read)
        find_mounts(system);
    if (!read_file(system, text, sizeof text, "/proc/%d/cgroup", (int)pid))
        return false;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (is_frozen_at(system, line))
            return true;
    return false;
}

/* ---- all of it ---- */

static bool is_over(char state)
{
    return state == 'Z' || state == 'X';
}

/* The state of a thread of a process whose first one has ended. */
static char state_of_rest(const struct gm_process_system *system, pid_t pid)
{
    char path[512], text[512], state = 'Z';
    int parent, left = THREADS_MOST;
    snprintf(path, sizeof path, "%s/proc/%d/task", system->root ? system->root : "", (int)pid);
    DIR *tasks = opendir(path);
    const struct dirent *entry;
    if (!tasks)
        return state;
    while (is_over(state) && left-- > 0 && (entry = readdir(tasks)) != NULL)
        if (entry->d_name[0] == '.' ||
            !read_file(system, text, sizeof text, "/proc/%d/task/%s/stat", (int)pid,
                       entry->d_name) ||
            !parse(text, &state, &parent))
            state = 'Z';
    closedir(tasks);
    return state;
}

enum gm_why gm_process_stop_in(struct gm_process_system *system, pid_t pid)
{
    char text[512], state;
    int parent;
    if (!read_file(system, text, sizeof text, "/proc/%d/stat", (int)pid) ||
        !parse(text, &state, &parent))
        return GM_WHY_NONE;
    if (is_over(state))
        state = state_of_rest(system, pid);
    if (is_over(state))
        return GM_WHY_NONE;
    if (state == 'T')
        return GM_WHY_STOPPED;
    if (state == 't')
        return GM_WHY_TRACED;
    return is_frozen(system, pid) ? GM_WHY_FROZEN : GM_WHY_NONE;
}

enum gm_why gm_process_stop(pid_t pid)
{
    static struct gm_process_system here;
    return gm_process_stop_in(&here, pid);
}
