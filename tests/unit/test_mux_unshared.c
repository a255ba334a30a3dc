/* daemon/ctl/unshared: which processes of NVML's list use a GPU without gpumux. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/driver.h"

static struct mux_gpu listed;
static bool is_answering = true;

const char *mux_ask_processes(const char *uuid, struct mux_gpu *gpu)
{
    assert_string_equal(uuid, "GPU-1");
    *gpu = listed;
    return is_answering ? NULL : "it hangs";
}

/* A process of this name, at the head of a session. */
static pid_t start(const char *name)
{
    char ready;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
        setsid();
        if (write(ends[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], &ready, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* What is added for these processes, by number, behind the daemon's 812: pids, or why nobody
 * knows. */
static void expect(const char *sharing, uint32_t n, const pid_t *pids, const char *want)
{
    char text[512], got[128] = "";
    snprintf(text, sizeof text,
             "{\"pid\":812,\"gpus\":[{\"uuid\":\"GPU-1\"}],\"apps\":[{\"pid\":813}],"
             "\"starting\":[{\"pid\":814}],\"space_sharing\":[%s]}",
             sharing);
    cJSON *status = cJSON_Parse(text);
    assert_non_null(status);
    listed.n_processes = n;
    for (uint32_t i = 0; i < n; i++)
        listed.processes[i] = (struct mux_process){.pid = pids[i], .used = 10 - i};
    assert_true(mux_add_unshared(status));
    const cJSON *gpu = cJSON_GetArrayItem(cJSON_GetObjectItem(status, "gpus"), 0);
    const cJSON *one, *list = cJSON_GetObjectItem(gpu, "unshared");
    if (cJSON_IsNull(list))
        snprintf(got, sizeof got, "%s", mux_word(gpu, "unshared_why"));
    cJSON_ArrayForEach(one, list)
    {
        const size_t at = strlen(got);
        snprintf(got + at, sizeof got - at, "%.0f ", mux_number(one, "pid"));
    }
    assert_string_equal(got, want);
    cJSON_Delete(status);
}

static void those_that_gpumux_knows(void **state)
{
    (void)state;
    expect("", 4, (pid_t[]){814, 813, 812, 99999999}, "99999999 ");
}

/* Where NVML does not name the daemon its numbers are others', as if there were none. */
static void unknown(void **state)
{
    (void)state;
    expect("", 2, (pid_t[]){813, 99999999}, "NVML does not name the daemon");
    is_answering = false;
    expect("", 2, (pid_t[]){812, 99999999}, "it hangs");
    is_answering = true;
}

/* A server of MPS is known by its session, not by a name that anybody may take. */
static void servers_of_mps(void **state)
{
    char sharing[64], want[32];
    const pid_t server = start("any"), other = start("nvidia-cuda-mps");
    (void)state;
    snprintf(sharing, sizeof sharing, "{\"session\":%d}", (int)server);
    snprintf(want, sizeof want, "%d ", (int)other);
    expect(sharing, 3, (pid_t[]){812, server, other}, want);
    expect("{\"session\":0}", 2, (pid_t[]){812, other}, want);
    end(server);
    end(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_gpumux_knows),
        cmocka_unit_test(unknown),
        cmocka_unit_test(servers_of_mps),
    };
    return cmocka_run_group_tests_name("mux_unshared", tests, NULL, NULL);
}
