/* What the shim of a program answers, and what must hold when a message arrives. */
#include "tests/sim/engine/program.h"

#include <stdlib.h>

/* Now and then of another batch. */
static void done(struct program *p, uint64_t batch, int32_t result)
{
    const bool is_lie = p->is_connected && !machine.has_deaths && is_odd(1000);
    const struct gm_msg_done answer = {.batch = batch + (is_lie ? 1 + draw(&machine.odd, 3) : 0),
                                       .result = result};
    machine.moved_at = machine.now;
    p->is_lying = p->is_lying || is_lie;
    machine.sums.lies += is_lie;
    if (is_lie)
        program_lie(p, GM_MSG_DONE, &answer);
    else
        program_say(p, GM_MSG_DONE, &answer);
}

/* When it answers again. */
uint64_t program_silent_until(const struct program *p)
{
    return p->frozen_until > p->deaf_until ? p->frozen_until : p->deaf_until;
}

static void on_map(struct program *p, const struct mail *mail)
{
    const struct gm_map_entry *entries = (const void *)mail->entries;
    const struct gm_msg_map *body = (const void *)mail->body;
    const bool is_failing =
        mail->count > 0 && (machine.now < p->unmappable_until || machine_fails(FAULT_MAP));
    machine.sums.failed_maps += is_failing;
    int next_fd = 0;
    for (uint32_t i = 0; i < mail->count; i++) {
        const struct gm_map_entry *entry = &entries[i];
        if (entry->flags & GM_MAP_HAS_FD) {
            require(next_fd < mail->n_fds, "a MAP lacks an fd");
            if (!is_failing)
                program_add_import(p, entry->frame, mail->fds[next_fd]);
            next_fd++;
        }
        if (is_failing)
            continue;
        const uint32_t *handle = program_import(p, entry->frame);
        require(handle, "program %u is to map memory that it does not have", p->number);
        const uint32_t pages = (uint32_t)(entry->bytes >> GM_CHUNK_SHIFT);
        require(pages == handle_at((int)*handle)->pages, "a part of memory is mapped");
        for (uint32_t k = 0; k < pages; k++) {
            struct mapping *at = program_at(p, entry->va + (k * GM_CHUNK_MIN));
            require(at->region != NO_REGION, "program %u is to map where it asked for nothing",
                    p->number);
            require(p->regions[at->region].gpu == entry->gpu &&
                        handle_at((int)*handle)->gpu == entry->gpu,
                    "program %u is to map memory of GPU %u, says the message of GPU %u, for GPU %u",
                    p->number, handle_at((int)*handle)->gpu, entry->gpu,
                    p->regions[at->region].gpu);
            require(!p->is_active || !program_is_in_use(p, at),
                    "program %u is to map memory that it uses while it is not quiet", p->number);
            program_map(p, at, (int)*handle, k);
        }
        program_note_mapped(p, (int)*handle, entry->flags & GM_MAP_IS_SHARED);
    }
    require(next_fd == mail->n_fds, "a MAP has too many fds");
    done(p, body->batch, is_failing ? CUDA_ERROR_OUT_OF_MEMORY : 0);
}

static void on_unmap(struct program *p, const struct mail *mail)
{
    const struct gm_span_entry *entries = (const void *)mail->entries;
    const struct gm_msg_unmap *body = (const void *)mail->body;
    for (uint32_t i = 0; i < mail->count; i++)
        for (uint64_t k = 0; k < entries[i].bytes; k += GM_CHUNK_MIN) {
            struct mapping *at = program_at(p, entries[i].va + k);
            require(at->handle != NO_HANDLE, "program %u is to unmap what is not mapped",
                    p->number);
            require(!p->is_active || !program_is_in_use(p, at),
                    "program %u is to unmap memory that it uses while it is not quiet", p->number);
            program_unmap(at);
        }
    done(p, body->batch, 0);
}

