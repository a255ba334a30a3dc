/*
 * daemon/profile: records of synthetic kernels of every kind, in random worlds, become the
 * templates that these kernels follow; the launches that were not learned from are predicted; what
 * no template can say is told as such; bad records end with a reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/profile/learn.h"

#define MIB (1ull << 20)
#define PAGE 4096ull

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % below;
}

/* ---- a program that writes records ---- */

static FILE *out;
static char *text;
static size_t text_size;
static uint64_t next_va;
static unsigned char words[256];
static uint32_t words_used;
static struct gm_span touched[4096];
static uint32_t n_touched;

static void begin(uint64_t seed)
{
    random_state = seed * 2 + 1;
    next_va = 0x7f0000000000;
    out = open_memstream(&text, &text_size);
    assert_non_null(out);
    fprintf(out, "gpumux-records 1\n");
}

static void kernel(unsigned index, const char *name)
{
    fprintf(out, "kernel %u %016x 40 %s\n", index, 0xa0 + index, name);
}

static uint64_t alloc(uint64_t bytes)
{
    const uint64_t va = next_va;
    next_va += (bytes + 64 * MIB) & ~(2 * MIB - 1);
    fprintf(out, "alloc %llx %llu\n", (unsigned long long)va, (unsigned long long)bytes);
    return va;
}

static void word(const void *value, uint32_t bytes)
{
    words_used = (words_used + bytes - 1) / bytes * bytes;
    memcpy(words + words_used, value, bytes);
    words_used += bytes;
}

static void address(uint64_t va)
{
    word(&va, 8);
}

static void integer(uint32_t value)
{
    word(&value, 4);
}

static void touch(uint64_t va, uint64_t bytes)
{
    if (bytes > 0)
        touched[n_touched++] = (struct gm_span){va / PAGE, (va + bytes + PAGE - 1) / PAGE};
}

static int compare(const void *a, const void *b)
{
    const struct gm_span *left = a, *right = b;
    return left->from < right->from ? -1 : left->from > right->from;
}

static void launch(unsigned index, uint32_t grid, uint32_t block)
{
    fprintf(out, "launch %u %u 1 1 %u 1 1 ", index, grid, block);
    for (uint32_t i = 0; i < words_used; i++)
        fprintf(out, "%02x", words[i]);
    fprintf(out, words_used > 0 ? "\n" : "-\n");
    qsort(touched, n_touched, sizeof *touched, compare);
    for (uint32_t i = 0; i < n_touched;) {
        struct gm_span run = touched[i++];
        for (; i < n_touched && touched[i].from <= run.to; i++)
            run.to = touched[i].to > run.to ? touched[i].to : run.to;
        fprintf(out, "touch %llx %llu\n", (unsigned long long)run.from,
                (unsigned long long)(run.to - run.from));
    }
    memset(words, 0, sizeof words);
    words_used = n_touched = 0;
}

static struct gm_records records;
static struct gm_profile profile;
static struct gm_lesson lessons[16];
static char why[200];

/* Read what the program wrote, and learn it. */
static void learn(void)
{
    fclose(out);
    out = fmemopen(text, text_size, "r");
    assert_non_null(out);
    if (!gm_records_read(out, &records, why, sizeof why))
        fail_msg("%s", why);
    fclose(out);
    free(text);
    assert_true(gm_learn(&records, &profile, lessons));
}

static void end(void)
{
    gm_records_free(&records);
    gm_profile_free(&profile);
}

static const struct gm_profile_kernel *learned(unsigned index)
{
    const struct gm_profile_kernel *found = gm_profile_find(&profile, 0xa0 + index);
    assert_non_null(found);
    return found;
}

/* "FROM BYTES STRIDE COUNT" of an argument; "none", "other" or "-". */
static const char *template_of(unsigned index, uint32_t offset)
{
    static char line[4 * GM_AMOUNT_TEXT];
    const struct gm_profile_kernel *found = learned(index);
    char amount[4][GM_AMOUNT_TEXT];
    for (uint32_t i = 0; i < found->n; i++) {
        const struct gm_template *at = &found->arguments[i].template;
        if (at->offset != offset)
            continue;
        if (found->arguments[i].how != GM_PROFILE_TOUCH)
            return found->arguments[i].how == GM_PROFILE_NONE ? "none" : "other";
        snprintf(line, sizeof line, "%s %s %s %s", gm_amount_format(&at->from, amount[0]),
                 gm_amount_format(&at->bytes, amount[1]), gm_amount_format(&at->stride, amount[2]),
                 gm_amount_format(&at->count, amount[3]));
        return line;
    }
    return "-";
}

