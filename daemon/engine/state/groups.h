/*
 * Groups: what runs, pauses and moves together. A group has one client or several of one user, on
 * one GPU or several. Its members are the apps that they are of engines. A group of one member
 * needs none of this. Clients are in one group because they said its name (GPUMUX_GROUP), or
 * because the daemon saw one of them open memory of another one (gm_group_unite). A client leaves
 * its group when its process has ended, and not before. The others stay together: they may share
 * memory among themselves, and nobody knows that they do not.
 *
 * Each engine has a scheduler of its own. To it all members on one GPU are one app (feed.c), so
 * they have their turn together. Over several GPUs they stand in line on all of them, tied
 * (GM_SCHED_TIE): each scheduler tells when they could have their turn, and others have the room
 * meanwhile. When they could on all GPUs, they take all their turns at once. When all are whole,
 * all gates open. When one of them has to yield, or is to, all gates close, and all stand in line
 * again. If one does not drain, its turn goes on, and so the others on its GPU run with it: it may
 * wait for them.
 *
 * So nobody holds a turn on one GPU while it waits for one on another, there is no circle, and no
 * GPU has nothing to do for that. If a scheduler takes a turn back before all of them run, all
 * stand in line again. What can still hold them up when they have taken their turns is memory that
 * does not come: who must make room does not drain, say. Then they give their turns back after
 * GM_GRANT_NS, and try again a second later; but once they have waited for --patience they hold on
 * to them for as long as a drain may take. As long as memory comes they keep them, and once all are
 * whole they run. A scheduler makes nobody wait for ever, and who waited for --patience goes first:
 * so they run in bounded time.
 *
 * Idleness is the group's: a member that rests keeps its turn as long as another one works.
 *
 * Engines change only what is theirs: each reads the others' apps, and follows at the start of a
 * round (apps.c). A change of state calls the other engines (gm_engine_call).
 *
 * Called by all who ask who runs together, and by clients, for coming and going.
 */
#ifndef GM_DAEMON_ENGINE_STATE_GROUPS_H
#define GM_DAEMON_ENGINE_STATE_GROUPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/engine/state/state.h"

struct gm_group {
    struct gm_group *next; /* of those with a name */
    struct gm_groups *all; /* NULL: nobody said its name */
    struct gm_client *clients;
    struct gm_group *kin; /* a ring, with those that gm_group_unite is asked for again */
    uint64_t round;       /* how often all of them were made to yield */
    struct {              /* apps.c */
        bool is_on;       /* they take their turns on all GPUs; else they stand by */
        uint64_t round;   /* ... in this round only */
        uint64_t since;
        uint64_t next;     /* ... and do not before */
        uint64_t waits_at; /* since when they wait for that; 0: they do not */
    } grant;
    bool is_several; /* it has, or had, more than one member */
    uint32_t united; /* bits of GPUs that have not followed the last union yet */
    uid_t uid;
    char name[64];
};

/* The groups with a name. */
struct gm_groups {
    struct gm_group *first;
};

/* Free those that nobody is in any more. */
void gm_groups_sweep(struct gm_groups *groups);

/*
 * The group of this name, made if there is none: it ends with its last client. 0; -ENOMEM; or
 * -EPERM with one line in `why`: programs of another user are in it.
 */
int gm_groups_find(struct gm_groups *groups, const char *name, uid_t uid, struct gm_group **group,
                   char *why, size_t why_size);

/*
 * A client of a daemon before is in its group again: that of this name, if its user said it; else
 * that of `partner`, which it ran with; NULL: of nobody who is here yet. 0 or -ENOMEM.
 */
int gm_group_restore(struct gm_groups *groups, struct gm_client *client,
                     const struct gm_client *partner, const char *name, bool is_said);

/* A new client joins `group`; NULL: one of its own. 0 or -ENOMEM. */
int gm_group_add(struct gm_group *group, struct gm_client *client);
/* Why two groups have not become one. */
enum gm_union {
    GM_UNION_NONE, /* they are one already, or all of them use one and the same GPU */
    GM_UNION_MADE,
    GM_UNION_NAMED, /* each has a name of its own: its users said who runs together */
    GM_UNION_LARGE, /* a GPU has no room for what both need there, so they could never run */
};
/*
 * `client` has memory of `partner` mapped. So their groups become one, if they use several GPUs
 * between them: their kernels may wait for each other there, and then must run at the same time. On
 * one GPU kernels of two processes take turns on the plain driver, too: they cannot rely on it, and
 * together they would have one budget instead of two. Clients of two users stay apart, and so does
 * one that cannot come back to this daemon: it waits for nobody's turn. The group of
 * `app` keeps its name, else that of `owner`; one without a name is called by the pid of its first
 * client. Nobody yields for that. Each engine follows at its next step (gm_engine_gather_groups).
 * Those that use one GPU so far stay kin, to be looked at when one comes to another GPU.
 */
