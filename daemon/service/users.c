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

enum state { FREE, ASKED, KNOWN };

struct user {
    uid_t uid;
    enum state state;
    bool was_awaited; /* a caller has waited for it already */
    char name[GM_USERS_NAME];
    struct gm_users_groups groups;
};

static struct gm_lock lock = GM_LOCK_INITIALIZER(GM_LOCK_USERS);
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static bool is_running; /* the thread */
static struct user users[GM_USERS_MAX];
static gm_users_lookup *look_up;

#define GROUPS_MOST 65536 /* the kernel's NGROUPS_MAX */

static void ask_groups(const struct passwd *entry, struct gm_users_groups *groups)
{
    int room = 32;
    do {
        free(groups->gid);
        groups->n = room *= 2;
        groups->gid = calloc((size_t)room, sizeof *groups->gid);
    } while (groups->gid &&
             getgrouplist(entry->pw_name, entry->pw_gid, groups->gid, &groups->n) < 0 &&
             room < GROUPS_MOST);
    if (!groups->gid || groups->n > room)
        groups->n = groups->gid ? room : 0;
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
    bool is_found = error == 0 && found && found->pw_name[0];
    if (is_found)
        snprintf(name, GM_USERS_NAME, "%s", found->pw_name);
    if (is_found)
        ask_groups(found, groups);
    free(buffer);
    return is_found ? 0 : -1;
}

/* A user whose name is asked for, or NULL. */
static struct user *next_asked(void)
{
    for (size_t i = 0; i < GM_USERS_MAX; i++)
        if (users[i].state == ASKED)
            return &users[i];
    return NULL;
}

static void *answer(void *unused)
{
    (void)unused;
    gm_lock(&lock);
    for (;;) {
        struct user *user;
        char name[GM_USERS_NAME] = "";
        struct gm_users_groups groups = {0};
        while (!(user = next_asked()))
            gm_lock_wait(&asked, &lock);
        uid_t uid = user->uid;
        gm_users_lookup *ask = look_up ? look_up : ask_system;
        gm_unlock(&lock);
        if (ask(uid, name, &groups))
            snprintf(name, sizeof name, "%u", uid);
        gm_text_clean(name, sizeof name);
        gm_lock(&lock);
        if (user->uid == uid && user->state == ASKED) { /* another uid may have its row now */
            memcpy(user->name, name, sizeof name);
            user->groups = groups;
            groups.gid = NULL;
            user->state = KNOWN;
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
    return is_running && user->uid == uid && user->state == ASKED;
}

/* Under the lock. The row of the user, which may be another's by now, or not known yet. */
static struct user *find(uid_t uid)
{
    struct user *user = &users[uid % GM_USERS_MAX];
    if (user->state == FREE || user->uid != uid) {
        free(user->groups.gid);
        *user = (struct user){.uid = uid, .state = ASKED};
    }
    if (user->state == ASKED) {
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

bool gm_users_is_member(uid_t uid, gid_t gid)
{
    bool is_member = false;
    gm_lock(&lock);
    const struct user *user = find(uid);
    for (int i = 0; user->uid == uid && user->state == KNOWN && i < user->groups.n; i++)
        is_member = is_member || user->groups.gid[i] == gid;
    gm_unlock(&lock);
    return is_member;
}

const char *gm_users_name(uid_t uid, char name[GM_USERS_NAME])
{
    gm_lock(&lock);
    const struct user *user = find(uid);
    if (user->uid == uid && user->state == KNOWN)
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

void gm_users_forget(void)
{
    gm_lock(&lock);
    forget();
    gm_unlock(&lock);
}

void gm_users_ask_by(gm_users_lookup *lookup)
{
    gm_lock(&lock);
    look_up = lookup;
    forget();
    gm_unlock(&lock);
}
