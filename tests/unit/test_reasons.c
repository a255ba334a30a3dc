/* Reasons as texts (daemon/views/why.c): which numbers, who says so and who is waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/clock.h"
#include "daemon/views/why.h"

#define MIB(n) ((uint64_t)(n) << 20)

static const struct {
    struct gm_reason why;
    const char *by, *app, *text;
} cases[] = {
    {{.why = GM_WHY_NONE}, "", "", ""},
    {{.why = GM_WHY_TURN, .has_app = true, .app = 3},
     "",
     "app 3 (pid 812, python3)",
     "another program's slice is not over: app 3 (pid 812, python3)"},
    {{.why = GM_WHY_TURN}, "", "app 3 (pid 812, python3)", "another program's slice is not over"},
    {{.why = GM_WHY_TIED, .has_gpu = true, .gpu = 1, .is_of_group = true},
     "",
     "",
     "waits for GPU 1: its group runs together"},
    {{.why = GM_WHY_GROUP_LOADS, .has_gpu = true, .gpu = 3},
     "",
     "",
     "waits for GPU 3: it runs on all its GPUs at once"},
    {{.why = GM_WHY_TIED}, "", "", "its other GPUs, or those of its group, are not free now"},
    {{.why = GM_WHY_SHARE},
     "the rule user=7 share=10%",
     "",
     "it used up its share of the time for now, by the rule user=7 share=10%"},
    {{.why = GM_WHY_STOPPED, .pid = 12, .held = MIB(96)},
     "",
     "",
     "pid 12 is stopped and keeps 96 MiB: kill -CONT 12"},
    {{.why = GM_WHY_TRACED, .pid = 12, .held = MIB(96)},
     "",
     "",
     "pid 12 is held by a debugger and keeps 96 MiB: let it continue there"},
    {{.why = GM_WHY_SILENT, .pid = 12, .held = MIB(96)},
     "",
     "",
     "pid 12 does not answer and keeps 96 MiB: if it stays so, end it"},
    {{.why = GM_WHY_FROZEN, .pid = 12, .held = 0},
     "",
     "",
     "pid 12 is frozen and keeps 0 MiB: thaw its control group"},
    {{.why = GM_WHY_PART_STOPPED, .of = GM_WHY_FROZEN, .pid = 12},
     "",
     "",
     "of its group, pid 12 is frozen: thaw its control group"},
    {{.why = GM_WHY_LATER, .of = GM_WHY_STOPPED, .pid = 12},
     "",
     "",
     "it takes effect when the program goes on: pid 12 is stopped: kill -CONT 12"},
    {{.why = GM_WHY_NOT_PAUSED, .of = GM_WHY_IN_CAPTURE},
     "",
     "",
     "could not be paused: a stream capture stayed open"},
    {{.why = GM_WHY_ALLOC_WAITS, .of = GM_WHY_BEHIND},
     "",
     "",
     "an allocation waits: GPU and host memory are full, and others asked before"},
    {{.why = GM_WHY_LACKS_ROOM, .bytes = MIB(96), .limit = MIB(32)},
     "",
     "",
     "needs 96 MiB on the GPU, where others leave room for 32 MiB"},
    {{.why = GM_WHY_LACKS_ROOM, .of = GM_WHY_STOPPED, .pid = 12, .bytes = MIB(96), .held = MIB(64)},
     "",
     "",
     "needs 96 MiB on the GPU: pid 12 is stopped and keeps 64 MiB: kill -CONT 12"},
    {{.why = GM_WHY_LACKS_ROOM,
      .of = GM_WHY_TRACED,
      .pid = 12,
      .others = 2,
      .bytes = MIB(96),
      .held = MIB(64)},
     "",
     "",
     "needs 96 MiB on the GPU: pid 12 is held by a debugger and keeps 64 MiB: let it continue "
     "there (and 2 more)"},
    {{.why = GM_WHY_LACKS_ROOM,
      .of = GM_WHY_COPIED,
      .pid = 12,
      .ended = 10,
      .bytes = MIB(96),
      .held = MIB(64)},
     "",
     "",
     "needs 96 MiB on the GPU: pid 12 has copies of what pid 10 had, which has ended, and keeps 64 "
     "MiB: end pid 12"},
    {{.why = GM_WHY_COPIED, .ended = 10, .held = MIB(64)},
     "",
     "",
     "a child of pid 10, which has ended, has copies of what that had and keeps 64 MiB: end that "
     "child"},
    {{.why = GM_WHY_PAUSED, .of = GM_WHY_EVICTED, .held = MIB(64)},
     "alice",
     "",
     "64 MiB have yet to leave the GPU, as far as host memory has room; evicted by alice"},
    {{.why = GM_WHY_PAUSED, .of = GM_WHY_EVICTED},
     "alice, until its next call",
     "",
     "on the GPU is only its CUDA context (some 500 MiB) and what the driver keeps; evicted by "
     "alice, until its next call"},
    {{.why = GM_WHY_PAUSED, .held = MIB(64)},
     "alice",
     "",
     "64 MiB leave the GPU when anybody wants them, or by mux-ctl trim; paused by alice"},
    {{.why = GM_WHY_PAUSED},
     "the rule user=7 paused",
     "",
     "on the GPU is only its CUDA context (some 500 MiB) and what the driver keeps; paused by the "
     "rule user=7 paused"},
    {{.why = GM_WHY_BEYOND, .of = GM_WHY_CAP, .bytes = MIB(34), .limit = MIB(32)},
     "",
     "",
     "34 MiB may not be on the GPU: above cap=32M"},
    {{.why = GM_WHY_BEYOND, .of = GM_WHY_USER_TOTAL, .bytes = MIB(34), .limit = MIB(32)},
     "the rule user=7 user-gpu=32M",
     "",
     "34 MiB may not be on the GPU: above user-gpu=32M by the rule user=7 user-gpu=32M"},
    {{.why = GM_WHY_LEAVES_ROOM, .of = GM_WHY_CAP, .bytes = MIB(34), .limit = MIB(32)},
     "",
     "",
     "waits for memory to leave the GPU, to stay below cap=32M"},
    {{.why = GM_WHY_LOST, .for_ns = 3900 * GM_MS, .pid = 12, .held = MIB(96)},
     "",
     "",
     "has not come back since the daemon was restarted 3 s ago, and keeps 96 MiB: wake or end pid "
     "12"},
    {{.why = GM_WHY_CUT, .for_ns = 61 * GM_S, .pid = 12, .held = MIB(96)},
     "",
     "",
     "cannot come back since the daemon was restarted 61 s ago, and keeps 96 MiB: end pid 12"},
    {{.why = GM_WHY_LACKS_ROOM, .of = GM_WHY_LOST, .bytes = MIB(128), .pid = 12, .held = MIB(96)},
     "",
     "",
     "needs 128 MiB on the GPU: pid 12 of the daemon before has not come back and keeps 96 MiB: "
     "wake or end it"},
    {{.why = GM_WHY_LACKS_ROOM, .of = GM_WHY_CUT, .bytes = MIB(128), .pid = 12, .held = MIB(96)},
     "",
     "",
     "needs 128 MiB on the GPU: pid 12 of the daemon before cannot come back and keeps 96 MiB: end "
     "it"},
};

static void test_texts(void **state)
{
    char text[768];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(
            gm_view_reason(&cases[i].why, cases[i].by, cases[i].app, text, sizeof text),
            cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
