/* Classes of programs, and the bounds of weight and share, for GPUMUX_CLASS, `mux-ctl set`, rules
 * and the scheduler (daemon/core/sched.h). Pure; calls nothing. */
#ifndef GM_COMMON_CLASSES_H
#define GM_COMMON_CLASSES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define GM_CLASS_WORDS(X)                                                                          \
    X(AUTO, auto)               /* its level follows from what it does */                          \
    X(LATENCY, latency)         /* before all levels, always */                                    \
    X(INTERACTIVE, interactive) /* level 1, always */                                              \
    X(BATCH, batch)             /* the last level, always */
#define GM_CLASS_LIST "auto, latency, interactive or batch"

enum gm_sched_class {
#define GM_CLASS_WORD(NAME, name) GM_CLASS_##NAME,
    GM_CLASS_WORDS(GM_CLASS_WORD)
#undef GM_CLASS_WORD
        GM_CLASSES,
};

#define GM_SCHED_WEIGHT 1000u      /* the weight 1: weights are in thousandths */
#define GM_SCHED_WEIGHT_MIN 100u   /* 0.1 */
#define GM_SCHED_WEIGHT_MAX 10000u /* 10 */
#define GM_SCHED_SHARE_ALL 1000u   /* the whole GPU: in thousandths of its time */

/* The word for a class, or "unknown". */
static inline const char *gm_class_name(uint32_t class)
{
#define GM_CLASS_WORD(NAME, name) #name,
    static const char *const words[] = {GM_CLASS_WORDS(GM_CLASS_WORD)};
#undef GM_CLASS_WORD
    return class < GM_CLASSES ? words[class] : "unknown";
}

/* The class that `word` names. False: none. */
static inline bool gm_class_index(const char *word, uint32_t *index)
{
    for (uint32_t i = 0; i < GM_CLASSES; i++) {
        if (strcmp(word, gm_class_name(i)) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

#endif
