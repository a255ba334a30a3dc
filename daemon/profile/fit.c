#include "daemon/profile/fit.h"

#include <stddef.h>

#define PLAIN_MOST 16u /* multipliers 1, 2, 4, 8, 16 are plain: sizes of numbers */
#define CHANCE 16      /* each constant factor must make a fit by chance so many times rarer ... */
#define CHANCE_FIRST 4 /* ... than this */
#define LARGEST (1ll << 60) /* beyond all addresses: sums of two fit */

__extension__ typedef unsigned __int128 wide;

/* A multiplier, as bounds: low <= it < high. */
struct bounds {
    uint64_t low, low_by; /* low / low_by */
    uint64_t high, high_by;
};

struct search {
    const struct gm_interval *intervals;
    uint32_t n;
    const struct gm_column *columns;
    struct gm_amount best;
    uint64_t cost; /* of the best */
    bool is_plain, is_found;
};

/* The number of [low, high] that is divisible by the largest power of 2. */
static int64_t roundest(int64_t low, int64_t high)
{
    if (low <= 0 && high >= 0)
        return 0;
    const uint64_t from = low > 0 ? (uint64_t)low : (uint64_t)-high;
    const uint64_t to = low > 0 ? (uint64_t)high : (uint64_t)-low;
    uint64_t round = to;
    for (uint64_t rest = to; rest >= from; rest &= rest - 1)
        round = rest;
    return low > 0 ? (int64_t)round : -(int64_t)round;
}

/* Whether a / a_by < b / b_by. */
static bool is_less(uint64_t a, uint64_t a_by, uint64_t b, uint64_t b_by)
{
    return (wide)a * b_by < (wide)b * a_by;
}

/* Whether the multiplier num / den lies within the bounds. */
static bool is_within(const struct bounds *bounds, uint64_t num, uint64_t den)
{
    return !is_less(num, den, bounds->low, bounds->low_by) &&
           is_less(num, den, bounds->high, bounds->high_by);
}

/* The plainest multiplier within the bounds: the roundest whole number, or else the fraction with
 * the smallest numbers. That is down the tree of Stern and Brocot, many steps in one direction at
 * once. */
static bool simplest(const struct bounds *bounds, uint32_t *num, uint32_t *den)
{
    const uint64_t first = bounds->low / bounds->low_by + (bounds->low % bounds->low_by != 0);
    const uint64_t behind = bounds->high / bounds->high_by + (bounds->high % bounds->high_by != 0);
    if (first > 0 && first < behind && behind <= UINT32_MAX) {
        *num = (uint32_t)roundest((int64_t)first, (int64_t)behind - 1);
        *den = 1;
        return true;
    }
    uint64_t left = 0, left_by = 1, right = 1, right_by = 0;
    for (unsigned round = 0; round < 200; round++) {
        const uint64_t mid = left + right, mid_by = left_by + right_by;
        if (mid > UINT32_MAX || mid_by > UINT32_MAX)
            return false;
        if (is_within(bounds, mid, mid_by)) {
            *num = (uint32_t)mid;
            *den = (uint32_t)mid_by;
            return true;
        }
        const bool is_low = is_less(mid, mid_by, bounds->low, bounds->low_by);
        /* The most steps k after which it still is on that side. */
        uint64_t k = 1;
        for (;; k *= 2) {
            const uint64_t a = is_low ? left + 2 * k * right : right + 2 * k * left;
            const uint64_t b = is_low ? left_by + 2 * k * right_by : right_by + 2 * k * left_by;
            if (a > UINT32_MAX || b > UINT32_MAX || is_within(bounds, a, b) ||
                is_less(a, b, bounds->low, bounds->low_by) != is_low)
                break;
        }
        if (is_low) {
            left += k * right;
            left_by += k * right_by;
        } else {
            right += k * left;
            right_by += k * left_by;
        }
    }
    return false;
}

