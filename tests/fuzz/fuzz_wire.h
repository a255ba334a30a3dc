/*
 * The wire fuzzer's seams. An input is three bytes that choose how, then the bytes themselves:
 *
 *   byte 0  bits 0-1: the direction (1 up, 2 down, also the illegal 0 and 3)
 *           bit 7: the rest is not a message but what to encode: type (2 bytes), count (1), a body
 * and entries, padded with zeros byte 1  the session's state, as the bits of enum gm_session_state
 *   byte 2  the number of fds, signed
 */
#ifndef GM_TESTS_FUZZ_WIRE_H
#define GM_TESTS_FUZZ_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define GM_FUZZ_HEAD 3u
#define GM_FUZZ_ENCODE 0x80u

/* libFuzzer's entry. Checks every property of the codec on one input; aborts if one does not hold.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The fault that decoding this input gives; -1 if it is not a decoding input. */
int gm_fuzz_wire_fault(const uint8_t *data, size_t size);

#endif
