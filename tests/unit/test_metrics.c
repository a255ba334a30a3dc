/* daemon/ctl/metrics: containers and pods by control groups; what a program is called is no syntax.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/metrics.h"

#define A "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define B "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define UID "1b4e28ba-2fa1-11d2-883f-0016d3cca427"

int mux_serve_metrics(const struct mux_options *options)
{
    (void)options;
    fail();
    return MUX_FAILED;
}

int mux_get_status(const struct mux_options *options, cJSON **status)
{
    (void)options, (void)status;
    fail();
    return MUX_FAILED;
}

static void test_places(void **state)
{
    static const struct {
        const char *cgroup, *container, *pod;
    } cases[] = {
        {"", "", ""},
        {"0::/user.slice/user-0.slice/session-1.scope\n", "", ""},
        {"0::/system.slice/docker-" A ".scope\n", A, ""},
        {"12:memory:/docker/" A "\n0::/docker/" A "\n", A, ""},
        {"0::/kubepods.slice/kubepods-burstable.slice/"
         "kubepods-burstable-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice/cri-containerd-" A
         ".scope\n",
         A, UID},
        {"0::/kubepods/besteffort/pod" UID "/" A "/nested-" B "\n", B, UID}, /* the inner one */
        {"0::/libpod-" A ".scope/container\n", A, ""},
        {"0::/x-" A "0\n", "", ""}, /* 65 digits are none */
        {"0::/kubepods/pod1b4e28ba/" B, B, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mux_place place;
        mux_find_place(cases[i].cgroup, &place);
        if (strcmp(place.container, cases[i].container) != 0 ||
            strcmp(place.pod, cases[i].pod) != 0)
            fail_msg("%s: \"%s\", \"%s\"", cases[i].cgroup, place.container, place.pod);
    }
}

static char *write_metrics(const char *status)
{
    char *text = NULL;
    size_t length = 0;
    cJSON *document = status ? cJSON_Parse(status) : NULL;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    assert_true(mux_write_metrics(file, document));
    assert_int_equal(fclose(file), 0);
    cJSON_Delete(document);
    return text;
}

static void test_labels(void **state)
{
    (void)state;
    char *text =
        write_metrics("{\"schema\":3,\"apps\":[{\"pid\":0,\"gpu\":2,\"user\":\"me\","
                      "\"name\":\"a \\\"b\\\\c\\nd}\",\"run_s\":1.5,\"state\":\"idle\"}]}");
    if (!strstr(text, "\ngpumux_app_gpu_seconds_total{gpu=\"2\",pid=\"0\",user=\"me\",command=\"a "
                      "\\\"b\\\\c\\nd}\",container=\"\",pod=\"\"} 1.5\n") ||
        !strstr(text, ",pod=\"\",state=\"idle\"} 1\n"))
        fail_msg("%s", text);
    free(text);
}

/* Whatever an older or newer daemon leaves out. */
static void test_odd_documents(void **state)
{
    static const char *const texts[] = {"{}", "{\"gpus\":7,\"apps\":{}}",
                                        "{\"gpus\":[{\"tiers\":1}],\"apps\":[{},3,\"x\"]}",
                                        "{\"totals\":[],\"refused\":5,\"version\":null}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *text = write_metrics(texts[i]);
        assert_non_null(strstr(text, "\ngpumux_up 1\n"));
        free(text);
    }
    char *text = write_metrics(NULL);
    assert_non_null(strstr(text, "\ngpumux_up 0\n"));
    assert_null(strstr(text, "gpumux_uptime"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_odd_documents),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
