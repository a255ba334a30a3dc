/*
 * A daemon that has died with its programs, and the next one's machine, for the tests of
 * daemon/engine/absents.c: a real gpumux-keeper, real processes, and a system that may lack things.
 */
#ifndef GM_TESTS_ABSENTS_WORLD_H
#define GM_TESTS_ABSENTS_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/windows.h"
#include "daemon/engine/absents.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/act/ledger.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/apps.h"
#include "daemon/service/process.h"
#include "tests/unit/keeper_world.h"

enum { APPS = 8, CHUNKS = 64 };

/* ---- a system that may lack memory, files and numbers for them ---- */

static uint32_t calls = UINT32_MAX; /* so many more succeed */
static int lack;                    /* then: errno */

static bool is_refused(void)
{
    const bool is_out = calls == 0 || (calls < UINT32_MAX && calls-- == 0);
    if (is_out)
        errno = lack;
    return is_out;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return is_refused() ? NULL : __real_calloc(n, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return is_refused() ? NULL : __real_aligned_alloc(alignment, size);
}

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (!is_refused())
        return __real_mmap(at, size, protection, flags, fd, offset);
    errno = ENOMEM; /* whatever else it lacks */
    return MAP_FAILED;
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    return is_refused() ? -1 : __real_memfd_create(name, flags);
}

FILE *__real_fopen(const char *path_of, const char *mode);
FILE *__wrap_fopen(const char *path_of, const char *mode);
FILE *__wrap_fopen(const char *path_of, const char *mode)
{
    return is_refused() ? NULL : __real_fopen(path_of, mode);
}

int __real_uv_poll_init(uv_loop_t *of, uv_poll_t *poll, int fd);
int __wrap_uv_poll_init(uv_loop_t *of, uv_poll_t *poll, int fd);
int __wrap_uv_poll_init(uv_loop_t *of, uv_poll_t *poll, int fd)
{
    return is_refused() ? -lack : __real_uv_poll_init(of, poll, fd);
}

int __real_gm_kept_put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                       uint64_t id, int fd);
int __wrap_gm_kept_put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                       uint64_t id, int fd);
int __wrap_gm_kept_put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                       uint64_t id, int fd)
{
    return is_refused() ? -lack : __real_gm_kept_put(kept, kind, gpu, slot, id, fd);
}

static pid_t hidden; /* its start cannot be read */

static uint64_t started(pid_t pid)
{
    return is_refused() || pid == hidden ? 0 : gm_process_started(pid);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list list;
    assert_int_equal(number, SYS_pidfd_open);
    va_start(list, number);
    const pid_t pid = va_arg(list, pid_t);
    va_end(list);
    return is_refused() ? -1 : __real_syscall(number, pid, 0);
}

/* ---- the machine and its engine ---- */

static struct gm_machine machine;
static struct gm_engine *engine;
static struct gm_absents absents;
static uv_loop_t loop;
static struct gm_note told;
static uint32_t n_awaited, n_left, n_returned, n_resumed, n_checked, n_exited, last_left;
static int welcome_error, holds_error, put_error, awaited_error;
static uint32_t n_read; /* holdings that somebody has */
static bool was_running, was_over;
static uint64_t welcome_epoch; /* of the page, at WELCOME */

int gm_machine_put(struct gm_machine *m, struct gm_client *client,
                   const struct gm_client_record *record)
{
    m->clients[client->id] = client;
    if (engine->table->apps[client->id].is_used)
        client->engines[0] = engine;
    gm_keep_lost(&m->keep, client, record);
    return put_error;
}

void gm_machine_give_up(struct gm_machine *m, uint32_t id, bool is_over)
{
    struct gm_client *client = m->clients[id];
    assert_non_null(client);
    m->clients[id] = NULL;
    gm_client_drop(client);
    gm_keep_end(&m->keep, id);
    last_left = id;
    was_over = is_over;
    n_left++;
}

