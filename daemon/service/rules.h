/* clang-format off */
/*
 * Rules: an administrator's settings for programs that will connect.
 *
 *   user=alice command=train* class=batch weight=0.5 share=50%
 *
 * A rule has conditions and settings (common/settings.h). All conditions must hold. `user=` is a
 * name or a number. So is `unix-group=`, a group of the system that the program's user belongs to
 * by the user database (users.h), whatever the process says. `command=` is a program's name, with
 * *, ? and [...] as in a shell. `asks=` is the class that its environment asked for when it began
 * (GPUMUX_CLASS; auto: none that is known). Only the first rule that matches a program counts, of
 * those that set something. Rules of the command line come before those of the file. A program
 * chooses its own name and what it asks for, so a rule that must bind a user needs `user=` or
 * `unix-group=`, and no other condition.
 *
 * A rule for all programs of users can also say what they may have together: `user-gpu=20G` on each
 * GPU, `user-pinned=40G` of pinned memory. Of each the first counts that matches the user.
 *
 * `place=off` or `order`, `need=12G`, `admit=now` or `fit` and `mps=on` or `off` hold when a program starts. Of each the first rule counts that says it.
 *
 * options.c adds rules; the engine looks them up through its outlet; control.c shows them. Calls
 * common/ and the system's user database.
 */
/* clang-format on */
#ifndef GM_DAEMON_SERVICE_RULES_H
#define GM_DAEMON_SERVICE_RULES_H

#include <sys/types.h>

#include "common/settings.h"

#define GM_RULES_MAX 256u

enum gm_place_wish { GM_PLACE_UNSAID, GM_PLACE_OFF, GM_PLACE_ORDER };
enum gm_admit_wish { GM_ADMIT_UNSAID, GM_ADMIT_NOW, GM_ADMIT_FIT };
enum gm_mps_wish { GM_MPS_UNSAID, GM_MPS_ON, GM_MPS_NOT };

/* What holds when a program starts. */
struct gm_start {
    uint32_t place; /* enum gm_place_wish */
    uint64_t need;  /* bytes; 0: not said */
    uint32_t admit; /* enum gm_admit_wish */
    uint32_t mps;   /* enum gm_mps_wish */
};

struct gm_rule {
    bool has_user, has_group, has_command, has_asks;
    bool is_unknown;       /* there is no such user, or no more: it matches nobody */
    bool is_group_unknown; /* likewise */
    uid_t uid;
    gid_t gid;
    uint32_t asks;                    /* enum gm_sched_class */
    unsigned line;                    /* of the configuration file; 0: of the command line */
    char user[GM_COMMAND_MAX + 1];    /* as it was written */
    char group[GM_COMMAND_MAX + 1];   /* of Unix, likewise */
    char command[GM_COMMAND_MAX + 1]; /* a pattern */
    struct gm_settings settings;
    struct gm_user_totals totals;
    struct gm_start start;
};

struct gm_rules {
    uint32_t n;
    struct gm_rule rule[GM_RULES_MAX];
};

/*
 * Append the rule in `text`. Returns 0; or -EINVAL, -ERANGE, -EEXIST or -ENOSPC with one line in
 * `why`, and then nothing changed: it is no rule, or can match nothing.
 */
int gm_rules_add(struct gm_rules *rules, const char *text, unsigned line, char *why,
                 size_t why_size);

/* The rule that is surely for a program of `uid` with this name that asks for this class; NULL if
 * there is none. */
const struct gm_rule *gm_rules_match(const struct gm_rules *rules, uid_t uid, const char *name,
                                     uint32_t asks);

/* Whether the system has said which groups the user is of, if rules want to know. */
bool gm_rules_are_sure(const struct gm_rules *rules, uid_t uid);

/* The settings of that rule, and its text. False: there is none. While the user's groups are not
 * known, what bounds a program is the least that may hold: nobody has more because the system is
 * slow to say. */
bool gm_rules_find(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                   struct gm_settings *settings, char *text, size_t size);

/* What holds for such a program when it starts: of each the first rule that says it. */
void gm_rules_start(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                    struct gm_start *start);

/* What all programs of `uid` may have together: likewise. */
void gm_rules_totals(const struct gm_rules *rules, uid_t uid, struct gm_user_totals *totals);

/* The text of the rule that says what they may have of the GPU. False: none does. */
bool gm_rules_find_total(const struct gm_rules *rules, uid_t uid, char *text, size_t size);

/* Whether rule number n binds such a program. `text`: why not, or which parts of it do not; "": all
 * of it does. */
bool gm_rules_explain(const struct gm_rules *rules, uint32_t n, uid_t uid, const char *name,
                      uint32_t asks, char *text, size_t size);

/* All that rules say of such a program, as a rule says it; "": nothing. */
void gm_rules_result(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                     struct gm_settings *settings, char *text, size_t size);

/* The class that it begins with: what it asks for, if it asks and its user may have it. `best` is
 * that of --best-class. */
enum gm_sched_class gm_rules_class(const struct gm_settings *ruled, uint32_t best, bool is_admin,
                                   bool has_asked, uint32_t asks);

/* As it can be written. Returns `text`. */
char *gm_rule_format(const struct gm_rule *rule, char *text, size_t size);

#endif
