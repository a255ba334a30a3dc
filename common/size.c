/* Numbers, sizes and durations: see size.h. Integers only: no float, no locale. */
#include "common/size.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A decimal number: whole + fraction / scale. */
struct gm_decimal {
    uint64_t whole; /* at most UINT64_MAX, also if the text says more */
    uint64_t fraction;
    uint64_t scale; /* a power of ten; digits beyond the 18th are dropped */
};

static bool gm_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Read "12" or "12.5" and move *text behind it. False: there is no number. */
static bool gm_take_decimal(const char **text, struct gm_decimal *number)
{
    const char *at = *text;
    *number = (struct gm_decimal){.scale = 1};
    if (!gm_is_digit(*at))
        return false;
    for (; gm_is_digit(*at); at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (__builtin_mul_overflow(number->whole, 10u, &number->whole) ||
            __builtin_add_overflow(number->whole, digit, &number->whole)) {
            while (gm_is_digit(at[1]))
                at++;
            number->whole = UINT64_MAX;
        }
    }
    if (*at == '.') {
        at++;
        if (!gm_is_digit(*at))
            return false;
        for (; gm_is_digit(*at); at++) {
            if (number->scale >= 1000000000000000000ull)
                continue;
            number->fraction = number->fraction * 10 + (unsigned)(*at - '0');
            number->scale *= 10;
        }
    }
    *text = at;
    return true;
}

/* number * unit, rounded down, in 63 bits. */
static int gm_scale_decimal(const struct gm_decimal *number, uint64_t unit, uint64_t *value)
{
    unsigned __int128 sum = (unsigned __int128)number->whole * unit +
                            (unsigned __int128)number->fraction * unit / number->scale;
    if (sum > INT64_MAX)
        return -ERANGE;
    *value = (uint64_t)sum;
    return 0;
}

int gm_parse_number(const char *text, uint64_t *value)
{
    uint64_t sum = 0;
    if (*text == '\0')
        return -EINVAL;
    for (; *text; text++) {
        if (!gm_is_digit(*text))
            return -EINVAL;
        if (__builtin_mul_overflow(sum, 10u, &sum) ||
            __builtin_add_overflow(sum, (unsigned)(*text - '0'), &sum))
            return -ERANGE;
    }
    *value = sum;
    return 0;
}

int gm_parse_size(const char *text, uint64_t *bytes)
{
    static const char letters[] = "KMGT";
    struct gm_decimal number;
    uint64_t unit = 1;

    if (!gm_take_decimal(&text, &number))
        return -EINVAL;
    const char *letter = *text != '\0' ? strchr(letters, *text) : NULL;
    if (letter != NULL) {
        unit <<= 10 * (letter - letters + 1);
        text++;
        if (text[0] == 'i' && text[1] == 'B')
            text += 2;
        else if (text[0] == 'B')
            text++;
    } else if (*text == 'B') {
        text++;
    }
    if (*text != '\0')
        return -EINVAL;
    return gm_scale_decimal(&number, unit, bytes);
}

int gm_parse_duration(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ms", 1000000ull}, {"s", 1000000000ull}, {"m", 60000000000ull}};
    struct gm_decimal number;

    if (!gm_take_decimal(&text, &number))
        return -EINVAL;
    if (*text == '\0' && number.whole == 0 && number.fraction == 0) { /* in any unit */
        *ns = 0;
        return 0;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text, units[i].name) == 0)
            return gm_scale_decimal(&number, units[i].ns, ns);
    }
    return -EINVAL;
}

char *gm_format_size(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    unsigned __int128 tenths = 0; /* of a byte: 64 bits are too few */

    if (bytes == 0) {
        snprintf(text, size, "0");
        return text;
    }
    /* The first unit in which the rounded number stays below 1024. */
    for (;; unit++) {
        unsigned __int128 one = (unsigned __int128)1 << (10 * unit);
        tenths = ((unsigned __int128)bytes * 10 + one / 2) / one;
        if (tenths < 10240 || unit + 1 == sizeof(units) / sizeof(units[0]))
            break;
    }
    if (tenths % 10 == 0)
        snprintf(text, size, "%llu %s", (unsigned long long)(tenths / 10), units[unit]);
    else
        snprintf(text, size, "%llu.%u %s", (unsigned long long)(tenths / 10),
                 (unsigned)(tenths % 10), units[unit]);
    return text;
}
