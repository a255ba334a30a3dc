/*
 * The status as metrics for Prometheus. Called by exporter.c, which is mux-ctl metrics. Each metric
 * stands once with its help, and then all its samples, as the text format wants it.
 *
 * Values of labels come from programs: their names can hold any character.
 */
#include "daemon/ctl/metrics.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { GAUGE, COUNTER, HISTOGRAM };
static const char *const kinds[] = {
    [GAUGE] = "gauge", [COUNTER] = "counter", [HISTOGRAM] = "histogram"};

struct metric {
    const char *name, *help;
    enum kind kind;
    const char *key;   /* of the status */
    const char *label; /* one more, with a comma before it; "" */
};

/* ---- containers ---- */

enum { ID = 64, UID = 36 };

static bool is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)text[i]))
            return false;
    return true;
}

/* A container is named by 64 hexadecimal digits, the last of which count: others are around it. A
 * pod by "pod" and its uid of 36 characters, in which systemd has _ for -. */
static void find_names(const char *path, char container[ID + 1], char pod[UID + 1])
{
    const size_t length = strlen(path);
    for (size_t i = 0; i + ID <= length; i++) {
        if (!is_hex(path + i, ID) || isxdigit((unsigned char)path[i + ID]) ||
            (i > 0 && isxdigit((unsigned char)path[i - 1])))
            continue;
        memcpy(container, path + i, ID);
        i += ID;
    }
    for (const char *at = path; (at = strstr(at, "pod")) != NULL; at++) {
        const char *uid = at + 3;
        size_t n = 0;
        while (n < UID &&
               (n == 8 || n == 13 || n == 18 || n == 23 ? uid[n] == '-' || uid[n] == '_'
                                                        : isxdigit((unsigned char)uid[n]) != 0))
            n++;
        if (n != UID)
            continue;
        for (size_t i = 0; i < UID; i++)
            pod[i] = uid[i] == '_' ? '-' : uid[i];
    }
}

/* Whose the control group is: the first folder on the way to it that is not root's was given to a
 * user, who may name what is below. False: nobody can tell. */
static bool find_owner(const char *folder, const char *path, uid_t *owner)
{
    char full[PATH_MAX];
    struct stat info;
    if (strstr(path, "/..")) /* it is not below what is seen here */
        return false;
    for (const char *end = path; *end;) {
        end += 1 + strcspn(end + 1, "/");
        const int length = snprintf(full, sizeof full, "%s%.*s", folder, (int)(end - path), path);
        if (length >= (int)sizeof full || stat(full, &info) != 0)
            return false;
        *owner = info.st_uid;
        if (info.st_uid != 0)
            return true;
    }
    return true;
}

/* A line of /proc/PID/cgroup: number, hierarchy ("": the unified one), path. */
static bool look_at_line(const char *root, char *line, struct mux_place *place)
{
    char folder[PATH_MAX], container[ID + 1] = "", pod[UID + 1] = "", owner_text[16] = "";
    uid_t owner = 0;
    char *kind = strchr(line, ':'), *path = kind ? strchr(++kind, ':') : NULL;
    if (!path || path[1] != '/')
        return false;
    *path++ = '\0';
    find_names(path, container, pod);
    if (!container[0] && !pod[0])
        return false;
    if (strncmp(kind, "name=", 5) == 0)
        kind += 5;
    snprintf(folder, sizeof folder, "%s/sys/fs/cgroup/%s", root, *kind ? kind : "unified");
    if (!*kind && access(folder, F_OK) != 0)
        snprintf(folder, sizeof folder, "%s/sys/fs/cgroup", root);
    if (!find_owner(folder, path, &owner))
        return false;
    if (owner != 0)
        snprintf(owner_text, sizeof owner_text, "%u:", owner);
    if (container[0])
        snprintf(place->container, sizeof place->container, "%s%s", owner_text, container);
    if (pod[0])
        snprintf(place->pod, sizeof place->pod, "%s%s", owner_text, pod);
    return true;
}

void mux_find_place(const char *root, const char *cgroup, struct mux_place *place)
{
    char line[PATH_MAX];
    *place = (struct mux_place){{0}, {0}};
    for (bool is_found = false; *cgroup && !is_found;) {
        const size_t length = strcspn(cgroup, "\n");
        if (length < sizeof line) {
            snprintf(line, sizeof line, "%.*s", (int)length, cgroup);
            is_found = look_at_line(root, line, place);
        }
        cgroup += length + (cgroup[length] == '\n');
    }
}

