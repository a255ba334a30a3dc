/*
 * daemon/engine/moves and chunks: for whom memory is staged while nobody waits for it, how
 * much of that is under way at once, when an evicted frame is free, and when it is cleared. The
 * engine around them is
 * this test: copies end and programs answer when it says so, and the order of next use is the order
 * of the programs.
 */
#include "tests/unit/plan_world.h"

#include "daemon/engine/batches.h"
#include "daemon/engine/caps.h"
#include "daemon/engine/chunks.h"
#include "daemon/engine/copies.h"
#include "daemon/engine/feed.h"
#include "daemon/engine/frames.h"
#include "daemon/engine/host.h"
#include "daemon/engine/memory.h"
#include "daemon/engine/moves.h"
#include "daemon/engine/places.h"
#include "daemon/engine/run.h"
#include "daemon/engine/shadows.h"
#include "daemon/engine/shares.h"
#include "daemon/engine/state.h"

enum { RUNNING, FIRST, SECOND, LAST, APPS };

/* Sets of one program each. */
static const uint32_t set_of[APPS] = {RUNNING, FIRST, SECOND, LAST};

static struct world world;
static struct gm_engine *engine;
static struct gm_host host_memory;
static bool is_expected[APPS];
static uint64_t submitted[GM_WAYS], ended[GM_WAYS]; /* bytes */
static uint64_t copies[GM_WAYS], copies_ended[GM_WAYS];
static uint64_t sizes[GM_WAYS][GM_WAY_DEPTH]; /* of the copies, by number */
static unsigned clears;                       /* of the copies in */
static uint64_t last_fence;                   /* of the newest copy in */
static unsigned maps;
static unsigned wants;                  /* times that more pinned memory was asked for */
static uint32_t unmaps[4 * MAX_CHUNKS]; /* chunks to be unmapped, in their order */
static unsigned n_unmaps, unmaps_answered;
static uint32_t
    host[MAX_CHUNKS]; /* chunks that are copied between the tiers below, in their order */
static unsigned n_host, host_ended;
static uint64_t up, down; /* bytes */

/* ---- what is around it ---- */

/* A page's number says how much is there. */
static uint32_t page_of(uint64_t bytes)
{
    return (uint32_t)(bytes >> GM_CHUNK_SHIFT);
}

uint64_t gm_engine_expected(const struct gm_engine *e, uint32_t app)
{
    return is_expected[app] ? e->now + app : GM_TIME_NEVER;
}

bool gm_engine_is_later(const struct gm_engine *e, uint32_t a, uint32_t b)
{
    const uint64_t at_a = gm_engine_expected(e, a), at_b = gm_engine_expected(e, b);
    return at_a != at_b ? at_a > at_b : a > b;
}

uint64_t gm_mover_room(const struct gm_mover *mover, enum gm_way way)
{
    (void)mover;
    return GM_WAY_DEPTH - 1 - (copies[way] - copies_ended[way]);
}

uint64_t gm_mover_done(const struct gm_mover *mover, enum gm_way way)
{
    (void)mover;
    return copies_ended[way];
}

uint64_t gm_mover_under_way(const struct gm_mover *mover, enum gm_way way)
{
    (void)mover;
    return submitted[way] - ended[way];
}

uint64_t gm_mover_submit(struct gm_mover *mover, enum gm_way way, CUdeviceptr device,
                         const struct gm_hostpool *pool, uint32_t page, uint64_t bytes,
                         uint64_t fence)
{
    (void)mover, (void)device, (void)pool, (void)page;
    assert_true(copies[way] - copies_ended[way] < GM_WAY_DEPTH - 1);
    submitted[way] += bytes;
    if (way == GM_WAY_IN)
        last_fence = fence;
    sizes[way][++copies[way] % GM_WAY_DEPTH] = bytes;
    return copies[way];
}

uint64_t gm_mover_clear(struct gm_mover *mover, CUdeviceptr device, uint64_t bytes, uint64_t fence)
{
    clears++;
    assert_true(bytes >= GM_CHUNK_MIN);
    return gm_mover_submit(mover, GM_WAY_IN, device, NULL, 0, 0, fence);
}

CUresult gm_mover_result(const struct gm_mover *mover, enum gm_way way, uint64_t number)
{
    (void)mover, (void)way, (void)number;
    return CUDA_SUCCESS;
}

const char *gm_cuda_text(const struct gm_cuda *cuda, CUresult result)
{
    (void)cuda, (void)result;
    return "refused";
}

bool gm_engine_may_occupy(const struct gm_engine *e, uint32_t id, uint64_t bytes)
{
    return e->apps[id].cap.bytes == 0 || e->table->apps[id].device + bytes <= e->apps[id].cap.bytes;
}
bool gm_engine_is_vacating(const struct gm_engine *e, uint32_t id)
{
    (void)e;
    (void)id;
    return false;
}

uint64_t gm_engine_above_cap(const struct gm_engine *e, uint32_t id)
{
    const uint64_t cap = e->apps[id].cap.bytes, there = e->table->apps[id].resident;
    return cap > 0 && there > cap ? there - cap : 0;
}
uint32_t gm_engine_take_pages(struct gm_engine *e, const struct gm_chunk *chunk)
{
    return gm_engine_take_pinned(e, gm_chunk_bytes(chunk));
}

void *gm_hostpool_memory(const struct gm_hostpool *pool, uint32_t page)
{
    (void)pool, (void)page;
    fail_msg("nothing is mapped on the host");
    return NULL;
}

uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier)
{
    (void)stores;
    return world.cap[tier];
}

uint64_t gm_stores_used(const struct gm_stores *stores, enum gm_tier tier)
{
    (void)stores;
    return world.used[tier];
}

uint32_t gm_stores_take(struct gm_stores *stores, enum gm_tier tier, uint64_t bytes)
{
    (void)stores;
    if (world.used[tier] + bytes > world.cap[tier])
        return GM_NONE;
    world.used[tier] += bytes;
    return page_of(bytes);
}

