/* The reader of events: see journal.h. */
#include "daemon/views/journal.h"

#include "common/clock.h"
#include "daemon/views/tell.h"

/* Into the log as the next entry, which replaces the oldest. */
static void keep(struct gm_journal *journal, const struct gm_event *event,
                 const struct gm_note *note)
{
    struct gm_note *entry = &journal->entry[++journal->n % GM_NOTES];
    *entry = *note;
    entry->seq = journal->n;
    entry->kind = event->kind;
    entry->gpu = event->device;
    entry->at = event->at;
    entry->wall = gm_wall_time();
}

static void count_switch(struct gm_journal *journal, uint32_t gpu, uint64_t ns)
{
    unsigned n = 0;
    while (n < GM_SWITCH_BOUNDS && ns > gm_switch_bound(n))
        n++;
    journal->gpu[gpu].switches[n]++;
    journal->gpu[gpu].switch_ns += ns;
}

static void count_decision(struct gm_decision_times *times, uint64_t ns)
{
    unsigned n = 0;
    while (n < GM_DECISION_BOUNDS && ns > gm_decision_bound(n))
        n++;
    times->counts[n]++;
    times->sum_ns += ns;
    times->most_ns = ns > times->most_ns ? ns : times->most_ns;
}

void gm_journal_event(struct gm_journal *journal, const struct gm_event *event)
{
    const uint32_t index = event->gpu;
    gm_view_tell(event);
    gm_tape_event(&journal->tape, event);
    switch (event->kind) {
    case GM_EVENT_SWITCH:
        keep(journal, event, event->switch_.note);
        count_switch(journal, index, event->switch_.note->took.total_ns);
        break;
    case GM_EVENT_DECIDED:
        count_decision(&journal->gpu[index].decisions, event->decided.ns);
        count_decision(&journal->gpu[index].passes, event->decided.pass_ns);
        break;
    case GM_EVENT_LEVEL:
        keep(journal, event, event->level.note);
        break;
    case GM_EVENT_SET:
        keep(journal, event, event->set.note);
        break;
    case GM_EVENT_RESTARTED:
        keep(journal, event, event->restarted.note);
        break;
    case GM_EVENT_REFUSED:
        keep(journal, event, event->refused.note);
        journal->gpu[index].refusals[journal->gpu[index].n_refusals++ % GM_REFUSALS_KEPT] =
            journal->entry[journal->n % GM_NOTES];
        break;
    default:
        break;
    }
}