static void place_of(double pid, struct mux_place *place)
{
    char path[64], text[4096] = "";
    snprintf(path, sizeof path, "/proc/%.0f/cgroup", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    mux_find_place("", text, place);
}

/* ---- the text format ---- */

static void put_label(FILE *file, const char *name, const char *value)
{
    fprintf(file, "%s=\"", name);
    for (; *value; value++)
        if (*value == '\\' || *value == '"')
            fprintf(file, "\\%c", *value);
        else if (*value == '\n')
            fputs("\\n", file);
        else
            fputc(*value, file);
    fputc('"', file);
}

static void put_head(FILE *file, const struct metric *metric)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
            kinds[metric->kind]);
}

/* A number, whole where it is one: 17 digits hold all that a double does. */
static void put_value(FILE *file, double value)
{
    fprintf(file, " %.17g\n", value);
}

/* ---- the metrics ---- */

static const struct metric daemon_metrics[] = {
    {"gpumux_uptime_seconds", "Time since the daemon's start.", GAUGE, "uptime_s", ""},
};

static const struct metric total_metrics[] = {
    {"gpumux_parks_total", "How often kernels were stopped where they are.", COUNTER, "parks", ""},
    {"gpumux_refused_allocations_total", "Allocations that were refused.", COUNTER,
     "refused_allocs", ""},
};

static const struct metric gpu_metrics[] = {
    {"gpumux_gpu_budget_bytes", "Memory that programs may fill on the GPU.", GAUGE, "budget_bytes",
     ""},
    {"gpumux_gpu_usable_bytes", "What of the budget can be had now.", GAUGE, "usable_bytes", ""},
    {"gpumux_gpu_used_bytes", "Memory of programs on the GPU.", GAUGE, "used_bytes", ""},
    {"gpumux_gpu_committed_bytes", "What all programs have allocated.", GAUGE, "committed_bytes",
     ""},
    {"gpumux_gpu_device_total_bytes", "Memory of the device.", GAUGE, "device_total_bytes", ""},
    {"gpumux_gpu_device_free_bytes", "What is free on the device.", GAUGE, "device_free_bytes", ""},
    {"gpumux_switches_total", "How often a program got its turn.", COUNTER, "switches", ""},
    {"gpumux_link_bytes_total", "What was moved over the link.", COUNTER, "bytes_in",
     ",direction=\"in\""},
    {"gpumux_link_bytes_total", NULL, COUNTER, "bytes_out", ",direction=\"out\""},
    {"gpumux_unmoved_bytes_total", "What was evicted and not copied.", COUNTER, "bytes_clean",
     ",cause=\"unchanged\""},
    {"gpumux_unmoved_bytes_total", NULL, COUNTER, "bytes_zero", ",cause=\"zero\""},
};

static const struct metric tier_metrics[] = {
    {"gpumux_tier_used_bytes", "Data in a tier of host memory.", GAUGE, "pinned_used_bytes",
     ",tier=\"pinned\""},
    {"gpumux_tier_used_bytes", NULL, GAUGE, "paged_used_bytes", ",tier=\"paged\""},
    {"gpumux_tier_used_bytes", NULL, GAUGE, "disk_used_bytes", ",tier=\"disk\""},
    {"gpumux_tier_limit_bytes", "The most data in a tier of host memory.", GAUGE,
     "pinned_cap_bytes", ",tier=\"pinned\""},
    {"gpumux_tier_limit_bytes", NULL, GAUGE, "paged_cap_bytes", ",tier=\"paged\""},
    {"gpumux_tier_limit_bytes", NULL, GAUGE, "disk_cap_bytes", ",tier=\"disk\""},
};

static const struct metric moved_metrics[] = {
    {"gpumux_tier_moved_bytes_total", "What was moved below the GPU, to and from pinned memory.",
     COUNTER, "pinned_to_paged_bytes", ",from=\"pinned\",to=\"paged\""},
    {"gpumux_tier_moved_bytes_total", NULL, COUNTER, "paged_to_pinned_bytes",
     ",from=\"paged\",to=\"pinned\""},
    {"gpumux_tier_moved_bytes_total", NULL, COUNTER, "pinned_to_disk_bytes",
     ",from=\"pinned\",to=\"disk\""},
    {"gpumux_tier_moved_bytes_total", NULL, COUNTER, "disk_to_pinned_bytes",
     ",from=\"disk\",to=\"pinned\""},
};