static void on_drop(struct program *p, const struct mail *mail)
{
    const struct gm_frame_entry *entries = (const void *)mail->entries;
    const struct gm_msg_drop *body = (const void *)mail->body;
    for (uint32_t i = 0; i < mail->count; i++)
        program_drop_import(p, entries[i].frame);
    done(p, body->batch, 0);
}

static void drain_ends(struct program *p, uint64_t epoch, bool is_parking, uint64_t since)
{
    struct gm_msg_drained answer = {.epoch = epoch, .drain_ns = machine.now - since};
    if (p->epoch != epoch)
        return; /* a newer CLOSE came */
    const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
    /* What waits for others does not end in time, but it parks. */
    const bool is_waiting = p->is_stuck && !is_parking && !machine.is_calm;
    const bool is_failing = is_open || is_waiting || machine_fails(FAULT_DRAIN);
    /* Who is stopped when the grace ends parks later, be the gate open again; and stays parked. */
    is_parking = p->is_parked || (is_parking && (is_open || !is_failing));
    if (is_failing && !is_parking) {
        answer.status = GM_DRAIN_BUSY;
        answer.reason = GM_DRAIN_WORK;
    } else {
        answer.status = is_parking ? GM_DRAIN_PARKED : GM_DRAIN_QUIET;
        p->is_active = false;
        p->is_parked = is_parking;
        p->is_inside = is_parking && draw_percent(&machine.odd, 30);
        machine.sums.parks += is_parking;
        machine.sums.inside += p->is_inside;
    }
    program_say(p, GM_MSG_DRAINED, &answer);
}

struct drain {
    uint64_t life, epoch, since;
    bool is_parking;
};

static void on_drain(void *arg, uint64_t number, uint64_t unused)
{
    struct drain *drain = arg;
    struct program *p = &machine.programs[number];
    (void)unused;
    if (p->life == drain->life && p->is_connected && machine.now < program_silent_until(p)) {
        machine_at(program_silent_until(p), on_drain, drain, number, 0);
        return;
    }
    if (p->life == drain->life && p->is_connected)
        drain_ends(p, drain->epoch, drain->is_parking, drain->since);
    free(drain);
}

static void on_close(struct program *p, const struct gm_msg_close *close)
{
    struct drain *drain = calloc(1, sizeof *drain);
    require(drain, "no memory");
    p->epoch = close->epoch;
    p->query = 0;
    *drain = (struct drain){.life = p->life,
                            .epoch = close->epoch,
                            .since = machine.now,
                            .is_parking = p->may_park && close->grace_ns != UINT64_MAX &&
                                          (chance_percent(40) || p->is_stuck)};
    uint64_t usual = drain->is_parking ? close->grace_ns + GM_MS : GM_MS;
    if (!p->is_active)
        usual = 100 * GM_US;
    machine_at(machine.now + chance_time(usual), on_drain, drain, p->number, 0);
}

static void on_quiet(void *arg, uint64_t life, uint64_t query)
{
    struct program *p = arg;
    if (p->life != life || !p->is_connected || p->query != query)
        return;
    if (machine.now < program_silent_until(p)) {
        machine_at(program_silent_until(p), on_quiet, p, life, query);
        return;
    }
    const struct gm_msg_quiet answer = {
        .query = query, .is_quiet = !machine_fails(FAULT_DRAIN), .had_none = machine.now % 8 != 0};
    p->is_quiet = p->is_quiet || answer.is_quiet; /* it may have told another GPU before */
    program_say(p, GM_MSG_QUIET, &answer);
}

static void on_allocated(struct program *p, const struct gm_msg_allocated *answer)
{
    struct region *region = program_find_region(p, REGION_WANTED, answer->cookie);
    p->unanswered--;
    if (answer->result != 0) {
        program_end_region(p, region);
        return;
    }
    region->state = REGION_HELD;
    region->content = program_new_content(region->pages);
    machine.sums.allocs++;
}

