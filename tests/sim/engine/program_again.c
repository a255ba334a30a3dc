/* A daemon that dies, and another one: programs lose it and come back, or lie to it. */
#include "tests/sim/engine/program.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/engine/act/client.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/step/apps.h"

/* What it was before may have left some. */
static bool has_mail(const struct program *p)
{
    const struct mail *mail = p->inbox;
    while (mail && mail->life != p->life)
        mail = mail->next;
    return mail != NULL;
}

/* Its link hears that the connection has ended, when it has read all. */
static void on_lost(void *arg, uint64_t life, uint64_t daemon)
{
    struct program *p = arg;
    if (p->life != life || !p->is_connected)
        return;
    if (has_mail(p)) {
        machine_at(machine.now + GM_MS, on_lost, p, life, daemon);
        return;
    }
    trace("program %lu has lost its daemon", p->number, 0, 0);
    p->is_losing = false;
    p->is_lost = true;
    p->epoch = p->query = 0;
    programs_try_again();
}

/* What was to be sent last may not have been. */
static void cut_off(struct program *p)
{
    struct mail **link = &p->inbox, *last = NULL;
    while (*link && ((*link)->step != machine.steps || (*link)->life != p->life ||
                     (*link)->type == GM_MSG_WELCOME || draw_percent(&machine.death, 80))) {
        last = *link;
        link = &last->next;
    }
    struct mail *rest = *link;
    *link = NULL;
    p->inbox_end = last;
    while (rest) {
        struct mail *next = rest->next;
        program_free_mail(rest);
        rest = next;
    }
}

static bool has_welcome(const struct program *p)
{
    for (const struct mail *mail = p->inbox; mail; mail = mail->next)
        if (mail->life == p->life && mail->type == GM_MSG_WELCOME)
            return true;
    return p->is_joined;
}

void programs_lose(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        if (p->session)
            p->session->is_void = true;
        p->session = NULL;
        if (!p->is_there || !p->is_connected || p->is_lost || p->is_losing)
            continue;
        if (!has_welcome(p) && p->has_said_hello) { /* its start fails */
            p->is_connected = false;
            program_die(p);
            continue;
        }
        if (!p->has_said_hello)
            continue;
        cut_off(p);
        p->is_losing = true;
        machine_at(program_behind(&p->down_at, 100 * GM_US), on_lost, p, p->life,
                   machine.daemon_life);
    }
}

static uint32_t list_holds(const struct program *p, struct gm_holds_entry *holds)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < IMPORTS; i++) {
        const int handle = (int)p->imports[i].handle;
        if (p->imports[i].frame == 0)
            continue;
        holds[n] =
            (struct gm_holds_entry){.frame = p->imports[i].frame, .gpu = handle_at(handle)->gpu};
        for (uint32_t k = 0; k < PROGRAM_PAGES; k++)
            if (p->map[k].handle == handle && p->map[k].page == 0)
                holds[n].va = program_va(k);
        n++;
    }
    return n;
}

/* What no program that obeys says. False: it found nothing. */
static bool make_hostile(const struct program *p, const struct gm_client *client,
                         struct gm_holds_entry *holds, uint32_t *n)
{
    const struct gm_engine *engine = client->engines[draw(&machine.death, machine.n_gpus)];
    switch (draw(&machine.death, 3)) {
    case 0: /* a frame that is another's */
        for (uint32_t i = 0; engine && i < engine->table->max_frames; i++)
            if (engine->table->frames[i].state != GM_FRAME_UNUSED &&
                !gm_table_has_import(engine->table, p->app, i)) {
                holds[(*n)++] = (struct gm_holds_entry){
                    .frame = engine->frames.handles[i].id,
                    .gpu = engine->config.index,
                    .va = draw_percent(&machine.death, 50) ? program_va(PROGRAM_PAGES) : 0};
                return true;
            }
        return false;
    case 1: /* one twice */
        if (*n == 0)
            return false;
        holds[*n] = holds[draw(&machine.death, *n)];
        ++*n;
        return true;
    default: /* at an address that cannot be */
        for (uint32_t i = 0; i < *n; i++)
            if (holds[i].va != 0) {
                holds[i].va += GM_CHUNK_MIN / 2;
                return true;
            }
        return false;
    }
}

/* It is refused: it goes on without a daemon, and ends soon. */
static void refused(struct program *p)
{
    trace("program %lu is refused", p->number, 0, 0);
    p->is_gone = true;
    p->is_connected = false;
    machine.sums.hostile++;
    program_end_process(p, chance_time(GM_S), false);
}

static int by_cookie(const void *a, const void *b)
{
    const uint64_t one = (*(struct region *const *)a)->cookie;
    const uint64_t other = (*(struct region *const *)b)->cookie;
    return (one > other) - (one < other);
}

