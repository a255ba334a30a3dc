/*
 * Programs of the daemon before (daemon/engine/absents.c), with processes that live and end, and a
 * keeper that holds their words: who is taken over and who is not, in which group, and what becomes
 * of REJOIN.
 */
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
#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/act/ledger.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/returns.h"
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

/* ---- who is taken over ---- */

static bool is_kept_as(uint32_t id, const struct gm_client_record *want)
{
    struct gm_client_record is;
    return gm_clients_read(&machine.keep.clients, id, &is) == GM_LEDGER_IS &&
           memcmp(&is, want, sizeof is) == 0;
}

static void test_nobody(void **state)
{
    (void)state;
    die();
    take_over();
    assert_null(find(0));
    assert_null(find(UINT32_MAX));
    assert_int_equal(gm_absents_count(&absents), 0);
}

static void test_taken(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 4; id++)
        program(id);
    before.records[2].is_gone = 1;
    before.records[3].started--; /* the lease tells that it is this process, and no other */
    atomic_store(&before.words[0]->refused, 123);
    die();
    end_process(1);
    take_over();

    const struct gm_lost *lost = find(0);
    assert_non_null(lost);
    assert_null(lost->refusal);
    assert_int_equal(lost->pid, before.records[0].pid);
    assert_int_equal(lost->started, before.records[0].started);
    assert_true(lost->nonce[0] == before.records[0].nonce[0] &&
                lost->nonce[1] == before.records[0].nonce[1]);
    assert_int_equal(lost->uid, 1000);
    assert_int_equal(lost->most_holds, CHUNKS);
    assert_string_equal(lost->name, "tester");
    assert_int_equal(atomic_load(&machine.clients[0]->stat->refused), 123); /* the same memory */
    assert_null(machine.clients[0]->session);
    assert_true(machine.clients[0]->lost_at > 0);
    assert_true(is_kept_as(0, &before.records[0]));

    assert_null(find(1)); /* it has ended */
    assert_null(machine.clients[1]);
    assert_string_equal(find(2)->refusal, "its session had ended before");
    assert_true(is_kept_as(2, &before.records[2]));
    assert_string_equal(find(3)->refusal, "its session had ended before"); /* unknown */
    assert_int_equal(find(3)->pid, before.records[3].pid);
    assert_int_equal(find(3)->uid, 1000);
    assert_int_equal(gm_absents_count(&absents), 1);
    assert_true(told.restart.taken == 1 && told.restart.cut == 2 && told.restart.ended == 1 &&
                told.restart.broken == 1);
    assert_non_null(strstr(told.restart.names, "tester (pid "));
    assert_string_equal(told.restart.wrong, "");

    /* Each ends with its process. */
    for (uint32_t id = 0; id < 4; id += 2) {
        end_process(id);
        before.records[id].pid = 0;
        while (n_left < 1 + id / 2)
            uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(last_left, id);
        assert_true(was_over);
        assert_null(find(id));
    }
}