/* Missed and excess, in parts per 10,000. */
static void assert_predicted(unsigned index, unsigned missed, unsigned excess)
{
    const struct gm_profile_kernel *found = learned(index);
    if (found->missed > missed || found->excess > excess)
        fail_msg("kernel %u: %u missed, %u too much", index, found->missed, found->excess);
}

/* ---- kernels ---- */

static uint64_t pool, pool_used; /* addresses in one allocation, at any multiple of 512 */

/* Memory of an allocation of its own, or of the pool. */
static uint64_t take(bool is_pooled, uint64_t bytes)
{
    if (!is_pooled)
        return alloc(bytes);
    const uint64_t va = pool + pool_used;
    pool_used += (bytes + 511) & ~511ull;
    assert_true(pool_used <= 2048 * MIB);
    return va;
}

enum { ADD, FIXED, GEMM, ROWS, APPEND, Q8, DIMENSIONS, KERNELS };
static const char *const names[KERNELS] = {"add",    "fixed", "gemm",      "rows",
                                           "append", "q8",    "dimensions"};

static void run(unsigned index, bool is_pooled)
{
    const uint32_t n = 100000 + (uint32_t)draw(1000000), m = 64 + (uint32_t)draw(1000),
                   k = 64 + (uint32_t)draw(1000);
    uint64_t a, b, c;
    pool_used = draw(1000) * 512;
    switch (index) {
    case ADD:
        a = take(is_pooled, 4ull * n);
        b = take(is_pooled, 4ull * n);
        c = take(is_pooled, 4ull * n);
        address(a), address(b), address(c), integer(n);
        touch(a, 4ull * n), touch(b, 4ull * n), touch(c, 4ull * n);
        launch(index, (n + 255) / 256, 256);
        break;
    case FIXED:
        a = take(is_pooled, 8 * MIB);
        integer(n), integer(m), address(a);
        touch(a, 3 * MIB);
        launch(index, 1 + (uint32_t)draw(100), 128);
        break;
    case GEMM:
        a = take(is_pooled, 2ull * m * k);
        b = take(is_pooled, 2ull * n / 100 * k);
        c = take(is_pooled, 2ull * m * (n / 100));
        integer(m), integer(n / 100), integer(k), address(a), address(b), address(c);
        touch(a, 2ull * m * k), touch(b, 2ull * (n / 100) * k), touch(c, 2ull * m * (n / 100));
        launch(index, m / 64 + 1, 128);
        break;
    case ROWS: {
        const uint32_t pitch = 65536 + 512 * (uint32_t)draw(200),
                       width = 4096 + (uint32_t)draw(9) * 3000, rows = 16 + (uint32_t)draw(200);
        a = take(is_pooled, (uint64_t)pitch * rows);
        address(a), integer(pitch), integer(width), integer(rows);
        for (uint32_t row = 0; row < rows; row++)
            touch(a + (uint64_t)row * pitch, width);
        launch(index, rows, 64);
        break;
    }
    case APPEND: {
        const uint32_t position = (uint32_t)draw(4000);
        a = take(is_pooled, 4096ull * 8192);
        address(a), integer(position), integer(8192);
        touch(a + 8192ull * position, 8192);
        launch(index, 8, 128);
        break;
    }
    case Q8:
        a = take(is_pooled, 34ull * (m * 32) * k / 32);
        address(a), integer(m * 32), integer(k);
        touch(a, 34ull * (m * 32) * k / 32);
        launch(index, m / 4 + 1, 32);
        break;
    default: {
        const uint32_t grid = 200 + (uint32_t)draw(5000), block = 32 * (1 + (uint32_t)draw(16));
        a = take(is_pooled, 8ull * grid * block);
        address(a);
        touch(a, 8ull * grid * block);
        launch(index, grid, block);
    }
    }
}

