/*
 * The shim from its handlers to its socket (test_link.c): the daemon is lost, at every moment; and
 * another one comes, or none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "common/log.h"
#include "shim/link/comeback.h"
#include "shim/link/greet.h"
#include "shim/link/requests.h"
#include "tests/unit/link_world.h"

/* The daemon dies while the gate is open: everything goes on, new memory is the driver's. */
static void lost_while_open(void)
{
    CUdeviceptr other;
    size_t bytes, total;
    boot_live();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    lose_daemon();
    CHECK(submit() == CUDA_SUCCESS);
    CHECK(gm_on_cuMemAlloc_v2(&other, 8 * MIB) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_real_allocs) == 1);
    CHECK(atomic_load(&stat_area->real_bytes) == 8 * MIB);
    CHECK(gm_on_cuMemFree_v2(other) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->real_bytes) == 0);
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS && total == 222);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_handles) == 0);
    CHECK(atomic_load(&driver_reserved) == 0);
    set_gate(GM_GATE_CLOSED); /* an old page, which nobody looks at */
    CHECK(submit() == CUDA_SUCCESS);
}

/* It has 36 MiB, its gate is closed, and the first `bytes` of them are taken away. Returns where
 * they are. */
static CUdeviceptr take_away(uint64_t bytes)
{
    const CUdeviceptr va = allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    if (bytes > 0)
        unmap_from_app(va, bytes);
    return va;
}

/* A thread of it waits at the closed gate. */
static pthread_t start_waiter(struct call *call)
{
    const pthread_t thread = start(program_submits, call);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    CHECK(atomic_load(&stat_area->waiting) == 1);
    return thread;
}

/* While it is closed, with everything mapped: goes on. A waiter is let go. */
static void lost_while_whole(void)
{
    boot_live();
    take_away(0);
    struct call call = {0};
    pthread_t thread = start_waiter(&call);
    lose_daemon();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
    CHECK(submit() == CUDA_SUCCESS);
}

/* While it is closed and some of its memory is elsewhere: that data is gone, and every submission
 * says so. */
