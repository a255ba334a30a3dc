/* engine/binds: who is bound to which GPU, and what counts there. The engines are played. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "daemon/core/snapshot.h"
#include "daemon/core/table_apps.h"
#include "daemon/engine/binds.h"
#include "daemon/engine/state/state.h"
#include "daemon/engine/step/feed.h"

#define G (1ull << 30)
#define APPS 4u
#define GPUS 2u
#define DEVICES 3u /* the daemon shares numbers 2 and 0 of them */
#define SIX 6

static struct gm_binds binds;
static struct gm_engine *all[GPUS];
static struct gm_engine engines[GPUS];
static struct gm_app apps[GPUS][APPS];
static struct gm_sched_account account;
static pid_t pid[SIX]; /* processes that live */
static uint64_t still_at;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    if (still_at == 0)
        return __real_clock_gettime(clock, time);
    *time = gm_timespec(still_at);
    return 0;
}

bool gm_engine_account(const struct gm_engine *engine, uint32_t app, struct gm_sched_account *its)
{
    (void)engine;
    (void)app;
    *its = account;
    return true;
}

static CUresult get_count(int *count)
{
    *count = DEVICES;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device, int number)
{
    *device = number;
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0xa0 + device, sizeof *uuid);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)which;
    (void)device;
    *value = 16;
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    static const int numbers[GPUS] = {2, 0};
    (void)state;
    memset(engines, 0, sizeof engines);
    memset(apps, 0, sizeof apps);
    account = (struct gm_sched_account){0};
    still_at = 1000 * GM_S;
    for (uint32_t i = 0; i < GPUS; i++) {
        struct gm_engine *engine = &engines[i];
        all[i] = engine;
        engine->config.gpu = numbers[i];
        engine->config.budget = 16 * G;
        engine->apps = apps[i];
        engine->table_memory = calloc(1, gm_table_size(APPS, 64, 64));
        engine->table = gm_table_init(engine->table_memory, APPS, 64, 64, 16 * G);
        engine->cuda.cuDeviceGetCount = get_count;
        engine->cuda.cuDeviceGet = get_device;
        engine->cuda.cuDeviceGetUuid_v2 = get_uuid;
        engine->cuda.cuDeviceGetAttribute = get_attribute;
    }
    for (int i = 0; i < SIX; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            pause();
            _exit(0);
        }
    }
    return gm_binds_open(&binds, all, GPUS, APPS);
}

static void end_process(int i)
{
    kill(pid[i], SIGKILL);
    waitpid(pid[i], NULL, 0);
}

static int tear_down(void **state)
{
    (void)state;
    still_at = 0;
    for (int i = 0; i < SIX; i++)
        end_process(i);
    for (uint32_t i = 0; i < GPUS; i++)
        free(engines[i].table_memory);
    gm_binds_close(&binds);
    return 0;
}

/* A program that sees all devices in their order. */
static struct gm_place_request request_of(int i, uint64_t need)
{
    return (struct gm_place_request){.pid = pid[i],
                                     .family = (uint64_t)pid[i],
                                     .uid = 7,
                                     .owner = 7,
                                     .n = DEVICES,
                                     .device = {0, 1, 2},
                                     .program = {.need = need, .time = GM_BIND_WHOLE}};
}

/* ... as that process, which is alone in its family. */
static void be(struct gm_place_request *request, pid_t as)
{
    request->pid = as;
    request->family = (uint64_t)as;
}

/* The numbers of its devices in their new order: 201 for 2, 0, 1. */
static int place(const struct gm_place_request *request, enum gm_why why)
{
    struct gm_place_answer answer;
    int order = 0;
    bool is_changed = false;
    gm_binds_place(&binds, request, &answer);
    assert_int_equal(answer.why, why);
    for (uint32_t i = 0; i < request->n; i++) {
        order = order * 10 + (int)request->device[answer.order[i]];
        is_changed = is_changed || answer.order[i] != i;
    }
    assert_int_equal(answer.is_changed, is_changed);
    if (answer.gpu != GM_BIND_NONE)
        assert_int_equal(answer.device, all[answer.gpu]->config.gpu);
    return order;
}

static int place_one(int i, uint64_t need)
{
    const struct gm_place_request request = request_of(i, need);
    return place(&request, GM_WHY_BIND_ROOM);
}

/* The program is an app of that GPU. */
static void come(int i, uint32_t gpu, uint32_t id, uint64_t bytes)
{
    apps[gpu][id] = (struct gm_app){.state = GM_APP_RUNNING, .pid = pid[i], .uid = 7};
    assert_true(gm_table_add_app(engines[gpu].table, id, 7));
    ((struct gm_table_app *)(uintptr_t)&engines[gpu].table->apps[id])->committed = bytes;
}

