/*
 * Wire protocol between shim, mux-ctl and daemon: framed messages on a SOCK_SEQPACKET socket.
 *
 * One datagram is one message: header, payload struct, then `count` entries. File descriptors come
 * with SCM_RIGHTS. Integers are in host order. wire.def is the table of messages; this file has the
 * structs; wire.c is the codec, without I/O, allocation or state. sock.c, the sessions, mux-ctl and
 * shim/link call it, from any thread.
 *
 * Versions: HELLO says which ones its sender speaks, WELCOME the newest that both speak. The layout
 * of a message never changes; only HELLO grows, at its end. What has to change becomes a message of
 * a new number, which is sent where the version of WELCOME has it. A header says what its message
 * needs: until there is such a number, GM_WIRE_OLDEST. So an older program goes on under a newer
 * daemon, and the reverse (tests/integration/versions.sh).
 *
 * All input is hostile: gm_wire_decode checks version, type, direction, state, length, entry count,
 * fd count and texts. The receiver checks values such as a va or an id.
 */
#ifndef GM_COMMON_WIRE_H
#define GM_COMMON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "common/visible.h"

#ifndef GM_WIRE_VERSION /* tests/versions builds the next one */
#define GM_WIRE_VERSION 17u
#endif
/* The oldest version that is spoken, too: none before this one says what it speaks (HELLO). */
#define GM_WIRE_OLDEST 17u
#define GM_WIRE_MAX 16384u /* bytes of the largest message */
/* The most fds of a message. A program keeps as many numbers free (shim/link/files.h). */
#define GM_WIRE_FDS 16

/* The layout on the wire: the compiler refuses structs with padding. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

struct gm_wire_header {
    uint32_t length;   /* of the whole message, this header included */
    uint16_t version;  /* that it needs; at this offset in all versions */
    uint16_t type;     /* enum gm_msg_type */
    uint32_t count;    /* entries in the tail */
    uint32_t reserved; /* 0 */
};

enum gm_role { GM_ROLE_APP = 1, GM_ROLE_CONTROL = 2 };

#define GM_HELLO_CLASS_UNKNOWN 255u
#define GM_HELLO_WEIGHT_UNKNOWN UINT32_MAX

/* GPUMUX_OVERSIZE: whether the program may have more memory than the budget. */
enum gm_hello_oversize {
    GM_HELLO_OVERSIZE_UNSAID = 0,
    GM_HELLO_OVERSIZE_REFUSE = 1,
    GM_HELLO_OVERSIZE_HOST = 2,
    GM_HELLO_OVERSIZE_UNKNOWN = 255,
};

/* Which variable says the most device memory that the program may occupy. */
enum gm_hello_cap {
    GM_HELLO_CAP_UNSAID = 0,
    GM_HELLO_CAP_OURS = 1,    /* GPUMUX_CAP */
    GM_HELLO_CAP_FOREIGN = 2, /* another system's: the program is to see it as all there is */
    GM_HELLO_CAP_UNKNOWN = 255,
};

/* First message of every connection. The daemon takes pid and uid from SO_PEERCRED. */
struct gm_msg_hello {
    uint32_t role;  /* enum gm_role */
    uint32_t class; /* GPUMUX_CLASS: 0 not said, 1 + an index of GM_CLASS_WORDS, or CLASS_UNKNOWN */
    char name[64];  /* the program's short name, NUL-terminated */
    char group[64]; /* GPUMUX_GROUP: runs together with the others of this name; "": with none */
    uint32_t oversize;       /* enum gm_hello_oversize */
    uint32_t cap_is;         /* enum gm_hello_cap */
    uint64_t cap;            /* bytes */
    uint16_t oldest, newest; /* the versions that it speaks: gm_wire_encode writes them */
    uint32_t weight;         /* GPUMUX_WEIGHT: thousandths, 0 not said, or WEIGHT_UNKNOWN */
};

