/*
 * core/ledger_clients: what is written is read; at each store the record before it or after it is
 * there; one byte that changed is found, and so is a record in another's place; what no client can
 * be is refused; older, newer and cut ones are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/ledger_clients.h"

enum { CLIENTS = 5 };

static struct gm_clients clients;
static void *memory, *copy;
static size_t bytes;

static int set_up(void **state)
{
    (void)state;
    bytes = gm_clients_size(CLIENTS);
    assert_int_equal(bytes % GM_LEDGER_PAGE, 0);
    memory = aligned_alloc(GM_LEDGER_PAGE, bytes);
    copy = aligned_alloc(GM_LEDGER_PAGE, bytes);
    assert_true(memory && copy);
    memset(memory, 0, bytes);
    gm_clients_init(&clients, memory, CLIENTS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(memory);
    free(copy);
    return 0;
}

static struct gm_client_record record_of(uint32_t pid)
{
    struct gm_client_record is = {
        .pid = pid, .uid = 1000, .nonce = {pid + 1, ~0ull}, .started = 77 + pid, .engines = 3};
    memcpy(is.name, "python3", 7);
    is.admin = (struct gm_client_settings){.has = 2, .is_paused = 1, .weight = 500};
    is.turns[1].level = 2;
    is.turns[1].charged_ns = pid * 1000ull;
    return is;
}

/* Reads a copy of what is there now. */
static enum gm_ledger_outcome read_it(uint32_t id, struct gm_client_record *is)
{
    struct gm_clients from;
    memcpy(copy, memory, bytes);
    assert_null(gm_clients_open(&from, copy, bytes, CLIENTS));
    return gm_clients_read(&from, id, is);
}

static bool is_there(uint32_t id, const struct gm_client_record *want)
{
    struct gm_client_record is;
    return read_it(id, &is) == GM_LEDGER_IS && memcmp(&is, want, sizeof is) == 0;
}

static void test_written(void **state)
{
    struct gm_client_record one = record_of(1), is;
    (void)state;
    for (uint32_t id = 0; id < CLIENTS; id++)
        assert_int_equal(read_it(id, &is), GM_LEDGER_NONE);
    gm_clients_write(&clients, 3, &one);
    assert_true(is_there(3, &one));
    assert_int_equal(read_it(2, &is), GM_LEDGER_NONE);
    for (uint32_t i = 2; i < 9; i++) {
        one = record_of(i);
        gm_clients_write(&clients, 3, &one);
        assert_true(is_there(3, &one));
    }
    gm_clients_end(&clients, 3);
    assert_int_equal(read_it(3, &is), GM_LEDGER_NONE);
    gm_clients_write(&clients, 3, &one); /* the next one has its place */
    assert_true(is_there(3, &one));
}

static struct gm_client_record before;
static unsigned stores;
static void on_store(void *arg, uint32_t id)
{
    (void)arg;
    stores++;
    assert_true(is_there(id, &before));
}

/* Until the word is stored the record before is there; what is so already is not stored. */
static void test_order(void **state)
{
    (void)state;
    before = record_of(1);
    gm_clients_write(&clients, 4, &before);
    clients.on_store = on_store;
    for (uint32_t i = 2; i < 20; i++) {
        const struct gm_client_record next = record_of(i);
        gm_clients_write(&clients, 4, &next);
        before = next;
        gm_clients_write(&clients, 4, &next);
        assert_int_equal(stores, i - 1);
    }
    clients.on_store = NULL;
}

