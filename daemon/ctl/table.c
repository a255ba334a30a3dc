/*
 * The status document as a table: what is said of each GPU, and what is said below the programs
 * (apps.c). Called by status.c; calls lines.c for refusals. Reads the schema of mux-ctl(1), "JSON".
 * Every member is optional: what a daemon of another version lacks shows as "-". Lines
 * are as wide as the terminal, and whole without one; numbers may need more.
 */
#include "daemon/ctl/ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

#define CELL MUX_CELL
#define REFUSED_S 600 /* older refusals are in the log only */

/* One line, which is wrapped behind `more` further blanks. */
static void say(int indent, int more, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(int indent, int more, const char *format, ...)
{
    char text[4 * CELL];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    mux_wrap(text, indent, more);
}

/* The newest switch: how long it took, at what rate, and where the time went. */
static void print_last_switch(const cJSON *gpu)
{
    const cJSON *history = cJSON_GetObjectItemCaseSensitive(gpu, "history");
    const cJSON *last = cJSON_GetArrayItem(history, cJSON_GetArraySize(history) - 1);
    char out[CELL], in[CELL], parts[256];

    if (!last)
        return;
    double moved = mux_number(last, "bytes_out") + mux_number(last, "bytes_in");
    say(2, 8, "last    to app %.0f in %.1f ms: %s out, %s in, at %.1f GB/s",
        mux_number(last, "app"), mux_number(last, "total_ms"), mux_size(last, "bytes_out", out),
        mux_size(last, "bytes_in", in), mux_rate(moved, mux_number(last, "link_ms")));
    mux_wrap(mux_parts(last, parts, sizeof parts), 10, 0);
    if (mux_number(last, "bytes_clean") + mux_number(last, "bytes_zero") > 0)
        say(10, 0, "not copied out: %s unchanged, %s zero", mux_size(last, "bytes_clean", out),
            mux_size(last, "bytes_zero", in));
    if (mux_number(last, "bytes_lowered") + mux_number(last, "bytes_raised") > 0)
        say(10, 0, "from pinned memory %s down, %s up to it", mux_size(last, "bytes_lowered", out),
            mux_size(last, "bytes_raised", in));
}

/* What is mapped on the host, and the tiers below pinned memory with what was moved there and back.
 */
static void print_other_tiers(const cJSON *gpu)
{
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(gpu, "tiers");
    const cJSON *moved = cJSON_GetObjectItemCaseSensitive(gpu, "moved");
    char used[CELL], cap[CELL], held[CELL], out[CELL], back[CELL];

    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(tiers, "pinned_is_registered")))
        say(10, 0,
            "pinned memory is registered: no memory handles on the host, so programs "
            "cannot map it");
    if (mux_number(tiers, "pinned_shadow_bytes") > 0)
        say(10, 0, "shadows %s: pinned copies of what is on the GPU, dropped when wanted",
            mux_size(tiers, "pinned_shadow_bytes", used));
    if (mux_number(tiers, "on_host_bytes") > 0)
        say(10, 0, "mapped on host %s: in pinned memory, read over the link",
            mux_size(tiers, "on_host_bytes", used));
    if (mux_number(tiers, "paged_cap_bytes") > 0)
        say(10, 0, "paged %s of %s (%s held), %s out to it, %s back",
            mux_size(tiers, "paged_used_bytes", used), mux_size(tiers, "paged_cap_bytes", cap),
            mux_size(tiers, "paged_bytes", held), mux_size(moved, "pinned_to_paged_bytes", out),
            mux_size(moved, "paged_to_pinned_bytes", back));
    if (mux_number(tiers, "disk_cap_bytes") > 0)
        say(10, 0, "disk %s of %s, %s out to it, %s back", mux_size(tiers, "disk_used_bytes", used),
            mux_size(tiers, "disk_cap_bytes", cap), mux_size(moved, "pinned_to_disk_bytes", out),
            mux_size(moved, "disk_to_pinned_bytes", back));
}

static void print_budget(const cJSON *gpu)
{
    char now[CELL], most[CELL], used[CELL], cached[CELL], left[CELL];
    const bool is_less = mux_number(gpu, "usable_bytes") < mux_number(gpu, "budget_most_bytes");
    say(2, 8, "budget  %s%s%s: %s used, %s cached, %s free", mux_size(gpu, "usable_bytes", now),
        is_less ? " now, at most " : "", is_less ? mux_size(gpu, "budget_most_bytes", most) : "",
        mux_size(gpu, "used_bytes", used), mux_size(gpu, "cached_bytes", cached),
        mux_size(gpu, "free_bytes", left));
}

