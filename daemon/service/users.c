/* Names of users: see users.h. */
#include "daemon/service/users.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/locks.h"
#include "common/log.h"
#include "common/size.h"
#include "common/threads.h"
#include "common/text.h"

/* STALE: known, and asked for again. */
enum state { FREE, ASKED, KNOWN, STALE };

struct user {
    uid_t uid;
    enum state state;
    bool was_awaited;   /* a caller has waited for it already */
    uint64_t looked_at; /* the number of the last question for it */
    uint64_t ask_at;    /* not before: the system could not say */
    char name[GM_USERS_NAME];
    struct gm_users_groups groups;
};

static struct gm_lock lock = GM_LOCK_INITIALIZER(GM_LOCK_USERS);
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static bool is_running; /* the thread */
static struct user users[GM_USERS_MAX];
static gm_users_lookup *look_up;
static uint64_t looks;
static uint64_t patient_at; /* nobody waits for an answer until then */
static void (*on_answer)(void *arg);
static void *on_answer_arg;

#define GROUPS_MOST 65536 /* the kernel's NGROUPS_MAX */

static const char *subordinates = "/etc/subuid"; /* subuid(5) */
#define SUBORDINATE_MOST UINT32_MAX              /* (uid_t)-1 is none */
#define SUBORDINATE_BYTES (1u << 20)             /* what lies beyond is not read */

/* False: nobody can tell which they are. */
static bool ask_groups(const struct passwd *entry, struct gm_users_groups *groups)
{
    int room = 32;
    do {
        free(groups->gid);
        groups->n = room *= 2;
        groups->gid = calloc((size_t)room, sizeof *groups->gid);
    } while (groups->gid &&
             getgrouplist(entry->pw_name, entry->pw_gid, groups->gid, &groups->n) < 0 &&
             room < GROUPS_MOST);
    return groups->gid && groups->n <= room;
}

/* The entry of `name`, or if that is NULL of `uid`. 0 and *found, NULL: there is none; or an errno.
 * The caller frees *buffer. */
static int ask_entry(const char *name, uid_t uid, struct passwd *entry, struct passwd **found,
                     char **buffer)
{
    size_t room = 1024;
    int error;
    *found = NULL;
    *buffer = NULL;
    do {
        free(*buffer);
        room *= 4;
        *buffer = malloc(room);
        error = !*buffer ? ENOMEM
                : name   ? getpwnam_r(name, entry, *buffer, room, found)
                         : getpwuid_r(uid, entry, *buffer, room, found);
    } while (error == ERANGE && room < (1u << 20));
    return error;
}

/* A line OWNER:FIRST:COUNT. Whether it is one, and `uid` is among them. */
static bool takes_in(char *line, uid_t uid, bool *is_wrong)
{
    uint64_t first = 0, count = 0;
    char *at = strchr(line, ':'), *last = at ? strchr(at + 1, ':') : NULL;
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == '\0' || line[0] == '#')
        return false;
    if (last)
        *at = *last = '\0';
    *is_wrong = at == line || !last || gm_parse_number(at + 1, &first) != 0 ||
                gm_parse_number(last + 1, &count) != 0 || first == 0 || count > SUBORDINATE_MOST ||
                first > SUBORDINATE_MOST - count;
    return !*is_wrong && uid >= first && uid - first < count;
}

/* Whether the error of a question is an answer: nobody has it (getpwuid_r(3)). */
static bool is_answer(int error)
{
    return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

/* The owner of a range, a number or a name. False: there is none, or the system could not say:
 * *is_answered. An id is never root's, or containers would have part of what root has. */
static bool take_owner(const char *name, struct gm_users_groups *groups, bool *is_answered)
{
    struct passwd entry, *found;
    char *buffer;
    uint64_t number;
    const bool is_number = gm_parse_number(name, &number) == 0 && number < UINT32_MAX;
    const int error =
        ask_entry(is_number ? NULL : name, is_number ? (uid_t)number : 0, &entry, &found, &buffer);
    *is_answered = is_answer(error);
    const bool is_somebodys = *is_answered && (found || is_number);
    if (is_somebodys)
        groups->owner = found ? found->pw_uid : (uid_t)number;
    groups->is_subordinate = is_somebodys && groups->owner != 0;
    if (groups->is_subordinate && found && !ask_groups(found, groups))
        *is_answered = groups->is_subordinate = false;
    free(buffer);
    return is_somebodys;
}

/* Who has `uid` by the first line that takes it in and is somebody's. False: the system could not
 * say. */
static bool ask_owner(uid_t uid, struct gm_users_groups *groups)
{
    static bool has_warned;
    char line[256];
    uint64_t bytes = 0;
    bool is_answered = true, is_wrong = false, is_rest = false;
    gm_lock(&lock);
    const char *const path = subordinates;
    gm_unlock(&lock);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!file && fd >= 0)
        close(fd);
    while (file && !groups->is_subordinate && is_answered && bytes < SUBORDINATE_BYTES &&
           fgets(line, sizeof line, file)) {
        const bool is_whole = strchr(line, '\n') != NULL || feof(file);
        bool is_bad = is_rest || !is_whole;
        bytes += strlen(line) + 1;
        if (!is_bad && takes_in(line, uid, &is_bad))
            is_bad = !take_owner(line, groups, &is_answered);
        is_wrong = is_wrong || is_bad;
        is_rest = !is_whole;
    }
    if (is_wrong && is_answered && !has_warned) {
        has_warned = true;
        gm_log(GM_LOG_WARN, "%s: lines that are not USER:FIRST:COUNT, or of nobody, are ignored",
               path);
    }
    if (file)
        fclose(file);
    return is_answered;
}

