/*
 * Roles of tests/unit/test_simcuda: what it does in processes of its own, to crash, be killed, or
 * have another environment. Both sides also use these helpers.
 */
#ifndef GM_SIMCUDA_ROLES_H
#define GM_SIMCUDA_ROLES_H

#include <cuda.h>

#define MIB (1ull << 20)
#define ROLE_SOCKET 9 /* a role's end of a socket pair */

/* A module with every kernel that simcuda has, and some others. */
extern const char roles_ptx[];

/* Play a role; its exit status, 125 if there is none of that name. */
int roles_play(const char *name);

/* An exportable allocation on device 0, and access to it for device 0. */
CUmemAllocationProp roles_prop(void);
CUmemAccessDesc roles_access(void);

/* One message with an fd, or with none (-1). 0, or -1 when the other end is gone. */
int roles_send(int socket, int fd);
/* One message: its fd, -1 if it has none, -2 when the other end is gone. */
int roles_receive(int socket);

#endif
