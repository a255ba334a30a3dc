/*
 * Programs with their shims. Each has a connection on which messages arrive late, but in order, in
 * both directions; a table of imported memory and one of mapped addresses; memory that it asks for,
 * writes, keeps as spares, shares and frees; and a gate. It obeys the protocol. Checked here:
 *
 *   - a MAP names memory that came with an fd or that the program holds; nothing is mapped over a
 *     mapping, and only what is mapped is unmapped
 *   - nothing that the program uses is mapped or unmapped unless it is quiet
 *   - memory is mapped by one program at a time, unless that shares it, and only ever by one
 * user's, and only as memory of the GPU for which the program asked
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
 */
#include "tests/sim/engine/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/windows.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/step/returns.h"

/* ---- messages ---- */

struct mail {
    struct mail *next;
    uint64_t life, link, step;
    enum gm_msg_type type;
    uint32_t count;
    int n_fds, fds[GM_WIRE_FDS]; /* handles */
    _Alignas(8) char body[256];
    _Alignas(8) char entries[];
};

/* While RESUME is on its way, it may be because the program has no work: then it is as good as
 * quiet. */
bool program_may_go_on(const struct program *p)
{
    bool is_told = false;
    for (const struct mail *mail = p->inbox; mail; mail = mail->next)
        is_told = is_told || mail->type == GM_MSG_RESUME;
    return !is_told && atomic_load(&p->stat->moving) == GM_MOVING_FREE;
}

static size_t body_size(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return sizeof(struct gm_msg_##name);
#include "common/wire.def"
#undef GM_MSG
    }
    fail("no such message: %d", (int)type);
}

static size_t entry_size(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return sizeof(struct entry);
#include "common/wire.def"
#undef GM_MSG
    }
    fail("no such message: %d", (int)type);
}

static const char *down_name(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return "program %lu gets " #NAME " (%lu entries)";
#include "common/wire.def"
#undef GM_MSG
    }
    return "?";
}

static const char *up_name(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return "program %lu says " #NAME " (%lu)";
#include "common/wire.def"
#undef GM_MSG
    }
    return "?";
}

static struct mail *new_mail(uint64_t life, enum gm_msg_type type, const void *body,
                             const void *entries, uint32_t count)
{
    const size_t bytes = count * entry_size(type);
    struct mail *mail = calloc(1, sizeof *mail + bytes + 8);
    require(mail, "no memory");
    mail->life = life;
    mail->step = machine.steps;
    mail->type = type;
    mail->count = count;
    memcpy(mail->body, body, body_size(type));
    if (bytes > 0)
        memcpy(mail->entries, entries, bytes);
    return mail;
}

static uint64_t behind(uint64_t *last, uint64_t usual)
{
    const uint64_t at = machine.now + chance_time(usual);
    *last = at > *last ? at : *last;
    return *last;
}

/* ---- to the daemon ---- */

static void on_up(void *arg, uint64_t number, uint64_t is_lie)
{
    struct mail *mail = arg;
    struct program *p = &machine.programs[number];
    if (p->session && p->session->life == mail->life && !machine.is_lost && machine.is_up &&
        p->link == mail->link) {
        const struct gm_wire_message message = {.type = (uint16_t)mail->type,
                                                .body = mail->body,
                                                .entries = mail->count ? mail->entries : NULL,
                                                .count = mail->count};
        trace(up_name(mail->type), p->number, *(uint64_t *)(void *)mail->body % 1000000, 0);
        gm_machine_message(&machine.daemon, p->app, &message);
        require(!is_lie || !p->is_connected, "program %u answered what it was not asked, and stays",
                p->number);
    }
    free(mail);
}

static void say_more(struct program *p, enum gm_msg_type type, const void *body,
                     const void *entries, uint32_t count)
{
    if (!p->is_connected)
        return;
    struct mail *mail = new_mail(p->life, type, body, entries, count);
    mail->link = p->link;
    machine_at(behind(&p->up_at, 30 * GM_US), on_up, mail, p->number, 0);
}

static void say(struct program *p, enum gm_msg_type type, const void *body)
{
    say_more(p, type, body, NULL, 0);
}

/* ---- memory ---- */

static struct mapping *map_of(struct program *p, uint64_t va)
{
    require(va >= PROGRAM_BASE && va < program_va(PROGRAM_PAGES) && va % GM_CHUNK_MIN == 0,
            "program %u has no such address: %lx", p->number, va);
    return &p->map[(va - PROGRAM_BASE) >> GM_CHUNK_SHIFT];
}

struct page *program_page(const struct program *p, uint32_t page)
{
    const struct mapping *at = &p->map[page];
    return at->handle == NO_HANDLE ? NULL : &handle_at(at->handle)->page[at->page];
}

static bool is_in_use(const struct program *p, const struct mapping *at)
{
    const enum region_state state =
        at->region == NO_REGION ? REGION_NONE : p->regions[at->region].state;
    return state == REGION_HELD || state == REGION_OPEN;
}

static void map_page(struct program *p, struct mapping *at, int handle, uint32_t page)
{
    struct handle *h = handle_at(handle);
    require(at->handle == NO_HANDLE, "program %u is told to map over a mapping", p->number);
    at->handle = (uint16_t)handle;
    at->page = (uint8_t)page;
    h->maps++;
}

