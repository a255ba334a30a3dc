/*
 * Templates: what a kernel touches behind an address that is one of its arguments (MSched, its
 * prediction of working sets from launch arguments). Pure; calls nothing. The profiler makes them
 * (daemon/profile), files keep them (common/profile.h), launches evaluate them (shim/observe).
 *
 * A template names rows of memory: `count` rows of `bytes`, `stride` apart, the first of them at
 * the argument plus `from`. Each of the four is an amount: a constant, or a constant and a rational
 * multiple of a product of factors. So the three kinds are
 *
 *   T1 fixed     one row, all amounts constant
 *   T2 linear    one row, an amount that follows arguments or launch dimensions
 *   T3 strided   several rows
 *
 * A factor is a launch dimension or a word of the arguments, at its offset as the kernel sees it.
 */
#ifndef GM_COMMON_TEMPLATES_H
#define GM_COMMON_TEMPLATES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define GM_DIMENSIONS 6u         /* of a launch: grid x, y, z, block x, y, z */
#define GM_FACTORS_MAX 3u        /* of one amount */
#define GM_ARGUMENT_BYTES 32768u /* a kernel cannot have more arguments */

/* A factor: a word of 4 or 8 bytes at an offset of the arguments, or a dimension. */
enum { GM_FACTOR_WORD = 0x0000, GM_FACTOR_LONG = 0x8000, GM_FACTOR_DIMENSION = 0x7ff8 };

struct gm_amount {
    int64_t constant;
    uint32_t numerator, denominator; /* of the product; denominator > 0 */
    uint32_t n;                      /* factors; 0: the constant alone */
    uint16_t factor[GM_FACTORS_MAX];
};

struct gm_template {
    uint16_t offset; /* of the address, in the arguments: a multiple of 8 */
    struct gm_amount from, bytes, stride, count;
};

/* The arguments of a launch, as the kernel sees them. */
struct gm_arguments {
    uint32_t dimension[GM_DIMENSIONS];
    uint32_t bytes; /* at `at` */
    const unsigned char *at;
};

/* Rows of memory; none if count is 0. */
struct gm_rows {
    uint64_t from, bytes, stride, count;
};

/* The value of a factor. False: it is not among the arguments. */
static inline bool gm_factor_value(uint16_t factor, const struct gm_arguments *arguments,
                                   uint64_t *value)
{
    if ((factor & 0xfff8) == GM_FACTOR_DIMENSION) {
        const uint32_t i = factor & 7u;
        *value = i < GM_DIMENSIONS ? arguments->dimension[i] : 0;
        return i < GM_DIMENSIONS;
    }
    const uint32_t offset = factor & 0x7fffu, bytes = factor & GM_FACTOR_LONG ? 8 : 4;
    if (offset + bytes > arguments->bytes)
        return false;
    *value = 0;
    memcpy(value, arguments->at + offset, bytes); /* little endian, as the GPU */
    return true;
}

/* Whether the amount can be had, and fits. */
static inline bool gm_amount_value(const struct gm_amount *amount,
                                   const struct gm_arguments *arguments, int64_t *value)
{
    uint64_t product = amount->numerator, factor;
    *value = amount->constant;
    if (amount->n == 0)
        return true;
    for (uint32_t i = 0; i < amount->n && i < GM_FACTORS_MAX; i++)
        if (!gm_factor_value(amount->factor[i], arguments, &factor) ||
            __builtin_mul_overflow(product, factor, &product))
            return false;
    product /= amount->denominator;
    return product <= INT64_MAX && !__builtin_add_overflow(*value, (int64_t)product, value);
}

/*
 * What the template touches in this launch. False: it cannot be told, as an argument is lacking, a
 * number does not fit, or the rows leave the address space. Rows that touch each other come as one.
 */
static inline bool gm_template_rows(const struct gm_template *template,
                                    const struct gm_arguments *arguments, struct gm_rows *rows)
{
    const uint64_t top = 1ull << 47; /* of addresses */
    int64_t from, bytes, stride, count;
    uint64_t base, last;
    if (template->offset + 8u > arguments->bytes)
        return false;
    memcpy(&base, arguments->at + template->offset, sizeof(base));
    if (base >= top || !gm_amount_value(&template->from, arguments, &from) ||
        !gm_amount_value(&template->bytes, arguments, &bytes) ||
        !gm_amount_value(&template->stride, arguments, &stride) ||
        !gm_amount_value(&template->count, arguments, &count) || bytes < 0 || stride < 0 ||
        count < 0)
        return false;
    *rows = (struct gm_rows){.from = base + (uint64_t)from,
                             .bytes = (uint64_t)bytes,
                             .stride = (uint64_t)stride,
                             .count = bytes > 0 ? (uint64_t)count : 0};
    if (rows->count == 0)
        return true;
    if (rows->from >= top || __builtin_mul_overflow(rows->stride, rows->count - 1, &last) ||
        last >= top || rows->bytes > top || rows->from + last + rows->bytes > top)
        return false;
    if (rows->stride <= rows->bytes) {
        rows->bytes += last;
        rows->count = 1;
    }
    return true;
}

static inline bool gm_amount_is_fixed(const struct gm_amount *amount)
{
    return amount->n == 0;
}

enum gm_template_kind { GM_TEMPLATE_FIXED, GM_TEMPLATE_LINEAR, GM_TEMPLATE_STRIDED };

static inline enum gm_template_kind gm_template_kind(const struct gm_template *template)
{
    if (template->count.n > 0 || template->count.constant > 1)
        return GM_TEMPLATE_STRIDED;
    return gm_amount_is_fixed(&template->from) && gm_amount_is_fixed(&template->bytes)
               ? GM_TEMPLATE_FIXED
               : GM_TEMPLATE_LINEAR;
}

#endif
