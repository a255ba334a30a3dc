/*
 * daemon/engine/batches when there is no memory for a message: the session of that app ends, what
 * was to be asked of it counts as never answered, and everybody else goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/engine/act/batches.h"
#include "daemon/engine/state/state.h"

#define CHUNKS 8u

static struct gm_engine engine;
static struct gm_table table;
static struct gm_chunk chunks[CHUNKS];
static struct gm_app apps[2];
static struct gm_table_app table_apps[2];
static struct gm_frame frames[1]; /* all have an import of it, and nobody needs it */
static uint8_t imports[2], drops[2];
static uint32_t unsent[CHUNKS];
static bool is_memory_out;
static unsigned ended[2], sent;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return is_memory_out ? NULL : __real_calloc(n, size);
}

/* ---- what is around it ---- */

static void end_session(struct gm_session *session, enum gm_refusal reason, const char *text)
{
    (void)reason, (void)text;
    ended[session == apps[1].session]++;
}

static int send_message(struct gm_session *session, enum gm_msg_type type, const void *body,
                        const void *entries, uint32_t count, const int *fds, int n_fds)
{
    (void)session, (void)type, (void)body, (void)entries, (void)count, (void)fds, (void)n_fds;
    sent++;
    return 0;
}

/* ---- the tests ---- */

static int set_up(void **state)
{
    (void)state;
    engine = (struct gm_engine){
        .table = &table,
        .apps = apps,
        .unsent = unsent,
        .config = {.max_apps = 2, .outlet = {.send = send_message, .end = end_session}}};
    table = (struct gm_table){.chunks = chunks,
                              .apps = table_apps,
                              .max_chunks = CHUNKS,
                              .frames = frames,
                              .imports = imports,
                              .drops = drops,
                              .max_frames = 1,
                              .first_condemned = GM_NONE};
    imports[0] = imports[1] = 1;
    drops[0] = drops[1] = 0;
    frames[0] = (struct gm_frame){.state = GM_FRAME_CONDEMNED, .exit_of = GM_NONE};
    for (uint32_t id = 0; id < 2; id++)
        apps[id] = (struct gm_app){.session = (struct gm_session *)&apps[id],
                                   .batches.sent_tail = &apps[id].batches.sent};
    for (uint32_t i = 0; i < CHUNKS; i++)
        chunks[i] = (struct gm_chunk){.app = i / 4, .frame = GM_NONE};
    ended[0] = ended[1] = sent = 0;
    is_memory_out = false;
    return 0;
}

/* It leaves: what was asked of it is over. */
static void take_all(uint32_t id)
{
    struct gm_batch *batch;
    uint32_t item;
    while ((batch = gm_engine_take_unanswered(&engine, id)) != NULL) {
        for (uint32_t i = 0; i < batch->n; i++)
            chunks[batch->items[i]].map_pending = false;
        free(batch);
    }
    while ((item = gm_engine_take_unsent(&engine, id)) != GM_NONE)
        chunks[item].map_pending = false;
}

static void ask(uint32_t chunk)
{
    chunks[chunk].map_pending = true;
    gm_engine_batch(&engine, chunks[chunk].app, GM_BATCH_UNMAP, chunk);
}

static void one_session_ends(void **state)
{
    (void)state;
    ask(0); /* a batch that there is memory for */
    is_memory_out = true;
    ask(1);
    assert_true(gm_table_drop(&table, 0, 1));
    gm_engine_batch(&engine, 1, GM_BATCH_DROP, 0);
    ask(4);
    ask(5);
    is_memory_out = false;
    assert_int_equal(ended[0], 0);
    assert_true(ended[1] > 0);
    assert_int_equal(frames[0].drops, 0); /* nobody is waited for */
    assert_true(gm_table_has_import(&table, 1, 0));
    gm_engine_flush(&engine);
    assert_int_equal(sent, 1);

    take_all(1);
    assert_false(chunks[4].map_pending || chunks[5].map_pending);
    assert_int_equal(engine.n_unsent, 0);
    assert_true(chunks[0].map_pending && chunks[1].map_pending);
    take_all(0);
    assert_false(chunks[0].map_pending || chunks[1].map_pending);
}

/* Nothing is moved for an app that could not be asked whether it is there. */
static void no_memory_to_ask(void **state)
{
    (void)state;
    is_memory_out = true;
    gm_engine_ping(&engine, 1);
    is_memory_out = false;
    assert_int_equal(ended[1], 1);
    assert_int_not_equal(apps[1].batches.ping, 0);
    assert_int_equal(sent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_session_ends, set_up),
        cmocka_unit_test_setup(no_memory_to_ask, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
