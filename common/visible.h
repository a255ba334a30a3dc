/*
 * The list of devices that CUDA_VISIBLE_DEVICES holds: cut into its tokens, read as CUDA reads it,
 * and put into another order. A token is a device's number, or the begin of its UUID ("GPU-8a1c").
 * The list ends before the first token that names no device, or that is of another kind than the
 * first: the driver does not mix numbers and UUIDs (580, tests/gpu/placement.py). A list that names
 * a device twice makes all of them invisible.
 *
 * The shim cuts and writes, the daemon reads: it knows the machine's devices before the program's
 * driver is started. Pure; calls nothing.
 */
#ifndef GM_COMMON_VISIBLE_H
#define GM_COMMON_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_DEVICES_VISIBLE 64u /* tokens that are read; a machine has fewer devices */
#define GM_TOKEN_SIZE 48u      /* of one, with its NUL; a UUID takes 40 bytes */
#define GM_UUID_TEXT 41u       /* "GPU-8a1c...", with its NUL */

/* The first tokens of a list. What follows them begins at `rest`: "" or ",...". */
struct gm_tokens {
    uint32_t n;
    struct gm_token {
        const char *at; /* in the list */
        size_t length;
    } token[GM_DEVICES_VISIBLE];
    const char *rest;
};

/* One on the wire. It need not end with a NUL: it comes from a client. */
struct gm_token_entry {
    char text[GM_TOKEN_SIZE];
};

/* Cut a list at its commas, up to a token that is too long to be one. `list` must outlive it. */
void gm_tokens_cut(struct gm_tokens *tokens, const char *list);

/* Write the list with order[i] as its token i, for the first `n` tokens; the others stay. `order`
 * has each of 0 to n - 1 once. Returns the length, or 0 if `size` bytes are too few. */
size_t gm_tokens_write(const struct gm_tokens *tokens, const uint32_t *order, uint32_t n,
                       char *text, size_t size);

/* The devices of the machine, by their numbers. */
struct gm_devices {
    uint32_t n;
    uint8_t uuid[GM_DEVICES_VISIBLE][16];
};

/*
 * Which devices the tokens name, in order. Returns how many, up to the first token that names none;
 * 0 if one is named twice. Without `has_numbers` the program counts devices otherwise than the
 * machine, and a number names none. Anything about parts of GPUs (MIG) names none.
 */
uint32_t gm_devices_read(const struct gm_devices *devices, const struct gm_token_entry *tokens,
                         uint32_t n, bool has_numbers, uint32_t found[GM_DEVICES_VISIBLE]);

/* "GPU-8a1c0f3e-....". Returns `text`. */
static inline char *gm_uuid_format(const uint8_t uuid[16], char text[GM_UUID_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    char *at = text;
    for (const char *prefix = "GPU-"; *prefix != '\0'; prefix++)
        *at++ = *prefix;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[uuid[i] >> 4];
        *at++ = digits[uuid[i] & 15];
    }
    *at = '\0';
    return text;
}

#endif