static void unmap_page(struct mapping *at)
{
    struct handle *h = handle_at(at->handle);
    at->handle = NO_HANDLE;
    if (--h->maps == 0)
        h->program = 0;
}

/* Whole memory is mapped and unmapped: its first page stands for it. */
static void note_mapped(struct program *p, int handle, bool is_shared)
{
    struct handle *h = handle_at(handle);
    h->is_shared = h->is_shared || is_shared;
    require(h->program == 0 || h->program == p->number || h->is_shared,
            "program %u maps memory that program %u has mapped", p->number, h->program);
    require(h->uid == 0 || h->uid == p->uid, "memory of user %u is mapped by user %u", h->uid,
            p->uid);
    h->program = p->number;
    h->uid = p->uid;
}

static uint32_t *import_of(struct program *p, uint32_t frame)
{
    for (unsigned i = 0; i < IMPORTS; i++)
        if (p->imports[i].frame == frame)
            return &p->imports[i].handle;
    return NULL;
}

static void add_import(struct program *p, uint32_t frame, int handle)
{
    require(!import_of(p, frame), "program %u gets the fd of memory that it has", p->number);
    for (unsigned i = 0; i < IMPORTS; i++) {
        if (p->imports[i].frame)
            continue;
        p->imports[i].frame = frame;
        p->imports[i].handle = (uint32_t)handle;
        handle_ref(handle);
        return;
    }
    fail("too many imports");
}

static void drop_import(struct program *p, uint32_t frame)
{
    uint32_t *handle = import_of(p, frame);
    require(handle, "program %u is to drop memory that it does not have", p->number);
    for (unsigned i = 0; i < PROGRAM_PAGES; i++)
        require(p->map[i].handle != *handle, "program %u is to drop memory that it has mapped",
                p->number);
    const int gone = (int)*handle;
    handle[-1] = 0; /* its frame */
    handle_unref(gone);
}

static struct content *new_content(uint32_t pages)
{
    struct content *content = calloc(1, sizeof *content + 2 * pages * sizeof *content->tag);
    require(content, "no memory");
    content->refs = 1;
    content->pages = pages;
    return content;
}

static void end_content(struct content *content)
{
    if (content && --content->refs == 0)
        free(content);
}

static struct region *new_region(struct program *p, uint32_t gpu, uint32_t pages,
                                 enum region_state state)
{
    uint32_t first = 0, i = 0;
    while (i < REGIONS && p->regions[i].state != REGION_NONE)
        i++;
    if (i == REGIONS || pages > PROGRAM_PAGES)
        return NULL;
    for (uint32_t run = 0; run < pages; first++) {
        if (first == PROGRAM_PAGES)
            return NULL;
        run = p->map[first].region == NO_REGION ? run + 1 : 0;
    }
    first -= pages;
    for (uint32_t k = 0; k < pages; k++) {
        require(p->map[first + k].handle == NO_HANDLE, "free addresses are mapped");
        p->map[first + k].region = (uint8_t)i;
    }
    struct region *region = &p->regions[i];
    *region = (struct region){.state = state,
                              .gpu = gpu,
                              .first = first,
                              .pages = pages,
                              .cookie = ++p->cookie,
                              .works = p->works};
    return region;
}

static void end_region(struct program *p, struct region *region)
{
    for (uint32_t k = 0; k < region->pages; k++) {
        require(p->map[region->first + k].handle == NO_HANDLE,
                "program %u hears that memory is gone, which it still has mapped", p->number);
        p->map[region->first + k].region = NO_REGION;
    }
    end_content(region->content);
    *region = (struct region){.state = REGION_NONE};
}

static struct region *find_region(struct program *p, enum region_state state, uint64_t cookie)
{
    for (unsigned i = 0; i < REGIONS; i++)
        if (p->regions[i].state == state && p->regions[i].cookie == cookie)
            return &p->regions[i];
    fail("program %u gets an answer to what it did not ask", p->number);
}

static struct region *any_region(struct program *p, enum region_state state)
{
    const unsigned from = (unsigned)chance_below(REGIONS);
    for (unsigned i = 0; i < REGIONS; i++)
        if (p->regions[(from + i) % REGIONS].state == state)
            return &p->regions[(from + i) % REGIONS];
    return NULL;
}

/* ---- what the shim answers ---- */

static bool is_odd(unsigned of)
{
    return !machine.is_calm && !machine.is_ending && draw(&machine.odd, of) == 0;
}

/* Now and then of another batch. */
static void done(struct program *p, uint64_t batch, int32_t result)
{
    const bool is_lie = p->is_connected && !machine.has_deaths && is_odd(1000);
    const struct gm_msg_done answer = {.batch = batch + (is_lie ? 1 + draw(&machine.odd, 3) : 0),
                                       .result = result};
    machine.moved_at = machine.now;
    p->is_lying = p->is_lying || is_lie;
    machine.sums.lies += is_lie;
    if (!p->is_connected)
        return;
    struct mail *mail = new_mail(p->life, GM_MSG_DONE, &answer, NULL, 0);
    mail->link = p->link;
    machine_at(behind(&p->up_at, 30 * GM_US), on_up, mail, p->number, is_lie);
}