/* Those on their way count, so that four that ask at once are two and two. Index 0 is number 2. */
static void on_their_way(void **state)
{
    (void)state;
    assert_int_equal(place_one(0, G), 201);
    assert_int_equal(place_one(1, G), 21);
    assert_int_equal(place_one(2, G), 201);
    assert_int_equal(place_one(3, G), 21);
    assert_int_equal(place_one(3, G), 21); /* the same process asks again: it counts once */
    end_process(0);
    end_process(2);
    assert_int_equal(place_one(4, G), 201); /* they count no more */
    assert_int_equal(place_one(5, G), 201);
}

/* One that has left does not count, although its process has yet to end. */
static void left(void **state)
{
    (void)state;
    assert_int_equal(place_one(0, G), 201);
    gm_binds_leave(&binds, getpid()); /* which was not bound */
    assert_int_equal(place_one(1, G), 21);
    gm_binds_leave(&binds, pid[1]);
    assert_int_equal(place_one(2, G), 21);
}

/* Who does not come in time does not count either. */
static void never_came(void **state)
{
    (void)state;
    assert_int_equal(place_one(0, G), 201);
    still_at += GM_BIND_WAY_NS;
    assert_int_equal(place_one(1, G), 201);
}

/* What a program has counts, at least what it was bound with, and where it is. */
static void what_is_there(void **state)
{
    (void)state;
    assert_int_equal(place_one(0, 10 * G), 201);
    come(0, 0, 1, G);
    still_at += 2 * GM_BIND_WAY_NS;
    assert_int_equal(place_one(1, 8 * G), 21); /* 10 of 16 are promised there */
    come(1, 0, 2, 8 * G);                      /* it takes the other all the same */
    assert_int_equal(place_one(2, 8 * G), 21);
    const struct gm_place_request large = request_of(3, 12 * G);
    assert_int_equal(place(&large, GM_WHY_BIND_LOSS), 21);
    struct gm_snapshot_app shown = {.pid = pid[1]};
    gm_binds_show(&binds, 0, &shown);
    assert_int_equal(shown.placed, GM_WHY_BIND_ITSELF);
    gm_binds_show(&binds, 1, &shown);
    assert_int_equal(shown.placed, GM_WHY_BIND_ROOM);
    shown.pid = getpid();
    gm_binds_show(&binds, 1, &shown);
    assert_int_equal(shown.placed, GM_WHY_NONE);
}

/* A program may need more than it was bound with. */
static void more_than_told(void **state)
{
    (void)state;
    assert_int_equal(place_one(0, G), 201);
    come(0, 0, 1, 14 * G);
    assert_int_equal(place_one(1, G), 21);
    assert_int_equal(place_one(2, 4 * G), 21); /* there is no room beside the first */
}

/* Where all wait for their turn, the time that the others want decides. */
static void time_counts(void **state)
{
    struct gm_place_request request = request_of(2, 12 * G);
    (void)state;
    assert_int_equal(place_one(0, 12 * G), 201);
    assert_int_equal(place_one(1, 12 * G), 21);
    come(0, 0, 1, 12 * G);
    account = (struct gm_sched_account){.run_ns = GM_S, .idle_ns = 9 * GM_S};
    request.program.time = 500;
    assert_int_equal(place(&request, GM_WHY_BIND_LOSS), 201); /* the other is on its way: all */
}

static void kept(void **state)
{
    struct gm_place_request request = request_of(0, G);
    (void)state;
    request.as_is = GM_WHY_BIND_OFF;
    assert_int_equal(place(&request, GM_WHY_BIND_OFF), 12);
    assert_int_equal(place_one(1, G), 201); /* number 0 is taken */
    request = request_of(2, G);
    request.n = 1;
    assert_int_equal(place(&request, GM_WHY_BIND_ONLY), 0);
    request.device[0] = 1; /* not shared */
    assert_int_equal(place(&request, GM_WHY_BIND_ELSEWHERE), 1);
    request.n = 2; /* numbers 1 and 2 */
    request.device[1] = 2;
    assert_int_equal(place(&request, GM_WHY_BIND_ONLY), 21);
    request.n = 0;
    request.as_is = GM_WHY_BIND_LIST;
    assert_int_equal(place(&request, GM_WHY_BIND_LIST), 0);
}

/* Processes of one program have one order, whatever else is there. Not those of another user, nor
 * those that see other devices. */
