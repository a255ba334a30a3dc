/* Taking a GPU's memory over from the daemon before. */
#ifndef GM_DAEMON_ENGINE_ADOPT_H
#define GM_DAEMON_ENGINE_ADOPT_H

#include "daemon/engine/state/state.h"

/* The ledger that the daemon before left: a copy, as others may write the original. */
struct gm_old {
    struct gm_ledger ledger; /* words NULL: there is none */
    uint64_t *copy;
    uint64_t ended; /* copies out that had */
    uint64_t generation;
    uint64_t on_gpu; /* bytes of all its frames there */
    bool is_sound;   /* what was wrong is not the ledger's: another start may do better */
};

/* Find it. What is wrong, in one line: nothing of this GPU can be taken over, ever or (is_sound) by
 * this start; NULL: nothing is, and *old is it, or has no words. */
const char *gm_old_find(struct gm_old *old, const struct gm_engine_config *config);
void gm_old_close(struct gm_old *old);
/* Fill the tables and the tiers of an engine that has nothing yet, and is at least as large; its
 * new ledger has the memory for the chains, and nothing in it. NULL; or what is wrong, as above, in
 * one line of at most `size` bytes in `text`: then the engine is of no use. */
const char *gm_old_adopt(struct gm_old *old, struct gm_engine *engine, char *text, size_t size);
/* Everything of this GPU that the daemon before left is given back. */
void gm_old_drop(const struct gm_engine_config *config);

#endif
