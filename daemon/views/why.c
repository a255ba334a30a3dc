/* Reasons as texts: see why.h. */
#include "daemon/views/why.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/settings.h"
#include "common/size.h"
#include "daemon/core/tunables.h"

char *gm_view_name(uint32_t app, int32_t pid, const char *name, char *text, size_t size)
{
    snprintf(text, size, "app %" PRIu32 " (pid %d, %s)", app, (int)pid, name);
    return text;
}

const char *gm_view_raise(const struct gm_reason *refusal)
{
    switch (refusal->why) {
    case GM_WHY_BUDGET:
        return refusal->is_host_mappable
                   ? "--gpu-budget, or take --oversize host or GPUMUX_OVERSIZE=host"
                   : "--gpu-budget";
    case GM_WHY_PINNED:
        return "--pinned";
    case GM_WHY_USER:
        return "user-pinned= in the rule for its user";
    case GM_WHY_LIMIT:
        return "CUDA_DEVICE_MEMORY_LIMIT or GPU_MEMORY_LIMIT in its environment";
    case GM_WHY_FILES:
        return "LimitNOFILE or ulimit -n of gpumuxd";
    case GM_WHY_FULL:
    case GM_WHY_DEADLOCK:
        return refusal->is_unswappable ? "--pinned" : "--pinned, --paged or --disk";
    default:
        return "";
    }
}

const char *gm_view_refusal(const struct gm_reason *refusal, char *text, size_t size)
{
    char limit[32], taken[32], held[32];
    gm_format_size(refusal->limit, limit, sizeof limit);
    gm_format_size(refusal->taken, taken, sizeof taken);
    gm_format_size(refusal->held, held, sizeof held);
    switch (refusal->why) {
    case GM_WHY_BUDGET:
        snprintf(text, size, "no program gets more than the budget of %s, and it has %s%s%s%s",
                 limit, held, refusal->taken ? "; " : "", refusal->taken ? taken : "",
                 refusal->taken ? " are shared by others" : "");
        break;
    case GM_WHY_PINNED:
        snprintf(text, size,
                 "what is beyond the budget or a cap is in pinned memory, which has room for %s of "
                 "it, and %s are taken",
                 limit, taken);
        break;
    case GM_WHY_USER:
        snprintf(
            text, size,
            "the programs of its user may have %s of memory that can be moved out, and have %s",
            limit, taken);
        break;
    case GM_WHY_LIMIT:
        snprintf(text, size, "by its environment it may have %s, and it has %s", limit, held);
        break;
    case GM_WHY_FILES:
        snprintf(
            text, size,
            "each piece of 2 to 32 MiB needs an open file of gpumuxd, and there are %u for all "
            "of its %s and what others share or have in host memory",
            refusal->files, held);
        break;
    case GM_WHY_FULL:
        snprintf(text, size, "all tiers together hold %s, and %s are taken%s", limit, taken,
                 refusal->is_unswappable ? "; pinned memory is too small to swap anything" : "");
        break;
    case GM_WHY_DEADLOCK:
        snprintf(text, size,
                 "it has %s and waited for others that have memory and waited for it; all tiers "
                 "together hold %s",
                 held, limit);
        break;
    case GM_WHY_WAITING:
        snprintf(text, size, "%d allocations of its user wait for room already",
                 GM_WAITING_OF_USER);
        break;
    case GM_WHY_HOST:
        snprintf(text, size, "the system gives no more host memory, see the daemon's log");
        break;
    case GM_WHY_MAP:
        snprintf(text, size, "the program could not map it, see the daemon's log");
        break;
    case GM_WHY_OWN:
        snprintf(text, size, "a limit of its own, as of a memory pool: the daemon was not asked");
        break;
    default:
        snprintf(text, size,
                 "the driver refused memory that gpumux does not manage: the daemon was not asked");
        break;
    }
    return text;
}

/* "pid 12 is stopped and keeps 96 MiB: kill -CONT 12" */
static void say_stop(const struct gm_reason *why, enum gm_why how, bool has_kept, char *text,
                     size_t size)
{
    char kept[48] = "";
    if (has_kept)
        snprintf(kept, sizeof kept, " and keeps %" PRIu64 " MiB", why->held >> 20);
    if (how == GM_WHY_FROZEN)
        snprintf(text, size, "pid %d is frozen%s: thaw its control group", (int)why->pid, kept);
    else if (how == GM_WHY_COPIED && why->pid == 0)
        snprintf(text, size,
                 "a child of pid %d, which has ended, has copies of what that had%s: "
                 "end that child",
                 (int)why->ended, kept);
    else if (how == GM_WHY_COPIED)
        snprintf(text, size, "pid %d has copies of what pid %d had, which has ended,%s: end pid %d",
                 (int)why->pid, (int)why->ended, kept, (int)why->pid);
    else if (how == GM_WHY_LOST || how == GM_WHY_CUT)
        snprintf(text, size, "pid %d of the daemon before %s%s: %send it", (int)why->pid,
                 gm_why_text(how), kept, how == GM_WHY_LOST ? "wake or " : "");
    else if (how == GM_WHY_SILENT)
        snprintf(text, size, "pid %d does not answer%s: if it stays so, end it", (int)why->pid,
                 kept);
    else if (how == GM_WHY_TRACED)
        snprintf(text, size, "pid %d is held by a debugger%s: let it continue there", (int)why->pid,
                 kept);
    else
        snprintf(text, size, "pid %d is stopped%s: kill -CONT %d", (int)why->pid, kept,
                 (int)why->pid);
}

/* "has not come back since the daemon was restarted 12 s ago, and keeps 96 MiB: wake or end pid 12"
 */