static int ask_system(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups)
{
    struct passwd entry, *found;
    char *buffer;
    const int error = ask_entry(NULL, uid, &entry, &found, &buffer);
    const bool is_found = error == 0 && found && found->pw_name[0];
    if (is_found)
        snprintf(name, GM_USERS_NAME, "%s", found->pw_name);
    const bool is_known = !is_found || ask_groups(found, groups);
    free(buffer);
    if (is_found)
        return is_known ? 0 : -1;
    return is_answer(error) && ask_owner(uid, groups) ? GM_USERS_NOBODY : -1;
}

static bool is_known(const struct user *user)
{
    return user->state == KNOWN || user->state == STALE;
}

/* A user who is asked for, or NULL: then *due is when one is again, UINT64_MAX: none. Those of whom
 * nothing is known go first. */
static struct user *next_asked(uint64_t *due)
{
    struct user *next = NULL;
    const uint64_t now = gm_now();
    *due = UINT64_MAX;
    for (size_t i = 0; i < GM_USERS_MAX; i++) {
        struct user *user = &users[i];
        if (user->state == FREE || user->state == KNOWN)
            continue;
        if (user->ask_at > now)
            *due = user->ask_at < *due ? user->ask_at : *due;
        else if (!next || (next->state == STALE && user->state == ASKED))
            next = user;
    }
    return next;
}

static void await_question(uint64_t due)
{
    const struct timespec until = gm_timespec(due);
    if (due == UINT64_MAX)
        gm_lock_wait(&asked, &lock);
    else
        gm_lock_wait_until(&asked, &lock, &until);
}

static bool has_same_groups(const struct gm_users_groups *a, const struct gm_users_groups *b)
{
    return a->n == b->n && a->is_subordinate == b->is_subordinate && a->owner == b->owner &&
           (a->n == 0 || memcmp(a->gid, b->gid, (size_t)a->n * sizeof *a->gid) == 0);
}

/* Under the lock. What is known stays if the system could not say. */
static void take_answer(struct user *user, int outcome, const char *name,
                        struct gm_users_groups *groups)
{
    if (outcome < 0) {
        user->ask_at = gm_now() + GM_USERS_AGAIN_NS;
        return;
    }
    const bool is_news = user->state == ASKED || !has_same_groups(&user->groups, groups);
    memcpy(user->name, name, sizeof user->name);
    free(user->groups.gid);
    user->groups = *groups;
    groups->gid = NULL;
    user->state = KNOWN;
    if (is_news && on_answer)
        on_answer(on_answer_arg);
}

static void *answer(void *unused)
{
    (void)unused;
    gm_lock(&lock);
    for (;;) {
        struct user *user;
        char name[GM_USERS_NAME] = "";
        struct gm_users_groups groups = {0};
        uint64_t due;
        while (!(user = next_asked(&due)))
            await_question(due);
        uid_t uid = user->uid;
        gm_users_lookup *ask = look_up ? look_up : ask_system;
        gm_unlock(&lock);
        const int outcome = ask(uid, name, &groups);
        if (outcome)
            snprintf(name, sizeof name, "%u", uid);
        gm_text_clean(name, sizeof name);
        gm_lock(&lock);
        if (user->uid == uid && user->state != FREE) { /* another uid may have its row now */
            take_answer(user, outcome, name, &groups);
            pthread_cond_broadcast(&answered);
        }
        free(groups.gid);
    }
    return NULL;
}

/* Start the thread; if that fails, the next question tries again. Under the lock. */
static void start(void)
{
    if (!is_running)
        is_running = gm_thread_start(answer, "gpumux-users") == 0;
}