enum gm_place_flag {
    GM_PLACE_HAS_LIST = 1,   /* CUDA_VISIBLE_DEVICES is set: its tokens are the entries */
    GM_PLACE_BY_BUS = 2,     /* CUDA_DEVICE_ORDER=PCI_BUS_ID */
    GM_PLACE_SAYS_OFF = 4,   /* GPUMUX_PLACE */
    GM_PLACE_SAYS_ORDER = 8, /* likewise */
    GM_PLACE_IS_RANKED = 16, /* a launcher or a group gives it its device by number */
    GM_PLACE_HAS_MPS = 32,   /* the user runs MPS: CUDA_MPS_PIPE_DIRECTORY is set, or the default */
};
/* A program is about to start the driver: in which order shall it have its GPUs? The first message
 * of a connection that has no other. Answered by PLACED. Entries: the first tokens of its list. */
struct gm_msg_place {
    uint32_t flags;  /* enum gm_place_flag */
    uint32_t class;  /* GPUMUX_CLASS, as in HELLO; programs of older versions do not say it */
    uint64_t family; /* of processes of one program: common/appname.h; 0: its own */
    uint64_t nodes;  /* the /dev/nvidiaN that it may open, a bit each */
    uint64_t need;   /* GPUMUX_NEED: bytes on the GPU; 0: not said */
    char name[64];   /* as in HELLO */
};

/* The program has a context on this GPU, or is about to use it otherwise: from now on its gate
 * opens only when it may run there, too. Answered by ENTERED. An ALLOC or OPEN does the same. */
struct gm_msg_enter {
    uint64_t cookie;
    uint32_t gpu; /* index into WELCOME's entries */
    uint32_t reserved;
};

/* Back `bytes` at `va` with chunks. Answered by ALLOCATED, after MAP if the gate is open. */
struct gm_msg_alloc {
    uint64_t cookie; /* returned in the answer */
    uint64_t va;     /* start of a range that the shim reserved: a multiple of GM_CHUNK_MIN */
    uint64_t bytes;  /* a positive multiple of GM_CHUNK_MIN */
    uint32_t gpu;    /* index into WELCOME's entries */
    uint32_t flags;
};
#define GM_ALLOC_AHEAD 1u /* nobody waits for it: only if there is plenty of room */

/* Free an allocation that the GPU does not use any more. Answered by FREED, after UNMAP. */
struct gm_msg_free {
    uint64_t cookie;
    uint64_t va;
};

/* A thread waits at the closed gate. The first one sends it; repeating it is harmless. */
struct gm_msg_want {
    uint32_t is_hurried; /* a signal came to the thread: it may have to return to obey it */
    uint32_t reserved;
};

enum gm_drain_status {
    GM_DRAIN_QUIET = 0,  /* no thread inside, every context synchronized, no capture open */
    GM_DRAIN_BUSY = 1,   /* the deadline passed; the daemon reopens the gate and tries later */
    GM_DRAIN_PARKED = 2, /* its work stands still on the GPU, until RESUME */
};
enum gm_drain_reason {
    GM_DRAIN_NONE = 0,
    GM_DRAIN_INSIDE = 1,  /* a thread stayed in a gate-crossing call */
    GM_DRAIN_CAPTURE = 2, /* a stream capture stayed open */
    GM_DRAIN_WORK = 3,    /* GPU work did not finish */
};
struct gm_msg_drained {
    uint64_t epoch;    /* of the CLOSE that it answers */
    uint32_t status;   /* enum gm_drain_status */
    uint32_t reason;   /* enum gm_drain_reason, when busy */
    uint64_t drain_ns; /* from CLOSE to here */
};

/* Answer to MAP, UNMAP or DROP. If a MAP fails, nothing of it stays mapped. */
struct gm_msg_done {
    uint64_t batch;
    int32_t result; /* 0, or the CUresult that failed */
    uint32_t reserved;
};

/* Answer to QUERY, perhaps long after it. */
struct gm_msg_quiet {
    uint64_t query;    /* of the newest QUERY; others are ignored */
    uint32_t is_quiet; /* 1: the work ended; 0: unknown, ask again later */
    uint32_t had_none; /* 1: there was none when it was asked; 0: there was, or it is not known */
};

