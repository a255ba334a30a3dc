/* The words of reasons: see why.h. */
#include "daemon/core/why.h"

static const struct {
    const char *name, *text;
} reasons[GM_WHYS] = {
#define GM_WHY(NAME, name, text) [GM_WHY_##NAME] = {name, text},
#include "daemon/core/why.def"
#undef GM_WHY
};

const char *gm_why_name(enum gm_why why)
{
    return reasons[why < GM_WHYS ? why : GM_WHY_NONE].name;
}

const char *gm_why_text(enum gm_why why)
{
    return reasons[why < GM_WHYS ? why : GM_WHY_NONE].text;
}
