#include "daemon/core/check.h"

#include <string.h>

#include "common/sums.h"

/* What of the copies that a program told of has not crossed the link after this is mostly none:
 * they were within the GPU, or within the host. A quarter of it is forgotten. */
#define GM_CHECK_FORGET_NS (42 * GM_MS)
/* The last eighth comes back at once: three steps of half a second find most, and each further
 * one costs more of the program's time than the memory that it might spare. Of the suspects, one
 * part in so many. */
#define GM_CHECK_LAST 8
/* Of a part that was halved less often than this, a trial that failed is followed by the next one
 * at once. There are some fourteen, until the program does something else. */
#define GM_CHECK_AT_ONCE 4
/* In a trial that took longer the memory was used now and then. */
#define GM_CHECK_COST_MOST_NS (2 * GM_S)
/* Behind a smaller part the next one waits for so many times what the trial cost: less than 3 % of
 * a program's time ... */
#define GM_CHECK_REST 32
/* ... and at least for this; for parts of half the size for twice as long ... */
#define GM_CHECK_REST_NS (4 * GM_S)
/* ... up to this. */
#define GM_CHECK_REST_MOST_NS (60 * GM_S)
/* Of more chunks than SAMPLED so many, evenly, are tried first: if they are used, that costs
 * little.
 */
#define GM_CHECK_SAMPLED 64
#define GM_CHECK_SAMPLE 8
/* A trial ends of which nothing is known after so long, as the link is busy: if the memory is used,
 * its program stands still meanwhile. It begins anew after this, and twice as long each time. */
#define GM_CHECK_UNHEARD_NS (150 * GM_MS)
/* ... or for so many times as long, if a part of it was seen to be quiet. */
#define GM_CHECK_LIKELY 16
#define GM_CHECK_STARVED_NS GM_S
/* Parts of a program's memory are halved so often at most. */
#define GM_CHECK_HALVES 7
/* Traffic that was seen once would be seen again in this many times as long. */
#define GM_CHECK_SURE 16
/* A proof that held for so many times as long as it took was right: the program does something else
 * now. */
#define GM_CHECK_HELD 16
/* What crosses for so long while nothing of the apps is on the host is what others move. */
#define GM_CHECK_BARE_NS (100 * GM_MS)
/* What others were seen to move is forgotten so slowly, while nobody can see it. */
#define GM_CHECK_BASE_NS (60 * GM_S)
/* When others use the link, nothing is judged for so long; twice as long each time that it is
 * soon found again, */
#define GM_CHECK_OFF_NS (2 * GM_S)
/* ... up to this. */
#define GM_CHECK_OFF_MOST_NS (3600 * GM_S)

/* ---- samples ---- */

void gm_check_init(struct gm_check *check, struct gm_check_app *apps, uint32_t max_apps)
{
    *check = (struct gm_check){.apps = apps, .max_apps = max_apps};
}

void gm_check_begin(struct gm_check *check, uint32_t app, uint64_t copied, uint64_t mapped)
{
    check->apps[app] = (struct gm_check_app){.copied = copied, .mapped = mapped};
}

void gm_check_change(struct gm_check *check, uint32_t app)
{
    struct gm_check_app *a = &check->apps[app];
    a->was_quiet = a->quiet_ns;
    a->sum = a->ns = a->quiet_ns = 0;
    a->n = 0;
}

void gm_check_note_link(struct gm_check *check, uint64_t rate)
{
    check->link = gm_most(check->link, rate);
}

bool gm_check_wants(const struct gm_check *check, uint32_t app)
{
    const struct gm_check_app *a = &check->apps[app];
    return a->trial != GM_TRIAL_NONE || (!a->is_over && a->rest_ns == 0);
}

static uint64_t rest_after(uint32_t times)
{
    return gm_least(GM_CHECK_REST_NS << gm_least(times, 8), GM_CHECK_REST_MOST_NS);
}

void gm_check_wake(struct gm_check *check, uint32_t app)
{
    check->apps[app].is_over = false;
}