static bool product_of(const struct gm_column *columns, const uint32_t *chosen, uint32_t n,
                       uint32_t at, uint64_t *product)
{
    *product = 1;
    for (uint32_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(*product, columns[chosen[i]].values[at], product))
            return false;
    return *product <= INT64_MAX;
}

/* Multipliers with which the product, plus `constant`, lies in every interval. */
static bool bounds_of(const struct search *search, const uint32_t *chosen, uint32_t n,
                      int64_t constant, struct bounds *bounds)
{
    *bounds = (struct bounds){0, 1, UINT32_MAX, 1};
    for (uint32_t i = 0; i < search->n; i++) {
        int64_t low, high;
        uint64_t product;
        if (__builtin_sub_overflow(search->intervals[i].low, constant, &low) ||
            __builtin_sub_overflow(search->intervals[i].high, constant, &high) ||
            !product_of(search->columns, chosen, n, i, &product) || high < 0)
            return false;
        if (product == 0) {
            if (low > 0)
                return false;
            continue;
        }
        if (low > 0 && is_less(bounds->low, bounds->low_by, (uint64_t)low, product)) {
            bounds->low = (uint64_t)low;
            bounds->low_by = product;
        }
        if (is_less((uint64_t)high + 1, product, bounds->high, bounds->high_by)) {
            bounds->high = (uint64_t)high + 1;
            bounds->high_by = product;
        }
        if (!is_less(bounds->low, bounds->low_by, bounds->high, bounds->high_by))
            return false;
    }
    return true;
}

/* Whether the bounds are narrower than their middle by this factor. */
static bool is_narrow(const struct bounds *bounds, uint64_t times)
{
    /* high - low <= low / times, without fractions */
    return (wide)bounds->high * bounds->low_by * times <=
           (wide)bounds->low * bounds->high_by * (times + 1);
}

/* The products seen so far differ from one observation to another, in so many values. */
static uint32_t values_of(const struct search *search, const uint32_t *chosen, uint32_t n)
{
    uint64_t seen[3], product;
    uint32_t found = 0;
    for (uint32_t i = 0; i < search->n && found < 3; i++) {
        uint32_t at = 0;
        if (!product_of(search->columns, chosen, n, i, &product))
            return 0;
        while (at < found && seen[at] != product)
            at++;
        if (at == found)
            seen[found++] = product;
    }
    return found;
}

static void offer(struct search *search, const uint32_t *chosen, uint32_t n, int64_t constant,
                  uint32_t num, uint32_t den)
{
    const uint64_t cost = (uint64_t)num * den;
    const bool is_plain = den == 1 && num <= PLAIN_MOST && (num & (num - 1)) == 0;
    if (num == 0 || (search->is_found && (search->is_plain > is_plain ||
                                          (search->is_plain == is_plain && search->cost <= cost))))
        return;
    search->best =
        (struct gm_amount){.constant = constant, .numerator = num, .denominator = den, .n = n};
    for (uint32_t i = 0; i < n; i++)
        search->best.factor[i] = search->columns[chosen[i]].factor;
    search->cost = cost;
    search->is_plain = is_plain;
    search->is_found = true;
}

/* The product alone, times a multiplier. */
static void try_product(struct search *search, const uint32_t *chosen, uint32_t n)
{
    struct bounds bounds;
    uint32_t num, den, constant = 0;
    uint64_t times = CHANCE_FIRST;
    if (!bounds_of(search, chosen, n, 0, &bounds))
        return;
    for (uint32_t i = 0; i < n; i++)
        if (search->columns[chosen[i]].is_constant) {
            constant++;
            times *= CHANCE;
        }
    for (num = 1; num <= PLAIN_MOST; num *= 2)
        if (is_within(&bounds, num, 1) && (constant == 0 || is_narrow(&bounds, times))) {
            offer(search, chosen, n, 0, num, 1);
            return;
        }
    if (constant == 0 && simplest(&bounds, &num, &den))
        offer(search, chosen, n, 0, num, den);
}

