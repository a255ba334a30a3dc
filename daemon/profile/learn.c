#include "daemon/profile/learn.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/profile/fit.h"

/* Parts per 10,000 of what launches touch that templates may miss, as of what is shipped. */
#define MISSED_MOST 50u
#define OBSERVED_MOST 64u /* different launches that an argument is learned from */
#define NONE_LEAST 4u     /* launches without a touch after which an argument is not touched */
#define DENSE 16u         /* of one row, all but one in so many pages are touched */
#define SLACK 64u         /* a row may be predicted so much too long, if nothing else fits */

/* What a launch touched behind one of its pointers. Pages: true ends lie within them. */
struct observed {
    const struct gm_launch *launch;
    uint64_t base, next; /* the next address in the allocation, or its end */
    uint32_t n;          /* runs, ascending */
    struct gm_span *runs;
    uint64_t touched;
};

struct argument {
    uint32_t offset;
    uint32_t n,
        n_untouched; /* of the observed, those that are different; launches without a touch */
    struct observed observed[OBSERVED_MOST];
};

static uint64_t page_down(uint64_t va)
{
    return va & ~(uint64_t)(GM_PAGE_BYTES - 1);
}

/* ---- what belongs to a pointer ---- */

/* The part of its allocation that belongs to pointer `p`. */
static struct gm_span domain_of(const struct gm_launch *launch, uint32_t p)
{
    const struct gm_pointer *pointer = &launch->pointers[p];
    struct gm_span domain = {page_down(pointer->value), page_down(gm_judge_next(launch, p))};
    bool is_first = true;
    for (uint32_t i = 0; i < launch->n_pointers; i++)
        is_first = is_first && (launch->pointers[i].value >= pointer->value ||
                                launch->pointers[i].alloc.from != pointer->alloc.from);
    if (is_first)
        domain.from = 0; /* of its allocation */
    if (gm_judge_next(launch, p) == pointer->alloc.to)
        domain.to = page_down(pointer->alloc.to + GM_PAGE_BYTES - 1);
    if (domain.to < page_down(pointer->value) + GM_PAGE_BYTES)
        domain.to = page_down(pointer->value) + GM_PAGE_BYTES;
    return domain;
}

static bool observe(const struct gm_launch *launch, uint32_t p, struct observed *observed)
{
    const struct gm_pointer *pointer = &launch->pointers[p];
    const struct gm_span domain = domain_of(launch, p);
    *observed = (struct observed){
        .launch = launch, .base = pointer->value, .next = gm_judge_next(launch, p)};
    for (uint32_t i = 0; i < launch->n_runs; i++) {
        const struct gm_run *run = &launch->runs[i];
        const struct gm_span part = {run->at.from > domain.from ? run->at.from : domain.from,
                                     run->at.to < domain.to ? run->at.to : domain.to};
        if (run->alloc.from != pointer->alloc.from || part.from >= part.to)
            continue;
        struct gm_span *more =
            reallocarray(observed->runs, observed->n + 1, sizeof *observed->runs);
        if (more == NULL)
            return false;
        observed->runs = more;
        observed->runs[observed->n++] = part;
        observed->touched += part.to - part.from;
    }
    return true;
}

/* Whether another launch says the same. */
static bool is_same(const struct observed *a, const struct observed *b)
{
    const struct gm_arguments *left = &a->launch->arguments, *right = &b->launch->arguments;
    if (a->n != b->n || left->bytes != right->bytes ||
        memcmp(left->dimension, right->dimension, sizeof left->dimension) != 0)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->runs[i].from - a->base != b->runs[i].from - b->base ||
            a->runs[i].to - a->runs[i].from != b->runs[i].to - b->runs[i].from)
            return false;
    /* Words that are addresses differ from launch to launch, and say nothing. */
    uint32_t at = 0;
    for (uint32_t p = 0; p <= a->launch->n_pointers; p++) {
        const uint32_t to = p < a->launch->n_pointers ? a->launch->pointers[p].offset : left->bytes;
        if (to > at && memcmp(left->at + at, right->at + at, to - at) != 0)
            return false;
        at = to + 8;
    }
    return true;
}

static bool note(struct argument *argument, const struct gm_launch *launch, uint32_t p)
{
    struct observed *observed = &argument->observed[argument->n];
    if (argument->n == OBSERVED_MOST)
        return true;
    if (!observe(launch, p, observed))
        return false;
    bool is_known = observed->n == 0;
    argument->n_untouched += observed->n == 0;
    for (uint32_t i = 0; i < argument->n && !is_known; i++)
        is_known = is_same(&argument->observed[i], observed);
    if (is_known)
        free(observed->runs);
    else
        argument->n++;
    return true;
}