static void print_gpu(const cJSON *gpu)
{
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(gpu, "tiers");
    char name[CELL], a[CELL], b[CELL], c[CELL], d[CELL];

    snprintf(name, sizeof name, "%.40s", mux_word(gpu, "name"));
    gm_text_clean(name, sizeof name);
    printf("GPU %.0f  %s\n", mux_number(gpu, "index"), name);
    print_budget(gpu);
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(gpu, "available_bytes")))
        say(2, 8, "room    %s for a program that starts now", mux_size(gpu, "available_bytes", a));
    say(2, 8, "device  %s: %s free", mux_size(gpu, "device_total_bytes", a),
        mux_size(gpu, "device_free_bytes", b));
    say(2, 8, "tiers   gpu %s, pinned %s used, %s cached (at most %s)",
        mux_size(tiers, "gpu_bytes", d), mux_size(tiers, "pinned_used_bytes", a),
        mux_size(tiers, "pinned_cached_bytes", b), mux_size(tiers, "pinned_cap_bytes", c));
    print_other_tiers(gpu);
    if (mux_number(gpu, "shared_bytes") > 0)
        say(2, 8, "shared  %s between programs: it stays on the GPU",
            mux_size(gpu, "shared_bytes", a));
    say(2, 8, "moved   %s in, %s out, %.0f switches", mux_size(gpu, "bytes_in", a),
        mux_size(gpu, "bytes_out", b), mux_number(gpu, "switches"));
    if (mux_number(gpu, "bytes_clean") + mux_number(gpu, "bytes_zero") > 0)
        say(10, 0, "not copied out: %s unchanged, %s zero", mux_size(gpu, "bytes_clean", a),
            mux_size(gpu, "bytes_zero", b));
    print_last_switch(gpu);
}

static bool is_in(const cJSON *words, const char *word)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, words)
    {
        if (cJSON_IsString(one) && strcmp(one->valuestring, word) == 0)
            return true;
    }
    return false;
}

/* Features that apps lack, and what that costs. */
static void print_features_off(const cJSON *apps)
{
    const cJSON *app, *feature;
    cJSON_ArrayForEach(app, apps)
    {
        const cJSON *off = cJSON_GetObjectItemCaseSensitive(app, "features_off");
        const bool is_mps = is_in(off, "isolation"); /* that says what else it costs */
        cJSON_ArrayForEach(feature, off)
        {
            const char *what = "";
            char name[CELL], text[4 * CELL];
            if (!cJSON_IsString(feature) ||
                (is_mps && (strcmp(feature->valuestring, "park") == 0 ||
                            strcmp(feature->valuestring, "timeslices") == 0)))
                continue;
#define GM_FEATURE(bit, NAME, word, explanation)                                                   \
    if (strcmp(feature->valuestring, word) == 0)                                                   \
        what = explanation;
#include "common/features.def"
#undef GM_FEATURE
            snprintf(name, sizeof name, "%.40s", feature->valuestring);
            gm_text_clean(name, sizeof name);
            snprintf(text, sizeof text, "app %.0f without %s%s%s", mux_number(app, "id"), name,
                     *what ? ": " : "", what);
            mux_wrap(text, 0, 0);
        }
    }
}

/* Programs that the daemon could not serve. */
static void print_refused(const cJSON *refused)
{
    double count = mux_number(refused, "count");
    char user[CELL], name[CELL], why[CELL], ago[CELL], text[4 * CELL];
    if (count < 1)
        return;
    snprintf(user, sizeof user, "%.40s", mux_word(refused, "user"));
    snprintf(name, sizeof name, "%.63s", mux_word(refused, "name"));
    snprintf(why, sizeof why, "%.183s", mux_word(refused, "why"));
    gm_text_clean(user, sizeof user);
    gm_text_clean(name, sizeof name);
    gm_text_clean(why, sizeof why);
    snprintf(text, sizeof text,
             "%.0f program%s refused since the start, the last %s ago: %s (pid %.0f, %s): %s",
             count, count < 2 ? "" : "s", mux_seconds(mux_number(refused, "ago_s"), ago), name,
             mux_number(refused, "pid"), user, why);
    mux_wrap(text, 0, 0);
}

/* Programs that wait at their start. */
static void print_starting(const cJSON *starting)
{
    const cJSON *one;
    const int n = cJSON_GetArraySize(starting);
    char text[4 * CELL], name[CELL], user[CELL], bytes[CELL], waited[CELL];
    if (n == 0)
        return;
    printf("%d program%s wait%s until a GPU has room beside the others:\n", n, n == 1 ? "" : "s",
           n == 1 ? "s" : "");
    cJSON_ArrayForEach(one, starting)
    {
        snprintf(user, sizeof user, "%.40s", mux_word(one, "user"));
        snprintf(name, sizeof name, "%.63s", mux_word(one, "name"));
        gm_text_clean(user, sizeof user);
        gm_text_clean(name, sizeof name);
        snprintf(text, sizeof text, "%s (pid %.0f, %s): needs %s, for %s", name,
                 mux_number(one, "pid"), user, mux_size(one, "expected_bytes", bytes),
                 mux_seconds(mux_number(one, "waiting_s"), waited));
        mux_wrap(text, 2, 0);
    }
}

/* Recent refusals of memory. */
static void print_refused_memory(const cJSON *gpus)
{
    const cJSON *gpu, *refusal;
    cJSON_ArrayForEach(gpu, gpus)
    {
        cJSON_ArrayForEach(refusal, cJSON_GetObjectItemCaseSensitive(gpu, "refusals"))
        {
            char text[4 * CELL], who[3 * CELL], ago[CELL];
            if (mux_number(refusal, "ago_s") > REFUSED_S)
                continue;
            snprintf(text, sizeof text, "%.16s ago %s",
                     mux_seconds(mux_number(refusal, "ago_s"), ago),
                     mux_refusal(refusal, who, sizeof who));
            mux_wrap(text, 0, 0);
        }
    }
}