void gm_stores_free(struct gm_stores *stores, enum gm_tier tier, uint32_t page)
{
    (void)stores;
    world.used[tier] -= page * GM_CHUNK_MIN;
}

void gm_stores_copy(struct gm_stores *stores, uint32_t chunk, enum gm_tier from, uint32_t from_page,
                    enum gm_tier to, uint32_t to_page, uint64_t bytes)
{
    (void)stores, (void)from_page, (void)to_page;
    assert_int_equal(bytes, bytes_of(&world, chunk));
    host[n_host++] = chunk;
    *(to == GM_TIER_PINNED ? &up : &down) += bytes;
    assert_int_not_equal(from, to);
}

/* Without shadows nothing is hashed. */

int gm_hasher_open(struct gm_hasher **hasher, uv_loop_t *loop, const struct gm_cuda *cuda,
                   CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                   size_t why_size)
{
    (void)hasher, (void)loop, (void)cuda, (void)context, (void)on_done, (void)arg, (void)why;
    (void)why_size;
    fail_msg("no hasher is asked for");
    return -1;
}

uint64_t gm_hasher_room(const struct gm_hasher *hasher)
{
    (void)hasher;
    fail_msg("nothing is hashed");
    return 0;
}

uint64_t gm_hasher_submit(struct gm_hasher *hasher, CUdeviceptr device, uint64_t bytes)
{
    (void)device, (void)bytes;
    return gm_hasher_room(hasher);
}

uint64_t gm_hasher_done(const struct gm_hasher *hasher)
{
    return gm_hasher_room(hasher);
}

CUresult gm_hasher_result(const struct gm_hasher *hasher, uint64_t number, struct gm_hashed *hashed)
{
    (void)number, (void)hashed;
    return (CUresult)gm_hasher_room(hasher);
}

uint32_t gm_engine_make_frame(struct gm_engine *e, const struct gm_chunk *chunk)
{
    return gm_table_add_frame(e->table, e->table->apps[chunk->app].pool, chunk->class);
}

void gm_engine_want_memory(struct gm_engine *e)
{
    assert_true(e->is_stuck_for_pages);
    wants++;
}

void gm_engine_batch(struct gm_engine *e, uint32_t app, enum gm_batch_kind kind, uint32_t item)
{
    assert_int_equal(e->table->chunks[item].app, app);
    assert_true(e->table->chunks[item].map_pending);
    maps += kind == GM_BATCH_MAP;
    if (kind == GM_BATCH_UNMAP)
        unmaps[n_unmaps++] = item;
}

/* As gm_engine_run does. */
static void clear_frames(void)
{
    if (engine->plan_from == engine->plan.n)
        gm_engine_clear_frames(engine);
}

struct gm_batch *gm_engine_take_unanswered(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
    return NULL;
}

uint32_t gm_engine_take_unsent(struct gm_engine *e, uint32_t app)
{
    (void)e, (void)app;
    return GM_NONE;
}

void gm_engine_map(struct gm_engine *e, uint32_t chunk)
{
    gm_engine_batch(e, e->table->chunks[chunk].app, GM_BATCH_MAP, chunk);
}

void gm_engine_unmap(struct gm_engine *e, uint32_t chunk)
{
    gm_engine_batch(e, e->table->chunks[chunk].app, GM_BATCH_UNMAP, chunk);
}

static int send_message(struct gm_session *session, enum gm_msg_type type, const void *body,
                        const void *entries, uint32_t count, const int *fds, int n_fds)
{
    (void)session, (void)type, (void)body, (void)entries, (void)count, (void)fds, (void)n_fds;
    fail_msg("nobody is told anything");
    return 0;
}

void gm_engine_leave_share(struct gm_engine *e, uint32_t frame)
{
    (void)e, (void)frame;
    fail_msg("nothing is shared");
}

void gm_engine_run(struct gm_engine *e)
{
    (void)e;
    fail_msg("no copy below ends by itself");
}

void gm_engine_condemn(struct gm_engine *e, uint32_t frame, uint32_t exit_of)
{
    if (exit_of == GM_NONE)
        fail_msg("every frame is of use");
    gm_table_condemn_frame(e->table, frame, GM_NONE);
}

void gm_engine_ping(struct gm_engine *e, uint32_t app)
{
    e->apps[app].batches.ping = 1;
}

/* ---- the world ---- */

static int set_up(void **state)
{
    (void)state;
    engine = calloc(1, sizeof *engine);
    host_memory = (struct gm_host){0};
    engine->host = &host_memory;
    engine->config.max_apps = APPS;
    engine->config.outlet.send = send_message;
    engine->config.is_prefetching = true;
    engine->now = 10 * GM_S;
    engine->apps = calloc(APPS, sizeof *engine->apps);
    engine->targets = calloc(APPS, sizeof *engine->targets);
    engine->victims = calloc(APPS, sizeof *engine->victims);
    engine->donors = calloc(APPS, sizeof *engine->donors);
    engine->in_set = calloc(APPS, sizeof *engine->in_set);
    engine->late = calloc(MAX_CHUNKS, sizeof *engine->late);
    engine->frames.handles = calloc(MAX_FRAMES, sizeof *engine->frames.handles);
    engine->failed = calloc(MAX_CHUNKS, sizeof *engine->failed);
    engine->plan.moves = world.moves;
    engine->plan.capacity = MAX_MOVES;
    for (unsigned way = 0; way < GM_WAYS; way++)
        engine->ring[way] = calloc(GM_WAY_DEPTH, sizeof *engine->ring[way]);
    memset(submitted, 0, sizeof submitted);
    memset(ended, 0, sizeof ended);
    memset(copies, 0, sizeof copies);
    memset(copies_ended, 0, sizeof copies_ended);
    maps = wants = n_host = host_ended = n_unmaps = unmaps_answered = clears = 0;
    up = down = 0;
    return 0;
}