/* Each kind is found, whether memory comes from a pool or not. */
static void test_kinds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        const bool is_pooled = seed % 2 == 0;
        begin(seed);
        for (unsigned i = 0; i < KERNELS; i++)
            kernel(i, names[i]);
        pool = alloc(2048 * MIB);
        for (unsigned i = 0; i < 24 * KERNELS; i++)
            run(i % KERNELS, is_pooled);
        learn();
        assert_int_equal(profile.n, KERNELS);
        for (unsigned i = 0; i < 3; i++)
            assert_string_equal(template_of(ADD, 8 * i), "0 0+4/1*w24 0 1");
        assert_non_null(strstr(template_of(FIXED, 8), "0 3145728 0 1"));
        assert_string_equal(template_of(GEMM, 16), "0 0+2/1*w0*w8 0 1");
        assert_string_equal(template_of(GEMM, 24), "0 0+2/1*w4*w8 0 1");
        assert_string_equal(template_of(GEMM, 32), "0 0+2/1*w0*w4 0 1");
        assert_string_equal(template_of(ROWS, 0), "0 0+1/1*w12 0+1/1*w8 0+1/1*w16");
        assert_string_equal(template_of(APPEND, 0), "0+1/1*w8*w12 8192 0 1");
        assert_string_equal(template_of(Q8, 0), "0 0+17/16*w8*w12 0 1");
        assert_string_equal(template_of(DIMENSIONS, 0), "0 0+8/1*gx*bx 0 1");
        for (unsigned i = 0; i < KERNELS; i++) {
            assert_predicted(i, 1, 1);
            assert_int_equal(learned(i)->launches, 24);
            assert_int_equal(learned(i)->unnamed, 0);
        }
        /* Addresses alone say too much in an allocation of which a part is touched. */
        const struct gm_verdict *by = lessons[FIXED].verdict;
        assert_true(by[GM_JUDGE_ADDRESSES].excess >= by[GM_JUDGE_ADDRESSES].touched);
        assert_true(by[GM_JUDGE_ALLOCS].excess >= by[GM_JUDGE_ADDRESSES].excess);
        end();
    }
}

/* What no template can say. */
static void test_others(void **state)
{
    (void)state;
    begin(1);
    kernel(0, "chase");
    kernel(1, "gather");
    kernel(2, "bias");
    kernel(3, "nothing");
    kernel(4, "halo");
    const uint64_t named = alloc(MIB), hidden = alloc(64 * MIB), table = alloc(512 * MIB);
    for (unsigned i = 0; i < 20; i++) {
        address(named);
        touch(named, 4096), touch(hidden + draw(8) * MIB, 4 * MIB);
        launch(0, 1, 1);
        address(table), address(named), integer(1000);
        for (unsigned row = 0; row < 200; row++)
            touch(table + draw(60000) * 8192, 8192);
        touch(named, 800);
        launch(1, 100, 128);
        address(named), address(table); /* which it does not read */
        touch(named, MIB);
        launch(2, 1, 1);
        launch(3, 1, 1);
        address(named + 65536), address(named + 65536); /* a row before it, too; the same twice */
        touch(named + 65536 - 16384, 32768);
        launch(4, 1, 1);
    }
    learn();
    assert_int_equal(learned(0)->unnamed, 4 * MIB);
    assert_string_equal(template_of(0, 0), "0 4096 0 1");
    assert_in_range(learned(0)->missed, 9900, 10000);
    assert_string_equal(template_of(1, 0), "other");
    assert_int_equal(learned(1)->missed, 0); /* as by addresses: far too much */
    assert_in_range(learned(1)->excess, 60000, GM_PROFILE_UNKNOWN - 1);
    assert_string_equal(template_of(4, 0), "-16384 32768 0 1");
    assert_string_equal(template_of(4, 8), "-16384 32768 0 1");
    assert_predicted(4, 0, 0);
    assert_string_equal(template_of(2, 0), "0 1048576 0 1");
    assert_string_equal(template_of(2, 8), "none");
    assert_predicted(2, 0, 0);
    assert_int_equal(learned(3)->n, 0);
    assert_predicted(3, 0, 0);
    end();
}

/* A launch that comes once, or is always the same. */
static void test_few(void **state)
{
    (void)state;
    begin(1);
    kernel(0, "once");
    kernel(1, "never");
    kernel(2, "same");
    kernel(3, "grows");
    const uint64_t va = alloc(64 * MIB) + 512;
    address(va), integer(1 << 22);
    touch(va, 16 * MIB);
    launch(0, 1 << 14, 256);
    for (unsigned i = 0; i < 9; i++) {
        address(va), integer(77);
        touch(va, 5000);
        launch(2, 1, 1);
    }
    for (unsigned i = 0; i < 2; i++) { /* one to learn from, and it was small */
        address(va);
        touch(va, i == 0 ? 5000 : 16 * MIB);
        launch(3, 1, 1);
    }
    learn();
    assert_int_equal(profile.n, 3); /* who never ran is not in it */
    assert_int_equal(learned(3)->n, 0);
    assert_int_equal(learned(3)->missed, 0); /* as by addresses */
    assert_int_equal(learned(0)->missed, GM_PROFILE_UNKNOWN);
    assert_string_equal(template_of(0, 0), "0 0+4/1*w8 0 1"); /* 16 MiB explain themselves */
    assert_true(strncmp(template_of(2, 0), "0 ", 2) == 0);
    assert_predicted(2, 0, 0);
    end();
    begin(1); /* no launch at all */
    kernel(0, "none");
    learn();
    assert_int_equal(profile.n, 0);
    end();
    begin(1);
    learn();
    assert_int_equal(profile.n, 0);
    end();
}

