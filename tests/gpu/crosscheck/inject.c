/*
 * The witness: a library that the driver loads at cuInit (CUDA_INJECTION64_PATH) and that asks
 * CUPTI to be called at every call into the driver, whatever way it came: through the shim, through
 * a pointer that somebody got past it, from inside of a library of NVIDIA's.
 *
 * At each it looks whether the calling thread is inside the gate or in a handler of the shim, and
 * counts. A launch or a copy that is not inside the gate, or an allocation that is not in a
 * handler, is a bypass. That is stronger than comparing sums: no call too many makes up for one too
 * few.
 *
 * The shim exports nothing for this. Its thread-local words are found by the names in its symbol
 * table, and lie at the same distance from every thread's pointer, since it is preloaded.
 *
 *   GM_CROSSCHECK_DIR   folder for the files, one a process (seen.h)
 *   GM_CUPTI            libcupti.so, if none is loaded already and the loader finds none
 *
 * It prints nothing and changes nothing.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cupti_callbacks.h>

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/gate/gate.h"
#include "tests/gpu/crosscheck/seen.h"

#define GM_VISIBLE __attribute__((visibility("default")))

static struct gm_seen *gm_seen;

/* Distances from the thread pointer; 0: not found. */
static ptrdiff_t gm_gate_at, gm_handling_at, gm_booting_at;
static int (*gm_state)(void);

/* ---- the shim's thread-local words ---- */

struct gm_tls {
    const char *name; /* of the module */
    const char *block;
};

static int gm_find_module(struct dl_phdr_info *info, size_t size, void *data)
{
    struct gm_tls *tls = data;
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;
    if (info->dlpi_tls_data == NULL || strcmp(base, tls->name) != 0)
        return 0;
    tls->name = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
    tls->block = info->dlpi_tls_data;
    return 1;
}

enum word { GM_WORD_GATE, GM_WORD_HANDLING, GM_WORD_BOOTING, GM_WORDS };

/* The places of the words in the thread-local block of the ELF file. False: not all are there. */
static bool gm_find_words(const char *file, Elf64_Addr at[GM_WORDS])
{
    static const char *const wanted[GM_WORDS] = {"gm_gate_self", "gm_handling", "gm_boot_is_mine"};
    unsigned found = 0;
    struct stat stat;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const char *bytes = fstat(fd, &stat) == 0
                            ? mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                            : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    const Elf64_Ehdr *head = (const void *)bytes;
    const Elf64_Shdr *sections = (const void *)(bytes + head->e_shoff);
    for (unsigned i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbols = (const void *)(bytes + sections[i].sh_offset);
        const char *names = bytes + sections[sections[i].sh_link].sh_offset;
        for (size_t j = 0; j < sections[i].sh_size / sizeof(symbols[0]); j++) {
            const char *name = names + symbols[j].st_name;
            if (ELF64_ST_TYPE(symbols[j].st_info) != STT_TLS)
                continue;
            for (unsigned k = 0; k < GM_WORDS; k++) {
                if (strcmp(name, wanted[k]) != 0)
                    continue;
                found |= 1u << k;
                at[k] = symbols[j].st_value;
            }
        }
    }
    munmap((void *)bytes, (size_t)stat.st_size);
    return found == (1u << GM_WORDS) - 1;
}

/* Why the shim cannot be looked into; NULL if it can. */
static const char *gm_find_shim(void)
{
    Elf64_Addr at[GM_WORDS];
    struct gm_tls tls = {.name = "libgpumux.so"};
    *(void **)&gm_state = dlsym(RTLD_DEFAULT, "gpumux_state_");
    if (gm_state == NULL)
        return "libgpumux.so is not in this program";
    if (dl_iterate_phdr(gm_find_module, &tls) == 0) {
        tls.name = ""; /* inside the program */
        if (dl_iterate_phdr(gm_find_module, &tls) == 0)
            return "libgpumux.so has no thread-local words";
    }
    if (!gm_find_words(tls.name, at))
        return "libgpumux.so has no symbol table (stripped), or not the words in it";
    const char *self = __builtin_thread_pointer();
    gm_gate_at = tls.block + at[GM_WORD_GATE] - self;
    gm_handling_at = tls.block + at[GM_WORD_HANDLING] - self;
    gm_booting_at = tls.block + at[GM_WORD_BOOTING] - self;
    return NULL;
}