static void lost_while_away(void)
{
    boot_live();
    CUdeviceptr va = take_away(32 * MIB);
    struct call call = {0};
    pthread_t thread = start_waiter(&call);
    lose_daemon();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK(submit() == CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK(gm_on_cuStreamBeginCapture_v2((CUstream)0x33, CU_STREAM_CAPTURE_MODE_RELAXED) ==
          CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
}

/* While its memory comes back: it is mapped, but the copy may not be done. What was parked must not
 * take it for its data: it is unmapped. */
static void lost_on_the_way_back(void)
{
    boot_live();
    CUdeviceptr va = take_away(36 * MIB);
    map_to_app(va, 36 * MIB);
    CHECK(atomic_load(&driver_mapped) > 0);
    lose_daemon();
    CHECK(submit() == CUDA_ERROR_DEVICE_UNAVAILABLE);
    for (int i = 0; i < 60000 && atomic_load(&driver_mapped) > 0; i++)
        nap(1000);
    CHECK(atomic_load(&driver_mapped) == 0);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS && atomic_load(&driver_reserved) == 0);
}

/* The daemon is there and does not read. Nobody waits to send, and no message that matters is lost.
 */
static void daemon_stands_still(void)
{
    enum { THREADS = 50, BATCHES = 200 };
    struct call call[THREADS];
    pthread_t thread[THREADS];
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    struct pollfd room = {.fd = peer, .events = POLLIN};
    for (int i = 0; i < 2000; i++) /* more than a socket holds */
        gm_link_want(false);
    gm_link_expect(0, 1000);
    for (int i = 0; i < THREADS; i++) {
        call[i] = (struct call){.bytes = 2 * MIB};
        thread[i] = start(program_allocates, &call[i]);
    }
    for (uint64_t batch = 1; batch <= BATCHES; batch++) { /* the link thread reads and answers */
        struct gm_msg_unmap unmap = {.batch = batch};
        struct gm_span_entry span = {.va = va, .bytes = 4 * MIB};
        CHECK(gm_sock_send_message(peer, GM_MSG_UNMAP, &unmap, &span, batch == 1, NULL, 0) == 0);
    }
    for (int i = 0; i < 60000 && atomic_load(&driver_mapped) > 0; i++)
        nap(1000);
    CHECK(atomic_load(&driver_mapped) == 0);
    CHECK(gm_work_run(nothing, NULL) == CUDA_SUCCESS);
    CHECK(gm_link_has_daemon() && poll(&room, 1, 0) == 1);

    for (uint64_t batch = 1, allocs = 0; batch <= BATCHES || allocs < THREADS;) {
        const enum gm_msg_type type = receive();
        if (type == GM_MSG_DONE) {
            CHECK(((const struct gm_msg_done *)got.body)->batch == batch++);
            continue;
        }
        CHECK(type == GM_MSG_ALLOC && allocs++ < THREADS);
        struct gm_msg_allocated no = {.cookie = ((const struct gm_msg_alloc *)got.body)->cookie,
                                      .result = CUDA_ERROR_OUT_OF_MEMORY};
        send_to_app(GM_MSG_ALLOCATED, &no);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(call[i].result == CUDA_ERROR_OUT_OF_MEMORY);
    }
    CHECK(want_count < 2000 && gm_link_has_daemon() && submit() == CUDA_SUCCESS);
}

/* In the middle of an allocation and of a free. */
static void lost_in_between(void)
{
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    struct call freed = {.va = va}, made = {.bytes = 8 * MIB};
    pthread_t frees = start(program_frees, &freed);
    CHECK(receive() == GM_MSG_FREE);
    pthread_t allocates = start(program_allocates, &made);
    CHECK(receive() == GM_MSG_ALLOC);
    map_to_app(((const struct gm_msg_alloc *)got.body)->va, 8 * MIB);
    lose_daemon();
    pthread_join(frees, NULL);
    pthread_join(allocates, NULL);
    CHECK(freed.result == CUDA_SUCCESS);
    CHECK(made.result == CUDA_SUCCESS && atomic_load(&driver_real_allocs) == 1);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_handles) == 0);
    CHECK(atomic_load(&driver_reserved) == 0);
}

/* Boot with a lifeline: this test is both daemon and keeper. */
static void boot_with_keeper(void)
{
    CHECK(pipe2(lifeline, O_CLOEXEC) == 0);
    rejoin_ns = rejoin_ns == 0 ? 60 * GM_S : rejoin_ns;
    boot_live();
}

static void kill_daemon(void)
{
    close(peer);
    close(listener);
}

static struct gm_msg_rejoin came;            /* the newest REJOIN, */
static struct gm_holds_entry came_with[600]; /* ... and what it holds */
static uint32_t n_came_with;

/* Another daemon listens, and hears the program. */
static void hear_rejoin(void)
{
    bool is_last = false;
    struct pollfd wait;
    listen_here();
    wait = (struct pollfd){.fd = listener, .events = POLLIN};
    CHECK(poll(&wait, 1, 60000) == 1);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(receive() == GM_MSG_REJOIN);
    came = *(const struct gm_msg_rejoin *)got.body;
    CHECK(came.app == 3 && came.nonce[0] == told_nonce[0] && came.nonce[1] == told_nonce[1]);
    for (n_came_with = 0; !is_last; n_came_with += got.count) {
        CHECK(receive() == GM_MSG_HOLDS && n_came_with + got.count <= 600);
        is_last = ((const struct gm_msg_holds *)got.body)->is_last != 0;
        if (got.count > 0)
            memcpy(came_with + n_came_with, got.entries, got.count * sizeof(came_with[0]));
    }
    unlink(socket_path);
}