int gm_machine_welcome(struct gm_machine *m, struct gm_client *client)
{
    (void)m;
    assert_int_equal(atomic_load(&client->ctl->gate), GM_GATE_CLOSED);
    assert_int_equal(client->ctl->app, client->id);
    welcome_epoch = atomic_load(&client->ctl->epoch);
    return welcome_error;
}

void gm_machine_returned(struct gm_machine *m, struct gm_client *client)
{
    assert_ptr_equal(m->clients[client->id], client);
    n_returned++;
}

int gm_engine_awaited(struct gm_engine *e)
{
    assert_ptr_equal(e, engine);
    n_awaited++;
    return awaited_error;
}

struct gm_holdings {
    uint32_t app;
};

int gm_engine_read_holds(const struct gm_engine *e, uint32_t app,
                         const struct gm_holds_entry *holds, uint32_t n, bool is_running,
                         struct gm_holdings **out, char *why, size_t size)
{
    (void)e, (void)holds, (void)n;
    was_running = is_running;
    n_checked++;
    *out = NULL;
    if (holds_error) {
        snprintf(why, size, "it holds what it never got");
        return holds_error;
    }
    *out = malloc(sizeof **out);
    (*out)->app = app;
    n_read++;
    return 0;
}

void gm_engine_free_holds(struct gm_holdings *has)
{
    n_read -= has != NULL;
    free(has);
}

void gm_engine_return(struct gm_engine *e, uint32_t app, const struct gm_holdings *has)
{
    assert_non_null(machine.clients[app]->session);
    assert_ptr_equal(e, engine);
    assert_int_equal(has->app, app);
}

void gm_engine_on_exit(void *unused, struct gm_client *client)
{
    assert_null(unused);
    assert_ptr_equal(machine.clients[client->id], client);
    n_exited++;
}

void gm_engine_emit(struct gm_engine *e, const struct gm_event *event)
{
    (void)e;
    if (event->kind == GM_EVENT_RESTARTED)
        told = *event->restarted.note;
}

void gm_engine_call(struct gm_engine *e)
{
    (void)e;
}