/* When it answers again. */
static uint64_t silent_until(const struct program *p)
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
                add_import(p, entry->frame, mail->fds[next_fd]);
            next_fd++;
        }
        if (is_failing)
            continue;
        const uint32_t *handle = import_of(p, entry->frame);
        require(handle, "program %u is to map memory that it does not have", p->number);
        const uint32_t pages = (uint32_t)(entry->bytes >> GM_CHUNK_SHIFT);
        require(pages == handle_at((int)*handle)->pages, "a part of memory is mapped");
        for (uint32_t k = 0; k < pages; k++) {
            struct mapping *at = map_of(p, entry->va + (k * GM_CHUNK_MIN));
            require(at->region != NO_REGION, "program %u is to map where it asked for nothing",
                    p->number);
            require(p->regions[at->region].gpu == entry->gpu &&
                        handle_at((int)*handle)->gpu == entry->gpu,
                    "program %u is to map memory of GPU %u, says the message of GPU %u, for GPU %u",
                    p->number, handle_at((int)*handle)->gpu, entry->gpu,
                    p->regions[at->region].gpu);
            require(!p->is_active || !is_in_use(p, at),
                    "program %u is to map memory that it uses while it is not quiet", p->number);
            map_page(p, at, (int)*handle, k);
        }
        note_mapped(p, (int)*handle, entry->flags & GM_MAP_IS_SHARED);
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
            struct mapping *at = map_of(p, entries[i].va + k);
            require(at->handle != NO_HANDLE, "program %u is to unmap what is not mapped",
                    p->number);
            require(!p->is_active || !is_in_use(p, at),
                    "program %u is to unmap memory that it uses while it is not quiet", p->number);
            unmap_page(at);
        }
    done(p, body->batch, 0);
}

static void on_drop(struct program *p, const struct mail *mail)
{
    const struct gm_frame_entry *entries = (const void *)mail->entries;
    const struct gm_msg_drop *body = (const void *)mail->body;
    for (uint32_t i = 0; i < mail->count; i++)
        drop_import(p, entries[i].frame);
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
        atomic_store(&p->stat->slot[1].blocked, p->is_inside);
        machine.sums.parks += is_parking;
        machine.sums.inside += p->is_inside;
    }
    say(p, GM_MSG_DRAINED, &answer);
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
    if (p->life == drain->life && p->is_connected && machine.now < silent_until(p)) {
        machine_at(silent_until(p), on_drain, drain, number, 0);
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
    if (machine.now < silent_until(p)) {
        machine_at(silent_until(p), on_quiet, p, life, query);
        return;
    }
    const struct gm_msg_quiet answer = {.query = query, .is_quiet = !machine_fails(FAULT_DRAIN)};
    p->is_quiet = p->is_quiet || answer.is_quiet; /* it may have told another GPU before */
    say(p, GM_MSG_QUIET, &answer);
}

static void on_allocated(struct program *p, const struct gm_msg_allocated *answer)
{
    struct region *region = find_region(p, REGION_WANTED, answer->cookie);
    p->unanswered--;
    if (answer->result != 0) {
        end_region(p, region);
        return;
    }
    region->state = REGION_HELD;
    region->content = new_content(region->pages);
    machine.sums.allocs++;
}

static void on_taken(struct program *p, const struct gm_msg_taken *taken)
{
    struct region *region = &p->regions[map_of(p, taken->va)->region % REGIONS];
    const bool is_spare = map_of(p, taken->va)->region != NO_REGION &&
                          region->state == REGION_SPARE && program_va(region->first) == taken->va;
    if (!is_spare && p->is_trying != 0)
        return; /* a new daemon says again what the one before may have said */
    require(is_spare, "TAKEN names no spare");
    require(atomic_load(&p->stat->spares[region->spare]) == (region->word | GM_SPARE_BUSY),
            "a spare was taken that the word does not say");
    atomic_store(&p->stat->spares[region->spare], 0);
    end_region(p, region);
}

/* It named what it opens, and has it open once. */
static void check_opened(const struct program *p, const struct region *opened)
{
    require(!opened->is_misnamed, "program %u has opened what it did not name", p->number);
    for (unsigned i = 0; i < REGIONS; i++)
        require(p->regions[i].state != REGION_OPEN || p->regions[i].content != opened->content,
                "program %u has opened the same twice", p->number);
}

static void on_mail(struct program *p, const struct mail *mail)
{
    const void *body = mail->body;
    trace(down_name(mail->type), p->number, mail->count, 0);
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
        atomic_store(&p->stat->slot[1].blocked, 0);
        break;
    case GM_MSG_ALLOCATED:
        on_allocated(p, body);
        break;
    case GM_MSG_FREED: {
        const struct gm_msg_freed *freed = body;
        require(freed->result == 0, "a good FREE is refused");
        end_region(p, find_region(p, REGION_FREED, freed->cookie));
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
        struct region *region = find_region(p, REGION_OPENING, opened->cookie);
        p->unanswered--;
        if (opened->result != 0) {
            end_region(p, region);
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
        end_region(p, find_region(p, REGION_SHUTTING, shut->cookie));
        break;
    }
    case GM_MSG_HOLD:
    case GM_MSG_TIMESLICE:
        break;
    default:
        fail("the daemon sends a message of type %d", (int)mail->type);
    }
}

