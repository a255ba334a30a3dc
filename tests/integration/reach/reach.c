/*
 * Who gets a wrapper and who does not, for every way of looking a function up. Runs with the shim
 * preloaded and the test double as libcuda.so.1 (CMakeLists.txt). Usage: reach CASE.
 */
#include "reach.h"

#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

enum mode { ANY, LEGACY, PTDS, PTSZ };

static const struct row {
    const char *api, *symbol;
    int since;
    enum mode mode;
} hooks[] = {
#define GM_HOOK(api, symbol, since, mode, kind, params, args) {#api, #symbol, since, mode},
#include "shim/driver/hooks.def"
#undef GM_HOOK
};
#define HOOKS (sizeof(hooks) / sizeof(hooks[0]))

typedef CUresult (*get_proc_4)(const char *, void **, int, cuuint64_t);
typedef CUresult (*get_proc_5)(const char *, void **, int, cuuint64_t,
                               CUdriverProcAddressQueryResult *);

#ifndef GM_REACH_LINKED
int reach_probe(int depth);
int cuReachProbe(int depth);
void *reach_next_grid(void);
#endif

static void *driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return library;
}

/* The resolver that the program gets to see, with the shim in front of it. */
static void *resolver(const char *name)
{
#ifdef GM_REACH_LINKED
    return dlsym(RTLD_DEFAULT, name);
#else
    return dlsym(driver(), name);
#endif
}

static cuuint64_t flags_of(enum mode mode)
{
    return mode == PTDS || mode == PTSZ ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
}

#ifndef GM_REACH_LINKED
/* Another library's use of RTLD_NEXT and RTLD_DEFAULT is as if the shim were not there. */
static void test_next(void)
{
    int found = reach_probe(0);
    CHECK(found == 11, "%d", found);
    found = cuReachProbe(0);
    CHECK(found == 11, "%d", found);
    for (int round = 0; round < 2; round++) {
        CHECK(strcmp(gm_owner(reach_next_grid()), "libreach_last.so") == 0, "a hooked name: %s",
              gm_owner(reach_next_grid()));
        driver(); /* once before the driver is there, once after */
    }
    CHECK(strcmp(gm_owner(dlsym(RTLD_DEFAULT, "reach_probe")), "libreach_next.so") == 0,
          "RTLD_DEFAULT finds the first");
    CHECK(strcmp(gm_owner(dlsym(RTLD_NEXT, "reach_probe")), "libreach_next.so") == 0,
          "RTLD_NEXT of the program finds what comes behind it");
    CHECK(gm_in_shim(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), "found as the linker would find it");
    CHECK(!dlsym(RTLD_DEFAULT, "cuReachNoSuch"), "there is none");
}

/* Every hooked symbol of the driver, and nothing else of it. */
static void test_handle(void)
{
    void *library = driver();

    for (size_t i = 0; i < HOOKS; i++) {
        void *found = dlsym(library, hooks[i].symbol);
        CHECK(gm_is_wrapper(found, hooks[i].symbol), "%s from %s", hooks[i].symbol,
              gm_owner(found));
    }
    static const char *const others[] = {"cuDriverGetVersion", "cuMemFreeHost", "cuEventRecord",
                                         "reach_resolve"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        CHECK(gm_in_driver(dlsym(library, others[i])), "%s", others[i]);
    CHECK(!dlsym(library, "cuNoSuchFunction"), "there is none");
    CHECK(!dlsym(library, ""), "there is none");
}

/* Names that only look like the driver's, in a library that is not the driver. */
static void test_foreign(void)
{
    static const char *const names[] = {
        "cudnnReach",    "cuReach",   "custom", "cu",
        "cuMemAlloc_v2", "nvmlReach", "nvml",   "nvmlDeviceGetMemoryInfo"};
    void *library = dlopen("libreach_foreign.so", RTLD_NOW | RTLD_LOCAL);

    CHECK(library, "%s", dlerror());
    for (int round = 0; library && round < 2; round++) {
        for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
            int (*function)(void) = (int (*)(void))dlsym(library, names[i]);
            CHECK(function && function() == i + 1, "%s", names[i]);
        }
        driver(); /* once before the driver and NVML are there, once after */
        dlopen(GM_REACH_NVML, RTLD_NOW | RTLD_LOCAL);
    }
}