/* The wrong predictions are seen: half of the extent, a shifted base, and twice the extent. */
static void test_judge(void **state)
{
    (void)state;
    begin(1);
    kernel(0, "add");
    pool = alloc(2048 * MIB);
    for (unsigned i = 0; i < 20; i++)
        run(ADD, true);
    learn();
    struct gm_profile_kernel wrong = *learned(0);
    struct gm_verdict half = {0}, shifted = {0}, twice = {0};
    for (uint32_t i = 0; i < records.n_launches; i++) {
        struct gm_template *first = &wrong.arguments[0].template;
        const struct gm_template right = *first;
        first->bytes.denominator *= 2;
        assert_true(gm_judge(&records.launches[i], &wrong, GM_JUDGE_PROFILE, &half));
        *first = right;
        first->from.constant = 100 * (int64_t)MIB;
        assert_true(gm_judge(&records.launches[i], &wrong, GM_JUDGE_PROFILE, &shifted));
        *first = right;
        first->bytes.numerator *= 4; /* over b and c, which are predicted, and behind them */
        assert_true(gm_judge(&records.launches[i], &wrong, GM_JUDGE_PROFILE, &twice));
        *first = right;
    }
    assert_in_range(gm_judge_parts(half.missed, &half), 1600, 1700);
    assert_int_equal(half.excess, 0);
    assert_in_range(gm_judge_parts(shifted.missed, &shifted), 3300, 3350);
    assert_in_range(gm_judge_parts(shifted.excess, &shifted), 3300, 3350);
    assert_int_equal(twice.missed, 0);
    assert_in_range(gm_judge_parts(twice.excess, &twice), 3300, 3350);
    end();
}

/* A second run: launches add up, what is as good stays, what is better comes, and so does what is
 * of other code. */
static void test_merge(void **state)
{
    (void)state;
    begin(1);
    kernel(0, "grow");
    const uint64_t va = alloc(1024 * MIB);
    for (unsigned i = 0; i < 6; i++) {
        address(va), integer(100), integer(3);
        touch(va, 300 * 1000);
        launch(0, 1, 1);
    }
    learn();
    char first[4 * GM_AMOUNT_TEXT];
    snprintf(first, sizeof first, "%s", template_of(0, 0));
    gm_records_free(&records);
    begin(2); /* now it is seen to grow */
    kernel(0, "grow");
    alloc(1024 * MIB);
    for (unsigned i = 0; i < 6; i++) {
        address(va), integer(100 * (i + 1)), integer(3);
        touch(va, 300000ull * (i + 1));
        launch(0, 1, 1);
    }
    learn();
    assert_string_not_equal(template_of(0, 0), first);
    assert_string_equal(template_of(0, 0), "0 0+3000/1*w8 0 1");
    assert_int_equal(learned(0)->launches, 12);
    assert_predicted(0, 0, 0);
    gm_records_free(&records);
    begin(3); /* as the first time: what is known is as good, and stays */
    kernel(0, "grow");
    alloc(1024 * MIB);
    for (unsigned i = 0; i < 6; i++) {
        address(va), integer(100), integer(3);
        touch(va, 300 * 1000);
        launch(0, 1, 1);
    }
    learn();
    assert_string_equal(template_of(0, 0), "0 0+3000/1*w8 0 1");
    assert_int_equal(learned(0)->launches, 18);
    gm_records_free(&records);
    begin(4); /* the same where nobody knows the code's registers */
    fprintf(out, "kernel 0 00000000000000a0 0 grow\n");
    alloc(1024 * MIB);
    for (unsigned i = 0; i < 6; i++) {
        address(va), integer(100), integer(3);
        touch(va, 300 * 1000);
        launch(0, 1, 1);
    }
    learn();
    assert_string_equal(template_of(0, 0), "0 0+3000/1*w8 0 1");
    assert_int_equal(learned(0)->launches, 24);
    assert_int_equal(learned(0)->registers, 40);
    gm_records_free(&records);
    begin(5); /* the code is another: nothing of the old stays */
    fprintf(out, "kernel 0 00000000000000a0 41 grow\n");
    alloc(1024 * MIB);
    for (unsigned i = 0; i < 6; i++) {
        address(va), integer(100), integer(3);
        touch(va, 4096);
        launch(0, 1, 1);
    }
    learn();
    assert_string_equal(template_of(0, 0), "0 4096 0 1");
    assert_int_equal(learned(0)->launches, 6);
    end();
}