static void families(void **state)
{
    struct gm_place_request request = request_of(0, G);
    (void)state;
    request.family = (uint64_t)pid[5];
    assert_int_equal(place(&request, GM_WHY_BIND_ROOM), 201);
    request.pid = pid[1];
    assert_int_equal(place(&request, GM_WHY_BIND_FAMILY), 201);
    request.pid = pid[2];
    request.device[0] = 2; /* its list is 2, 1, 0 */
    request.device[2] = 0;
    assert_int_equal(place(&request, GM_WHY_BIND_FAMILY), 201);
    request.pid = pid[3];
    request.uid = request.owner = 8;
    assert_int_equal(place(&request, GM_WHY_BIND_ROOM), 21);
    request.pid = pid[4];
    request.uid = request.owner = 7;
    request.n = 2; /* 2, 1 */
    assert_int_equal(place(&request, GM_WHY_BIND_ONLY), 21);
}

/* Whatever a user says, and however often: for others a GPU is not full of it for ever. */
static void liars(void **state)
{
    struct gm_place_request lie = request_of(0, UINT64_MAX), other = request_of(3, 8 * G);
    (void)state;
    lie.n = 1; /* three that say that they need all there is, on the first */
    lie.device[0] = 2;
    lie.as_is = GM_WHY_BIND_OFF;
    for (int i = 0; i < 3; i++) {
        be(&lie, pid[i]);
        place(&lie, GM_WHY_BIND_OFF);
    }
    other.uid = other.owner = 8;
    assert_int_equal(place(&other, GM_WHY_BIND_ROOM), 21);
    other.program.need = 16 * G;
    be(&other, pid[4]);
    assert_int_equal(place(&other, GM_WHY_BIND_LOSS), 21);
    be(&other, pid[5]);
    assert_int_equal(place(&other, GM_WHY_BIND_LOSS), 201);
    still_at += GM_BIND_WAY_NS / 2;
    place(&lie, GM_WHY_BIND_OFF); /* asking again makes it no younger */
    still_at += GM_BIND_WAY_NS / 2;
    assert_int_equal(place(&other, GM_WHY_BIND_ROOM), 201);
    come(2, 0, 1, 0); /* what it has counts, and not what it said */
    come(3, 1, 2, 8 * G);
    assert_int_equal(place(&other, GM_WHY_BIND_ROOM), 201);
}

/* The program sees the first GPU alone. */
static struct gm_place_request only_of(int i, uid_t uid, uint64_t need)
{
    struct gm_place_request request = request_of(i, need);
    request.uid = request.owner = uid;
    request.n = 1;
    request.device[0] = 2;
    return request;
}

/* For how long one of another user waits for nearly all of it, `most` at most. */
static uint64_t waits(uint64_t most)
{
    struct gm_waiting waiting = {.request = only_of(5, 8, 15 * G), .since = still_at};
    while (still_at - waiting.since < most &&
           gm_binds_next(&binds, &waiting, 1, UINT64_MAX) == GM_BIND_NONE)
        still_at += GM_BIND_LOOK_NS;
    return still_at - waiting.since;
}

static uint64_t waits_for_lie(int i)
{
    struct gm_place_request lie = only_of(i, 7, 16 * G);
    lie.uid += (uid_t)i; /* of the user's containers, say: the user is who owes */
    place(&lie, GM_WHY_BIND_ONLY);
    return waits(2 * GM_BIND_WAY_NS);
}

/* Two start at a time, until they compute, and for half a second at most. */
static void starts(void **state)
{
    struct gm_waiting waiting[] = {{.request = only_of(3, 7, G), .since = still_at},
                                   {.request = only_of(4, 7, 2 * G), .since = still_at}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct gm_place_request request = only_of(i, 7, G);
        place(&request, GM_WHY_BIND_ONLY);
        if (i == 0)
            assert_int_equal(gm_binds_next(&binds, waiting, 2, UINT64_MAX), 0);
    }
    assert_int_equal(gm_binds_next(&binds, waiting, 2, UINT64_MAX), GM_BIND_NONE);
    assert_int_equal(waiting[0].fits_since, still_at);
    come(0, 0, 1, G);
    come(1, 0, 2, G);
    assert_int_equal(gm_binds_next(&binds, waiting, 2, UINT64_MAX), GM_BIND_NONE);
    account.run_ns = 1; /* of both */
    assert_int_equal(gm_binds_next(&binds, waiting, 2, UINT64_MAX), 0);
    account.run_ns = 0;
    waiting[0].request.program.need = 15 * G; /* it has no room */
    still_at += GM_BIND_HELD_NS - 1;
    assert_int_equal(gm_binds_next(&binds, waiting, 2, UINT64_MAX), GM_BIND_NONE);
    assert_int_equal(waiting[0].fits_since, 0);
    still_at++;
    assert_int_equal(gm_binds_next(&binds, waiting, 2, UINT64_MAX), 1);
}