/* A GPU of so much, and ample pinned memory; program 0 runs, the others wait. */
static void begin(uint64_t budget)
{
    make_world(&world, budget, 1);
    world.cap[GM_TIER_PINNED] = 4096 * MIB;
    engine->table = world.table;
    for (uint32_t id = 0; id < APPS; id++) {
        assert_true(gm_table_add_app(world.table, id, 1000));
        engine->apps[id] = (struct gm_app){
            .state = id == RUNNING ? GM_APP_RUNNING : GM_APP_PAUSED,
            .gate.answered_at = engine->now,
            .ctl = calloc(1, sizeof *engine->apps[id].ctl),
        };
        is_expected[id] = true;
    }
    engine->in_set[RUNNING] = true;
    engine->decision.set = &set_of[RUNNING];
    engine->decision.n_set = 1;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < APPS; id++)
        free(engine->apps[id].ctl);
    free(world.memory);
    world.memory = NULL;
    for (unsigned way = 0; way < GM_WAYS; way++)
        free(engine->ring[way]);
    free(engine->frames.handles);
    free(engine->late);
    free(engine->failed);
    free(engine->in_set);
    free(engine->donors);
    free(engine->victims);
    free(engine->targets);
    free(engine->apps);
    free(engine);
    return 0;
}

/* `app` has `bytes` more, whole chunks, all of it in this tier. */
static void have(uint32_t app, uint64_t bytes, enum gm_tier tier)
{
    const uint32_t index = allocate(&world, app, bytes);
    for (uint32_t c = world.table->allocations[index].first; c != GM_NONE;
         c = world.table->chunks[c].sibling) {
        struct gm_chunk *chunk = chunk_of(&world, c);
        if (tier == GM_TIER_GPU) {
            to_gpu(world.table, c, gm_engine_make_frame(engine, chunk));
        } else if (tier != GM_TIER_NONE) {
            world.used[tier] += bytes_of(&world, c);
            to_tier(world.table, c, tier, page_of(bytes_of(&world, c)));
        }
    }
    assert_null(gm_table_check(world.table));
}

/* Bytes that the plan brings in for an app, and evicts of it. */
static uint64_t planned(enum gm_move_kind kind, uint32_t app)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < engine->plan.n; i++)
        if (engine->plan.moves[i].kind == kind &&
            world.table->chunks[engine->plan.moves[i].chunk].app == app)
            bytes += bytes_of(&world, engine->plan.moves[i].chunk);
    return bytes;
}

/* The GPU is full with what runs and what comes last; those between lack memory. */
static void fill_up(void)
{
    begin(160 * MIB);
    have(RUNNING, 96 * MIB, GM_TIER_GPU);
    have(FIRST, 64 * MIB, GM_TIER_PINNED);
    have(SECOND, 96 * MIB, GM_TIER_PINNED);
    have(LAST, 64 * MIB, GM_TIER_GPU);
    have(LAST, 32 * MIB, GM_TIER_PINNED);
}

/* `app` is chosen, and nobody else. */
static void choose(uint32_t app)
{
    engine->apps[RUNNING].state = GM_APP_PAUSED;
    engine->in_set[RUNNING] = false;
    engine->apps[app].state = GM_APP_LOADING;
    engine->in_set[app] = true;
    engine->decision.set = &set_of[app];
}

/* The next chunks are unmapped. */
static void answer_unmaps(unsigned n)
{
    for (; n > 0; n--) {
        const uint32_t index = unmaps[unmaps_answered++];
        gm_table_end_map(world.table, index, false);
        gm_engine_settle(engine, index);
    }
}

/* All moves that can be made, by programs that unmap at once. */
static void move_all(void)
{
    gm_engine_move(engine);
    while (unmaps_answered < n_unmaps) {
        answer_unmaps(n_unmaps - unmaps_answered);
        gm_engine_move(engine);
    }
}

static void begin_tiers(uint64_t budget, uint64_t window, uint64_t pinned, uint64_t paged)
{
    begin(budget);
    world.cap[GM_TIER_PINNED] = pinned;
    world.cap[GM_TIER_PAGED] = paged;
    host_memory.has_lower = true;
    host_memory.window = window;
    host_memory.reserve = 96 * MIB;
}

/* ---- for whom ---- */

static void staged_for_the_next(void **state)
{
    (void)state;
    fill_up();
    gm_engine_plan(engine);
    assert_true(engine->plan_is_prefetch);
    assert_int_equal(planned(GM_MOVE_EVICT, LAST), 64 * MIB);
    assert_int_equal(planned(GM_MOVE_FILL, FIRST), 64 * MIB);
    assert_int_equal(planned(GM_MOVE_FILL, SECOND), 0);
    move_all();
    assert_int_equal(submitted[GM_WAY_OUT], 64 * MIB);
    assert_int_equal(submitted[GM_WAY_IN], 64 * MIB);
    assert_int_equal(maps, 2);
}

/* Nobody gives up anything for an idle program; that does not hold up those that wait behind it. */
static void an_idle_one_is_passed_over(void **state)
{
    (void)state;
    fill_up();
    engine->apps[FIRST].idle.is_idle = true;
    gm_engine_plan(engine);
    assert_true(engine->plan_is_prefetch);
    assert_int_equal(planned(GM_MOVE_FILL, FIRST), 0);
    assert_int_equal(planned(GM_MOVE_EVICT, LAST), 64 * MIB);
    assert_int_equal(planned(GM_MOVE_FILL, SECOND), 64 * MIB);
}

/* But what is free is its. */
static void an_idle_one_has_what_is_free(void **state)
{
    (void)state;
    begin(160 * MIB);
    have(RUNNING, 96 * MIB, GM_TIER_GPU);
    have(FIRST, 64 * MIB, GM_TIER_PINNED);
    have(SECOND, 96 * MIB, GM_TIER_PINNED);
    engine->apps[FIRST].idle.is_idle = true;
    gm_engine_plan(engine);
    assert_int_equal(planned(GM_MOVE_FILL, FIRST), 64 * MIB);
    assert_int_equal(planned(GM_MOVE_FILL, SECOND), 0);
}