/* The product times a multiplier, and a constant: two unknowns, so three values are needed. */
static void try_sum(struct search *search, const uint32_t *chosen, uint32_t n)
{
    uint32_t least = 0, most = 0;
    uint64_t smallest = UINT64_MAX, largest = 0, product;
    for (uint32_t i = 0; i < search->n; i++) {
        if (!product_of(search->columns, chosen, n, i, &product))
            return;
        if (product < smallest) {
            smallest = product;
            least = i;
        }
        if (product >= largest) {
            largest = product;
            most = i;
        }
    }
    if (values_of(search, chosen, n) < 3)
        return;
    const int64_t low = search->intervals[most].low - search->intervals[least].high;
    const int64_t high = search->intervals[most].high - search->intervals[least].low;
    const uint64_t across = largest - smallest;
    const struct bounds slope = {low > 0 ? (uint64_t)low : 0, across,
                                 high >= 0 ? (uint64_t)high + 1 : 0, across};
    uint32_t num, den;
    if (high < 0 || !simplest(&slope, &num, &den))
        return;
    int64_t from = INT64_MIN, to = INT64_MAX;
    for (uint32_t i = 0; i < search->n; i++) {
        product_of(search->columns, chosen, n, i, &product);
        const wide scaled = (wide)product * num / den;
        if (scaled > (wide)INT64_MAX / 2)
            return;
        const int64_t least_constant = search->intervals[i].low - (int64_t)scaled;
        const int64_t most_constant = search->intervals[i].high - (int64_t)scaled;
        from = least_constant > from ? least_constant : from;
        to = most_constant < to ? most_constant : to;
    }
    if (from <= to)
        offer(search, chosen, n, roundest(from, to), num, den);
}

typedef void try_with(struct search *search, const uint32_t *chosen, uint32_t n);

/* Every product of `n` factors, in the order of the columns. */
static void try_all(struct search *search, uint32_t n_columns, uint32_t n, bool has_to_vary,
                    try_with *try)
{
    uint32_t chosen[GM_FACTORS_MAX] = {0};
    for (;;) {
        bool is_varying = false;
        for (uint32_t i = 0; i < n; i++)
            is_varying = is_varying || !search->columns[chosen[i]].is_constant;
        if (is_varying || !has_to_vary)
            try(search, chosen, n);
        uint32_t at = n;
        while (at > 0 && chosen[at - 1] == n_columns - 1)
            at--;
        if (at == 0)
            return;
        const uint32_t next = chosen[at - 1] + 1;
        for (uint32_t i = at - 1; i < n; i++)
            chosen[i] = next;
    }
}

bool gm_fit(const struct gm_interval *intervals, uint32_t n, const struct gm_column *columns,
            uint32_t n_columns, struct gm_amount *amount)
{
    struct search search = {.intervals = intervals, .n = n, .columns = columns};
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (intervals[i].low > intervals[i].high || intervals[i].low < -LARGEST ||
            intervals[i].high > LARGEST)
            return false;
        low = intervals[i].low > low ? intervals[i].low : low;
        high = intervals[i].high < high ? intervals[i].high : high;
    }
    if (n == 0)
        return false;
    const bool is_constant = low <= high;
    if (is_constant)
        *amount = (struct gm_amount){.constant = roundest(low, high), .denominator = 1};
    if (is_constant && amount->constant == 0)
        return true;
    for (uint32_t factors = 1; n_columns > 0 && factors <= GM_FACTORS_MAX; factors++) {
        /* A plain multiplier of more factors is preferred to an odd one of fewer. */
        try_all(&search, n_columns, factors, !is_constant, try_product);
        if (search.is_found && search.is_plain)
            break;
    }
    if (!search.is_found && !is_constant && n_columns > 0) {
        try_all(&search, n_columns, 1, true, try_sum);
        if (!search.is_found && n_columns > 1)
            try_all(&search, n_columns, 2, true, try_sum);
    }
    /* What is constant follows factors only by a plain multiplier. */
    if (search.is_found && (!is_constant || search.is_plain))
        *amount = search.best;
    else if (!is_constant)
        return false;
    return true;
}
