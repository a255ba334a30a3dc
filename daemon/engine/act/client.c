#include "daemon/engine/act/client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/windows.h"
#include "daemon/engine/state/groups.h"

/* A sealed area of `bytes`, of which `mapped` are mapped writable here. Returns its fd or -errno.
 */
static int make_shared(const char *name, size_t bytes, size_t mapped, int seals, void **memory)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error;
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) != 0)
        goto fail;
    *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*memory == MAP_FAILED)
        goto fail;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL | seals) != 0) {
        munmap(*memory, mapped);
        goto fail;
    }
    return fd;

fail:
    error = -errno;
    *memory = NULL;
    close(fd);
    return error;
}

/* The first bytes of the program's own area; NULL: it is none that can be used. The daemon that
 * made it sealed its size: without that the program could cut it off below this daemon. 0; or
 * -errno: it cannot be mapped now. */
static int map_stat(int fd, struct gm_stat **stat)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat is;
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &is) != 0 ||
        is.st_size < (off_t)GM_STAT_BYTES)
        return 0;
    void *memory = mmap(NULL, sizeof **stat, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return errno == ENOMEM || errno == EAGAIN || errno == ENFILE ? -errno : 0;
    *stat = memory;
    return 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int make_ctl(struct gm_client *client)
{
    void *ctl = NULL;
    client->fds[0] = make_shared(GM_SHM_CTL_NAME, sizeof *client->ctl, sizeof *client->ctl,
                                 F_SEAL_FUTURE_WRITE, &ctl);
    if (client->fds[0] < 0)
        return client->fds[0];
    client->ctl = ctl;
    client->ctl->magic = GM_SHM_MAGIC;
    client->ctl->version = GM_SHM_VERSION;
    client->ctl->app = client->id;
    atomic_store(&client->ctl->window, 1);
    atomic_store(&client->ctl->gate, GM_GATE_CLOSED); /* until the first engine opens it */
    return 0;
}

static int make_stat(struct gm_client *client)
{
    void *stat = NULL;
    client->fds[1] = make_shared("gpumux-stat", GM_STAT_BYTES, sizeof *client->stat, 0, &stat);
    if (client->fds[1] < 0)
        return client->fds[1];
    client->stat = stat;
    client->stat->magic = GM_SHM_MAGIC;
    client->stat->version = GM_SHM_VERSION;
    return 0;
}

/* Linux before 5.3 gives no pidfds, nor do some containers. */
static int open_process(struct gm_client *client)
{
    client->lease = (int)syscall(SYS_pidfd_open, client->pid, 0);
    return client->lease >= 0 || errno == ENOSYS || errno == EPERM ? 0 : -errno;
}

static int keep(struct gm_client *client)
{
    if (!client->kept)
        return 0;
    int error = gm_kept_put(client->kept, GM_KEPT_STAT, 0, client->id, 0, client->fds[1]);
    if (error == 0 && client->lease >= 0)
        error = gm_kept_put(client->kept, GM_KEPT_LEASE, 0, client->id, 0, client->lease);
    return error;
}

/* A cap that no shim says is no word that is known. */
static void clean_cap(struct gm_wishes *wishes)
{
    const bool is_said = wishes->cap_is == GM_HELLO_CAP_OURS
                             ? wishes->cap != 0
                             : wishes->cap_is == GM_HELLO_CAP_FOREIGN;
    if (!is_said || (wishes->cap >= GM_CHUNK_MIN && wishes->cap <= INT64_MAX))
        return;
    wishes->cap_is = GM_HELLO_CAP_UNKNOWN;
    wishes->cap = 0;
}

int gm_client_open(struct gm_client **out, uint32_t id, const struct gm_newcomer *who,
                   struct gm_group *group, struct gm_kept *kept)
{
    struct gm_client *client = gm_client_make(id, who->uid, kept);
    int error = -ENOMEM;
    if (!client)
        return error;
    client->session = who->session;
    client->pid = who->pid;
    client->started = who->started;
    client->is_admin = who->is_admin;
    client->wishes = who->wishes;
    client->version = who->version;
    clean_cap(&client->wishes);
    strncpy(client->name, who->name, sizeof client->name - 1);
    if (getrandom(client->nonce, sizeof client->nonce, 0) != (ssize_t)sizeof client->nonce) {
        error = -EIO;
        goto fail;
    }
    error = make_ctl(client);
    if (error == 0)
        error = make_stat(client);
    if (error == 0)
        error = open_process(client);
    if (error == 0)
        error = keep(client);
    if (error == 0)
        error = gm_group_add(group, client);
    if (error)
        goto fail;
    *out = client;
    return 0;

fail:
    gm_client_drop(client);
    return error;
}

void gm_client_count_for(struct gm_client *client, uid_t owner)
{
    client->owner = owner;
}

int gm_client_reopen(struct gm_client **out, uint32_t id, const struct gm_client_record *record,
                     int stat, int lease, struct gm_kept *kept, uint64_t now)
{
    struct gm_client *client = gm_client_make(id, record->uid, kept);
    if (!client) {
        close_fd(&stat);
        close_fd(&lease);
        return -ENOMEM;
    }
    client->pid = (pid_t)record->pid;
    client->started = record->started;
    client->is_admin = (record->flags & GM_CLIENT_IS_ADMIN) != 0;
    client->wishes = (struct gm_wishes){.class = record->class,
                                        .oversize = record->oversize,
                                        .cap_is = record->cap_is,
                                        .cap = record->cap,
                                        .has_part = (record->flags & GM_CLIENT_HAS_PART) != 0};
    clean_cap(&client->wishes);
    memcpy(client->name, record->name, sizeof client->name);
    memcpy(client->nonce, record->nonce, sizeof client->nonce);
    gm_client_set_epoch(client, record->epoch);
    client->lost_at = now;
    client->lease = lease;
    client->fds[1] = stat;
    int error = stat >= 0 ? map_stat(stat, &client->stat) : 0;
    const bool is_lost = client->stat == NULL;
    if (error == 0)
        error = make_ctl(client);
    if (error == 0 && is_lost) {
        close_fd(&client->fds[1]);
        error = make_stat(client);
    }
    if (error == 0)
        error = keep(client);
    if (error) {
        gm_client_undo_reopen(client);
        return error;
    }
    *out = client;
    return is_lost;
}

void gm_client_undo_reopen(struct gm_client *client)
{
    client->kept = NULL;
    gm_client_drop(client);
}

bool gm_client_return(struct gm_client *client, struct gm_session *session,
                      const struct gm_msg_rejoin *body)
{
    const bool is_parked = (body->flags & GM_REJOIN_IS_PARKED) != 0;
    const uint64_t newest = client->epoch > body->epoch ? client->epoch : body->epoch;
    uint32_t was = GM_MOVING_FREE;
    if (newest > UINT64_MAX - GM_CLIENT_EPOCHS)
        return false;
    if (is_parked && !atomic_compare_exchange_strong(&client->stat->moving, &was, GM_MOVING_AWAY) &&
        was != GM_MOVING_AWAY)
        return false;
    atomic_store(&client->stat->moving, is_parked ? GM_MOVING_AWAY : GM_MOVING_FREE);
    gm_client_set_parked(client, is_parked);
    gm_client_set_epoch(client, newest + GM_CLIENT_EPOCHS);
    atomic_store(&client->ctl->epoch, client->epoch);
    client->again = body->cookie;
    client->version = gm_wire_common(body->oldest, body->newest);
    client->session = session;
    client->lost_at = 0;
    return true;
}

void gm_client_lose(struct gm_client *client, uint64_t now)
{
    client->session = NULL;
    client->lost_at = now;
}

void gm_client_watch(struct gm_client *client,
                     void (*on_end)(void *arg, const struct gm_client *client), void *arg)
{
    client->on_end = on_end;
    client->arg = arg;
}

/* ---- the end of its process ---- */

static void free_exit(uv_handle_t *exit)
{
    free(exit);
}

static void end_exit(struct gm_client *client)
{
    if (client->exit)
        uv_close((uv_handle_t *)client->exit, free_exit);
    client->exit = NULL;
}

static void on_exit_seen(uv_poll_t *exit, int status, int events)
{
    struct gm_client *client = exit->data;
    (void)status;
    (void)events;
    gm_client_hold(client); /* the engines may drop it */
    end_exit(client);
    client->on_exit(client->exit_arg, client);
    gm_client_drop(client);
}

int gm_client_await(struct gm_client *client, uv_loop_t *loop,
                    void (*on_exit)(void *arg, struct gm_client *client), void *arg)
{
    const bool is_first = !client->on_exit;
    client->on_exit = on_exit;
    client->exit_arg = arg;
    if (!is_first || client->lease < 0)
        return 0;
    uv_poll_t *exit = calloc(1, sizeof *exit);
    if (!exit)
        return -ENOMEM;
    const int error = uv_poll_init(loop, exit, client->lease);
    if (error) {
        free(exit);
        return error;
    }
    exit->data = client;
    client->exit = exit;
    uv_poll_start(exit, UV_READABLE, on_exit_seen);
    return 0;
}

/* ---- what its process leaves behind ---- */

struct gm_copies {
    uv_poll_t poll;
    int fd;
    struct gm_client *client;
    void (*on_closed)(struct gm_client *client);
    pid_t holder; /* who has them; 0: not known */
    uint64_t holder_started;
    uint64_t look_at; /* ... again, */
    uint64_t wait_ns; /* ... this long after the last look */
};

static void free_copies(uv_handle_t *poll)
{
    struct gm_copies *copies = poll->data;
    close(copies->fd);
    free(copies);
}

static void end_copies(struct gm_client *client)
{
    struct gm_copies *copies = client->copies;
    client->copies = NULL;
    if (copies)
        uv_close((uv_handle_t *)&copies->poll, free_copies);
}

/* Read what the copies say, and forget it. Descriptors go with it: one may be the other end of this
 * connection, which would stay open as long as nobody reads. */
static void discard(int fd)
{
    uint8_t byte;
    for (int i = 0; i < 64 && recv(fd, &byte, 1, MSG_DONTWAIT) >= 0; i++)
        continue;
}

static void on_hang_up(uv_poll_t *poll, int status, int events)
{
    const struct gm_copies *copies = poll->data;
    struct gm_client *client = copies->client;
    if (status == 0 && (events & UV_DISCONNECT) == 0) {
        discard(copies->fd); /* the loop calls again for the rest */
        return;
    }
    gm_client_hold(client); /* the engines may drop it */
    end_copies(client);
    copies->on_closed(client);
    gm_client_drop(client);
}

void gm_client_died(struct gm_client *client, uv_loop_t *loop,
                    const struct gm_engine_outlet *outlet,
                    void (*on_closed)(struct gm_client *client))
{
    if (!client->session || client->copies || !outlet->keep)
        return;
    const int fd = outlet->keep(client->session);
    struct gm_copies *copies = fd < 0 ? NULL : calloc(1, sizeof *copies);
    if (!copies || uv_poll_init(loop, &copies->poll, fd) != 0) {
        if (fd >= 0)
            close(fd);
        free(copies);
        return;
    }
    copies->poll.data = copies;
    copies->fd = fd;
    copies->client = client;
    copies->on_closed = on_closed;
    client->copies = copies;
    uv_poll_start(&copies->poll, UV_READABLE | UV_DISCONNECT, on_hang_up);
}

pid_t gm_client_copier(const struct gm_client *client, const struct gm_engine_outlet *outlet)
{
    const struct gm_copies *copies = client->copies;
    const bool is_there =
        copies && copies->holder != 0 && outlet->started(copies->holder) == copies->holder_started;
    return is_there ? copies->holder : 0;
}

void gm_client_find_copier(struct gm_client *client, const struct gm_engine_outlet *outlet,
                           uint64_t now, uint64_t *look_at)
{
    struct gm_copies *copies = client->copies;
    if (!copies || !outlet->holder || now < *look_at || now < copies->look_at ||
        gm_client_copier(client, outlet) != 0)
        return;
    *look_at = now + GM_COPIER_LOOK_NS;
    /* Longer each time: so who is not found leaves the next looks to the others. */
    copies->wait_ns = 2 * (copies->wait_ns + GM_COPIER_LOOK_NS);
    copies->look_at = now + copies->wait_ns;
    copies->holder = outlet->holder(client->uid, client->started, copies->fd);
    copies->holder_started = copies->holder != 0 ? outlet->started(copies->holder) : 0;
}

void gm_client_drop(struct gm_client *client)
{
    if (!gm_client_drop_one(client))
        return;
    end_copies(client);
    end_exit(client);
    gm_group_remove(client);
    if (client->on_end)
        client->on_end(client->arg, client);
    gm_kept_drop(client->kept, GM_KEPT_STAT, 0, client->id);
    gm_kept_drop(client->kept, GM_KEPT_LEASE, 0, client->id);
    close_fd(&client->fds[0]);
    close_fd(&client->fds[1]);
    close_fd(&client->lease);
    if (client->ctl)
        munmap(client->ctl, sizeof *client->ctl);
    if (client->stat)
        munmap(client->stat, sizeof *client->stat);
    free(client);
}

/* How long allocations wait for the next daemon, if this one is lost. */
#define REJOIN_NS (30 * GM_S)

int gm_client_welcome(struct gm_client *client, const struct gm_engine_outlet *outlet, int lifeline,
                      const struct gm_gpu_entry *gpus, uint32_t n)
{
    const struct gm_msg_welcome welcome = {.app = client->id,
                                           .version = client->version,
                                           .nonce = {client->nonce[0], client->nonce[1]},
                                           .rejoin_ns = REJOIN_NS};
    const int fds[] = {client->fds[0], client->fds[1], lifeline};
    int error =
        outlet->send(client->session, GM_MSG_WELCOME, &welcome, gpus, n, fds, lifeline > 0 ? 3 : 2);
    if (error == 0)
        close_fd(&client->fds[0]);
    return error;
}

bool gm_client_park(struct gm_client *client)
{
    uint32_t was = GM_MOVING_FREE;
    if (client->is_parked)
        return true;
    if (!atomic_compare_exchange_strong(&client->stat->moving, &was, GM_MOVING_AWAY))
        return false;
    gm_client_set_parked(client, true);
    return true;
}

void gm_client_unpark(struct gm_client *client)
{
    atomic_store(&client->stat->moving, GM_MOVING_FREE);
}

void gm_client_go_on(struct gm_client *client)
{
    gm_client_set_parked(client, false);
    gm_client_unpark(client);
}

void gm_client_set_gate(struct gm_client *client, uint64_t epoch, bool is_open)
{
    atomic_store(&client->ctl->epoch, epoch);
    atomic_store(&client->ctl->gate, is_open ? GM_GATE_OPEN : GM_GATE_CLOSED);
    if (is_open)
        syscall(SYS_futex, &client->ctl->gate, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

void gm_client_left(struct gm_client *client)
{
    client->session = NULL;
    client->lost_at = 0;
}

bool gm_client_answer(struct gm_client *client, const struct gm_msg_drained *answer)
{
    const bool is_busy = answer->status == GM_DRAIN_BUSY;
    if (client->shut == 0)
        return true; /* to a CLOSE of a daemon before */
    if (answer->status == GM_DRAIN_PARKED && !gm_client_park(client)) /* late, or now */
        return false;
    if (answer->epoch == client->epoch)
        gm_client_turn(client, is_busy ? GM_CLIENT_EV_KEEPS : GM_CLIENT_EV_DRAINED);
    return true;
}
