/* What a program does: it touches memory at the open gate, marks what it touches, waits, thinks. */
#include "tests/sim/engine/program.h"

#include "common/windows.h"

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
    struct region *region = program_any_region(p, chance_percent(90) ? REGION_HELD : REGION_OPEN);
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
    program_say(p, GM_MSG_WANT, &message);
}

void program_hurry(struct program *p)
{
    const struct gm_msg_want message = {.is_hurried = true};
    program_say(p, GM_MSG_WANT, &message);
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

/* It has all its memory from the start, and works without a pause (turns.c). */
static void live_steadily(struct program *p)
{
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++) {
        const uint32_t has = program_pages(p, gpu), most = p->most_pages[gpu];
        const uint32_t unit = machine.has_jobs && has == 0 ? SHARED_PAGES : machine.unit;
        if (p->unanswered == 0 && p->gpus >> gpu & 1 && has < most)
            program_ask_for(p, gpu, most - has < unit ? most - has : unit);
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
        (!machine.is_ending ? chance_percent(25) && !is_still : program_bare_gpu(p) < GPUS))
        machine.is_ending ? program_ask_for_memory(p, program_bare_gpu(p))
                          : program_change_memory(p);
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
        program_say(p, GM_MSG_EXPECT, &expect);
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
    program_wake(p, !p->is_steady ? 3 * GM_MS : machine.has_jobs ? 2 * GM_MS : 200 * GM_US);
}

void program_start_steady(struct program *p, uint32_t uid, uint64_t mib, uint64_t cap)
{
    program_start(p, false);
    p->uid = uid;
    p->is_steady = true;
    p->work = UINT64_MAX;
    p->may_park = p->may_share = p->may_spare = false;
    p->wishes = (struct gm_wishes){.cap_is = cap > 0 ? GM_HELLO_CAP_OURS : GM_HELLO_CAP_UNSAID,
                                   .cap = cap * GM_MIB};
    p->most_pages[0] = (uint32_t)(mib * GM_MIB >> GM_CHUNK_SHIFT);
}

void program_wake(struct program *p, uint64_t usual)
{
    machine_at(machine.now + usual / 4 + chance_below(usual * 3 / 2), on_live, p, p->life, 0);
}
