/* Samples of the status: see samples.h. */
#include "daemon/ctl/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP_SCHEMA 1

/* An app that is one on two GPUs has an entry for each. */
static const cJSON *find_before(const struct mux_samples *samples, const cJSON *app)
{
    const cJSON *other;
    cJSON_ArrayForEach(other, cJSON_GetObjectItemCaseSensitive(samples->before, "apps"))
    {
        if (mux_number(other, "id") == mux_number(app, "id") &&
            mux_number(other, "pid") == mux_number(app, "pid") &&
            mux_number(other, "gpu") == mux_number(app, "gpu"))
            return other;
    }
    return NULL;
}

double mux_percent(const struct mux_samples *samples, const cJSON *app)
{
    const cJSON *before = samples->seconds > 0 ? find_before(samples, app) : NULL;
    const double ran = before ? mux_number(app, "run_s") - mux_number(before, "run_s") : 0;
    if (!before)
        return -1;
    return ran < 0 ? 0 : ran > samples->seconds ? 100 : 100 * ran / samples->seconds;
}

static const cJSON *gpu_before(const struct mux_samples *samples, const cJSON *gpu)
{
    const cJSON *other;
    cJSON_ArrayForEach(other, cJSON_GetObjectItemCaseSensitive(samples->before, "gpus"))
    {
        if (mux_number(other, "index") == mux_number(gpu, "index"))
            return other;
    }
    return NULL;
}

/* Bytes a second between the two samples. */
static double rate_of(const struct mux_samples *samples, const cJSON *gpu, const char *key)
{
    const cJSON *before = samples->seconds > 0 ? gpu_before(samples, gpu) : NULL;
    const double bytes = before ? mux_number(gpu, key) - mux_number(before, key) : 0;
    return bytes > 0 ? bytes / samples->seconds : 0;
}

static double part_of(double part, double whole)
{
    return whole <= 0 || part <= 0 ? 0 : part > whole ? 1 : part / whole;
}

static double busy_of(const struct mux_samples *samples, const cJSON *gpu)
{
    const cJSON *app;
    double percent = 0;
    cJSON_ArrayForEach(app, cJSON_GetObjectItemCaseSensitive(samples->status, "apps"))
    {
        const double one = mux_percent(samples, app);
        if (mux_number(app, "gpu") == mux_number(gpu, "index") && one > 0)
            percent += one;
    }
    return percent > 100 ? 1 : percent / 100;
}

static double value_of(const struct mux_samples *samples, const cJSON *gpu, enum mux_series series)
{
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(gpu, "tiers");
    switch (series) {
    case MUX_USED:
        return part_of(mux_number(gpu, "used_bytes"), mux_number(gpu, "budget_bytes"));
    case MUX_PINNED:
        return part_of(mux_number(tiers, "pinned_used_bytes"),
                       mux_number(tiers, "pinned_cap_bytes"));
    case MUX_BELOW:
        return part_of(mux_number(tiers, "paged_used_bytes") + mux_number(tiers, "disk_used_bytes"),
                       mux_number(tiers, "paged_cap_bytes") + mux_number(tiers, "disk_cap_bytes"));
    case MUX_IN:
        return rate_of(samples, gpu, "bytes_in");
    case MUX_OUT:
        return rate_of(samples, gpu, "bytes_out");
    default:
        return busy_of(samples, gpu);
    }
}

static void add_sample(struct mux_gpu_history *history, const struct mux_samples *samples,
                       const cJSON *gpu)
{
    if (history->index != mux_number(gpu, "index"))
        *history = (struct mux_gpu_history){.index = mux_number(gpu, "index")};
    const bool is_full = history->n == MUX_HISTORY;
    for (int series = 0; series < MUX_SERIES; series++) {
        float *value = history->value[series];
        if (is_full)
            memmove(value, value + 1, (MUX_HISTORY - 1) * sizeof *value);
        value[is_full ? MUX_HISTORY - 1 : history->n] =
            (float)value_of(samples, gpu, (enum mux_series)series);
    }
    history->n += !is_full;
}

