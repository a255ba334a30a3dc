/*
 * The tables of the shim are complete and agree with what is built: every typed pointer of NVIDIA's
 * headers has exactly one row in hooks.def, pass.def or interop.def, and libgpumux.so exports the
 * symbols of hooks.def, dlsym, dlopen and ioctl, and nothing else. (That types agree is the compiler's
 * work, in shim/entry/wrap.c.)
 */
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* The toolkit that the tables were written for: its typed pointers must all be there. Newer ones
 * are named, and are no error: the shim passes through what it does not know. */
#define TABLE_VERSION 13000u

enum mode { ANY, LEGACY, PTDS, PTSZ };
static const char *const suffix[] = {"", "", "_ptds", "_ptsz"};

enum reason {
#define GM_REASON(name, text) WHY_##name,
#define GM_PASS(api, symbol, since, mode, reason)
#include "shim/driver/pass.def"
#define GM_REASON(name, text) WHY_##name,
#include "shim/driver/interop.def"
#undef GM_PASS
    N_REASONS
};
static const char *const reasons[] = {
#define GM_REASON(name, text) [WHY_##name] = (text),
#define GM_PASS(api, symbol, since, mode, reason)
#include "shim/driver/pass.def"
#define GM_REASON(name, text) [WHY_##name] = (text),
#include "shim/driver/interop.def"
#undef GM_PASS
};

static const struct row {
    const char *api, *symbol;
    unsigned since;
    enum mode mode;
    bool is_hook;
    enum reason reason;
} rows[] = {
#define GM_HOOK(api, symbol, since, mode, kind, params, args) {#api, #symbol, since, mode, true, 0},
#include "shim/driver/hooks.def"
#undef GM_HOOK
#define GM_PASS(api, symbol, since, mode, reason) {#api, #symbol, since, mode, false, WHY_##reason},
#include "shim/driver/pass.def"
#include "shim/driver/interop.def"
#undef GM_PASS
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *const nvml[] = {
#define GM_NVML(symbol, params) #symbol,
#include "shim/entry/nvml.def"
#undef GM_NVML
};
#define NVML (sizeof(nvml) / sizeof(nvml[0]))

static const char *const own[] = {
#define GM_OWN(api, symbol, since) #symbol,
#include "shim/driver/own.def"
#undef GM_OWN
};

/* A whole file, NUL-terminated, until the program ends. */
static char *read_file(const char *path, size_t *size)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &info) != 0)
        fail_msg("cannot read %s", path);
    char *text = test_malloc((size_t)info.st_size + 1);
    ssize_t got = read(fd, text, (size_t)info.st_size);
    close(fd);
    if (got != info.st_size)
        fail_msg("cannot read all of %s", path);
    text[got] = 0;
    *size = (size_t)got;
    return text;
}

/* Is `name` PFN_<api>_v<since><suffix> of the row? */
static bool is_type_of(const char *name, size_t length, const struct row *row)
{
    char type[160];
    int n = snprintf(type, sizeof(type), "PFN_%s_v%u%s", row->api, row->since, suffix[row->mode]);
    return n > 0 && (size_t)n == length && memcmp(type, name, length) == 0;
}

/* The version in "PFN_cuX_v12080_ptsz". */
static unsigned version_of(const char *name, size_t length)
{
    for (size_t i = length; i > 2; i--)
        if (name[i - 2] == '_' && name[i - 1] == 'v')
            return (unsigned)strtoul(name + i, NULL, 10);
    return 0;
}

static size_t n_seen[ROWS]; /* how many typed pointers each row is */

/* Every typed pointer in `header` has one row. Returns how many there are. */
static size_t check_header(const char *header)
{
    char path[4096];
    size_t size, n = 0, missing = 0;

    snprintf(path, sizeof(path), "%s/%s", GM_CUDA_HEADERS, header);
    char *text = read_file(path, &size);
    for (char *at = text; (at = strstr(at, "*PFN_cu"));) {
        const char *name = ++at;
        size_t length =
            strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
        size_t matches = 0;
        n++;
        for (size_t i = 0; i < ROWS; i++) {
            if (is_type_of(name, length, &rows[i])) {
                matches++;
                n_seen[i]++;
            }
        }
        if (matches == 0 && version_of(name, length) > TABLE_VERSION) {
            print_message("newer than the tables: %.*s\n", (int)length, name);
        } else if (matches != 1) {
            print_error("%.*s has %zu rows\n", (int)length, name, matches);
            missing++;
        }
    }
    test_free(text);
    assert_int_equal(missing, 0);
    return n;
}

