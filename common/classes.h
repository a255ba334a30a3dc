/*
 * The words for a program's class, in the order of enum gm_sched_class (daemon/core/sched.h, which
 * the shim does not see): GPUMUX_CLASS, `mux-ctl set`, rules. test_settings holds both together.
 */
#ifndef GM_COMMON_CLASSES_H
#define GM_COMMON_CLASSES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define GM_CLASS_WORDS(X) X(auto) X(latency) X(interactive) X(batch)
#define GM_CLASS_LIST "auto, latency, interactive or batch"

/* The index of `word`; false: it is none of them. */
static inline bool gm_class_index(const char *word, uint32_t *index)
{
#define GM_CLASS_WORD(name) #name,
    static const char *const words[] = {GM_CLASS_WORDS(GM_CLASS_WORD)};
#undef GM_CLASS_WORD
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i]) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

#endif
