/*
 * mux-ctl prefetch: the memory of programs is to come to the GPU, or nearer to it, ahead of their
 * turn. It waits until all has come or no more does, and says what came and why not more. Calls
 * set.c, select.c, ask.c and say.c.
 */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/clock.h"

#define LOOK_NS (100 * GM_MS)  /* between two questions */
#define STUCK_NS (2 * GM_S)    /* nothing came for so long */
#define PROGRESS_NS (2 * GM_S) /* say that it goes on, from then on */

struct view {
    unsigned programs;
    double gpu, pinned, away; /* bytes there, and below pinned memory */
    double lacks;             /* ... that are not on the GPU, of who is none of these: */
    const cJSON *evicted, *runs, *capped;
    double room; /* that the GPUs have free on which they lack it */
};

static bool is_evicted(const cJSON *app)
{
    const char *pause = mux_word(app, "pause");
    return strcmp(pause, "evicted") == 0 || strcmp(pause, "idle") == 0;
}

static void add(struct view *view, const cJSON *app)
{
    const double total = mux_number(app, "total_bytes"), gpu = mux_number(app, "resident_bytes");
    const double pinned = mux_number(app, "pinned_bytes"), cap = mux_number(app, "cap_bytes");
    const double lacks = total - gpu;
    view->programs++;
    view->gpu += gpu;
    view->pinned += pinned;
    view->away += lacks > pinned ? lacks - pinned : 0;
    if (lacks <= 0)
        return;
    if (is_evicted(app))
        view->evicted = app;
    else if (strcmp(mux_word(app, "state"), "running") == 0)
        view->runs = app;
    else if (cap > 0 && total > cap && gpu + (double)GM_CHUNK_MAX > cap)
        view->capped = app;
    else
        view->lacks += lacks;
}

/* Whether one of those that lack something is on this GPU. */
static bool is_asked_for(const cJSON *apps, const struct gm_msg_set *whose, double gpu)
{
    const cJSON *app;
    cJSON_ArrayForEach(app, apps)
    {
        if (mux_is_meant(apps, app, whose) && mux_number(app, "gpu") == gpu &&
            mux_number(app, "resident_bytes") < mux_number(app, "total_bytes"))
            return true;
    }
    return false;
}

static int look(const struct mux_options *options, const struct gm_msg_set *whose, cJSON **status,
                struct view *view)
{
    const cJSON *app, *apps, *gpu;
    cJSON_Delete(*status);
    *status = NULL;
    *view = (struct view){0};
    const int code = mux_get_status(options, status);
    if (code)
        return code;
    apps = cJSON_GetObjectItemCaseSensitive(*status, "apps");
    cJSON_ArrayForEach(app, apps)
    {
        if (mux_is_meant(apps, app, whose))
            add(view, app);
    }
    cJSON_ArrayForEach(gpu, cJSON_GetObjectItemCaseSensitive(*status, "gpus"))
    {
        if (is_asked_for(apps, whose, mux_number(gpu, "index")))
            view->room += mux_number(gpu, "free_bytes");
    }
    return MUX_OK;
}

/* Until nothing lacks that could come, or nothing more comes. */
static int wait_for_it(const struct mux_options *options, const struct gm_msg_set *whose,
                       cJSON **status, struct view *last)
{
    const struct timespec pause = {.tv_nsec = (long)LOOK_NS};
    const uint64_t from = gm_now();
    const bool is_screen = isatty(STDERR_FILENO);
    uint64_t came_at = from;
    double most = -1;
    char bytes[32];
    for (bool is_told = false;;) {
        const int code = look(options, whose, status, last);
        if (is_told)
            fputs("\r\033[K", stderr);
        if (code || last->lacks <= 0)
            return code;
        const double nearer = 2 * last->gpu + last->pinned;
        if (nearer > most) {
            most = nearer;
            came_at = gm_now();
        }
        if (gm_now() - came_at >= STUCK_NS)
            return MUX_OK;
        is_told = is_screen && gm_now() - from >= PROGRESS_NS;
        if (is_told)
            fprintf(stderr, "%s are not on the GPU yet", mux_bytes(last->lacks, bytes));
        nanosleep(&pause, NULL);
    }
}

static void say(const struct view *first, const struct view *last)
{
    char came[32], raised[32], lacks[32], room[32];
    const double below = first->away - last->away, gpu = last->gpu - first->gpu;
    printf("%s came to the GPU", mux_bytes(gpu, came));
    if (below > gpu && last->pinned > first->pinned)
        printf(", %s to pinned memory", mux_bytes(last->pinned - first->pinned, raised));
    if (last->lacks > 0)
        printf("; %s have no room there that nobody needs (%s are free): they come when there is",
               mux_bytes(last->lacks, lacks), mux_bytes(last->room, room));
    if (last->evicted)
        printf("; pid %.0f is evicted: mux-ctl resume %.0f first", mux_number(last->evicted, "pid"),
               mux_number(last->evicted, "pid"));
    if (last->runs)
        printf("; pid %.0f runs: what it lacks comes as it needs it",
               mux_number(last->runs, "pid"));
    if (last->capped)
        printf("; pid %.0f has its cap of %s", mux_number(last->capped, "pid"),
               mux_size(last->capped, "cap_bytes", raised));
    if (last->lacks <= 0 && !last->evicted && !last->runs && !last->capped)
        printf("; all of %u program%s is there", last->programs, last->programs == 1 ? "" : "s");
    putchar('\n');
}

int mux_prefetch(const struct mux_options *options)
{
    struct gm_msg_set set;
    struct gm_msg_set_is answer = {0};
    struct view first, last;
    cJSON *status = NULL;
    if (!mux_read_set(options, "paused=no", &set)) /* whose is all that is asked */
        return MUX_FAILED;
    set.settings = GM_SET_AHEAD;
    int code = look(options, &set, &status, &first);
    if (code == MUX_OK)
        code = mux_demand(options, GM_MSG_SET, &set, GM_MSG_SET_IS, &answer, sizeof answer);
    if (code == MUX_OK)
        code = wait_for_it(options, &set, &status, &last);
    if (code == MUX_OK)
        say(&first, &last);
    cJSON_Delete(status);
    return code ? code : mux_written("what came");
}
