/* What a program asks the daemon for: memory, sharing, GPUs. */
#include "tests/sim/engine/program.h"

uint32_t program_pages(const struct program *p, uint32_t gpu)
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
uint32_t program_bare_gpu(const struct program *p)
{
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
        if (p->gpus >> gpu & 1 && program_pages(p, gpu) == 0)
            return gpu;
    return GPUS;
}

static void enter(struct program *p)
{
    const struct gm_msg_enter ask = {.cookie = ++p->cookie, .gpu = any_gpu(p)};
    p->unanswered++;
    program_say(p, GM_MSG_ENTER, &ask);
}

void program_ask_for(struct program *p, uint32_t gpu, uint32_t pages)
{
    struct region *region = program_new_region(p, gpu, pages, REGION_WANTED);
    if (!region)
        return;
    const struct gm_msg_alloc ask = {.cookie = region->cookie,
                                     .va = program_va(region->first),
                                     .bytes = pages * GM_CHUNK_MIN,
                                     .gpu = gpu,
                                     .flags =
                                         !p->is_steady && chance_percent(10) ? GM_ALLOC_AHEAD : 0};
    p->unanswered++;
    program_say(p, GM_MSG_ALLOC, &ask);
}

void program_ask_for_memory(struct program *p, uint32_t gpu)
{
    const uint32_t has = program_pages(p, gpu), most = p->most_pages[gpu];
    const uint32_t left = has < most ? most - has : 0;
    uint32_t pages = 1 + (uint32_t)chance_below(chance_percent(50) ? 4 : left > 0 ? left : 1);
    pages = (pages + machine.unit - 1) / machine.unit * machine.unit;
    if (pages > left && !chance_percent(3))
        return;
    program_ask_for(p, gpu, pages);
}

/* It is freed: the program does not use it any more, whatever the gate is. */
static void give_back_memory(struct program *p)
{
    struct region *region = program_any_region(p, REGION_HELD);
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
    program_say(p, GM_MSG_FREE, &ask);
}

/* A spare becomes an allocation again, unless the daemon has it. */
static void take_spare(struct program *p)
{
    struct region *region = program_any_region(p, REGION_SPARE);
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
    program_say(p, GM_MSG_SHARE, &ask);
}

static void share_memory(struct program *p)
{
    share_region(p, program_any_region(p, REGION_HELD));
}

static void open_region(struct program *p, const struct region *theirs)
{
    struct region *region;
    region = program_new_region(p, theirs->gpu, theirs->pages, REGION_OPENING);
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
    program_say(p, GM_MSG_OPEN, &ask);
}

static void open_shared(struct program *p)
{
    struct program *owner = &machine.programs[1 + chance_below(machine.n_programs)];
    const struct region *theirs = program_any_region(owner, REGION_HELD);
    if (theirs && theirs->share != 0)
        open_region(p, theirs);
}

static void shut_shared(struct program *p)
{
    struct region *region = program_any_region(p, REGION_OPEN);
    if (!region)
        return;
    const struct gm_msg_shut ask = {.cookie = region->cookie, .va = program_va(region->first)};
    region->state = REGION_SHUTTING;
    p->unanswered++;
    program_say(p, GM_MSG_SHUT, &ask);
}

void program_change_memory(struct program *p)
{
    switch (chance_below(8)) {
    case 0:
    case 1:
    case 2:
        chance_percent(5) ? enter(p) : program_ask_for_memory(p, any_gpu(p));
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

bool program_has_all(const struct program *p)
{
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
        if (p->gpus >> gpu & 1 && program_pages(p, gpu) < p->most_pages[gpu])
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