static void test_every_pointer_has_a_row(void **state)
{
    (void)state;
    memset(n_seen, 0, sizeof(n_seen));
    size_t n = check_header("cudaTypedefs.h");
    assert_true(n > 600);
    assert_true(check_header("cudaProfilerTypedefs.h") >= 3);
    assert_true(check_header("cudaGLTypedefs.h") >= 10);
    assert_true(check_header("cudaEGLTypedefs.h") >= 10);
    assert_true(check_header("cudaVDPAUTypedefs.h") >= 4);
    for (size_t i = 0; i < ROWS; i++)
        if (n_seen[i] != 1)
            fail_msg("row %s is %zu typed pointers", rows[i].symbol, n_seen[i]);
}

static void test_rows_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(rows[i].symbol, rows[j].symbol) == 0)
                fail_msg("%s has two rows", rows[i].symbol);
            if (strcmp(rows[i].api, rows[j].api) == 0 && rows[i].since == rows[j].since &&
                rows[i].mode == rows[j].mode)
                fail_msg("%s and %s are the same typed pointer", rows[i].symbol, rows[j].symbol);
        }
    }
}

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* A mode says what the symbol's name says, and LEGACY that there is a per-thread form beside it. */
static void test_modes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        bool is_own = rows[i].mode == PTDS || rows[i].mode == PTSZ, has_own = false;
        if (is_own ? !ends_in(rows[i].symbol, suffix[rows[i].mode])
                   : ends_in(rows[i].symbol, "_ptds") || ends_in(rows[i].symbol, "_ptsz"))
            fail_msg("%s: wrong mode", rows[i].symbol);
        if (strncmp(rows[i].symbol, rows[i].api, strlen(rows[i].api)) != 0)
            fail_msg("%s is no form of %s", rows[i].symbol, rows[i].api);
        for (size_t j = 0; j < ROWS; j++)
            has_own |= strcmp(rows[i].api, rows[j].api) == 0 &&
                       (rows[j].mode == PTDS || rows[j].mode == PTSZ);
        if ((rows[i].mode == ANY) == has_own)
            fail_msg("%s: ANY means that there is no per-thread form", rows[i].symbol);
    }
}

/* Every per-thread form is treated as its sibling is: a program must not escape by a compiler flag.
 */
static void test_siblings(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        char base[128];
        size_t length = strlen(rows[i].symbol);
        if (rows[i].mode != PTDS && rows[i].mode != PTSZ)
            continue;
        snprintf(base, sizeof(base), "%.*s", (int)(length - 5), rows[i].symbol);
        const struct row *sibling = NULL;
        for (size_t j = 0; j < ROWS; j++)
            if (strcmp(rows[j].symbol, base) == 0)
                sibling = &rows[j];
        if (!sibling || sibling->is_hook != rows[i].is_hook)
            fail_msg("%s and %s are not treated alike", rows[i].symbol, base);
    }
}

static void test_reasons(void **state)
{
    bool is_used[N_REASONS] = {false};

    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        if (!rows[i].is_hook)
            is_used[rows[i].reason] = true;
    for (size_t i = 0; i < N_REASONS; i++) {
        if (!reasons[i] || strlen(reasons[i]) < 20)
            fail_msg("reason %zu says nothing", i);
        if (!is_used[i])
            fail_msg("nobody has the reason \"%s\"", reasons[i]);
        for (size_t j = 0; j < i; j++)
            if (strcmp(reasons[i], reasons[j]) == 0)
                fail_msg("twice the reason \"%s\"", reasons[i]);
    }
}

/* What the shim calls for itself is not what it hooks. */
static void test_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        const struct row *row = NULL;
        for (size_t j = 0; j < ROWS; j++)
            if (strcmp(rows[j].symbol, own[i]) == 0)
                row = &rows[j];
        if (!row || row->is_hook)
            fail_msg("%s belongs in pass.def too", own[i]);
    }
}

