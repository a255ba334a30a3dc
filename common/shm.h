/* clang-format off */
/*
 * The two memory areas that one app shares with the daemon. Fixed widths, statically asserted.
 *
 * ctl page:  daemon -> app. Only the daemon writes. The app maps it read-only (the memfd has
 *            F_SEAL_FUTURE_WRITE), so it cannot open its own gate.
 * stat area: app -> daemon. The app writes words without locks. The daemon samples them to find
 *            idle apps, and shows them. They are hostile input: the daemon copies each word once
 *            and uses none as an index, a size or a pointer.
 *
 * engine/apps.c makes both memfds, seals their size and sends them with WELCOME. shim/link maps
 * them.
 */
/* clang-format on */
#ifndef GM_COMMON_SHM_H
#define GM_COMMON_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#define GM_SHM_MAGIC 0x786d7567u /* "gumx" */
#define GM_SHM_VERSION 5u
#define GM_GPUS_MAX 16u
#define GM_SLOTS 1024u /* one per thread; all further threads share the last one */

/* Values of gm_ctl.gate. OPEN is 0, so the fast path compares with zero. */
enum gm_gate_word {
    GM_GATE_OPEN = 0,
    GM_GATE_CLOSED = 1,
    GM_GATE_COLD = 2, /* only in the shim's own start-up page: "boot first" */
};

/* Every gate-crossing call reads `gate`, a shared futex. */
struct gm_ctl {
    uint32_t magic;
    uint32_t version;
    _Atomic uint32_t gate;
    uint32_t app;                 /* the app's id, for messages */
    _Atomic uint64_t epoch;       /* of the newest CLOSE */
    uint64_t budget[GM_GPUS_MAX]; /* bytes by gpumux GPU index: what the app may allocate in all */
    _Atomic uint32_t is_counting; /* 1: report which memory launches use (USES) */
    /* Changes each second while the daemon's loop runs. So an app that waits notices if the daemon
     * hangs. */
    _Atomic uint32_t beat;
    uint64_t room[GM_GPUS_MAX]; /* bytes by gpumux GPU index: what the app could allocate now */
    uint8_t reserved[4096 - 32 - 16 * GM_GPUS_MAX];
};
_Static_assert(sizeof(struct gm_ctl) == 4096, "gm_ctl is one page");

/* A slot takes two cache lines of 64 bytes: processors often fetch lines in pairs, and would take
 * the neighbour from the thread that writes there. */
#define GM_CACHE_PAIR 128

/* One thread of the app. Only that thread writes it; the last slot is changed by atomic adds. */
struct gm_slot {
    _Atomic uint32_t inside;  /* not 0 inside a gate-crossing call: shim/gate/gate.h */
    _Atomic uint32_t blocked; /* 1 inside a synchronizing call */
    _Atomic uint64_t calls;   /* hooked calls that returned; the daemon looks for changes */
    uint8_t reserved[GM_CACHE_PAIR - 16];
};
_Static_assert(sizeof(struct gm_slot) == GM_CACHE_PAIR, "its own lines of cache");

struct gm_stat {
    uint32_t magic;
    uint32_t version;
    _Atomic uint32_t waiting;      /* threads that wait at the gate */
    _Atomic uint32_t captures;     /* open stream captures */
    _Atomic uint64_t small_bytes;  /* live allocations under GM_SMALL_MAX, in the real driver */
    _Atomic uint64_t real_bytes;   /* live allocations that gpumux could not back: unswappable */
    _Atomic uint32_t contexts;     /* CUDA contexts alive */
    _Atomic uint32_t features_off; /* enum gm_feature: those that it lacks; written at its start */
    /* Other unswappable memory, by kind. */
    _Atomic uint64_t managed_bytes; /* live managed allocations, wherever their pages are */
    _Atomic uint64_t array_bytes;   /* arrays, mipmapped ones too */
    _Atomic uint64_t graph_bytes;   /* held by the driver for allocations inside graphs */
    /* Memory that the program freed; the shim gives it back within 100 ms. */
    _Atomic uint64_t spare_bytes;
    /* Allocations that failed for the program, and the size of the last one. */
    _Atomic uint64_t refused, refused_bytes;
    uint8_t reserved[4096 - 88];
    struct gm_slot slot[GM_SLOTS];
};
_Static_assert(sizeof(struct gm_stat) == 4096 + GM_CACHE_PAIR * GM_SLOTS, "gm_stat layout");

#endif
