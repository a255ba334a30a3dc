/*
 * A daemon's side of its connection to gpumux-keeper (protocol.h). Each call asks, and waits for
 * the answer: the keeper does nothing else. One that does not answer within 2 s, or says what is no
 * answer, is let go: that call and all later ones return -ENOTCONN.
 *
 * Calls nobody.
 */
#ifndef GM_DAEMON_KEEPER_CLIENT_H
#define GM_DAEMON_KEEPER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "daemon/keeper/protocol.h"

#define GM_KEEPER_PATH sizeof(((struct sockaddr_un *)0)->sun_path)

struct gm_keeper {
    int fd;        /* -1: there is no connection */
    uint32_t room; /* how many more descriptors it can hold, as it last said */
};

/* Where the keeper of the daemon at `socket` listens: under the name of that socket, in a folder
 * that only this user can enter: DIR-keeper for sockets in a folder DIR called gpumux, which
 * containers have mounted and see all of, unless the caller says that there cannot be one; else
 * SOCKET-keeper. False: that is longer than a socket's path may be.
 */
bool gm_keeper_place(const char *socket, bool is_beside, char path[GM_KEEPER_PATH]);

/* Be its daemon. 0, or -errno: -ENOENT or -ECONNREFUSED, there is none; -EPERM, it is neither
 * root's nor this user's; -ENOTCONN, see above. */
int gm_keeper_open(struct gm_keeper *keeper, const char *path);
/* Have it hold these, GM_KEEPER_FDS at most; the descriptors stay the caller's, too. 0; -ENOTCONN;
 * -EMFILE, -ENOMEM or another -errno: none of them, as it can hold no more, or one is of LEASE and
 * cannot be watched. */
int gm_keeper_put(struct gm_keeper *keeper, const struct gm_keeper_item *items, const int *fds,
                  uint32_t n);
/* Have it hold these no more. 0 or -ENOTCONN. */
int gm_keeper_drop(struct gm_keeper *keeper, const struct gm_keeper_item *items, uint32_t n);
/* The next ones that it holds, behind `behind` (NULL: the first), with descriptors that are the
 * caller's. How many, 0: there are no more; -EMFILE: this process cannot have as many; -ENOTCONN.
 */
int gm_keeper_take(struct gm_keeper *keeper, const struct gm_keeper_item *behind,
                   struct gm_keeper_item items[GM_KEEPER_FDS], int fds[GM_KEEPER_FDS]);
/* Have it close all, and wait for that: it ends, or is the service manager's and ends later. The
 * connection is closed. */
void gm_keeper_end(struct gm_keeper *keeper);
/* Close the connection: it holds on. */
void gm_keeper_close(struct gm_keeper *keeper);

#endif
