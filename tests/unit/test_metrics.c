/* daemon/ctl/metrics: containers and pods by control groups; what a program is called is no syntax.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ctl/metrics.h"

#define A "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define B "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define UID "1b4e28ba-2fa1-11d2-883f-0016d3cca427"

static char root[64], own[16]; /* ... and what names that this user made begin with */

/* The folders of a control group, each component of which is of a user if `uid` is not 0. Only root
 * can give them away; for others all are their own. */
static void make(const char *path, uid_t uid)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; at; at = strchr(at + 1, '/')) {
        char *end = strchr(at + 1, '/');
        if (end)
            *end = '\0';
        assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
        if (end)
            *end = '/';
    }
    if (uid != 0 && geteuid() == 0)
        assert_int_equal(chown(full, uid, uid), 0);
}

static void test_places(void **state)
{
    static const struct {
        const char *cgroup, *container, *pod;
    } cases[] = {
        {"", "", ""},
        {"0::/user.slice/user-0.slice/session-1.scope\n", "", ""},
        {"0::/system.slice/docker-" A ".scope\n", A, ""},
        {"12:memory:/docker/" A "\n0::/\n", A, ""},
        {"4:name=systemd:/docker/" B "\n", B, ""},
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
    make("/sys/fs/cgroup/memory/docker/" A, 0);
    make("/sys/fs/cgroup/systemd/docker/" B, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mux_place place;
        char path[512] = "/sys/fs/cgroup", container[80] = "", pod[64] = "";
        if (strncmp(cases[i].cgroup, "0::", 3) == 0) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%.*s",
                     (int)strcspn(cases[i].cgroup + 3, "\n"), cases[i].cgroup + 3);
            make(path, 0);
        }
        if (cases[i].container[0])
            snprintf(container, sizeof container, "%s%s", own, cases[i].container);
        if (cases[i].pod[0])
            snprintf(pod, sizeof pod, "%s%s", own, cases[i].pod);
        mux_find_place(root, cases[i].cgroup, &place);
        if (strcmp(place.container, container) != 0 || strcmp(place.pod, pod) != 0)
            fail_msg("%s: \"%s\", \"%s\"", cases[i].cgroup, place.container, place.pod);
    }
}

/* A user who was given a control group may call those below it like anybody's containers. */
static void test_names_of_users(void **state)
{
    (void)state;
    struct mux_place place;
    if (geteuid() != 0)
        skip();
    make("/sys/fs/cgroup/user.slice/user@1000.service", 1000);
    make("/sys/fs/cgroup/user.slice/user@1000.service/docker-" A ".scope", 1000);
    make("/sys/fs/cgroup/user.slice/user@1000.service/root-" B ".scope", 0);
    mux_find_place(root, "0::/user.slice/user@1000.service/docker-" A ".scope\n", &place);
    assert_string_equal(place.container, "1000:" A);
    mux_find_place(root, "0::/user.slice/user@1000.service/root-" B ".scope\n", &place);
    assert_string_equal(place.container, "1000:" B); /* the user may rename it */
    make("/sys/fs/cgroup/user.slice/user@1000.service/pod" UID, 1000);
    mux_find_place(root, "0::/user.slice/user@1000.service/pod" UID "\n", &place);
    assert_string_equal(place.pod, "1000:" UID);
    /* Another name space of control groups, and one that is gone. */
    mux_find_place(root, "0::/../docker-" A ".scope\n", &place);
    assert_string_equal(place.container, "");
    mux_find_place(root, "0::/gone/docker-" A ".scope\n", &place);
    assert_string_equal(place.container, "");
}

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/gm-metrics.XXXXXX");
    if (geteuid() != 0)
        snprintf(own, sizeof own, "%u:", geteuid());
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
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
        cmocka_unit_test(test_names_of_users),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_odd_documents),
    };
    return cmocka_run_group_tests_name("metrics", tests, set_up, tear_down);
}