static void not_for_who_cannot_have_it(void **state)
{
    (void)state;
    fill_up();
    is_expected[SECOND] = is_expected[LAST] = false;
    engine->apps[FIRST].retry.at = engine->now + 1;
    gm_engine_plan(engine);
    assert_int_equal(engine->plan.n, 0);
    engine->apps[FIRST].retry.at = 0;
    gm_table_set_silent(world.table, FIRST, true);
    gm_engine_plan(engine);
    assert_int_equal(engine->plan.n, 0);
    gm_table_set_silent(world.table, FIRST, false);
    gm_engine_plan(engine);
    assert_int_equal(planned(GM_MOVE_FILL, FIRST), 64 * MIB);
    is_expected[FIRST] = false;
    gm_engine_plan(engine);
    assert_int_equal(engine->plan.n, 0);
}

/* One that waits for memory comes before all of that, and one whose turn comes as well. */
static void not_while_somebody_waits(void **state)
{
    (void)state;
    fill_up();
    choose(SECOND);
    gm_engine_plan(engine);
    assert_false(engine->plan_is_prefetch);
    assert_int_equal(planned(GM_MOVE_FILL, SECOND), 96 * MIB);
    assert_int_equal(planned(GM_MOVE_EVICT, LAST), 64 * MIB); /* the farthest first */

    engine->apps[SECOND].batches.ping =
        1; /* nothing is moved until it has answered, ahead neither */
    gm_engine_plan(engine);
    assert_int_equal(engine->plan.n, 0);
}

/* ---- how much at once ---- */

/* What is staged leaves the link to who must run at once after 5 ms; a switch takes all of it. */
static void little_is_under_way(void **state)
{
    (void)state;
    begin(4096 * MIB);
    have(FIRST, 2048 * MIB, GM_TIER_PINNED);
    gm_engine_plan(engine);
    assert_int_equal(planned(GM_MOVE_FILL, FIRST), 2048 * MIB);
    move_all();
    assert_int_equal(submitted[GM_WAY_IN], 256 * MIB);
    move_all();
    assert_int_equal(submitted[GM_WAY_IN], 256 * MIB);
    ended[GM_WAY_IN] += 32 * MIB;
    move_all();
    assert_int_equal(submitted[GM_WAY_IN], 288 * MIB);

    choose(FIRST);
    gm_engine_plan(engine);
    assert_false(engine->plan_is_prefetch);
    move_all();
    assert_int_equal(submitted[GM_WAY_IN], 2048 * MIB);
}

/* And when it is exchanged, each way. */
static void little_is_exchanged_at_once(void **state)
{
    (void)state;
    begin(2048 * MIB);
    have(FIRST, 2048 * MIB, GM_TIER_PINNED);
    have(LAST, 2048 * MIB, GM_TIER_GPU);
    gm_engine_plan(engine);
    move_all();
    assert_int_equal(submitted[GM_WAY_OUT], 256 * MIB);
    assert_int_equal(submitted[GM_WAY_IN], 256 * MIB);
    ended[GM_WAY_OUT] += 256 * MIB;
    move_all();
    assert_int_equal(submitted[GM_WAY_OUT], 512 * MIB);
    assert_int_equal(submitted[GM_WAY_IN], 256 * MIB);
    ended[GM_WAY_IN] += 256 * MIB;
    move_all();
    assert_int_equal(submitted[GM_WAY_IN], 512 * MIB);
}

/* The next copies between the tiers below end, as gm_engine_copied_host takes it. */
static void end_below(unsigned n)
{
    for (; n > 0; n--) {
        const uint32_t index = host[host_ended++];
        struct gm_chunk *chunk = chunk_of(&world, index);
        gm_engine_end_below(engine, index);
        world.used[chunk->tier] -= bytes_of(&world, index);
        settle_chunk(world.table, index);
    }
}

/* The next copy of a way ends; what it brings is mapped by then. */
static void end_copy(enum gm_way way)
{
    const uint32_t index = engine->ring[way][++copies_ended[way] % GM_WAY_DEPTH];
    ended[way] += sizes[way][copies_ended[way] % GM_WAY_DEPTH];
    if (index != GM_NONE)
        gm_table_end_map(world.table, index, false);
    gm_engine_take_copies(engine);
    assert_true(index == GM_NONE || gm_chunk_is_still(chunk_of(&world, index)));
}

/* Nor is pinned memory full of what is to be copied down when its turn comes. */
static void little_goes_down_at_once(void **state)
{
    (void)state;
    begin_tiers(2048 * MIB, 256 * MIB, 2048 * MIB, 8192 * MIB);
    have(RUNNING, 2048 * MIB, GM_TIER_GPU);
    have(FIRST, 2048 * MIB, GM_TIER_PAGED);
    have(LAST, 1760 * MIB, GM_TIER_PINNED);
    gm_engine_plan(engine);
    assert_true(planned(GM_MOVE_DEMOTE, LAST) >= 1024 * MIB);
    assert_true(planned(GM_MOVE_PROMOTE, FIRST) >= 1024 * MIB);
    for (unsigned i = 0; i < 20; i++) {
        move_all();
        assert_int_equal(engine->host_bytes, 256 * MIB);
        end_below(i % 3 + 1);
    }
    assert_true(up > 0 && down > 0);

    /* a switch has more of it at once */
    choose(FIRST);
    gm_engine_plan(engine);
    move_all();
    assert_int_equal(engine->host_bytes, 512 * MIB);
}

/* What goes down for a switch is ready from its start, and does not come before all that comes up.
 */