/* The time without traffic that proves all of its memory on the host cold: twice as long each time
 * that it did not suffice, as it works in longer periods. */
static uint64_t whole_proof_of(const struct gm_check_app *a)
{
    return GM_CHECK_NS << a->wrong;
}

/* ... that tells something. In a search it is known how soon its traffic is seen. */
static uint64_t proof_of(const struct gm_check_app *a)
{
    uint64_t ns = whole_proof_of(a);
    if (a->trial == GM_TRIAL_SAMPLE)
        ns /= 4;
    if (a->searched > 0)
        ns = gm_least(ns, GM_CHECK_SURE * a->seen_ns);
    return ns;
}

/* Take in what the app says it did. The bytes that explains: all of its copies may have been just
 * then. */
static uint64_t explain(struct gm_check_app *a, const struct gm_check_part *part, uint64_t now)
{
    const uint64_t most = UINT64_MAX / 4; /* hostile numbers */
    const uint64_t more = part->copied - a->copied;
    a->in_flight = more < most - a->in_flight ? a->in_flight + more : most;
    a->copied = part->copied;
    if (part->mapped != a->mapped)
        a->explained_until = now + GM_CHECK_MAPPED_NS;
    a->mapped = part->mapped;
    return a->in_flight + a->in_flight / 4; /* 59 GB/s are counted where 50 are read */
}

/* Bytes of a second's `rate` in `ns`. */
static uint64_t bytes_in(uint64_t rate, uint64_t ns)
{
    return rate / 1000000 * (ns / GM_US);
}

/* What of the app's copies may not have crossed the link yet. What has not, though the link was
 * free, never will. */
static void let_pass(const struct gm_check *check, struct gm_check_app *a, uint64_t rate,
                     uint64_t ns)
{
    const uint64_t passed = bytes_in(rate, ns) / 5 * 4; /* as above */
    const uint64_t for_ns = ns < 4 * GM_CHECK_FORGET_NS ? ns : 4 * GM_CHECK_FORGET_NS;
    a->in_flight -= passed < a->in_flight ? passed : a->in_flight;
    const uint64_t thousandths = for_ns / (GM_CHECK_FORGET_NS / 1000);
    a->in_flight -= gm_least(
        a->in_flight,
        a->in_flight / (rate < gm_check_rate(check) ? 4000 : 40000) * thousandths + thousandths);
}

static void find(struct gm_check *check, struct gm_check_part *part, uint64_t rate, uint64_t ns)
{
    struct gm_check_app *a = &check->apps[part->app];
    a->unheard = 0;
    a->tried_ns += ns;
    a->rest_ns = gm_less(a->rest_ns, ns);
    const uint64_t limit = (a->trial == GM_TRIAL_WHOLE ? 2 : 1) * gm_check_rate(check);
    a->sum += bytes_in(rate, ns);
    a->ns += ns;
    a->n++;
    const bool is_enough = a->n >= 2 || a->ns >= GM_CHECK_SOON_NS;
    const uint64_t least = a->n == 1 ? 2 * a->ns : a->ns;
    if (is_enough &&
        a->sum > bytes_in(limit, least > GM_CHECK_SOON_NS ? least : GM_CHECK_SOON_NS)) {
        part->finding = GM_CHECK_TRAFFIC;
        a->seen_ns = a->ns;
        return;
    }
    a->quiet_ns += ns;
    if (a->ns >= GM_CHECK_NS)
        a->sum = a->ns = a->n = 0;
    if (a->quiet_ns >= proof_of(a)) {
        part->finding = GM_CHECK_QUIET;
        a->quiet_ns = 0;
    }
}

/* What others move is known from when nothing of the apps is on the host; it is forgotten as it is
 * not seen any more. Returns what of `rate` it does not explain. */
