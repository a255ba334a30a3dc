/*
 * A fake nvidia-cuda-mps-control. `-f`: the control daemon, in the foreground, which listens in
 * CUDA_MPS_PIPE_DIRECTORY; without: the tool, which sends it the lines of its standard input.
 *
 *   start_server -uid N      start a server: a process that sleeps
 *   get_server_list          its pid, if there is one
 *   get_server_status PID    ACTIVE; FAULT or INITIALIZING while there is a file `fault` or `slow`
 * in the folder: then it takes no clients get_client_list PID      the pids of its clients quit [-t
 * SECONDS]        end, when the clients have ended; or at once
 *
 * It serves its own user, and ends with code 3 if its environment has what it must not have.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 64

static struct pollfd watched[1 + CLIENTS_MAX];
static pid_t pid_of[1 + CLIENTS_MAX]; /* of clients; 0: of the tool, or not known yet */
static nfds_t n_watched = 1;
static pid_t server;
static int quitting = -1; /* who said so */
static char folder[96];

static int open_control(struct sockaddr_un *at)
{
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(folder, sizeof folder, "%s", pipe != NULL ? pipe : "/tmp/nvidia-mps");
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(at->sun_path, sizeof at->sun_path, "%s/control", folder);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* ---- the tool ---- */

static int ask(void)
{
    struct sockaddr_un at;
    char text[4096];
    ssize_t n;
    const int fd = open_control(&at);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) != 0) {
        fprintf(stderr, "Cannot find MPS control daemon process\n");
        return 1;
    }
    while ((n = read(STDIN_FILENO, text, sizeof text)) > 0)
        if (write(fd, text, (size_t)n) != n)
            return 1;
    shutdown(fd, SHUT_WR);
    while ((n = read(fd, text, sizeof text)) > 0)
        if (write(STDOUT_FILENO, text, (size_t)n) != n)
            return 1;
    return 0;
}

/* ---- the control daemon ---- */

static void start_server(void)
{
    if (server != 0)
        return;
    server = fork();
    if (server != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (nfds_t i = 0; i < n_watched; i++)
        close(watched[i].fd);
    for (;;)
        pause();
}

static void finish(void)
{
    char path[128];
    if (server > 0)
        kill(server, SIGKILL);
    snprintf(path, sizeof path, "%s/control", folder);
    unlink(path);
    exit(0);
}

static unsigned clients(void)
{
    unsigned n = 0;
    for (nfds_t i = 1; i < n_watched; i++)
        n += pid_of[i] != 0;
    return n;
}

static void forget(nfds_t i)
{
    close(watched[i].fd);
    watched[i] = watched[--n_watched];
    pid_of[i] = pid_of[n_watched];
    if (quitting >= 0 && clients() == 0)
        finish();
}

static bool has_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void answer(nfds_t i, char *line)
{
    const int fd = watched[i].fd;
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof peer;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    if (strcmp(line, "client") == 0) {
        const bool is_ready = server == 0 || (!has_file("slow") && !has_file("fault"));
        const bool is_taken = peer.uid == geteuid() && quitting < 0 && is_ready;
        if (is_taken) {
            start_server();
            pid_of[i] = peer.pid;
        }
        dprintf(fd, is_taken ? "ok\n" : is_ready ? "no\n" : "not\n");
    } else if (strncmp(line, "start_server", 12) == 0) {
        start_server();
    } else if (strcmp(line, "get_server_list") == 0 && server > 0) {
        dprintf(fd, "%d\n", (int)server);
    } else if (strncmp(line, "get_server_status", 17) == 0) {
        dprintf(fd, has_file("fault")  ? "FAULT\n"
                    : has_file("slow") ? "INITIALIZING\n"
                                       : "ACTIVE\n");
    } else if (strncmp(line, "get_client_list", 15) == 0) {
        for (nfds_t k = 1; k < n_watched; k++)
            if (pid_of[k] != 0)
                dprintf(fd, "%d\n", (int)pid_of[k]);
    } else if (strncmp(line, "quit", 4) == 0) {
        quitting = fd;
        if (clients() == 0 || strstr(line, "-t") != NULL)
            finish();
    }
}

static void hear(nfds_t i)
{
    char text[512], *rest = text, *line;
    const ssize_t n = read(watched[i].fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    while ((line = strsep(&rest, "\n")) != NULL)
        if (*line)
            answer(i, line);
    /* The tool has said all; who says quit waits for the end. */
    if (n <= 0 && watched[i].fd != quitting)
        forget(i);
    else if (n <= 0)
        watched[i].events = 0;
}

static int control(void)
{
    struct sockaddr_un at;
    char path[128];
    if (getenv("CUDA_VISIBLE_DEVICES") != NULL || getenv("LD_PRELOAD") != NULL ||
        getenv("CUDA_MPS_LOG_DIRECTORY") == NULL)
        return 3;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    const int fd = open_control(&at);
    unlink(at.sun_path);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 64) != 0) {
        fprintf(stderr, "%s: %s\n", at.sun_path, strerror(errno));
        return 1;
    }
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", folder);
    const int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    dprintf(file, "%d\n", (int)getpid());
    close(file);
    watched[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    for (;;) {
        if (poll(watched, n_watched, 1000) < 0)
            continue;
        if (access(folder, F_OK) != 0)
            exit(0); /* a test that was killed leaves none behind: its folder is gone */
        for (nfds_t i = n_watched; i-- > 1;)
            if (watched[i].revents != 0)
                hear(i);
        const int one = watched[0].revents != 0 ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (one >= 0 && n_watched <= CLIENTS_MAX) {
            pid_of[n_watched] = 0;
            watched[n_watched++] = (struct pollfd){.fd = one, .events = POLLIN};
        } else if (one >= 0) {
            close(one);
        }
    }
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "-f") == 0 ? control() : ask();
}
