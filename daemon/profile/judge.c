/* Spans of pages are collected, sorted and joined; then two sorted lists are compared. */
#include "daemon/profile/judge.h"

#include <stdlib.h>

#define ROWS_MOST 65536u /* more are taken for one row: a span of pages each */

struct spans {
    uint32_t n, room;
    struct gm_span *at;
};

static uint64_t page_down(uint64_t va)
{
    return va & ~(uint64_t)(GM_PAGE_BYTES - 1);
}

/* Add the pages of [from, to) as far as they are in `within`. */
static bool add(struct spans *spans, uint64_t from, uint64_t to, const struct gm_span *within)
{
    const uint64_t end = page_down(within->to + GM_PAGE_BYTES - 1);
    from = page_down(from > within->from ? from : within->from);
    to = page_down(to + GM_PAGE_BYTES - 1);
    to = to < end ? to : end;
    if (from >= to)
        return true;
    if (spans->n == spans->room) {
        const uint32_t room = spans->room > 0 ? 2 * spans->room : 16;
        struct gm_span *more = reallocarray(spans->at, room, sizeof *more);
        if (more == NULL)
            return false;
        spans->at = more;
        spans->room = room;
    }
    spans->at[spans->n++] = (struct gm_span){from, to};
    return true;
}

static int compare(const void *a, const void *b)
{
    const struct gm_span *left = a, *right = b;
    return left->from < right->from ? -1 : left->from > right->from;
}

static void join(struct spans *spans)
{
    uint32_t kept = 0;
    if (spans->n == 0)
        return;
    qsort(spans->at, spans->n, sizeof *spans->at, compare);
    for (uint32_t i = 1; i < spans->n; i++) {
        struct gm_span *last = &spans->at[kept];
        if (spans->at[i].from > last->to)
            spans->at[++kept] = spans->at[i];
        else if (spans->at[i].to > last->to)
            last->to = spans->at[i].to;
    }
    spans->n = kept + 1;
}

static uint64_t sum(const struct spans *spans)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < spans->n; i++)
        bytes += spans->at[i].to - spans->at[i].from;
    return bytes;
}

static uint64_t common(const struct spans *a, const struct spans *b)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0, j = 0; i < a->n && j < b->n;) {
        const struct gm_span left = a->at[i], right = b->at[j];
        const uint64_t from = left.from > right.from ? left.from : right.from;
        const uint64_t to = left.to < right.to ? left.to : right.to;
        if (from < to)
            bytes += to - from;
        if (left.to < right.to)
            i++;
        else
            j++;
    }
    return bytes;
}

uint64_t gm_judge_next(const struct gm_launch *launch, uint32_t p)
{
    const struct gm_pointer *pointer = &launch->pointers[p];
    uint64_t next = pointer->alloc.to;
    for (uint32_t i = 0; i < launch->n_pointers; i++)
        if (launch->pointers[i].value > pointer->value && launch->pointers[i].value < next)
            next = launch->pointers[i].value;
    return next;
}

static const struct gm_profile_argument *argument_at(const struct gm_profile_kernel *kernel,
                                                     uint32_t offset)
{
    for (uint32_t i = 0; i < kernel->n; i++)
        if (kernel->arguments[i].template.offset == offset)
            return &kernel->arguments[i];
    return NULL;
}

static bool predict_template(const struct gm_template *template, const struct gm_launch *launch,
                             const struct gm_span *alloc, struct spans *spans)
{
    struct gm_rows rows;
    if (!gm_template_rows(template, &launch->arguments, &rows))
        return true;
    if (rows.count > ROWS_MOST)
        return add(spans, rows.from, rows.from + rows.stride * (rows.count - 1) + rows.bytes,
                   alloc);
    for (uint64_t row = 0; row < rows.count; row++) {
        const uint64_t from = rows.from + row * rows.stride;
        if (!add(spans, from, from + rows.bytes, alloc))
            return false;
    }
    return true;
}

static bool predict(const struct gm_launch *launch, const struct gm_profile_kernel *kernel,
                    enum gm_judge_by by, struct spans *spans)
{
    for (uint32_t i = 0; i < launch->n_pointers; i++) {
        const struct gm_pointer *pointer = &launch->pointers[i];
        const struct gm_profile_argument *argument =
            by == GM_JUDGE_PROFILE ? argument_at(kernel, pointer->offset) : NULL;
        bool is_good = true;
        if (by == GM_JUDGE_ALLOCS)
            is_good = add(spans, pointer->alloc.from, pointer->alloc.to, &pointer->alloc);
        else if (argument == NULL || argument->how == GM_PROFILE_OTHER)
            is_good = add(spans, pointer->value, gm_judge_next(launch, i), &pointer->alloc);
        else if (argument->how == GM_PROFILE_TOUCH)
            is_good = predict_template(&argument->template, launch, &pointer->alloc, spans);
        if (!is_good)
            return false;
    }
    return true;
}

bool gm_judge(const struct gm_launch *launch, const struct gm_profile_kernel *kernel,
              enum gm_judge_by by, struct gm_verdict *verdict)
{
    struct spans touched = {0}, predicted = {0};
    bool is_good = predict(launch, kernel, by, &predicted);
    for (uint32_t i = 0; i < launch->n_runs && is_good; i++)
        is_good =
            add(&touched, launch->runs[i].at.from, launch->runs[i].at.to, &launch->runs[i].alloc);
    if (is_good) {
        join(&touched);
        join(&predicted);
        const uint64_t both = common(&touched, &predicted);
        verdict->touched += sum(&touched);
        verdict->missed += sum(&touched) - both;
        verdict->excess += sum(&predicted) - both;
    }
    free(touched.at);
    free(predicted.at);
    return is_good;
}

uint16_t gm_judge_parts(uint64_t bytes, const struct gm_verdict *verdict)
{
    if (verdict->touched == 0)
        return bytes == 0 ? 0 : GM_PROFILE_UNKNOWN - 1;
    const double parts = (double)bytes * 10000.0 / (double)verdict->touched;
    return parts < GM_PROFILE_UNKNOWN - 1 ? (uint16_t)(parts + 0.5) : GM_PROFILE_UNKNOWN - 1;
}