/* ---- factors ---- */

struct columns {
    uint32_t n;
    struct gm_column column[GM_COLUMNS_MAX];
    uint64_t values[GM_COLUMNS_MAX][OBSERVED_MOST];
};

/* Whether a pointer of a learned launch covers the word. */
static bool is_address(const struct argument *argument, uint32_t offset)
{
    for (uint32_t i = 0; i < argument->n; i++) {
        const struct gm_launch *launch = argument->observed[i].launch;
        for (uint32_t p = 0; p < launch->n_pointers; p++)
            if ((launch->pointers[p].offset & ~7u) == (offset & ~7u))
                return true;
    }
    return false;
}

/* A factor is of use if it is more than 1 somewhere, and says what no other does. */
static void add_column(struct columns *columns, const struct argument *argument, uint16_t factor,
                       bool is_constant)
{
    uint64_t *values = columns->values[columns->n], most = 0;
    bool is_varying = false;
    if (columns->n == GM_COLUMNS_MAX)
        return;
    for (uint32_t i = 0; i < argument->n; i++) {
        if (!gm_factor_value(factor, &argument->observed[i].launch->arguments, &values[i]) ||
            values[i] >= 1ull << 40)
            return;
        most = values[i] > most ? values[i] : most;
        is_varying = is_varying || values[i] != values[0];
    }
    if (most <= 1 || is_varying == is_constant)
        return;
    for (uint32_t c = 0; c < columns->n; c++)
        if (memcmp(columns->values[c], values, argument->n * sizeof *values) == 0)
            return;
    columns->column[columns->n++] = (struct gm_column){factor, is_constant, values};
}

static void find_columns(struct columns *columns, const struct argument *argument)
{
    uint32_t bytes = UINT32_MAX;
    columns->n = 0;
    for (uint32_t i = 0; i < argument->n; i++)
        if (argument->observed[i].launch->arguments.bytes < bytes)
            bytes = argument->observed[i].launch->arguments.bytes;
    bytes = bytes < GM_FACTOR_DIMENSION ? bytes : GM_FACTOR_DIMENSION;
    for (unsigned pass = 0; pass < 2; pass++) { /* what varies first */
        for (uint32_t offset = 0; offset + 4 <= bytes; offset += 4) {
            if (is_address(argument, offset))
                continue;
            add_column(columns, argument, (uint16_t)offset, pass == 1);
            if (offset % 8 == 0)
                add_column(columns, argument, (uint16_t)(offset | GM_FACTOR_LONG), pass == 1);
        }
        for (uint16_t i = 0; i < GM_DIMENSIONS; i++)
            add_column(columns, argument, (uint16_t)(GM_FACTOR_DIMENSION | i), pass == 1);
    }
}

/* ---- shapes ---- */

static uint64_t span_of(const struct observed *observed)
{
    return observed->runs[observed->n - 1].to - observed->runs[0].from;
}

static bool is_dense(const struct observed *observed)
{
    return span_of(observed) - observed->touched <= span_of(observed) / DENSE;
}

static bool fit(const struct argument *argument, const struct columns *columns,
                const struct gm_interval *intervals, struct gm_amount *amount)
{
    return gm_fit(intervals, argument->n, columns->column, columns->n, amount);
}

/* Where the first row begins, in its first page. */
static bool fit_from(const struct argument *argument, const struct columns *columns,
                     struct gm_amount *amount)
{
    struct gm_interval intervals[OBSERVED_MOST];
    for (uint32_t i = 0; i < argument->n; i++) {
        const struct observed *at = &argument->observed[i];
        const int64_t low = (int64_t)(at->runs[0].from - at->base);
        intervals[i] = (struct gm_interval){low, low + (int64_t)GM_PAGE_BYTES - 1};
    }
    return fit(argument, columns, intervals, amount);
}

/* Where a row that ends with page `to` can end. If the next address lies in the page behind, the
 * row may share that page: whose touches those were is not known. */
static struct gm_interval end_of(const struct observed *at, uint64_t to)
{
    const uint64_t most = page_down(at->next) == to ? at->next : to;
    return (struct gm_interval){(int64_t)(to - at->base) - (int64_t)GM_PAGE_BYTES + 1,
                                (int64_t)(most - at->base)};
}