static uint64_t follow_base(struct gm_check *check, const struct gm_check_part *parts, uint32_t n,
                            uint64_t rate, uint64_t ns)
{
    bool is_bare = true;
    for (uint32_t i = 0; i < n; i++)
        is_bare = is_bare && !parts[i].has_host && check->apps[parts[i].app].searched == 0;
    const uint64_t over = is_bare ? GM_S : GM_CHECK_BASE_NS;
    const uint64_t less = check->base / GM_MS * gm_least(ns, over) / (over / GM_MS);
    check->rate = rate;
    check->bare_rate = is_bare && check->bare_ns > 0 ? gm_least(check->bare_rate, rate) : rate;
    check->bare_ns = is_bare ? check->bare_ns + ns : 0;
    const bool is_known = check->bare_ns >= GM_CHECK_BARE_NS;
    const uint64_t goes_on = is_bare ? 0 : gm_least(check->base, rate);
    check->base = gm_most(check->base - less, is_known ? check->bare_rate : goes_on);
    check->bare_ns = is_known ? 0 : check->bare_ns;
    return gm_less(rate, check->base);
}

bool gm_check_judge(struct gm_check *check, const struct gm_check_sample *sample,
                    struct gm_check_part *parts, uint32_t n)
{
    uint64_t explained = 0;
    bool is_void = sample->end < check->off_until;
    for (uint32_t i = 0; i < n; i++) {
        struct gm_check_app *a = &check->apps[parts[i].app];
        const uint64_t bytes = explain(a, &parts[i], sample->end);
        parts[i].finding = GM_CHECK_OPEN;
        explained = explained + bytes >= bytes ? explained + bytes : UINT64_MAX;
        is_void = is_void || parts[i].is_explained || sample->begin < a->explained_until;
        let_pass(check, a, sample->rate, sample->ns);
    }
    const uint64_t most = sample->rate < GM_CHECK_RATE_MOST ? sample->rate : GM_CHECK_RATE_MOST;
    const uint64_t crossed = bytes_in(most, sample->cover);
    /* Who says that it copied more than what crossed may hide what others read. */
    is_void = is_void || (explained > crossed && most > gm_check_rate(check));
    for (uint32_t i = 0; i < n; i++)
        parts[i].may_try = parts[i].may_try && !is_void && !gm_check_is_drowned(check);
    if (is_void)
        return false;
    const uint64_t left = gm_less(crossed, explained);
    const uint64_t all = left * 1000 / (sample->cover / GM_US + 1) * 1000;
    const uint64_t rate = follow_base(check, parts, n, all, sample->ns);
    const uint64_t limit = gm_check_rate(check);
    if (gm_check_is_drowned(check) && rate <= limit)
        return false;
    for (uint32_t i = 0; i < n; i++)
        find(check, &parts[i], rate, sample->ns);
    check->judged_at = sample->end;
    return true;
}

/* ---- chunks ---- */

/* How cold a chunk is: a power of two of windows in which nothing named it. */
#define RANKS 33u

static unsigned rank_of(const struct gm_table *table, const struct gm_chunk *chunk)
{
    const uint32_t age = table->apps[chunk->app].window - chunk->named;
    return age == 0 ? 0 : 32u - (unsigned)__builtin_clz(age);
}

/* Call for each chunk of the app that can be cold, by allocation and address. */
#define EACH_CHUNK(table, id, c)                                                                   \
    for (uint32_t a_ = (table)->apps[id].allocations.head; a_ != GM_NONE;                          \
         a_ = (table)->allocations[a_].next)                                                       \
        for (uint32_t c = (table)->allocations[a_].is_freed ? GM_NONE                              \
                                                            : (table)->allocations[a_].first;      \
             c != GM_NONE; c = (table)->chunks[c].sibling)                                         \
            if ((table)->chunks[c].is_freed || (table)->chunks[c].is_fixed) {                      \
            } else

/* On the host for its app to read, taken for cold, and not proved to be. */
static bool is_suspect(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_ON_HOST && chunk->is_cold && !chunk->is_proved;
}

/* It is tried, and does not lie on the host yet. */
static bool is_to_go(const struct gm_chunk *chunk)
{
    return chunk->trust == GM_TRUST_TRIED && !chunk->is_proved && chunk->state != GM_CHUNK_ON_HOST;
}

static bool is_tried(const struct gm_chunk *chunk)
{
    return chunk->trust == GM_TRUST_TRIED && !chunk->is_proved;
}