static const struct metric app_metrics[] = {
    {"gpumux_app_gpu_seconds_total", "Time that the program had the GPU.", COUNTER, "run_s", ""},
    {"gpumux_app_wait_seconds_total", "Time that the program waited for the GPU.", COUNTER,
     "wait_s", ""},
    {"gpumux_app_waiting_seconds", "Time that the program waits now.", GAUGE, "waiting_s", ""},
    {"gpumux_app_resident_bytes", "Memory of the program on the GPU.", GAUGE, "resident_bytes", ""},
    {"gpumux_app_allocated_bytes", "All memory of the program.", GAUGE, "total_bytes", ""},
    {"gpumux_app_needed_bytes", "What the GPU must have of it for its turn.", GAUGE, "needed_bytes",
     ""},
    {"gpumux_app_on_host_bytes", "What it reads over the link while it runs.", GAUGE,
     "on_host_bytes", ""},
    {"gpumux_app_switches_total", "How often the program got its turn.", COUNTER, "switches", ""},
    {"gpumux_app_parks_total", "How often its kernels were stopped where they are.", COUNTER,
     "parks", ""},
    {"gpumux_app_refused_allocations_total", "Its allocations that were refused.", COUNTER,
     "refused_allocs", ""},
};

static void put_apps(FILE *file, const cJSON *apps, const struct mux_place *places,
                     const struct metric *metric)
{
    const cJSON *app;
    const struct mux_place *place = places;
    cJSON_ArrayForEach(app, apps)
    {
        const cJSON *state = cJSON_GetObjectItemCaseSensitive(app, "state");
        fprintf(file, "%s{gpu=\"%.0f\",pid=\"%.0f\"", metric->name, mux_number(app, "gpu"),
                mux_number(app, "pid"));
        put_label(file, ",user", mux_word(app, "user"));
        put_label(file, ",command", mux_word(app, "name"));
        put_label(file, ",container", place->container);
        put_label(file, ",pod", place->pod);
        if (!metric->key && cJSON_IsString(state))
            put_label(file, ",state", state->valuestring);
        fputc('}', file);
        put_value(file, metric->key ? mux_number(app, metric->key) : 1);
        place++;
    }
}

/* The name and the labels that samples of a GPU have, without the bracket that ends them. */
static void put_gpu(FILE *file, const char *name, const char *suffix, const cJSON *gpu)
{
    fprintf(file, "%s%s{gpu=\"%.0f\"", name, suffix, mux_number(gpu, "index"));
    put_label(file, ",uuid", mux_word(gpu, "uuid"));
}

static void put_gpus(FILE *file, const cJSON *gpus, const struct metric *metrics, size_t n,
                     const char *part)
{
    const cJSON *gpu;
    for (size_t i = 0; i < n; i++) {
        if (metrics[i].help)
            put_head(file, &metrics[i]);
        cJSON_ArrayForEach(gpu, gpus)
        {
            put_gpu(file, metrics[i].name, "", gpu);
            fprintf(file, "%s}", metrics[i].label);
            put_value(file, mux_number(part ? cJSON_GetObjectItemCaseSensitive(gpu, part) : gpu,
                                       metrics[i].key));
        }
    }
}

