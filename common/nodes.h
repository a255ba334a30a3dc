/*
 * Which of NVIDIA's device nodes (/dev/nvidia0 and on) this process may open. A program in a
 * container, or with a device control group, sees the GPUs of its nodes only, and counts them
 * anew: access(2) knows of both. Two processes with the same nodes see the same GPUs.
 */
#ifndef GM_COMMON_NODES_H
#define GM_COMMON_NODES_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* A bit each; 0: there are none, as where the driver is simulated. */
static inline uint64_t gm_nodes(void)
{
    uint64_t nodes = 0;
    for (unsigned i = 0; i < 64; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/dev/nvidia%u", i);
        if (access(path, R_OK | W_OK) == 0)
            nodes |= 1ull << i;
    }
    return nodes;
}

#endif