static void test_flips(void **state)
{
    const struct gm_client_record one = record_of(9);
    struct gm_client_record is;
    const size_t slot = sizeof(uint64_t) + 2 * sizeof one;
    uint8_t *at = (uint8_t *)memory + GM_LEDGER_PAGE + 2 * slot;
    unsigned found = 0;
    (void)state;
    gm_clients_write(&clients, 2, &one);
    for (size_t i = 0; i < slot * 8; i++) {
        at[i / 8] ^= (uint8_t)(1u << (i % 8));
        const enum gm_ledger_outcome outcome = read_it(2, &is);
        assert_true(outcome == GM_LEDGER_BROKEN ||
                    (outcome == GM_LEDGER_IS && !memcmp(&is, &one, sizeof is)));
        found += outcome == GM_LEDGER_BROKEN;
        at[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    assert_int_equal(found, 64 + 8 * sizeof one); /* its word, and the copy that counts */
    memcpy(at - slot, at, slot);
    assert_int_equal(read_it(1, &is), GM_LEDGER_BROKEN);
}

/* The writer's own words, with values that no client has. */
static void test_nonsense(void **state)
{
    struct gm_client_record is;
    (void)state;
    for (int what = 0; what < 11; what++) {
        struct gm_client_record bad = record_of(5);
        switch (what) {
        case 0:
            bad.pid = 0;
            break;
        case 1:
            bad.pid = 1u << 31;
            break;
        case 2:
            memset(bad.name, 'x', sizeof bad.name);
            break;
        case 3:
            bad.group[9] = 'x'; /* behind its end */
            break;
        case 4:
            bad.group_of = CLIENTS;
            break;
        case 5:
            bad.engines = 1u << GM_CLIENTS_GPUS;
            break;
        case 6:
            bad.own.is_oversize = 2;
            break;
        case 7:
            bad.is_group_said = 2;
            break;
        case 8:
            bad.is_gone = 2;
            break;
        case 9:
            bad.turns[0].kin = CLIENTS + 1;
            break;
        default:
            bad.is_paused_by_rule = 2;
            break;
        }
        gm_clients_write(&clients, 0, &bad);
        assert_int_equal(read_it(0, &is), GM_LEDGER_BROKEN);
    }
}

static const char *open_it(size_t size, uint32_t most)
{
    struct gm_clients from;
    memcpy(copy, memory, bytes);
    return gm_clients_open(&from, copy, size, most);
}

static void test_head(void **state)
{
    struct gm_clients_head *head = memory, is = *head;
    (void)state;
    assert_null(open_it(bytes, CLIENTS));
    assert_string_equal(open_it(0, CLIENTS), "the ledger of programs is too short");
    assert_string_equal(open_it(bytes - 1, CLIENTS), "the ledger of programs is too short");
    assert_string_equal(open_it(bytes, CLIENTS - 1),
                        "the ledger of programs has more places than this gpumuxd");
    head->max_clients = UINT64_MAX;
    assert_string_equal(open_it(bytes, UINT32_MAX),
                        "the ledger of programs has more places than this gpumuxd");
    head->max_clients = UINT32_MAX;
    assert_string_equal(open_it(bytes, UINT32_MAX), "the ledger of programs is too short");
    *head = is;
    head->version++;
    assert_string_equal(open_it(bytes, CLIENTS), "the ledger of programs is of a newer gpumuxd");
    head->version = 0;
    assert_string_equal(open_it(bytes, CLIENTS), "the ledger of programs is of an older gpumuxd");
    *head = is;
    head->made = 0;
    assert_string_equal(open_it(bytes, CLIENTS),
                        "the ledger of programs was never finished, or the keeper was lost from "
                        "sight when it was left");
    head->magic++;
    assert_string_equal(open_it(bytes, CLIENTS), "it is no ledger of programs");
    *head = is;
}

static void test_settings(void **state)
{
    const struct gm_settings is = {.has = 5,
                                   .class = 2,
                                   .is_paused = true,
                                   .is_evicted = true,
                                   .is_until_call = true,
                                   .is_oversize = true,
                                   .weight = 700,
                                   .share = 300,
                                   .cap = 6ull << 30};
    struct gm_client_settings kept;
    struct gm_settings again;
    (void)state;
    gm_client_settings_from(&kept, &is);
    assert_true(gm_client_settings_to(&again, &kept));
    assert_true(again.has == is.has && again.class == is.class && again.is_paused &&
                again.is_evicted && again.is_until_call && again.is_oversize &&
                again.weight == is.weight && again.share == is.share && again.cap == is.cap);
    kept.is_evicted = 2;
    assert_false(gm_client_settings_to(&again, &kept));
    kept.is_evicted = 1;
    kept.class = 256;
    assert_false(gm_client_settings_to(&again, &kept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_flips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nonsense, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_head, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_settings, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
