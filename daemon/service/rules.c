/* Rules: see rules.h. */
#include "daemon/service/rules.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "common/classes.h"
#include "common/nearest.h"
#include "common/size.h"
#include "common/text.h"
#include "common/wire.h"
#include "daemon/service/users.h"

#define RULE_MAX 512u /* bytes of one rule */
#define NO_USER UINT32_MAX

/* A user's name; or a number that is no name. A name that the system does not have is that of a
 * user who was deleted. */
static int take_user(struct gm_rule *rule, const char *text, char *why, size_t size)
{
    struct passwd entry, *found = NULL;
    size_t room = 1024;
    uint64_t number = 0;
    char *buffer = NULL;
    int error;

    if (strlen(text) > GM_COMMAND_MAX) {
        snprintf(why, size, "user: the name is longer than %u bytes", GM_COMMAND_MAX);
        return -ERANGE;
    }
    do {
        free(buffer);
        room *= 4;
        buffer = malloc(room);
        error = buffer ? getpwnam_r(text, &entry, buffer, room, &found) : ENOMEM;
    } while (error == ERANGE && room < (1u << 20));
    if (found)
        rule->uid = found->pw_uid;
    free(buffer);
    const bool is_missing = error == 0 || error == ENOENT || error == ESRCH;
    const bool is_name = strchr("-+0123456789", text[0]) == NULL; /* "": neither */
    if (!found && gm_parse_number(text, &number) == 0 && number < NO_USER) {
        rule->uid = (uid_t)number;
    } else if (!found && is_missing && is_name) {
        rule->uid = NO_USER;
        rule->is_unknown = true;
    } else if (!found) {
        snprintf(why, size, "user: there is no user \"%s\"%s%s", text, is_missing ? "" : ": ",
                 is_missing ? "" : strerror(error));
        return -EINVAL;
    }
    rule->has_user = true;
    memcpy(rule->user, text, strlen(text) + 1);
    return 0;
}

/* The same of a group of the system. */
static int take_group(struct gm_rule *rule, const char *text, char *why, size_t size)
{
    struct group entry, *found = NULL;
    size_t room = 1024;
    uint64_t number = 0;
    char *buffer = NULL;
    int error;

    if (strlen(text) > GM_COMMAND_MAX) {
        snprintf(why, size, "unix-group: the name is longer than %u bytes", GM_COMMAND_MAX);
        return -ERANGE;
    }
    do { /* large groups have all their members' names there */
        free(buffer);
        room *= 4;
        buffer = malloc(room);
        error = buffer ? getgrnam_r(text, &entry, buffer, room, &found) : ENOMEM;
    } while (error == ERANGE && room < (64u << 20));
    if (found)
        rule->gid = found->gr_gid;
    free(buffer);
    const bool is_missing = error == 0 || error == ENOENT || error == ESRCH;
    const bool is_name = strchr("-+0123456789", text[0]) == NULL; /* "": neither */
    if (!found && gm_parse_number(text, &number) == 0 && number < NO_USER) {
        rule->gid = (gid_t)number;
    } else if (!found && is_missing && is_name) {
        rule->gid = NO_USER;
        rule->is_group_unknown = true;
    } else if (!found) {
        snprintf(why, size, "unix-group: there is no group \"%s\"%s%s", text,
                 is_missing ? "" : ": ", is_missing ? "" : strerror(error));
        return -EINVAL;
    }
    rule->has_group = true;
    memcpy(rule->group, text, strlen(text) + 1);
    return 0;
}

static int take_command(struct gm_rule *rule, const char *text, char *why, size_t size)
{
    if (*text == '\0') {
        snprintf(why, size, "command: no program has an empty name");
        return -EINVAL;
    }
    if (strlen(text) > GM_COMMAND_MAX) {
        snprintf(why, size, "command: a program's name has at most %u bytes", GM_COMMAND_MAX);
        return -ERANGE;
    }
    if (strchr(text, '/')) {
        snprintf(why, size, "command: a program's name, without its folder, is what matches");
        return -EINVAL;
    }
    rule->has_command = true;
    memcpy(rule->command, text, strlen(text) + 1);
    return 0;
}

