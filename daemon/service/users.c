/* Names of users: see users.h. */
#include "daemon/service/users.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/locks.h"
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
static void (*on_answer)(void *arg);
static void *on_answer_arg;

#define GROUPS_MOST 65536 /* the kernel's NGROUPS_MAX */

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

static int ask_system(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups)
{
    struct passwd entry, *found = NULL;
    char *buffer = NULL;
    size_t room = 1024;
    int error;

    do {
        free(buffer);
        room *= 4;
        buffer = malloc(room);
        error = buffer ? getpwuid_r(uid, &entry, buffer, room, &found) : ENOMEM;
    } while (error == ERANGE && room < (1u << 20));
    const bool is_answer = error == 0 || error == ENOENT || error == ESRCH || error == EBADF ||
                           error == EPERM; /* getpwuid_r(3): nobody has it */
    bool is_found = error == 0 && found && found->pw_name[0];
    if (is_found)
        snprintf(name, GM_USERS_NAME, "%s", found->pw_name);
    const bool is_known = !is_found || ask_groups(found, groups);
    free(buffer);
    return !is_known ? -1 : is_found ? 0 : is_answer ? GM_USERS_NOBODY : -1;
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
    return a->n == b->n &&
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
    if (!user->was_awaited) {
        user->was_awaited = true;
        const struct timespec until = gm_timespec(gm_now() + GM_USERS_WAIT_MS * GM_MS);
        while (is_pending(user, uid) && gm_lock_wait_until(&answered, &lock, &until) == 0)
            continue;
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
