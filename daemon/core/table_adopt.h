/*
 * A table from a ledger: what a new daemon begins with. Pure. Each slot keeps its number. All is
 * checked, and nothing guessed: one thing that cannot be refuses the whole.
 *
 * What was under way has not happened: a chunk that was coming is where it came from, one that was
 * copied out is where `ended` says; in its frame, it leaves that again, to the same pages. Chunks
 * of allocations that were being made, or freed, are nobody's: their programs ask again. Frames
 * without a chunk are free, and dirty; what is shared stays fixed; what was condemned is. Whether a
 * program has a chunk mapped is not known: it counts as mapped on the GPU; on the host if it has an
 * import. All apps are lost, and a frame that one of them may have mapped, and in which no data of
 * it is, is nobody's until that has come back.
 */
#ifndef GM_CORE_TABLE_ADOPT_H
#define GM_CORE_TABLE_ADOPT_H

#include "daemon/core/table_rows.h"

struct gm_adoption {
    const struct gm_ledger *from; /* a copy that nobody else can write */
    uint64_t ended;               /* copies out that have ended */
    uint32_t pages;               /* of the pinned tier */
    uint32_t *scratch;            /* gm_adoption_words of them */
    /* What is wrong, where. */
    enum gm_ledger_kind kind;
    uint32_t slot;
};

size_t gm_adoption_words(uint32_t max_chunks, uint32_t pages);

/*
 * Fill a table that has nothing yet and is at least as large. Its budget is what the frames take,
 * or more. NULL; or what is wrong, in one line: then the table is of no use.
 */
const char *gm_table_adopt(struct gm_table *table, struct gm_adoption *adoption);

/* Into the ledger, which has nothing yet: all that the table has, which was adopted just now. */
void gm_table_commit_all(const struct gm_table *table);

/* The two agree in all that is durable. NULL; or where they differ. For tests. */
const char *gm_table_compare(const struct gm_table *table, const struct gm_table *other);

#endif