static enum gm_seen_where gm_where(void)
{
    const char *self = __builtin_thread_pointer();
    const struct gm_gate_thread *gate = (const void *)(self + gm_gate_at);
    if (gate->own != NULL && (gate->inside != 0 || atomic_load(&gate->own->inside) != 0))
        return GM_SEEN_GATE;
    if (*(const volatile uint32_t *)(self + gm_handling_at) != 0 ||
        *(const volatile bool *)(self + gm_booting_at))
        return GM_SEEN_HANDLER;
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return strncmp(name, "gpumux-", 7) == 0 ? GM_SEEN_OWN : GM_SEEN_OUTSIDE;
}

/* ---- the calls ---- */

static bool gm_begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* What must come through the shim. What it passes on purpose, crosscheck.py knows from pass.def. */
static enum gm_seen_kind gm_kind_of(const char *name)
{
    static const char *const submits[] = {
        "cuLaunch",           "cuGraphLaunch",          "cuGraphUpload",      "cuMemcpy",
        "cuMemset",           "cuMemPrefetch",          "cuStreamBatchMemOp", "cuStreamWriteValue",
        "cuStreamWaitValue",  "cuMemDiscard",           "cu64Memcpy",         "cu64Memset",
        "cu64StreamBatchMem", "cuStreamAttachMemAsync", "cuMemBatch",
    };
    static const char *const allocs[] = {
        "cuMemAlloc",    "cuMemFree",      "cuMemCreate",  "cuMemRelease",  "cuMemMap",
        "cuMemUnmap",    "cuMemSetAccess", "cuMemAddress", "cuArrayCreate", "cuArray3DCreate",
        "cuMipmapped",   "cu64MemAlloc",   "cu64MemFree",  "cuMemPool",     "cuIpcOpenMem",
        "cuIpcCloseMem", "cuMemImport",    "cuMemRetain",  "cuMemExport",
    };
    if (gm_begins(name, "cuMemAllocHost") || gm_begins(name, "cuMemFreeHost"))
        return GM_SEEN_OTHER; /* the host's */
    for (size_t i = 0; i < sizeof(submits) / sizeof(submits[0]); i++)
        if (gm_begins(name, submits[i]))
            return GM_SEEN_SUBMIT;
    for (size_t i = 0; i < sizeof(allocs) / sizeof(allocs[0]); i++)
        if (gm_begins(name, allocs[i]))
            return GM_SEEN_ALLOC;
    return GM_SEEN_OTHER;
}

/* Who called: files and offsets. */
static void gm_trace(const char *name)
{
    void *frames[24];
    uint32_t i = atomic_fetch_add(&gm_seen->traces, 1);
    if (i >= GM_SEEN_TRACES)
        return;
    char text[GM_SEEN_TEXT] = "";
    int n = snprintf(text, sizeof(text), "%s:", name);
    int count = backtrace(frames, 24);
    for (int j = 1; j < count && n > 0 && (size_t)n < sizeof(text); j++) {
        Dl_info info;
        const char *file = "?";
        unsigned long offset = 0;
        if (dladdr(frames[j], &info) != 0 && info.dli_fname != NULL) {
            const char *slash = strrchr(info.dli_fname, '/');
            file = slash != NULL ? slash + 1 : info.dli_fname;
            offset = (unsigned long)((char *)frames[j] - (char *)info.dli_fbase);
        }
        n += snprintf(text + n, sizeof(text) - (size_t)n, " %s+%#lx", file, offset);
    }
    memcpy(gm_seen->trace[i], text, sizeof(text));
}