/* The record of one is broken: that one alone is lost, and its process is waited for. */
static void test_broken(void **state)
{
    uint64_t word;
    (void)state;
    program(0);
    program(1);
    gm_clients_write(&before.keep.clients, 1, &before.records[1]);
    before.records[1].pid = 0;
    const off_t at = (off_t)(GM_LEDGER_PAGE + sizeof(word) + 2 * sizeof(struct gm_client_record));
    assert_int_equal(pread(before.keep.fd, &word, sizeof word, at), sizeof word);
    word ^= 1;
    assert_int_equal(pwrite(before.keep.fd, &word, sizeof word, at), sizeof word);
    const pid_t pid = before.clients[1]->pid;
    die();
    take_over();
    assert_null(find(0)->refusal);
    assert_string_equal(find(1)->refusal, "its session had ended before");
    assert_int_equal(find(1)->pid, pid);
    assert_true(told.restart.taken == 1 && told.restart.broken == 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    while (n_left == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(last_left, 1);
}

/* One has no record, and memory all the same: its process is waited for. Without memory it had
 * only begun. */
static void test_no_record(void **state)
{
    (void)state;
    program(0);
    program(1);
    before.records[0].pid = before.records[1].pid = 0;
    gm_table_add_allocation(engine->table, 0, 1ull << 40, GM_CHUNK_MIN);
    const pid_t pid = before.clients[0]->pid, other = before.clients[1]->pid;
    die();
    take_over();
    assert_string_equal(find(0)->refusal, "its session had ended before");
    assert_int_equal(find(0)->pid, pid);
    assert_null(find(1));
    assert_int_equal(told.restart.broken, 1);
    for (int i = 0; i < 2; i++) {
        kill(i == 0 ? pid : other, SIGKILL);
        waitpid(i == 0 ? pid : other, NULL, 0);
    }
    while (n_left == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(last_left, 0);
}

/* A ledger of another version says nothing of anybody. */
static void test_newer(void **state)
{
    const uint64_t version = GM_CLIENTS_VERSION + 1;
    (void)state;
    program(0);
    assert_int_equal(
        pwrite(before.keep.fd, &version, sizeof version, offsetof(struct gm_clients_head, version)),
        sizeof version);
    die();
    take_over();
    assert_non_null(find(0)->refusal);
    assert_int_equal(find(0)->pid, before.records[0].pid);
    assert_string_equal(told.restart.wrong, "the ledger of programs is of a newer gpumuxd");
}

/* Its words are lost, or could be cut off below the daemon. */
static void test_words(void **state)
{
    static const char lost[] = "the memory that it shared with the daemon before is lost";
    const int open_end = memfd_create("words", MFD_CLOEXEC);
    (void)state;
    program(0);
    program(1);
    gm_kept_drop(before.kept, GM_KEPT_STAT, 0, 0);
    assert_int_equal(ftruncate(open_end, GM_STAT_BYTES), 0);
    assert_int_equal(gm_kept_put(before.kept, GM_KEPT_STAT, 0, 1, 0, open_end), 0);
    die();
    close(open_end);
    take_over();
    assert_string_equal(find(0)->refusal, lost);
    assert_string_equal(find(1)->refusal, lost);
    assert_non_null(machine.clients[1]->stat);
}

/* What it had on a GPU is lost: its ledger was refused, or there is no such GPU any more. */
static void test_gpu_lost(void **state)
{
    (void)state;
    program(0)->engines = 1 | 1u << 5;
    die();
    take_over();
    assert_non_null(strstr(find(0)->refusal, "what it had on GPU 5 is lost"));
    assert_true(machine.clients[0]->is_cut);
}

/* The ledgers differ in whose it is: it cannot come back, and its memory waits for its end. */
static void test_another_users(void **state)
{
    (void)state;
    program(0);
    program(1)->uid = 1001;
    die();
    take_over();
    assert_null(find(0)->refusal);
    assert_string_equal(find(1)->refusal, "the ledger of GPU 0 says that it is another user's");
    assert_true(machine.clients[1]->is_cut);
    assert_int_equal(n_left, 0);
}

/* A GPU does not have a program as the ledger of programs has it: this daemon does not begin, and
 * the keeper holds on to all for another one. */
static void test_not_awaited(void **state)
{
    char why[256];
    uint64_t id;
    struct gm_kept *next;
    (void)state;
    program(0);
    die();
    put_error = -ENOENT;
    assert_int_equal(begin(why), -ENOENT);
    assert_non_null(strstr(why, "a program of the daemon before cannot be taken over"));
    assert_int_equal(gm_kept_open(&next), 0);
    assert_int_equal(keeper_connect(next), 0);
    assert_int_equal(gm_kept_take(next), 0);
    const int fd = gm_kept_claim(next, GM_KEPT_CLIENTS, 0, 0, &id);
    const int lease = gm_kept_claim(next, GM_KEPT_LEASE, 0, 0, &id);
    assert_true(fd >= 0 && lease >= 0);
    close(fd);
    close(lease);
    gm_kept_close(next);
}

/* Whatever the system lacks, at whatever moment: no daemon begins, and nobody loses anything. The
 * next start takes all over. */
static void try_out(int without)
{
    char why[256];
    uint32_t tries = 0;
    lack = without;
    for (int error = -1; error; tries++) {
        assert_int_equal(gm_kept_open(&machine.kept), 0);
        assert_int_equal(keeper_connect(machine.kept), 0);
        assert_int_equal(gm_kept_take(machine.kept), 0);
        calls = tries;
        error = gm_absents_open(&absents, &machine, gm_now(), why, sizeof why);
        calls = UINT32_MAX;
        if (error == 0)
            break;
        assert_true(error == -without || error == -EAGAIN || error == -ENOMEM);
        assert_null(absents.of);
        gm_kept_disconnect(machine.kept); /* the daemon ends */
        for (uint32_t id = 0; id < APPS; id++)
            if (machine.clients[id])
                gm_client_drop(machine.clients[id]);
        memset(machine.clients, 0, APPS * sizeof(struct gm_client *));
        gm_kept_close(machine.kept);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    gm_kept_settle(machine.kept);
    assert_true(tries > 20);
}

static void test_lacks(int without)
{
    for (uint32_t id = 0; id < 3; id++)
        program(id);
    strcpy(before.records[1].group, "g");
    before.records[1].is_group_said = 1;
    gm_kept_drop(before.kept, GM_KEPT_LEASE, 0, 2); /* it is found by its number */
    die();
    try_out(without);
    for (uint32_t id = 0; id < 3; id++) {
        assert_non_null(find(id));
        assert_null(find(id)->refusal);
        atomic_store(&before.words[id]->refused, 10 + id);
        assert_int_equal(atomic_load(&machine.clients[id]->stat->refused), 10 + id);
        assert_true(is_kept_as(id, &before.records[id]));
    }
    assert_int_equal(told.restart.taken, 3);
    assert_true(told.restart.cut == 0 && told.restart.ended == 0 && told.restart.broken == 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    test_lacks(ENOMEM);
}

static void test_no_files(void **state)
{
    (void)state;
    test_lacks(EMFILE);
}

static void test_rest_stays(void **state)
{
    char why[256];
    (void)state;
    program(0);
    die();
    awaited_error = -ENOMEM;
    assert_int_equal(begin(why), -ENOMEM);
    assert_non_null(strstr(why, "what ended programs had on GPU 0 stays"));
    assert_null(absents.of);
}

/* The start of a process could not be read, when it said HELLO or now: its lease tells who it is.
 */
static void test_hidden(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 3; id++)
        program(id);
    before.records[0].started = 0;
    before.records[2].started = 0;
    before.records[2].pid++; /* ... that it is another one */
    hidden = (pid_t)before.records[1].pid;
    die();
    take_over();
    hidden = 0;
    before.records[2].pid--;
    for (uint32_t id = 0; id < 2; id++) {
        assert_non_null(find(id));
        assert_null(find(id)->refusal);
    }
    assert_int_equal(told.restart.taken, 2);
    assert_int_equal(told.restart.broken, 1);
    assert_non_null(find(2)->refusal);
}

/* Another process has its number; there is no lease. */
static void test_number_used_again(void **state)
{
    (void)state;
    program(0);
    program(1);
    before.records[0].started--;
    gm_kept_drop(before.kept, GM_KEPT_LEASE, 0, 0);
    gm_kept_drop(before.kept, GM_KEPT_LEASE, 0, 1);
    die();
    take_over();
    assert_null(find(0));
    assert_null(find(1)->refusal);
}

static void test_groups(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 7; id++)
        program(id);
    for (uint32_t id = 0; id < 2; id++) {
        strcpy(before.records[id].group, "g");
        before.records[id].group_of = 0;
        before.records[id].is_group_said = 1;
    }
    for (uint32_t id = 2; id < 5; id++) { /* the first has left, and not all were told */
        strcpy(before.records[id].group, "pid 7");
        before.records[id].group_of = id == 4 ? 3 : 2;
    }
    before.records[6].group_of = 5;
    before.records[6].uid = 1001; /* of another user, whatever its record says */
    die();
    end_process(2);
    before.records[2].pid = 0;
    take_over();
    struct gm_client **is = machine.clients;
    assert_ptr_equal(is[0]->group, is[1]->group);
    assert_non_null(is[0]->group->all);
    assert_string_equal(gm_group_name(is[0]->group), "g");
    assert_ptr_equal(is[3]->group, is[4]->group);
    assert_null(is[3]->group->all);
    assert_string_equal(gm_group_name(is[4]->group), "pid 7");
    assert_ptr_not_equal(is[3]->group, is[0]->group);
    assert_ptr_not_equal(is[6]->group, is[5]->group);
    struct gm_client_record now;
    assert_int_equal(gm_clients_read(&machine.keep.clients, 4, &now), GM_LEDGER_IS);
    assert_int_equal(now.group_of, 3);

    /* Who is of the group by now, as another one opened its memory, is of it for the next daemon.
     */
    gm_group_remove(is[5]);
    assert_int_equal(gm_group_add(is[0]->group, is[5]), 0);
    gm_keep_client(&machine.keep, is[5]);
    assert_int_equal(gm_clients_read(&machine.keep.clients, 5, &now), GM_LEDGER_IS);
    assert_string_equal(now.group, "g");
    assert_true(now.is_group_said == 1 && now.group_of == 0 && now.epoch == 75);

    /* A newcomer of that name joins those who have yet to come. */
    struct gm_group *group = NULL;
    char why[128];
    assert_int_equal(gm_groups_find(&machine.groups, "g", 1000, &group, why, sizeof why), 0);
    assert_ptr_equal(group, is[0]->group);
    assert_int_equal(gm_groups_find(&machine.groups, "g", 1001, &group, why, sizeof why), -EPERM);
}

/* Kin do not run together, but may have to. */
static void test_kin(void **state)
{
    struct gm_client_record now;
    (void)state;
    for (uint32_t id = 0; id < 6; id++)
        program(id);
    /* The first was not told any more. */
    before.records[3].turns[0].kin = before.records[4].turns[0].kin = 2;
    before.records[5].turns[0].kin = 2; /* of another user, whatever its record says */
    before.records[5].uid = 1001;
    die();
    take_over();
    struct gm_client **is = machine.clients;
    for (uint32_t id = 0; id < 6; id++) {
        assert_ptr_equal(is[id]->group->clients, is[id]);
        assert_null(is[id]->next);
        assert_int_equal(gm_group_kin(is[id]->group), id == 1 || id == 3 || id == 4 ? 2 : 0);
        gm_keep_client(&machine.keep, is[id]);
        assert_int_equal(gm_clients_read(&machine.keep.clients, id, &now), GM_LEDGER_IS);
        assert_int_equal(now.turns[0].kin, id == 1 || id == 3 || id == 4 ? 2 : 0);
    }
}

/* One that the ledger of programs does not know ends with what it had on the GPU, and closes
 * nobody's file. */
static void test_ended(void **state)
{
    struct gm_client *client;
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)state;
    die();
    assert_true(file >= 0 && dup2(file, 0) == 0);
    assert_int_equal(gm_client_open_ended(&client, 3, 1000), 0);
    assert_true(client->id == 3 && client->uid == 1000);
    gm_client_drop(client);
    assert_true(fcntl(0, F_GETFD) >= 0);
    close(file);
}

/* ---- REJOIN ---- */

/* No CLOSE of the new daemon has a number that one of the old daemon may have had. */
static void test_epochs(void **state)
{
    char why[128];
    (void)state;
    for (uint32_t id = 0; id < 4; id++)
        program(id);
    die();
    take_over();
    struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET, .epoch = 75, .cookie = 9};
    assert_int_equal(rejoin(0, &body, why), 0);
    const struct gm_client *client = machine.clients[0];
    assert_int_equal(client->epoch, 75 + (1ull << 32)); /* it answered more than was written */
    assert_int_equal(welcome_epoch, client->epoch);
    assert_int_equal(client->again, 9);
    assert_non_null(client->session);
    assert_int_equal(client->lost_at, 0);
    assert_false(was_running);
    assert_null(find(0)); /* it comes once */
    assert_int_equal(gm_absents_count(&absents), 3);
    assert_int_equal(n_returned, 1);

    body.epoch = 3;
    assert_int_equal(rejoin(1, &body, why), 0);
    assert_int_equal(machine.clients[1]->epoch, 71 + (1ull << 32));

    body.epoch = UINT64_MAX - (1ull << 32) + 1;
    assert_int_equal(rejoin(2, &body, why), -EPROTO);
    assert_string_equal(why, "it says of itself what cannot be");
    assert_non_null(find(2));
    assert_null(machine.clients[2]->session);
    body.epoch--;
    assert_int_equal(rejoin(3, &body, why), 0);
}

static void test_states(void **state)
{
    static const struct {
        uint32_t flags;
        enum gm_moving moving;
        int error;
        bool is_running, is_parked, is_resumed;
        enum gm_moving then;
    } cases[] = {
        {GM_REJOIN_IS_OPEN, GM_MOVING_FREE, 0, true, false, false, GM_MOVING_FREE},
        {GM_REJOIN_IS_QUIET, GM_MOVING_FREE, 0, false, false, false, GM_MOVING_FREE},
        {0, GM_MOVING_FREE, 0, true, false, false, GM_MOVING_FREE}, /* its CLOSE had no answer */
        {GM_REJOIN_IS_QUIET | GM_REJOIN_IS_PARKED, GM_MOVING_AWAY, 0, false, true, false,
         GM_MOVING_AWAY},
        /* The daemon before did not hear that. */
        {GM_REJOIN_IS_PARKED, GM_MOVING_FREE, 0, false, true, false, GM_MOVING_AWAY},
        /* It did not hear that it goes on. */
        {GM_REJOIN_IS_OPEN | GM_REJOIN_IS_PARKED, GM_MOVING_AWAY, 0, true, false, true,
         GM_MOVING_FREE},
        /* Lies. */
        {GM_REJOIN_IS_QUIET | GM_REJOIN_IS_PARKED, GM_MOVING_GOES, -EPROTO, false, false, false,
         GM_MOVING_GOES},
    };
    char why[128];
    (void)state;
    for (uint32_t id = 0; id < sizeof cases / sizeof cases[0]; id++) {
        program(id);
        atomic_store(&before.words[id]->moving, cases[id].moving);
    }
    die();
    take_over();
    for (uint32_t id = 0; id < sizeof cases / sizeof cases[0]; id++) {
        const struct gm_msg_rejoin body = {.flags = cases[id].flags};
        n_resumed = 0;
        assert_int_equal(rejoin(id, &body, why), cases[id].error);
        assert_int_equal(was_running, cases[id].is_running);
        assert_int_equal(machine.clients[id]->is_parked, cases[id].is_parked);
        assert_int_equal(n_resumed, cases[id].is_resumed);
        assert_int_equal(atomic_load(&before.words[id]->moving), cases[id].then);
        assert_int_equal(find(id) != NULL, cases[id].error != 0);
    }
}

/* What it says is checked, and once is enough for what cannot be: it is refused from then on. */
static void test_lies(void **state)
{
    static const uint32_t gpus[] = {3, UINT32_MAX};
    struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET};
    char why[128];
    (void)state;
    for (uint32_t id = 0; id < 5; id++)
        program(id);
    die();
    take_over();
    body.flags = 8;
    assert_int_equal(rejoin(0, &body, why), -EPROTO);
    body.flags = GM_REJOIN_IS_QUIET | GM_REJOIN_IS_OPEN;
    assert_int_equal(rejoin(1, &body, why), -EPROTO);
    body.flags = GM_REJOIN_IS_QUIET;
    holds_error = -EPROTO;
    assert_int_equal(rejoin(2, &body, why), -EPROTO);
    assert_string_equal(why, "it holds what it never got");
    holds_error = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct gm_holds_entry hold = {.gpu = gpus[i]};
        const struct gm_rejoiner who = {
            .session = (void *)&body, .body = &body, .holds = &hold, .n = 1};
        assert_int_equal(
            absents.takeover.rejoin(absents.takeover.arg, find(3 + i), &who, why, sizeof why),
            -EPROTO);
        assert_string_equal(why, "it holds memory of a GPU that it does not use");
    }
    assert_string_equal(find(2)->refusal, "it came back once, and it holds what it never got");
    for (uint32_t id = 0; id < 5; id++) {
        assert_non_null(find(id)->refusal);
        assert_true(machine.clients[id]->is_cut);
        assert_null(machine.clients[id]->session);
    }
    assert_int_equal(n_checked, 1);
    assert_int_equal(gm_absents_count(&absents), 0);
}

