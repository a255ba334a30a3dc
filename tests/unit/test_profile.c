/*
 * common/profile and common/templates: what a profile says comes back as it was written; what is
 * cut, newer, hostile or damaged in any byte is refused with a reason or read as something legal;
 * amounts and rows are what the model says, and never overflow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "common/profile.h"
#include "common/tensors.h"

static const char good[] = "gpumux-profile 1\n"
                           "kernel 00000000000000a1 32 120 4 130 0 _Z3addPfS_i\n"
                           "touch 0 0 0+4/1*w16 0 1\n"
                           "touch 8 -512 4096+34/32*d24*gx*bz 65536 0+1/1*w20\n"
                           "none 32\n"
                           "other 40\n"
                           "kernel 0000000000000007 0 1 65535 65535 2097152 gather\n"
                           "end 2\n";

static char why[200];

static bool parse(const char *text, struct gm_profile *profile)
{
    return gm_profile_parse(text, strlen(text), profile, why, sizeof why);
}

/* Refused, and the reason says so. */
static void refuse(const char *text, const char *reason)
{
    struct gm_profile profile;
    why[0] = '\0';
    assert_false(parse(text, &profile));
    assert_int_equal(profile.n, 0);
    assert_null(profile.kernels);
    if (strstr(why, reason) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", why, reason);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct gm_profile profile;
    assert_true(parse(good, &profile));
    assert_int_equal(profile.n, 2);
    assert_null(gm_profile_find(&profile, 8));
    const struct gm_profile_kernel *kernel = gm_profile_find(&profile, 0xa1);
    assert_non_null(kernel);
    assert_string_equal(kernel->name, "_Z3addPfS_i");
    assert_int_equal(kernel->registers, 32);
    assert_int_equal(kernel->launches, 120);
    assert_int_equal(kernel->missed, 4);
    assert_int_equal(kernel->excess, 130);
    assert_int_equal(kernel->n, 4);
    assert_int_equal(gm_template_kind(&kernel->arguments[0].template), GM_TEMPLATE_LINEAR);
    assert_int_equal(gm_template_kind(&kernel->arguments[1].template), GM_TEMPLATE_STRIDED);
    assert_int_equal(kernel->arguments[2].how, GM_PROFILE_NONE);
    assert_int_equal(kernel->arguments[3].how, GM_PROFILE_OTHER);
    assert_int_equal(gm_profile_find(&profile, 7)->unnamed, 2097152);

    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_true(gm_profile_write(file, &profile));
    fclose(file);
    gm_profile_free(&profile);
    struct gm_profile again;
    assert_true(parse(text, &again)); /* sorted by hash, so not the same text */
    assert_int_equal(again.n, 2);
    assert_non_null(strstr(text, "touch 8 -512 4096+34/32*d24*gx*bz 65536 0+1/1*w20\n"));
    free(text);
    gm_profile_free(&again);
}

static void test_refused(void **state)
{
    (void)state;
    char text[4096];
    refuse("", "cut, or empty");
    refuse("\n", "not a profile");
    refuse("gpumux-profile 2\nend 0\n", "version 2");
    refuse("gpumux-profile 99999999999\nend 0\n", "not a profile");
    refuse("gpumux-profile 1\n", "cut");
    refuse("gpumux-profile 1\nend 1\n", "0 kernels");
    refuse("gpumux-profile 1\nend 0\nend 0\n", "line 3");
    refuse("gpumux-profile 1\ntouch 0 0 1 0 1\nend 0\n", "no kernel");
    refuse("gpumux-profile 1\nwhat 0\nend 0\n", "line 2");
#define KERNEL "gpumux-profile 1\nkernel 00000000000000a1 32 1 0 0 0 k\n"
    refuse(KERNEL "touch 4 0 1 0 1\nend 1\n", "line 3 is not what kernel k touches");
    refuse(KERNEL "touch 32768 0 1 0 1\nend 1\n", "line 3");
    refuse(KERNEL "touch 8 0 1 0 1\nnone 8\nend 1\n", "line 4");
    refuse(KERNEL "touch 0 0 1/2*gx 0 1\nend 1\n", "line 3");
    refuse(KERNEL "touch 0 0 0+1/0*gx 0 1\nend 1\n", "line 3");
    refuse(KERNEL "touch 0 0 0+1/1*gx*gx*gx*gx 0 1\nend 1\n", "line 3");
    refuse(KERNEL "touch 0 0 0+1/1*w3 0 1\nend 1\n", "line 3");
    refuse(KERNEL "touch 0 0 0+1/1*w32760 0 1\nend 1\n", "line 3"); /* would be gx */
    refuse(KERNEL "touch 0 0 9223372036854775808 0 1\nend 1\n", "line 3");
    refuse(KERNEL "touch 0 --1 1 0 1\nend 1\n", "line 3");
    refuse(KERNEL "kernel 00000000000000a1 32 1 0 0 0 l\nend 2\n", "twice");
    refuse("gpumux-profile 1\nkernel a1 32 1 0 0 0 k\nend 1\n", "line 2 is not a kernel");
    refuse("gpumux-profile 1\nkernel 00000000000000a1 32 1 0 0 0 k\x1b[1m\nend 1\n", "line 2");
    size_t at = (size_t)snprintf(text, sizeof text, KERNEL);
    for (unsigned i = 0; i <= GM_PROFILE_ARGUMENTS; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "none %u\n", 8 * i);
    snprintf(text + at, sizeof text - at, "end 1\n");
    refuse(text, "more than 64 arguments");
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    refuse(text, "too long");
}

/* Each byte lost, each cut, and 20,000 damaged texts: refused with a reason, or legal. */
static void test_damaged(void **state)
{
    (void)state;
    const size_t size = sizeof good - 1;
    struct gm_profile profile;
    for (size_t length = 0; length < size; length++) {
        const bool is_good = gm_profile_parse(good, length, &profile, why, sizeof why);
        assert_false(is_good);
    }
    uint64_t random = 1;
    unsigned accepted = 0;
    for (unsigned round = 0; round < 20000; round++) {
        char *text = malloc(size); /* its end is watched by the sanitizer */
        memcpy(text, good, size);
        for (unsigned i = 0; i <= round % 3; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            text[(random >> 33) % size] = "0123456789 \n/+*-wdgx\0\xff"[(random >> 20) % 22];
        }
        why[0] = '\0';
        if (gm_profile_parse(text, size, &profile, why, sizeof why)) {
            accepted++;
            const unsigned char words[64] = {1, 2, 3};
            const struct gm_arguments arguments = {{1, 2, 3, 4, 5, 6}, sizeof words, words};
            for (uint32_t k = 0; k < profile.n; k++)
                for (uint32_t i = 0; i < profile.kernels[k].n; i++) {
                    struct gm_rows rows;
                    gm_template_rows(&profile.kernels[k].arguments[i].template, &arguments, &rows);
                }
            gm_profile_free(&profile);
        } else {
            assert_true(why[0] != '\0');
        }
        free(text);
    }
    assert_in_range(accepted, 1, 19999);
}

static struct gm_template template_of(const char *line)
{
    char text[400];
    struct gm_profile profile;
    snprintf(text, sizeof text, KERNEL "touch %s\nend 1\n", line);
    if (!parse(text, &profile))
        fail_msg("%s: %s", line, why);
    struct gm_template template = profile.kernels[0].arguments[0].template;
    gm_profile_free(&profile);
    return template;
}

static void test_rows(void **state)
{
    (void)state;
    struct {
        uint64_t base, other;
        uint32_t n, m;
        uint64_t wide;
    } words = {0x7f0000000000, 0x7f0040000000, 1000, 7, 1ull << 40};
    const struct gm_arguments arguments = {
        {10, 2, 1, 256, 1, 1}, sizeof words, (const unsigned char *)&words};
    struct gm_rows rows;
#define ROWS(line)                                                                                 \
    __extension__({                                                                                \
        const struct gm_template template = template_of(line);                                     \
        gm_template_rows(&template, &arguments, &rows);                                            \
    })
    assert_true(ROWS("0 0 4096 0 1"));
    assert_int_equal(rows.from, words.base);
    assert_int_equal(rows.bytes, 4096);
    assert_int_equal(rows.count, 1);
    assert_true(ROWS("8 -64 8+34/32*w16*gx 0 1"));
    assert_int_equal(rows.from, words.other - 64);
    assert_int_equal(rows.bytes, 8 + 34 * 10000 / 32);
    assert_true(ROWS("0 0+1/1*w16 100 4096 0+1/1*w20"));
    assert_int_equal(rows.from, words.base + 1000);
    assert_int_equal(rows.count, 7);
    assert_int_equal(rows.stride, 4096);
    assert_true(ROWS("0 0 4096 4096 0+1/1*w20")); /* they touch: one row */
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.bytes, 7 * 4096);
    assert_true(ROWS("0 0 0 0 1"));
    assert_int_equal(rows.count, 0);
    /* What cannot be told. */
    assert_false(ROWS("0 0 0+1/1*d24*d24 0 1"));     /* overflow */
    assert_false(ROWS("0 0 0+1/1*d24*w16*w16 0 1")); /* leaves the address space */
    assert_false(ROWS("0 0 -1 0 1"));
    assert_false(ROWS("0 -9223372036854775807 1 0 1"));
    assert_false(ROWS("0 0 1 9223372036854775807 1000"));
    assert_false(ROWS("0 0 1 4096 9223372036854775807"));
    assert_false(ROWS("0 0 1 9223372036854775807 3")); /* their sum is small again */
    assert_false(ROWS("32 0 1 0 1"));                  /* more arguments than the launch has */
    assert_false(ROWS("0 0 0+1/1*w32 0 1"));
    assert_false(ROWS("0 9223372036854775807 0+1/1*gx 0 1"));
}