static void raises_do_not_wait_for_all_lowers(void **state)
{
    (void)state;
    begin_tiers(2048 * MIB, 256 * MIB, 2048 * MIB, 8192 * MIB);
    have(SECOND, 2048 * MIB, GM_TIER_GPU);
    have(LAST, 1792 * MIB, GM_TIER_PINNED);
    have(FIRST, 2048 * MIB, GM_TIER_PAGED);
    choose(FIRST);
    gm_engine_plan(engine);
    assert_int_equal(planned(GM_MOVE_DEMOTE, LAST), 1792 * MIB);
    for (unsigned i = 0; up < 1024 * MIB; i++) {
        move_all();
        assert_true(down <= up + 512 * MIB + 256 * MIB);
        if (copies[GM_WAY_OUT] > copies_ended[GM_WAY_OUT])
            end_copy(GM_WAY_OUT);
        if (copies[GM_WAY_IN] > copies_ended[GM_WAY_IN])
            end_copy(GM_WAY_IN);
        end_below(1);
    }
    assert_true(submitted[GM_WAY_IN] >= 512 * MIB);
}

/* The disk is slow, and what goes there does not keep up what memory can do meanwhile. */
static void the_disk_has_a_share_of_its_own(void **state)
{
    (void)state;
    begin_tiers(2048 * MIB, 256 * MIB, 2048 * MIB, 640 * MIB);
    world.cap[GM_TIER_DISK] = 8192 * MIB;
    have(SECOND, 2048 * MIB, GM_TIER_GPU);
    have(LAST, 1792 * MIB, GM_TIER_PINNED);
    have(FIRST, 512 * MIB, GM_TIER_PAGED);
    have(FIRST, 1536 * MIB, GM_TIER_DISK);
    choose(FIRST);
    gm_engine_plan(engine);
    move_all();
    assert_int_equal(engine->disk_bytes, 512 * MIB);
    assert_true(engine->host_bytes > 0);
}

/* Where the plan's first move of a kind is. */
static uint32_t first_of(enum gm_move_kind kind)
{
    uint32_t at = 0;
    while (at < engine->plan.n && engine->plan.moves[at].kind != kind)
        at++;
    return at;
}

static uint64_t planned_for_disk(void)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < engine->plan.n; i++)
        if (engine->plan.moves[i].kind == GM_MOVE_DEMOTE &&
            engine->plan.moves[i].to_tier == GM_TIER_DISK)
            bytes += bytes_of(&world, engine->plan.moves[i].chunk);
    return bytes;
}

/* While it cannot be written, a switch does with less of the window; it is short of the disk only
 * if that is not enough. */
static void the_disk_is_closed_after_an_error(void **state)
{
    (void)state;
    begin_tiers(2048 * MIB, 256 * MIB, 2048 * MIB, 1920 * MIB);
    world.cap[GM_TIER_DISK] = 8192 * MIB;
    have(SECOND, 2048 * MIB, GM_TIER_GPU);
    have(LAST, 1792 * MIB, GM_TIER_PINNED);
    have(FIRST, 1280 * MIB, GM_TIER_PAGED);
    have(FIRST, 768 * MIB, GM_TIER_DISK);
    choose(FIRST);
    gm_engine_plan(engine);
    assert_int_equal(planned_for_disk(), 128 * MIB);

    engine->retries[GM_RETRY_BELOW].at = engine->now + GM_S;
    gm_engine_plan(engine);
    assert_int_equal(planned_for_disk(), 0);
    assert_int_equal(planned(GM_MOVE_FILL, FIRST), 2048 * MIB);
    assert_true(first_of(GM_MOVE_DEMOTE) <
                first_of(GM_MOVE_EVICT)); /* it waits for no room there */
    assert_int_equal(engine->short_from, engine->short_to);

    world.cap[GM_TIER_PAGED] = 1536 * MIB;
    gm_engine_plan(engine);
    assert_true(engine->short_from == 0 && engine->short_to == 1);
    assert_int_equal(engine->plan.n, 0); /* SECOND stays whole: FIRST would not be */

    engine->apps[FIRST].state = GM_APP_RUNNING; /* it grows, and takes what it can get */
    gm_engine_plan(engine);
    assert_true(engine->short_from == 0 && engine->short_to == 1);
    assert_int_equal(planned_for_disk(), 0);
    assert_true(planned(GM_MOVE_FILL, FIRST) > 1024 * MIB);
    engine->apps[FIRST].state = GM_APP_LOADING;

    engine->retries[GM_RETRY_BELOW].at = engine->now;
    gm_engine_plan(engine);
    assert_true(planned_for_disk() > 0);
    assert_int_equal(engine->short_from, engine->short_to);
}

/* Pinned memory is full of what the app itself has there, and nothing can be evicted for it: some
 * of its own goes down. */
static void its_own_goes_down_for_room(void **state)
{
    (void)state;
    begin_tiers(512 * MIB, 256 * MIB, 608 * MIB, 0);
    world.cap[GM_TIER_DISK] = 8192 * MIB;
    have(SECOND, 512 * MIB, GM_TIER_GPU);
    have(FIRST, 512 * MIB, GM_TIER_PINNED);
    choose(FIRST);
    gm_engine_plan(engine);
    assert_true(planned(GM_MOVE_DEMOTE, FIRST) > 0);
    move_all();
    assert_int_equal(engine->disk_bytes, planned(GM_MOVE_DEMOTE, FIRST));
}

/* Staging goes on until nothing more can be staged; how many plans that took. */
static unsigned stage_all(void)
{
    unsigned plans = 0;
    gm_engine_plan(engine);
    for (; plans < 50 && engine->plan.n > 0; plans++) {
        n_host = host_ended = 0;
        move_all();
        while (host_ended < n_host) {
            end_below(1);
            move_all();
        }
        gm_engine_plan(engine);
    }
    return plans;
}

/* What is next has chunks of 32 MiB below, for which the little of LAST that is pinned would not
 * make room: it stays, and is not brought up again for LAST, and so on. */
static void nothing_goes_down_in_vain(void **state)
{
    (void)state;
    begin_tiers(2048 * MIB, 256 * MIB, 512 * MIB, 8192 * MIB);
    have(RUNNING, 2048 * MIB, GM_TIER_GPU);
    have(FIRST, 232 * MIB, GM_TIER_PINNED);
    have(FIRST, 64 * MIB, GM_TIER_PAGED);
    have(LAST, 8 * MIB, GM_TIER_PINNED);
    have(LAST, 64 * MIB, GM_TIER_PAGED);
    assert_true(stage_all() < 5);
    assert_int_equal(up, 0);
    assert_int_equal(down, 0);
}

