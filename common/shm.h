/* clang-format off */
/*
 * The two memory areas that one app shares with the daemon. Fixed widths, statically asserted.
 *
 * ctl page:  daemon -> app. The daemon alone writes; the app maps it read-only (the memfd carries
 *            F_SEAL_FUTURE_WRITE), so an app cannot open its own gate.
 * stat area: app -> daemon. The app writes plain words, no locks, no clock; the daemon samples them
 *            for idleness and shows them. It is hostile input: every word is copied once, and no
 *            word is ever used as an index, a size or a pointer.
 *
 * Both memfds are made by the daemon and sent with WELCOME, sealed against growing and shrinking.
 */
/* clang-format on */
#ifndef GM_COMMON_SHM_H
#define GM_COMMON_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#define GM_SHM_MAGIC 0x786d7567u /* "gumx" */
#define GM_SHM_VERSION 5u
#define GM_GPUS_MAX 16u
#define GM_SLOTS 1024u /* threads with a slot of their own; the last slot is shared by the rest */

/* Values of gm_ctl.gate. OPEN is 0 so that the fast path compares with zero. */
enum gm_gate_word {
    GM_GATE_OPEN = 0,
    GM_GATE_CLOSED = 1,
    GM_GATE_COLD = 2, /* only in the shim's own start-up page: "boot first" */
};

/* The gate: read by every gate-crossing call, woken with FUTEX_WAKE on `gate` (a shared futex). */
struct gm_ctl {
    uint32_t magic;
    uint32_t version;
    _Atomic uint32_t gate;
    uint32_t app;           /* the app's id, for messages to people */
    _Atomic uint64_t epoch; /* of the newest CLOSE */
    uint64_t
        budget[GM_GPUS_MAX]; /* bytes, by gpumux GPU index: what the app may take for its own */
    _Atomic uint32_t is_counting; /* 1: report which memory launches use (USES) */
    /* Changes each second while the daemon's loop runs, so that who waits for the daemon tells a
     * long wait from a daemon that hangs. */
    _Atomic uint32_t beat;
    uint64_t room[GM_GPUS_MAX]; /* bytes, by gpumux GPU index: what the app could allocate now */
    uint8_t reserved[4096 - 32 - 16 * GM_GPUS_MAX];
};
_Static_assert(sizeof(struct gm_ctl) == 4096, "gm_ctl is one page");

/* Bytes that one thread writes for itself. A line of cache is 64; but a processor that fetches one
 * often fetches its neighbour as well, and so takes that from who writes there. */
#define GM_CACHE_PAIR 128

/* One thread of the app. Written by that thread alone (the last slot: by atomic adds). */
struct gm_slot {
    _Atomic uint32_t inside;  /* not 0 while it is in a gate-crossing call: shim/gate/gate.h */
    _Atomic uint32_t blocked; /* 1 while it is in a synchronizing call */
    _Atomic uint64_t calls;   /* hooked calls that returned; only its change means something */
    uint8_t reserved[GM_CACHE_PAIR - 16];
};
_Static_assert(sizeof(struct gm_slot) == GM_CACHE_PAIR, "its own lines of cache");

struct gm_stat {
    uint32_t magic;
    uint32_t version;
    _Atomic uint32_t waiting;      /* threads waiting at the gate now */
    _Atomic uint32_t captures;     /* stream captures open now */
    _Atomic uint64_t small_bytes;  /* live allocations under GM_SMALL_MAX, in the real driver */
    _Atomic uint64_t real_bytes;   /* live allocations that gpumux could not back: unswappable */
    _Atomic uint32_t contexts;     /* CUDA contexts alive */
    _Atomic uint32_t features_off; /* enum gm_feature: what it does without; written at its start */
    /* More that is unswappable, by kind. */
    _Atomic uint64_t managed_bytes; /* live managed allocations, wherever their pages are */
    _Atomic uint64_t array_bytes;   /* arrays, mipmapped ones too */
    _Atomic uint64_t graph_bytes;   /* held by the driver for allocations inside graphs */
    /* Of what the daemon backs: freed by the program, and given back within 100 ms. */
    _Atomic uint64_t spare_bytes;
    /* Allocations for which the program was told that memory is out, and how large the last one
     * was. Not those that the shim then had in another way. */
    _Atomic uint64_t refused, refused_bytes;
    uint8_t reserved[4096 - 88];
    struct gm_slot slot[GM_SLOTS];
};
_Static_assert(sizeof(struct gm_stat) == 4096 + GM_CACHE_PAIR * GM_SLOTS, "gm_stat layout");

#endif
