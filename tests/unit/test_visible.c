/* common/visible: lists of devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/visible.h"

/* GPU 0 begins with 00, GPU 1 with 01, GPU 2 with 02ff, GPU 3 with 0200. */
static struct gm_devices machine(void)
{
    struct gm_devices devices = {.n = 4};
    for (uint32_t i = 0; i < 4; i++)
        devices.uuid[i][0] = (uint8_t)(i < 3 ? i : 2);
    devices.uuid[2][1] = 0xff;
    return devices;
}

/* What a list names, as text: "2 0". "-": nothing. */
static const char *read_list(const char *list, bool has_numbers)
{
    static char text[512];
    const struct gm_devices devices = machine();
    struct gm_token_entry entries[GM_DEVICES_VISIBLE];
    struct gm_tokens tokens;
    uint32_t found[GM_DEVICES_VISIBLE];
    size_t at = 0;
    gm_tokens_cut(&tokens, list);
    memset(entries, 0, sizeof entries);
    for (uint32_t i = 0; i < tokens.n; i++)
        memcpy(entries[i].text, tokens.token[i].at, tokens.token[i].length);
    const uint32_t n = gm_devices_read(&devices, entries, tokens.n, has_numbers, found);
    snprintf(text, sizeof text, "-");
    for (uint32_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i > 0 ? " " : "", found[i]);
    return text;
}

static void lists_are_read(void **state)
{
    (void)state;
    assert_string_equal(read_list("0", true), "0");
    assert_string_equal(read_list("2,0,1", true), "2 0 1");
    assert_string_equal(read_list(" 3 , 1", true), "3 1");
    assert_string_equal(read_list("1gpu2,2ampere", true), "1 2");
    assert_string_equal(read_list("0,-1,2", true), "0");
    assert_string_equal(read_list("0,4,2", true), "0");
    assert_string_equal(read_list("0,18446744073709551617", true), "0");
    assert_string_equal(read_list("0,,2", true), "0");
    assert_string_equal(read_list("", true), "-");
    assert_string_equal(read_list(",0", true), "-");
    assert_string_equal(read_list("-1", true), "-");
    assert_string_equal(read_list("none", true), "-");
    assert_string_equal(read_list("0,1,0", true), "-"); /* twice */
    assert_string_equal(read_list("0,1", false), "-");
}

static void uuids_are_read(void **state)
{
    (void)state;
    assert_string_equal(read_list("GPU-01,GPU-00", false), "1 0");
    assert_string_equal(read_list("GPU-02ff0000-0000-0000-0000-000000000000,GPU-020", true), "2 3");
    assert_string_equal(read_list("GPU-01,GPU-02,GPU-00", true), "1"); /* two begin so */
    assert_string_equal(read_list("GPU-01,GPU-77,GPU-00", true), "1"); /* is not there */
    assert_string_equal(read_list("GPU-77", true), "-");
    assert_string_equal(read_list("GPU-", true), "-");
    assert_string_equal(read_list("GPU-01,GPU-010", true), "-"); /* twice */
    assert_string_equal(read_list("GPU-010000000-0000-0000-0000-0000000000000000", true), "-");
    assert_string_equal(read_list("MIG-01", true), "-");
    assert_string_equal(read_list("MIG-GPU-01/1/0", true), "-");
    assert_string_equal(read_list("0,MIG-01,1", true), "0");
}

/* The list ends with its first kind. */
static void kinds_are_not_mixed(void **state)
{
    (void)state;
    assert_string_equal(read_list("0,GPU-01", true), "0");
    assert_string_equal(read_list("0,1,GPU-02,3", true), "0 1");
    assert_string_equal(read_list("GPU-01,0", true), "1");
    assert_string_equal(read_list("GPU-01,GPU-00,0", true), "1 0");
}

