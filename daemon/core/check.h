/*
 * The check: what crosses the link while programs run tells whether what is taken for cold is cold.
 * Pure: judges samples of the link, and says which memory is to be on the GPU after all, or is to
 * be tried on the host. Owns struct gm_check, and the trust, proof and level of chunks. Called by
 * the engine; changes the table through gm_table_trust, gm_table_prove and gm_table_set_level only.
 *
 * Windows say which memory is cold: it lies on the host, and the GPU can still read it there. They
 * can be wrong. A kernel may follow a pointer that lies in memory, which no launch names. And they
 * see too much: one address claims all that lies behind it, though the program may touch little of
 * it. The link tells, but not whose memory it was. So memory is searched as coins are for the false
 * ones, in groups:
 *
 *   search  There is traffic. What lies on the host and was not proved to be cold is suspect. Half
 *           of the suspects goes to the GPU, the coldest first. If that ends the traffic, the
 *           others are proved; if not, half of those goes, and so on. The last eighth goes at once:
 *           the program is slow until then.
 *   trial   There is none, and others want room. What was brought back, or is only claimed, is put
 *           on the host, the least likely first: a sample of it, then all. Of what is claimed as
 *           much as half of the program's memory at most, as some of it is used. If what is tried
 *           is used, that is seen in some 40 ms. Then it goes back at once, and the next trial is
 *           of a part that was halved once more. If not, it is proved. What failed is tried again
 *           when all else has failed as often: so use that moves is followed. Trials of parts that
 *           were halved often are so seldom that they cost less than 3 % of the program's time; the
 *           others are few, until it does something else.
 *
 * If there is traffic and no memory is suspect any more, others use the link: what is proved is
 * suspect then, and if there is none either, nothing can be told for a while (GM_CHECKED_FOREIGN).
 * Then all is as it was before the search: who was accused is innocent.
 *
 * What explains traffic. A program's own copies cross the link, and kernels may read host memory of
 * the program: those samples say nothing, or less. What the program has on the host that is hot
 * explains all. The caller leaves out samples in which gpumux copied.
 */
#ifndef GM_CORE_CHECK_H
#define GM_CORE_CHECK_H

#include "daemon/core/table.h"
#include "daemon/core/tunables.h"

/* An app as the check knows it. */
struct gm_check_app {
    uint64_t sum;             /* unexplained bytes of the newest samples, */
    uint64_t ns;              /* ... which are of so long, GM_CHECK_NS at most, */
    uint32_t n;               /* ... so many */
    uint64_t quiet_ns;        /* since its memory on the host changed, without traffic */
    uint64_t was_quiet;       /* ... before that it was for so long */
    uint64_t seen_ns;         /* how long it took to see the last traffic */
    uint64_t proved_at;       /* when something of it was proved */
    uint32_t wrong;           /* how often what was proved was touched soon after, */
    bool is_doubted;          /* ... and once more, if what was searched since is guilty */
    uint64_t copied;          /* bytes that it copied over the link, as it last said; */
    uint64_t in_flight;       /* ... of which so many may still be on their way */
    uint64_t mapped;          /* launches that named host memory, likewise */
    uint64_t explained_until; /* those may be running until then */
    uint32_t searched;        /* suspects when its search began; 0: there is none */
    uint64_t searched_at;     /* its last step */
    enum { GM_TRIAL_NONE, GM_TRIAL_SAMPLE, GM_TRIAL_WHOLE } trial;
    uint8_t level;     /* of what is tried */
    bool is_likely;    /* ... of which a sample was not used */
    bool is_known;     /* ... which came back, and is not only claimed */
    uint32_t rest;     /* chunks of it that are not in the sample */
    uint64_t tried_at; /* since when it is, */
    uint64_t tried;    /* ... bytes of it that are not proved, */
    uint64_t tried_ns; /* ... and for so long its program has run so */
    uint32_t starved;  /* trials in a row that told nothing */
    uint64_t unheard;  /* for so long it has run with what is tried, and nothing was judged */
    bool is_over;      /* nothing is left to try */
    uint64_t rest_ns;  /* no trial before it has run for so long */
};

struct gm_check {
    struct gm_check_app *apps; /* by id */
    uint32_t max_apps;
    uint64_t link;      /* bytes a second that copies were seen to cross it one way; 0: none were */
    uint64_t base;      /* bytes a second that others were seen to move, */
    uint64_t rate;      /* ... and that now cross and nobody explains */
    uint64_t bare_ns;   /* for so long nothing of the apps was on the host, */
    uint64_t bare_rate; /* ... and at least so much crossed all the time */
    uint64_t judged_at; /* the newest sample that said something */
    uint64_t off_until; /* others use the link: nothing is judged before */
    uint64_t off_ns;    /* ... which was so long; longer each time that it happens again soon */
};

