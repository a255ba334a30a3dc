/*
 * Programs with their shims. Each has a connection on which messages arrive late, but in order, in
 * both directions; a table of imported memory and one of mapped addresses; memory that it asks for,
 * writes, keeps as spares, shares and frees; and a gate. It obeys the protocol. Checked here:
 *
 *   - a MAP names memory that came with an fd or that the program holds; nothing is mapped over a
 *     mapping, and only what is mapped is unmapped
 *   - nothing that the program uses is mapped or unmapped unless it is quiet
 *   - memory is mapped by one program at a time, unless that shares it, and only ever by one
 *     user's, and only as memory of the GPU for which the program asked
 *   - each request is answered once
 *
 * A program uses one GPU or both. Programs of a group that is tied get on only while all of them
 * are active. One whose kernel waits for another's drains in no time: it parks, or is busy.
 *
 * A program is active from the moment that its gate opens until it answers DRAINED: whatever it
 * submitted may use all its memory. It writes pages then, at times that are drawn.
 *
 * It stops answering for a while, lets drains fail, dies in the middle of everything (the end of
 * its connection and of its process come apart and in any order), and executes another program
 * with the same pid. Its link may stand still while its threads go on. Once parked, its threads may
 * be such that ask for nothing. It may answer what it was not asked: its session must end. Copies
 * of what it has open may survive it.
 *
 * This file has a program from its start to its end. Others: program_mail.c its connection,
 * program_memory.c what it has mapped, program_answers.c its shim, program_asks.c what it asks for,
 * program_work.c what it does, program_team.c with whom it runs, program_again.c how it loses a
 * daemon and comes back to another.
 */
#include "tests/sim/engine/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/windows.h"

/* Its group has programs of another user. */
static bool is_of_another(const struct program *p)
{
    for (uint32_t i = 1; i <= machine.n_programs && p->group > 0; i++) {
        const struct program *other = &machine.programs[i];
        if (other->session && other->team == p->group && other->uid != p->uid)
            return true;
    }
    return false;
}

static void on_eof(void *arg, uint64_t a, uint64_t b);

static void on_hello(void *arg, uint64_t life, uint64_t unused)
{
    struct program *p = arg;
    (void)unused;
    if (p->life != life || !p->is_connected || machine.is_lost)
        return;
    if (!machine.is_up) {
        machine_at(machine.now + 10 * GM_MS, on_hello, p, life, 0);
        return;
    }
    p->has_said_hello = true;
    struct gm_session *session = calloc(1, sizeof *session);
    require(session, "no memory");
    *session = (struct gm_session){.program = p, .life = p->life};
    trace("program %lu (user %lu) joins", p->number, p->uid, 0);
    char name[16];
    snprintf(name, sizeof name, "program%u", p->number);
    char group[16] = "", why[256] = "";
    if (p->group > 0)
        snprintf(group, sizeof group, "group%u", p->group);
    const struct gm_newcomer who = {
        .session = session, .pid = p->pid, .uid = p->uid, .name = name, .wishes = p->wishes};
    deaths_program_says_hello(p);
    p->app = GM_NONE; /* until it is told */
    const int error = gm_machine_join(&machine.daemon, &who, group, &p->app, why, sizeof why);
    /* Those that have yet to come back are of it, too. */
    require((error == -EPERM) == is_of_another(p) || machine.has_deaths,
            "program %u of user %u joins group %u: %d (%s)", p->number, p->uid, p->group, error,
            why);
    if (error != 0) {
        free(session); /* too many, or the daemon is ending: the program ends, too */
        p->is_connected = false;
        program_die(p);
        return;
    }
    p->session = session;
    machine.sums.joins++;
    if (!p->is_connected) /* the daemon has ended it at once */
        machine_at(program_behind(&p->up_at, 100 * GM_US), on_eof, session, p->app, 0);
}

