/* What the system says of a process: see process.h. */
#include "daemon/service/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first two fields behind the command. False: there is no such process. */
static bool look(pid_t pid, char *state, int *parent)
{
    char path[48], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *behind = strrchr(text, ')'); /* the command may hold anything */
    return behind && sscanf(behind, ") %c %d", state, parent) == 2;
}

pid_t gm_process_parent(pid_t pid)
{
    char state;
    int parent;
    return look(pid, &state, &parent) && parent > 0 ? parent : 0;
}

bool gm_process_is_stopped(pid_t pid)
{
    char state;
    int parent;
    return look(pid, &state, &parent) && (state == 'T' || state == 't');
}
