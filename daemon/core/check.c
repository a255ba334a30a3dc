#include "daemon/core/check.h"

#include <string.h>

/* What of the copies that a program told of has not crossed the link after this is mostly none:
 * they were within the GPU, or within the host. A quarter of it is forgotten. */
#define GM_CHECK_FORGET_NS (42 * GM_MS)
/* The last eighth comes back at once: three steps of half a second find most, and each further
 * one costs more of the program's time than the memory that it might spare. Of the suspects, one
 * part in so many. */
#define GM_CHECK_LAST 8
/* A try that fails costs some 0.3 s of a program's time. The next one waits for twice this,
 * then four times, ... */
#define GM_CHECK_REST_NS (4 * GM_S)
/* ... up to this: half a percent. */
#define GM_CHECK_REST_MOST_NS (60 * GM_S)
/* When others use the link, nothing is judged for so long; twice as long each time that it is
 * soon found again, */
#define GM_CHECK_OFF_NS (60 * GM_S)
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
    a->sum = a->ns = a->quiet_ns = 0;
    a->n = 0;
}

/* The time without traffic that proves its memory cold: twice as long each time that it did not
 * suffice, as it works in longer periods. */
static uint64_t proof_of(const struct gm_check_app *a)
{
    return GM_CHECK_NS << (a->wrong < GM_CHECK_WRONG ? a->wrong : GM_CHECK_WRONG);
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
static void let_pass(struct gm_check_app *a, uint64_t rate, uint64_t ns)
{
    const uint64_t passed = bytes_in(rate, ns) / 5 * 4; /* as above */
    const uint64_t for_ns = ns < 4 * GM_CHECK_FORGET_NS ? ns : 4 * GM_CHECK_FORGET_NS;
    a->in_flight -= passed < a->in_flight ? passed : a->in_flight;
    a->in_flight -=
        (a->in_flight / (rate < GM_CHECK_RATE ? 4 : 40) + 1) / GM_CHECK_FORGET_NS * for_ns;
}

static void find(struct gm_check_app *a, struct gm_check_part *part, uint64_t rate, uint64_t ns)
{
    a->sum += bytes_in(rate, ns);
    a->ns += ns;
    a->n++;
    const bool is_enough = a->n >= 2 || a->ns >= GM_CHECK_SOON_NS;
    const uint64_t least = a->n == 1 ? 2 * a->ns : a->ns;
    if (is_enough &&
        a->sum > bytes_in(GM_CHECK_RATE, least > GM_CHECK_SOON_NS ? least : GM_CHECK_SOON_NS)) {
        part->finding = GM_CHECK_TRAFFIC;
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

void gm_check_judge(struct gm_check *check, const struct gm_check_sample *sample,
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
        let_pass(a, sample->rate, sample->ns);
    }
    if (is_void)
        return;
    const uint64_t most = sample->rate < GM_CHECK_RATE_MOST ? sample->rate : GM_CHECK_RATE_MOST;
    const uint64_t crossed = bytes_in(most, sample->cover);
    const uint64_t left = crossed > explained ? crossed - explained : 0;
    const uint64_t rate = left * 1000 / (sample->cover / GM_US + 1) * 1000;
    for (uint32_t i = 0; i < n; i++)
        find(&check->apps[parts[i].app], &parts[i], rate, sample->ns);
}

/* ---- chunks ---- */

/* How cold a chunk is: a power of two of windows in which it was not touched. */
#define RANKS 33u

static unsigned rank_of(const struct gm_table *table, const struct gm_chunk *chunk)
{
    const uint32_t age = table->apps[chunk->app].window - chunk->window;
    return age == 0 ? 0 : 32u - (unsigned)__builtin_clz(age);
}

/* On the host for its app to read, and cold. */
static bool is_on_host(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_ON_HOST && chunk->is_cold;
}

static bool is_suspect(const struct gm_chunk *chunk)
{
    return is_on_host(chunk) && !chunk->is_proved;
}

/* Brought back, and not known to be guilty by itself. */
static bool is_back(const struct gm_chunk *chunk)
{
    return chunk->trust == GM_TRUST_NEEDED;
}

static bool is_guilty(const struct gm_chunk *chunk)
{
    return chunk->trust == GM_TRUST_GUILTY;
}

static bool is_back_or_guilty(const struct gm_chunk *chunk)
{
    return is_back(chunk) || is_guilty(chunk);
}

/* It is to be tried, and nobody needs its room yet. */
static bool is_to_go(const struct gm_chunk *chunk)
{
    return chunk->trust == GM_TRUST_TRIED && chunk->state != GM_CHUNK_ON_HOST;
}

struct pick {
    struct gm_table *table;
    uint32_t app;
    bool (*is_one)(const struct gm_chunk *chunk);
};

/* Call for every live chunk of the app, by allocation and address. */
static void each(const struct pick *pick,
                 void (*visit)(const struct pick *pick, uint32_t chunk, void *arg), void *arg)
{
    const struct gm_table *table = pick->table;
    for (uint32_t a = table->apps[pick->app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling)
            if (pick->is_one(&table->chunks[c]))
                visit(pick, c, arg);
}

static void count(const struct pick *pick, uint32_t chunk, void *arg)
{
    uint32_t *n = arg; /* by rank, and at the end of all */
    n[rank_of(pick->table, &pick->table->chunks[chunk])]++;
    n[RANKS]++;
}

static uint32_t count_all(const struct pick *pick)
{
    uint32_t n[RANKS + 1] = {0};
    each(pick, count, n);
    return n[RANKS];
}

/* Some chunks get another trust. */
struct change {
    enum gm_trust trust;
    unsigned line; /* chunks of higher ranks, */
    uint32_t skip; /* ... and of this one but for the first */
    struct gm_check_step *step;
};

static void change(const struct pick *pick, uint32_t index, void *arg)
{
    struct change *to = arg;
    const struct gm_chunk *chunk = &pick->table->chunks[index];
    const unsigned rank = rank_of(pick->table, chunk);
    if (rank < to->line)
        return;
    if (rank == to->line && to->skip > 0) {
        to->skip--;
        return;
    }
    gm_table_trust(pick->table, index, to->trust);
    to->step->chunks++;
    to->step->bytes += gm_class_bytes(chunk->class);
}

/* The `most` coldest of what is picked; of those that are equally cold, the last by address. */
static void change_coldest(const struct pick *pick, uint32_t most, struct change *to)
{
    uint32_t n[RANKS + 1] = {0};
    each(pick, count, n);
    to->line = RANKS;
    while (to->line > 0 && most > 0) {
        const uint32_t here = n[--to->line];
        to->skip = here > most ? here - most : 0;
        most -= here - to->skip;
    }
    each(pick, change, to);
}

static void prove(const struct pick *pick, uint32_t chunk, void *arg)
{
    const bool *is_proved = arg;
    gm_table_prove(pick->table, chunk, *is_proved);
}

static bool is_proved(const struct gm_chunk *chunk)
{
    return chunk->is_proved;
}

static bool is_wrongly_proved(const struct gm_chunk *chunk)
{
    return chunk->is_proved && chunk->state != GM_CHUNK_ON_HOST;
}

bool gm_check_is_all_cold(const struct gm_table *table, uint32_t app)
{
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling)
            if (table->chunks[c].state == GM_CHUNK_ON_HOST && !table->chunks[c].is_cold)
                return false;
    return true;
}

/* ---- what follows ---- */

static void set_proof(struct gm_table *table, uint32_t app, bool (*of)(const struct gm_chunk *),
                      bool to)
{
    const struct pick pick = {.table = table, .app = app, .is_one = of};
    each(&pick, prove, &to);
}

/* The traffic has ended with what was suspect alone; or with other apps' memory. */
static void convict(struct gm_table *table, uint32_t app, bool is_cleared)
{
    const struct pick pick = {.table = table, .app = app, .is_one = is_guilty};
    struct gm_check_step step = {.kind = GM_CHECKED_NONE};
    struct change to = {.trust = is_cleared ? GM_TRUST_NEEDED : GM_TRUST_KEPT, .step = &step};
    change_coldest(&pick, UINT32_MAX, &to);
}

/* How long to wait before the next try. What a search brought back may be tried at once, as most of
 * it is innocent. */
static uint64_t rest_of(const struct gm_check_app *a)
{
    const uint64_t n = (uint64_t)a->failed + a->wrong;
    const uint64_t rest = GM_CHECK_REST_NS << (n < 8 ? n : 8);
    if (n == 0)
        return 0;
    return rest < GM_CHECK_REST_MOST_NS ? rest : GM_CHECK_REST_MOST_NS;
}

/* Half of the app's suspects are needed from now on, or what is left of them. */
static struct gm_check_step bring_back(struct gm_check *check, struct gm_table *table, uint32_t app,
                                       uint32_t suspects, uint64_t now)
{
    struct gm_check_app *a = &check->apps[app];
    struct gm_check_step step = {.kind = GM_CHECKED_BACK, .app = app};
    const struct pick pick = {.table = table, .app = app, .is_one = is_suspect};
    if (a->searched == 0 && a->is_trying)
        a->failed++;
    if (a->searched < suspects)
        a->searched = suspects;
    const bool is_rest = !a->is_trying && suspects <= a->searched / GM_CHECK_LAST;
    const uint32_t n = is_rest ? suspects : (suspects + 1) / 2;
    const bool is_sure = suspects == 1 || a->wrong >= GM_CHECK_WRONG;
    struct change to = {.trust = is_sure ? GM_TRUST_GUILTY : GM_TRUST_NEEDED, .step = &step};
    change_coldest(&pick, n, &to);
    a->try_at = now + rest_of(a);
    return step;
}

/* Whoever ran is suspect: of them the one with most suspects, which halves what is possible best.
 */
static struct gm_check_step accuse(struct gm_check *check, struct gm_table *table,
                                   const struct gm_check_part *parts, uint32_t n, uint64_t now)
{
    uint32_t most = 0, whose = GM_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const struct pick pick = {.table = table, .app = parts[i].app, .is_one = is_suspect};
        if (parts[i].finding != GM_CHECK_TRAFFIC)
            continue;
        set_proof(table, parts[i].app, is_wrongly_proved, false);
        const uint32_t suspects = count_all(&pick);
        whose = suspects > most ? parts[i].app : whose;
        most = suspects > most ? suspects : most;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct gm_check_app *a = &check->apps[parts[i].app];
        if (parts[i].finding != GM_CHECK_TRAFFIC)
            continue;
        gm_check_change(check, parts[i].app);
        a->is_cleared = a->searched > 0 && parts[i].app != whose;
    }
    if (whose == GM_NONE)
        return (struct gm_check_step){.kind = GM_CHECKED_NONE};
    return bring_back(check, table, whose, most, now);
}

/* What was proved is not. */
static void doubt(struct gm_check *check, struct gm_table *table, const struct gm_check_part *parts,
                  uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct pick pick = {.table = table, .app = parts[i].app, .is_one = is_proved};
        if (parts[i].finding != GM_CHECK_TRAFFIC || count_all(&pick) == 0)
            continue;
        set_proof(table, parts[i].app, is_proved, false);
        check->apps[parts[i].app].wrong++;
        check->apps[parts[i].app].is_doubted = true;
        check->apps[parts[i].app].searched = 0;
        check->apps[parts[i].app].is_trying = false;
    }
}

