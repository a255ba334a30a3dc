/* What the views show. */
#ifndef GM_DAEMON_ENGINE_SNAPSHOT_H
#define GM_DAEMON_ENGINE_SNAPSHOT_H

struct gm_machine;
struct gm_snapshot;

/* All that views show, brought up to date (snapshot.c). The caller frees it; NULL: out of memory.
 */
struct gm_snapshot *gm_machine_snapshot(struct gm_machine *machine);

#endif