static bool is_needed(const struct gm_chunk *chunk)
{
    return chunk->trust == GM_TRUST_NEEDED;
}

/* What may be tried: what the check alone brought back, and what an address before it alone speaks
 * for. */
static bool is_hidden(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_RESIDENT && is_needed(chunk) && !chunk->is_claimed;
}

static bool is_only_claimed(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_RESIDENT && !chunk->is_cold && chunk->is_claimed;
}

static uint32_t count(const struct gm_table *table, uint32_t app,
                      bool (*is_one)(const struct gm_chunk *chunk))
{
    uint32_t n = 0;
    EACH_CHUNK(table, app, c)
    n += !is_one || is_one(&table->chunks[c]);
    return n;
}

/* Some of an app's chunks: those of `is_one` that are not above `level`, the `most` coldest; of
 * those that are equally cold, the last by address. */
struct pick {
    bool (*is_one)(const struct gm_chunk *chunk);
    uint32_t most;
    uint8_t level;
    uint32_t n; /* so many there are */
    unsigned line;
    uint32_t skip; /* of those of rank `line`, the first */
};

static bool is_picked(const struct gm_table *table, struct pick *pick, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    if (!pick->is_one(chunk) || chunk->level > pick->level)
        return false;
    const unsigned rank = rank_of(table, chunk);
    if (rank == pick->line && pick->skip > 0) {
        pick->skip--;
        return false;
    }
    return rank >= pick->line;
}

static struct pick pick(const struct gm_table *table, uint32_t app,
                        bool (*is_one)(const struct gm_chunk *chunk), uint8_t level, uint32_t most)
{
    struct pick pick = {.is_one = is_one, .level = level, .line = RANKS};
    uint32_t n[RANKS] = {0};
    EACH_CHUNK(table, app, c)
    if (is_one(&table->chunks[c]) && table->chunks[c].level <= level)
        n[rank_of(table, &table->chunks[c])]++;
    while (pick.line > 0 && most > pick.n) {
        const uint32_t here = n[--pick.line], rest = most - pick.n;
        pick.skip = here > rest ? here - rest : 0;
        pick.n += here - pick.skip;
    }
    return pick;
}

static void trust(struct gm_table *table, uint32_t index, enum gm_trust to,
                  struct gm_check_step *step)
{
    gm_table_trust(table, index, to);
    step->chunks++;
    step->bytes += gm_class_bytes(table->chunks[index].class);
}

bool gm_check_is_all_cold(const struct gm_table *table, uint32_t app)
{
    if (table->apps[app].on_host == 0)
        return true;
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling)
            if (table->chunks[c].state == GM_CHUNK_ON_HOST && !table->chunks[c].is_cold)
                return false;
    return true;
}

/* ---- the search ---- */

/* Half of the app's suspects are needed from now on, or what is left of them. */
static struct gm_check_step bring_back(struct gm_check *check, struct gm_table *table, uint32_t app,
                                       uint32_t suspects, uint64_t now)
{
    struct gm_check_app *a = &check->apps[app];
    struct gm_check_step step = {.kind = GM_CHECKED_BACK, .app = app};
    a->searched = suspects > a->searched ? suspects : a->searched;
    a->searched_at = now;
    const bool is_rest = suspects <= a->searched / GM_CHECK_LAST;
    const uint32_t n = is_rest ? suspects : (suspects + 1) / 2;
    struct pick half = pick(table, app, is_suspect, UINT8_MAX, n);
    EACH_CHUNK(table, app, c)
    if (is_picked(table, &half, c))
        trust(table, c, GM_TRUST_NEEDED, &step);
    return step;
}

/* Whoever ran is suspect: of them the one with most suspects, which halves what is possible best.
 */