/* More bytes a second are traffic: a program that reads so much loses 2 % of its time. */
static inline uint64_t gm_check_rate(const struct gm_check *check)
{
    const uint64_t part = check->link / 50;
    if (check->link == 0 || part > GM_CHECK_RATE)
        return GM_CHECK_RATE;
    return part > GM_CHECK_RATE / 8 ? part : GM_CHECK_RATE / 8;
}

/* Others move so much that trials tell too little. */
static inline bool gm_check_is_drowned(const struct gm_check *check)
{
    return check->base >= 8 * gm_check_rate(check);
}

/* What an app that ran all the time of a sample did meanwhile. */
struct gm_check_part {
    uint32_t app;
    bool is_explained; /* it has memory on the host that is used as everybody knows */
    bool has_host;     /* it has memory there */
    bool may_try;      /* it may be slowed down for a trial */
    uint64_t copied;   /* as it says: bytes, and launches, since its start */
    uint64_t mapped;
    enum { GM_CHECK_OPEN, GM_CHECK_QUIET, GM_CHECK_TRAFFIC } finding; /* the answer */
};

struct gm_check_sample {
    uint64_t begin, end; /* of it, nanoseconds */
    uint64_t rate;       /* bytes a second, both directions together, */
    uint64_t cover;      /* ... in so much of that time: nanoseconds */
    uint64_t ns;         /* the time that it stands for */
};

/* `apps`: max_apps of them, all zero. */
void gm_check_init(struct gm_check *check, struct gm_check_app *apps, uint32_t max_apps);
/* A new app has this id. `copied` and `mapped` as it says. */
void gm_check_begin(struct gm_check *check, uint32_t app, uint64_t copied, uint64_t mapped);
/* What the app has on the host is changing: what was seen before says nothing of it. */
void gm_check_change(struct gm_check *check, uint32_t app);

/* So many bytes a second crossed one way while gpumux copied. */
void gm_check_note_link(struct gm_check *check, uint64_t rate);

/* Memory of the app was brought back, and it is not known yet whether that ended the traffic. */
static inline bool gm_check_is_searching(const struct gm_check *check, uint32_t app)
{
    return check->apps[app].searched > 0;
}

/* Bytes of the app that are being tried: they may be wanted back at any moment. */
static inline uint64_t gm_check_tries(const struct gm_check *check, uint32_t app)
{
    return check->apps[app].trial == GM_TRIAL_NONE ? 0 : check->apps[app].tried;
}

/* A trial of its memory is on, or is to begin: for that the link must be free. Other memory of it
 * may be tried than before. */
bool gm_check_wants(const struct gm_check *check, uint32_t app);
void gm_check_wake(struct gm_check *check, uint32_t app);

/* Judge a sample: fills in what is found of each app. False: it says nothing. */
bool gm_check_judge(struct gm_check *check, const struct gm_check_sample *sample,
                    struct gm_check_part *parts, uint32_t n);

struct gm_check_step {
    enum {
        GM_CHECKED_NONE,
        GM_CHECKED_BACK,    /* the app's `chunks` are needed: they are to come to the GPU */
        GM_CHECKED_TRY,     /* ... are to be tried on the host */
        GM_CHECKED_FOREIGN, /* others use the link: the check is off until off_until */
    } kind;
    uint32_t app, chunks;
    uint64_t bytes;
};

/* An app has stopped running for now: something of it may be tried when it runs again. */
struct gm_check_step gm_check_prepare(struct gm_check *check, struct gm_table *table, uint32_t app,
                                      uint64_t now);

/* An app of a sample that says nothing, or that was not judged. A trial does not wait for long: if
 * the memory is used, its program stands still. */
struct gm_check_step gm_check_starve(struct gm_check *check, struct gm_table *table,
                                     const struct gm_check_part *part, uint64_t ns, uint64_t now);

/* No samples will come for now, as there is no meter or the check is off: what is tried is needed.
 */
void gm_check_end_trials(struct gm_check *check, struct gm_table *table);

/* What follows from what was found. `is_short`: memory on the host would serve others. Linear in
 * the apps' chunks, if there is a finding. */
struct gm_check_step gm_check_follow(struct gm_check *check, struct gm_table *table,
                                     const struct gm_check_part *parts, uint32_t n, bool is_short,
                                     uint64_t now);

/* All memory that the app has on the host is cold, so that it reads none of it. */
bool gm_check_is_all_cold(const struct gm_table *table, uint32_t app);

#endif
