/* The claim on a GPU: see claim.h. */
#include "daemon/memory/claim.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"
#include "daemon/memory/lockfile.h"

#define RUN_DIR "/run"
#define NAME_SIZE 64
/* A daemon claims its GPUs before it opens much else. */
#define FILES_MAX 256u     /* open files that are looked at of one process */
#define PROCESSES_MAX 256u /* of other users that are called gpumuxd */

struct gm_claim {
    int fd;
    char lock[PATH_MAX + NAME_SIZE], note[PATH_MAX + NAME_SIZE]; /* note "": a user's claim */
};

/* ---- other processes ------------------------------------------------------------------------- */

/* The first line of a file of /proc/PID, "" if there is none. */
static void read_line(pid_t pid, const char *name, char *line, int size)
{
    char path[64];
    line[0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(line, size, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}

/* When a process started, in ticks since the system did; 0: not known. */
static unsigned long long start_of(pid_t pid)
{
    char line[1024];
    unsigned long long start = 0;
    read_line(pid, "stat", line, sizeof line);
    const char *behind = strrchr(line, ')'); /* the command may hold anything */
    if (!behind || sscanf(behind,
                          ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                          "%*d %*d %*d %*d %llu",
                          &start) != 1)
        return 0;
    return start;
}

/* The real user of a process. A process can have its /proc folder owned by root, so the folder's
 * owner does not tell. False: it is gone. */
static bool user_of(pid_t pid, uid_t *uid)
{
    char path[64], line[256];
    bool is_found = false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && !is_found && fgets(line, sizeof line, file))
        is_found = sscanf(line, "Uid: %u", uid) == 1;
    if (file)
        fclose(file);
    return is_found;
}

static void name_holder(pid_t pid, uid_t uid, gm_claim_user *user_name, char *text, size_t size)
{
    char command[32], user[64];
    if (pid == 0) {
        snprintf(text, size, "another gpumuxd of user %s", user_name(uid, user));
        return;
    }
    read_line(pid, "comm", command, sizeof command);
    gm_text_clean(command, sizeof command);
    snprintf(text, size, "%s, pid %d of user %s", command[0] ? command : "a process", (int)pid,
             user_name(uid, user));
}

/* Whether the process has a file called `name` open. Looks at the names only. */
static bool has_open(pid_t pid, const char *name)
{
    char path[64 + NAME_MAX], target[PATH_MAX];
    bool is_found = false;
    struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (unsigned n = 0; folder && !is_found && n < FILES_MAX && (entry = readdir(folder)); n++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        const ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        const char *slash = strrchr(target, '/');
        is_found = slash && strcmp(slash + 1, name) == 0;
    }
    if (folder)
        closedir(folder);
    return is_found;
}

/* A daemon of a user that has a claim called `name`. It may be anything of that name: this is for
 * the log only. False: none is found. */
static bool find_users_daemon(const char *name, pid_t *pid, uid_t *uid)
{
    char command[32];
    bool is_found = false;
    unsigned n = 0;
    struct dirent *entry;
    DIR *folder = opendir("/proc");
    while (folder && !is_found && n < PROCESSES_MAX && (entry = readdir(folder))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        *pid = (pid_t)strtol(entry->d_name, NULL, 10);
        read_line(*pid, "comm", command, sizeof command);
        if (strcmp(command, "gpumuxd") != 0 || !user_of(*pid, uid) || *uid == 0)
            continue;
        n++;
        is_found = has_open(*pid, name);
    }
    if (folder)
        closedir(folder);
    return is_found;
}

/* ---- the system's claim ---------------------------------------------------------------------- */

static const char *run_dir(void)
{
    const char *chosen = getenv("GPUMUX_RUN_DIR");
    return chosen && *chosen ? chosen : RUN_DIR;
}

/* Whether `dir` is a folder that nobody but `owner` can write. If not, *error says why. */
static bool is_safe(const char *dir, uid_t owner, mode_t forbidden, int *error)
{
    struct stat found;
    *error = 0;
    if (lstat(dir, &found))
        *error = errno;
    else if (!S_ISDIR(found.st_mode))
        *error = ENOTDIR;
    else if (found.st_uid != owner || (found.st_mode & forbidden))
        *error = EPERM;
    return *error == 0;
}

/* Say who holds the claim, for those who cannot open it. */
static void write_note(const char *path)
{
    char text[64];
    snprintf(text, sizeof text, "%d:%llu", (int)getpid(), start_of(getpid()));
    unlink(path); /* of a daemon that was killed */
    if (symlink(text, path))
        return; /* then a user's daemon starts beside this one */
}

/* The pid of the system's daemon that has the claim, 0 if there is none. */
static pid_t read_note(const char *path)
{
    char text[64];
    int pid;
    unsigned long long start;
    const ssize_t length = readlink(path, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    if (sscanf(text, "%d:%llu", &pid, &start) != 2 || pid <= 0 ||
        (kill(pid, 0) != 0 && errno == ESRCH))
        return 0;
    const unsigned long long now = start_of(pid);
    return now == start || now == 0 ? pid : 0; /* 0: others' processes are hidden here */
}

static int claim_for_system(struct gm_claim *claim, const char *name, gm_claim_user *user_name,
                            char *text, size_t size)
{
    pid_t pid;
    uid_t uid;
    char holder[192];
    int error;

    if (!is_safe(run_dir(), 0, S_IWGRP | S_IWOTH, &error)) {
        snprintf(text, size, "%s is no folder that only root can write: %s", run_dir(),
                 strerror(error));
        return -error;
    }
    claim->fd = gm_lockfile_take(claim->lock, &pid);
    if (claim->fd == -EWOULDBLOCK) {
        name_holder(pid, 0, user_name, text, size);
        return -EADDRINUSE;
    }
    if (claim->fd < 0) {
        snprintf(text, size, "%s: %s", claim->lock, strerror(-claim->fd));
        return claim->fd;
    }
    write_note(claim->note);
    if (find_users_daemon(name, &pid, &uid)) {
        name_holder(pid, uid, user_name, holder, sizeof holder);
        snprintf(text, size, "is also shared by %s, for that user: what is free is counted",
                 holder);
    }
    return 0;
}

/* ---- a user's claim -------------------------------------------------------------------------- */

/* A folder that only this user can write: of the session, else in /tmp. *error if there is none. */
static void find_folder(char dir[PATH_MAX], int *error)
{
    const char *session = getenv("XDG_RUNTIME_DIR");
    const uid_t uid = geteuid();
    if (session && session[0] == '/' && strlen(session) < PATH_MAX) {
        snprintf(dir, PATH_MAX, "%s", session);
        if (is_safe(dir, uid, S_IWGRP | S_IWOTH, error))
            return;
    }
    snprintf(dir, PATH_MAX, "/run/user/%u", uid);
    if (is_safe(dir, uid, S_IWGRP | S_IWOTH, error))
        return;
    snprintf(dir, PATH_MAX, "/tmp/gpumux-%u", uid);
    if (mkdir(dir, 0700) && errno != EEXIST)
        *error = errno;
    else /* anybody may have made it */
        is_safe(dir, uid, S_IRWXG | S_IRWXO, error);
}

static int claim_for_user(struct gm_claim *claim, const char *name, gm_claim_user *user_name,
                          char *text, size_t size)
{
    char dir[PATH_MAX];
    int error;
    pid_t pid = read_note(claim->note);

    claim->note[0] = '\0'; /* root's */
    if (pid) {
        name_holder(pid, 0, user_name, text, size);
        return -EADDRINUSE;
    }
    find_folder(dir, &error);
    snprintf(claim->lock, sizeof claim->lock, "%s/%s", dir, name);
    if (error == 0)
        claim->fd = gm_lockfile_take(claim->lock, &pid);
    if (error == 0 && claim->fd == -EWOULDBLOCK) {
        name_holder(pid, geteuid(), user_name, text, size);
        return -EADDRINUSE;
    }
    if (error == 0 && claim->fd < 0)
        error = -claim->fd;
    if (error) /* somebody else's folder of that name must not keep this user from starting */
        snprintf(text, size,
                 "may be shared by another gpumuxd of yours: %.256s cannot be used to find out: %s",
                 dir, strerror(error));
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

int gm_claim_open(struct gm_claim **result, const unsigned char uuid[16], gm_claim_user *user_name,
                  char *text, size_t size)
{
    char name[NAME_SIZE] = "gpumux-";
    struct gm_claim *claim = calloc(1, sizeof *claim);

    *result = NULL;
    text[0] = '\0';
    if (!claim) {
        snprintf(text, size, "out of memory");
        return -ENOMEM;
    }
    for (int i = 0; i < 16; i++)
        sprintf(name + strlen(name), "%02x", uuid[i]);
    claim->fd = -1;
    snprintf(claim->note, sizeof claim->note, "%s/%s.holder", run_dir(), name);
    strcat(name, ".lock");
    snprintf(claim->lock, sizeof claim->lock, "%s/%s", run_dir(), name);
    int error = geteuid() == 0 ? claim_for_system(claim, name, user_name, text, size)
                               : claim_for_user(claim, name, user_name, text, size);
    if (error == 0 && claim->fd >= 0)
        *result = claim;
    else
        free(claim);
    return error;
}

void gm_claim_close(struct gm_claim *claim)
{
    if (!claim)
        return;
    if (claim->note[0])
        unlink(claim->note);
    gm_lockfile_drop(claim->lock, claim->fd);
    free(claim);
}