/*
 * Sharing with other programs of the same user (shim/memory/sharing.h,
 * daemon/engine/step/shares.c).
 *
 * SHARE: let others open the allocation at `va`. From now on it stays on the GPU. Sent from inside
 * the gate, so all of it is there. Answered by SHARED.
 */
struct gm_msg_share {
    uint64_t cookie;
    uint64_t va;
};

/* OPEN: map another program's shared allocation into the reserved range at `va`. Answered by
 * OPENED, after the MAPs. */
struct gm_msg_open {
    uint64_t cookie;
    uint64_t va;
    uint64_t bytes;    /* all of the allocation */
    uint64_t nonce[2]; /* from SHARED */
    uint32_t share;
    uint32_t gpu;
};

/* IMPORTED: the program imported memory of another one by a descriptor of the driver, which names
 * the exporter (common/marks.h). Not answered. Any values are legal. */
struct gm_msg_imported {
    int32_t exporter; /* process */
    uint32_t reserved;
};

/* SHUT: unmap what was opened at `va`. Answered by SHUT_IS, after the UNMAPs. */
struct gm_msg_shut {
    uint64_t cookie;
    uint64_t va;
};

/* The program's work comes in `after_us` and takes `for_us` (gpumux_expect). Not answered. Any
 * values are legal. */
struct gm_msg_expect {
    uint64_t after_us;
    uint64_t for_us;
};

/* Bytes of the path of an MPS control daemon's folder: its sockets' names must fit behind it. */
#define GM_PIPE_MAX 80

/* The first devices of the program, in the order that it is to have them; none: as they are.
 * Entries: each of the tokens 0 to n - 1 once, or, without a list, all devices. */
struct gm_msg_placed {
    uint64_t wait_ns;       /* not 0: another PLACED follows within that time */
    char text[184];         /* why, for the program's log */
    char pipe[GM_PIPE_MAX]; /* of the MPS that it is to join; "": none */
    char sharing[152];      /* ... why, or why not; "": nobody asked for it */
    uint32_t part;          /* of the multiprocessors there, at most, in thousandths; 0: all */
    uint32_t reserved;
};

/*
 * fds: the ctl page, the stat area, and the lifeline: a pipe that hangs up when nobody has the
 * memory of programs any more (shim/link/comeback.h); without it no other daemon takes this one
 * over. Entries: the GPUs. The gate starts closed.
 *
 * It also answers REJOIN, with the same app and nonce, a new ctl page, and the stat area as it was.
 */
struct gm_msg_welcome {
    uint32_t app;
    uint16_t version; /* that is spoken from now on */
    uint16_t reserved;
    uint64_t nonce[2];  /* random: who knows it is this app */
    uint64_t rejoin_ns; /* how long requests wait for another daemon when this one is lost */
};

enum gm_refusal {
    GM_REFUSE_VERSION = 1,
    GM_REFUSE_PROTOCOL = 2, /* a malformed or misplaced message */
    GM_REFUSE_FULL = 3,     /* too many apps */
    GM_REFUSE_STOPPING = 4,
    GM_REFUSE_UNKNOWN = 5, /* REJOIN of nobody that this daemon took over */
};
/* The session ends. `text` is one line for the user. */
struct gm_msg_refused {
    uint32_t reason; /* enum gm_refusal */
    uint32_t reserved;
    char text[184];
};

struct gm_msg_allocated {
    uint64_t cookie;
    int32_t result; /* 0, or a CUresult: CUDA_ERROR_OUT_OF_MEMORY (2) */
    uint32_t reserved;
};
struct gm_msg_freed {
    uint64_t cookie;
    int32_t result; /* 0, or a CUresult: CUDA_ERROR_INVALID_VALUE (1) */
    uint32_t reserved;
};

struct gm_msg_entered {
    uint64_t cookie;
    int32_t result; /* 0, or a CUresult: NOT_READY (600): the daemon has no room for it there */
    uint32_t reserved;
};

