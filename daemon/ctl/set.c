/* mux-ctl set, pause, resume: change settings of programs. Calls ask.c, select.c and say.c. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/nearest.h"
#include "common/settings.h"

/* The one word that is no setting is a pid. */
static bool take_pid(const struct mux_options *options, const char *word, bool has_settings,
                     struct mux_selection *whose)
{
    static const char *const names[] = {
        "class=", "weight=", "share=", "paused=", "oversize=", "cap="};
    struct gm_nearest nearest;
    char other[160] = "no pid";
    gm_nearest_begin(&nearest, word, strcspn(word, "=") + (strchr(word, '=') != NULL));
    for (size_t i = 0; has_settings && i < sizeof names / sizeof names[0]; i++)
        gm_nearest_look(&nearest, names[i]);
    if (has_settings)
        snprintf(other, sizeof other, "neither a pid nor a setting%s%s%s",
                 nearest.best ? ": did you mean "
                              : " (class=, weight=, share=, paused=, oversize=, cap=)",
                 nearest.best ? nearest.best : "", nearest.best ? "?" : "");
    return mux_select_pid(options, word, other, whose);
}

struct gm_msg_set mux_set_of(const struct gm_settings *said)
{
    return (struct gm_msg_set){.settings = said->has,
                               .class = said->class,
                               .weight = said->weight,
                               .share = said->share,
                               .paused = gm_settings_paused(said),
                               .is_oversize = said->is_oversize,
                               .cap = said->cap};
}

bool mux_read_set(const struct mux_options *options, const char *fixed, struct gm_msg_set *set)
{
    struct gm_settings said = {0};
    struct mux_selection whose = {0};
    char why[256];

    if (fixed)
        gm_settings_take(&said, fixed, why, sizeof why);
    for (char **word = options->words; *word; word++) {
        int error = fixed ? -ENOENT : gm_settings_take(&said, *word, why, sizeof why);
        if (error && error != -ENOENT) {
            mux_complain("%s: %s", options->name, why);
            return false;
        }
        if (error && !take_pid(options, *word, !fixed, &whose))
            return false;
    }
    if (!mux_select(options, &whose))
        return false;
    if (whose.selects == 0) {
        mux_complain("%s: which program? say a pid, --command=NAME or --user=NAME", options->name);
        return false;
    }
    if (said.has == 0) {
        mux_complain("%s: what? say class=, weight=, share=, paused=, oversize= or cap=",
                     options->name);
        return false;
    }
    *set = mux_set_of(&said);
    set->selects = whose.selects;
    set->pid = whose.pid;
    set->uid = whose.uid;
    memcpy(set->command, whose.command, sizeof set->command);
    return true;
}

static int change(const struct mux_options *options, const char *fixed)
{
    struct gm_msg_set_is answer = {0};
    struct gm_msg_set set;
    if (!mux_read_set(options, fixed, &set))
        return MUX_FAILED;
    const int code = mux_demand(options, GM_MSG_SET, &set, GM_MSG_SET_IS, &answer, sizeof answer);
    if (code)
        return code;
    printf("%u program%s changed\n", answer.changed, answer.changed == 1 ? "" : "s");
    if (answer.text[0] != '\0')
        printf("%s\n", answer.text);
    return mux_written("what was changed");
}

int mux_set(const struct mux_options *options)
{
    return change(options, NULL);
}

int mux_pause(const struct mux_options *options)
{
    return change(options, "paused=yes");
}

int mux_resume(const struct mux_options *options)
{
    return change(options, "paused=no");
}