/* Who shares by MPS, and what that costs. */
static void print_sharing(const cJSON *servers)
{
    const cJSON *one, *pid;
    cJSON_ArrayForEach(one, servers)
    {
        const cJSON *pids = cJSON_GetObjectItemCaseSensitive(one, "pids");
        const cJSON *part = cJSON_GetObjectItemCaseSensitive(one, "percent");
        char user[64], state[16], why[256], text[8 * CELL], line[4 * CELL] = "";
        snprintf(user, sizeof user, "%.40s", mux_word(one, "user"));
        snprintf(state, sizeof state, "%.15s", mux_word(one, "state"));
        const cJSON *reason = cJSON_GetObjectItemCaseSensitive(one, "why");
        snprintf(why, sizeof why, "%.255s", cJSON_IsString(reason) ? reason->valuestring : "");
        gm_text_clean(user, sizeof user);
        gm_text_clean(state, sizeof state);
        gm_text_clean(why, sizeof why);
        part = part ? part->child : NULL;
        cJSON_ArrayForEach(pid, pids)
        {
            const double percent = cJSON_IsNumber(part) ? part->valuedouble : 100;
            part = part ? part->next : NULL;
            gm_text_add(line, sizeof line, "%s%.0f", *line ? ", " : "", pid->valuedouble);
            if (percent > 0 && percent < 100)
                gm_text_add(line, sizeof line, " (%.4g%%)", percent);
        }
        const int n = cJSON_GetArraySize(pids);
        snprintf(text, sizeof text, "MPS of %s is %s%s%s: %d program%s%s%s", user, state,
                 *why ? ": " : "", why, n, n == 1 ? "" : "s", n > 0 ? ", pid " : "", line);
        mux_wrap(text, 0, 0);
        if (n > 1)
            mux_wrap("a fatal fault of one of them ends the work of all, and their kernels "
                     "cannot be stopped in the middle",
                     2, 0);
    }
}

/* What uses a GPU without gpumux, one line each. */
static void print_unshared(const cJSON *gpus)
{
    const cJSON *gpu, *one;
    const bool is_several = cJSON_GetArraySize(gpus) > 1;
    bool has_title = false;
    cJSON_ArrayForEach(gpu, gpus)
    {
        const cJSON *list = cJSON_GetObjectItemCaseSensitive(gpu, "unshared");
        char of[32] = "";
        if (is_several)
            snprintf(of, sizeof of, " of GPU %.0f", mux_number(gpu, "index"));
        if (cJSON_IsNull(list)) {
            char why[64];
            snprintf(why, sizeof why, "%s", mux_word(gpu, "unshared_why"));
            gm_text_clean(why, sizeof why);
            printf("\nnot shared%s: unknown (%s)\n", of, why);
        }
        cJSON_ArrayForEach(one, list)
        {
            char name[33], user[11], bytes[32];
            snprintf(name, sizeof name, "%.32s", mux_word(one, "name"));
            snprintf(user, sizeof user, "%.10s", mux_word(one, "user"));
            gm_text_clean(name, sizeof name);
            gm_text_clean(user, sizeof user);
            if (!has_title)
                printf("\nNOT SHARED  GPU  %-10s      MEMORY  NAME\n", "USER");
            has_title = true;
            const bool is_said = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(one, "bytes"));
            printf("%10.0f  %3.0f  %-10s  %10s  %s\n", mux_number(one, "pid"),
                   mux_number(gpu, "index"), user, is_said ? mux_size(one, "bytes", bytes) : "-",
                   name);
        }
    }
}

void mux_table(const cJSON *status, const struct mux_options *options)
{
    const cJSON *gpus = cJSON_GetObjectItemCaseSensitive(status, "gpus");
    const cJSON *apps = cJSON_GetObjectItemCaseSensitive(status, "apps");
    const cJSON *gpu;
    char up[CELL], version[CELL], socket[256];

    snprintf(version, sizeof version, "%s", mux_word(status, "version"));
    snprintf(socket, sizeof socket, "%s", mux_word(status, "socket"));
    gm_text_clean(version, sizeof version);
    gm_text_clean(socket, sizeof socket);
    printf("gpumuxd %s, pid %.0f, up %s, %s\n", version, mux_number(status, "pid"),
           mux_seconds(mux_number(status, "uptime_s"), up), socket);
    cJSON_ArrayForEach(gpu, gpus)
    {
        print_gpu(gpu);
    }
    mux_show_apps(status, options);
    print_unshared(gpus);
    print_features_off(apps);
    print_sharing(cJSON_GetObjectItemCaseSensitive(status, "space_sharing"));
    print_starting(cJSON_GetObjectItemCaseSensitive(status, "starting"));
    print_refused(cJSON_GetObjectItemCaseSensitive(status, "refused"));
    print_refused_memory(gpus);
}