/* The daemon took back the spare at `va` (gm_stat.spares). Nothing of it is mapped any more. */
struct gm_msg_taken {
    uint64_t va;
};

/*
 * The gate is closed. Answer DRAINED within `deadline_ns`: QUIET, or after `grace_ns` PARKED if the
 * program can be parked. A grace of UINT64_MAX: do not park.
 */
struct gm_msg_close {
    uint64_t epoch;
    uint64_t grace_ns;
    uint64_t deadline_ns;
};

/* All memory of a parked program is mapped, and its gate opens: let its work go on. */
struct gm_msg_resume {
    uint64_t epoch; /* of the CLOSE that it was parked for */
};

/* How long the program's kernels keep the GPU while others wait for it; 0: the driver's own value.
 */
struct gm_msg_timeslice {
    uint64_t us;
};

/* Stop all work of the program, with the gate open and all memory mapped, and let it go on `for_ns`
 * later; 0: let it go on now. */
struct gm_msg_hold {
    uint64_t for_ns;
};

/* Map each frame at its va, with access for its GPU, then answer DONE. */
struct gm_msg_map {
    uint64_t batch;
};
/* Unmap each span, which is a whole chunk, then answer DONE. The import stays cached. */
struct gm_msg_unmap {
    uint64_t batch;
};
/* Release the cached imports of these frames, then answer DONE. None of them is mapped. */
struct gm_msg_drop {
    uint64_t batch;
};
/* Answer QUIET when all GPU work that was submitted so far has ended. The gate stays open. A newer
 * QUERY or a CLOSE cancels one that is not answered yet. */
struct gm_msg_query {
    uint64_t query;
};
/* What others need to open the allocation. The same for each SHARE of it. */
struct gm_msg_shared {
    uint64_t cookie;
    uint64_t nonce[2];
    int32_t result; /* 0, or a CUresult: INVALID_VALUE (1), OUT_OF_MEMORY (2), NOT_READY (600) */
    uint32_t share;
};
struct gm_msg_opened {
    uint64_t cookie;
    int32_t result; /* 0, or a CUresult: INVALID_VALUE (1): this user shares nothing by that name;
                       INVALID_CONTEXT (201): it is the program's own; ALREADY_MAPPED (208); or the
                       error of mapping */
    uint32_t reserved;
};
struct gm_msg_shut_is {
    uint64_t cookie;
    int32_t result; /* 0, or a CUresult: INVALID_VALUE (1) */
    uint32_t reserved;
};
struct gm_msg_status {
    uint64_t reserved;
};
/* fd: a memfd with `bytes` of JSON. */
struct gm_msg_status_is {
    uint64_t bytes;
};

/* Change settings of the programs that match all of `selects`. Answered by SET_IS. */
enum gm_set_select { GM_SET_PID = 1, GM_SET_UID = 2, GM_SET_COMMAND = 4, GM_SET_SELECTS = 7 };
enum gm_set_setting {
    GM_SET_CLASS = 1,
    GM_SET_WEIGHT = 2,
    GM_SET_SHARE = 4,
    GM_SET_PAUSED = 8,
    GM_SET_OVERSIZE = 16,
    GM_SET_CAP = 32,
    GM_SET_SETTINGS = 63,
    GM_SET_AHEAD = 64, /* by itself: no setting, but bring their memory nearer to the GPU */
};
enum gm_set_paused {
    GM_PAUSED_NO = 0,
    GM_PAUSED_YES = 1,
    GM_PAUSED_EVICTED = 2, /* and its memory leaves the GPU */
    GM_PAUSED_IDLE = 3,    /* likewise, until its next call */
    GM_PAUSED_WORDS = 4,
};
struct gm_msg_set {
    uint32_t selects; /* enum gm_set_select */
    int32_t pid;
    uint32_t uid;
    uint32_t settings;    /* enum gm_set_setting: which of these to set */
    uint32_t class;       /* enum gm_sched_class */
    uint32_t weight;      /* thousandths */
    uint32_t share;       /* thousandths of the GPU's time */
    uint32_t paused;      /* enum gm_set_paused */
    uint32_t is_oversize; /* 0 or 1 */
    uint32_t reserved;
    uint64_t cap;     /* bytes of device memory; 0: none */
    char command[64]; /* a program's name, or a pattern */
};
struct gm_msg_set_is {
    uint32_t is_refused; /* 1: nothing was changed; `text` says why */
    uint32_t changed;    /* programs */
    char text[184];      /* else what else is to be said; "": nothing */
};