static int take_asks(struct gm_rule *rule, const char *text, char *why, size_t size)
{
    if (rule->has_asks) {
        snprintf(why, size, "asks is said twice");
        return -EEXIST;
    }
    rule->has_asks = gm_class_index(text, &rule->asks);
    if (rule->has_asks)
        return 0;
    snprintf(why, size, "asks: \"%.40s\" is not " GM_CLASS_LIST, text);
    return -EINVAL;
}

static int take_total(uint64_t *total, const char *name, const char *text, char *why, size_t size)
{
    uint64_t bytes = 0;
    int error = *total != 0 ? -EEXIST : gm_parse_size(text, &bytes);
    if (error == 0 && bytes < GM_CHUNK_MIN)
        error = -ERANGE;
    if (error == -EEXIST)
        snprintf(why, size, "%s is said twice", name);
    else if (error == -EINVAL)
        snprintf(why, size, "%s: \"%.40s\" is not a size (for example 20G)", name, text);
    else if (error)
        snprintf(why, size, "%s: \"%.40s\" is out of range: 2M or more", name, text);
    else
        *total = bytes & ~(GM_CHUNK_MIN - 1);
    return error;
}

/* One of two words, for what is not said yet: 1 or 2. */
static int take_choice(uint32_t *said, const char *name, const char *first, const char *second,
                       const char *text, char *why, size_t size)
{
    if (*said != 0) {
        snprintf(why, size, "%s is said twice", name);
        return -EEXIST;
    }
    *said = strcmp(text, first) == 0 ? 1 : strcmp(text, second) == 0 ? 2 : 0;
    if (*said != 0)
        return 0;
    snprintf(why, size, "%s: \"%.40s\" is not %s or %s", name, text, first, second);
    return -EINVAL;
}

static int take_word(struct gm_rule *rule, const char *word, char *why, size_t size)
{
    bool is_user = strncmp(word, "user=", 5) == 0;
    if (is_user || strncmp(word, "command=", 8) == 0) {
        if (is_user ? rule->has_user : rule->has_command) {
            snprintf(why, size, "%s is said twice", is_user ? "user" : "command");
            return -EEXIST;
        }
        return is_user ? take_user(rule, word + 5, why, size)
                       : take_command(rule, word + 8, why, size);
    }
    if (strncmp(word, "unix-group=", 11) == 0 && rule->has_group) {
        snprintf(why, size, "unix-group is said twice");
        return -EEXIST;
    }
    if (strncmp(word, "unix-group=", 11) == 0)
        return take_group(rule, word + 11, why, size);
    if (strncmp(word, "asks=", 5) == 0)
        return take_asks(rule, word + 5, why, size);
    if (strncmp(word, "user-gpu=", 9) == 0)
        return take_total(&rule->totals.gpu, "user-gpu", word + 9, why, size);
    if (strncmp(word, "user-pinned=", 12) == 0)
        return take_total(&rule->totals.pinned, "user-pinned", word + 12, why, size);
    if (strncmp(word, "need=", 5) == 0)
        return take_total(&rule->start.need, "need", word + 5, why, size);
    if (strncmp(word, "place=", 6) == 0)
        return take_choice(&rule->start.place, "place", "off", "order", word + 6, why, size);
    if (strncmp(word, "admit=", 6) == 0)
        return take_choice(&rule->start.admit, "admit", "now", "fit", word + 6, why, size);
    if (strncmp(word, "mps=", 4) == 0)
        return take_choice(&rule->start.mps, "mps", "on", "off", word + 4, why, size);
    int error = gm_settings_take(&rule->settings, word, why, size);
    if (error != -ENOENT)
        return error;
    static const char *const names[] = {
        "user", "unix-group", "command", "asks", "class", "weight", "share",    "paused",
        "cap",  "oversize",   "place",   "need", "admit", "mps",    "user-gpu", "user-pinned"};
    struct gm_nearest nearest;
    gm_nearest_begin(&nearest, word, strcspn(word, "="));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        gm_nearest_look(&nearest, names[i]);
    if (nearest.best)
        snprintf(why, size, "a rule knows no \"%.40s\": did you mean %s=?", word, nearest.best);
    else
        snprintf(
            why, size,
            "\"%.40s\" is neither a condition (user=, unix-group=, command=, asks=) nor a setting "
            "(class=, weight=, share=, paused, oversize=, cap=, place=, need=, admit=, mps=) nor "
            "a total (user-gpu=, user-pinned=)",
            word);
    return -EINVAL;
}