/* A bucket counts what is within its bound, so what is within those before as well. */
static void put_switch_times(FILE *file, const cJSON *gpus)
{
    static const struct metric metric = {"gpumux_switch_seconds",
                                         "How long switches took, from the decision on.", HISTOGRAM,
                                         NULL, ""};
    const cJSON *gpu, *count;
    put_head(file, &metric);
    cJSON_ArrayForEach(gpu, gpus)
    {
        const cJSON *times = cJSON_GetObjectItemCaseSensitive(gpu, "switch_times");
        const cJSON *bounds = cJSON_GetObjectItemCaseSensitive(times, "up_to_s");
        const cJSON *counts = cJSON_GetObjectItemCaseSensitive(times, "counts");
        const cJSON *bound = cJSON_IsArray(bounds) ? bounds->child : NULL;
        double sum = 0;
        if (!bound || !cJSON_IsArray(counts) ||
            cJSON_GetArraySize(counts) != cJSON_GetArraySize(bounds) + 1)
            continue; /* an older daemon */
        cJSON_ArrayForEach(count, counts)
        {
            sum += cJSON_IsNumber(count) ? count->valuedouble : 0;
            put_gpu(file, metric.name, "_bucket", gpu);
            if (bound)
                fprintf(file, ",le=\"%.15g\"}", cJSON_IsNumber(bound) ? bound->valuedouble : 0);
            else
                fputs(",le=\"+Inf\"}", file);
            put_value(file, sum);
            bound = bound ? bound->next : NULL;
        }
        put_gpu(file, metric.name, "_sum", gpu);
        fputc('}', file);
        put_value(file, mux_number(times, "sum_s"));
        put_gpu(file, metric.name, "_count", gpu);
        fputc('}', file);
        put_value(file, sum);
    }
}

static void put_all(FILE *file, const cJSON *status, const struct mux_place *places)
{
    static const struct metric up = {"gpumux_up", "Whether the daemon answers.", GAUGE, NULL, ""};
    static const struct metric build = {"gpumux_build_info", "The daemon's version.", GAUGE, NULL,
                                        ""};
    static const struct metric refused = {
        "gpumux_refused_programs_total", "Programs that run without gpumux.", COUNTER, "count", ""};
    static const struct metric info = {
        "gpumux_app_state",
        "The state of the program. A lost one keeps its memory until it comes back or its "
        "process ends.",
        GAUGE, NULL, ""};
    static const struct metric starting = {"gpumux_starting_programs",
                                           "Programs that wait at their start for a GPU with room.",
                                           GAUGE, NULL, ""};
    const cJSON *gpus = cJSON_GetObjectItemCaseSensitive(status, "gpus");
    const cJSON *apps = cJSON_GetObjectItemCaseSensitive(status, "apps");
    put_head(file, &up);
    fprintf(file, "%s %d\n", up.name, status != NULL);
    if (!status)
        return;
    put_head(file, &build);
    fprintf(file, "%s{", build.name);
    put_label(file, "version", mux_word(status, "version"));
    fputs("} 1\n", file);
    for (size_t i = 0; i < sizeof daemon_metrics / sizeof daemon_metrics[0]; i++) {
        put_head(file, &daemon_metrics[i]);
        fputs(daemon_metrics[i].name, file);
        put_value(file, mux_number(status, daemon_metrics[i].key));
    }
    for (size_t i = 0; i < sizeof total_metrics / sizeof total_metrics[0]; i++) {
        put_head(file, &total_metrics[i]);
        fputs(total_metrics[i].name, file);
        put_value(file, mux_number(cJSON_GetObjectItemCaseSensitive(status, "totals"),
                                   total_metrics[i].key));
    }
    put_head(file, &refused);
    fputs(refused.name, file);
    put_value(file, mux_number(cJSON_GetObjectItemCaseSensitive(status, "refused"), refused.key));
    put_head(file, &starting);
    fputs(starting.name, file);
    put_value(file, cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(status, "starting")));
    put_gpus(file, gpus, gpu_metrics, sizeof gpu_metrics / sizeof gpu_metrics[0], NULL);
    put_switch_times(file, gpus);
    put_gpus(file, gpus, tier_metrics, sizeof tier_metrics / sizeof tier_metrics[0], "tiers");
    put_gpus(file, gpus, moved_metrics, sizeof moved_metrics / sizeof moved_metrics[0], "moved");
    for (size_t i = 0; i < sizeof app_metrics / sizeof app_metrics[0]; i++) {
        put_head(file, &app_metrics[i]);
        put_apps(file, apps, places, &app_metrics[i]);
    }
    put_head(file, &info);
    put_apps(file, apps, places, &info);
}

bool mux_write_metrics(FILE *file, const cJSON *status)
{
    const cJSON *apps = cJSON_GetObjectItemCaseSensitive(status, "apps"), *app;
    struct mux_place *places = calloc((size_t)cJSON_GetArraySize(apps) + 1, sizeof *places);
    size_t n = 0;
    if (!places)
        return false;
    cJSON_ArrayForEach(app, apps)
    {
        place_of(mux_number(app, "pid"), &places[n++]);
    }
    put_all(file, status, places);
    free(places);
    return !ferror(file);
}