/* The built library, as the dynamic linker sees it. */
static struct library {
    const char *bytes;
    const Elf64_Shdr *section;
    size_t n_sections;
} library;

static const Elf64_Shdr *find_section(uint32_t type)
{
    for (size_t i = 0; i < library.n_sections; i++)
        if (library.section[i].sh_type == type)
            return &library.section[i];
    return NULL;
}

static int open_library(void **state)
{
    size_t size;
    (void)state;
    library.bytes = read_file(GM_LIBRARY, &size);
    const Elf64_Ehdr *head = (const void *)library.bytes;
    if (size < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64)
        return -1;
    library.section = (const void *)(library.bytes + head->e_shoff);
    library.n_sections = head->e_shnum;
    return 0;
}

static int close_library(void **state)
{
    (void)state;
    test_free((void *)library.bytes);
    return 0;
}

/* hooks.def, nvml.def, dlsym, dlopen, ioctl and the symbols of include/gpumux.h are exported, and
 * nothing else. */
static void test_exports(void **state)
{
    const Elf64_Shdr *table = find_section(SHT_DYNSYM);
    size_t n_hooks = 0, n_exports = 0;

    (void)state;
    assert_non_null(table);
    const Elf64_Sym *symbol = (const void *)(library.bytes + table->sh_offset);
    const char *names = library.bytes + library.section[table->sh_link].sh_offset;
    for (size_t i = 0; i < table->sh_size / sizeof(*symbol); i++) {
        const char *name = names + symbol[i].st_name;
        bool is_expected = strcmp(name, "dlsym") == 0 || strcmp(name, "dlopen") == 0 ||
                           strcmp(name, "ioctl") == 0 || strcmp(name, "gpumux_state_") == 0 ||
                           strcmp(name, "gpumux_expect") == 0;
        if (symbol[i].st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol[i].st_info) == STB_LOCAL)
            continue;
        n_exports++;
        for (size_t j = 0; j < ROWS; j++)
            is_expected |= rows[j].is_hook && strcmp(rows[j].symbol, name) == 0;
        for (size_t j = 0; j < NVML; j++)
            is_expected |= strcmp(nvml[j], name) == 0;
        if (!is_expected)
            fail_msg("%s is exported", name);
        assert_int_equal(ELF64_ST_TYPE(symbol[i].st_info), STT_FUNC);
    }
    for (size_t i = 0; i < ROWS; i++)
        n_hooks += rows[i].is_hook;
    assert_int_equal(n_exports, n_hooks + NVML + 5);
    /* Unversioned, so that dlsym satisfies references of every version. */
    assert_null(find_section(SHT_GNU_verdef));
}

/* It needs the C library and nothing else: above all no CUDA. */
static void test_needed(void **state)
{
    static const char *const allowed[] = {"libc.so",  "ld-linux",      "libdl.so",
                                          "librt.so", "libpthread.so", "libgcc_s.so"};
    const Elf64_Shdr *table = find_section(SHT_DYNAMIC);
    size_t n = 0;

    (void)state;
    assert_non_null(table);
    const char *names = library.bytes + library.section[table->sh_link].sh_offset;
    const Elf64_Dyn *entry = (const void *)(library.bytes + table->sh_offset);
    for (; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag != DT_NEEDED)
            continue;
        const char *name = names + entry->d_un.d_val;
        bool is_allowed = false;
        n++;
        for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
            is_allowed |= strncmp(name, allowed[i], strlen(allowed[i])) == 0;
#ifdef GM_HAS_SANITIZER
        is_allowed |= strncmp(name, "libasan", 7) == 0 || strncmp(name, "libubsan", 8) == 0 ||
                      strncmp(name, "libtsan", 7) == 0;
#endif
        if (!is_allowed)
            fail_msg("it needs %s", name);
    }
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pointer_has_a_row),
        cmocka_unit_test(test_rows_differ),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_siblings),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_own),
        cmocka_unit_test_setup_teardown(test_exports, open_library, close_library),
        cmocka_unit_test_setup_teardown(test_needed, open_library, close_library),
    };
    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
