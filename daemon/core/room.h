/*
 * Room: how much memory an app may have, where, and which rule bounds it. Whatever asks "how much
 * may it have" or "may it have so much" asks this. Pure; owns no state. The engine gathers the
 * input (engine/step/room.c).
 *
 * An app is a program, or the programs of a group together. On the GPU it is *promised* all that it
 * has committed, but for what is fixed and what is beyond. That must be there for its next turn:
 * what is cold goes beyond where the GPU is not large enough for all.
 *
 * What is *beyond* is mapped on the host while the app runs: it was promised no place on the GPU.
 * What is there by choice, as it is cold, comes back to the GPU when others need the room on the
 * host (host_aside). Chunks go to the host whole, so a program that has anything beyond may have a
 * little more there (gm_room_rounded). That of one program fits into the streaming window beside a
 * chunk that moves. That of each further one is promised with what is beyond: so what all have
 * there always fits. What is *unevictable* (fixed chunks, and the driver's memory) only its end
 * frees. A limit that does not exist is UINT64_MAX.
 */
#ifndef GM_CORE_ROOM_H
#define GM_CORE_ROOM_H

#include "common/sums.h"
#include "daemon/core/table.h"
#include "daemon/core/tunables.h"
#include "daemon/core/why.h"

/* What a program may have on the host more than is beyond: all but the smallest part of a chunk. */
#define GM_ROOM_ROUNDING (GM_CHUNK_MAX - GM_CHUNK_MIN)

/* The most that a program has on the host: core/layout keeps to that. */
static inline uint64_t gm_room_rounded(uint64_t beyond)
{
    return beyond > 0 ? beyond + GM_ROOM_ROUNDING : 0;
}

/* What so many programs are promised on the host, of which `beyond` is beyond. */
static inline uint64_t gm_room_on_host(uint64_t beyond, uint32_t programs)
{
    return gm_more(beyond, programs > 1 ? (programs - 1) * GM_ROOM_ROUNDING : 0);
}

/* Bytes of an app, or of all apps of a user. */
struct gm_room_sums {
    uint32_t programs; /* of an app */
    uint64_t promised;
    uint64_t beyond;
    uint64_t fixed;
    uint64_t held;   /* fixed on the host: part of what is beyond */
    uint64_t driver; /* in whole chunks */
    uint64_t device; /* in frames: with those that leave, and those of freed memory */
    uint64_t bend;   /* it may occupy so much more than it is promised, for now */
};

/* A program's own part of that. */
static inline uint64_t gm_room_promised(const struct gm_table *table, uint32_t app)
{
    return table->apps[app].committed - table->apps[app].beyond - table->apps[app].fixed;
}

/* What the program has on the GPU or is to have there as its places are now. Where there are tiers
 * below, one that is paused has no places: what of it was beyond counts here as well. */
static inline uint64_t gm_room_placed(const struct gm_table *table, uint32_t app)
{
    const struct gm_table_app *entry = &table->apps[app];
    return gm_less(entry->committed - entry->fixed, entry->on_host);
}

/* What all programs have committed, and what of that is beyond: with what others have open of ended
 * programs, which stays where it is. */
static inline uint64_t gm_room_committed(const struct gm_table *table)
{
    return table->committed + table->orphaned + table->orphaned_on_host;
}
static inline uint64_t gm_room_beyond(const struct gm_table *table)
{
    return table->beyond + table->orphaned_on_host;
}

struct gm_room_input {
    /* Limits of the GPU and of the host, and what of them is taken. */
    uint64_t budget;        /* of the GPU, as programs are told it */
    uint64_t fixed;         /* ... by unevictable chunks of any app */
    uint64_t host;          /* that can be mapped on the host */
    uint64_t host_alone;    /* ... if no other GPU took any */
    uint64_t host_taken;    /* ... by other apps: what is beyond of them, */
    uint32_t host_programs; /* ... in so many programs */
    uint64_t host_aside;    /* ... of that, what comes back to the GPU for who needs the room */
    uint64_t tiers;         /* all of them together hold so much */
    uint64_t tiers_taken;
    uint64_t files; /* frames that there can be at once; each is an open file */
    uint64_t files_own;
    uint64_t files_taken;   /* ... by others, whoever runs */
    uint64_t files_to_keep; /* ... and soon: gm_room_files_to_keep */
    bool is_host_mappable;
    /* The app. */
    struct gm_room_sums own;
    uint64_t cap;
    bool is_oversize;    /* it may have more than the budget */
    uint64_t told;       /* the most that its environment allows the program */
    uint64_t told_taken; /* ... and what it has */
    /* All apps of its user, this one among them. */
    uint64_t user_gpu, user_pinned; /* limits */
    struct gm_room_sums user;
    uint64_t left_gpu, left_host; /* by ended programs, perhaps for ever */
};

