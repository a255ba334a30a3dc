/*
 * The exported dlopen: a library that is opened with RTLD_DEEPBIND gets the wrappers too.
 *
 * Such a library looks symbols up among its own dependencies first, so its references to the driver
 * and to dlsym pass the shim by, and its work would reach memory of this program while that is
 * away. The flag is kept, since libraries count on it; what they bound to the driver is changed
 * afterwards, in their tables of addresses:
 *
 *   - what holds the address of the driver's function of a name in hooks.def gets the wrapper;
 *   - what holds the C library's dlsym gets the shim's.
 *
 * For that the library is bound at once (RTLD_NOW), unless it cannot be. Its constructors have run
 * by then. Every other call reaches the C library's dlopen by a jump, as in dlsym.c: it looks at
 * its return address for the paths to search. So a deep one is only taken over when its name has a
 * path and nothing to expand. Namespaces of dlmopen have a driver of their own and are left alone:
 * none of gpumux's memory is there.
 *
 * Not part of the object library that test programs link.
 */
#include "shim/front.h"
#include "shim/procaddr.h"
#include "shim/real.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Read by the assembly: NULL until the first call. */
extern void *_Atomic gm_dlopen_real;
void *_Atomic gm_dlopen_real;

/* Called by the assembly below. */
__attribute__((used)) void *gm_dlopen_pick(const char *file, int mode);

static void *open_nothing(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

static void *gm_dlopen_address(void)
{
    static const char *const version[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *real = atomic_load_explicit(&gm_dlopen_real, memory_order_relaxed);
    for (size_t i = 0; !real && i < sizeof(version) / sizeof(version[0]); i++)
        real = dlvsym(RTLD_NEXT, "dlopen", version[i]);
    if (!real)
        real = (void *)open_nothing;
    atomic_store_explicit(&gm_dlopen_real, real, memory_order_relaxed);
    return real;
}

/* ---- the tables of a loaded object ---- */

struct gm_object {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * rela[2];
    size_t rela_bytes[2];
    uintptr_t relro, relro_end; /* read-only since it was bound; whole pages */
};

#if defined(__x86_64__)
#define GM_RELA_IS_ADDRESS(type)                                                                   \
    ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define GM_RELA_IS_ADDRESS(type)                                                                   \
    ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#error "dlopen: name this architecture's relocations"
#endif

/* The dynamic section has addresses, or offsets where the loader leaves it as it is. */
static const void *gm_object_at(const struct gm_object *object, uintptr_t value)
{
    return (const void *)(value < object->base ? object->base + value : value);
}

/* False: it has no table of symbols. */
static bool gm_object_read(const struct dl_phdr_info *info, struct gm_object *object)
{
    const ElfW(Dyn) *dynamic = NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    *object = (struct gm_object){.base = info->dlpi_addr};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t at = object->base + header->p_vaddr;
        if (header->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)at;
        if (header->p_type == PT_GNU_RELRO) {
            object->relro = at & ~(page - 1);
            object->relro_end = (at + header->p_memsz) & ~(page - 1);
        }
    }
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *at = gm_object_at(object, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            object->symbols = at;
            break;
        case DT_STRTAB:
            object->names = at;
            break;
        case DT_RELA:
            object->rela[0] = at;
            break;
        case DT_RELASZ:
            object->rela_bytes[0] = dynamic->d_un.d_val;
            break;
        case DT_JMPREL:
            object->rela[1] = at;
            break;
        case DT_PLTRELSZ:
            object->rela_bytes[1] = dynamic->d_un.d_val;
            break;
        default:
            break;
        }
    }
    return object->symbols && object->names;
}

/* What a reference to `name` that is bound to `bound` shall be bound to. */
static void *gm_rebind(const char *name, void *bound)
{
    if (name[0] == 'd')
        return strcmp(name, "dlsym") == 0 && bound == gm_real_dlsym_address() ? (void *)dlsym
                                                                              : bound;
    if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z')
        return bound;
    const struct gm_row *row = gm_find_hook(name);
    return row && bound && gm_row_real(row) == bound ? row->wrapper : bound;
}

static void gm_object_write(const struct gm_object *object, void **slot, void *value)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot & ~(page - 1);
    bool is_relro = at >= object->relro && at < object->relro_end;
    if (is_relro && mprotect((void *)at, page, PROT_READ | PROT_WRITE) != 0)
        return;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    if (is_relro)
        mprotect((void *)at, page, PROT_READ);
}

static int gm_object_rebind(struct dl_phdr_info *info, size_t size, void *shim)
{
    struct gm_object object;
    (void)size;
    if (info->dlpi_addr == (uintptr_t)shim || !gm_object_read(info, &object))
        return 0;
    for (int k = 0; k < 2; k++) {
        size_t n = object.rela[k] ? object.rela_bytes[k] / sizeof(ElfW(Rela)) : 0;
        for (size_t i = 0; i < n; i++) {
            const ElfW(Rela) *rela = &object.rela[k][i];
            if (!GM_RELA_IS_ADDRESS(ELF64_R_TYPE(rela->r_info)) || ELF64_R_SYM(rela->r_info) == 0 ||
                rela->r_addend != 0)
                continue;
            const ElfW(Sym) *symbol = &object.symbols[ELF64_R_SYM(rela->r_info)];
            if (symbol->st_shndx != SHN_UNDEF)
                continue; /* its own: the driver's tables, or another interposer's */
            void **slot = (void **)(object.base + rela->r_offset);
            void *bound = __atomic_load_n(slot, __ATOMIC_RELAXED);
            void *better = gm_rebind(object.names + symbol->st_name, bound);
            if (better != bound)
                gm_object_write(&object, slot, better);
        }
    }
    return 0;
}

/* ---- dlopen ---- */

static void *gm_dlopen_deep(const char *file, int mode)
{
    void *(*real)(const char *, int) = (void *(*)(const char *, int))gm_dlopen_address();
    Dl_info shim;
    void *library = real(file, (mode & ~RTLD_LAZY) | RTLD_NOW);
    if (!library && (mode & RTLD_NOW) == 0)
        library = real(file, mode);
    if (library && gm_real_load_present() && dladdr((void *)gm_dlopen_deep, &shim))
        dl_iterate_phdr(gm_object_rebind, shim.dli_fbase);
    return library;
}

/* Where a call goes on. The assembly jumps there. */
void *gm_dlopen_pick(const char *file, int mode)
{
    bool is_ours = (mode & RTLD_DEEPBIND) != 0 && file && strchr(file, '/') && !strchr(file, '$');
    return is_ours && !gm_reach_disabled() ? (void *)gm_dlopen_deep : gm_dlopen_address();
}

/* dlopen(file, mode): jump to the C library's, unless RTLD_DEEPBIND is in `mode`. */
_Static_assert(RTLD_DEEPBIND == 8, "the flag");
#if defined(__x86_64__)
GM_FRONT(dlopen,
         "    testl $8, %esi\n"
         "    jne 2f\n",
         "");
#elif defined(__aarch64__)
GM_FRONT(dlopen, "    tbnz w1, #3, 2f\n", "");
#endif