static bool is_everything(const char *pattern)
{
    return pattern[strspn(pattern, "*")] == '\0';
}

/* Whether `a` surely matches every program that `b` matches. */
static bool covers(const struct gm_rule *a, const struct gm_rule *b)
{
    if (a->has_user && (a->is_unknown || !b->has_user || a->uid != b->uid))
        return false;
    if (a->has_group && (a->is_group_unknown || !b->has_group || a->gid != b->gid))
        return false;
    if (a->has_asks && (!b->has_asks || a->asks != b->asks))
        return false;
    if (!a->has_command || is_everything(a->command))
        return true;
    if (!b->has_command)
        return false;
    bool is_plain = strpbrk(b->command, "*?[\\") == NULL;
    return strcmp(a->command, b->command) == 0 ||
           (is_plain && gm_command_matches(a->command, b->command));
}

/* What a rule says. Of each part the first rule counts that has it. */
enum part {
    SETTINGS = 1,
    TOTAL_GPU = 2,
    TOTAL_PINNED = 4,
    PLACE = 8,
    NEED = 16,
    ADMIT = 32,
    MPS = 64,
};

static uint32_t parts_of(const struct gm_rule *rule)
{
    return (rule->settings.has ? SETTINGS : 0u) | (rule->totals.gpu ? TOTAL_GPU : 0u) |
           (rule->totals.pinned ? TOTAL_PINNED : 0u) | (rule->start.place ? PLACE : 0u) |
           (rule->start.need ? NEED : 0u) | (rule->start.admit ? ADMIT : 0u) |
           (rule->start.mps ? MPS : 0u);
}

static bool has_totals(const struct gm_rule *rule)
{
    return (parts_of(rule) & (TOTAL_GPU | TOTAL_PINNED)) != 0;
}

/* Whether the rule is for programs of the user, as far as user= says. */
static enum gm_member is_user(const struct gm_rule *rule, uid_t uid)
{
    return !rule->has_user    ? GM_MEMBER_IS
           : rule->is_unknown ? GM_MEMBER_NOT
                              : gm_users_is(uid, rule->uid);
}

/* Whether the rule is for the user's programs. */
static enum gm_member is_of(const struct gm_rule *rule, uid_t uid)
{
    const enum gm_member user = is_user(rule, uid);
    if (user == GM_MEMBER_NOT || !rule->has_group)
        return user;
    const enum gm_member member =
        rule->is_group_unknown ? GM_MEMBER_NOT : gm_users_is_member(uid, rule->gid);
    return member == GM_MEMBER_IS ? user : member;
}

bool gm_rules_are_sure(const struct gm_rules *rules, uid_t uid)
{
    for (uint32_t i = 0; i < rules->n; i++)
        if (is_of(&rules->rule[i], uid) == GM_MEMBER_PERHAPS)
            return false;
    return true;
}

bool gm_rules_find_total(const struct gm_rules *rules, uid_t uid, char *text, size_t size)
{
    struct gm_user_totals totals;
    gm_rules_totals(rules, uid, &totals);
    for (uint32_t i = 0; i < rules->n && totals.gpu != 0; i++) {
        const struct gm_rule *rule = &rules->rule[i];
        if (rule->totals.gpu != totals.gpu || is_of(rule, uid) == GM_MEMBER_NOT)
            continue;
        gm_rule_format(rule, text, size);
        return true;
    }
    return false;
}