static void ask_again(struct program *p)
{
    struct region *asked[REGIONS];
    uint32_t n = 0;
    p->unanswered = 0;
    for (unsigned i = 0; i < REGIONS; i++) {
        const enum region_state state = p->regions[i].state;
        if (state == REGION_WANTED || state == REGION_FREED || state == REGION_OPENING ||
            state == REGION_SHUTTING || p->regions[i].is_asked_to_share)
            asked[n++] = &p->regions[i];
    }
    qsort(asked, n, sizeof *asked, by_cookie);
    for (uint32_t i = 0; i < n; i++) {
        const struct region *region = asked[i];
        const uint64_t va = program_va(region->first);
        const struct gm_msg_alloc alloc = {.cookie = region->cookie,
                                           .va = va,
                                           .bytes = region->pages * GM_CHUNK_MIN,
                                           .gpu = region->gpu};
        const struct gm_msg_free give = {.cookie = region->cookie, .va = va};
        const struct gm_msg_shut shut = {.cookie = region->cookie, .va = va};
        const struct gm_msg_share share = {.cookie = region->cookie, .va = va};
        p->unanswered += region->state != REGION_FREED;
        if (region->state == REGION_WANTED)
            program_say(p, GM_MSG_ALLOC, &alloc);
        else if (region->state == REGION_FREED)
            program_say(p, GM_MSG_FREE, &give);
        else if (region->state == REGION_OPENING)
            program_say(p, GM_MSG_OPEN, &region->ask);
        else if (region->state == REGION_SHUTTING)
            program_say(p, GM_MSG_SHUT, &shut);
        else
            program_say(p, GM_MSG_SHARE, &share);
    }
}

/* The client of the new daemon goes on with the program. */
static void go_on(struct program *p, struct gm_client *client, struct gm_holdings *has[GPUS])
{
    struct gm_session *session = calloc(1, sizeof *session);
    require(session, "no memory");
    *session = (struct gm_session){.program = p, .life = p->life};
    munmap(p->ctl, sizeof *p->ctl);
    p->ctl = mmap(NULL, sizeof *p->ctl, PROT_READ, MAP_SHARED, client->fds[0], 0);
    require(p->ctl != MAP_FAILED, "no shared memory");
    const uint64_t answered = p->epoch;
    p->was_open = false;
    p->is_lost = false;
    p->link++;
    p->wanted_at = 0;
    p->session = session;
    const struct gm_msg_rejoin rejoin = {
        .epoch = answered, .cookie = p->cookie, .flags = p->is_parked ? GM_REJOIN_IS_PARKED : 0};
    require(gm_client_return(client, session, &rejoin), "program %u cannot come back", p->number);
    gm_keep_client(&machine.daemon.keep, client);
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        if (has[i])
            gm_engine_return(machine.daemon.engines[i], client->id, has[i]);
    gm_keep_client(&machine.daemon.keep, client);
    machine.sums.back++;
    machine.back_at = machine.now;
    ask_again(p);
}

static void on_again(void *arg, uint64_t life, uint64_t daemon)
{
    static struct gm_holds_entry holds[IMPORTS + 1];
    struct program *p = arg;
    char why[256] = "";
    if (p->life != life || !p->is_lost || p->is_gone || daemon != machine.daemon_life ||
        !machine.is_up || !p->is_connected)
        return;
    if (p->is_dying || machine.now < p->frozen_until) {
        machine_at(machine.now + 50 * GM_MS, on_again, p, life, daemon);
        return;
    }
    struct gm_client *client = machine.daemon.clients[p->app];
    uint32_t n = list_holds(p, holds);
    if ((!client || client->pid != p->pid) &&
        n == 0) { /* WELCOME was sent, and its record not written */
        refused(p);
        return;
    }
    require(client && client->pid == p->pid && !client->session, "program %u is not awaited",
            p->number);
    const bool is_running = p->is_active || atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
    const bool is_hostile =
        !machine.is_ending && draw_percent(&machine.death, 4) && make_hostile(p, client, holds, &n);
    struct gm_holdings *has[GPUS] = {NULL};
    bool is_refused = false;
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        is_refused =
            is_refused ||
            (client->engines[i] && gm_engine_read_holds(machine.daemon.engines[i], p->app, holds, n,
                                                        is_running, &has[i], why, sizeof why) != 0);
    require(is_refused == is_hostile, "program %u is %s: %s", p->number,
            is_refused ? "refused" : "hostile, and not refused", why);
    trace(is_running ? "program %lu comes back, %lu frames, and runs"
                     : "program %lu comes back, %lu frames",
          p->number, n, 0);
    if (is_refused) {
        refused(p);
    } else {
        memset(p->members, 0, sizeof p->members); /* checks.c knew it under the daemon before */
        go_on(p, client, has);
    }
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        gm_engine_free_holds(has[i]);
}

void programs_try_again(void)
{
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *p = &machine.programs[i];
        if (!p->is_lost || p->is_gone || !machine.is_up || p->is_trying == machine.daemon_life + 1)
            continue;
        p->is_trying = machine.daemon_life + 1;
        const uint64_t usual =
            draw_percent(&machine.death, 10) && !machine.is_ending ? 4 * GM_S : 20 * GM_MS;
        machine_at(machine.now + draw_around(&machine.death, usual), on_again, p, p->life,
                   machine.daemon_life);
    }
}