static bool value_of(const struct gm_amount *amount, const struct observed *at, int64_t *value)
{
    return gm_amount_value(amount, &at->launch->arguments, value);
}

/* One row from the first page to the last one. */
static bool fit_row(const struct argument *argument, const struct columns *columns, uint64_t slack,
                    struct gm_template *template)
{
    struct gm_interval intervals[OBSERVED_MOST];
    if (!fit_from(argument, columns, &template->from))
        return false;
    for (uint32_t i = 0; i < argument->n; i++) {
        const struct observed *at = &argument->observed[i];
        int64_t from;
        if (!value_of(&template->from, at, &from))
            return false;
        intervals[i] = end_of(at, at->runs[at->n - 1].to);
        intervals[i].low -= from;
        intervals[i].high -= from;
        if (slack > 0)
            intervals[i].high += (int64_t)(span_of(at) / slack);
    }
    template->stride = (struct gm_amount){.denominator = 1};
    template->count = (struct gm_amount){.constant = 1, .denominator = 1};
    return fit(argument, columns, intervals, &template->bytes);
}

/* Row k begins in the first page of run k and ends in its last one. */
static bool fit_rows(const struct argument *argument, const struct columns *columns,
                     struct gm_template *template)
{
    struct gm_interval stride[OBSERVED_MOST], bytes[OBSERVED_MOST], count[OBSERVED_MOST];
    if (!fit_from(argument, columns, &template->from))
        return false;
    for (uint32_t i = 0; i < argument->n; i++) {
        const struct observed *at = &argument->observed[i];
        int64_t from;
        if (!value_of(&template->from, at, &from))
            return false;
        count[i] = (struct gm_interval){at->n, at->n};
        stride[i] = (struct gm_interval){0, 1ll << 46};
        for (int64_t k = 1; k < (int64_t)at->n; k++) {
            const int64_t first = (int64_t)(at->runs[k].from - at->base) - from;
            const int64_t low = (first + k - 1) / k; /* upwards */
            const int64_t high = (first + (int64_t)GM_PAGE_BYTES - 1) / k;
            stride[i].low = low > stride[i].low ? low : stride[i].low;
            stride[i].high = high < stride[i].high ? high : stride[i].high;
        }
    }
    if (!fit(argument, columns, stride, &template->stride) ||
        !fit(argument, columns, count, &template->count))
        return false;
    for (uint32_t i = 0; i < argument->n; i++) {
        const struct observed *at = &argument->observed[i];
        int64_t from, step;
        if (!value_of(&template->from, at, &from) || !value_of(&template->stride, at, &step))
            return false;
        bytes[i] = (struct gm_interval){1, 1ll << 46};
        for (int64_t k = 0; k < (int64_t)at->n; k++) {
            const struct gm_interval end = end_of(at, at->runs[k].to);
            const int64_t low = end.low - from - k * step, high = end.high - from - k * step;
            bytes[i].low = low > bytes[i].low ? low : bytes[i].low;
            bytes[i].high = high < bytes[i].high ? high : bytes[i].high;
        }
    }
    return fit(argument, columns, bytes, &template->bytes);
}

static void learn_argument(const struct argument *argument, struct columns *columns,
                           struct gm_profile_argument *learned)
{
    bool is_dense_always = true, is_one_always = true;
    learned->how = GM_PROFILE_TOUCH;
    for (uint32_t i = 0; i < argument->n; i++) {
        is_one_always = is_one_always && argument->observed[i].n == 1;
        is_dense_always = is_dense_always && is_dense(&argument->observed[i]);
    }
    find_columns(columns, argument);
    if ((is_dense_always && fit_row(argument, columns, 0, &learned->template)) ||
        (!is_one_always && fit_rows(argument, columns, &learned->template)) ||
        (is_dense_always && fit_row(argument, columns, SLACK, &learned->template)))
        learned->template.offset = (uint16_t)argument->offset;
    else
        *learned = (struct gm_profile_argument){.how = GM_PROFILE_OTHER,
                                                .template.offset = (uint16_t)argument->offset};
}

/* ---- kernels ---- */

/* The launches of a kernel. Every second one, from the first on, is learned from. */
struct launches {
    uint32_t n;
    const struct gm_launch **at;
};