static void free_mail(struct mail *mail)
{
    for (int i = 0; i < mail->n_fds; i++)
        handle_unref(mail->fds[i]);
    free(mail);
}

/* The next message arrives, whichever it was scheduled for. */
static void on_down(void *arg, uint64_t a, uint64_t b)
{
    struct program *p = arg;
    struct mail *mail = p->inbox;
    if (!mail)
        return; /* it was cut off */
    if (mail->life == p->life && p->is_connected && machine.now < silent_until(p)) {
        machine_at(silent_until(p), on_down, p, a, b);
        return;
    }
    p->inbox = mail->next;
    if (!p->inbox)
        p->inbox_end = NULL;
    if (p->life == mail->life && p->is_connected)
        on_mail(p, mail);
    free_mail(mail);
}

int program_send(struct gm_session *session, enum gm_msg_type type, const void *body,
                 const void *entries, uint32_t count, const int *fds, int n_fds)
{
    struct program *p = session->program;
    if (p->life != session->life || !p->is_connected)
        return p->session == session && p->is_connected ? 0 : -EPIPE; /* nobody reads it */
    struct mail *mail = new_mail(p->life, type, body, entries, count);
    if (type == GM_MSG_WELCOME) {
        p->ctl = mmap(NULL, sizeof *p->ctl, PROT_READ, MAP_SHARED, fds[0], 0);
        p->stat = mmap(NULL, GM_STAT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
        p->stat_fd = machine.has_deaths ? dup(fds[1]) : 0;
        require(p->ctl != MAP_FAILED && p->stat != MAP_FAILED, "no shared memory");
    } else {
        for (int i = 0; i < n_fds; i++) {
            mail->fds[i] = handle_of_fd(fds[i]);
            handle_ref(mail->fds[i]);
        }
        mail->n_fds = n_fds;
    }
    if (p->inbox)
        p->inbox_end->next = mail;
    else
        p->inbox = mail;
    p->inbox_end = mail;
    machine_at(behind(&p->down_at, 30 * GM_US), on_down, p, 0, 0);
    return 0;
}

/* ---- what it does ---- */

static void wake_me(struct program *p, uint64_t usual);

static uint32_t pages_of(const struct program *p, uint32_t gpu)
{
    uint32_t pages = 0;
    for (unsigned i = 0; i < REGIONS; i++)
        pages += p->regions[i].state != REGION_NONE && p->regions[i].state < REGION_FREED &&
                         p->regions[i].gpu == gpu
                     ? p->regions[i].pages
                     : 0;
    return pages;
}

static uint32_t any_gpu(const struct program *p)
{
    return p->gpus == 3 ? (uint32_t)chance_below(2) : p->gpus - 1;
}

/* One that it uses and has no memory on; GPUS: none. */
static uint32_t bare_gpu(const struct program *p)
{
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
        if (p->gpus >> gpu & 1 && pages_of(p, gpu) == 0)
            return gpu;
    return GPUS;
}

static void enter(struct program *p)
{
    const struct gm_msg_enter ask = {.cookie = ++p->cookie, .gpu = any_gpu(p)};
    p->unanswered++;
    say(p, GM_MSG_ENTER, &ask);
}

static void ask_for(struct program *p, uint32_t gpu, uint32_t pages)
{
    struct region *region = new_region(p, gpu, pages, REGION_WANTED);
    if (!region)
        return;
    const struct gm_msg_alloc ask = {.cookie = region->cookie,
                                     .va = program_va(region->first),
                                     .bytes = pages * GM_CHUNK_MIN,
                                     .gpu = gpu,
                                     .flags =
                                         !p->is_steady && chance_percent(10) ? GM_ALLOC_AHEAD : 0};
    p->unanswered++;
    say(p, GM_MSG_ALLOC, &ask);
}

static void ask_for_memory(struct program *p, uint32_t gpu)
{
    const uint32_t has = pages_of(p, gpu), most = p->most_pages[gpu];
    const uint32_t left = has < most ? most - has : 0;
    uint32_t pages = 1 + (uint32_t)chance_below(chance_percent(50) ? 4 : left > 0 ? left : 1);
    pages = (pages + machine.unit - 1) / machine.unit * machine.unit;
    if (pages > left && !chance_percent(3))
        return;
    ask_for(p, gpu, pages);
}

/* It is freed: the program does not use it any more, whatever the gate is. */
static void give_back_memory(struct program *p)
{
    struct region *region = any_region(p, REGION_HELD);
    if (!region || region->is_asked_to_share)
        return;
    if (p->may_spare && region->share == 0 && chance_percent(60)) {
        for (unsigned i = 0; i < GM_SPARES_MAX; i++) {
            if (atomic_load(&p->stat->spares[i]) != 0)
                continue;
            region->state = REGION_SPARE;
            region->spare = i;
            region->word = program_va(region->first) | (++p->cookie % 1000) << 2;
            atomic_store(&p->stat->spares[i], region->word);
            return;
        }
    }
    const struct gm_msg_free ask = {.cookie = region->cookie = ++p->cookie,
                                    .va = program_va(region->first)};
    region->state = REGION_FREED;
    say(p, GM_MSG_FREE, &ask);
}

/* A spare becomes an allocation again, unless the daemon has it. */
static void take_spare(struct program *p)
{
    struct region *region = any_region(p, REGION_SPARE);
    uint64_t word = region ? region->word : 0;
    if (region && atomic_compare_exchange_strong(&p->stat->spares[region->spare], &word, 0))
        region->state = REGION_HELD;
}

static void share_region(struct program *p, struct region *region)
{
    const bool is_in_place = p->is_active || is_odd(10); /* else it is refused */
    if (!region || region->is_asked_to_share || region->share || !is_in_place || region->pages > 16)
        return;
    const struct gm_msg_share ask = {.cookie = region->cookie = ++p->cookie,
                                     .va = program_va(region->first)};
    region->is_asked_to_share = true;
    p->unanswered++;
    say(p, GM_MSG_SHARE, &ask);
}

static void share_memory(struct program *p)
{
    share_region(p, any_region(p, REGION_HELD));
}

static void open_region(struct program *p, const struct region *theirs)
{
    struct region *region;
    region = new_region(p, theirs->gpu, theirs->pages, REGION_OPENING);
    if (!region)
        return;
    struct gm_msg_open ask = {.cookie = region->cookie,
                              .va = program_va(region->first),
                              .bytes = theirs->pages * GM_CHUNK_MIN,
                              .share = theirs->share,
                              .gpu = theirs->gpu,
                              .nonce = {theirs->nonce[0], theirs->nonce[1]}};
    region->is_misnamed = draw_percent(&machine.odd, 10);
    ask.nonce[draw(&machine.odd, 2)] ^= (uint64_t)region->is_misnamed << draw(&machine.odd, 64);
    region->ask = ask;
    region->content = theirs->content;
    region->content->refs++;
    p->unanswered++;
    say(p, GM_MSG_OPEN, &ask);
}

static void open_shared(struct program *p)
{
    struct program *owner = &machine.programs[1 + chance_below(machine.n_programs)];
    const struct region *theirs = any_region(owner, REGION_HELD);
    if (theirs && theirs->share != 0)
        open_region(p, theirs);
}

static void shut_shared(struct program *p)
{
    struct region *region = any_region(p, REGION_OPEN);
    if (!region)
        return;
    const struct gm_msg_shut ask = {.cookie = region->cookie, .va = program_va(region->first)};
    region->state = REGION_SHUTTING;
    p->unanswered++;
    say(p, GM_MSG_SHUT, &ask);
}

/* ---- what it marks ---- */

static _Atomic uint64_t *word_of(const struct program *p, uint32_t page)
{
    return (_Atomic uint64_t *)(void *)((char *)p->stat + gm_window_offset(program_va(page)));
}

/* As the shim does. Some programs have kernels that run for windows: until one whose number is a
 * multiple of this. */
#define LASTS 4u

static void mark(struct program *p, uint32_t page)
{
    const uint32_t window = atomic_load(&p->ctl->window);
    _Atomic uint64_t *word = word_of(p, page);
    if (!p->is_marking || p->is_copying)
        return;
    p->works++;
    atomic_store(&p->stat->works_in, window);
    const struct gm_touch first = {.window = window,
                                   .order = (uint32_t)draw(&machine.odd, 1000),
                                   .count = 1 + (uint32_t)draw(&machine.odd, 100)};
    atomic_store(word, gm_touch_is_in(atomic_load(word), window)
                           ? gm_touch_again(atomic_load(word), 1, 0)
                           : gm_touch_pack(first));
    p->marked[page] = window;
    if (atomic_load(&p->stat->lasts_from) != 0 && window % LASTS == 0)
        atomic_store(&p->stat->lasts_from, window);
    if (is_odd(500)) {
        atomic_fetch_add(&p->stat->unseen, 1);
        p->hid_in = window;
    }
    if (is_odd(2000)) { /* any words, anywhere */
        p->is_garbling = true;
        for (uint32_t i = 0; i < PROGRAM_PAGES; i++)
            atomic_store(word_of(p, i), draw(&machine.odd, UINT64_MAX));
    }
}

static void follow_counting(struct program *p)
{
    const bool is_on = (atomic_load(&p->ctl->is_counting) & ~GM_MAY_COUNT) != 0;
    if (is_on != p->is_marking) {
        const uint32_t window = is_on ? atomic_load(&p->ctl->window) : 0;
        atomic_store(&p->stat->lasts_from, p->number % 3 == 1 ? window : 0);
        atomic_store(&p->stat->marks_from, window);
    }
    p->is_marking = is_on;
}

/* What it works on now. */
static bool is_in_part(const struct program *p, const struct region *region)
{
    enum { PARTS = 3 };
    return !p->is_partial ||
           (machine.now / (3 * GM_S) + (uint64_t)(region - p->regions)) % PARTS == 0;
}

static void touch(struct program *p)
{
    struct region *region = any_region(p, chance_percent(90) ? REGION_HELD : REGION_OPEN);
    if (region && !is_in_part(p, region))
        region = NULL;
    p->touches++;
    p->touched_at = machine.now;
    p->is_quiet = false;
    atomic_fetch_add(&p->stat->slot[0].calls, 1);
    const bool is_whole = region && p->is_filling && !region->is_filled; /* as who reads a model */
    const uint32_t most = is_whole ? region->pages : 3;
    for (uint32_t n = 0; region && n < most; n++) {
        const uint32_t i = is_whole ? n : (uint32_t)chance_below(region->pages);
        region->is_filled = true;
        struct page *page = program_page(p, region->first + i);
        require(page, "program %u uses memory that is not mapped", p->number);
        mark(p, region->first + i);
        uint64_t *now = &region->content->tag[i], *before = now + region->content->pages;
        uint64_t tag = chance_percent(10) ? 0 : ++machine.next_tag; /* as if cleared */
        if (p->is_swinging && *now != *before)
            tag = *before; /* it is as it was */
        page->is_back = tag != 0 && *now == 0;
        *before = *now;
        page->tag = *now = tag;
    }
}

static void write_region(struct program *p, struct region *region)
{
    region->is_filled = true;
    for (uint32_t i = 0; i < region->pages; i++) {
        struct page *page = program_page(p, region->first + i);
        require(page, "program %u uses memory that is not mapped", p->number);
        mark(p, region->first + i);
        page->tag = region->content->tag[i] = ++machine.next_tag;
    }
}

static void change_memory(struct program *p)
{
    switch (chance_below(8)) {
    case 0:
    case 1:
    case 2:
        chance_percent(5) ? enter(p) : ask_for_memory(p, any_gpu(p));
        break;
    case 3:
        take_spare(p);
        break;
    case 4:
        if (!machine.is_kept || draw_percent(&machine.odd, 10))
            give_back_memory(p);
        break;
    case 5:
        if (p->may_share)
            share_memory(p);
        break;
    case 6:
        if (p->may_share)
            open_shared(p);
        break;
    case 7:
        if (chance_percent(30))
            shut_shared(p);
        break;
    }
}

static void want(struct program *p)
{
    const uint64_t epoch = atomic_load(&p->ctl->epoch);
    atomic_store(&p->stat->waiting, 1);
    if (p->wanted_at != 0 && p->wanted_epoch == epoch && machine.now < p->wanted_at + GM_S)
        return;
    /* A signal comes now and then; in a calm machine nobody takes others' turns by that. */
    const struct gm_msg_want message = {.is_hurried = !machine.is_calm && chance_percent(5)};
    p->wanted_epoch = epoch;
    p->wanted_at = machine.now;
    say(p, GM_MSG_WANT, &message);
}

/* Its kernels wait for those of another program of its group, which is not active. */
static bool waits_for_others(const struct program *p)
{
    for (uint32_t i = 1; i <= machine.n_programs && machine.groups[p->team].is_tied; i++) {
        const struct program *other = &machine.programs[i];
        if (other != p && other->team == p->team && other->is_joined && other->is_connected &&
            !other->is_dying && !other->is_active)
            return true;
    }
    return false;
}

/* What the driver keeps for it, of any size: it says so itself. */
static void tell_pieces(struct program *p)
{
    static const uint64_t most[] = {GM_CHUNK_MIN, GM_CHUNK_MIN, 5 * GM_CHUNK_MIN, 50 * GM_CHUNK_MIN,
                                    UINT64_MAX};
    _Atomic uint64_t *const kinds[] = {&p->stat->small_bytes, &p->stat->real_bytes,
                                       &p->stat->array_bytes, &p->stat->graph_bytes};
    const uint64_t bytes = draw(&machine.caps, most[draw(&machine.caps, 5)]);
    atomic_store(kinds[draw(&machine.caps, 4)], draw_percent(&machine.caps, 30) ? 0 : bytes);
}

bool program_has_all(const struct program *p)
{
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
        if (p->gpus >> gpu & 1 && pages_of(p, gpu) < p->most_pages[gpu])
            return false;
    return p->is_joined && p->unanswered == 0;
}

bool program_meet(struct program *owner, struct program *opener)
{
    struct region *theirs = NULL;
    for (unsigned i = 0; i < REGIONS && !theirs; i++)
        if (owner->regions[i].state == REGION_HELD && owner->regions[i].pages == SHARED_PAGES)
            theirs = &owner->regions[i];
    for (unsigned i = 0; i < REGIONS && theirs; i++)
        if (opener->regions[i].state == REGION_OPEN &&
            opener->regions[i].content == theirs->content)
            return true;
    if (theirs && theirs->share == 0 && owner->unanswered == 0)
        share_region(owner, theirs);
    else if (theirs && theirs->share != 0 && opener->unanswered == 0)
        open_region(opener, theirs);
    return false;
}

/* It has all its memory from the start, and works without a pause (turns.c). */
static void live_steadily(struct program *p)
{
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++) {
        const uint32_t has = pages_of(p, gpu), most = p->most_pages[gpu];
        const uint32_t unit = machine.has_jobs && has == 0 ? SHARED_PAGES : machine.unit;
        if (p->unanswered == 0 && p->gpus >> gpu & 1 && has < most)
            ask_for(p, gpu, most - has < unit ? most - has : unit);
    }
    if (atomic_load(&p->ctl->gate) != GM_GATE_OPEN || p->is_parked) {
        want(p);
        return;
    }
    atomic_store(&p->stat->waiting, 0);
    p->wanted_at = 0;
    p->touches++;
    p->touched_at = machine.now;
    p->is_quiet = false;
    atomic_fetch_add(&p->stat->slot[0].calls, 1);
    for (unsigned i = 0; i < REGIONS; i++)
        if (p->regions[i].state == REGION_HELD && (i == 0 || !p->regions[i].is_filled))
            write_region(p, &p->regions[i]);
}