/* Forget what earlier runs needed (daemon/service/past.h), of what `selects` says (UID, COMMAND).
 * Answered by FORGOTTEN. */
struct gm_msg_forget {
    uint32_t selects; /* enum gm_set_select */
    uint32_t uid;
    char command[64]; /* a program's name, or a pattern */
};
struct gm_msg_forgotten {
    uint32_t is_refused; /* 1: `text` says why */
    uint32_t count;      /* commands */
    char text[184];
};

/* Read the options and rules again (daemon/service/reload.h), of root and the daemon's own user
 * only. Answered by CONFIG_IS when they are read. */
enum gm_config_what { GM_CONFIG_CHECK = 1, GM_CONFIG_RELOAD = 2 };
struct gm_msg_config {
    uint32_t what; /* enum gm_config_what; CHECK: say what a reload would do */
    uint32_t reserved;
};
struct gm_msg_config_is {
    uint32_t is_refused; /* 1: nothing has changed, and `text` says why */
    uint32_t reserved;
    char text[248]; /* what has changed, or would */
};

/* Get each option and where its value comes from; or what rules say of a program that may begin, of
 * other users for administrators only. Answered by EXPLAIN_IS, a document. */
struct gm_msg_explain {
    uint32_t selects; /* 0: the options; GM_SET_UID | GM_SET_COMMAND: rules, for such a program */
    uint32_t uid;
    uint32_t class; /* that it asks for, as in HELLO */
    uint32_t reserved;
    char command[64]; /* its name */
};
struct gm_msg_explain_is {
    uint64_t bytes; /* length of the document in the file descriptor */
};

/* Give all programs their memory back, as far as it fits, and end (gpumuxd --drain). Only root and
 * the daemon's own user may. Answered by GIVEN_BACK each second, until is_last. */
struct gm_msg_give_back {
    uint64_t reserved;
};
struct gm_msg_given_back {
    uint32_t is_last, is_refused;
    uint32_t whole, left, lost; /* programs: have all of it, are to have it, have lost some */
    uint32_t reserved;
};

/* Get the log after entry `since`; 0: all of it. Answered by LOG_IS. */
struct gm_msg_log {
    uint64_t since;
};
/* fd: a memfd with `bytes` of JSON. */
struct gm_msg_log_is {
    uint64_t bytes;
};

/* Get what a trace has since byte `since`, as the last answer has it; 0: who is there now. Answered
 * by TRACE_IS. */
struct gm_msg_trace {
    uint64_t since;
};
/* fd: a memfd with `bytes` of JSON. */
struct gm_msg_trace_is {
    uint64_t bytes;
};

/* Ask for a place for the program that the sender is about to execute (daemon/service/places.h).
 * With `is_required` the program is not started if there is none. Answered by RESERVED. */
struct gm_msg_reserve {
    uint32_t is_required; /* 0 or 1 */
    uint32_t reserved;
    char name[64]; /* of the program */
};
struct gm_msg_reserved {
    uint32_t is_refused; /* 1: it cannot; `text` says why */
    uint32_t reserved;
    char text[184];
};
/* Give memory that no program needs back. Answered by TRIM_IS, with the bytes, when the system has
 * it, or after 4 s. */
struct gm_msg_trim {
    uint64_t reserved;
};
struct gm_msg_trim_is {
    uint64_t gpu, pinned, paged;
};

/* The program of a daemon that is lost comes to the next one. Answered by WELCOME or REFUSED, after
 * all HOLDS. The daemon takes pid and uid from SO_PEERCRED. */
