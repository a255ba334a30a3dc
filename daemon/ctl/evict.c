/*
 * mux-ctl evict: programs are paused, and their memory leaves the GPU at once; with --idle until
 * their next call. It waits until that is so, and says what stays. Calls set.c, ask.c and say.c.
 *
 * Memory leaves as fast as the link copies. So what has not become less for a while has no room in
 * host memory, or its program does not become quiet.
 */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

#define LOOK_NS (100 * GM_MS)         /* between two questions */
#define STUCK_NS (10 * GM_S)          /* nothing left for so long */
#define PROGRESS_NS (2 * GM_S)        /* say that it goes on, from then on */
#define WORTH_TELLING (2.0 * 1048576) /* bytes: each program has a few that stay */

struct view {
    unsigned programs, works; /* that are meant; ... and go on, as they have calls to make */
    double device, held;      /* bytes on the GPU of those that are evicted, and of all */
    double stays;             /* what is shared, or only the driver can move */
    const char *why;          /* of the first that has memory to leave; it lasts as the status */
};

static struct view look(const cJSON *status, const struct gm_msg_set *whose)
{
    const cJSON *app, *apps = cJSON_GetObjectItemCaseSensitive(status, "apps");
    struct view view = {0};
    cJSON_ArrayForEach(app, apps)
    {
        if (!mux_is_meant(apps, app, whose))
            continue;
        const double all = mux_number(app, "device_bytes") - mux_number(app, "shared_bytes");
        const double here = all > 0 ? all : 0;
        view.programs++;
        view.held += here;
        if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(app, "paused"))) {
            view.works++;
            continue;
        }
        view.device += here;
        view.stays += mux_number(app, "unswappable_bytes") + mux_number(app, "shared_bytes");
        if (here > 0 && !view.why)
            view.why = mux_word(app, "why");
    }
    return view;
}

static void say_done(const struct view *first, const struct view *last)
{
    char left[32], stays[32];
    const double gone = first->held - last->held;
    const unsigned evicted = last->programs - last->works;
    if (evicted > 0)
        printf("%s left the GPU; there stay%s the CUDA context%s of %u program%s (some 500 MiB "
               "each)%s%s%s\n",
               mux_bytes(gone, left), evicted == 1 ? "s" : "", evicted == 1 ? "" : "s", evicted,
               evicted == 1 ? "" : "s", last->stays >= WORTH_TELLING ? ", and " : "",
               last->stays >= WORTH_TELLING ? mux_bytes(last->stays, stays) : "",
               last->stays >= WORTH_TELLING ? " that are shared or that only the driver can move"
                                            : "");
    if (last->works > 0)
        printf("%u program%s work%s and go%s on\n", last->works, last->works == 1 ? "" : "s",
               last->works == 1 ? "s" : "", last->works == 1 ? "es" : "");
}

static int get_view(const struct mux_options *options, const struct gm_msg_set *whose,
                    cJSON **status, struct view *view)
{
    cJSON_Delete(*status);
    *status = NULL;
    const int code = mux_get_status(options, status);
    *view = code ? (struct view){0} : look(*status, whose);
    return code;
}

/* Until nothing of them is left on the GPU, or nothing more leaves. */
static int wait_for_it(const struct mux_options *options, const struct gm_msg_set *whose,
                       cJSON **status, struct view *last)
{
    const struct timespec pause = {.tv_nsec = (long)LOOK_NS};
    const uint64_t from = gm_now();
    const bool is_screen = isatty(STDERR_FILENO);
    uint64_t fell_at = from;
    double least = 0;
    char bytes[32];
    for (bool is_first = true, is_told = false;; is_first = false) {
        const int code = get_view(options, whose, status, last);
        if (is_told)
            fputs("\r\033[K", stderr);
        if (code || last->device <= 0)
            return code;
        if (is_first || last->device < least) {
            least = last->device;
            fell_at = gm_now();
        }
        if (gm_now() - fell_at >= STUCK_NS) {
            mux_complain("%s: %s cannot leave the GPU now: %s", options->name,
                         mux_bytes(last->device, bytes), last->why);
            return MUX_FAILED;
        }
        is_told = is_screen && gm_now() - from >= PROGRESS_NS;
        if (is_told)
            fprintf(stderr, "%s to go", mux_bytes(last->device, bytes));
        nanosleep(&pause, NULL);
    }
}

int mux_evict(const struct mux_options *options)
{
    struct gm_msg_set set;
    struct gm_msg_set_is answer = {0};
    struct view first, last;
    cJSON *status = NULL;
    if (!mux_read_set(options, options->is_idle ? "paused=idle" : "paused=evicted", &set))
        return MUX_FAILED;
    int code = get_view(options, &set, &status, &first);
    if (code == MUX_OK)
        code = mux_demand(options, GM_MSG_SET, &set, GM_MSG_SET_IS, &answer, sizeof answer);
    if (code == MUX_OK)
        code = wait_for_it(options, &set, &status, &last);
    if (code == MUX_OK)
        say_done(&first, &last);
    cJSON_Delete(status);
    return code ? code : mux_written("what left");
}
