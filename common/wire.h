/*
 * Wire protocol between shim, mux-ctl and daemon: framed messages on a SOCK_SEQPACKET socket.
 *
 * One datagram is one message: header, payload struct, then `count` entries. File descriptors ride
 * along with SCM_RIGHTS. The table is wire.def; this file holds the structs; wire.c is the codec,
 * which does no I/O. Every byte that comes in is hostile: gm_wire_decode checks version, type,
 * direction, state, length, entry count, fd count and that strings end. Values (a va, an id) are
 * judged by whoever uses them.
 *
 * All integers are host order: both ends are on one machine.
 */
#ifndef GM_COMMON_WIRE_H
#define GM_COMMON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define GM_WIRE_VERSION 4u
#define GM_WIRE_MAX 16384u /* bytes of the largest message */
/* fds of the largest message: a program keeps as many numbers free for them all the time
 * (shim/link/files.h). */
#define GM_WIRE_FDS 16

/* What follows is the wire's layout: the compiler refuses a struct with padding in it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

struct gm_wire_header {
    uint32_t length;   /* of the whole message, this header included */
    uint16_t version;  /* GM_WIRE_VERSION; at this place in every version there will be */
    uint16_t type;     /* enum gm_msg_type */
    uint32_t count;    /* entries in the tail */
    uint32_t reserved; /* 0 */
};

enum gm_role { GM_ROLE_APP = 1, GM_ROLE_CONTROL = 2 };

#define GM_HELLO_CLASS_UNKNOWN 255u

/* First message of every connection. The daemon takes pid and uid from SO_PEERCRED, not from here.
 */
struct gm_msg_hello {
    uint32_t role;  /* enum gm_role */
    uint32_t class; /* GPUMUX_CLASS: 0 not said, 1 + an index of GM_CLASS_WORDS, or CLASS_UNKNOWN */
    char name[64];  /* the program's short name, NUL-terminated */
};

/* Back `bytes` at `va` with chunks. Answered by ALLOCATED, after MAP if the gate is open. */
struct gm_msg_alloc {
    uint64_t cookie; /* the caller's; comes back in the answer */
    uint64_t va;     /* start of a range the shim reserved: a multiple of GM_CHUNK_MIN */
    uint64_t bytes;  /* a positive multiple of GM_CHUNK_MIN */
    uint32_t gpu;    /* index into WELCOME's entries */
    uint32_t flags;
};
#define GM_ALLOC_AHEAD 1u /* nobody waits for it: only if there is plenty of room */

/* Give an allocation back. The GPU is done with it. Answered by FREED, after UNMAP. */
struct gm_msg_free {
    uint64_t cookie;
    uint64_t va;
};

/* A thread waits at the closed gate. Sent by the first that waits; harmless when repeated. */
struct gm_msg_want {
    uint64_t reserved;
};