/* Take the program over, with a new page. */
static void send_welcome(uint32_t app, int words)
{
    int fds[3] = {-1, words, lifeline[0]};
    ctl = make_area(sizeof(*ctl), &fds[0]);
    ctl->magic = GM_SHM_MAGIC;
    ctl->version = GM_SHM_VERSION;
    ctl->app = app;
    ctl->budget[0] = ctl->room[0] = BUDGET;
    atomic_store(&ctl->epoch, epoch);
    atomic_store(&ctl->gate, GM_GATE_CLOSED);
    struct gm_msg_welcome body = {
        .app = app, .nonce = {told_nonce[0], told_nonce[1]}, .rejoin_ns = rejoin_ns};
    struct gm_gpu_entry entry = {.budget = BUDGET};
    memset(entry.uuid, 0x40, sizeof(entry.uuid));
    CHECK(gm_sock_send_message(peer, GM_MSG_WELCOME, &body, &entry, 1, fds, 3) == 0);
    close(fds[0]);
}

static void take_over(void)
{
    hear_rejoin();
    send_welcome(3, stat_fd);
}

static void refuse(enum gm_refusal reason)
{
    const struct gm_msg_refused body = {.reason = reason, .text = "no"};
    send_to_app(GM_MSG_REFUSED, &body);
    close(peer);
    close(listener);
}

static void await_gone(void)
{
    for (int i = 0; i < 60000 && gm_link_has_daemon(); i++)
        nap(1000);
    CHECK(!gm_link_has_daemon() && gm_work_run(nothing, NULL) == CUDA_SUCCESS);
}

/* Whose memory a program imports while no daemon is there, or the daemon has not read of it: the
 * next one hears. */
static void imports_while_lost(void)
{
    boot_with_keeper();
    gm_link_imported(11); /* the daemon dies before it reads that */
    gm_link_imported(11);
    kill_daemon();
    gm_link_imported(12);
    CHECK(gm_link_has_daemon());
    take_over();
    for (pid_t exporter = 11; exporter <= 12; exporter++) {
        CHECK(receive() == GM_MSG_IMPORTED);
        CHECK(((const struct gm_msg_imported *)got.body)->exporter == exporter);
    }
    gm_link_imported(12);
    CHECK(receive() == GM_MSG_IMPORTED);
    CHECK(((const struct gm_msg_imported *)got.body)->exporter == 12);
}

/* What runs goes on. An allocation waits for the next daemon, which hears what the program has. */
static void back_while_open(void)
{
    struct call call = {.bytes = 4 * MIB};
    boot_with_keeper();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    kill_daemon();
    CHECK(submit() == CUDA_SUCCESS);
    pthread_t thread = start(program_allocates, &call);
    nap(100000);
    CHECK(submit() == CUDA_SUCCESS && gm_link_has_daemon() &&
          atomic_load(&driver_real_allocs) == 0);
    take_over();
    CHECK(came.flags == GM_REJOIN_IS_OPEN && came.epoch == 0 && came.cookie >= 2);
    CHECK(n_came_with == 2 && came_with[0].va == va && came_with[1].va == va + 32 * MIB);
    CHECK(came_with[0].frame + 1 == came_with[1].frame);

    CHECK(receive() == GM_MSG_ALLOC);
    const struct gm_msg_alloc alloc = *(const struct gm_msg_alloc *)got.body;
    CHECK(alloc.bytes == 4 * MIB && alloc.cookie <= came.cookie);
    map_to_app(alloc.va, alloc.bytes);
    const struct gm_msg_allocated allocated = {.cookie = alloc.cookie};
    send_to_app(GM_MSG_ALLOCATED, &allocated);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && call.va == alloc.va);

    struct call submits = {0}; /* the new daemon's gate is closed until it opens it */
    thread = start_waiter(&submits);
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    CHECK(submits.result == CUDA_SUCCESS && submit() == CUDA_SUCCESS);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
}