int gm_engine_make_ledger(const char *name, size_t bytes, void **memory)
{
    const int fd = memfd_create(name, MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(*memory != MAP_FAILED);
    return fd;
}

void gm_engine_end_ledger(int fd, void *memory, size_t bytes)
{
    munmap(memory, bytes);
    close(fd);
}

static int send_it(struct gm_session *session, enum gm_msg_type type, const void *body,
                   const void *entries, uint32_t count, const int *fds, int n_fds)
{
    (void)session, (void)body, (void)entries, (void)count, (void)fds, (void)n_fds;
    n_resumed += type == GM_MSG_RESUME;
    return 0;
}

/* ---- the daemon before, and its programs ---- */

static struct {
    struct gm_kept *kept;
    struct gm_keep keep;
    struct gm_client *clients[APPS];
    struct gm_client_record records[APPS];
    struct gm_stat *words[APPS]; /* as the program has them mapped */
} before;

static struct gm_client_record *program(uint32_t id)
{
    struct gm_client_record *record = &before.records[id];
    const pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    const struct gm_newcomer who = {
        .pid = pid, .started = gm_process_started(pid), .uid = 1000, .name = "tester"};
    assert_int_equal(gm_client_open(&before.clients[id], id, &who, NULL, before.kept), 0);
    const struct gm_client *client = before.clients[id];
    before.words[id] =
        mmap(NULL, sizeof(struct gm_stat), PROT_READ | PROT_WRITE, MAP_SHARED, client->fds[1], 0);
    assert_true(before.words[id] != MAP_FAILED);
    *record = (struct gm_client_record){.pid = (uint32_t)pid,
                                        .uid = 1000,
                                        .nonce = {client->nonce[0], client->nonce[1]},
                                        .started = who.started,
                                        .name = "tester",
                                        .group_of = id,
                                        .engines = 1,
                                        .epoch = 70 + id};
    assert_true(gm_table_add_app(engine->table, id, 1000)); /* as the new engine finds it */
    return record;
}

static void end_process(uint32_t id)
{
    const pid_t pid = (pid_t)before.records[id].pid;
    if (pid == 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* It dies, and what its programs and the keeper have stays. */
static void die(void)
{
    for (uint32_t id = 0; id < APPS; id++)
        if (before.records[id].pid != 0)
            gm_clients_write(&before.keep.clients, id, &before.records[id]);
    gm_kept_disconnect(before.kept);
    for (uint32_t id = 0; id < APPS; id++)
        if (before.clients[id])
            gm_client_drop(before.clients[id]);
    gm_keep_close(&before.keep);
    gm_kept_close(before.kept);
}

static int begin(char why[256])
{
    why[0] = '\0';
    assert_int_equal(gm_kept_open(&machine.kept), 0);
    assert_int_equal(keeper_connect(machine.kept), 0);
    assert_int_equal(gm_kept_take(machine.kept), 0);
    return gm_absents_open(&absents, &machine, gm_now(), why, 256);
}

static void take_over(void)
{
    char why[256];
    assert_int_equal(begin(why), 0);
    assert_string_equal(why, "");
    assert_int_equal(n_awaited, 1);
    gm_kept_settle(machine.kept);
}

static const struct gm_lost *find(uint32_t app)
{
    return absents.takeover.find(absents.takeover.arg, app);
}

static int rejoin(uint32_t app, const struct gm_msg_rejoin *body, char why[128])
{
    static int session;
    const struct gm_rejoiner who = {.session = (void *)&session, .body = body};
    why[0] = '\0';
    return absents.takeover.rejoin(absents.takeover.arg, find(app), &who, why, 128);
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(keeper_begin("absents", 0), 0);
    n_awaited = n_left = n_returned = n_resumed = n_checked = n_exited = 0;
    welcome_error = holds_error = put_error = awaited_error = 0;
    n_read = 0;
    memset(&told, 0, sizeof told);
    memset(&before, 0, sizeof before);
    assert_int_equal(uv_loop_init(&loop), 0);
    engine = calloc(1, sizeof *engine);
    engine->table_memory = calloc(1, gm_table_size(APPS, CHUNKS, CHUNKS));
    engine->table = gm_table_init(engine->table_memory, APPS, CHUNKS, CHUNKS, 1 << 30);
    machine = (struct gm_machine){.loop = &loop,
                                  .outlet = {.send = send_it, .started = started},
                                  .max_apps = APPS,
                                  .n = 1,
                                  .engines = {engine},
                                  .clients = calloc(APPS, sizeof(struct gm_client *))};
    assert_int_equal(gm_keep_open(&machine.keep, APPS), 0);
    assert_int_equal(gm_keep_open(&before.keep, APPS), 0);
    assert_int_equal(gm_kept_open(&before.kept), 0);
    assert_int_equal(keeper_connect(before.kept), 0);
    return gm_kept_put(before.kept, GM_KEPT_CLIENTS, 0, 0, 0, before.keep.fd);
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(n_read, 0);
    gm_absents_close(&absents);
    for (uint32_t id = 0; id < APPS; id++) {
        if (machine.clients[id])
            gm_client_drop(machine.clients[id]);
        if (before.words[id])
            munmap(before.words[id], sizeof(struct gm_stat));
        end_process(id);
    }
    gm_kept_disconnect(machine.kept);
    gm_kept_close(machine.kept);
    gm_keep_close(&machine.keep);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    free(machine.clients);
    free(engine->table_memory);
    free(engine);
    return keeper_end();
}

static bool is_kept_as(uint32_t id, const struct gm_client_record *want)
{
    struct gm_client_record is;
    return gm_clients_read(&machine.keep.clients, id, &is) == GM_LEDGER_IS &&
           memcmp(&is, want, sizeof is) == 0;
}

#endif
