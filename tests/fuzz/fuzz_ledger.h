/* The ledger's fuzz target, see fuzz_ledger.c. */
#ifndef GM_TESTS_FUZZ_LEDGER_H
#define GM_TESTS_FUZZ_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Change a ledger as the input says, and read it. Whether it was taken; aborts on a fault. */
bool gm_fuzz_ledger(const uint8_t *data, size_t size);

#endif