/* Who waits at the gate waits on, and passes when the new daemon opens it. */
static void back_while_closed(void)
{
    struct call call = {0};
    boot_with_keeper();
    CUdeviceptr va = take_away(32 * MIB);
    pthread_t thread = start_waiter(&call);
    kill_daemon();
    nap(100000);
    CHECK(atomic_load(&stat_area->waiting) == 1);
    hear_rejoin();
    CHECK(came.flags == GM_REJOIN_IS_QUIET && came.epoch == epoch && n_came_with == 2);
    CHECK((came_with[0].va == 0) != (came_with[1].va == 0)); /* one is imported, and not mapped */
    for (int i = 0; i < 2; i++) { /* it is as quiet for the next one, and for the one behind that */
        epoch += 1ull << 32;
        send_welcome(3, stat_fd);
        kill_daemon();
        hear_rejoin();
        CHECK(came.flags == GM_REJOIN_IS_QUIET && came.epoch == epoch);
    }
    send_welcome(3, stat_fd);
    map_to_app(va, 32 * MIB);
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && submit() == CUDA_SUCCESS);

    /* What was submitted before a CLOSE that was not answered may run. */
    atomic_store(&ctl->epoch, ++epoch);
    set_gate(GM_GATE_CLOSED);
    kill_daemon();
    hear_rejoin();
    CHECK(came.flags == 0 && came.epoch + 1 == epoch);
    send_welcome(3, stat_fd);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
}

/* Requests that are under way are asked again, each with its cookie, and answered once. A CLOSE
 * that was under way is void. */
static void back_in_between(void)
{
    boot_with_keeper();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    struct call freed = {.va = va}, made = {.bytes = 8 * MIB};
    pthread_t frees = start(program_frees, &freed);
    CHECK(receive() == GM_MSG_FREE);
    const struct gm_msg_free free_asked = *(const struct gm_msg_free *)got.body;
    pthread_t allocates = start(program_allocates, &made);
    CHECK(receive() == GM_MSG_ALLOC);
    const struct gm_msg_alloc alloc_asked = *(const struct gm_msg_alloc *)got.body;
    map_to_app(alloc_asked.va, 8 * MIB); /* done, but for the answer */
    kill_daemon();
    take_over();
    CHECK(n_came_with == 2);
    CHECK(receive() == GM_MSG_FREE);
    CHECK(memcmp(got.body, &free_asked, sizeof(free_asked)) == 0);
    CHECK(receive() == GM_MSG_ALLOC);
    CHECK(memcmp(got.body, &alloc_asked, sizeof(alloc_asked)) == 0);
    const struct gm_msg_allocated allocated = {.cookie = alloc_asked.cookie};
    send_to_app(GM_MSG_ALLOCATED, &allocated);
    pthread_join(allocates, NULL);
    unmap_from_app(va, 4 * MIB);
    const struct gm_msg_freed is_freed = {.cookie = free_asked.cookie};
    send_to_app(GM_MSG_FREED, &is_freed);
    pthread_join(frees, NULL);
    CHECK(freed.result == CUDA_SUCCESS && made.result == CUDA_SUCCESS);
    CHECK(made.va == alloc_asked.va && gm_link_has_daemon());
    set_gate(GM_GATE_OPEN);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    send_to_app(GM_MSG_ALLOCATED, &allocated); /* a second answer makes no sense */
    close(lifeline[1]);
    await_gone();
}