static struct gm_check_step accuse(struct gm_check *check, struct gm_table *table,
                                   const struct gm_check_part *parts, uint32_t n, uint64_t now)
{
    uint32_t most = 0, whose = GM_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (parts[i].finding != GM_CHECK_TRAFFIC)
            continue;
        const uint32_t suspects = count(table, parts[i].app, is_suspect);
        whose = suspects > most ? parts[i].app : whose;
        most = suspects > most ? suspects : most;
    }
    if (whose == GM_NONE)
        return (struct gm_check_step){.kind = GM_CHECKED_NONE};
    return bring_back(check, table, whose, most, now);
}

/* What was proved is not. If it was long ago the program does something else now, and all that was
 * learned of it is old. */
static void doubt(struct gm_check *check, struct gm_table *table, uint32_t app, uint64_t now)
{
    struct gm_check_app *a = &check->apps[app];
    bool had_proof = false;
    const bool has_held = now - a->proved_at > GM_CHECK_HELD * whole_proof_of(a);
    EACH_CHUNK(table, app, c)
    {
        had_proof = had_proof || table->chunks[c].is_proved;
        gm_table_prove(table, c, false);
    }
    if (!had_proof)
        return;
    EACH_CHUNK(table, app, c)
    if (has_held)
        gm_table_set_level(table, c, 0);
    a->rest_ns = has_held ? 0 : a->rest_ns;
    a->is_doubted = !has_held && a->wrong < GM_CHECK_WRONG;
    a->wrong = has_held ? 0 : a->wrong + a->is_doubted;
    a->searched = 0;
}

static void acquit(struct gm_check *check, struct gm_table *table, uint32_t app,
                   struct gm_check_step *step)
{
    struct gm_check_app *a = &check->apps[app];
    EACH_CHUNK(table, app, c)
    {
        gm_table_set_level(table, c, 0);
        if (is_needed(&table->chunks[c]))
            trust(table, c, GM_TRUST_WINDOWS, step);
    }
    a->searched = 0;
    a->wrong -= a->is_doubted; /* the proofs were right */
    a->is_doubted = false;
}

/* All came back, and it goes on: it is others' traffic, and no memory was guilty. Nor was that of
 * apps which do not run just now, and whose search has not ended. */
static struct gm_check_step give_up(struct gm_check *check, struct gm_table *table,
                                    const struct gm_check_part *parts, uint32_t n, uint64_t now)
{
    struct gm_check_step step = {.kind = GM_CHECKED_FOREIGN};
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].finding == GM_CHECK_TRAFFIC)
            acquit(check, table, parts[i].app, &step);
    for (uint32_t app = 0; app < check->max_apps; app++)
        if (table->apps[app].is_used &&
            (check->apps[app].searched > 0 || check->apps[app].is_doubted))
            acquit(check, table, app, &step);
    const bool was_just_now =
        check->off_ns > 0 && now < check->off_until + 10 * GM_CHECK_BASE_NS + 4 * check->off_ns;
    check->off_ns = was_just_now ? 2 * check->off_ns : GM_CHECK_OFF_NS;
    if (check->off_ns > GM_CHECK_OFF_MOST_NS)
        check->off_ns = GM_CHECK_OFF_MOST_NS;
    check->off_until = now + check->off_ns;
    check->base = gm_most(check->base, check->rate + check->rate / 8);
    return step;
}

static struct gm_check_step search(struct gm_check *check, struct gm_table *table,
                                   const struct gm_check_part *parts, uint32_t n, uint64_t now)
{
    struct gm_check_step step = accuse(check, table, parts, n, now);
    if (step.kind != GM_CHECKED_NONE)
        return step;
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].finding == GM_CHECK_TRAFFIC)
            doubt(check, table, parts[i].app, now);
    step = accuse(check, table, parts, n, now);
    return step.kind == GM_CHECKED_NONE ? give_up(check, table, parts, n, now) : step;
}

/* ---- trials ---- */

/* The lowest level of what may be tried; UINT8_MAX: nothing may. */
static uint8_t lowest(const struct gm_table *table, uint32_t app,
                      bool (*is_one)(const struct gm_chunk *chunk))
{
    uint8_t level = UINT8_MAX;
    EACH_CHUNK(table, app, c)
    if (is_one(&table->chunks[c]) && table->chunks[c].level < level)
        level = table->chunks[c].level;
    return level;
}