/* Cut off the next word. NULL: there is none. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " ");
    if (*word == '\0')
        return NULL;
    char *end = word + strcspn(word, " ");
    *at = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

int gm_rules_add(struct gm_rules *rules, const char *text, unsigned line, char *why,
                 size_t why_size)
{
    struct gm_rule rule = {.line = line};
    char words[RULE_MAX], *at = words, *word;

    if (strlen(text) >= sizeof words) {
        snprintf(why, why_size, "longer than %u bytes", RULE_MAX - 1);
        return -ERANGE;
    }
    snprintf(words, sizeof words, "%s", text);
    for (char *tab = words; (tab = strchr(tab, '\t')) != NULL;)
        *tab = ' ';
    gm_text_clean(words, sizeof words); /* names of programs are clean, too */
    while ((word = next_word(&at)) != NULL) {
        int error = take_word(&rule, word, why, why_size);
        if (error)
            return error;
    }
    if (!rule.has_user && !rule.has_group && !rule.has_command && !rule.has_asks) {
        snprintf(why, why_size,
                 "for which programs? say user=, unix-group=, command= (command=* is all) or "
                 "asks=");
        return -EINVAL;
    }
    const bool is_of_users = !rule.has_asks && (!rule.has_command || is_everything(rule.command));
    if (has_totals(&rule) && !is_of_users) {
        snprintf(why, why_size,
                 "user-gpu= and user-pinned= are of all programs of a user: say no command= and no "
                 "asks=");
        return -EINVAL;
    }
    if (parts_of(&rule) == 0) {
        snprintf(why, why_size,
                 "sets nothing: say class=, weight=, share=, paused, oversize=, cap=, place=, "
                 "need=, admit=, mps=, "
                 "user-gpu= or user-pinned=");
        return -EINVAL;
    }
    for (uint32_t i = 0; i < rules->n; i++) {
        /* The command line may override the file. */
        if ((rules->rule[i].line == 0) != (line == 0) || !covers(&rules->rule[i], &rule) ||
            (parts_of(&rules->rule[i]) & parts_of(&rule)) == 0)
            continue;
        if (line)
            snprintf(why, why_size,
                     "can match nothing: the rule on line %u matches all of these programs",
                     rules->rule[i].line);
        else
            snprintf(why, why_size,
                     "can match nothing: rule number %u matches all of these programs", i + 1);
        return -EEXIST;
    }
    if (rules->n == GM_RULES_MAX) {
        snprintf(why, why_size, "more than %u rules", GM_RULES_MAX);
        return -ENOSPC;
    }
    rules->rule[rules->n++] = rule;
    return 0;
}

static enum gm_member matches(const struct gm_rule *rule, uid_t uid, const char *name,
                              uint32_t asks)
{
    const bool is_other = (rule->has_command && !gm_command_matches(rule->command, name)) ||
                          (rule->has_asks && rule->asks != asks);
    return is_other ? GM_MEMBER_NOT : is_of(rule, uid);
}

void gm_rules_start(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                    struct gm_start *start)
{
    *start = (struct gm_start){0};
    for (uint32_t i = 0; i < rules->n; i++) {
        const struct gm_rule *rule = &rules->rule[i];
        if (matches(rule, uid, name, asks) != GM_MEMBER_IS)
            continue;
        start->place = start->place ? start->place : rule->start.place;
        start->need = start->need ? start->need : rule->start.need;
        start->admit = start->admit ? start->admit : rule->start.admit;
        start->mps = start->mps ? start->mps : rule->start.mps;
    }
}

const struct gm_rule *gm_rules_match(const struct gm_rules *rules, uid_t uid, const char *name,
                                     uint32_t asks)
{
    for (uint32_t i = 0; i < rules->n; i++) {
        const struct gm_rule *rule = &rules->rule[i];
        if (rule->settings.has && matches(rule, uid, name, asks) == GM_MEMBER_IS)
            return rule;
    }
    return NULL;
}

/* The one that holds: the first that is surely the user's, and until one is known each that may be.
 */
static void take_least(uint64_t *least, uint64_t total, enum gm_member member, bool *is_sure)
{
    if (total == 0 || member == GM_MEMBER_NOT || *is_sure)
        return;
    *least = *least == 0 || total < *least ? total : *least;
    *is_sure = member == GM_MEMBER_IS;
}

void gm_rules_totals(const struct gm_rules *rules, uid_t uid, struct gm_user_totals *totals)
{
    bool is_gpu_sure = false, is_pinned_sure = false;
    *totals = (struct gm_user_totals){0};
    for (uint32_t i = 0; i < rules->n; i++) {
        const struct gm_rule *rule = &rules->rule[i];
        if (!has_totals(rule))
            continue;
        const enum gm_member member = is_of(rule, uid);
        take_least(&totals->gpu, rule->totals.gpu, member, &is_gpu_sure);
        take_least(&totals->pinned, rule->totals.pinned, member, &is_pinned_sure);
    }
}