/* One thing that is under way ends, whatever; false: there is none. */
static bool end_any(void)
{
    const unsigned from = (unsigned)draw(&world, 4);
    for (unsigned i = 0; i < 4; i++) {
        const unsigned what = (from + i) % 4;
        if (what == GM_WAYS && n_host > host_ended)
            end_below(1);
        else if (what == GM_WAYS + 1 && n_unmaps > unmaps_answered)
            answer_unmaps(1);
        else if (what < GM_WAYS && copies[what] > copies_ended[what])
            end_copy((enum gm_way)what);
        else
            continue;
        return true;
    }
    return false;
}

/* FIRST comes, of which little is near. What SECOND has on the GPU goes for it, and before that
 * what LAST has in pinned memory. */
static void begin_slow_switch(uint64_t paged)
{
    begin_tiers(2048 * MIB, 256 * MIB, 1024 * MIB, paged);
    have(SECOND, 2048 * MIB, GM_TIER_GPU);
    have(LAST, 640 * MIB, GM_TIER_PINNED);
    have(FIRST, 128 * MIB, GM_TIER_PINNED);
    have(FIRST, 1920 * MIB, GM_TIER_PAGED);
    choose(FIRST);
    gm_engine_plan(engine);
    gm_engine_move(engine);
}

/* The window is for both: what is raised does not keep what is evicted from it, however often it is
 * planned anew. */
static void raising_leaves_room_for_evictions(void **state)
{
    (void)state;
    begin_slow_switch(8192 * MIB);
    for (unsigned i = 0; i < 20; i++) {
        assert_true(world.cap[GM_TIER_PINNED] - world.used[GM_TIER_PINNED] >= 96 * MIB);
        end_below(1);
        gm_engine_plan(engine);
        move_all();
    }
    assert_true(submitted[GM_WAY_OUT] > 0);
}

/* Chunks that were never written are there when their frame is clear. */
static void end_unwritten(void)
{
    for (uint32_t index = 0; index < MAX_CHUNKS; index++) {
        struct gm_chunk *chunk = chunk_of(&world, index);
        if (chunk->state != GM_CHUNK_COMING || chunk->tier != GM_TIER_NONE || chunk->copy_pending)
            continue;
        gm_table_end_map(world.table, index, false);
        gm_engine_settle(engine, index);
    }
}

/* Whatever ends first, and planned anew or not: something is always under way until all is there.
 */
static void finish(uint32_t app, uint64_t seed)
{
    world.random = seed;
    while (world.table->apps[app].missing > 0) {
        assert_true(end_any());
        assert_true(world.used[GM_TIER_PINNED] <= world.cap[GM_TIER_PINNED]);
        if (seed % 3 == 0 || engine->plan_from == engine->plan.n)
            gm_engine_plan(engine);
        gm_engine_move(engine);
        end_unwritten();
    }
    assert_null(gm_table_check(world.table));
}

static void a_slow_switch_ends(void **state)
{
    for (uint64_t seed = 1; seed < 90; seed++) {
        static const uint64_t paged[] = {8192 * MIB, 1920 * MIB, 2048 * MIB};
        begin_slow_switch(paged[seed % 3]);
        finish(FIRST, seed);
        tear_down(state);
        set_up(state);
    }
}

/* The least window, every tier full, and nothing comes back for what was never written. */
static void a_full_switch_ends(void **state)
{
    for (uint64_t seed = 1; seed < 90; seed++) {
        begin_tiers(1024 * MIB, 224 * MIB, 256 * MIB, 576 * MIB);
        have(SECOND, 640 * MIB, GM_TIER_GPU);
        have(LAST, 128 * MIB, GM_TIER_PINNED);
        have(FIRST, 512 * MIB, GM_TIER_PAGED);
        have(LAST, 64 * MIB, GM_TIER_PAGED);
        allocate(&world, FIRST, 224 * MIB);
        choose(FIRST);
        gm_engine_plan(engine);
        move_all();
        finish(FIRST, seed);
        tear_down(state);
        set_up(state);
    }
}

/* ---- when a frame is free ---- */

/* The GPU is full of what SECOND has, and FIRST is chosen. */
static void begin_full_switch(uint64_t bytes)
{
    begin(bytes);
    have(SECOND, bytes, GM_TIER_GPU);
    have(FIRST, bytes, GM_TIER_PINNED);
    choose(FIRST);
    gm_engine_plan(engine);
    assert_int_equal(planned(GM_MOVE_EVICT, SECOND), bytes);
    gm_engine_move(engine);
}

static void give_pieces(uint32_t app, unsigned n, enum gm_tier tier)
{
    for (unsigned i = 0; i < n; i++)
        have(app, 2 * MIB, tier);
}

/* Unmapping runs ahead of the copies, but not by everything; what is told to be unmapped always
 * finds the mover with room for its copy (gm_mover_submit checks). */
static void unmapping_runs_ahead(void **state)
{
    (void)state;
    begin(512 * MIB);
    give_pieces(SECOND, 256, GM_TIER_GPU);
    give_pieces(FIRST, 256, GM_TIER_PINNED);
    choose(FIRST);
    gm_engine_plan(engine);
    gm_engine_move(engine);
    assert_int_equal(n_unmaps, 64);
    answer_unmaps(16);
    gm_engine_move(engine);
    assert_int_equal(n_unmaps, 80);
    move_all();
    assert_int_equal(copies[GM_WAY_OUT], GM_WAY_DEPTH - 1);
    finish(FIRST, 1);
    assert_int_equal(world.table->unmaps, 0);
    assert_int_equal(world.table->unmap_bytes, 0);
}

/* What one does not unmap holds up nobody else, and no room in the mover is kept for it. When it
 * answers after all, its copies wait for room. */