static void test_hash(void **state)
{
    (void)state;
    const struct gm_kernel_parameter two[] = {{0, 8}, {8, 4}}, other[] = {{0, 8}, {8, 8}};
    struct gm_kernel_facts facts = {"k", 90, 2, two};
    const uint64_t hash = gm_kernel_hash(&facts);
    assert_int_equal(gm_kernel_hash(&facts), hash);
    facts.parameters = other;
    assert_int_not_equal(gm_kernel_hash(&facts), hash);
    facts.parameters = two;
    facts.n = 1;
    assert_int_not_equal(gm_kernel_hash(&facts), hash);
    facts.n = 2;
    facts.binary_version = 80;
    assert_int_not_equal(gm_kernel_hash(&facts), hash);
    facts.binary_version = 90;
    facts.name = "l";
    assert_int_not_equal(gm_kernel_hash(&facts), hash);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/gm-profile-XXXXXX", pipe[64];
    struct gm_profile profile;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, good, sizeof good - 1), sizeof good - 1);
    assert_true(gm_profile_read(path, &profile, why, sizeof why));
    assert_int_equal(profile.n, 2);
    gm_profile_free(&profile);
    assert_int_equal(fchmod(fd, 0666), 0);
    assert_false(gm_profile_read(path, &profile, why, sizeof why));
    assert_string_equal(why, "others may write it");
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(ftruncate(fd, GM_PROFILE_BYTES + 1), 0);
    assert_false(gm_profile_read(path, &profile, why, sizeof why));
    assert_string_equal(why, "it is too large");
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_false(gm_profile_read(path, &profile, why, sizeof why));
    close(fd);
    unlink(path);
    assert_false(gm_profile_read(path, &profile, why, sizeof why));
    assert_false(gm_profile_read("/tmp", &profile, why, sizeof why));
    snprintf(pipe, sizeof pipe, "%s.pipe", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_false(gm_profile_read(pipe, &profile, why, sizeof why)); /* and it does not wait */
    assert_string_equal(why, "it is not a plain file");
    unlink(pipe);
}