char *gm_rule_format(const struct gm_rule *rule, char *text, size_t size)
{
    char settings[192], gpu[48] = "", pinned[48] = "", need[48] = "", number[24];
    if (rule->start.need)
        snprintf(need, sizeof need, " need=%s",
                 gm_settings_format_cap(rule->start.need, number, sizeof number));
    if (rule->totals.gpu)
        snprintf(gpu, sizeof gpu, " user-gpu=%s",
                 gm_settings_format_cap(rule->totals.gpu, number, sizeof number));
    if (rule->totals.pinned)
        snprintf(pinned, sizeof pinned, " user-pinned=%s",
                 gm_settings_format_cap(rule->totals.pinned, number, sizeof number));
    const char *const admit = rule->start.admit == GM_ADMIT_NOW   ? " admit=now"
                              : rule->start.admit == GM_ADMIT_FIT ? " admit=fit"
                                                                  : "";
    const char *const place = rule->start.place == GM_PLACE_OFF     ? " place=off"
                              : rule->start.place == GM_PLACE_ORDER ? " place=order"
                                                                    : "";
    const char *const mps = rule->start.mps == GM_MPS_ON    ? " mps=on"
                            : rule->start.mps == GM_MPS_NOT ? " mps=off"
                                                            : "";
    char group[GM_COMMAND_MAX + 16] = "";
    if (rule->has_group)
        snprintf(group, sizeof group, "%sunix-group=%s", rule->has_user ? " " : "", rule->group);
    char asks[32] = "";
    if (rule->has_asks)
        snprintf(asks, sizeof asks, "%sasks=%s",
                 rule->has_user || rule->has_group || rule->has_command ? " " : "",
                 gm_class_name(rule->asks));
    snprintf(text, size, "%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s", rule->has_user ? "user=" : "",
             rule->user, group, (rule->has_user || rule->has_group) && rule->has_command ? " " : "",
             rule->has_command ? "command=" : "", rule->command, asks,
             rule->settings.has ? " " : "",
             gm_settings_format(&rule->settings, settings, sizeof settings), place, need, admit,
             mps, gpu, pinned);
    return text;
}

/* 0 is the best. */
static unsigned rank_of(unsigned class)
{
    return class == GM_CLASS_LATENCY       ? 0
           : class == GM_CLASS_INTERACTIVE ? 1
           : class == GM_CLASS_AUTO        ? 2
                                           : 3;
}

/* The least of both of what bounds a program. What one does not say is no bound; a weight is 1. */
static void restrict_to(struct gm_settings *to, const struct gm_settings *by)
{
    const uint32_t both = to->has & by->has, either = to->has | by->has;
    const uint32_t weight = by->has & GM_SET_WEIGHT ? by->weight : GM_SCHED_WEIGHT;
    if ((by->has & GM_SET_CLASS) &&
        (!(both & GM_SET_CLASS) || rank_of(by->class) > rank_of(to->class)))
        to->class = by->class;
    if (!(to->has & GM_SET_WEIGHT))
        to->weight = GM_SCHED_WEIGHT;
    to->weight = weight < to->weight ? weight : to->weight;
    if ((by->has & GM_SET_SHARE) && (!(both & GM_SET_SHARE) || by->share < to->share))
        to->share = by->share;
    if ((by->has & GM_SET_CAP) && by->cap != 0 &&
        (!(both & GM_SET_CAP) || to->cap == 0 || by->cap < to->cap))
        to->cap = by->cap;
    to->is_oversize = (both & GM_SET_OVERSIZE) && to->is_oversize && by->is_oversize;
    to->has |=
        either & (GM_SET_CLASS | GM_SET_WEIGHT | GM_SET_SHARE | GM_SET_CAP | GM_SET_OVERSIZE);
}

/* Whether others say before `sure` what may hold: then *settings is the least of all that. */
static bool restrict_perhaps(const struct gm_rules *rules, const struct gm_rule *sure, uid_t uid,
                             const char *name, uint32_t asks, struct gm_settings *settings)
{
    bool is_restricted = false;
    for (const struct gm_rule *rule = rules->rule; rule != (sure ? sure : rules->rule + rules->n);
         rule++) {
        if (rule->settings.has == 0 || matches(rule, uid, name, asks) != GM_MEMBER_PERHAPS)
            continue;
        restrict_to(settings, &rule->settings);
        is_restricted = true;
    }
    return is_restricted;
}