/* What is said and not taken keeps others waiting for seconds, and a user who says it again for no
 * longer; in time it is believed again. What is taken counts as long as it is there. */
static void said_and_not_taken(void **state)
{
    (void)state;
    come(0, 0, 1, G); /* it takes little; the others do not come */
    assert_in_range(waits_for_lie(0), GM_BIND_LOOK_NS, 15 * GM_S);
    assert_in_range(waits_for_lie(1) + waits_for_lie(2), 1, GM_BIND_WAY_NS / 4);
    assert_in_range(waits_for_lie(3), 0, GM_BIND_HELD_NS); /* as for any start */
    still_at += GM_BIND_WAY_NS * GM_BIND_OWED;
    assert_int_equal(waits_for_lie(4), GM_BIND_WAY_NS);
    come(3, 0, 2, 2 * G);
    assert_int_equal(waits(10 * GM_BIND_WAY_NS), 10 * GM_BIND_WAY_NS);
}

/* A process that the daemon cannot see is forgotten: nobody would see its end. */
static void unseen(void **state)
{
    struct gm_place_request request = request_of(0, 16 * G);
    (void)state;
    request.pid = 0;
    place(&request, GM_WHY_BIND_ROOM);
    assert_int_equal(place_one(1, 16 * G), 201);
}

/* What an app has needed: the most that it had at any time, and of that the part that it needs. */
static void usage(void **state)
{
    struct gm_bind_usage used;
    struct gm_table *table = engines[1].table;
    (void)state;
    gm_binds_usage(&binds, 1, &used);
    assert_int_equal(used.most, 0);
    come(0, 0, 1, 0);
    come(0, 1, 1, 0);
    const uint32_t first = gm_table_add_allocation(table, 1, 1ull << 40, G);
    const uint32_t second = gm_table_add_allocation(table, 1, 1ull << 41, G / 2);
    assert_true(first != GM_NONE && second != GM_NONE);
    gm_table_free_allocation(table, first, (struct gm_last_word){0});
    account = (struct gm_sched_account){.run_ns = 3 * GM_S, .wait_ns = GM_S, .idle_ns = 6 * GM_S};
    gm_binds_usage(&binds, 1, &used);
    assert_int_equal(used.most, G + G / 2);
    assert_int_equal(used.needed, used.most);
    assert_int_equal(used.time, 400);
    gm_table_set_beyond(table, 1, G / 4); /* a half of what it has now is cold */
    gm_binds_usage(&binds, 1, &used);
    assert_int_equal(used.most, G + G / 2);
    assert_true(used.needed > used.most / 2 - G / 100 && used.needed <= used.most / 2);
}

/* One user cannot take all places. */
static void places(void **state)
{
    struct gm_place_request request = request_of(0, 0);
    const uint32_t most = APPS + GM_BINDS_MORE, of_one = most - most / 4;
    pid_t many[APPS + GM_BINDS_MORE];
    (void)state;
    for (uint32_t i = 0; i < most; i++) {
        many[i] = fork();
        if (many[i] == 0) {
            pause();
            _exit(0);
        }
        be(&request, many[i]);
        place(&request, GM_WHY_BIND_ROOM);
        assert_int_equal(binds.n, i < of_one ? i + 1 : of_one);
    }
    request.uid = request.owner = 8;
    be(&request, pid[1]);
    place(&request, GM_WHY_BIND_ROOM);
    assert_int_equal(binds.n, of_one + 1);
    for (uint32_t i = 0; i < most; i++) {
        kill(many[i], SIGKILL);
        waitpid(many[i], NULL, 0);
    }
}

static void devices(void **state)
{
    (void)state;
    assert_int_equal(binds.devices.n, DEVICES);
    assert_int_equal(binds.devices.uuid[2][5], 0xa2);
    assert_int_equal(binds.chips[1].multiprocessors, 16);
    assert_int_equal(binds.chips[1].registers, 16);
}

#define BINDS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BINDS(on_their_way), BINDS(left),          BINDS(starts),
        BINDS(never_came),   BINDS(what_is_there), BINDS(more_than_told),
        BINDS(time_counts),  BINDS(kept),          BINDS(families),
        BINDS(usage),        BINDS(places),        BINDS(devices),
        BINDS(liars),        BINDS(unseen),        BINDS(said_and_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