/* One thing at a time: memory, work at the open gate, waiting at the closed one, or thinking. */
static void live(struct program *p)
{
    const bool is_open = atomic_load(&p->ctl->gate) == GM_GATE_OPEN;
    follow_counting(p);
    if (p->is_asleep && !p->is_parked) {
        atomic_store(&p->stat->waiting, 0);
        return;
    }
    if (p->is_steady) {
        live_steadily(p);
        return;
    }
    if (!machine.is_ending && !machine.is_calm && chance_below(1000) < 2) {
        p->frozen_at = machine.now;
        p->frozen_until = machine.now + chance_below(chance_percent(50) ? 20 * GM_MS : AWAY_MOST);
        trace("program %lu stops until %lu us", p->number, p->frozen_until / GM_US, 0);
    }
    if (is_odd(1000)) {
        machine.sums.deaf++;
        p->deaf_until = machine.now + draw(&machine.odd, AWAY_MOST);
        if (draw_percent(&machine.odd, 40)) /* and then its GPU has no memory for a mapping */
            p->unmappable_until = p->deaf_until + draw(&machine.odd, GM_S);
        trace("program %lu is deaf until %lu us", p->number, p->deaf_until / GM_US, 0);
    }
    if (machine.has_caps && !machine.is_ending && draw_percent(&machine.caps, 2))
        tell_pieces(p);
    if (p->is_parked && p->is_inside)
        return;
    if (p->is_lost) {
        if (is_open && !p->is_parked)
            touch(p);
        return;
    }
    const bool is_still = p->is_partial && !draw_percent(&machine.parts, 5);
    if (p->unanswered == 0 &&
        (!machine.is_ending ? chance_percent(25) && !is_still : bare_gpu(p) < GPUS))
        machine.is_ending ? ask_for_memory(p, bare_gpu(p)) : change_memory(p);
    if (p->unanswered > 0 && !chance_percent(10))
        return;
    if (p->work == 0 && machine.now >= p->think_until)
        p->work = 1 + chance_below(p->is_lazy ? 5 : 200);
    if (p->work == 0)
        return;
    if (!is_open || p->is_parked) {
        want(p);
        return;
    }
    atomic_store(&p->stat->waiting, 0);
    p->wanted_at = 0;
    p->is_stuck = waits_for_others(p);
    if (p->is_stuck) {
        atomic_fetch_add(&p->stat->slot[0].calls, chance_percent(10));
        return;
    }
    touch(p);
    if (chance_percent(1)) {
        const struct gm_msg_expect expect = {.after_us = chance_below(100000),
                                             .for_us = chance_below(20000)};
        say(p, GM_MSG_EXPECT, &expect);
    }
    if (--p->work == 0)
        p->think_until =
            p->is_hog ? 0 : machine.now + chance_below(p->is_lazy ? 3 * GM_S : 100 * GM_MS);
}