static bool launches_of(const struct gm_records *records, uint32_t kernel,
                        struct launches *launches)
{
    launches->n = 0;
    launches->at = malloc(((size_t)records->n_launches + 1) * sizeof *launches->at);
    for (uint32_t i = 0; launches->at != NULL && i < records->n_launches; i++)
        if (records->launches[i].kernel == kernel)
            launches->at[launches->n++] = &records->launches[i];
    return launches->at != NULL;
}

/* The bytes of a launch in allocations that no argument leads to. */
static uint64_t unnamed_of(const struct gm_launch *launch)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < launch->n_runs; i++) {
        const struct gm_run *run = &launch->runs[i];
        bool is_named = false;
        for (uint32_t p = 0; p < launch->n_pointers && !is_named; p++)
            is_named = launch->pointers[p].alloc.from == run->alloc.from;
        bytes += is_named ? 0 : run->at.to - run->at.from;
    }
    return bytes;
}

/* One argument. */
static bool learn_offset(const struct launches *launches, uint32_t offset,
                         struct argument *argument, struct columns *columns,
                         struct gm_profile_kernel *learned)
{
    bool is_good = true;
    argument->offset = offset;
    argument->n = argument->n_untouched = 0;
    for (uint32_t i = 0; i < launches->n && is_good; i += 2)
        for (uint32_t p = 0; p < launches->at[i]->n_pointers && is_good; p++)
            if (launches->at[i]->pointers[p].offset == offset)
                is_good = note(argument, launches->at[i], p);
    if (is_good && (argument->n > 0 || argument->n_untouched >= NONE_LEAST)) {
        struct gm_profile_argument *at = &learned->arguments[learned->n++];
        *at = (struct gm_profile_argument){.how = GM_PROFILE_NONE,
                                           .template.offset = (uint16_t)offset};
        if (argument->n > 0)
            learn_argument(argument, columns, at);
    }
    for (uint32_t i = 0; i < argument->n; i++)
        free(argument->observed[i].runs);
    return is_good;
}

/* The offsets at which the launches have an address, ascending. */
static uint32_t offsets_of(const struct launches *launches, uint32_t offsets[GM_PROFILE_ARGUMENTS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < launches->n; i += 2)
        for (uint32_t p = 0; p < launches->at[i]->n_pointers; p++) {
            const uint32_t offset = launches->at[i]->pointers[p].offset;
            uint32_t at = n;
            while (at > 0 && offsets[at - 1] > offset)
                at--;
            if ((at > 0 && offsets[at - 1] == offset) || n == GM_PROFILE_ARGUMENTS)
                continue;
            memmove(&offsets[at + 1], &offsets[at], (n - at) * sizeof *offsets);
            offsets[at] = offset;
            n++;
        }
    return n;
}

/* How the launches that were not learned from are predicted. */
static bool judge(const struct launches *launches, const struct gm_profile_kernel *by,
                  struct gm_lesson *lesson)
{
    *lesson = (struct gm_lesson){0};
    for (uint32_t i = 1; i < launches->n; i += 2)
        for (uint32_t way = 0; way < 3; way++)
            if (!gm_judge(launches->at[i], by, (enum gm_judge_by)way, &lesson->verdict[way]))
                return false;
    return true;
}

static void tell(struct gm_profile_kernel *kernel, const struct gm_lesson *lesson,
                 uint64_t launches)
{
    const struct gm_verdict *verdict = &lesson->verdict[GM_JUDGE_PROFILE];
    kernel->missed = kernel->excess = GM_PROFILE_UNKNOWN;
    if (launches > 1) {
        kernel->missed = gm_judge_parts(verdict->missed, verdict);
        kernel->excess = gm_judge_parts(verdict->excess, verdict);
    }
}

/*
 * Templates that miss what addresses alone foresee are worse than none: what is missed is read over
 * the link. (Two launches of a different size teach a fixed one.) Then the kernel is predicted by
 * addresses.
 */
static void forget_what_misses(struct gm_profile_kernel *learned, struct gm_lesson *lesson)
{
    struct gm_verdict *by = lesson->verdict;
    if (gm_judge_parts(by[GM_JUDGE_PROFILE].missed, &by[GM_JUDGE_PROFILE]) <=
        gm_judge_parts(by[GM_JUDGE_ADDRESSES].missed, &by[GM_JUDGE_ADDRESSES]) + MISSED_MOST)
        return;
    learned->n = 0;
    by[GM_JUDGE_PROFILE] = by[GM_JUDGE_ADDRESSES];
}