static void say_lost(const struct gm_reason *why, char *text, size_t size)
{
    snprintf(text, size,
             "%s since the daemon was restarted %" PRIu64 " s ago, and keeps %" PRIu64
             " MiB: %send pid %d",
             gm_why_text(why->why), (uint64_t)(why->for_ns / GM_S), why->held >> 20,
             why->why == GM_WHY_LOST ? "wake or " : "", (int)why->pid);
}

static void say_room(const struct gm_reason *why, char *text, size_t size)
{
    char stop[160], more[32] = "";
    if (why->of == GM_WHY_NONE) {
        snprintf(text, size,
                 "needs %" PRIu64 " MiB on the GPU, where others leave room for %" PRIu64 " MiB",
                 why->bytes >> 20, why->limit >> 20);
        return;
    }
    say_stop(why, why->of, true, stop, sizeof stop);
    if (why->others > 0)
        snprintf(more, sizeof more, " (and %" PRIu32 " more)", why->others);
    snprintf(text, size, "needs %" PRIu64 " MiB on the GPU: %s%s", why->bytes >> 20, stop, more);
}

static void say_paused(const struct gm_reason *why, const char *by, char *text, size_t size)
{
    char bytes[32];
    const bool is_evicted = why->of == GM_WHY_EVICTED;
    if (why->held > 0 && is_evicted)
        snprintf(text, size,
                 "%s have yet to leave the GPU, as far as host memory has room; evicted by %s",
                 gm_format_size(why->held, bytes, sizeof bytes), by);
    else if (why->held > 0)
        snprintf(text, size,
                 "%s leave the GPU when anybody wants them, or by mux-ctl trim; paused by %s",
                 gm_format_size(why->held, bytes, sizeof bytes), by);
    else
        snprintf(text, size,
                 "on the GPU is only its CUDA context (some 500 MiB) and what the driver keeps; "
                 "%s by %s",
                 is_evicted ? "evicted" : "paused", by);
}

static void say_capped(const struct gm_reason *why, const char *by, char *text, size_t size)
{
    char bound[640], bytes[32], limit[32];
    snprintf(bound, sizeof bound, "%s=%s%s%s", why->of == GM_WHY_CAP ? "cap" : "user-gpu",
             gm_settings_format_cap(why->limit, limit, sizeof limit), by[0] ? " by " : "", by);
    if (why->why == GM_WHY_LEAVES_ROOM)
        snprintf(text, size, "waits for memory to leave the GPU, to stay below %s", bound);
    else
        snprintf(text, size, "%s may not be on the GPU: above %s",
                 gm_format_size(why->bytes, bytes, sizeof bytes), bound);
}

char *gm_view_reason(const struct gm_reason *why, const char *by, const char *app, char *text,
                     size_t size)
{
    char stop[128];
    switch (why->why) {
    case GM_WHY_NONE:
        text[0] = '\0';
        break;
    case GM_WHY_STOPPED:
    case GM_WHY_TRACED:
    case GM_WHY_FROZEN:
    case GM_WHY_SILENT:
    case GM_WHY_COPIED:
        say_stop(why, why->why, true, text, size);
        break;
    case GM_WHY_PART_STOPPED:
        say_stop(why, why->of, false, stop, sizeof stop);
        snprintf(text, size, "of its group, %s", stop);
        break;
    case GM_WHY_LATER:
        say_stop(why, why->of, false, stop, sizeof stop);
        snprintf(text, size, "%s: %s", gm_why_text(why->why), stop);
        break;
    case GM_WHY_LOST:
    case GM_WHY_CUT:
        say_lost(why, text, size);
        break;
    case GM_WHY_NOT_PAUSED:
    case GM_WHY_ALLOC_WAITS:
        snprintf(text, size, "%s: %s", gm_why_text(why->why), gm_why_text(why->of));
        break;
    case GM_WHY_LACKS_ROOM:
        say_room(why, text, size);
        break;
    case GM_WHY_PAUSED:
        say_paused(why, by, text, size);
        break;
    case GM_WHY_LEAVES_ROOM:
    case GM_WHY_BEYOND:
        say_capped(why, by, text, size);
        break;
    case GM_WHY_TIED:
    case GM_WHY_GROUP_FIRST:
    case GM_WHY_GROUP_LOADS:
        if (why->has_gpu)
            snprintf(text, size, "waits for GPU %d: %s", (int)why->gpu,
                     why->is_of_group ? "its group runs together"
                                      : "it runs on all its GPUs at once");
        else
            snprintf(text, size, "%s", gm_why_text(why->why));
        break;
    default:
        if (by[0])
            snprintf(text, size, "%s, by %s", gm_why_text(why->why), by);
        else
            snprintf(text, size, "%s%s%s", gm_why_text(why->why), why->has_app ? ": " : "",
                     why->has_app ? app : "");
        break;
    }
    return text;
}

char *gm_view_placed(enum gm_why why, uint64_t need, enum gm_need_from from, char *text,
                     size_t size)
{
    static const char *const whose[] = {
        [GM_NEED_DECLARED] = "as its environment says",
        [GM_NEED_RULE] = "as a rule says",
        [GM_NEED_REMEMBERED] = "as in earlier runs",
        [GM_NEED_MEAN] = "as its user's programs do in the mean",
    };
    char bytes[32];
    if (why == GM_WHY_NONE)
        text[0] = '\0';
    else if (from == GM_NEED_UNKNOWN)
        snprintf(text, size, "%s", gm_why_text(why));
    else
        snprintf(text, size, "%s; it needs %s, %s", gm_why_text(why),
                 gm_format_size(need, bytes, sizeof bytes), whose[from]);
    return text;
}
