#include "shim/memory/chores.h"

#include "common/clock.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/memory/graphs.h"
#include "shim/memory/managed.h"

#define GM_CHORES_SAMPLE_NS GM_S /* between looks at the memory of graphs */

static void gm_chores_move_out(CUcontext context, uint64_t until)
{
    if (gm_gate_sync_begin()) {
        gm_managed_out(context, until);
        gm_gate_sync_end();
    }
}

void gm_chores_clear(uint64_t until)
{
    if (gm_managed_exists())
        gm_contexts_visit(gm_chores_move_out, until);
}

bool gm_chores_paused(void)
{
    if (gm_graphs_exist() && !gm_gate_await_open(0))
        gm_graphs_trim();
    return gm_managed_is_out();
}

static void gm_chores_move_in(CUcontext context, uint64_t unused)
{
    (void)unused;
    gm_managed_in(context);
}

void gm_chores_resumed(void)
{
    gm_contexts_visit(gm_chores_move_in, 0);
}

uint64_t gm_chores_watch(uint64_t now)
{
    static uint64_t sample_at; /* the drainer's alone */
    if (!gm_graphs_exist())
        return UINT64_MAX;
    if (sample_at <= now) {
        gm_graphs_sample();
        sample_at = gm_now() + GM_CHORES_SAMPLE_NS;
    }
    return sample_at;
}
