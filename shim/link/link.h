/*
 * The link: the connection to the daemon. One thread ("gpumux-link") receives and does what is
 * asked; any thread sends. Requests (ALLOC, FREE, SHARE, OPEN, SHUT) wait on their own condition
 * for the answer with their cookie.
 *
 * The link owns the socket, the daemon's pages and the open requests. Downward it calls the gate
 * and the drainer by name. What it has done in rooms above it, it does through gm_link_calls.
 *
 * The daemon is trusted with this program's memory, not with its life: a message that does not
 * decode or makes no sense counts as a lost connection.
 *
 * Lost: a program whose gate is open runs on without a gate, and so does one whose gate is closed
 * but from which nothing was taken yet. One whose data was elsewhere, or on its way back, gets
 * CUDA_ERROR_DEVICE_UNAVAILABLE from every gate-crossing call, because that data is gone. New
 * allocations go to the real driver. The thread stays, and does what other threads want of the
 * mapper (work.h).
 *
 * A daemon that hangs is lost as well: one of whom a waiting thread hears nothing for
 * GM_LINK_SILENCE_S. Who is made to wait on purpose hears of the daemon each second (gm_ctl.beat).
 */
#ifndef GM_SHIM_LINK_H
#define GM_SHIM_LINK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/share.h"
#include "common/shm.h"
#include "common/wire.h"
#include "shim/gate/gate.h"

struct gm_link_welcome {
    const struct gm_ctl *ctl; /* mapped read-only */
    struct gm_stat *stat;     /* mapped read-write */
    uint32_t app;
    uint32_t n_gpus;
    struct gm_gpu_entry gpu[GM_GPUS_MAX];
};

/*
 * Boot only. Connect, say HELLO, take WELCOME. Returns 0, or -errno with nothing left behind; `why`
 * gets one line for the log.
 */
int gm_link_open(struct gm_link_welcome *welcome, char *why, size_t why_size);

/* Boot only, after gm_link_open and before gm_gate_attach: undo it. */
void gm_link_shut(void);

/* Whom the link thread calls. It holds no lock meanwhile. */
struct gm_link_calls {
    /* MAP, UNMAP and DROP (mapper.h). The daemon is told the result. */
    CUresult (*map)(const struct gm_map_entry *entry, uint32_t count, const int *fds, int n_fds);
    CUresult (*unmap)(const struct gm_span_entry *entry, uint32_t count);
    CUresult (*drop)(const struct gm_frame_entry *entry, uint32_t count);

    /* The daemon is lost: unmap what is mapped in a range that is freed; whether all that the
     * program has is mapped. */
    CUresult (*release)(uint64_t va, uint64_t bytes);
    bool (*is_whole)(void);

    /* gm_link_alloc_ahead: what was asked for came (`result` 0), or did not: a CUresult, or
     * -ENOTCONN if the daemon is lost. */
    void (*ahead_came)(uint64_t va, uint64_t bytes, int result);

    /* Begin or end to count uses (uses.h), also in a forked child; and take out what was counted,
     * at most GM_ENTRIES_USES entries, which the drainer has done, too. */
    void (*count_uses)(bool is_on);
    uint32_t (*take_uses)(struct gm_use_entry *entries);
};

/* Start only, after gm_gate_attach and gm_devices_set: start to receive. 0 or -errno. */
int gm_link_start(const struct gm_link_calls *calls);

/* Whether requests make sense now. It may be lost in the next moment. */
bool gm_link_is_up(void);

/* Tell the daemon that a thread waits at the gate. Never fails visibly. */
void gm_link_want(void);

/*
 * Who waits for the daemon, at the gate or for an answer, begins with an ear that is all zero and
 * listens about once a second, or more often. After GM_LINK_SILENCE_S seconds in which the daemon
 * gave no sign it counts as lost. A second counts when the thread was there to see it end, so that
 * time in which all programs stand still (system suspend, a debugger) counts for one at most.
 */
#define GM_LINK_SILENCE_S (10 * GM_SLOW)
void gm_link_listen(struct gm_gate_ear *ear);

/* Drain only: the answers to CLOSE and to QUERY. */
void gm_link_drained(const struct gm_msg_drained *drained);
void gm_link_quiet(const struct gm_msg_quiet *quiet);

/* The same as gm_link_alloc below, but only where there is plenty of room, and nobody waits: the
 * link thread calls `ahead_came`. 0, or -errno: it will not, since it is lost, or GM_LINK_AHEAD
 * have no answer yet. */
#define GM_LINK_AHEAD 8u
int gm_link_alloc_ahead(uint64_t va, uint64_t bytes, uint32_t gpu);

/*
 * Have `bytes` (a multiple of GM_CHUNK_MIN) at `va`, a range reserved by the caller, backed on
 * `gpu`. Returns 0, a CUresult from the daemon, or -ENOTCONN: lost, call gm_link_free before the
 * range is used otherwise.
 */
int gm_link_alloc(uint64_t va, uint64_t bytes, uint32_t gpu);

/*
 * Have the chunks of [va, va + bytes) unmapped and forgotten: by the daemon, or here when it is
 * lost. The GPU must be done with them. Returns 0 or a CUresult; after 0 the range is free of
 * mappings.
 */
int gm_link_free(uint64_t va, uint64_t bytes);

/*
 * Have the allocation at `va` shared; from inside the gate. Returns 0 with *shared, a CUresult from
 * the daemon, or -ENOTCONN.
 */
int gm_link_share(uint64_t va, struct gm_msg_shared *shared);

/*
 * Have what `name` names mapped into a range of its bytes at `va`, reserved by the caller. Returns
 * 0, a CUresult with nothing of it mapped, or -ENOTCONN: call gm_link_shut_share before the range
 * is used otherwise.
 */
int gm_link_open_share(uint64_t va, const struct gm_share_name *name);

/* Have that unmapped: by the daemon, or here when it is lost. Returns 0 or a CUresult. */
int gm_link_shut_share(uint64_t va, uint64_t bytes);

/* This program's id with the daemon. */
uint32_t gm_link_app(void);

/* What this program may take of `gpu` for its own, in bytes. */
uint64_t gm_link_budget(uint32_t gpu);

/* Bytes that the daemon could give this program now, beyond what it already backs for it. */
uint64_t gm_link_room(uint32_t gpu);

/*
 * The forked child: its parent's words are its own from now on. A handler may have forked in the
 * middle of a call, which goes on in the child and writes to the parent's slot.
 */
void gm_link_part(void);

/* The forked child, or a boot that cannot be finished: close the socket. The areas stay mapped. */
void gm_link_close(void);

#endif
