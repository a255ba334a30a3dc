#include "shim/gate/hot.h"

/* Before the start: every first call takes the slow path. */
static const struct gm_ctl gm_page_cold = {.gate = GM_GATE_COLD};
struct gm_hot gm_hot = {.page = &gm_page_cold};
