/*
 * Whose memory a descriptor of the driver stands for (cuMemExportToShareableHandle). The driver
 * does not say. So the exporter's shim writes its process into the open file, as the one that its
 * signals go to (F_SETOWN): nobody asks for signals of such a file. The file goes to the importer
 * as it is, by a socket or by pidfd_getfd. The importer's shim reads the mark and tells the daemon
 * the number. The file itself never goes to the daemon: to close a file of a program may wait for
 * that program. The kernel gives the number as the importer counts processes, so the daemon knows
 * it only of programs that share its process numbers.
 *
 * A program that has such a file can write another process into it, and can tell any number. So the
 * mark is a word of programs of one user about one another, no more: the daemon believes it of
 * programs of one user, and if the one that it names says that it exported memory
 * (gm_stat.exports).
 */
#ifndef GM_COMMON_MARKS_H
#define GM_COMMON_MARKS_H

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

static inline void gm_mark_export(int fd)
{
    const struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = getpid()};
    fcntl(fd, F_SETOWN_EX, &owner);
}

/* The process that exported it; 0: nobody said so, or nobody that is seen from here. */
static inline pid_t gm_exporter_of(int fd)
{
    struct f_owner_ex owner = {0};
    if (fcntl(fd, F_GETOWN_EX, &owner) != 0 || owner.type != F_OWNER_PID || owner.pid < 0)
        return 0;
    return owner.pid;
}

#endif