static void acquit(struct gm_check *check, struct gm_table *table, uint32_t app,
                   struct gm_check_step *step)
{
    const struct pick pick = {.table = table, .app = app, .is_one = is_back_or_guilty};
    struct change to = {.trust = GM_TRUST_WINDOWS, .step = step};
    struct gm_check_app *a = &check->apps[app];
    change_coldest(&pick, UINT32_MAX, &to);
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
    const bool was_just_now = now < check->off_until + 4 * check->off_ns;
    check->off_ns = was_just_now ? 2 * check->off_ns : GM_CHECK_OFF_NS;
    if (check->off_ns > GM_CHECK_OFF_MOST_NS)
        check->off_ns = GM_CHECK_OFF_MOST_NS;
    check->off_until = now + check->off_ns;
    return step;
}

static struct gm_check_step search(struct gm_check *check, struct gm_table *table,
                                   const struct gm_check_part *parts, uint32_t n, uint64_t now)
{
    struct gm_check_step step = accuse(check, table, parts, n, now);
    if (step.kind != GM_CHECKED_NONE)
        return step;
    doubt(check, table, parts, n);
    step = accuse(check, table, parts, n, now);
    return step.kind == GM_CHECKED_NONE ? give_up(check, table, parts, n, now) : step;
}

/* Half of what was brought back is tried on the host; all of an app that is cleared. */
static struct gm_check_step try_more(struct gm_check *check, struct gm_table *table, uint32_t app,
                                     uint64_t now)
{
    struct gm_check_step step = {.kind = GM_CHECKED_NONE, .app = app};
    struct pick pick = {.table = table, .app = app, .is_one = is_to_go};
    struct change to = {.trust = GM_TRUST_TRIED, .step = &step};
    if (now < check->apps[app].try_at || count_all(&pick) > 0)
        return step;
    pick.is_one = is_back;
    const uint32_t there = count_all(&pick);
    if (there == 0)
        return step;
    change_coldest(&pick, check->apps[app].is_cleared ? there : (there + 1) / 2, &to);
    step.kind = GM_CHECKED_TRY;
    check->apps[app].is_trying = true;
    check->apps[app].is_cleared = false;
    gm_check_change(check, app);
    return step;
}