enum gm_rejoin_flags {
    GM_REJOIN_IS_OPEN = 1,   /* its gate is: it runs on */
    GM_REJOIN_IS_PARKED = 2, /* for a CLOSE */
    GM_REJOIN_IS_QUIET = 4,  /* its gate is closed, and it answered the CLOSE that closed it */
};
struct gm_msg_rejoin {
    uint32_t app;
    uint16_t oldest, newest; /* as in HELLO */
    uint64_t nonce[2];       /* both of WELCOME */
    uint64_t epoch;          /* of the newest CLOSE that it answered QUIET or PARKED; 0: of none */
    uint64_t cookie;         /* the newest: requests up to it may come again */
    uint32_t flags;          /* enum gm_rejoin_flags */
    uint32_t reserved;
};
/* The frames that it has imported. */
struct gm_msg_holds {
    uint32_t is_last; /* 0: more follow */
    uint32_t reserved;
};

struct gm_gpu_entry {
    uint8_t uuid[16];
    uint64_t budget; /* bytes */
};
enum gm_map_flags {
    GM_MAP_HAS_FD = 1,    /* the frame's fd is the next one of the message */
    GM_MAP_IS_SHARED = 2, /* another program's frame: it does not move with this one */
};
struct gm_map_entry {
    uint64_t va;
    uint64_t bytes; /* of the frame and its chunk */
    uint32_t frame; /* unique while the daemon runs */
    uint16_t gpu;
    uint16_t flags; /* enum gm_map_flags */
};
struct gm_span_entry {
    uint64_t va;
    uint64_t bytes;
};
struct gm_frame_entry {
    uint32_t frame;
};
struct gm_holds_entry {
    uint64_t va; /* where it is mapped; 0: nowhere */
    uint32_t frame;
    uint32_t gpu;
};
struct gm_place_entry {
    uint8_t uuid[16];
    uint32_t token; /* if the program has a list */
    uint32_t reserved;
};
struct gm_no_entry {
    uint8_t unused; /* never on the wire */
};

#pragma GCC diagnostic pop