/* It may try again when it was not to blame. */
static void test_tries(void **state)
{
    const struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET};
    char why[128];
    (void)state;
    program(0);
    die();
    take_over();
    holds_error = -ENOMEM;
    assert_int_equal(rejoin(0, &body, why), -ENOMEM);
    assert_null(find(0)->refusal);
    holds_error = 0;
    welcome_error = -EPIPE;
    assert_int_equal(rejoin(0, &body, why), -EPIPE);
    assert_null(machine.clients[0]->session);
    assert_true(machine.clients[0]->lost_at > 0);
    assert_true(is_kept_as(0, &before.records[0]));
    welcome_error = 0;
    assert_int_equal(n_returned, 0);
    assert_int_equal(rejoin(0, &body, why), 0);
    assert_int_equal(n_returned, 1);
}

/* Its process says HELLO: it has executed another program, or lies. The lease tells. */
static void test_replaced(void **state)
{
    (void)state;
    program(0);
    program(1);
    die();
    take_over();
    absents.takeover.replace(absents.takeover.arg, getpid());
    assert_int_equal(n_left, 0);
    absents.takeover.replace(absents.takeover.arg, (pid_t)before.records[1].pid);
    assert_int_equal(n_left, 1);
    assert_false(was_over);
    assert_null(find(1));
    assert_non_null(find(0));

    /* Another process has got its number. */
    end_process(0);
    absents.takeover.replace(absents.takeover.arg, (pid_t)before.records[0].pid);
    before.records[0].pid = 0;
    assert_int_equal(n_left, 2);
    assert_true(was_over);
}