/* No daemon comes in time: memory is refused, freeing it works, and the next daemon hears of it. */
static void back_too_late(void)
{
    struct call under_way = {.bytes = 2 * MIB}, made = {.bytes = 8 * MIB};
    rejoin_ns = 200 * GM_MS;
    boot_with_keeper();
    CUdeviceptr va = allocate(4 * MIB, NULL, true), other = allocate(2 * MIB, NULL, true);
    pthread_t thread = start(program_allocates, &under_way);
    CHECK(receive() == GM_MSG_ALLOC);
    const uint64_t under_way_va = ((const struct gm_msg_alloc *)got.body)->va;
    kill_daemon();
    for (unsigned i = 0; i < 3; i++) /* rounds of the link thread: then it knows */
        CHECK(gm_work_run(nothing, NULL) == CUDA_SUCCESS);
    pthread_t waits = start(program_allocates, &made);
    pthread_join(thread, NULL);
    pthread_join(waits, NULL);
    CHECK(under_way.result == CUDA_ERROR_OUT_OF_MEMORY && made.result == CUDA_ERROR_OUT_OF_MEMORY);
    const int64_t reserved = (int64_t)atomic_load(&driver_reserved);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK((int64_t)atomic_load(&driver_reserved) == reserved); /* still mapped */
    CHECK(submit() == CUDA_SUCCESS && gm_link_has_daemon() &&
          atomic_load(&driver_real_allocs) == 0);
    take_over();
    for (unsigned seen = 0; seen != 3;) {
        CHECK(receive() == GM_MSG_FREE);
        const struct gm_msg_free message = *(const struct gm_msg_free *)got.body;
        CHECK(message.va == va || message.va == under_way_va);
        if (message.va == va)
            unmap_from_app(va, 4 * MIB);
        /* It knows nothing of the other. */
        const struct gm_msg_freed is_freed = {
            .cookie = message.cookie,
            .result = message.va == va ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE};
        send_to_app(GM_MSG_FREED, &is_freed);
        seen |= message.va == va ? 1 : 2;
    }
    set_gate(GM_GATE_OPEN);
    allocate(2 * MIB, NULL, true); /* it serves again */
    struct call call = {.va = other};
    thread = start(program_frees, &call);
    serve_free(other, 2 * MIB);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
}

/* The new daemon refuses: for now, and then for good. Who has all its memory runs on. */
static void back_refused(void)
{
    boot_with_keeper();
    allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    kill_daemon();
    hear_rejoin();
    refuse(GM_REFUSE_FULL);
    hear_rejoin();
    CHECK(gm_link_has_daemon());
    close(peer); /* this one dies, too */
    close(listener);
    hear_rejoin();
    refuse(GM_REFUSE_UNKNOWN);
    await_gone();
    CHECK(submit() == CUDA_SUCCESS);
}