static bool is_pending(const struct user *user, uid_t uid)
{
    return is_running && user->uid == uid && user->state == ASKED && user->ask_at == 0;
}

/* Under the lock. Its row, or the first free one behind where it should be. If all are in use, that
 * of whom nobody has asked for longest. Rows never become free one by one, so a free one ends the
 * search. */
static struct user *find_row(uid_t uid)
{
    struct user *oldest = &users[uid % GM_USERS_MAX];
    for (size_t i = 0; i < GM_USERS_MAX; i++) {
        struct user *user = &users[(uid + i) % GM_USERS_MAX];
        if (user->state == FREE || user->uid == uid)
            return user;
        if (user->looked_at < oldest->looked_at)
            oldest = user;
    }
    return oldest;
}

/* Under the lock. The row of the user, which may be another's by now, or not known yet. */
static struct user *find(uid_t uid)
{
    struct user *user = find_row(uid);
    if (user->state == FREE || user->uid != uid) {
        free(user->groups.gid);
        *user = (struct user){.uid = uid, .state = ASKED};
    }
    user->looked_at = ++looks;
    if (!is_known(user)) {
        start();
        pthread_cond_signal(&asked);
    }
    if (!user->was_awaited && gm_now() >= patient_at) {
        user->was_awaited = true;
        const struct timespec until = gm_timespec(gm_now() + GM_USERS_WAIT_MS * GM_MS);
        while (is_pending(user, uid) && gm_lock_wait_until(&answered, &lock, &until) == 0)
            continue;
        if (is_pending(user,
                       uid)) /* containers have thousands of ids: a slow system stops nobody */
            patient_at = gm_now() + GM_USERS_AGAIN_NS;
    }
    return user;
}

enum gm_member gm_users_is_member(uid_t uid, gid_t gid)
{
    gm_lock(&lock);
    const struct user *user = find(uid);
    const bool is_sure = user->uid == uid && is_known(user);
    enum gm_member member = is_sure ? GM_MEMBER_NOT : GM_MEMBER_PERHAPS;
    for (int i = 0; is_sure && i < user->groups.n; i++)
        if (user->groups.gid[i] == gid)
            member = GM_MEMBER_IS;
    gm_unlock(&lock);
    return member;
}

uid_t gm_users_owner(uid_t uid)
{
    if (uid == 0)
        return uid;
    gm_lock(&lock);
    const struct user *user = find(uid);
    const bool is_other = user->uid == uid && is_known(user) && user->groups.is_subordinate;
    const uid_t owner = is_other ? user->groups.owner : uid;
    gm_unlock(&lock);
    return owner;
}

enum gm_member gm_users_is(uid_t uid, uid_t who)
{
    if (uid == who)
        return GM_MEMBER_IS;
    gm_lock(&lock);
    const struct user *user = find(uid);
    const bool is_sure = user->uid == uid && is_known(user);
    const bool is_its = is_sure && user->groups.is_subordinate && user->groups.owner == who;
    gm_unlock(&lock);
    return is_its ? GM_MEMBER_IS : is_sure ? GM_MEMBER_NOT : GM_MEMBER_PERHAPS;
}

const char *gm_users_name(uid_t uid, char name[GM_USERS_NAME])
{
    gm_lock(&lock);
    const struct user *user = find(uid);
    if (user->uid == uid && is_known(user))
        memcpy(name, user->name, GM_USERS_NAME);
    else
        snprintf(name, GM_USERS_NAME, "%u", uid);
    gm_unlock(&lock);
    return name;
}

/* Under the lock. */
static void forget(void)
{
    for (size_t i = 0; i < GM_USERS_MAX; i++)
        free(users[i].groups.gid);
    memset(users, 0, sizeof users);
    patient_at = 0;
}

void gm_users_ask_again(void)
{
    gm_lock(&lock);
    for (size_t i = 0; i < GM_USERS_MAX; i++)
        if (users[i].state == KNOWN)
            users[i].state = STALE;
    pthread_cond_signal(&asked);
    gm_unlock(&lock);
}

void gm_users_listen(void (*listener)(void *arg), void *arg)
{
    gm_lock(&lock);
    on_answer = listener;
    on_answer_arg = arg;
    gm_unlock(&lock);
}

void gm_users_ask_by(gm_users_lookup *lookup)
{
    gm_lock(&lock);
    look_up = lookup;
    forget();
    gm_unlock(&lock);
}

void gm_users_subordinates_in(const char *path)
{
    gm_lock(&lock);
    subordinates = path ? path : "/etc/subuid";
    forget();
    gm_unlock(&lock);
}
