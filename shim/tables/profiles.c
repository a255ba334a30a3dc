#include "shim/tables/profiles.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/locks.h"
#include "common/log.h"
#include "common/threads.h"

#define GM_PROFILES_FILES 64u /* that are read */
#define GM_PROFILES_NAME 200  /* bytes of a name in the log */

static struct gm_lock gm_profiles_lock = GM_LOCK_INITIALIZER(GM_LOCK_PROFILES);
static void (*gm_profiles_loaded)(void);
static struct gm_profile gm_profiles[GM_PROFILES_FILES]; /* those that count more come first */
static uint32_t gm_profiles_n;
static struct gm_kernel *gm_profiles_kernels;
_Atomic bool gm_profiles_are_there;

/* ---- files ---- */

static int gm_profiles_is_one(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name), end = strlen(GM_PROFILE_SUFFIX);
    return length > end && strcmp(entry->d_name + length - end, GM_PROFILE_SUFFIX) == 0;
}

static void gm_profiles_read(const char *folder)
{
    struct dirent **entries;
    char path[PATH_MAX], why[160];
    const int n = scandir(folder, &entries, gm_profiles_is_one, alphasort);
    for (int i = 0; i < n; i++) {
        struct gm_profile *profile = &gm_profiles[gm_profiles_n];
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        if (gm_profiles_n == GM_PROFILES_FILES) {
            gm_log(GM_LOG_WARN, "profile %s is ignored: there are too many", path);
        } else if (!gm_profile_read(path, profile, why, sizeof(why))) {
            gm_log(GM_LOG_WARN, "profile %s is ignored: %s", path, why);
        } else {
            gm_log(GM_LOG_INFO, "profile %s: %u kernels", path, profile->n);
            gm_profiles_n++;
        }
    }
    if (n >= 0)
        free(entries);
}

/* Nobody waits for the lock: without profiles that are there it is not taken. */
static void *gm_profiles_run(void *unused)
{
    char folder[PATH_MAX];
    (void)unused;
    gm_lock(&gm_profiles_lock);
    if (gm_profile_folder(secure_getenv, folder, sizeof(folder)))
        gm_profiles_read(folder);
    gm_profiles_read(gm_profile_system());
    const bool are_there = gm_profiles_n > 0;
    atomic_store_explicit(&gm_profiles_are_there, are_there, memory_order_release);
    gm_unlock(&gm_profiles_lock);
    if (are_there)
        gm_profiles_loaded();
    return NULL;
}

void gm_profiles_load(void (*loaded)(void))
{
    static _Atomic bool has_begun;
    if (atomic_exchange(&has_begun, true))
        return;
    gm_profiles_loaded = loaded;
    if (gm_thread_start(gm_profiles_run, "gpumux-profiles") != 0)
        gm_log(GM_LOG_WARN, "no profiles are read: there is no thread for it");
}

/* ---- kernels ---- */

static uint32_t gm_profiles_bytes(const struct gm_kernel_facts *facts)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < facts->n; i++) {
        const struct gm_kernel_parameter *parameter = &facts->parameters[i];
        if (parameter->bytes > GM_KERNEL_ARGUMENTS || parameter->offset > GM_KERNEL_ARGUMENTS)
            return UINT32_MAX;
        if (parameter->offset + parameter->bytes > bytes)
            bytes = parameter->offset + parameter->bytes;
    }
    return bytes;
}

static bool gm_profiles_amount_fits(const struct gm_amount *amount, uint32_t bytes)
{
    for (uint32_t i = 0; i < amount->n; i++) {
        const uint16_t factor = amount->factor[i];
        if ((factor & 0xfff8) != GM_FACTOR_DIMENSION &&
            (factor & 0x7fffu) + (factor & GM_FACTOR_LONG ? 8u : 4u) > bytes)
            return false;
    }
    return true;
}