struct gm_check_step gm_check_follow(struct gm_check *check, struct gm_table *table,
                                     const struct gm_check_part *parts, uint32_t n, bool is_short,
                                     uint64_t now)
{
    struct gm_check_step step = {.kind = GM_CHECKED_NONE};
    bool has_traffic = false;
    for (uint32_t i = 0; i < n; i++)
        has_traffic = has_traffic || parts[i].finding == GM_CHECK_TRAFFIC;
    if (has_traffic)
        return search(check, table, parts, n, now);
    for (uint32_t i = 0; i < n; i++) {
        struct gm_check_app *a = &check->apps[parts[i].app];
        if (parts[i].finding != GM_CHECK_QUIET)
            continue;
        const struct pick suspects = {.table = table, .app = parts[i].app, .is_one = is_suspect};
        if (count_all(&suspects) > 0 && a->searched == 0)
            a->failed = 0; /* a try that went well */
        convict(table, parts[i].app, a->is_cleared);
        a->searched = 0;
        a->is_trying = a->is_doubted = false;
        set_proof(table, parts[i].app, is_wrongly_proved, false);
        set_proof(table, parts[i].app, is_suspect, true);
    }
    /* One at a time, so that what it brings about is known to be of it. Of who is cleared at first:
     * that spares most. */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n && is_short && step.kind == GM_CHECKED_NONE; i++)
            if (parts[i].finding == GM_CHECK_QUIET &&
                check->apps[parts[i].app].is_cleared == (pass == 0))
                step = try_more(check, table, parts[i].app, now);
    return step;
}