/* Its WELCOME is another program's, or does not have this one's words. */
static void back_as_another(void)
{
    boot_with_keeper();
    take_away(32 * MIB);
    kill_daemon();
    hear_rejoin();
    send_welcome(4, stat_fd);
    await_gone();
    CHECK(submit() == CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void back_without_words(void)
{
    int words;
    boot_with_keeper();
    kill_daemon();
    hear_rejoin();
    make_area(GM_STAT_BYTES, &words);
    send_welcome(3, words);
    await_gone();
    CHECK(submit() == CUDA_SUCCESS);
}

/* More than a message holds. */
static void back_with_much(void)
{
    enum { MANY = 520 };
    uint64_t bit = 0;
    boot_with_keeper();
    for (unsigned i = 0; i < MANY; i++)
        allocate(2 * MIB, NULL, true);
    kill_daemon();
    take_over();
    CHECK(n_came_with == MANY);
    for (unsigned i = 0; i < MANY; i++)
        bit += came_with[i].frame;
    CHECK(bit == (uint64_t)MANY * (2 * came_with[0].frame + MANY - 1) / 2 && gm_link_has_daemon());
}

/* Nobody has its memory any more. */
static void nobody_back(void)
{
    boot_with_keeper();
    take_away(32 * MIB);
    struct call call = {0};
    pthread_t thread = start(program_submits, &call);
    kill_daemon();
    nap(100000);
    CHECK(gm_link_has_daemon());
    close(lifeline[1]);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_DEVICE_UNAVAILABLE);
    await_gone();
}

/* Its program closes files that it does not know, and uses their numbers: nobody is waited for. */
static void lifeline_closed(void)
{
    boot_with_keeper();
    for (int fd = 500; fd < 600; fd++) {
        const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(other, fd);
        close(other);
    }
    await_gone();
    CHECK(submit() == CUDA_SUCCESS);
}

static int log_fd = -1;

/* How often the log says so. */
static unsigned times_said(const char *text)
{
    static char log[1 << 16];
    unsigned n = 0;
    const ssize_t length = pread(log_fd, log, sizeof(log) - 1, 0);
    CHECK(length >= 0);
    log[length] = '\0';
    for (const char *at = log; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

static void limit_files(rlim_t most)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = most == 0 ? limit.rlim_max : most;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* At its limit of open files, so that it cannot connect; then so that WELCOME would lose what it
 * brings. It waits, says so once, and goes on when it has closed some. */
static void back_without_files(void)
{
    static const char full[] = "at its limit of open files";
    log_fd = memfd_create("log", MFD_CLOEXEC);
    gm_log_open(log_fd, GM_LOG_INFO, "test");
    boot_with_keeper();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    limit_files(3);
    kill_daemon();
    while (times_said(full) == 0)
        nap(1000);
    limit_files(0);
    hear_rejoin();
    CHECK(n_came_with == 2);

    const int words = stat_fd;
    int fds[3] = {-1, words, lifeline[0]};
    ctl = make_area(sizeof(*ctl), &fds[0]);
    limit_files(3);
    ctl->magic = GM_SHM_MAGIC;
    ctl->version = GM_SHM_VERSION;
    ctl->app = 3;
    atomic_store(&ctl->gate, GM_GATE_OPEN);
    struct gm_msg_welcome body = {.app = 3, .rejoin_ns = rejoin_ns};
    struct gm_gpu_entry entry = {.budget = BUDGET};
    CHECK(gm_sock_send_message(peer, GM_MSG_WELCOME, &body, &entry, 1, fds, 3) == 0);
    struct pollfd look = {.fd = peer, .events = POLLIN};
    CHECK(poll(&look, 1, 500) == 0); /* it neither hangs up nor goes on */
    CHECK(gm_link_has_daemon() && submit() == CUDA_SUCCESS);
    CHECK(times_said(full) == 1 && times_said("gpumuxd is back") == 0);
    limit_files(0);
    while (times_said("gpumuxd is back") == 0)
        nap(1000);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    unmap_from_app(va, 32 * MIB);
    map_to_app(va, 32 * MIB);
    set_gate(GM_GATE_OPEN);
    CHECK(submit() == CUDA_SUCCESS && times_said(full) == 1);
}

/* It has kept numbers for that. */
static void back_at_limit(void)
{
    boot_with_keeper();
    listen_here();
    limit_files(1000); /* the numbers that it keeps are from 500 on */
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
        continue;
    CHECK(errno == EMFILE);
    const int fd = gm_greet_connect();
    unlink(socket_path);
    CHECK(fd >= 0);
    close(fd);
}

/* ---- running them ---- */

SCENARIO(lost_while_open)
SCENARIO(lost_while_whole)
SCENARIO(lost_while_away)
SCENARIO(lost_on_the_way_back)
SCENARIO(daemon_stands_still)
SCENARIO(lost_in_between)
SCENARIO(imports_while_lost)
SCENARIO(back_while_open)
SCENARIO(back_while_closed)
SCENARIO(back_in_between)
SCENARIO(back_too_late)
SCENARIO(back_refused)
SCENARIO(back_as_another)
SCENARIO(back_without_words)
SCENARIO(back_with_much)
SCENARIO(nobody_back)
SCENARIO(lifeline_closed)
SCENARIO(back_without_files)
SCENARIO(back_at_limit)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_while_open),     cmocka_unit_test(test_lost_while_whole),
        cmocka_unit_test(test_lost_while_away),     cmocka_unit_test(test_lost_on_the_way_back),
        cmocka_unit_test(test_daemon_stands_still), cmocka_unit_test(test_lost_in_between),
        cmocka_unit_test(test_back_while_open),     cmocka_unit_test(test_back_while_closed),
        cmocka_unit_test(test_back_in_between),     cmocka_unit_test(test_back_too_late),
        cmocka_unit_test(test_back_refused),        cmocka_unit_test(test_back_as_another),
        cmocka_unit_test(test_back_without_words),  cmocka_unit_test(test_back_with_much),
        cmocka_unit_test(test_nobody_back),         cmocka_unit_test(test_lifeline_closed),
        cmocka_unit_test(test_imports_while_lost),  cmocka_unit_test(test_back_without_files),
        cmocka_unit_test(test_back_at_limit),
    };
    return cmocka_run_group_tests_name("link_lost", tests, NULL, NULL);
}