/* Of the set that is tried, what was not picked for the sample. */
static struct pick rest_of_set(const struct gm_table *table, const struct gm_check_app *a,
                               uint32_t app)
{
    return pick(table, app, a->is_known ? is_hidden : is_only_claimed, a->level, a->rest);
}

static struct gm_check_step try_set(struct gm_check *check, struct gm_table *table, uint32_t app,
                                    struct pick *set, uint32_t every)
{
    struct gm_check_step step = {.kind = GM_CHECKED_TRY, .app = app};
    uint32_t n = 0;
    EACH_CHUNK(table, app, c)
    if (is_picked(table, set, c) && n++ % every == 0)
        trust(table, c, GM_TRUST_TRIED, &step);
    check->apps[app].tried = step.bytes;
    gm_check_change(check, app);
    return step;
}

/* Something of the app is tried: what was halved least often, and of that a part that is as large
 * as that says. */
static struct gm_check_step begin_trial(struct gm_check *check, struct gm_table *table,
                                        uint32_t app, uint64_t now)
{
    struct gm_check_app *a = &check->apps[app];
    if (a->rest_ns > 0 || a->is_over || now < check->off_until)
        return (struct gm_check_step){.kind = GM_CHECKED_NONE};
    const uint8_t hidden = lowest(table, app, is_hidden);
    const uint8_t claimed = (uint8_t)gm_most(lowest(table, app, is_only_claimed), 1);
    const bool is_hidden_first = hidden <= claimed || hidden < GM_CHECK_AT_ONCE;
    const uint8_t level = is_hidden_first ? hidden : claimed;
    a->is_over = level == UINT8_MAX;
    if (a->is_over)
        return (struct gm_check_step){.kind = GM_CHECKED_NONE};
    const uint32_t halves = level < GM_CHECK_HALVES ? level : GM_CHECK_HALVES;
    const uint32_t most = count(table, app, NULL) >> halves;
    a->is_known = is_hidden_first;
    struct pick set =
        pick(table, app, a->is_known ? is_hidden : is_only_claimed, level, most > 0 ? most : 1);
    const bool is_sampled = set.n > GM_CHECK_SAMPLED;
    a->trial = is_sampled ? GM_TRIAL_SAMPLE : GM_TRIAL_WHOLE;
    a->level = level;
    a->tried_at = now;
    a->tried_ns = a->unheard = 0;
    a->is_likely = false;
    const uint32_t n = set.n;
    const struct gm_check_step step =
        try_set(check, table, app, &set, is_sampled ? n / GM_CHECK_SAMPLE : 1);
    a->rest = n - step.chunks;
    return step;
}

/* What a trial costs its program: the time that it ran so, and the two ways over the link, which is
 * not as slow as it was seen to be when it had little to do. */
static uint64_t cost_of(const struct gm_check *check, const struct gm_check_app *a)
{
    const uint64_t link = 50 * gm_check_rate(check);
    return gm_least(a->tried_ns, GM_CHECK_COST_MOST_NS) +
           (check->link == 0 ? 0 : 2 * (a->tried / 1000) * GM_S / (link / 1000));
}

static uint64_t rest_after_failure(const struct gm_check_app *a, uint64_t cost)
{
    return a->level < GM_CHECK_AT_ONCE
               ? 0
               : gm_most(rest_after(a->level - GM_CHECK_AT_ONCE), GM_CHECK_REST * cost);
}

/* It is used: all of it goes back at once, and the next trial is of less. */
static struct gm_check_step end_trial(struct gm_check *check, struct gm_table *table, uint32_t app)
{
    struct gm_check_app *a = &check->apps[app];
    struct gm_check_step step = {.kind = GM_CHECKED_BACK, .app = app};
    struct pick rest = rest_of_set(table, a, app);
    const uint8_t level = (uint8_t)(a->level + 1 < UINT8_MAX ? a->level + 1 : GM_CHECK_HALVES);
    EACH_CHUNK(table, app, c)
    if (is_tried(&table->chunks[c])) {
        gm_table_set_level(table, c, level);
        trust(table, c, GM_TRUST_NEEDED, &step);
    } else if (a->trial == GM_TRIAL_SAMPLE && is_picked(table, &rest, c)) {
        gm_table_set_level(table, c, level);
    }
    a->trial = GM_TRIAL_NONE;
    a->is_over = false;
    a->rest_ns = rest_after_failure(a, cost_of(check, a));
    a->starved = 0;
    gm_check_change(check, app);
    return step;
}

