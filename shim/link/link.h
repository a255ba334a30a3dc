/*
 * The link: the connection to the daemon. The thread "gpumux-link" receives messages and does what
 * they say; any thread sends (post.h) and asks (requests.h).
 *
 * The daemon is trusted with this program's memory, not with its life: a message that does not
 * decode or makes no sense counts as a lost connection.
 *
 * The daemon is lost when the connection is, and by nothing else. If somebody still has this
 * program's memory, it is lost for now: comeback.h. Nothing changes for the program until another
 * daemon has taken it over. Then both agree on what is mapped before the gate opens.
 *
 * A daemon that is stopped, or slow, is waited for, however long. It gives a sign each second
 * (gm_ctl.beat); the log says when it gives none, and when it does again.
 *
 * After a loss for good, a program whose gate is open runs on without a gate, and so does one whose
 * gate is closed but from which nothing was taken yet. If its data is elsewhere, or on its way
 * back, that data is gone: calls return CUDA_ERROR_DEVICE_UNAVAILABLE (gate.h). What is still
 * mapped is unmapped. Work that was parked goes on all the same: else a thread that waits for it in
 * the driver would never return. Where its data is not there it faults, and writes nowhere. New
 * allocations go to the real driver. The thread stays and does work for others (work.h).
 *
 * Owns the daemon's pages. Any thread. Calls the gate, the drainer and the rest of its room by
 * name, and the rooms above through gm_link_calls.
 */
#ifndef GM_SHIM_LINK_H
#define GM_SHIM_LINK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/shm.h"
#include "common/wire.h"
#include "shim/gate/gate.h"
#include "shim/gate/park.h"
#include "shim/link/greet.h"
#include "shim/link/requests.h"

/* Boot only. Connect, send HELLO, receive WELCOME. Returns 0, or -errno and one line for the log in
 * `why`; then nothing is left open. */
int gm_link_open(struct gm_link_welcome *welcome, char *why, size_t why_size);

/* Boot only, after gm_link_open and before gm_gate_attach: undo it. */
void gm_link_shut(void);

/* Whom the link thread calls, without a lock. */
struct gm_link_calls {
    /* MAP, UNMAP and DROP (mapper.h). The daemon gets the result. */
    CUresult (*map)(const struct gm_map_entry *entry, uint32_t count, const int *fds, int n_fds);
    CUresult (*unmap)(const struct gm_span_entry *entry, uint32_t count);
    CUresult (*drop)(const struct gm_frame_entry *entry, uint32_t count);

    struct gm_request_calls request;

    /* For REJOIN. */
    gm_greet_list *holds;

    /* After a loss for good: is all of the program's memory mapped? Unmap all that is. */
    bool (*is_whole)(void);
    void (*forget)(void);

    /* For gm_hold_look (gate/park.h). */
    enum gm_park_outcome (*hold)(void);
    void (*resume)(void);

    /* TIMESLICE. 0 or -errno. Also after a loss for good, with 0. */
    int (*timeslice)(uint64_t us);

    /* TAKEN: the daemon took the spare at `va`. False: there is no such spare. */
    bool (*taken)(uint64_t va);
    /* The daemon is lost for good. */
    void (*lost)(void);

    /* Start or stop marking in these words (windows.h; NULL: they could not be had); also in a
     * forked child. */
    void (*mark)(bool is_on, _Atomic uint64_t *words);
    void (*note_graphs)(bool is_on); /* what they touch, as it may have to be marked */
};

/* Start only, after gm_gate_attach and gm_devices_set: start to receive. 0 or -errno. */
int gm_link_start(const struct gm_link_calls *calls);

/* Tell the daemon that a thread waits at the gate, and whether a signal came to it. Never waits and
 * never fails visibly. */
void gm_link_want(bool is_hurried);

/* Tell the daemon that work comes (include/gpumux.h). Never waits: while the daemon does not read,
 * the hint is lost. */
void gm_link_expect(uint64_t after_us, uint64_t for_us);

/* Drainer only: the answers to CLOSE and to QUERY. */
void gm_link_drained(const struct gm_msg_drained *drained);
void gm_link_quiet(const struct gm_msg_quiet *quiet);

/* The program exports memory by descriptors that it marks (common/marks.h). */
void gm_link_exported(void);
/* ... and has imported memory of process `exporter`. Never waits. */
void gm_link_imported(pid_t exporter);

/* This program's id with the daemon. */
uint32_t gm_link_app(void);

/* The daemon's process; 0: this process cannot name it. */
pid_t gm_link_daemon(void);

/* What this program could have in all on `gpu`, in bytes: the budget, or more if it may be larger.
 */
uint64_t gm_link_budget(uint32_t gpu);

/* Bytes that the daemon could give this program now, in addition to what it has. */
uint64_t gm_link_room(uint32_t gpu);

/* The forked child: replace the parent's words by a private copy. A handler may have forked in the
 * middle of a call, which goes on in the child and writes to its slot. */
void gm_link_part(void);

/* The forked child, or a boot that fails: close the socket. The areas stay mapped. */
void gm_link_close(void);

#endif
