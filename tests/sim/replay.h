/* Recorded traces (daemon/trace/trace.h) through the scheduler again. */
#ifndef GM_TESTS_SIM_REPLAY_H
#define GM_TESTS_SIM_REPLAY_H

#include <stdint.h>

/*
 * Feed what the scheduler of that GPU was told, of the trace in `path`, to a scheduler, check what
 * must hold of any (watch.h; what depends on the engine behind it cannot be known), and print a
 * summary: slices, switches and waits by app.
 * Returns 0; or 1 with one line on stderr that names the file and the line, and nothing on stdout.
 */
int replay_file(const char *path, uint32_t gpu);

#endif