/* The handled calls of NVML, and nothing else of it; with and without a libcuda.so.1. */
static void test_nvml(void)
{
    static const char *const hooked[] = {
#define GM_NVML(symbol, params) #symbol,
#include "shim/entry/nvml.def"
#undef GM_NVML
    };
    static const char *const others[] = {"nvmlInit_v2", "nvmlDeviceGetUUID", "nvmlShutdown"};
    long page = sysconf(_SC_PAGESIZE);
    char *pages =
        mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(!dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD), "nobody loaded it");
    int (*linked)(void *, void *) = (int (*)(void *, void *))dlsym(RTLD_DEFAULT, hooked[0]);
    CHECK(gm_in_shim((void *)linked) && linked(NULL, NULL) == 12, "as the linker would find it");
    CHECK(!dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD), "the shim loaded it");
    void *library = dlopen(GM_REACH_NVML, RTLD_NOW | RTLD_LOCAL);
    CHECK(library, "%s", dlerror());
    for (int round = 0; library && round < 2; round++) {
        for (size_t i = 0; i < sizeof(hooked) / sizeof(hooked[0]); i++)
            CHECK(gm_is_wrapper(dlsym(library, hooked[i]), hooked[i]), "%s from %s", hooked[i],
                  gm_owner(dlsym(library, hooked[i])));
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            CHECK(strncmp(gm_owner(dlsym(library, others[i])), "libnvidia-ml.so", 15) == 0, "%s",
                  others[i]);
        CHECK(!dlsym(library, "nvmlNoSuchFunction"), "there is none");
        const char *text = dlerror();
        CHECK(text && strstr(text, "nvmlNoSuchFunction"), "%s", text ? text : "no text");
        CHECK(linked(NULL, NULL) == 1, "NVML's own word: not initialized");
        driver(); /* once before the driver is there, once after */
    }
    /* Names that end with a page are read no further. */
    CHECK(pages != MAP_FAILED && munmap(pages + page, (size_t)page) == 0, "memory");
    static const char *const ends[] = {"", "n", "nv", "nvm", "nvml", "c", "cu", "nvmlI", "cuI"};
    for (size_t i = 0; library && i < sizeof(ends) / sizeof(ends[0]); i++) {
        char *name = pages + page - strlen(ends[i]) - 1;
        strcpy(name, ends[i]);
        CHECK(!dlsym(library, name), "\"%s\": there is none", ends[i]);
    }
}

/* dlerror() speaks of the caller's look-up, whatever the shim looked up in between. */
static void test_dlerror(void)
{
    void *library = driver();

    (void)dlerror();
    CHECK(dlsym(library, "cuMemAlloc_v2"), "the first look-up resolves the driver");
    const char *text = dlerror();
    CHECK(!text, "%s", text);
    CHECK(!dlsym(library, "cuNoSuchFunction"), "there is none");
    text = dlerror();
    CHECK(text && strstr(text, "cuNoSuchFunction"), "%s", text ? text : "no text");
    CHECK(!dlerror(), "said once");
    CHECK(!dlsym(dlopen("libreach_foreign.so", RTLD_NOW), "cuMemFree_v2"), "there is none");
    text = dlerror();
    CHECK(text && strstr(text, "cuMemFree_v2"), "%s", text ? text : "no text");
}

#if defined(__x86_64__)
/* A program built long ago, when dlsym was in libdl. */
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
void *old_dlsym(void *handle, const char *name);

static void test_version(void)
{
    CHECK(gm_is_wrapper(old_dlsym(driver(), "cuMemAlloc_v2"), "cuMemAlloc_v2"), "old reference");
    CHECK(gm_is_wrapper(dlsym(driver(), "cuMemAlloc_v2"), "cuMemAlloc_v2"), "new reference");
}
#else
static void test_version(void)
{
    CHECK(gm_is_wrapper(dlsym(driver(), "cuMemAlloc_v2"), "cuMemAlloc_v2"), "reference");
}
#endif

/* The first look-ups of a process, from several threads at once. */
static void *look_up(void *library)
{
    uintptr_t wrong = 0;
    for (size_t i = 0; i < HOOKS; i++)
        wrong += !gm_is_wrapper(dlsym(library, hooks[i].symbol), hooks[i].symbol);
    return (void *)wrong;
}

static void test_threads(void)
{
    pthread_t thread[8];
    void *library = driver();

    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&thread[i], NULL, look_up, library) == 0, "thread %d", i);
    for (int i = 0; i < 8; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        CHECK(!wrong, "thread %d: %zu symbols", i, (size_t)(uintptr_t)wrong);
    }
}
#endif

/* Every row, asked for by (api, version, stream mode), with both resolvers. */
static void test_proc_rows(void)
{
    get_proc_4 get_4 = (get_proc_4)resolver("cuGetProcAddress");
    get_proc_5 get_5 = (get_proc_5)resolver("cuGetProcAddress_v2");

    for (size_t i = 0; i < HOOKS; i++) {
        const struct row *row = &hooks[i];
        void *found = NULL;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        CUresult result = get_5(row->api, &found, row->since, flags_of(row->mode), &status);
        CHECK(result == CUDA_SUCCESS && gm_is_wrapper(found, row->symbol), "%s %d: %d, from %s",
              row->api, row->since, result, gm_owner(found));
        CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS, "%s: %d", row->api, status);
        found = NULL;
        result = get_4(row->api, &found, row->since, flags_of(row->mode));
        CHECK(result == CUDA_SUCCESS && gm_is_wrapper(found, row->symbol), "%s %d: %d, from %s",
              row->api, row->since, result, gm_owner(found));
    }
}