/* What is tried finds no room on the host, or nothing can be judged: that says nothing. */
static struct gm_check_step put_off(struct gm_check *check, struct gm_table *table, uint32_t app)
{
    struct gm_check_app *a = &check->apps[app];
    struct gm_check_step step = {.kind = GM_CHECKED_BACK, .app = app};
    EACH_CHUNK(table, app, c)
    if (is_tried(&table->chunks[c]))
        trust(table, c, GM_TRUST_NEEDED, &step);
    a->trial = GM_TRIAL_NONE;
    a->is_over = false;
    a->rest_ns = gm_least(GM_CHECK_STARVED_NS << gm_least(a->starved++, 8), GM_CHECK_REST_MOST_NS);
    gm_check_change(check, app);
    return step;
}

struct gm_check_step gm_check_starve(struct gm_check *check, struct gm_table *table,
                                     const struct gm_check_part *part, uint64_t ns, uint64_t now)
{
    struct gm_check_app *a = &check->apps[part->app];
    const bool is_likely = a->is_likely || a->quiet_ns > 0;
    const uint64_t most = (is_likely ? GM_CHECK_LIKELY : 1) * GM_CHECK_UNHEARD_NS;
    explain(a, part, now);
    a->rest_ns = gm_less(a->rest_ns, ns);
    a->in_flight /= 2;
    if (a->trial == GM_TRIAL_NONE ||
        count(table, part->app, is_tried) == count(table, part->app, is_to_go))
        return (struct gm_check_step){.kind = GM_CHECKED_NONE};
    a->unheard += ns;
    a->tried_ns += ns;
    return a->unheard > most ? put_off(check, table, part->app)
                             : (struct gm_check_step){.kind = GM_CHECKED_NONE};
}

void gm_check_end_trials(struct gm_check *check, struct gm_table *table)
{
    for (uint32_t app = 0; app < check->max_apps; app++)
        if (table->apps[app].is_used && check->apps[app].trial != GM_TRIAL_NONE)
            put_off(check, table, app);
}

/* What it has on the host is not used. */
static struct gm_check_step conclude(struct gm_check *check, struct gm_table *table, uint32_t app,
                                     uint64_t now)
{
    struct gm_check_app *a = &check->apps[app];
    struct gm_check_step step = {.kind = GM_CHECKED_NONE, .app = app};
    bool is_new = false;
    EACH_CHUNK(table, app, c)
    {
        is_new = is_new || is_suspect(&table->chunks[c]);
        gm_table_prove(table, c,
                       table->chunks[c].state == GM_CHUNK_ON_HOST && table->chunks[c].is_cold);
    }
    if (is_new)
        a->proved_at = now;
    a->is_over = a->is_over && a->searched == 0;
    a->searched = 0;
    a->is_doubted = false;
    if (a->trial != GM_TRIAL_NONE && count(table, app, is_to_go) > 0)
        return step;
    if (a->trial == GM_TRIAL_SAMPLE) {
        struct pick rest = rest_of_set(table, a, app);
        a->trial = GM_TRIAL_WHOLE;
        a->is_likely = true;
        a->rest = 0;
        return try_set(check, table, app, &rest, 1);
    }
    if (a->trial == GM_TRIAL_WHOLE)
        a->starved = 0;
    a->trial = GM_TRIAL_NONE;
    return step;
}

/* Somebody is searched, or a trial of it has just begun: it may stand still for that at the moment,
 * or run in the next. */
