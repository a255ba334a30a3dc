/* Command lines: see args.h. */
#include "common/args.h"

#include <stdio.h>
#include <string.h>

#include "common/text.h"

/* Whether the word is this option, with a value or without. */
static int gm_args_is(const char *word, const struct argp_option *option)
{
    const size_t length = strlen(option->name);
    const char letter[] = {'-', (char)option->key, '\0'};
    return (option->key < 0x80 && strcmp(word, letter) == 0) ||
           (strncmp(word, "--", 2) == 0 && strncmp(word + 2, option->name, length) == 0 &&
            (word[2 + length] == '\0' || word[2 + length] == '='));
}

void gm_args_explain(const struct argp_state *state, const char *program, char *why, size_t size)
{
    const char *word = state->next > 0 ? state->argv[state->next - 1] : "";
    const struct argp_option *option = state->root_argp->options;

    if (word[0] != '-' && state->next < state->argc)
        word = state->argv[state->next]; /* inside a group of one-letter options */
    while (option->name && !gm_args_is(word, option))
        option++;
    if (!option->name)
        snprintf(why, size, "unknown option %.60s: %s --help lists them", word, program);
    else if (option->arg)
        snprintf(why, size, "--%s needs a value: --%s=%s", option->name, option->name, option->arg);
    else
        snprintf(why, size, "--%s takes no value", option->name);
    gm_text_clean(why, size);
}