/* What the dead left: somebody else has their connection, and what they had mapped. */
struct rest {
    int fd, n, handles[PROGRAM_PAGES]; /* one a page */
};
static struct rest *rests[PROGRAMS]; /* whose process has ended, and the daemon does not know yet */

static void end_rest(void *arg, uint64_t a, uint64_t b)
{
    struct rest *rest = arg;
    (void)a;
    (void)b;
    for (int i = 0; i < rest->n; i++) {
        struct mapping at = {.handle = (uint16_t)rest->handles[i]};
        program_unmap(&at);
        handle_unref(rest->handles[i]);
    }
    if (rest->fd >= 0)
        uv_fake_hang_up(rest->fd);
    free(rest);
}

static void end_connection(struct program *p);

/* A daemon that does not watch processes does not ask: the connection ends some time. */
static void on_forgotten(void *arg, uint64_t number, uint64_t unused)
{
    (void)unused;
    if (rests[number] != arg)
        return;
    rests[number] = NULL;
    end_connection(&machine.programs[number]);
    end_rest(arg, 0, 0);
}

static void leave_rest(struct program *p)
{
    struct rest *rest = calloc(1, sizeof *rest);
    require(rest, "no memory");
    rest->fd = -1;
    for (unsigned i = 0; i < PROGRAM_PAGES; i++)
        if (p->map[i].handle != NO_HANDLE) {
            handle_at(p->map[i].handle)->maps++;
            handle_ref(p->map[i].handle);
            rest->handles[rest->n++] = p->map[i].handle;
        }
    rests[p->number] = rest;
    machine_at(machine.now + 5 * GM_S, on_forgotten, rest, p->number, 0);
    p->is_joined = false;
    p->frozen_until = 0;
    machine.sums.copied++;
}

static void forget_pages(struct program *p)
{
    if (p->stat_fd > 0)
        close(p->stat_fd);
    p->stat_fd = 0;
    if (p->ctl)
        munmap(p->ctl, sizeof *p->ctl);
    if (p->stat)
        munmap(p->stat, GM_STAT_BYTES);
    p->ctl = NULL;
    p->stat = NULL;
    p->is_marking = p->is_garbling = false;
    p->hid_in = 0;
    memset(p->marked, 0, sizeof p->marked);
    memset(p->window, 0, sizeof p->window);
    memset(p->begun_hidden, 0, sizeof p->begun_hidden);
}

/* Which GPUs it uses, for how much memory, and with whom it runs. */
static void draw_places(struct program *p, bool has_executed)
{
    const uint32_t most = PROGRAM_PAGES / 2 / machine.n_gpus;
    p->gpus = machine.n_gpus == 1 ? 1 : 1 + (uint32_t)chance_below(3);
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++) {
        const uint64_t bytes = machine.daemon.engines[gpu]->config.budget;
        const uint32_t budget = (uint32_t)(bytes >> GM_CHUNK_SHIFT);
        uint32_t pages = 1 + (uint32_t)chance_below(chance_percent(60) ? budget : budget / 4 + 1);
        if ((machine.config.is_oversize && chance_percent(40)) ||
            (machine.has_sizes && draw_percent(&machine.sizes, 50)))
            pages += (uint32_t)chance_below(budget / 2 + 1);
        if (machine.has_hogs || machine.is_full) /* no two of them fit together, mostly */
            pages =
                budget - (uint32_t)draw(&machine.hogs, budget / 2) / machine.unit * machine.unit;
        p->most_pages[gpu] = pages < most ? pages : most;
    }
    if (!machine.has_groups || !chance_percent(60))
        return;
    p->group = 1 + (uint32_t)chance_below(GROUPS);
    if (!has_executed && chance_percent(90))
        p->uid = machine.groups[p->group].uid;
}

