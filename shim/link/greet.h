/*
 * Greetings: how a connection to the daemon begins. HELLO and WELCOME at the start of the program;
 * REJOIN and WELCOME when another daemon has come. Only a daemon of the same user, at the same
 * path, is told who this is.
 *
 * Owns what WELCOME said of this program, the daemon's pages and the lifeline. Boot, then the link
 * thread. Calls files.
 */
#ifndef GM_SHIM_GREET_H
#define GM_SHIM_GREET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/shm.h"
#include "common/wire.h"
#include "shim/link/comeback.h"

struct gm_link_welcome {
    const struct gm_ctl *ctl; /* mapped read-only */
    struct gm_stat *stat;     /* mapped read-write */
    uint64_t rejoin_ns;       /* how long requests wait when the daemon is lost */
    uint32_t app;
    uint32_t n_gpus;
    struct gm_gpu_entry gpu[GM_GPUS_MAX];
};

/* Boot only. Connect, send HELLO, receive WELCOME. Returns the socket; or -errno and one line for
 * the log in `why`, and then nothing is left open. */
int gm_greet_open(struct gm_link_welcome *welcome, char *why, size_t why_size);

/* The lifeline (comeback.h), if it is still the one of WELCOME: programs close what they do not
 * know. -1: there is none. */
int gm_greet_lifeline(void);

/* List the daemon's frames that this program holds: `most` from *cursor on, 0 at first; fewer: the
 * last ones. */
typedef uint32_t gm_greet_list(uint32_t *cursor, struct gm_holds_entry *entries, uint32_t most);

/* Link thread: connect again. Returns a non-blocking socket, or -errno; -EMFILE: this program is at
 * its limit of open files. */
int gm_greet_connect(void);

/* Link thread: begin with REJOIN, whose app and nonce are filled in, and what `list` says. */
void gm_greet_again(int fd, const struct gm_msg_rejoin *rejoin, gm_greet_list *list);
/* ... and go on with it when the socket has room. */
void gm_greet_more(int fd);
/* Whether there is more to say. */
bool gm_greet_has_more(void);

/*
 * Link thread: the answer to REJOIN is there. After WELCOME the daemon's new page is mapped over
 * the one before, and who slept on that is awake. NO_FILES: the answer is there still. Else `why`
 * is one line for the log.
 */
enum gm_link_event gm_greet_hear(int fd, char *why, size_t why_size);

/* The number of the newest CLOSE when WELCOME came again, before any thread could see that page. */
uint64_t gm_greet_epoch(void);

/* A boot that fails: unmap the pages. */
void gm_greet_shut(void);
/* Close the lifeline: in a forked child, after a loss for good, or as a boot fails. */
void gm_greet_close(void);

#endif
