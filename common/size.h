/* Numbers, sizes and durations as people write them. Pure; calls nothing. */
#ifndef GM_COMMON_SIZE_H
#define GM_COMMON_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Parse a whole number: digits only. Returns 0 and *value, or -EINVAL or -ERANGE (above 64 bits).
 */
int gm_parse_number(const char *text, uint64_t *value);

/*
 * Parse a size: a decimal number, perhaps with a fraction, and an optional unit B, K, M, G, T with
 * an optional "iB" or "B" (all are powers of 1024), no sign, no blanks inside: "24G", "512MiB",
 * "1.5T", "4096". Returns 0 and *bytes, or -EINVAL (malformed) or -ERANGE (does not fit in 63
 * bits).
 */
int gm_parse_size(const char *text, uint64_t *bytes);

/* Parse a duration: a number with a unit ms, s, m; 0 needs none. 0, -EINVAL or -ERANGE. */
int gm_parse_duration(const char *text, uint64_t *ns);

/* "15.9 GiB", "512 MiB", "0". Returns `text`. */
char *gm_format_size(uint64_t bytes, char *text, size_t size);

#endif