/* As a program may say it: of no whole number of chunks, too small, impossible. */
static uint64_t draw_cap(uint64_t budget)
{
    static const uint64_t odd[] = {0, 1, GM_CHUNK_MIN - 1, GM_CHUNK_MIN + 1, INT64_MAX, UINT64_MAX};
    if (draw_percent(&machine.caps, 15))
        return odd[draw(&machine.caps, sizeof odd / sizeof *odd)];
    return GM_CHUNK_MIN * (1 + draw(&machine.caps, budget + budget / 4)) -
           draw(&machine.caps, draw_percent(&machine.caps, 50) ? GM_CHUNK_MIN : 1);
}

void program_start(struct program *p, bool has_executed)
{
    const pid_t pid = p->pid;
    const uint64_t life = p->life;
    const uint32_t number = p->number, uid = p->uid;
    program_leave_team(p);
    struct mail *inbox = p->inbox, *inbox_end = p->inbox_end; /* of the last one: they are void */
    memset(p, 0, sizeof *p);
    p->number = number;
    p->inbox = inbox;
    p->inbox_end = inbox_end;
    p->life = life + 1;
    p->is_there = p->is_connected = true;
    p->pid = has_executed ? pid : ++machine.next_pid;
    p->uid = has_executed ? uid : 1000 + (uint32_t)chance_below(machine.users);
    draw_places(p, has_executed);
    for (uint32_t i = 0; i < PROGRAM_PAGES; i++)
        p->map[i].region = NO_REGION;
    if (machine.has_sizes)
        p->wishes.oversize = (uint32_t)draw(&machine.sizes, 4); /* 3: no word of it */
    if (machine.has_caps && draw_percent(&machine.caps, 40)) {
        static const enum gm_hello_cap says[] = {GM_HELLO_CAP_OURS, GM_HELLO_CAP_FOREIGN,
                                                 GM_HELLO_CAP_UNKNOWN};
        const uint64_t budget = machine.daemon.engines[0]->config.budget >> GM_CHUNK_SHIFT;
        p->wishes.cap_is = says[draw(&machine.caps, 3)];
        p->wishes.cap = draw_cap(budget);
    }
    p->wishes.class = (uint32_t)chance_below(GM_CLASSES + 2);
    if (machine.has_hogs && draw_percent(&machine.hogs, 40)) {
        p->is_hog = true;
        p->gpus = 2;
        p->group = 0;
        p->wishes.class = GM_CLASS_LATENCY + 1;
        p->most_pages[1] = (uint32_t)(machine.daemon.engines[1]->config.budget >> GM_CHUNK_SHIFT);
    }
    program_begin_team(p);
    p->may_share = machine.has_sharing && chance_percent(70);
    p->may_park = chance_percent(60);
    p->may_spare = chance_percent(40);
    p->is_lazy = chance_percent(40);
    p->is_swinging = draw_percent(&machine.odd, 25);
    p->is_partial = draw_percent(&machine.parts, 50);
    p->is_copying = draw_percent(&machine.parts, 10);
    p->is_filling = machine.is_full || draw_percent(&machine.odd, 60);
    machine_at(machine.now + chance_time(GM_MS), on_hello, p, p->life, 0);
    program_wake(p, GM_MS);
}

/* The daemon hears that the connection has ended, after all that was said on it. */
static void on_eof(void *arg, uint64_t a, uint64_t b)
{
    struct gm_session *session = arg;
    struct program *p = session->program;
    (void)b;
    if (session->is_void) {
        free(session);
        return;
    }
    trace("program %lu left", p->number, 0, 0);
    const bool has_hung_up = p->session != session || !p->is_connected;
    if (p->session == session)
        p->session = NULL;
    gm_machine_leave(&machine.daemon, (uint32_t)a, has_hung_up);
    free(session);
}

static void end_connection(struct program *p)
{
    if (!p->is_connected)
        return;
    p->is_connected = false;
    if (p->session)
        machine_at(program_behind(&p->up_at, 100 * GM_US), on_eof, p->session, p->app, 0);
}

/* What it draws is by their budgets. One that died while it adopted has not all of them. */
static bool may_start(void)
{
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        if (!machine.daemon.engines[i])
            return false;
    return !machine.is_ending;
}