static void who_does_not_unmap_holds_up_nobody(void **state)
{
    uint32_t theirs[64];
    unsigned n = 0, others = 0;
    (void)state;
    begin(256 * MIB);
    give_pieces(LAST, 64, GM_TIER_GPU);
    give_pieces(SECOND, 64, GM_TIER_GPU);
    give_pieces(FIRST, 128, GM_TIER_PINNED);
    choose(FIRST);
    gm_engine_plan(engine);
    gm_engine_move(engine);
    assert_int_equal(n_unmaps, GM_WAY_DEPTH - 1);
    for (unsigned i = 0; i < n_unmaps; i++)
        if (chunk_of(&world, unmaps[i])->app == LAST)
            theirs[n++] = unmaps[i];
        else
            unmaps[others++] = unmaps[i];
    assert_int_equal(n, 64);
    n_unmaps = others;
    gm_table_set_silent(world.table, LAST, true);
    assert_int_equal(world.table->unmaps, others);
    move_all();
    others = n_unmaps;
    assert_int_equal(submitted[GM_WAY_OUT], 128 * MIB);

    /* the mover is full, as far as LAST can see */
    const uint64_t before = copies_ended[GM_WAY_OUT];
    copies[GM_WAY_OUT] += GM_WAY_DEPTH - 1 - others;
    for (uint64_t i = before + others + 1; i <= copies[GM_WAY_OUT]; i++)
        engine->ring[GM_WAY_OUT][i % GM_WAY_DEPTH] = GM_NONE;
    gm_table_set_silent(world.table, LAST, false);
    for (unsigned i = 0; i < n; i++) {
        gm_table_end_map(world.table, theirs[i], false);
        gm_engine_settle(engine, theirs[i]);
    }
    assert_int_equal(engine->n_late, 64);
    assert_int_equal(world.table->unmaps, 0);
    assert_int_equal(submitted[GM_WAY_OUT], 128 * MIB);
    for (unsigned i = 0; i < n; i++)
        end_copy(GM_WAY_OUT);
    assert_int_equal(engine->n_late, 0);
    assert_int_equal(submitted[GM_WAY_OUT], 256 * MIB);
    assert_int_equal(world.table->unmaps + world.table->unmap_bytes, 0);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(chunk_of(&world, theirs[i])->frame, GM_NONE);
    assert_null(gm_table_check(world.table));
}

/* Nor does it keep pinned memory from them. When it answers after all, its chunks are where they
 * were. */
static void who_does_not_unmap_keeps_no_pages(void **state)
{
    (void)state;
    begin_full_switch(64 * MIB);
    const uint32_t chunk = unmaps[0], frame = chunk_of(&world, chunk)->frame;
    const uint64_t used = world.used[GM_TIER_PINNED];
    gm_engine_forgo_pages(engine, chunk);
    assert_int_equal(world.used[GM_TIER_PINNED], used - 32 * MIB);
    answer_unmaps(1);
    assert_int_equal(copies[GM_WAY_OUT], 0);
    assert_int_equal(maps, 1);
    gm_table_end_map(world.table, chunk, false);
    gm_engine_settle(engine, chunk);
    assert_int_equal(chunk_of(&world, chunk)->frame, frame);
    assert_int_equal(chunk_of(&world, chunk)->tier, GM_TIER_GPU);
    assert_int_equal(world.table->unmaps, 1); /* the other chunk's */
    assert_null(gm_table_check(world.table));
}

/* A program that is to lose memory, and gives it back itself meanwhile: its data is not copied. */
static void what_is_freed_is_not_copied(void **state)
{
    (void)state;
    begin_full_switch(64 * MIB);
    const uint32_t chunk = unmaps[0], frame = chunk_of(&world, chunk)->frame;
    const uint64_t used = world.used[GM_TIER_PINNED];
    free_silently(world.table, chunk_of(&world, chunk)->allocation);
    gm_engine_retire(engine, chunk);
    assert_int_equal(world.table->frames[frame].state, GM_FRAME_LEAVING);
    answer_unmaps(1);
    assert_int_equal(world.table->frames[frame].state, GM_FRAME_FREE);
    assert_int_equal(copies[GM_WAY_OUT], 0);
    assert_int_equal(world.used[GM_TIER_PINNED], used - 32 * MIB);
    gm_engine_move(engine);
    assert_int_equal(copies[GM_WAY_IN], 1);
    assert_int_equal(last_fence, 0);
}

/* Chosen again while its memory leaves, a program gets back what it has given up. */
static void who_is_chosen_again_gets_it_back(void **state)
{
    (void)state;
    begin_full_switch(64 * MIB);
    engine->apps[FIRST].state = GM_APP_PAUSED;
    engine->in_set[FIRST] = false;
    engine->apps[SECOND].state = GM_APP_LOADING;
    engine->in_set[SECOND] = true;
    engine->decision.set = &set_of[SECOND];
    gm_engine_plan(engine);
    gm_engine_move(engine);
    assert_int_equal(maps, 0);
    finish(SECOND, 1);
    assert_int_equal(maps, 2);
    assert_int_equal(submitted[GM_WAY_IN], 64 * MIB);
}

/* ---- what was never written ---- */

/* The chunk of an allocation of one. */
static uint32_t allocate_chunk(uint32_t app, uint64_t bytes)
{
    return world.table->allocations[allocate(&world, app, bytes)].first;
}

/* What is overwritten whole, and what is new, needs no clearing. */
static void nothing_is_cleared_in_vain(void **state)
{
    (void)state;
    begin_full_switch(64 * MIB);
    move_all();
    clear_frames();
    finish(FIRST, 1);
    assert_int_equal(clears, 0);
    assert_int_equal(submitted[GM_WAY_IN], 64 * MIB);

    tear_down(state);
    set_up(state);
    begin(32 * MIB);
    const uint32_t chunk = allocate_chunk(RUNNING, 32 * MIB);
    gm_engine_plan(engine);
    move_all();
    assert_int_equal(clears, 0);
    assert_false(chunk_of(&world, chunk)->copy_pending);
}

