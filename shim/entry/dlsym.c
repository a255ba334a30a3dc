/*
 * The exported dlsym: programs that look the driver up by name get the wrappers.
 *
 * It has no version, so references to dlsym@GLIBC_2.2.5 and dlsym@GLIBC_2.34 both bind to it. It
 * replaces an answer only if all of this holds:
 *
 *   - The name starts with cu or nvml and a capital: wider patterns catch cudnn* and recurse.
 *   - The handle is a library's. RTLD_NEXT and RTLD_DEFAULT depend on the caller's place in the
 *     search order; the normal look-up finds the shim's export if it comes first there.
 *   - The name is a symbol of hooks.def, and the C library finds it at the address that
 * libcuda.so.1 exports; or one of nvml.def and libnvidia-ml.so.1. Another library's function of
 * that name is left alone.
 *
 * Every other call jumps to the C library's dlsym, which takes the caller from its return address.
 * Assembly (front.h) guarantees the jump at every optimization level. Once the real dlsym is known,
 * that path takes no lock and calls nothing.
 *
 * dlvsym is left alone: nobody looks the driver up by version, and other interposers find the real
 * dlsym by it, as the shim does.
 *
 * Not in the object library that test programs link: a program has a dlsym of its own.
 */
#include "shim/entry/front.h"
#include "shim/entry/load.h"
#include "shim/entry/nvml.h"
#include "shim/entry/procaddr.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* Called by the assembly below. */
__attribute__((used)) void *gm_dlsym_pick(void *handle, const char *name);

/* The answer for a hooked symbol that is looked up in a library. */
static void *find_hooked(void *handle, const char *name)
{
    const struct gm_row *row = gm_find_hook(name);

    /* The caller's look-up last, so that dlerror() is about it. Without libcuda.so.1 in the process
     * the answer cannot be the driver's. */
    bool is_loaded = gm_real_load_present();
    void *found = gm_real_dlsym(handle, name);
    return found && is_loaded && row && found == gm_row_real(row) ? row->wrapper : found;
}

static void *find_nvml(void *handle, const char *name)
{
    bool is_loaded = gm_nvml_load_present();
    void *found = gm_real_dlsym(handle, name);
    void *wrapper = found && is_loaded ? gm_nvml_wrapper(name, found) : NULL;
    return wrapper ? wrapper : found;
}

static bool is_capital(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* Where the assembly jumps: the C library's dlsym, or one of the above. */
void *gm_dlsym_pick(void *handle, const char *name)
{
    if (handle != RTLD_NEXT && handle != RTLD_DEFAULT && name && !gm_reach_disabled()) {
        if (name[0] == 'c' && name[1] == 'u' && is_capital(name[2]) && gm_find_hook(name))
            return (void *)find_hooked;
        if (strncmp(name, "nvml", 4) == 0 && is_capital(name[4]) && gm_nvml_is_name(name))
            return (void *)find_nvml;
    }
    return gm_real_dlsym_address();
}

/*
 * dlsym(handle, name): jump to the C library's; but to gm_dlsym_pick's choice if name is cu[A-Z]*
 * or nvml[A-Z]* and handle is a library, or if the real address is not known yet. RTLD_NEXT is -1
 * and RTLD_DEFAULT 0, so handle + 1 is at most 1 for both. The name is read byte by byte: it may
 * end at the end of a page.
 */
_Static_assert((intptr_t)RTLD_NEXT == -1 && (intptr_t)RTLD_DEFAULT == 0, "special handles");

#if defined(__x86_64__)
GM_FRONT(dlsym,
         "    testq %rsi, %rsi\n"
         "    je 1f\n"
         "    cmpb $'c', (%rsi)\n"
         "    jne 3f\n"
         "    cmpb $'u', 1(%rsi)\n"
         "    jne 1f\n"
         "    movzbl 2(%rsi), %eax\n"
         "4:  subl $'A', %eax\n"
         "    cmpl $25, %eax\n"
         "    ja 1f\n"
         "    leaq 1(%rdi), %rax\n"
         "    cmpq $1, %rax\n"
         "    ja 2f\n",
         "3:  cmpb $'n', (%rsi)\n"
         "    jne 1b\n"
         "    cmpb $'v', 1(%rsi)\n"
         "    jne 1b\n"
         "    cmpb $'m', 2(%rsi)\n"
         "    jne 1b\n"
         "    cmpb $'l', 3(%rsi)\n"
         "    jne 1b\n"
         "    movzbl 4(%rsi), %eax\n"
         "    jmp 4b\n");
#elif defined(__aarch64__)
GM_FRONT(dlsym,
         "    cbz x1, 1f\n"
         "    ldrb w2, [x1]\n"
         "    cmp w2, #'c'\n"
         "    b.ne 3f\n"
         "    ldrb w2, [x1, #1]\n"
         "    cmp w2, #'u'\n"
         "    b.ne 1f\n"
         "    ldrb w2, [x1, #2]\n"
         "4:  sub w2, w2, #'A'\n"
         "    cmp w2, #25\n"
         "    b.hi 1f\n"
         "    add x2, x0, #1\n"
         "    cmp x2, #1\n"
         "    b.hi 2f\n",
         "3:  cmp w2, #'n'\n"
         "    b.ne 1b\n"
         "    ldrb w2, [x1, #1]\n"
         "    cmp w2, #'v'\n"
         "    b.ne 1b\n"
         "    ldrb w2, [x1, #2]\n"
         "    cmp w2, #'m'\n"
         "    b.ne 1b\n"
         "    ldrb w2, [x1, #3]\n"
         "    cmp w2, #'l'\n"
         "    b.ne 1b\n"
         "    ldrb w2, [x1, #4]\n"
         "    b 4b\n");
#endif