/* The sizes belong to the protocol's version: whoever changes one changes GM_WIRE_VERSION. */
_Static_assert(offsetof(struct gm_wire_header, version) == 4, "the version never moves");
_Static_assert(sizeof(struct gm_wire_header) == 16, "gm_wire_header");
_Static_assert(sizeof(struct gm_msg_hello) == 160, "gm_msg_hello");
_Static_assert(sizeof(struct gm_msg_place) == 96, "gm_msg_place");
_Static_assert(sizeof(struct gm_token_entry) == 48, "gm_token_entry");
_Static_assert(sizeof(struct gm_msg_placed) == 432, "gm_msg_placed");
_Static_assert(sizeof(struct gm_place_entry) == 24, "gm_place_entry");
_Static_assert(sizeof(struct gm_msg_enter) == 16, "gm_msg_enter");
_Static_assert(sizeof(struct gm_msg_entered) == 16, "gm_msg_entered");
_Static_assert(sizeof(struct gm_msg_alloc) == 32, "gm_msg_alloc");
_Static_assert(sizeof(struct gm_msg_free) == 16, "gm_msg_free");
_Static_assert(sizeof(struct gm_msg_want) == 8, "gm_msg_want");
_Static_assert(sizeof(struct gm_msg_drained) == 24, "gm_msg_drained");
_Static_assert(sizeof(struct gm_msg_done) == 16, "gm_msg_done");
_Static_assert(sizeof(struct gm_msg_quiet) == 16, "gm_msg_quiet");
_Static_assert(sizeof(struct gm_msg_share) == 16, "gm_msg_share");
_Static_assert(sizeof(struct gm_msg_open) == 48, "gm_msg_open");
_Static_assert(sizeof(struct gm_msg_imported) == 8, "gm_msg_imported");
_Static_assert(sizeof(struct gm_msg_shut) == 16, "gm_msg_shut");
_Static_assert(sizeof(struct gm_msg_welcome) == 32, "gm_msg_welcome");
_Static_assert(sizeof(struct gm_msg_refused) == 192, "gm_msg_refused");
_Static_assert(sizeof(struct gm_msg_allocated) == 16, "gm_msg_allocated");
_Static_assert(sizeof(struct gm_msg_freed) == 16, "gm_msg_freed");
_Static_assert(sizeof(struct gm_msg_taken) == 8, "gm_msg_taken");
_Static_assert(sizeof(struct gm_msg_close) == 24, "gm_msg_close");
_Static_assert(sizeof(struct gm_msg_resume) == 8, "gm_msg_resume");
_Static_assert(sizeof(struct gm_msg_expect) == 16, "gm_msg_expect");
_Static_assert(sizeof(struct gm_msg_hold) == 8, "gm_msg_hold");
_Static_assert(sizeof(struct gm_msg_timeslice) == 8, "gm_msg_timeslice");
_Static_assert(sizeof(struct gm_msg_map) == 8, "gm_msg_map");
_Static_assert(sizeof(struct gm_msg_unmap) == 8, "gm_msg_unmap");
_Static_assert(sizeof(struct gm_msg_drop) == 8, "gm_msg_drop");
_Static_assert(sizeof(struct gm_msg_query) == 8, "gm_msg_query");
_Static_assert(sizeof(struct gm_msg_shared) == 32, "gm_msg_shared");
_Static_assert(sizeof(struct gm_msg_opened) == 16, "gm_msg_opened");
_Static_assert(sizeof(struct gm_msg_shut_is) == 16, "gm_msg_shut_is");
_Static_assert(sizeof(struct gm_msg_status) == 8, "gm_msg_status");
_Static_assert(sizeof(struct gm_msg_status_is) == 8, "gm_msg_status_is");
_Static_assert(sizeof(struct gm_msg_set) == 112, "gm_msg_set");
_Static_assert(sizeof(struct gm_msg_set_is) == 192, "gm_msg_set_is");
_Static_assert(sizeof(struct gm_msg_forget) == 72, "gm_msg_forget");
_Static_assert(sizeof(struct gm_msg_forgotten) == 192, "gm_msg_forgotten");
_Static_assert(sizeof(struct gm_msg_config) == 8, "gm_msg_config");
_Static_assert(sizeof(struct gm_msg_config_is) == 256, "gm_msg_config_is");
_Static_assert(sizeof(struct gm_msg_explain) == 80, "gm_msg_explain");
_Static_assert(sizeof(struct gm_msg_explain_is) == 8, "gm_msg_explain_is");
_Static_assert(sizeof(struct gm_msg_give_back) == 8, "gm_msg_give_back");
_Static_assert(sizeof(struct gm_msg_given_back) == 24, "gm_msg_given_back");
_Static_assert(sizeof(struct gm_msg_log) == 8, "gm_msg_log");
_Static_assert(sizeof(struct gm_msg_log_is) == 8, "gm_msg_log_is");
_Static_assert(sizeof(struct gm_msg_trace) == 8, "gm_msg_trace");
_Static_assert(sizeof(struct gm_msg_trace_is) == 8, "gm_msg_trace_is");
_Static_assert(sizeof(struct gm_msg_reserve) == 72, "gm_msg_reserve");
_Static_assert(sizeof(struct gm_msg_reserved) == 192, "gm_msg_reserved");
_Static_assert(sizeof(struct gm_msg_trim) == 8, "gm_msg_trim");
_Static_assert(sizeof(struct gm_msg_trim_is) == 24, "gm_msg_trim_is");
_Static_assert(sizeof(struct gm_gpu_entry) == 24, "gm_gpu_entry");
_Static_assert(sizeof(struct gm_map_entry) == 24, "gm_map_entry");
_Static_assert(sizeof(struct gm_span_entry) == 16, "gm_span_entry");
_Static_assert(sizeof(struct gm_frame_entry) == 4, "gm_frame_entry");
_Static_assert(sizeof(struct gm_msg_rejoin) == 48, "gm_msg_rejoin");
_Static_assert(sizeof(struct gm_msg_holds) == 8, "gm_msg_holds");
_Static_assert(sizeof(struct gm_holds_entry) == 16, "gm_holds_entry");