/* The same from several threads at once, as the first that the process does. */
static void *ask_rows(void *unused)
{
    test_proc_rows();
    return unused;
}

static void test_proc_threads(void)
{
    pthread_t thread[8];

    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&thread[i], NULL, ask_rows, NULL) == 0, "thread %d", i);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
}

static void expect(get_proc_5 get, const char *api, int version, cuuint64_t flags,
                   const char *symbol)
{
    void *found = NULL;
    CUresult result = get(api, &found, version, flags, NULL);
    CHECK(result == CUDA_SUCCESS && gm_is_wrapper(found, symbol), "%s %d: %d, %p from %s", api,
          version, result, found, gm_owner(found));
}

/* Versions between the rows, awkward arguments, and a driver that is newer than the table. */
static void test_proc(void)
{
    enum { LEGACY_FLAG = CU_GET_PROC_ADDRESS_LEGACY_STREAM };
    enum { OWN = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
    void *library = driver();
    get_proc_5 get = (get_proc_5)resolver("cuGetProcAddress_v2");
    get_proc_5 real = (get_proc_5)dlsym(library, "reach_resolve");
    CUdriverProcAddressQueryResult status;
    void *found, *other;

    expect(get, "cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    expect(get, "cuGetProcAddress", 11080, 0, "cuGetProcAddress");
    expect(get, "cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    expect(get, "cuGetProcAddress", 13000, OWN, "cuGetProcAddress_v2");
    expect(get, "cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    expect(get, "cuMemAlloc", 13000, OWN, "cuMemAlloc_v2");
    expect(get, "cuMemcpyHtoD", 13000, 0, "cuMemcpyHtoD_v2");
    expect(get, "cuMemcpyHtoD", 13000, LEGACY_FLAG, "cuMemcpyHtoD_v2");
    expect(get, "cuMemcpyHtoD", 13000, OWN, "cuMemcpyHtoD_v2_ptds");
    expect(get, "cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync");
    expect(get, "cuMemcpyBatchAsync", 12090, OWN, "cuMemcpyBatchAsync_ptsz");
    expect(get, "cuMemcpyBatchAsync", 13000, 0, "cuMemcpyBatchAsync_v2");
    expect(get, "cuMemcpyBatchAsync", 13010, OWN, "cuMemcpyBatchAsync_v2_ptsz");
    expect(get, "cuCtxCreate", 11030, 0, "cuCtxCreate_v2");
    expect(get, "cuCtxCreate", 12040, 0, "cuCtxCreate_v3");
    expect(get, "cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
    expect(get, "cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture");
    expect(get, "cuLaunchKernel", GM_REACH_FUTURE - 1, 0, "cuLaunchKernel");
    expect(get, "cuMemGetInfo_v2", 13000, 0, "cuMemGetInfo_v2");

    /* Other addresses than the exported ones: version and mode say which function it is. */
    found = other = NULL;
    CHECK(real("cuMemsetD8", &other, 13000, 0, NULL) == CUDA_SUCCESS &&
              other != dlsym(library, "cuMemsetD8_v2"),
          "the double answers with an address of its own");
    expect(get, "cuMemsetD8", 3020, 0, "cuMemsetD8_v2");
    expect(get, "cuMemsetD8", 13000, 0, "cuMemsetD8_v2");
    expect(get, "cuMemsetD8", 13000, OWN, "cuMemsetD8_v2_ptds");

    /* An ABI that the table does not know. */
    CHECK(get("cuLaunchKernel", &found, GM_REACH_FUTURE, 0, NULL) == CUDA_SUCCESS &&
              gm_in_driver(found),
          "from %s", gm_owner(found));

    /* What is not hooked is the driver's. */
    CHECK(get("cuDriverGetVersion", &found, 13000, 0, NULL) == CUDA_SUCCESS && gm_in_driver(found),
          "cuDriverGetVersion");
    CHECK(get("cuEventRecord", &found, 13000, 0, NULL) == CUDA_SUCCESS && gm_in_driver(found),
          "cuEventRecord");

    /* What the driver does not have it does not have, in its words. */
    static const struct {
        const char *name;
        int version;
        cuuint64_t flags;
    } refused[] = {{"", 0, 0},         {"", 13000, OWN},           {NULL, 13000, 0},
                   {"cuNo", 13000, 0}, {"cuMemAlloc", 3000, 0},    {"cuMemAlloc", -1, 0},
                   {"cu", 13000, OWN}, {"cuMemcpyHtoD", 4000, OWN}};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CUdriverProcAddressQueryResult theirs = 77;
        status = 77;
        found = other = (void *)&status;
        CUresult result =
            get(refused[i].name, &found, refused[i].version, refused[i].flags, &status);
        CHECK(result ==
                  real(refused[i].name, &other, refused[i].version, refused[i].flags, &theirs),
              "case %zu: %d", i, result);
        CHECK(found == other && status == theirs && !(result == CUDA_SUCCESS && found),
              "case %zu: %p, %d", i, found, status);
    }
    CHECK(get("cuMemAlloc", NULL, 13000, 0, &status) == CUDA_ERROR_INVALID_VALUE, "no place");
}

/* As many look-ups as cudart makes before cuInit must not be felt. */
static void test_speed(void)
{
    void *library = driver();
    get_proc_5 get = (get_proc_5)resolver("cuGetProcAddress_v2");
    get_proc_5 real = (get_proc_5)dlsym(library, "reach_resolve");
    double us[2] = {1e9, 1e9};

    for (int round = 0; round < 10; round++) { /* the best of ten: the machine may be busy */
        for (int which = 0; which < 2; which++) {
            get_proc_5 ask = which ? get : real;
            struct timespec start, end;
            clock_gettime(CLOCK_MONOTONIC, &start);
            for (size_t i = 0; i < 440; i++) {
                void *found = NULL;
                ask(hooks[i % HOOKS].api, &found, 13000, flags_of(hooks[i % HOOKS].mode), NULL);
            }
            clock_gettime(CLOCK_MONOTONIC, &end);
            double took = (double)(end.tv_sec - start.tv_sec) * 1e6 +
                          (double)(end.tv_nsec - start.tv_nsec) * 1e-3;
            us[which] = took < us[which] ? took : us[which];
        }
    }
    printf("440 look-ups: %.0f us, of which the driver's own %.0f us\n", us[1], us[0]);
    CHECK(us[1] - us[0] < 1000, "%.0f us", us[1] - us[0]);
}

#ifndef GM_REACH_LINKED
/* GPUMUX_DISABLE=1: look-ups are as without the shim. */
static void test_disabled(void)
{
    void *library = driver();
    get_proc_5 get = (get_proc_5)dlsym(library, "cuGetProcAddress_v2");

    CHECK(gm_in_driver((void *)get), "from %s", gm_owner((void *)get));
    CHECK(gm_in_driver(dlsym(library, "cuMemAlloc_v2")), "by name");
    get = (get_proc_5)dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    CHECK(gm_in_shim((void *)get), "the shim still exports it");
    for (size_t i = 0; get && i < HOOKS; i++) {
        void *found = NULL;
        CHECK(get(hooks[i].api, &found, hooks[i].since, flags_of(hooks[i].mode), NULL) ==
                      CUDA_SUCCESS &&
                  gm_in_driver(found),
              "%s from %s", hooks[i].api, gm_owner(found));
    }
}

/* A machine without the driver: names resolve, since the shim exports them, and calls fail softly.
 */
static void test_no_driver(void)
{
    void *found = NULL;
    CUresult (*query)(CUstream) = (CUresult(*)(CUstream))dlsym(RTLD_DEFAULT, "cuStreamQuery");
    get_proc_5 get = (get_proc_5)dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");

    if (dlopen("libcuda.so.1", RTLD_NOW)) {
        printf("skipped: this machine has a driver\n");
        exit(77);
    }
    CHECK(query && query(NULL) == CUDA_ERROR_NO_DEVICE, "query");
    CHECK(get && get("cuDriverGetVersion", &found, 2000, 0, NULL) == CUDA_ERROR_NO_DEVICE && !found,
          "get");
    CHECK(!dlsym(RTLD_DEFAULT, "cuDriverGetVersion"), "not hooked, so nobody has it");
}
#endif

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"proc_rows", test_proc_rows}, {"proc_threads", test_proc_threads},
        {"proc", test_proc},           {"speed", test_speed},
#ifndef GM_REACH_LINKED
        {"next", test_next},           {"handle", test_handle},
        {"foreign", test_foreign},     {"dlerror", test_dlerror},
        {"version", test_version},     {"threads", test_threads},
        {"nvml", test_nvml},           {"disabled", test_disabled},
        {"no_driver", test_no_driver},
#endif
    };

    for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            printf("%s: %s\n", argv[1], gm_failed ? "failed" : "passed");
            return gm_failed ? 1 : 0;
        }
    }
    printf("usage: reach CASE\n");
    return 2;
}