bool gm_rules_find(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                   struct gm_settings *settings, char *text, size_t size)
{
    const struct gm_rule *rule = gm_rules_match(rules, uid, name, asks);
    char said[192];
    *settings = rule ? rule->settings : (struct gm_settings){0};
    if (rule)
        gm_rule_format(rule, text, size);
    if (restrict_perhaps(rules, rule, uid, name, asks, settings))
        snprintf(text, size, "user=? %s (the system has not said yet who the user is)",
                 gm_settings_format(settings, said, sizeof said));
    return settings->has != 0;
}

/* Where the rule stands. */
static const char *place_of(const struct gm_rule *rule, char text[32])
{
    snprintf(text, 32, rule->line ? "line %u" : "the command line", rule->line);
    return text;
}

/* These parts alone, as they can be written. */
static const char *format_parts(const struct gm_rule *rule, uint32_t parts, char *text, size_t size)
{
    struct gm_rule only = {0};
    if (parts & SETTINGS)
        only.settings = rule->settings;
    only.totals.gpu = parts & TOTAL_GPU ? rule->totals.gpu : 0;
    only.totals.pinned = parts & TOTAL_PINNED ? rule->totals.pinned : 0;
    only.start.place = parts & PLACE ? rule->start.place : 0;
    only.start.need = parts & NEED ? rule->start.need : 0;
    only.start.admit = parts & ADMIT ? rule->start.admit : 0;
    only.start.mps = parts & MPS ? rule->start.mps : 0;
    gm_rule_format(&only, text, size);
    return text + (text[0] == ' ');
}

/* Why it is not for such a program. */
static const char *why_not(const struct gm_rule *rule, uid_t uid, const char *name, uint32_t asks)
{
    if (is_user(rule, uid) == GM_MEMBER_NOT)
        return rule->is_unknown ? "the system does not know this user" : "for another user";
    if (rule->has_command && !gm_command_matches(rule->command, name))
        return "for programs of another name";
    if (rule->has_asks && rule->asks != asks)
        return "for programs that ask for another class";
    return rule->is_group_unknown ? "the system does not know this group"
                                  : "the user is not of this group";
}

bool gm_rules_explain(const struct gm_rules *rules, uint32_t n, uid_t uid, const char *name,
                      uint32_t asks, char *text, size_t size)
{
    const struct gm_rule *rule = &rules->rule[n];
    const enum gm_member member = matches(rule, uid, name, asks);
    uint32_t left = parts_of(rule);
    char said[512], place[32];
    text[0] = '\0';
    if (member != GM_MEMBER_IS) {
        snprintf(text, size, "%s",
                 member == GM_MEMBER_NOT
                     ? why_not(rule, uid, name, asks)
                     : "the system has not said yet who the user is: ask again");
        return false;
    }
    for (const struct gm_rule *before = rules->rule; before < rule && left; before++) {
        const uint32_t both = left & parts_of(before);
        if (both == 0 || matches(before, uid, name, asks) != GM_MEMBER_IS)
            continue;
        gm_text_add(text, size, "%snot %s: %s comes first", *text ? "; " : "",
                    format_parts(rule, both, said, sizeof said), place_of(before, place));
        left &= ~both;
    }
    return left != 0;
}

void gm_rules_result(const struct gm_rules *rules, uid_t uid, const char *name, uint32_t asks,
                     struct gm_settings *settings, char *text, size_t size)
{
    struct gm_rule all = {0};
    char said[512];
    if (!gm_rules_find(rules, uid, name, asks, &all.settings, said, sizeof said))
        all.settings.has = 0;
    gm_rules_start(rules, uid, name, asks, &all.start);
    gm_rules_totals(rules, uid, &all.totals);
    *settings = all.settings;
    snprintf(text, size, "%s", format_parts(&all, parts_of(&all), said, sizeof said));
}

enum gm_sched_class gm_rules_class(const struct gm_settings *ruled, uint32_t best, bool is_admin,
                                   bool has_asked, uint32_t asks)
{
    const uint32_t most = ruled->has & GM_SET_CLASS ? ruled->class : best;
    const bool may_have = is_admin || rank_of(asks) >= rank_of(most);
    return has_asked && may_have       ? (enum gm_sched_class)asks
           : ruled->has & GM_SET_CLASS ? (enum gm_sched_class)ruled->class
                                       : GM_CLASS_AUTO;
}