static void on_live(void *arg, uint64_t life, uint64_t unused)
{
    struct program *p = arg;
    (void)unused;
    if (p->life != life || p->is_dying || !p->is_connected)
        return;
    if (machine.now < p->frozen_until) {
        machine_at(p->frozen_until, on_live, p, life, 0);
        return;
    }
    if (p->is_joined)
        live(p);
    /* What was submitted goes on for as long as it takes. */
    else if (p->is_active && p->stat)
        touch(p);
    wake_me(p, !p->is_steady ? 3 * GM_MS : machine.has_jobs ? 2 * GM_MS : 200 * GM_US);
}

static void wake_me(struct program *p, uint64_t usual)
{
    machine_at(machine.now + usual / 4 + chance_below(usual * 3 / 2), on_live, p, p->life, 0);
}

/* ---- with whom it runs ---- */

bool program_has_team(const struct program *p)
{
    if (p->group > 0)
        return true;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (&machine.programs[i] != p && machine.programs[i].team == p->team)
            return true;
    return false;
}

static uint32_t gpus_of_team(uint32_t team, bool *has_name)
{
    uint32_t gpus = 0;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        const struct program *p = &machine.programs[i];
        for (uint32_t gpu = 0; gpu < machine.n_gpus && p->team == team; gpu++)
            gpus |= p->session && app_of(p, gpu) ? 1u << gpu : 0;
    }
    *has_name = team <= GROUPS;
    return gpus;
}