static void on_taken(struct program *p, const struct gm_msg_taken *taken)
{
    struct region *region = &p->regions[program_at(p, taken->va)->region % REGIONS];
    const bool is_spare = program_at(p, taken->va)->region != NO_REGION &&
                          region->state == REGION_SPARE && program_va(region->first) == taken->va;
    if (!is_spare && p->is_trying != 0)
        return; /* a new daemon says again what the one before may have said */
    require(is_spare, "TAKEN names no spare");
    require(atomic_load(&p->stat->spares[region->spare]) == (region->word | GM_SPARE_BUSY),
            "a spare was taken that the word does not say");
    atomic_store(&p->stat->spares[region->spare], 0);
    program_end_region(p, region);
}

/* It named what it opens, and has it open once. */
static void check_opened(const struct program *p, const struct region *opened)
{
    require(!opened->is_misnamed, "program %u has opened what it did not name", p->number);
    for (unsigned i = 0; i < REGIONS; i++)
        require(p->regions[i].state != REGION_OPEN || p->regions[i].content != opened->content,
                "program %u has opened the same twice", p->number);
}

void program_answer(struct program *p, const struct mail *mail)
{
    const void *body = mail->body;
    switch (mail->type) {
    case GM_MSG_WELCOME:
        require(mail->count == machine.n_gpus, "WELCOME tells of %u GPUs", mail->count);
        p->is_joined = true;
        break;
    case GM_MSG_ENTERED:
        p->unanswered--;
        break;
    case GM_MSG_MAP:
        on_map(p, mail);
        break;
    case GM_MSG_UNMAP:
        on_unmap(p, mail);
        break;
    case GM_MSG_DROP:
        on_drop(p, mail);
        break;
    case GM_MSG_CLOSE:
        on_close(p, body);
        break;
    case GM_MSG_QUERY:
        p->query = ((const struct gm_msg_query *)body)->query;
        machine_at(machine.now + chance_time(GM_MS), on_quiet, p, p->life, p->query);
        break;
    case GM_MSG_RESUME:
        require(atomic_load(&p->stat->moving) == GM_MOVING_FREE,
                "program %u is to go on, and is marked as moving", p->number);
        p->is_parked = p->is_inside = false;
        break;
    case GM_MSG_ALLOCATED:
        on_allocated(p, body);
        break;
    case GM_MSG_FREED: {
        const struct gm_msg_freed *freed = body;
        require(freed->result == 0, "a good FREE is refused");
        program_end_region(p, program_find_region(p, REGION_FREED, freed->cookie));
        break;
    }
    case GM_MSG_TAKEN:
        on_taken(p, body);
        break;
    case GM_MSG_SHARED: {
        const struct gm_msg_shared *shared = body;
        struct region *region = NULL;
        for (unsigned i = 0; i < REGIONS; i++)
            if (p->regions[i].is_asked_to_share && p->regions[i].cookie == shared->cookie)
                region = &p->regions[i];
        require(region, "SHARED answers nothing");
        p->unanswered--;
        region->is_asked_to_share = false;
        if (shared->result == 0) {
            region->share = shared->share;
            region->nonce[0] = shared->nonce[0];
            region->nonce[1] = shared->nonce[1];
            for (uint32_t i = 0; i < region->pages; i++)
                handle_at(p->map[region->first + i].handle)->is_shared = true;
        }
        break;
    }
    case GM_MSG_OPENED: {
        const struct gm_msg_opened *opened = body;
        struct region *region = program_find_region(p, REGION_OPENING, opened->cookie);
        p->unanswered--;
        if (opened->result != 0) {
            program_end_region(p, region);
        } else {
            check_opened(p, region);
            region->state = REGION_OPEN;
            machine.sums.opens++;
        }
        break;
    }
    case GM_MSG_SHUT_IS: {
        const struct gm_msg_shut_is *shut = body;
        p->unanswered--;
        require(shut->result == 0, "a good SHUT is refused");
        program_end_region(p, program_find_region(p, REGION_SHUTTING, shut->cookie));
        break;
    }
    case GM_MSG_HOLD:
    case GM_MSG_TIMESLICE:
        break;
    default:
        fail("the daemon sends a message of type %d", (int)mail->type);
    }
}