static void on_ended(void *arg, uint64_t life, uint64_t has_executed)
{
    struct program *p = arg;
    if (p->life != life || !p->is_dying)
        return;
    p->has_copies = p->has_copies && p->is_connected && p->session && !machine.is_ending;
    if (p->has_copies)
        leave_rest(p); /* its connection stays */
    else
        end_connection(p);
    program_forget_memory(p);
    forget_pages(p);
    p->is_active = p->is_dying = false;
    if (has_executed && !p->has_copies && may_start() && !p->session) {
        program_start(p, true);
        return;
    }
    trace("process of program %lu ends", p->number, 0, 0);
    p->is_there = p->is_lost = false;
    p->life++;
    uv_fake_exit(p->pid);
    deaths_program_ended(p);
    anew_ended(p);
}

/* Its process ends after `time`, which may be longer than the daemon waits for it, but not for
 * ever: it keeps memory of the GPU. */
void program_end_process(struct program *p, uint64_t time, bool executes)
{
    const uint64_t most = 2 * GM_EXIT_NS;
    p->is_dying = true;
    machine.sums.deaths++;
    machine_at(machine.now + (time < most ? time : most), on_ended, p, p->life, executes);
}

void program_die(struct program *p)
{
    if (!p->is_there || p->is_dying)
        return;
    trace("program %lu dies", p->number, 0, 0);
    p->has_copies = is_odd(8) && !machine.has_deaths; /* the next daemon cannot know of them */
    if (chance_percent(60) && !p->has_copies)
        end_connection(p);
    const uint64_t usual =
        machine.is_calm || machine.has_jobs || chance_percent(80) ? 3 * GM_MS : 8 * GM_S;
    const uint64_t time = chance_time(usual);
    program_end_process(p, time, chance_percent(10));
}

void program_execute(struct program *p)
{
    end_connection(p);
    program_end_process(p, GM_S, true); /* the daemon has heard of the end by then */
}

void program_leave(struct program *p)
{
    program_die(p);
}

void program_end_well(struct program *p)
{
    program_leave(p);
    while (p->is_there || p->session)
        require(machine_step(UINT64_MAX), "a process does not end");
}

enum gm_why program_stop(pid_t pid)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (machine.programs[i].pid == pid && machine.now < machine.programs[i].frozen_until)
            return (enum gm_why)(1 + pid % 3);
    return GM_WHY_NONE;
}

/* The daemon hears that the process has ended. If something has copies of its connection, that goes
 * on for a while. */
int program_keep(struct gm_session *session)
{
    struct program *p = session->program;
    struct rest *rest = rests[p->number];
    rests[p->number] = NULL;
    if (!rest)
        return -1;
    const int fd = rest->fd = uv_fake_connection();
    end_connection(p);
    if (fd < 0) {
        end_rest(rest, 0, 0);
        return fd;
    }
    const uint64_t time = chance_time(GM_S), most = 2 * GM_EXIT_NS;
    machine_at(machine.now + (time < most ? time : most), end_rest, rest, 0, 0);
    return fd;
}

/* The daemon ends the session. A program whose work goes on keeps its memory. */
void program_end(struct gm_session *session, enum gm_refusal reason, const char *text)
{
    struct program *p = session->program;
    require(reason != GM_REFUSE_PROTOCOL || p->is_lying, "program %u is taken for hostile: %s",
            p->number, text);
    trace("the daemon ends the session of program %lu (reason %lu)", p->number, reason, 0);
    if (p->life != session->life || !p->is_connected)
        return;
    end_connection(p);
    program_end_process(p, chance_time(GM_S), false);
}

void programs_look(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        if (!p->ctl || !p->is_connected)
            continue;
        const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
        p->turns += is_open && !p->was_open;
        machine.sums.turns += is_open && !p->was_open;
        p->was_open = is_open;
        if (is_open && !p->is_parked)
            p->is_active = true;
    }
}