/* Whom it leaves behind they are with one of themselves. */
static void leave_team(struct program *p)
{
    uint32_t team = 0;
    p->team = 0;
    for (uint32_t i = 1; i <= machine.n_programs; i++) {
        struct program *other = &machine.programs[i];
        if (other == p || other->team != GROUPS + p->number)
            continue;
        team = team > 0 ? team : GROUPS + i;
        other->team = team;
    }
    if (team > 0)
        machine.groups[team] = machine.groups[GROUPS + p->number];
}

static void begin_team(struct program *p)
{
    p->team = p->group > 0 ? p->group : GROUPS + p->number;
    if (p->group == 0)
        machine.groups[p->team].is_tied = false;
}

/* With one whose memory it has open, of the same user, on several GPUs, if not each of them said
 * with whom it runs. */
void program_unite(const struct program *p, const struct program *owner)
{
    const uint32_t team = p->team < owner->team ? p->team : owner->team;
    const uint32_t other = p->team < owner->team ? owner->team : p->team;
    bool is_named, is_other_named;
    const uint32_t gpus = gpus_of_team(team, &is_named) | gpus_of_team(other, &is_other_named);
    require(p->uid == owner->uid, "programs %u and %u of two users are to run together", p->number,
            owner->number);
    require(team != other && !(is_named && is_other_named),
            "programs %u and %u are of the groups %u and %u, and are to be of one", p->number,
            owner->number, p->group, owner->group);
    require((gpus & (gpus - 1)) != 0, "programs %u and %u use one GPU, and are to run together",
            p->number, owner->number);
    machine.groups[team].is_tied = machine.groups[team].is_tied || machine.groups[other].is_tied ||
                                   draw_percent(&machine.odd, 60);
    machine.groups[team].split_at = 0;
    for (uint32_t i = 1; i <= machine.n_programs; i++)
        if (machine.programs[i].team == team || machine.programs[i].team == other) {
            machine.programs[i].team = team;
            machine.programs[i].turns_alone = machine.programs[i].turns;
        }
    machine.sums.unions++;
}