/* What an app may have beside what it has, in whole chunks. */
struct gm_room {
    uint64_t gpu;
    uint64_t host; /* beyond: mapped on the host */
    enum gm_why why;
};

struct gm_room gm_room_of(const struct gm_room_input *input);
/* The same question for an app without others. What counts for a user still counts: who comes first
 * has it. Tiers do not: those who have them end. */
struct gm_room_input gm_room_alone(const struct gm_room_input *input);
/* Which rule refuses an allocation of `bytes`, a positive multiple of GM_CHUNK_MIN; NONE: it may be
 * committed. */
enum gm_why gm_room_refuses(const struct gm_room_input *input, uint64_t bytes);
/* That rule with its limit, and what of it is taken. */
struct gm_reason gm_room_reason(const struct gm_room_input *input, enum gm_why why);

/* What a program is told the GPU to have: all that it could have, less what others share. */
uint64_t gm_room_total(const struct gm_room_input *input);

/* What can be mapped on the host for apps with a cap: a part is left, as pinned memory is cut into
 * units of several sizes. */
uint64_t gm_room_for_capped(const struct gm_room_input *input);

/* Whether it may occupy less of the GPU than the budget, by a cap or a total for its user. */
static inline bool gm_room_is_capped(const struct gm_room_input *input)
{
    return input->cap != UINT64_MAX || input->user_gpu != UINT64_MAX;
}

/* What a total for its user leaves the app; and the least of that and its cap, without what is
 * unevictable of it. */
uint64_t gm_room_user_limit(const struct gm_room_input *input);
uint64_t gm_room_cap_limit(const struct gm_room_input *input);

/* Whether the GPU is not large enough for all that all apps have committed. If it was not, there
 * must be some room before it is again: what is cold would come back, and go again. */
static inline bool gm_room_is_short(const struct gm_table *table, bool was_short)
{
    const uint64_t budget = table->budget;
    return table->committed > (was_short ? budget - budget / GM_SHORT_ROOM : budget);
}

/* Bytes more that go beyond of a program that is part of the app, as so much of it is cold
 * (working.h) and so much is beyond already. */
uint64_t gm_room_to_lay_aside(const struct gm_room_input *input, uint64_t cold, uint64_t beyond);
/* Files that the program keeps whoever runs as soon as its places are chosen anew: what of it is
 * promised on the host and has no place there yet, in its smallest parts. */
static inline uint64_t gm_room_files_to_keep(const struct gm_table *table, uint32_t app)
{
    const struct gm_table_app *entry = &table->apps[app];
    const uint64_t most = gm_less(entry->beyond, entry->on_host) >> GM_CHUNK_SHIFT;
    return gm_least(entry->chunks - entry->staying, most);
}
/* Files that are left while the app runs, and others keep what they are to. Bytes that may keep
 * their files whoever runs, beside those that do, of an app with so many chunks that do not, if
 * each other app has `spare` files left. The chunks are not known before places are chosen: so it
 * is all of them, or the smallest.
 */
uint64_t gm_room_spare_files(const struct gm_room_input *input);
uint64_t gm_room_within_files(uint32_t chunks, uint64_t spare);
/* Bytes that others must take up, so that so much more of the app can be beyond. */
uint64_t gm_room_to_reclaim(const struct gm_room_input *input, uint64_t beyond);
/* Bytes that must go beyond, as the app is promised more than its cap; or that may come back. */
uint64_t gm_room_to_give_up(const struct gm_room_input *input);
uint64_t gm_room_to_take_up(const struct gm_room_input *input);

/* Whether frames of `bytes` more may be the app's now. `has_part`: it may have them whatever its
 * cap says, as it has less than its part of its group. */
bool gm_room_may_occupy(const struct gm_room_input *input, uint64_t bytes, bool has_part);

/* The device's memory, in bytes. */
struct gm_room_device {
    uint64_t budget;      /* for frames, now */
    uint64_t least, most; /* its limits */
    uint64_t available;   /* existing frames, and what is free */
    uint64_t reserve;     /* to be left to contexts, and to what programs allocate past gpumux */
};

/*
 * The budget from now on, while other programs take the device's memory and give it back: a
 * multiple of 2 MiB, or one of its limits. If less than a quarter of the reserve is left beyond the
 * budget, the budget falls until half of it is. If more than one and a half is left, the budget
 * rises until all of it is. So contexts that come and go do not change it.
 */
uint64_t gm_room_next_budget(const struct gm_room_device *device);

/* Whether the app could still run with all of its memory on the GPU, or what its cap or --oversize
 * leaves there, if `bytes` more were fixed, of others; and whether so much more of it can be
 * beyond, for good. */
bool gm_room_may_fix(const struct gm_room_input *input, uint64_t bytes);
bool gm_room_may_hold(const struct gm_room_input *input, uint64_t bytes);

#endif
