/*
 * What uses a GPU without gpumux, by NVML's list of processes: for the status, which the daemon
 * makes without it. Called by status.c; calls driver.c. table.c shows it.
 *
 * Nothing is known where there is no NVML, where it does not answer, or where it does not name the
 * daemon: then its numbers are those of another name space (in a container).
 */
#include "daemon/ctl/ctl.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"
#include "daemon/ctl/driver.h"

static bool is_in_list(const cJSON *list, const char *key, int32_t pid)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, list)
    {
        if ((key ? mux_number(one, key) : one->valuedouble) == pid)
            return true;
    }
    return false;
}

/* The daemon, a program that it knows, or a server of MPS that it started: these are in the
 * session of its control daemon, whatever they are called. */
static bool is_ours(const cJSON *status, int32_t pid)
{
    const cJSON *servers = cJSON_GetObjectItemCaseSensitive(status, "space_sharing");
    const pid_t session = getsid(pid);
    return mux_number(status, "pid") == pid ||
           is_in_list(cJSON_GetObjectItemCaseSensitive(status, "apps"), "pid", pid) ||
           is_in_list(cJSON_GetObjectItemCaseSensitive(status, "starting"), "pid", pid) ||
           (session > 0 && is_in_list(servers, "session", session));
}

/* Its command, "-" if it is gone, and its user. */
static void describe(int32_t pid, char name[32], char user[40])
{
    char path[64];
    struct stat stat_of;
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(name, 32, file))
        snprintf(name, 32, "-");
    if (file)
        fclose(file);
    name[strcspn(name, "\n")] = '\0';
    gm_text_clean(name, 32);
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    const struct passwd *entry = stat(path, &stat_of) == 0 ? getpwuid(stat_of.st_uid) : NULL;
    snprintf(user, 40, "%s", entry ? entry->pw_name : "-");
    gm_text_clean(user, 40);
}

static int by_bytes(const void *a, const void *b)
{
    const struct mux_process *x = a, *y = b;
    const uint64_t more = x->used == UINT64_MAX ? 0 : x->used;
    const uint64_t less = y->used == UINT64_MAX ? 0 : y->used;
    const int order = (more < less) - (more > less);
    return order ? order : (x->pid > y->pid) - (x->pid < y->pid);
}

static bool add_one(cJSON *list, const struct mux_process *process, const char *name,
                    const char *user)
{
    cJSON *object = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(list, object)) {
        cJSON_Delete(object);
        return false;
    }
    return cJSON_AddNumberToObject(object, "pid", process->pid) &&
           cJSON_AddStringToObject(object, "user", user) &&
           cJSON_AddStringToObject(object, "name", name) &&
           (process->used == UINT64_MAX
                ? cJSON_AddNullToObject(object, "bytes")
                : cJSON_AddNumberToObject(object, "bytes", (double)process->used));
}

static bool add_of_gpu(const cJSON *status, cJSON *gpu)
{
    struct mux_gpu *asked = calloc(1, sizeof *asked);
    const char *why = asked ? mux_ask_processes(mux_word(gpu, "uuid"), asked) : "out of memory";
    bool is_named = false, is_whole = true;
    for (uint32_t i = 0; !why && i < asked->n_processes; i++)
        is_named = is_named || asked->processes[i].pid == mux_number(status, "pid");
    if (!why && !is_named)
        why = "NVML does not name the daemon";
    cJSON *list =
        why ? cJSON_AddNullToObject(gpu, "unshared") : cJSON_AddArrayToObject(gpu, "unshared");
    if (why)
        is_whole = cJSON_AddStringToObject(gpu, "unshared_why", why);
    else
        qsort(asked->processes, asked->n_processes, sizeof *asked->processes, by_bytes);
    for (uint32_t i = 0; !why && list && is_whole && i < asked->n_processes; i++) {
        char name[32], user[40];
        describe(asked->processes[i].pid, name, user);
        is_whole = is_ours(status, asked->processes[i].pid) ||
                   add_one(list, &asked->processes[i], name, user);
    }
    free(asked);
    return list && is_whole;
}

bool mux_add_unshared(cJSON *status)
{
    cJSON *gpu;
    cJSON_ArrayForEach(gpu, cJSON_GetObjectItemCaseSensitive(status, "gpus"))
    {
        if (!add_of_gpu(status, gpu)) {
            mux_complain("out of memory");
            return false;
        }
    }
    return true;
}
