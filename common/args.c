/* Command lines: see args.h. */
#include "common/args.h"

#include <stdio.h>
#include <string.h>

#include "common/nearest.h"
#include "common/text.h"

/* "did you mean --json?", or how to find out. */
static void gm_args_advise(const struct argp_option *options, const char *word, const char *program,
                           char *text, size_t size)
{
    struct gm_nearest nearest;
    const char *name = word + strspn(word, "-");
    gm_nearest_begin(&nearest, name, strcspn(name, "="));
    for (; options->name; options++)
        if (!(options->flags & OPTION_HIDDEN))
            gm_nearest_look(&nearest, options->name);
    if (nearest.best)
        snprintf(text, size, "did you mean --%s?", nearest.best);
    else
        snprintf(text, size, "%s --help lists them", program);
}

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
    if (!option->name) {
        char advice[96];
        gm_args_advise(state->root_argp->options, word, program, advice, sizeof advice);
        snprintf(why, size, "unknown option %.60s: %s", word, advice);
    } else if (option->arg) {
        snprintf(why, size, "--%s needs a value: --%s=%s", option->name, option->name, option->arg);
    } else {
        snprintf(why, size, "--%s takes no value", option->name);
    }
    gm_text_clean(why, size);
}