/* LAST frees what it has. */
static void free_all_of_last(void)
{
    const struct gm_table *table = world.table;
    const uint32_t from = n_unmaps;
    for (uint32_t a = table->apps[LAST].allocations.head; a != GM_NONE;
         a = table->allocations[a].next) {
        free_silently(world.table, a);
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling)
            gm_engine_retire(engine, c);
    }
    answer_unmaps(n_unmaps - from);
}

/* Frames that return to the pool are cleared there, and an allocation waits for nothing. */
static void free_frames_are_cleared(void **state)
{
    (void)state;
    begin(64 * MIB);
    have(LAST, 64 * MIB, GM_TIER_GPU);
    clear_frames();
    assert_int_equal(clears, 0);
    free_all_of_last();
    assert_int_equal(world.table->dirty, 2);
    clear_frames();
    assert_int_equal(clears, 2);
    assert_int_equal(world.table->dirty, 0);
    clear_frames();
    assert_int_equal(clears, 2); /* once */
    end_copy(GM_WAY_IN);
    end_copy(GM_WAY_IN);

    const uint32_t chunk = allocate_chunk(RUNNING, 32 * MIB);
    gm_engine_plan(engine);
    move_all();
    assert_int_equal(clears, 2);
    assert_false(chunk_of(&world, chunk)->copy_pending);
    assert_int_equal(world.table->allocated, 64 * MIB); /* not a new one */
    assert_null(gm_table_check(world.table));
}

/* Not while they are still read, nor while they may be what a plan fills. */
static void not_everything_is_cleared_now(void **state)
{
    (void)state;
    begin_full_switch(64 * MIB);
    answer_unmaps(2);
    clear_frames();
    assert_int_equal(clears, 0);
    engine->plan.n = engine->plan_from = 0;
    clear_frames();
    assert_int_equal(clears, 0);
    end_copy(GM_WAY_OUT);
    clear_frames();
    assert_int_equal(clears, 1);
    end_copy(GM_WAY_OUT);
    clear_frames();
    assert_int_equal(clears, 2);
}

/* ---- who gives ---- */

/* What the one before could have been given is nothing to an idle one. */
static void an_idle_one_is_given_nothing_that_another_was_offered(void **state)
{
    (void)state;
    begin(160 * MIB);
    have(RUNNING, 96 * MIB, GM_TIER_GPU);
    have(FIRST, 2 * MIB, GM_TIER_PINNED); /* no frame of that size anywhere */
    have(SECOND, 64 * MIB, GM_TIER_PINNED);
    have(LAST, 64 * MIB, GM_TIER_GPU);
    engine->apps[SECOND].idle.is_idle = true;
    gm_engine_plan(engine);
    assert_int_equal(engine->plan.n, 0);
}

static void nobody_gives_to_himself(void **state)
{
    (void)state;
    begin(160 * MIB);
    have(RUNNING, 96 * MIB, GM_TIER_GPU);
    have(FIRST, 64 * MIB, GM_TIER_GPU);
    have(FIRST, 64 * MIB, GM_TIER_PINNED);
    gm_engine_plan(engine);
    assert_int_equal(engine->plan.n, 0);
}

/* Pinned memory is short until the evictions under way have made room for copies in, which give
 * some back. More of it is asked for when there is nothing to wait for. */
static void what_is_being_unmapped_is_waited_for(void **state)
{
    (void)state;
    begin(128 * MIB);
    have(LAST, 128 * MIB, GM_TIER_GPU);
    have(FIRST, 128 * MIB, GM_TIER_PINNED);
    world.cap[GM_TIER_PINNED] = 160 * MIB;
    choose(FIRST);
    gm_engine_plan(engine);
    gm_engine_move(engine);
    assert_int_equal(n_unmaps, 1);
    assert_true(engine->is_short_of_pages);
    assert_int_equal(wants, 0);
    answer_unmaps(1);
    gm_engine_move(engine);
    assert_int_equal(submitted[GM_WAY_IN], 32 * MIB);
    assert_int_equal(wants, 0);
}

static void more_is_asked_for_once(void **state)
{
    (void)state;
    begin(128 * MIB);
    have(LAST, 128 * MIB, GM_TIER_GPU);
    have(FIRST, 128 * MIB, GM_TIER_PINNED);
    world.cap[GM_TIER_PINNED] = 160 * MIB;
    choose(FIRST);
    gm_engine_plan(engine);
    world.used[GM_TIER_PINNED] += 32 * MIB; /* the rest is not there yet */
    for (unsigned i = 0; i < 3; i++)
        gm_engine_move(engine);
    assert_int_equal(n_unmaps, 0);
    assert_int_equal(wants, 1);
}

#define case_of(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        case_of(staged_for_the_next),
        case_of(an_idle_one_is_passed_over),
        case_of(an_idle_one_has_what_is_free),
        case_of(not_for_who_cannot_have_it),
        case_of(not_while_somebody_waits),
        case_of(little_is_under_way),
        case_of(little_is_exchanged_at_once),
        case_of(little_goes_down_at_once),
        case_of(raises_do_not_wait_for_all_lowers),
        case_of(the_disk_has_a_share_of_its_own),
        case_of(the_disk_is_closed_after_an_error),
        case_of(its_own_goes_down_for_room),
        case_of(nothing_goes_down_in_vain),
        case_of(raising_leaves_room_for_evictions),
        case_of(a_slow_switch_ends),
        case_of(a_full_switch_ends),
        case_of(unmapping_runs_ahead),
        case_of(who_does_not_unmap_holds_up_nobody),
        case_of(who_does_not_unmap_keeps_no_pages),
        case_of(what_is_freed_is_not_copied),
        case_of(who_is_chosen_again_gets_it_back),
        case_of(nothing_is_cleared_in_vain),
        case_of(free_frames_are_cleared),
        case_of(not_everything_is_cleared_now),
        case_of(an_idle_one_is_given_nothing_that_another_was_offered),
        case_of(nobody_gives_to_himself),
        case_of(what_is_being_unmapped_is_waited_for),
        case_of(more_is_asked_for_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
