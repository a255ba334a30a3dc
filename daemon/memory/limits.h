/*
 * How much of the machine's memory this process may use, and what that makes of --pinned and
 * --paged.
 *
 * The machine and the control groups of the process (MemoryMax= of a systemd unit, the limit of a
 * container) bound it: the kernel kills a process that exceeds a group's limit. Paged memory may be
 * swapped, but must fit into the control group without swap.
 *
 * Called by the engine when it opens. Reads /proc and the control groups' files. Owns no state.
 */
#ifndef GM_DAEMON_MEMORY_LIMITS_H
#define GM_DAEMON_MEMORY_LIMITS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct gm_limits {
    uint64_t memory, swap;     /* of the machine; UINT64_MAX, 0: unknown */
    uint64_t group;            /* the smallest limit of a control group; UINT64_MAX: none */
    char group_file[PATH_MAX]; /* the file that says so */
};

/* Read them. `root` is put before every path ("" outside tests). What cannot be read is no limit.
 */
void gm_limits_read(struct gm_limits *limits, const char *root);

/*
 * Check that the two tiers fit. If *pinned is 0 (not given), it becomes half of the limit, or what
 * `paged` leaves if that is less. 0, or -EINVAL with one line in `why`: the limit, where it comes
 * from, and which option to lower.
 */
int gm_limits_fit(const struct gm_limits *limits, uint64_t *pinned, uint64_t paged, char *why,
                  size_t why_size);

#endif