enum gm_union gm_group_unite(const struct gm_client *client, const struct gm_client *partner);

/*
 * A client of the kin of `client` that uses several GPUs between them by now, for gm_group_unite.
 * Its group is kin no longer, unless they become one: so each is returned once. NULL: there is
 * none.
 */
const struct gm_client *gm_group_take_kin(const struct gm_client *client);

/* 1 + the lowest id of the group and its kin; 0: it has none. */
uint32_t gm_group_kin(const struct gm_group *group);
/* Clients of a daemon before: their groups are kin again. */
void gm_group_restore_kin(const struct gm_client *client, const struct gm_client *partner);

/* A client is gone. */
void gm_group_remove(struct gm_client *client);

/* The first of its clients; the others follow by `next`. */
const struct gm_client *gm_group_clients(const struct gm_group *group);

/* Whether the members on this GPU may still be apart as the group came about by a union, or has a
 * new member: once for each GPU. */
bool gm_group_take_union(const struct gm_engine *engine, uint32_t app);

/* The first of its clients that stands still; NULL: none does. */
const struct gm_client *gm_group_stopped(const struct gm_group *group);

/* "": it has none. */
const char *gm_group_name(const struct gm_group *group);

/* `app` has joined its engine. */
void gm_group_joined(struct gm_engine *engine, uint32_t app);
/* Its group, if that has or had more than one member; else NULL. */
struct gm_group *gm_group_of(const struct gm_engine *engine, uint32_t app);
/* A walk over the members that are connected, in their order: the next one, and its engine. NULL:
 * there is none. */
struct gm_walk {
    const struct gm_group *group;
    const struct gm_client *client;
    uint32_t index;
};
struct gm_walk gm_group_walk(const struct gm_group *group);
struct gm_app *gm_group_step(struct gm_walk *walk, struct gm_engine **engine);
/* Their engines go round soon. */
void gm_group_call(const struct gm_group *group);

/* Whether its group has, or had, more than one member. */
bool gm_group_is_several(const struct gm_engine *engine, uint32_t app);
/* Whether the two run together. */
bool gm_group_is_one(const struct gm_engine *engine, uint32_t app, uint32_t other);

/* Another connected member on this GPU; GM_NONE: there is none. */
uint32_t gm_group_other_here(const struct gm_engine *engine, uint32_t app);
/* All members on this GPU that are connected, `app` among them. Returns how many. */
uint32_t gm_group_name_all(const struct gm_engine *engine, uint32_t app, uint32_t *all);
/* The room that the app takes: what it is promised, and what is tried on the host, which may be
 * wanted back at any moment. So nobody else is let in for that before it is proved. */
uint64_t gm_engine_size_of(const struct gm_engine *engine, uint32_t app);
/* What they come to: bytes that they need together, whether any of them wants its turn, all of them
 * run, any of them runs or drains. One that is held for exchanges counts as running. */
void gm_group_sum(const struct gm_engine *engine, uint32_t app, uint64_t *bytes, bool *is_wanting,
                  bool *is_open, bool *has_open);

/* The next client of a group, from `client` on, that is connected and an app of this engine. */
const struct gm_client *gm_group_next_here(const struct gm_engine *engine,
                                           const struct gm_client *client);
/* for (GM_EACH_MEMBER(engine, app, client)): those of the group of `app`. */
#define GM_EACH_MEMBER(engine, app, client)                                                        \
    const struct gm_client *client =                                                               \
        gm_group_next_here(engine, gm_group_clients((engine)->apps[app].client->group));           \
    client != NULL;                                                                                \
    client = gm_group_next_here(engine, client->next)

/* The scheduler made `app` yield, so all of its group are to. */
void gm_group_yield(struct gm_engine *engine, uint32_t app);
/* `app` runs with its group from now on. */
void gm_group_opens(struct gm_engine *engine, uint32_t app);

/* Work of `app` waits: the first of its group is to ask for its turn. False: that is `app`. */
bool gm_group_wants(struct gm_engine *engine, uint32_t app);
/* Whether that was so, once: for the first of its group. */
bool gm_group_take_call(struct gm_engine *engine, uint32_t app);
/* Whether any of its group waits for its turn with work; and whether `app` is the first of them. */
bool gm_group_is_waiting(const struct gm_engine *engine, uint32_t app, bool *is_first);
/* Whether all others of its group rest too: nothing of them runs, and nothing came for a while. */
bool gm_group_rests(const struct gm_engine *engine, uint32_t app);

/* The state of `app` changed: the engines of its group go round soon. */
void gm_group_changed(struct gm_engine *engine, uint32_t app);

#endif
