/* The events of common/events.def as structs. */
#ifndef GM_CORE_EVENTS_H
#define GM_CORE_EVENTS_H

#include "daemon/core/model.h"

struct gm_note;
struct gm_sched_config;
struct gm_sched_event;
struct gm_sched_policy;

/* clang-format off */
#define GM_EVENT(NAME, name, fields, words) GM_EVENT_##NAME,
enum gm_event_kind {
#include "common/events.def"
    GM_EVENTS
};
#undef GM_EVENT

struct gm_event {
    enum gm_event_kind kind;
    uint32_t app;   /* whom it is about; GM_NONE: nobody */
    uint64_t times; /* that it happened; 0 is once */
    union {
#define GM_EVENT(NAME, name, fields, words) struct { fields } name;
#include "common/events.def"
#undef GM_EVENT
    };
};
/* clang-format on */

#endif
