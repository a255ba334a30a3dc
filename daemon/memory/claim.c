/* The claim on a GPU: see claim.h. */
#include "daemon/memory/claim.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/text.h"

#define BACKLOG 64 /* connections are accepted and closed at once */

struct gm_claim {
    uv_poll_t poll;
    int fd;
};

/* Fill in the abstract address of a GPU. Returns its length. */
static socklen_t name_gpu(struct sockaddr_un *address, const unsigned char uuid[16])
{
    char *name = address->sun_path + 1; /* the NUL before it makes it abstract */
    size_t length = (size_t)sprintf(name, "gpumux-gpu-");
    for (int i = 0; i < 16; i++)
        length += (size_t)sprintf(name + length, "%02x", uuid[i]);
    address->sun_family = AF_UNIX;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static void name_holder(pid_t pid, uid_t uid, gm_claim_user *user_name, char *text, size_t size)
{
    char path[64], command[32] = "a process", user[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(command, sizeof command, file))
            command[strcspn(command, "\n")] = '\0';
        fclose(file);
    }
    gm_text_clean(command, sizeof command);
    snprintf(text, size, "%s, pid %d of user %s", command, (int)pid, user_name(uid, user));
}

/* Who listens at the address. 0, or -errno if nobody does. */
static int ask_listener(const struct sockaddr_un *address, socklen_t length, struct ucred *peer)
{
    socklen_t size = sizeof *peer;
    int error = 0;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)address, length) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &size))
        error = -errno;
    else if (peer->pid == 0)
        error = -ESRCH; /* in a pid namespace that we do not see */
    close(fd);
    return error;
}

/* The inode of the bound socket with this name, as the kernel lists it; 0: none. */
static unsigned long inode_of(const char *name)
{
    char line[512], path[256];
    unsigned long inode = 0, found;
    unsigned type;
    FILE *file = fopen("/proc/net/unix", "re");
    while (file && inode == 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "%*s %*s %*s %*s %x %*s %lu %255s", &type, &found, path) == 3 &&
            type == SOCK_SEQPACKET && path[0] == '@' && strcmp(path + 1, name) == 0)
            inode = found;
    if (file)
        fclose(file);
    return inode;
}

static bool has_socket(const char *pid, unsigned long inode)
{
    char path[544], link[64], wanted[64];
    bool is_found = false;
    struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *folder = opendir(path);
    while (folder && !is_found && (entry = readdir(folder))) {
        snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, entry->d_name);
        ssize_t length = readlink(path, link, sizeof link - 1);
        link[length > 0 ? length : 0] = '\0';
        is_found = strcmp(link, wanted) == 0;
    }
    if (folder)
        closedir(folder);
    return is_found;
}

/* The real user of a process, 0 if it is gone. A process can have its /proc folder owned by root,
 * so the folder's owner does not tell. */
static uid_t user_of(const char *pid)
{
    char path[300], line[256];
    unsigned uid = 0;
    snprintf(path, sizeof path, "/proc/%s/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "Uid: %u", &uid) != 1)
        continue;
    if (file)
        fclose(file);
    return uid;
}

/* Who has the name but does not answer: look through all processes. 0 or -errno. */
static int find_holder(const char *name, struct ucred *peer)
{
    unsigned long inode = inode_of(name);
    DIR *folder = inode ? opendir("/proc") : NULL;
    struct dirent *entry;
    int error = -ESRCH;
    while (folder && error && (entry = readdir(folder))) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !has_socket(entry->d_name, inode))
            continue;
        peer->pid = (pid_t)strtol(entry->d_name, NULL, 10);
        peer->uid = user_of(entry->d_name);
        error = 0;
    }
    if (folder)
        closedir(folder);
    return error;
}

/* Somebody connected to ask who has the claim. The kernel has answered already. */
static void on_question(uv_poll_t *poll, int status, int events)
{
    const struct gm_claim *claim = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < BACKLOG; i++) {
        int fd = accept4(claim->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        close(fd);
    }
}

int gm_claim_open(struct gm_claim **result, uv_loop_t *loop, const unsigned char uuid[16],
                  gm_claim_user *user_name, char *why, size_t size)
{
    struct sockaddr_un address = {0};
    const socklen_t length = name_gpu(&address, uuid);
    struct gm_claim *claim = calloc(1, sizeof *claim);
    struct ucred peer;
    int error = -ENOMEM;

    if (!claim)
        goto say_error;
    claim->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (claim->fd < 0) {
        error = -errno;
        goto free_claim;
    }
    if (bind(claim->fd, (const struct sockaddr *)&address, length) || listen(claim->fd, BACKLOG)) {
        error = -errno;
        goto close_fd;
    }
    error = uv_poll_init(loop, &claim->poll, claim->fd);
    if (error)
        goto close_fd;
    claim->poll.data = claim;
    uv_poll_start(&claim->poll, UV_READABLE, on_question);
    *result = claim;
    return 0;

close_fd:
    close(claim->fd);
free_claim:
    free(claim);
say_error:
    snprintf(why, size, "%s", strerror(-error));
    if (error != -EADDRINUSE)
        return error;
    if (ask_listener(&address, length, &peer) == 0 || find_holder(address.sun_path + 1, &peer) == 0)
        name_holder(peer.pid, peer.uid, user_name, why, size);
    else
        snprintf(why, size, "a process that cannot be seen from here (it has the socket @%s)",
                 address.sun_path + 1);
    return error;
}

static void on_closed(uv_handle_t *handle)
{
    struct gm_claim *claim = handle->data;
    close(claim->fd);
    free(claim);
}

void gm_claim_close(struct gm_claim *claim)
{
    if (claim)
        uv_close((uv_handle_t *)&claim->poll, on_closed);
}
