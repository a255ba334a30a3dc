/* Work in a process of its own: see apart.h. */
#include "daemon/ctl/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

/* Whoever reads what mux-ctl prints waits until nobody has its output open any more. */
static void forget_files(int fd)
{
    const int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(fd, 3);
    syscall(SYS_close_range, 4, ~0u, 0);
}

_Noreturn static void serve(const struct mux_apart *apart, int fd)
{
    unsigned char what;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* mux-ctl may have ended before: then read ends */
    forget_files(fd);
    while (read(3, &what, 1) == 1) {
        apart->work(what, apart->memory);
        if (write(3, &what, 1) != 1)
            break;
    }
    _exit(0);
}

void *mux_apart_memory(struct mux_apart *apart)
{
    if (apart->memory)
        return apart->memory;
    void *memory =
        mmap(NULL, apart->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    apart->memory = memory == MAP_FAILED ? NULL : memory;
    return apart->memory;
}

static bool start(struct mux_apart *apart)
{
    int ends[2];
    if (!mux_apart_memory(apart) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    apart->pid = fork();
    if (apart->pid == 0) {
        close(ends[0]);
        serve(apart, ends[1]);
    }
    close(ends[1]);
    apart->fd = ends[0];
    if (apart->pid > 0)
        return true;
    close(ends[0]);
    apart->pid = 0;
    return false;
}

/* Its answer by then. */
static bool hear(struct mux_apart *apart, uint64_t until)
{
    struct pollfd end = {.fd = apart->fd, .events = POLLIN};
    unsigned char what;
    for (;;) {
        const uint64_t now = gm_now();
        const int n = poll(&end, 1, now < until ? (int)((until - now) / GM_MS) + 1 : 0);
        if (n > 0) {
            apart->has_ended = read(apart->fd, &what, 1) != 1;
            return !apart->has_ended;
        }
        if (n == 0 || errno != EINTR)
            return false;
    }
}

bool mux_apart_do(struct mux_apart *apart, unsigned char what, uint64_t limit)
{
    const uint64_t until = gm_now() + limit;
    if (apart->is_late && waitpid(apart->pid, NULL, WNOHANG) != 0) {
        apart->is_late = false;
        apart->pid = 0;
    }
    apart->has_ended = false;
    if (apart->is_late)
        return false;
    apart->has_ended = apart->pid == 0 && !start(apart);
    if (apart->has_ended)
        return false;
    apart->has_ended = send(apart->fd, &what, 1, MSG_NOSIGNAL) != 1;
    if (!apart->has_ended && hear(apart, until))
        return true;
    kill(apart->pid, SIGKILL);
    close(apart->fd);
    apart->is_late = true;
    munmap(apart->memory, apart->size); /* what it still writes nobody reads */
    apart->memory = NULL;
    return false;
}