static void test_tensors(void **state)
{
    (void)state;
    const uint64_t size[] = {1000, 20, 3, 1, 2}, step[] = {4096, 100000, 8, 1 << 20};
    const uint64_t huge[] = {UINT64_MAX, 2}, far[] = {1ull << 46, 1};
    uint64_t bytes;
    assert_true(gm_tensor_bytes(9, 1, size, step, &bytes)); /* bfloat16 */
    assert_int_equal(bytes, 2000);
    assert_true(gm_tensor_bytes(7, 5, size, step, &bytes));
    assert_int_equal(bytes, 4000 + 19 * 4096 + 2 * 100000 + (1 << 20));
    assert_false(gm_tensor_bytes(7, 0, size, step, &bytes));
    assert_false(gm_tensor_bytes(7, 6, size, step, &bytes));
    assert_false(gm_tensor_bytes(99, 1, size, step, &bytes));
    assert_false(gm_tensor_bytes(7, 2, huge, step, &bytes));
    assert_false(gm_tensor_bytes(7, 2, size, far, &bytes));
}

static const char *config, *home;
static char *environment(const char *name)
{
    return (char *)(uintptr_t)(strcmp(name, "HOME") == 0 ? home : config);
}

static void test_folder(void **state)
{
    (void)state;
    char path[40];
    assert_false(gm_profile_folder(environment, path, sizeof path));
    home = "/home/a";
    assert_true(gm_profile_folder(environment, path, sizeof path));
    assert_string_equal(path, "/home/a/.config/gpumux/profiles");
    config = "relative";
    assert_true(gm_profile_folder(environment, path, sizeof path));
    config = "/c";
    assert_true(gm_profile_folder(environment, path, sizeof path));
    assert_string_equal(path, "/c/gpumux/profiles");
    assert_false(gm_profile_folder(environment, path, 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_damaged),    cmocka_unit_test(test_rows),
        cmocka_unit_test(test_hash),       cmocka_unit_test(test_files),
        cmocka_unit_test(test_folder),     cmocka_unit_test(test_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