/* The token that a client sent has no end. */
static void tokens_without_end(void **state)
{
    const struct gm_devices devices = machine();
    struct gm_token_entry *entry = malloc(sizeof *entry); /* nothing lies behind it */
    uint32_t found[GM_DEVICES_VISIBLE];
    (void)state;
    memset(entry, '1', sizeof *entry);
    assert_int_equal(gm_devices_read(&devices, entry, 1, true, found), 0);
    memset(entry, ' ', sizeof *entry);
    assert_int_equal(gm_devices_read(&devices, entry, 1, true, found), 0);
    memset(entry, '0', sizeof *entry);
    assert_int_equal(gm_devices_read(&devices, entry, 1, true, found), 1);
    memcpy(entry->text, "GPU-", 4);
    assert_int_equal(gm_devices_read(&devices, entry, 1, true, found), 0);
    free(entry);
}

static const char *write_list(const char *list, const uint32_t *order, uint32_t n)
{
    static char text[65536];
    struct gm_tokens tokens;
    gm_tokens_cut(&tokens, list);
    const size_t length = gm_tokens_write(&tokens, order, n, text, sizeof text);
    assert_int_equal(length, strlen(text));
    return text;
}

static void lists_are_written(void **state)
{
    (void)state;
    assert_string_equal(write_list("0,1,2", (uint32_t[]){2, 0, 1}, 3), "2,0,1");
    assert_string_equal(write_list("5, 6,-1,x", (uint32_t[]){1, 0}, 2), " 6,5,-1,x");
    assert_string_equal(write_list("GPU-01,0,,", (uint32_t[]){1, 0}, 2), "0,GPU-01,,");
    assert_string_equal(write_list("7", (uint32_t[]){0}, 1), "7");
    assert_string_equal(write_list("", NULL, 0), "");
}

/* However long the list is, all of it stays. */
static void long_lists(void **state)
{
    static char list[60000];
    struct gm_tokens tokens;
    size_t at = 0;
    (void)state;
    for (int i = 0; i < 10000; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", i > 0 ? "," : "", i);
    gm_tokens_cut(&tokens, list);
    assert_int_equal(tokens.n, GM_DEVICES_VISIBLE);
    assert_int_equal(strncmp(tokens.rest, ",64,65,", 7), 0);
    const char *swapped = write_list(list, (uint32_t[]){1, 0}, 2);
    assert_int_equal(strncmp(swapped, "1,0,2,3,", 8), 0);
    assert_string_equal(swapped + 4, list + 4);
    assert_string_equal(read_list(list, true), "0 1 2 3");
    /* a token that is none, of any length */
    memset(list, 'G', 50000);
    list[50000] = '\0';
    gm_tokens_cut(&tokens, list);
    assert_int_equal(tokens.n, 0);
    assert_ptr_equal(tokens.rest, list);
    memcpy(list, "0,1,", 4);
    assert_string_equal(write_list(list, (uint32_t[]){1, 0}, 2) + 4, list + 4);
}

static void room_for_lists(void **state)
{
    struct gm_tokens tokens;
    char text[8];
    (void)state;
    gm_tokens_cut(&tokens, "0,1,2,x");
    for (size_t size = 0; size <= 7; size++)
        assert_int_equal(gm_tokens_write(&tokens, (uint32_t[]){1, 0}, 2, text, size), 0);
    assert_int_equal(gm_tokens_write(&tokens, (uint32_t[]){1, 0}, 2, text, 8), 7);
    assert_string_equal(text, "1,0,2,x");
}

static void uuid_texts(void **state)
{
    const uint8_t uuid[16] = {0x8a, 0x1c, 0x0f, 0x3e, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xff};
    char text[GM_UUID_TEXT];
    (void)state;
    assert_string_equal(gm_uuid_format(uuid, text), "GPU-8a1c0f3e-0102-0304-0506-0708090a0bff");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),      cmocka_unit_test(uuids_are_read),
        cmocka_unit_test(kinds_are_not_mixed), cmocka_unit_test(tokens_without_end),
        cmocka_unit_test(lists_are_written),   cmocka_unit_test(long_lists),
        cmocka_unit_test(room_for_lists),      cmocka_unit_test(uuid_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