enum gm_drain_status {
    GM_DRAIN_QUIET = 0, /* no thread inside, every context synchronized, no capture open */
    GM_DRAIN_BUSY = 1,  /* the deadline passed; the daemon reopens the gate and tries later */
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

/* Answer to MAP, UNMAP or DROP. On failure nothing of a MAP stays mapped. */
struct gm_msg_done {
    uint64_t batch;
    int32_t result; /* 0, or the CUresult that failed */
    uint32_t reserved;
};

/* Which memory the program's launches used since the last one, about once a second while the ctl
 * page says is_counting, and before DRAINED. Entries: places, ascending by va. */
struct gm_msg_uses {
    uint64_t reserved;
};

/* Answer to QUERY, which may come long after it. */
struct gm_msg_quiet {
    uint64_t query;    /* of the QUERY that it answers; another one is ignored */
    uint32_t is_quiet; /* 1: the work ended; 0: that cannot be found out now, ask again later */
    uint32_t reserved;
};

/*
 * Sharing with other programs of the same user (shim/memory/sharing.h, daemon/engine/shares.c).
 *
 * SHARE: the allocation at `va` is to be opened by others; from now on it stays where it is. Sent
 * from inside the gate, where all of it is in place. Answered by SHARED.
 */
struct gm_msg_share {
    uint64_t cookie;
    uint64_t va;
};

/* OPEN: map what another program shared into the range of `bytes` at `va` that was reserved for it.
 * Answered by OPENED, after the MAPs. */
struct gm_msg_open {
    uint64_t cookie;
    uint64_t va;
    uint64_t bytes;    /* as the owner's SHARE was told of: all of the allocation */
    uint64_t nonce[2]; /* from SHARED */
    uint32_t share;
    uint32_t gpu;
};

/* SHUT: what was opened at `va` is not used any more. Answered by SHUT_IS, after the UNMAPs. */
struct gm_msg_shut {
    uint64_t cookie;
    uint64_t va;
};

/* fds: the ctl page, then the stat area. Entries: the GPUs. The gate starts closed. */
struct gm_msg_welcome {
    uint32_t app;
    uint32_t reserved;
};

enum gm_refusal {
    GM_REFUSE_VERSION = 1,
    GM_REFUSE_PROTOCOL = 2, /* a malformed or misplaced message */
    GM_REFUSE_FULL = 3,     /* too many apps */
    GM_REFUSE_STOPPING = 4,
};
/* The session ends after this. `text` is one line for a person. */
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

/* The gate word is closed already: drain and answer DRAINED within `deadline_ns` from receipt. */
struct gm_msg_close {
    uint64_t epoch;
    uint64_t deadline_ns;
};

/* Map each entry's frame at its va, with access for its GPU, then answer DONE. */
struct gm_msg_map {
    uint64_t batch;
};
/* Unmap each span (a whole chunk), then answer DONE. The import stays cached. */
struct gm_msg_unmap {
    uint64_t batch;
};
/* Release the cached imports of these frames, then answer DONE. None of them is mapped. */
struct gm_msg_drop {
    uint64_t batch;
};
/*
 * The gate is open and the program calls nothing: answer QUIET when all GPU work that it submitted
 * so far has ended. It goes on as it likes meanwhile. A newer QUERY takes the place of one that is
 * not answered, and so does a CLOSE: neither of those gets an answer any more.
 */
struct gm_msg_query {
    uint64_t query;
};
/* What others need to open it. The same for every SHARE of one allocation. */
struct gm_msg_shared {
    uint64_t cookie;
    uint64_t nonce[2];
    int32_t result; /* 0, or a CUresult: INVALID_VALUE (1), OUT_OF_MEMORY (2), NOT_READY (600) */
    uint32_t share;
};
struct gm_msg_opened {
    uint64_t cookie;
    int32_t result; /* 0, or a CUresult: INVALID_VALUE (1): nothing of this user is shared by that
                       name any more; INVALID_CONTEXT (201): it is the program's own;
                       ALREADY_MAPPED (208); or what mapping failed with */
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

/* Change what is said of the programs that all of `selects` select. Answered by SET_IS. */
enum gm_set_select { GM_SET_PID = 1, GM_SET_UID = 2, GM_SET_COMMAND = 4, GM_SET_SELECTS = 7 };
enum gm_set_setting {
    GM_SET_CLASS = 1,
    GM_SET_WEIGHT = 2,
    GM_SET_SHARE = 4,
    GM_SET_PAUSED = 8,
    GM_SET_SETTINGS = 15,
};
struct gm_msg_set {
    uint32_t selects; /* enum gm_set_select */
    int32_t pid;
    uint32_t uid;
    uint32_t settings;  /* enum gm_set_setting: which of the following count */
    uint32_t class;     /* enum gm_sched_class */
    uint32_t weight;    /* thousandths */
    uint32_t share;     /* thousandths of the GPU's time */
    uint32_t is_paused; /* 0 or 1 */
    char command[64];   /* a program's name, or a pattern of it */
};
struct gm_msg_set_is {
    uint32_t is_refused; /* 1: nothing was changed, and `text` says why */
    uint32_t changed;    /* programs */
    char text[184];
};

/* What happened after entry `since` of the log; 0: all that is kept. Answered by LOG_IS. */
struct gm_msg_log {
    uint64_t since;
};
/* fd: a memfd with `bytes` of JSON. */
struct gm_msg_log_is {
    uint64_t bytes;
};

/*
 * Is there a place for a program that the sending process is about to execute? With `is_kept` the
 * place is kept for it, and for what it starts, until it connects; see daemon/service/places.h.
 * Answered by RESERVED.
 */
struct gm_msg_reserve {
    uint32_t is_kept; /* 0 or 1 */
    uint32_t reserved;
    char name[64]; /* of the program */
};
struct gm_msg_reserved {
    uint32_t is_refused; /* 1: there is no place, and `text` says why */
    uint32_t reserved;
    char text[184];
};
/* Give back memory that no program needs. Answered by TRIM_IS when the system has it, or after 4 s:
 * the bytes that go back. */
struct gm_msg_trim {
    uint64_t reserved;
};
struct gm_msg_trim_is {
    uint64_t gpu, pinned, paged;
};

struct gm_gpu_entry {
    uint8_t uuid[16];
    uint64_t budget; /* bytes */
};
enum gm_map_flags {
    GM_MAP_HAS_FD = 1,    /* the frame's fd is the next one of the message */
    GM_MAP_IS_SHARED = 2, /* another program's frame: it is none of what moves with this one */
};
struct gm_map_entry {
    uint64_t va;
    uint64_t bytes; /* of the frame, which the chunk fills */
    uint32_t frame; /* the frame's id: unique for the life of the daemon */
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
struct gm_use_entry {
    uint64_t va;    /* a multiple of GM_CHUNK_MIN: where a launch's argument pointed to, or below */
    uint32_t count; /* how many did */
    uint32_t reserved;
};
struct gm_no_entry {
    uint8_t unused; /* never on the wire */
};

#pragma GCC diagnostic pop

/* The sizes belong to the protocol's version: whoever changes one changes GM_WIRE_VERSION. */
_Static_assert(offsetof(struct gm_wire_header, version) == 4, "the version never moves");
_Static_assert(sizeof(struct gm_wire_header) == 16, "gm_wire_header");
_Static_assert(sizeof(struct gm_msg_hello) == 72, "gm_msg_hello");
_Static_assert(sizeof(struct gm_msg_alloc) == 32, "gm_msg_alloc");
_Static_assert(sizeof(struct gm_msg_free) == 16, "gm_msg_free");
_Static_assert(sizeof(struct gm_msg_want) == 8, "gm_msg_want");
_Static_assert(sizeof(struct gm_msg_drained) == 24, "gm_msg_drained");
_Static_assert(sizeof(struct gm_msg_done) == 16, "gm_msg_done");
_Static_assert(sizeof(struct gm_msg_uses) == 8, "gm_msg_uses");
_Static_assert(sizeof(struct gm_msg_quiet) == 16, "gm_msg_quiet");
_Static_assert(sizeof(struct gm_msg_share) == 16, "gm_msg_share");
_Static_assert(sizeof(struct gm_msg_open) == 48, "gm_msg_open");
_Static_assert(sizeof(struct gm_msg_shut) == 16, "gm_msg_shut");
_Static_assert(sizeof(struct gm_msg_welcome) == 8, "gm_msg_welcome");
_Static_assert(sizeof(struct gm_msg_refused) == 192, "gm_msg_refused");
_Static_assert(sizeof(struct gm_msg_allocated) == 16, "gm_msg_allocated");
_Static_assert(sizeof(struct gm_msg_freed) == 16, "gm_msg_freed");
_Static_assert(sizeof(struct gm_msg_close) == 16, "gm_msg_close");
_Static_assert(sizeof(struct gm_msg_map) == 8, "gm_msg_map");
_Static_assert(sizeof(struct gm_msg_unmap) == 8, "gm_msg_unmap");
_Static_assert(sizeof(struct gm_msg_drop) == 8, "gm_msg_drop");
_Static_assert(sizeof(struct gm_msg_query) == 8, "gm_msg_query");
_Static_assert(sizeof(struct gm_msg_shared) == 32, "gm_msg_shared");
_Static_assert(sizeof(struct gm_msg_opened) == 16, "gm_msg_opened");
_Static_assert(sizeof(struct gm_msg_shut_is) == 16, "gm_msg_shut_is");
_Static_assert(sizeof(struct gm_msg_status) == 8, "gm_msg_status");
_Static_assert(sizeof(struct gm_msg_status_is) == 8, "gm_msg_status_is");
_Static_assert(sizeof(struct gm_msg_set) == 96, "gm_msg_set");
_Static_assert(sizeof(struct gm_msg_set_is) == 192, "gm_msg_set_is");
_Static_assert(sizeof(struct gm_msg_log) == 8, "gm_msg_log");
_Static_assert(sizeof(struct gm_msg_log_is) == 8, "gm_msg_log_is");
_Static_assert(sizeof(struct gm_msg_reserve) == 72, "gm_msg_reserve");
_Static_assert(sizeof(struct gm_msg_reserved) == 192, "gm_msg_reserved");
_Static_assert(sizeof(struct gm_msg_trim) == 8, "gm_msg_trim");
_Static_assert(sizeof(struct gm_msg_trim_is) == 24, "gm_msg_trim_is");
_Static_assert(sizeof(struct gm_gpu_entry) == 24, "gm_gpu_entry");
_Static_assert(sizeof(struct gm_map_entry) == 24, "gm_map_entry");
_Static_assert(sizeof(struct gm_span_entry) == 16, "gm_span_entry");
_Static_assert(sizeof(struct gm_frame_entry) == 4, "gm_frame_entry");
_Static_assert(sizeof(struct gm_use_entry) == 16, "gm_use_entry");

enum gm_msg_type {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    GM_MSG_##NAME = type,
#include "common/wire.def"
#undef GM_MSG
};

/* The most entries of each message: GM_ENTRIES_MAP and so on. */
enum gm_msg_entries {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    GM_ENTRIES_##NAME = max_entries,
#include "common/wire.def"
#undef GM_MSG
};

enum gm_direction { GM_UP = 1, GM_DOWN = 2 };
enum gm_session_state { GM_SESSION_NEW = 1, GM_SESSION_APP = 2, GM_SESSION_CONTROL = 4 };

/* A decoded message: pointers into the caller's buffer, which must outlive it. */
struct gm_wire_message {
    uint16_t type;
    const void *body;    /* struct gm_msg_<name>, 8-aligned when the buffer is */
    const void *entries; /* count times the row's entry struct, or NULL */
    uint32_t count;
    int n_fds; /* how many came with it; the fds themselves stay with the caller */
};

/* Why a buffer is not a message. Positive: the caller ends the session and logs gm_wire_fault_text.
 */
enum gm_wire_fault {
    GM_WIRE_OK = 0,
    GM_WIRE_SHORT, /* shorter than a header, or than the header says */
    GM_WIRE_BAD_VERSION,
    GM_WIRE_BAD_TYPE,
    GM_WIRE_BAD_DIRECTION,
    GM_WIRE_BAD_STATE,
    GM_WIRE_BAD_LENGTH,
    GM_WIRE_BAD_COUNT,
    GM_WIRE_BAD_FDS, /* more than the row allows; for MAP, another number than GM_MAP_HAS_FD says */
    GM_WIRE_BAD_STRING,   /* a text that does not end, or holds more than printable UTF-8 */
    GM_WIRE_BAD_RESERVED, /* a reserved header word is not 0 */
};
const char *gm_wire_fault_text(enum gm_wire_fault fault);

/*
 * Decode `length` bytes at `bytes` (8-aligned) that came with `n_fds` fds, sent in `direction`
 * while the session is in `state`. On GM_WIRE_OK fills *out, else leaves it alone. Reads nothing
 * beyond `length`.
 *
 * The first fault in this order is the one reported: SHORT (no version in it), BAD_VERSION, SHORT,
 * BAD_RESERVED, BAD_TYPE, BAD_DIRECTION, BAD_STATE, BAD_COUNT, BAD_LENGTH, BAD_FDS, BAD_STRING. So
 * another version is told from a broken message whatever the rest of that version looks like.
 * Reserved words of the payloads are not looked at.
 */
enum gm_wire_fault gm_wire_decode(const void *bytes, size_t length, int n_fds,
                                  enum gm_direction direction, enum gm_session_state state,
                                  struct gm_wire_message *out);

/*
 * Encode a message of `type` into `buffer` (`capacity` bytes; GM_WIRE_MAX always suffices): `body`
 * is its payload struct, `entries` `count` entries of its row. Texts are made legal on the way:
 * ended within their field, and '?' for each byte that is not printable UTF-8. What was encoded can
 * be decoded. Returns its length, or 0 if it does not fit or the row does not allow it.
 */
size_t gm_wire_encode(void *buffer, size_t capacity, enum gm_msg_type type, const void *body,
                      const void *entries, uint32_t count);

/* The message's name, "HELLO", or "?" for an unknown type. */
const char *gm_wire_name(unsigned type);

#endif