/* ---- from its start to its end ---- */

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
        machine_at(behind(&p->up_at, 100 * GM_US), on_eof, session, p->app, 0);
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
        unmap_page(&at);
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

static void forget_memory(struct program *p)
{
    for (uint32_t i = 0; i < PROGRAM_PAGES; i++)
        if (p->map[i].handle != NO_HANDLE)
            unmap_page(&p->map[i]);
    for (unsigned i = 0; i < IMPORTS; i++)
        if (p->imports[i].frame) {
            p->imports[i].frame = 0;
            handle_unref((int)p->imports[i].handle);
        }
    for (unsigned i = 0; i < REGIONS; i++)
        end_content(p->regions[i].content);
    memset(p->regions, 0, sizeof p->regions);
    for (uint32_t i = 0; i < PROGRAM_PAGES; i++)
        p->map[i] = (struct mapping){.region = NO_REGION};
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
    leave_team(p);
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
    begin_team(p);
    p->may_share = machine.has_sharing && chance_percent(70);
    p->may_park = chance_percent(60);
    p->may_spare = chance_percent(40);
    p->is_lazy = chance_percent(40);
    p->is_swinging = draw_percent(&machine.odd, 25);
    p->is_partial = machine.config.fits_working_sets && draw_percent(&machine.parts, 50);
    p->is_copying = machine.config.fits_working_sets && draw_percent(&machine.parts, 10);
    p->is_filling = machine.is_full || draw_percent(&machine.odd, 60);
    machine_at(machine.now + chance_time(GM_MS), on_hello, p, p->life, 0);
    wake_me(p, GM_MS);
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
    if (p->session == session)
        p->session = NULL;
    gm_machine_leave(&machine.daemon, (uint32_t)a);
    free(session);
}

static void end_connection(struct program *p)
{
    if (!p->is_connected)
        return;
    p->is_connected = false;
    if (p->session)
        machine_at(behind(&p->up_at, 100 * GM_US), on_eof, p->session, p->app, 0);
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
    forget_memory(p);
    forget_pages(p);
    p->is_active = p->is_dying = false;
    if (has_executed && !p->has_copies && !machine.is_ending && !p->session) {
        program_start(p, true);
        return;
    }
    trace("process of program %lu ends", p->number, 0, 0);
    p->is_there = p->is_lost = false;
    p->life++;
    uv_fake_exit(p->pid);
    deaths_program_ended(p);
}

/* Its process ends after `time`, which may be longer than the daemon waits for it, but not for
 * ever: it keeps memory of the GPU. */
static void end_process(struct program *p, uint64_t time, bool executes)
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
    const uint64_t usual = machine.is_calm || chance_percent(80) ? 3 * GM_MS : 8 * GM_S;
    const uint64_t time = chance_time(usual);
    end_process(p, time, chance_percent(10));
}

void program_leave(struct program *p)
{
    program_die(p);
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
    end_process(p, chance_time(GM_S), false);
}

/* ---- a daemon that dies, and another one ---- */

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
        free_mail(rest);
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
        machine_at(behind(&p->down_at, 100 * GM_US), on_lost, p, p->life, machine.daemon_life);
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
    end_process(p, chance_time(GM_S), false);
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
            say(p, GM_MSG_ALLOC, &alloc);
        else if (region->state == REGION_FREED)
            say(p, GM_MSG_FREE, &give);
        else if (region->state == REGION_OPENING)
            say(p, GM_MSG_OPEN, &region->ask);
        else if (region->state == REGION_SHUTTING)
            say(p, GM_MSG_SHUT, &shut);
        else
            say(p, GM_MSG_SHARE, &share);
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