/* Whether all that the templates name is among the arguments. */
static bool gm_profiles_fit(const struct gm_profile_kernel *profile, uint32_t bytes)
{
    for (uint32_t i = 0; i < profile->n; i++) {
        const struct gm_template *template = &profile->arguments[i].template;
        if (template->offset + 8u > bytes || !gm_profiles_amount_fits(&template->from, bytes) ||
            !gm_profiles_amount_fits(&template->bytes, bytes) ||
            !gm_profiles_amount_fits(&template->stride, bytes) ||
            !gm_profiles_amount_fits(&template->count, bytes))
            return false;
    }
    return true;
}

static void gm_profiles_say(const char *name, const char *why)
{
    gm_log_like(GM_LOG_INFO, name, "kernel %.*s: its profile is not used: %s", GM_PROFILES_NAME,
                name, why);
}

/* No profile has the hash. Say so if one has the name. */
static void gm_profiles_say_changed(const char *name, uint64_t hash)
{
    char why[80];
    snprintf(why, sizeof(why),
             "it has other parameters, or is for another GPU (hash %016" PRIx64 ")", hash);
    for (uint32_t i = 0; i < gm_profiles_n; i++)
        for (uint32_t k = 0; k < gm_profiles[i].n; k++)
            if (strcmp(gm_profiles[i].kernels[k].name, name) == 0) {
                gm_profiles_say(name, why);
                return;
            }
}

static struct gm_kernel *gm_profiles_make(const struct gm_kernel_facts *facts,
                                          const struct gm_profile_kernel *profile)
{
    struct gm_kernel *kernel = malloc(sizeof(*kernel) + facts->n * sizeof(kernel->parameters[0]));
    if (kernel == NULL)
        return NULL;
    kernel->profile = profile;
    atomic_init(&kernel->is_wrong, false);
    kernel->bytes = gm_profiles_bytes(facts);
    kernel->n = facts->n;
    if (facts->n > 0)
        memcpy(kernel->parameters, facts->parameters, facts->n * sizeof(kernel->parameters[0]));
    kernel->next = gm_profiles_kernels;
    gm_profiles_kernels = kernel;
    gm_log_like(GM_LOG_INFO, facts->name, "kernel %.*s: by its profile", GM_PROFILES_NAME,
                facts->name);
    return kernel;
}

static struct gm_kernel *gm_profiles_look(const struct gm_kernel_facts *facts, uint32_t registers)
{
    const uint64_t hash = gm_kernel_hash(facts);
    const struct gm_profile_kernel *profile = NULL;
    for (struct gm_kernel *kernel = gm_profiles_kernels; kernel != NULL; kernel = kernel->next)
        if (kernel->profile->hash == hash)
            return kernel;
    for (uint32_t i = 0; i < gm_profiles_n && profile == NULL; i++)
        profile = gm_profile_find(&gm_profiles[i], hash);
    if (profile == NULL) {
        gm_profiles_say_changed(facts->name, hash);
    } else if (profile->registers != 0 && registers != 0 && profile->registers != registers) {
        char why[80];
        snprintf(why, sizeof(why), "its code has changed (%u registers, and %u when it was made)",
                 registers, profile->registers);
        gm_profiles_say(facts->name, why);
    } else if (gm_profiles_bytes(facts) > GM_KERNEL_ARGUMENTS) {
        gm_profiles_say(facts->name, "it has too many arguments");
    } else if (!gm_profiles_fit(profile, gm_profiles_bytes(facts))) {
        gm_profiles_say(facts->name, "it needs more arguments than the kernel has");
    } else {
        return gm_profiles_make(facts, profile);
    }
    return NULL;
}

struct gm_kernel *gm_profiles_find(const struct gm_kernel_facts *facts, uint32_t registers)
{
    gm_lock(&gm_profiles_lock);
    struct gm_kernel *kernel = gm_profiles_look(facts, registers);
    gm_unlock(&gm_profiles_lock);
    return kernel;
}

void gm_profiles_refuse(struct gm_kernel *kernel)
{
    if (!atomic_exchange(&kernel->is_wrong, true))
        gm_profiles_say(kernel->profile->name, "it leads out of the program's memory");
}