static int clean(void **state)
{
    (void)state;
    end();
    return 0;
}

static bool reads(const char *what)
{
    FILE *file = fmemopen((char *)(uintptr_t)what, strlen(what), "r");
    assert_non_null(file);
    const bool is_good = gm_records_read(file, &records, why, sizeof why);
    fclose(file);
    return is_good;
}

static void test_records(void **state)
{
    (void)state;
#define HEAD "gpumux-records 1\nkernel 0 a1 40 k\nalloc 7f0000000000 8192\n"
    /* Cut at allocations; memory that is freed or unknown does not count. */
    assert_true(reads(HEAD "alloc 7f0000002000 4096\nlaunch 0 1 1 1 1 1 1 0010000000 7f0000\n") ==
                false);
    gm_records_free(&records);
    assert_true(reads(HEAD "alloc 7f0000002000 4096\n"
                           "launch 0 1 1 1 1 1 1 00100000007f00000000000000000000\n"
                           "touch 7efffffff 10\nfree 7f0000002000\n"
                           "launch 0 1 1 1 1 1 1 -\ntouch 7f0000000 10\n"));
    assert_int_equal(records.n_launches, 2);
    assert_int_equal(records.launches[0].n_pointers, 1);
    assert_int_equal(records.launches[0].pointers[0].value, 0x7f0000001000);
    assert_int_equal(records.launches[0].n_runs, 2);
    assert_int_equal(records.launches[0].runs[0].at.to, 0x7f0000002000);
    assert_int_equal(records.launches[1].n_runs, 1);
    assert_int_equal(records.launches[1].n_pointers, 0);
    gm_records_free(&records);
    /* Killed in the middle of a line. */
    assert_true(reads(HEAD "launch 0 1 1 1 1 1 1 -\ntouch 7f00"));
    assert_int_equal(records.n_launches, 1);
    assert_int_equal(records.launches[0].n_runs, 0);
    gm_records_free(&records);
    static const char *const bad[] = {
        "",
        "gpumux-records 2\n",
        "gpumux-profile 1\n",
        HEAD "touch 7f0000000 1\n",
        HEAD "launch 1 1 1 1 1 1 1 -\n",
        HEAD "launch 0 1 1 1 1 1 -\n",
        HEAD "launch 0 1 1 1 1 1 4294967296 -\n",
        HEAD "launch 0 1 1 1 1 1 1 0\n",
        HEAD "launch 0 1 1 1 1 1 1 0g\n",
        HEAD "launch 0 1 1 1 1 1 1 -\ntouch 7f0000000 0\n",
        HEAD "launch 0 1 1 1 1 1 1 -\ntouch fffffffffffff 1\n",
        HEAD "launch 0 1 1 1 1 1 1 -\ntouch 7f0000001 1\ntouch 7f0000000 1\n",
        HEAD "alloc 7f0000000000 0\n",
        HEAD "alloc 7f0000000000 -1\n",
        HEAD "kernel 2 a1 40 k\n",
        HEAD "kernel 1 a1 41 k\n", /* the same kernel, with other code */
        HEAD "kernel 1 a1 40 k k\n",
        HEAD "\n",
        HEAD "what\n",
    };
    assert_true(reads(HEAD "kernel 1 a1 0 k\nkernel 2 a1 40 k\n")); /* 0: not known */
    assert_int_equal(records.kernels[0].registers, 40);
    gm_records_free(&records);
    assert_true(reads("gpumux-records 1\nkernel 0 a1 0 k\nkernel 1 a1 40 k\n"));
    assert_int_equal(records.kernels[0].registers, 40);
    gm_records_free(&records);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        why[0] = '\0';
        if (bad[i][0] != '\0' && reads(bad[i]))
            fail_msg("%s", bad[i]);
        gm_records_free(&records);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_records, clean),
        cmocka_unit_test_teardown(test_kinds, clean),
        cmocka_unit_test_teardown(test_others, clean),
        cmocka_unit_test_teardown(test_few, clean),
        cmocka_unit_test_teardown(test_judge, clean),
        cmocka_unit_test_teardown(test_merge, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