bool mux_take_sample(struct mux_samples *samples, cJSON *status)
{
    const cJSON *gpus = cJSON_GetObjectItemCaseSensitive(status, "gpus"), *gpu;
    const size_t n = (size_t)cJSON_GetArraySize(gpus);
    cJSON_Delete(samples->before);
    samples->before = samples->status;
    samples->status = status;
    samples->seconds =
        mux_number(samples->before, "pid") == mux_number(status, "pid")
            ? mux_number(status, "uptime_s") - mux_number(samples->before, "uptime_s")
            : 0; /* another daemon */
    if (n != samples->n_gpus) {
        free(samples->gpu);
        samples->gpu = calloc(n + 1, sizeof *samples->gpu);
        samples->n_gpus = samples->gpu ? n : 0;
        if (!samples->gpu)
            return false;
    }
    size_t at = 0;
    cJSON_ArrayForEach(gpu, gpus)
    {
        if (at < samples->n_gpus)
            add_sample(&samples->gpu[at++], samples, gpu);
    }
    return true;
}

void mux_free_samples(struct mux_samples *samples)
{
    cJSON_Delete(samples->status);
    cJSON_Delete(samples->before);
    free(samples->gpu);
    *samples = (struct mux_samples){0};
}

double mux_newest(const struct mux_gpu_history *gpu, enum mux_series series)
{
    return gpu->n > 0 ? (double)gpu->value[series][gpu->n - 1] : 0;
}

bool mux_is_filtered(const cJSON *app, const char *filter)
{
    char pid[24];
    snprintf(pid, sizeof pid, "%.0f", mux_number(app, "pid"));
    return *filter == '\0' || strcasestr(mux_word(app, "name"), filter) ||
           strcasestr(mux_word(app, "user"), filter) ||
           strcasestr(mux_word(app, "state"), filter) || strcasestr(mux_word(app, "why"), filter) ||
           strcmp(pid, filter) == 0;
}

cJSON *mux_samples_json(const struct mux_samples *samples, const struct mux_options *options)
{
    cJSON *root = cJSON_CreateObject();
    const cJSON *gpu;
    struct mux_apps apps;
    size_t at = 0;
    cJSON_AddNumberToObject(root, "schema", TOP_SCHEMA);
    cJSON_AddNumberToObject(root, "seconds", samples->seconds);
    cJSON *list = cJSON_AddArrayToObject(root, "gpus");
    cJSON_ArrayForEach(gpu, cJSON_GetObjectItemCaseSensitive(samples->status, "gpus"))
    {
        static const char *const kept[] = {"index",        "name",       "uuid",  "budget_bytes",
                                           "usable_bytes", "used_bytes", "tiers", "running"};
        cJSON *one = cJSON_CreateObject();
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            const cJSON *member = cJSON_GetObjectItemCaseSensitive(gpu, kept[i]);
            if (member)
                cJSON_AddItemToObject(one, kept[i], cJSON_Duplicate(member, true));
        }
        const struct mux_gpu_history *history = &samples->gpu[at++];
        cJSON_AddNumberToObject(one, "in_bytes_per_s", mux_newest(history, MUX_IN));
        cJSON_AddNumberToObject(one, "out_bytes_per_s", mux_newest(history, MUX_OUT));
        cJSON_AddNumberToObject(one, "busy_percent", 100 * mux_newest(history, MUX_BUSY));
        cJSON_AddItemToArray(list, one);
    }
    list = cJSON_AddArrayToObject(root, "apps");
    if (!mux_sort_apps(samples->status, options, &apps))
        return root;
    for (size_t n = 0; n < apps.n; n++) {
        cJSON *one = cJSON_Duplicate(apps.app[n], true);
        const double percent = mux_percent(samples, apps.app[n]);
        if (percent >= 0)
            cJSON_AddNumberToObject(one, "gpu_percent", percent);
        cJSON_AddItemToArray(list, one);
    }
    free(apps.app);
    return root;
}
