/* Reasons as texts: see why.h. */
#include "daemon/views/why.h"

#include <inttypes.h>
#include <stdio.h>

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