enum gm_msg_type {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    GM_MSG_##NAME = type,
#include "common/wire.def"
#undef GM_MSG
};

/* max_entries of each message: GM_ENTRIES_MAP and so on. */
enum gm_msg_entries {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    GM_ENTRIES_##NAME = max_entries,
#include "common/wire.def"
#undef GM_MSG
};

/* The newest version that this build and one that speaks `oldest` to `newest` have in common. 0:
 * there is none. */
static inline uint16_t gm_wire_common(uint16_t oldest, uint16_t newest)
{
    const uint16_t common = newest < GM_WIRE_VERSION ? newest : GM_WIRE_VERSION;
    return oldest <= common && common >= GM_WIRE_OLDEST ? common : 0;
}

enum gm_direction { GM_UP = 1, GM_DOWN = 2 };
enum gm_session_state { GM_SESSION_NEW = 1, GM_SESSION_APP = 2, GM_SESSION_CONTROL = 4 };

/* A decoded message. Its pointers point into the caller's buffer. */
struct gm_wire_message {
    uint16_t type;
    const void *body;    /* struct gm_msg_<name>, 8-aligned when the buffer is */
    const void *entries; /* count times the row's entry struct, or NULL */
    uint32_t count;
    int n_fds; /* the caller has the fds */
};

/* Why a buffer is no message. The caller ends the session and logs gm_wire_fault_text. */
enum gm_wire_fault {
    GM_WIRE_OK = 0,
    GM_WIRE_SHORT, /* shorter than a header, or than the header says */
    GM_WIRE_BAD_VERSION,
    GM_WIRE_BAD_TYPE,
    GM_WIRE_BAD_DIRECTION,
    GM_WIRE_BAD_STATE,
    GM_WIRE_BAD_LENGTH,
    GM_WIRE_BAD_COUNT,
    GM_WIRE_BAD_FDS,      /* too many; of MAP: not as many as its entries say */
    GM_WIRE_BAD_STRING,   /* a text without end, or not legal (text.h) */
    GM_WIRE_BAD_RESERVED, /* a reserved header word is not 0 */
};
const char *gm_wire_fault_text(enum gm_wire_fault fault);

/*
 * Decode `length` bytes at `bytes` (8-aligned) that came with `n_fds` fds, sent in `direction`
 * while the session is in `state`. Fills *out only on GM_WIRE_OK.
 *
 * It reports the first fault in this order: SHORT (no version), BAD_VERSION, SHORT, BAD_RESERVED,
 * BAD_TYPE, BAD_DIRECTION, BAD_STATE, BAD_COUNT, BAD_LENGTH, BAD_FDS, BAD_STRING. So another
 * version is always recognized. Reserved words of payloads are ignored.
 */
enum gm_wire_fault gm_wire_decode(const void *bytes, size_t length, int n_fds,
                                  enum gm_direction direction, enum gm_session_state state,
                                  struct gm_wire_message *out);

/*
 * Encode a message into `buffer` of `capacity` bytes; GM_WIRE_MAX always suffices. `body` is the
 * payload struct, `entries` the `count` entries. Texts are made legal (gm_text_clean), and HELLO
 * and REJOIN get the versions of this build. Returns the length; 0 if it does not fit or the row
 * does not allow it.
 */
size_t gm_wire_encode(void *buffer, size_t capacity, enum gm_msg_type type, const void *body,
                      const void *entries, uint32_t count);

/* The same up to the entries, of which *tail bytes are to follow. `buffer` has room for the header
 * and the payload. */
size_t gm_wire_encode_head(void *buffer, enum gm_msg_type type, const void *body,
                           const void *entries, uint32_t count, size_t *tail);

/* The message's name, "HELLO", or "?" for an unknown type. */
const char *gm_wire_name(unsigned type);

#endif