static bool is_any_at_it(const struct gm_check *check, const struct gm_table *table, uint64_t now)
{
    bool is_any = false;
    for (uint32_t app = 0; app < check->max_apps && !is_any; app++) {
        const struct gm_check_app *a = &check->apps[app];
        is_any = table->apps[app].is_used &&
                 ((a->searched > 0 && now < a->searched_at + GM_CHECK_REST_NS) ||
                  (a->trial != GM_TRIAL_NONE && now < a->tried_at + GM_S / 2));
    }
    return is_any;
}

/* One at a time, so that what it brings about is known to be of it. */
static struct gm_check_step try_more(struct gm_check *check, struct gm_table *table,
                                     const struct gm_check_part *parts, uint32_t n, uint64_t now)
{
    struct gm_check_step step = {.kind = GM_CHECKED_NONE};
    for (uint32_t i = 0; i < n; i++)
        if (check->apps[parts[i].app].trial != GM_TRIAL_NONE)
            return step;
    if (is_any_at_it(check, table, now))
        return step;
    for (uint32_t i = 0; i < n && step.kind == GM_CHECKED_NONE; i++)
        if (parts[i].may_try && (parts[i].finding == GM_CHECK_QUIET ||
                                 check->apps[parts[i].app].quiet_ns >= GM_CHECK_SOON_NS))
            step = begin_trial(check, table, parts[i].app, now);
    return step;
}

/* Of the trials that are on the one that is to blame: a sample first, as that costs least; then
 * that of the app which was quiet for the shortest time. */
static uint32_t newest_trial(const struct gm_check *check, const struct gm_table *table,
                             const struct gm_check_part *parts, uint32_t n)
{
    uint32_t newest = GM_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t app = parts[i].app;
        const struct gm_check_app *a = &check->apps[app];
        if (a->trial != GM_TRIAL_NONE &&
            count(table, app, is_tried) > count(table, app, is_to_go) &&
            (newest == GM_NONE || a->trial < check->apps[newest].trial ||
             (a->trial == check->apps[newest].trial &&
              a->was_quiet < check->apps[newest].was_quiet)))
            newest = app;
    }
    return newest;
}

/* Also of an app that has just stopped running: what is tried of it does not come for its next
 * turn.
 */
struct gm_check_step gm_check_prepare(struct gm_check *check, struct gm_table *table, uint32_t app,
                                      uint64_t now)
{
    if (check->apps[app].trial != GM_TRIAL_NONE || gm_check_is_drowned(check) ||
        now > check->judged_at + GM_S || is_any_at_it(check, table, now))
        return (struct gm_check_step){.kind = GM_CHECKED_NONE};
    return begin_trial(check, table, app, now);
}

struct gm_check_step gm_check_follow(struct gm_check *check, struct gm_table *table,
                                     const struct gm_check_part *parts, uint32_t n, bool is_short,
                                     uint64_t now)
{
    struct gm_check_step step = {.kind = GM_CHECKED_NONE};
    bool has_traffic = false;
    for (uint32_t i = 0; i < n; i++)
        has_traffic = has_traffic || parts[i].finding == GM_CHECK_TRAFFIC;
    for (uint32_t i = 0; i < n && has_traffic; i++) /* whosever it is, all have seen it */
        gm_check_change(check, parts[i].app);
    const uint32_t tried = has_traffic ? newest_trial(check, table, parts, n) : GM_NONE;
    if (tried != GM_NONE)
        return end_trial(check, table, tried);
    if (has_traffic)
        return search(check, table, parts, n, now);
    for (uint32_t i = 0; i < n && step.kind == GM_CHECKED_NONE; i++) {
        const struct gm_check_app *a = &check->apps[parts[i].app];
        if (parts[i].finding == GM_CHECK_QUIET)
            step = conclude(check, table, parts[i].app, now);
        else if (a->trial != GM_TRIAL_NONE && now > a->tried_at + 16 * whole_proof_of(a) &&
                 count(table, parts[i].app, is_to_go) > 0)
            step = put_off(check, table, parts[i].app);
    }
    if (step.kind == GM_CHECKED_NONE && is_short)
        step = try_more(check, table, parts, n, now);
    return step;
}