static bool learn(const struct gm_recorded_kernel *recorded, const struct launches *launches,
                  struct gm_profile_kernel *learned, struct gm_lesson *lesson)
{
    uint32_t offsets[GM_PROFILE_ARGUMENTS];
    const uint32_t n = offsets_of(launches, offsets);
    struct argument *argument = malloc(sizeof *argument);
    struct columns *columns = malloc(sizeof *columns);
    *learned = (struct gm_profile_kernel){.hash = recorded->hash,
                                          .registers = recorded->registers,
                                          .launches = launches->n,
                                          .name = strdup(recorded->name),
                                          .arguments = calloc(n + 1, sizeof *learned->arguments)};
    bool is_good =
        argument != NULL && columns != NULL && learned->name != NULL && learned->arguments != NULL;
    for (uint32_t i = 0; i < launches->n; i++) {
        const uint64_t unnamed = unnamed_of(launches->at[i]);
        learned->unnamed = unnamed > learned->unnamed ? unnamed : learned->unnamed;
    }
    for (uint32_t i = 0; i < n && is_good; i++)
        is_good = learn_offset(launches, offsets[i], argument, columns, learned);
    free(argument);
    free(columns);
    is_good = is_good && judge(launches, learned, lesson);
    if (is_good) {
        forget_what_misses(learned, lesson);
        tell(learned, lesson, launches->n);
    } else {
        gm_profile_free_kernel(learned);
    }
    return is_good;
}

/* Enter a kernel that the profile does not have; it is the profile's then. */
static bool enter(struct gm_profile *profile, const struct gm_profile_kernel *learned)
{
    struct gm_profile_kernel *more =
        profile->n < GM_PROFILE_KERNELS
            ? reallocarray(profile->kernels, profile->n + 1, sizeof *more)
            : NULL;
    if (more == NULL)
        return false;
    profile->kernels = more;
    uint32_t at = profile->n++;
    for (; at > 0 && more[at - 1].hash > learned->hash; at--)
        more[at] = more[at - 1];
    more[at] = *learned;
    return true;
}

/* As far as their registers tell: 0 is not known. */
static bool is_same_code(uint32_t registers, uint32_t other)
{
    return registers == other || registers == 0 || other == 0;
}

/* Learn the launches of a kernel into the profile. What it has of the kernel stays, if it is of the
 * same code and as good. */
static bool merge(const struct gm_recorded_kernel *recorded, const struct launches *launches,
                  struct gm_profile *profile, struct gm_lesson *lesson)
{
    struct gm_profile_kernel learned;
    struct gm_profile_kernel *known =
        (struct gm_profile_kernel *)(uintptr_t)gm_profile_find(profile, recorded->hash);
    struct gm_lesson with;
    if (!learn(recorded, launches, &learned, lesson))
        return false;
    if (known == NULL) {
        if (enter(profile, &learned))
            return true;
        gm_profile_free_kernel(&learned);
        return false;
    }
    if (is_same_code(known->registers, learned.registers)) {
        if (learned.registers == 0)
            learned.registers = known->registers;
        if (!judge(launches, known, &with)) {
            gm_profile_free_kernel(&learned);
            return false;
        }
        const struct gm_verdict *old = &with.verdict[GM_JUDGE_PROFILE];
        const struct gm_verdict *new = &lesson->verdict[GM_JUDGE_PROFILE];
        learned.launches += known->launches;
        learned.unnamed = known->unnamed > learned.unnamed ? known->unnamed : learned.unnamed;
        if (launches->n < 2 || old->missed + old->excess <= new->missed + new->excess) {
            known->launches = learned.launches;
            known->unnamed = learned.unnamed;
            known->registers = learned.registers;
            if (launches->n > 1)
                tell(known, &with, launches->n);
            *lesson = with;
            gm_profile_free_kernel(&learned);
            return true;
        }
    }
    gm_profile_free_kernel(known);
    *known = learned;
    return true;
}

bool gm_learn(const struct gm_records *records, struct gm_profile *profile,
              struct gm_lesson *lessons)
{
    for (uint32_t i = 0; i < records->n_kernels; i++) {
        struct launches launches;
        struct gm_lesson lesson = {0};
        bool is_good = launches_of(records, i, &launches);
        if (is_good && launches.n > 0)
            is_good = merge(&records->kernels[i], &launches, profile, &lesson);
        free(launches.at);
        if (!is_good)
            return false;
        if (lessons != NULL)
            lessons[i] = lesson;
    }
    return true;
}
