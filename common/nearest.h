/* "Did you mean": the known word that is nearest to one with a mistake. Pure. */
#ifndef GM_COMMON_NEAREST_H
#define GM_COMMON_NEAREST_H

#include <stddef.h>

struct gm_nearest {
    const char *word; /* as it was written */
    size_t length;    /* ... what of it counts */
    const char *best; /* of the known words that were looked at; NULL: none is near */
    unsigned mistakes;
};

/* Look for words like the first `length` bytes of `word`, which must stay. */
void gm_nearest_begin(struct gm_nearest *nearest, const char *word, size_t length);
/* Look at one that is known, and stays. */
void gm_nearest_look(struct gm_nearest *nearest, const char *known);

#endif
