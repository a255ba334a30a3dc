/* mux-ctl ps: the programs that share a GPU. Calls ask.c and apps.c. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>

/* Each program once, whatever GPUs it uses. */
static void print_pids(const struct mux_apps *apps)
{
    for (size_t n = 0; n < apps->n; n++) {
        bool is_again = false;
        for (size_t i = 0; i < n; i++)
            is_again =
                is_again || mux_number(apps->app[i], "pid") == mux_number(apps->app[n], "pid");
        if (!is_again)
            printf("%.0f\n", mux_number(apps->app[n], "pid"));
    }
}

static cJSON *as_json(const cJSON *status, const struct mux_apps *apps,
                      const struct mux_user *users, size_t n_users)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "schema", mux_number(status, "schema"));
    cJSON *list = cJSON_AddArrayToObject(root, "apps");
    for (size_t n = 0; n < apps->n; n++)
        cJSON_AddItemToArray(list, cJSON_Duplicate(apps->app[n], true));
    list = cJSON_AddArrayToObject(root, "users");
    for (size_t n = 0; n < n_users; n++) {
        cJSON *user = cJSON_CreateObject();
        cJSON_AddStringToObject(user, "user", users[n].name);
        cJSON_AddNumberToObject(user, "programs", users[n].programs);
        cJSON_AddNumberToObject(user, "resident_bytes", users[n].resident);
        cJSON_AddNumberToObject(user, "total_bytes", users[n].total);
        cJSON_AddNumberToObject(user, "run_s", users[n].run_s);
        cJSON_AddNumberToObject(user, "wait_s", users[n].wait_s);
        cJSON_AddItemToArray(list, user);
    }
    return root;
}

int mux_ps(const struct mux_options *options)
{
    struct mux_apps apps = {0};
    struct mux_user *users = NULL;
    size_t n_users = 0;
    cJSON *status;
    int code = mux_get_status(options, &status);
    if (code)
        return code;
    if (!options->is_json && !options->is_quiet) {
        mux_show_apps(status, options);
        code = mux_written("the programs");
    } else if (!mux_sort_apps(status, options, &apps) || !mux_sum_users(&apps, &users, &n_users)) {
        code = MUX_FAILED;
    } else if (options->is_json) {
        code = mux_print_json(as_json(status, &apps, users, n_users), "the programs");
    } else {
        print_pids(&apps);
        code = mux_written("the programs");
    }
    free(users);
    free(apps.app);
    cJSON_Delete(status);
    return code;
}