static void CUPTIAPI gm_on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                const void *data)
{
    const CUpti_CallbackData *call = data;
    (void)user;
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || call->callbackSite != CUPTI_API_ENTER ||
        id >= GM_SEEN_CALLS)
        return;
    enum gm_seen_where where = gm_where();
    struct gm_seen_call *seen = &gm_seen->call[id];
    atomic_fetch_add_explicit(&seen->count[where], 1, memory_order_relaxed);
    if (seen->kind == GM_SEEN_OTHER)
        return;
    gm_seen->state = (uint32_t)gm_state();
    if (where == GM_SEEN_OUTSIDE || (seen->kind == GM_SEEN_SUBMIT && where == GM_SEEN_HANDLER))
        gm_trace(seen->name);
}

/* ---- the start ---- */

static struct gm_seen *gm_make_file(void)
{
    char path[4096];
    const char *folder = getenv("GM_CROSSCHECK_DIR");
    if (folder == NULL ||
        snprintf(path, sizeof(path), "%s/%d.seen", folder, (int)getpid()) >= (int)sizeof(path))
        return NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    struct gm_seen *seen = MAP_FAILED;
    if (ftruncate(fd, sizeof(*seen)) == 0)
        seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (seen == MAP_FAILED)
        return NULL;
    seen->pid = (uint32_t)getpid();
    fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, seen->command, sizeof(seen->command) - 1);
        for (ssize_t i = 0; i + 1 < n; i++)
            if (seen->command[i] == '\0')
                seen->command[i] = ' ';
        close(fd);
    }
    memcpy(seen->magic, GM_SEEN_MAGIC, sizeof(seen->magic));
    return seen;
}

#define GM_FIND(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(cupti, #name)

/* Why nothing can be watched; NULL if all is. */
static const char *gm_subscribe(void)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    CUpti_SubscriberHandle subscriber;
    const char *path = getenv("GM_CUPTI");
    void *cupti = NULL;
    /* The one that the program has already: there must not be two. */
    for (size_t i = 0; cupti == NULL && i < sizeof(names) / sizeof(names[0]); i++)
        cupti = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    if (cupti == NULL && path != NULL && path[0] != '\0')
        cupti = dlopen(path, RTLD_NOW);
    for (size_t i = 0; cupti == NULL && i < sizeof(names) / sizeof(names[0]); i++)
        cupti = dlopen(names[i], RTLD_NOW);
    if (cupti == NULL)
        return "no libcupti.so is to be found";
    GM_FIND(cuptiSubscribe);
    GM_FIND(cuptiEnableDomain);
    GM_FIND(cuptiGetCallbackName);
    if (p_cuptiSubscribe == NULL || p_cuptiEnableDomain == NULL || p_cuptiGetCallbackName == NULL)
        return "libcupti.so lacks a call";
    for (uint32_t id = 1; id < GM_SEEN_CALLS; id++) {
        const char *name = NULL;
        if (p_cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) != CUPTI_SUCCESS ||
            name == NULL)
            continue;
        snprintf(gm_seen->call[id].name, sizeof(gm_seen->call[id].name), "%s", name);
        gm_seen->call[id].kind = gm_kind_of(name);
    }
    CUptiResult result = p_cuptiSubscribe(&subscriber, gm_on_call, NULL);
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        return "another tool has CUPTI";
    if (result != CUPTI_SUCCESS)
        return "cuptiSubscribe failed";
    if (p_cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS)
        return "cuptiEnableDomain failed";
    return NULL;
}

GM_VISIBLE int InitializeInjection(void);
GM_VISIBLE int InitializeInjection(void)
{
    gm_seen = gm_make_file();
    if (gm_seen == NULL)
        return 0;
    const char *why = gm_find_shim();
    if (why == NULL)
        why = gm_subscribe();
    if (why != NULL)
        snprintf(gm_seen->why, sizeof(gm_seen->why), "%s", why);
    return 1;
}
