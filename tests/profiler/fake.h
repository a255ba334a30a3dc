/* What fake.c shows to the test. */
#ifndef GM_TESTS_PROFILER_FAKE_H
#define GM_TESTS_PROFILER_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sanitizer.h>

struct fake_function {
    bool is_kernel; /* its handle is that of a CUkernel */
    const char *name;
    size_t n, offset[8], bytes[8];
};

extern struct fake {
    Sanitizer_CallbackFunc callback;
    void *userdata;
    void *area;                /* of the launch that began last */
    void (*kernel)(void *arg); /* runs when somebody waits for the stream; NULL: it has */
    void *kernel_arg;
    unsigned patches_added, modules_patched, asked;
    uint64_t calls, fails_at; /* calls that can fail; the one that does */
} fake;

#endif