/* Once it is back, its GPUs hear of the end of its process. */
static void test_ended_later(void **state)
{
    const struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET};
    char why[128];
    (void)state;
    program(0);
    die();
    take_over();
    assert_int_equal(rejoin(0, &body, why), 0);
    end_process(0);
    before.records[0].pid = 0;
    while (n_exited == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(n_exited, 1);
    assert_int_equal(n_left, 0);
}

/* The ledger of this daemon is what the next one finds, with those who have yet to come. */
static void test_twice(void **state)
{
    uint64_t id;
    (void)state;
    program(0);
    die();
    take_over();
    struct gm_kept *next;
    assert_int_equal(gm_kept_open(&next), 0);
    assert_int_equal(keeper_connect(next), 0);
    assert_int_equal(gm_kept_take(next), 0);
    const int fd = gm_kept_claim(next, GM_KEPT_CLIENTS, 0, 0, &id);
    struct stat one, other;
    assert_true(fd >= 0 && fstat(fd, &one) == 0 && fstat(machine.keep.fd, &other) == 0);
    assert_int_equal(one.st_ino, other.st_ino);
    assert_true(is_kept_as(0, &before.records[0]));
    const int words = gm_kept_claim(next, GM_KEPT_STAT, 0, 0, &id);
    assert_true(words >= 0 && gm_kept_claim(next, GM_KEPT_LEASE, 0, 0, &id) >= 0);
    close(fd);
    gm_kept_close(next);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nobody),      TEST(no_record),  TEST(taken),
        TEST(broken),      TEST(newer),      TEST(words),
        TEST(groups),      TEST(epochs),     TEST(number_used_again),
        TEST(gpu_lost),    TEST(states),     TEST(tries),
        TEST(replaced),    TEST(twice),      TEST(another_users),
        TEST(not_awaited), TEST(rest_stays), TEST(ended),
        TEST(lies),        TEST(no_memory),  TEST(no_files),
        TEST(ended_later), TEST(hidden),     TEST(kin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
