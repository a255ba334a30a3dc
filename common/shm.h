/* clang-format off */
/*
 * The two memory areas that one app shares with the daemon. Fixed widths, statically asserted.
 *
 * ctl page:  daemon -> app. Only the daemon writes. The app maps it read-only (the memfd has
 *            F_SEAL_FUTURE_WRITE), so it cannot open its own gate.
 * stat area: app -> daemon. The app writes words without locks. The daemon samples them to find
 *            idle apps, and shows them. They are hostile input: the daemon copies each word once
 *            and uses none as an index, a size or a pointer. It writes there only to take a
 *            spare, and to say that it moves what a parked app has.
 *
 * act/client.c makes both memfds, seals their size and sends them with WELCOME. shim/link maps
 * them. Behind struct gm_stat lie the words of windows.h.
 */
/* clang-format on */
#ifndef GM_COMMON_SHM_H
#define GM_COMMON_SHM_H

#include <stdatomic.h>
#include <stdint.h>

/* The page's name as a memfd: it tells in /proc that a process shares a GPU. */
#define GM_SHM_CTL_NAME "gpumux-ctl"

#define GM_SHM_MAGIC 0x786d7567u /* "gumx" */
#define GM_SHM_VERSION 11u
#define GM_GPUS_MAX 16u
#define GM_SLOTS 1024u /* one per thread; all further threads share the last one */

/* Values of gm_ctl.gate. OPEN is 0, so the fast path compares with zero. */
enum gm_gate_word {
    GM_GATE_OPEN = 0,
    GM_GATE_CLOSED = 1,
    GM_GATE_COLD = 2, /* only in the shim's own start-up page: "boot first" */
};

/* Every gate-crossing call reads `gate`, a shared futex; one that marks reads `window`, in the same
 * line of cache. */
struct gm_ctl {
    uint32_t magic;
    uint32_t version;
    _Atomic uint32_t gate;
    uint32_t app;                 /* the app's id, for messages */
    _Atomic uint64_t epoch;       /* of the newest CLOSE */
    _Atomic uint32_t has_rhythm;  /* not 0: announce requests that come at a steady rate (EXPECT) */
    _Atomic uint32_t is_paused;   /* not 0: it has no turns until somebody resumes it */
    _Atomic uint32_t is_counting; /* a bit a GPU: mark what is touched (windows.h); and below */
    _Atomic uint32_t window;      /* the number of its window now: windows.h */
    uint64_t budget[GM_GPUS_MAX]; /* bytes by gpumux GPU index: what the app could have in all */
    uint64_t room[GM_GPUS_MAX];   /* bytes by gpumux GPU index: what the app could allocate now */
    /* Changes each second while the daemon's loop runs. So an app can say that the daemon hangs.
     */
    _Atomic uint32_t beat;
    uint8_t reserved[4096 - 44 - 16 * GM_GPUS_MAX];
};
_Static_assert(sizeof(struct gm_ctl) == 4096, "gm_ctl is one page");

/* A slot takes two cache lines of 64 bytes: processors often fetch lines in pairs, and would take
 * the neighbour from the thread that writes there. */
#define GM_CACHE_PAIR 128

/* One thread of the app. Only that thread writes it; the last slot is changed by atomic adds. */
struct gm_slot {
    _Atomic uint32_t inside;  /* not 0 inside a gate-crossing call: shim/gate/gate.h */
    uint32_t unused;          /* shims of other versions write it */
    _Atomic uint64_t calls;   /* gate-crossing calls that returned; the daemon looks for changes */
    _Atomic uint32_t tid;     /* the thread, for the shim */
    uint8_t reserved[GM_CACHE_PAIR - 20];
};
_Static_assert(sizeof(struct gm_slot) == GM_CACHE_PAIR, "its own lines of cache");

/* Programs that allocate and free in each step do so in a few dozen sizes. */
#define GM_SPARES_MAX 64u
/* In a word of gm_stat.spares: neither side may take this one (any more). With OWN the program says
 * so, else the daemon: the next one goes on with what that had begun to take, and with nothing of
 * the program's own. */
#define GM_SPARE_BUSY 1u
#define GM_SPARE_OWN 2u

/* In gm_ctl.is_counting: it may have to mark some day, so what graphs touch is to be noted. */
#define GM_MAY_COUNT (1u << 31)

/*
 * Values of gm_stat.moving: who may touch a program that is parked (shim/gate/park.h). The daemon
 * swaps FREE for AWAY when it hears that the program is parked, before it moves anything, and
 * stores FREE when all is in place again. The shim swaps FREE for GOES before it lets the program's
 * work go on, and stores FREE after it. So nobody lets a program go on whose memory is away, also if
 * the daemon dies meanwhile: then the word stays AWAY until the shim gives the daemon up. A shim
 * that lies harms its own program only.
 */
enum gm_moving { GM_MOVING_FREE = 0, GM_MOVING_AWAY = 1, GM_MOVING_GOES = 2 };

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
    /* Allocations that failed for the program for want of memory, all of them; those that the
     * driver refused, which the daemon was not asked for; and the size of the last of these. */
    _Atomic uint64_t refused, driver_refused, driver_refused_bytes;
    /* Spares: allocations that the program freed and keeps until it or the daemon wants them. A
     * word is 0, or the address of one. Bits below GM_CHUNK_MIN count, so a range that is put here
     * again has another word. The program takes a spare by swapping its word for 0, the daemon by
     * swapping it for the same word with GM_SPARE_BUSY. */
    _Atomic uint64_t spares[GM_SPARES_MAX];
    _Atomic uint64_t driver_bytes; /* what the driver took by itself: modules, local memory */
    /* Work that was submitted, of which nobody knows what memory it touches: windows.h. */
    _Atomic uint64_t unseen;
    _Atomic uint32_t marks_from; /* the window in which it began to mark places; 0: it does not */
    /* The first window whose work may not have ended yet; 0: not known. */
    _Atomic uint32_t lasts_from;
    /* What the program itself moves between host and device, since its start, while it marks:
     * bytes of its copies, and launches that name host memory of its own. */
    _Atomic uint64_t link_bytes, link_launches;
    _Atomic uint64_t exports; /* memory that it exported for other processes to import: how often */
    /* The last window in which it submitted work that may touch memory of gpumux's, while it marks.
     * Copies to and from the host are none: windows.h. */
    _Atomic uint32_t works_in;
    _Atomic uint32_t moving;  /* enum gm_moving */
    uint8_t reserved[4096 - 144 - 8 * GM_SPARES_MAX];
    struct gm_slot slot[GM_SLOTS];
};
_Static_assert(sizeof(struct gm_stat) == 4096 + GM_CACHE_PAIR * GM_SLOTS, "gm_stat layout");

#endif
