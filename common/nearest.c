/*
 * The nearest word: see nearest.h. A mistake is a letter too many, one that lacks, a wrong one, or
 * two that change places (Damerau, "A Technique for Computer Detection and Correction of Spelling
 * Errors", CACM 1964). A word is near if at most a third of its letters are mistakes, or it begins
 * a known one.
 */
#include "common/nearest.h"

#include <string.h>

#define LONGEST 32u

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Both have at most LONGEST bytes. */
static unsigned mistakes_between(const char *a, size_t a_length, const char *b, size_t b_length)
{
    unsigned row[LONGEST + 1][LONGEST + 1];
    for (unsigned i = 0; i <= a_length; i++)
        for (unsigned k = 0; k <= b_length; k++) {
            if (i == 0 || k == 0) {
                row[i][k] = i + k;
                continue;
            }
            const unsigned is_other = a[i - 1] != b[k - 1];
            row[i][k] = least(row[i - 1][k] + 1, row[i][k - 1] + 1);
            row[i][k] = least(row[i][k], row[i - 1][k - 1] + is_other);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                row[i][k] = least(row[i][k], row[i - 2][k - 2] + 1);
        }
    return row[a_length][b_length];
}

void gm_nearest_begin(struct gm_nearest *nearest, const char *word, size_t length)
{
    *nearest = (struct gm_nearest){.word = word, .length = length};
}

void gm_nearest_look(struct gm_nearest *nearest, const char *known)
{
    const size_t length = strlen(known);
    if (length > LONGEST || nearest->length > LONGEST || nearest->length < 2)
        return;
    const unsigned mistakes = strncmp(known, nearest->word, nearest->length) == 0
                                  ? 1
                                  : mistakes_between(nearest->word, nearest->length, known, length);
    if (mistakes * 3 > (length > 3 ? length + 1 : 3) ||
        (nearest->best && mistakes >= nearest->mistakes))
        return;
    nearest->best = known;
    nearest->mistakes = mistakes;
}
