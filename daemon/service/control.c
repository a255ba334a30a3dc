/* Control: see control.h. */
#include "daemon/service/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/features.h"
#include "common/log.h"
#include "common/sock.h"
#include "daemon/core/snapshot.h"
#include "daemon/engine/snapshot.h"
#include "daemon/service/handover.h"
#include "daemon/service/users.h"
#include "daemon/views/journal.h"
#include "daemon/views/log.h"
#include "daemon/views/status.h"
#include "daemon/views/why.h"

void gm_control_init(struct gm_control *control, const struct gm_options *options,
                     struct gm_machine *machine)
{
    memset(control, 0, sizeof *control);
    control->options = options;
    control->machine = machine;
    control->started = gm_now();
}

/* Add one option. The name of the member ends with its unit. */
#define ADD_GPUS(member) add_gpus(object, &options->member)
#define ADD_NUMBER(member) cJSON_AddNumberToObject(object, #member, options->member)
#define ADD_SIZE(member) cJSON_AddNumberToObject(object, #member "_bytes", (double)options->member)
#define ADD_BUDGET(member)                                                                         \
    (cJSON_AddNumberToObject(object, #member "_bytes", (double)options->member.bytes) &&           \
     cJSON_AddNumberToObject(object, #member "_percent", options->member.percent))
#define ADD_DURATION(member)                                                                       \
    cJSON_AddNumberToObject(object, #member "_s", (double)options->member / (double)GM_S)
#define ADD_PLACE(member)                                                                          \
    (cJSON_AddStringToObject(object, #member "_dir", options->member.dir) &&                       \
     cJSON_AddNumberToObject(object, #member "_bytes", (double)options->member.bytes))
#define ADD_WORD(member)                                                                           \
    cJSON_AddStringToObject(                                                                       \
        object, #member, gm_options_word(GM_OPTION_##member, options->member, (char[32]){0}, 32))
#define ADD_CLASS(member) cJSON_AddStringToObject(object, #member, gm_class_name(options->member))
#define ADD_RULES(member) add_rules(object, #member, &options->member)
#define ADD_PATH(member) cJSON_AddStringToObject(object, #member, options->member)
#define ADD_LEVEL(member)                                                                          \
    cJSON_AddStringToObject(object, #member, gm_options_level_name(options->member))
#define ADD_FLAG(member) cJSON_AddBoolToObject(object, #member, options->member)

/* One as its number, several as a text. */
static bool add_gpus(cJSON *object, const struct gm_gpus *gpus)
{
    char text[128];
    if (gpus->n == 1)
        return cJSON_AddNumberToObject(object, "gpu", gpus->gpu[0]);
    return cJSON_AddStringToObject(object, "gpu", gm_options_gpus(gpus, text, sizeof text));
}

static bool add_rules(cJSON *object, const char *name, const struct gm_rules *rules)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    char text[512];
    for (uint32_t i = 0; array && i < rules->n; i++) {
        cJSON *rule = cJSON_CreateString(gm_rule_format(&rules->rule[i], text, sizeof text));
        if (!cJSON_AddItemToArray(array, rule)) {
            cJSON_Delete(rule);
            return false;
        }
    }
    return array != NULL;
}

static cJSON *config_object(const struct gm_options *options)
{
    cJSON *object = cJSON_CreateObject();
    if (!object)
        return NULL;
#define GM_OPTION(name, member, kind, argument, place, when, min, max, otherwise, example, help)   \
    if (!ADD_##kind(member))                                                                       \
        goto fail;
#include "daemon/service/options.def"
#undef GM_OPTION
    return object;
fail:
    cJSON_Delete(object);
    return NULL;
}

/* Add the user's name to each object of `list` that has a uid called `key`. */
static bool add_users(cJSON *list, const char *key, const char *name)
{
    char user[GM_USERS_NAME];
    cJSON *object;
    cJSON_ArrayForEach(object, list)
    {
        const cJSON *uid = cJSON_GetObjectItemCaseSensitive(object, key);
        if (!cJSON_IsNumber(uid))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(object, name);
        if (!cJSON_AddStringToObject(object, name, gm_users_name((uid_t)uid->valuedouble, user)))
            return false;
    }
    return true;
}

static bool add_waiters(const struct gm_control *control, cJSON *root)
{
    const struct gm_waiters *waiters = &control->waiters;
    cJSON *list = cJSON_AddArrayToObject(root, "starting");
    const uint64_t now = gm_now();
    char user[GM_USERS_NAME];
    for (uint32_t i = 0; list && i < waiters->n; i++) {
        const struct gm_waiting *one = &waiters->waiting[i];
        cJSON *object = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, object)) {
            cJSON_Delete(object);
            return false;
        }
        if (!cJSON_AddNumberToObject(object, "pid", one->request.pid) ||
            !cJSON_AddNumberToObject(object, "uid", one->request.uid) ||
            !cJSON_AddStringToObject(object, "user", gm_users_name(one->request.uid, user)) ||
            !cJSON_AddStringToObject(object, "name", waiters->who[i].name) ||
            !cJSON_AddNumberToObject(object, "expected_bytes", (double)one->request.program.need) ||
            !cJSON_AddNumberToObject(object, "waiting_s",
                                     (double)(now - one->since) / (double)GM_S))
            return false;
    }
    return list != NULL;
}

static bool add_places(struct gm_control *control, cJSON *root)
{
    struct gm_places *places = &control->places;
    const struct gm_refused *last = &places->last;
    uint64_t now = gm_now();
    char user[GM_USERS_NAME];
    if (!cJSON_AddNumberToObject(root, "reserved", gm_places_reserved(places, now)))
        return false;
    cJSON *object = cJSON_AddObjectToObject(root, "refused");
    if (!cJSON_AddNumberToObject(object, "count", (double)places->refused))
        return false;
    if (places->refused == 0)
        return true;
    return cJSON_AddNumberToObject(object, "pid", last->pid) &&
           cJSON_AddNumberToObject(object, "uid", last->uid) &&
           cJSON_AddStringToObject(object, "user", gm_users_name(last->uid, user)) &&
           cJSON_AddStringToObject(object, "name", last->name) &&
           cJSON_AddStringToObject(object, "why", last->why) &&
           cJSON_AddNumberToObject(object, "ago_s", (double)(now - last->at) / (double)GM_S);
}

/* It was sent to MPS, and says that it runs without: the driver did not start with it. */
static bool runs_alone(const struct gm_snapshot *snapshot, pid_t pid)
{
    for (uint32_t i = 0; i < snapshot->n_apps; i++)
        if (snapshot->apps[i].pid == pid)
            return (snapshot->apps[i].features_off & GM_FEATURE_ISOLATION) == 0;
    return false;
}

/* A program that shares, and its part of the multiprocessors. */
static bool add_sharer(cJSON *pids, cJSON *parts, const struct gm_mps_view *view, uint32_t k)
{
    cJSON *pid = cJSON_CreateNumber(view->pid[k]);
    cJSON *part = cJSON_CreateNumber(view->part[k] ? view->part[k] / 10.0 : 100);
    const bool has_pid = cJSON_AddItemToArray(pids, pid);
    const bool has_part = cJSON_AddItemToArray(parts, part);
    if (!has_pid)
        cJSON_Delete(pid);
    if (!has_part)
        cJSON_Delete(part);
    return has_pid && has_part;
}

static bool add_sharing(const struct gm_control *control, const struct gm_snapshot *snapshot,
                        cJSON *root)
{
    struct gm_mps_view view;
    char user[GM_USERS_NAME];
    cJSON *list = cJSON_AddArrayToObject(root, "space_sharing");
    for (uint32_t i = 0; list && gm_mps_view(control->mps, i, &view); i++) {
        cJSON *object = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, object)) {
            cJSON_Delete(object);
            return false;
        }
        cJSON *pids = cJSON_AddArrayToObject(object, "pids");
        cJSON *parts = cJSON_AddArrayToObject(object, "percent");
        bool is_whole = pids && parts;
        for (uint32_t k = 0; is_whole && k < view.n; k++)
            is_whole = runs_alone(snapshot, view.pid[k]) || add_sharer(pids, parts, &view, k);
        if (!is_whole || !cJSON_AddNumberToObject(object, "uid", view.uid) ||
            !cJSON_AddStringToObject(object, "user", gm_users_name(view.uid, user)) ||
            !cJSON_AddStringToObject(object, "state", view.word) ||
            !cJSON_AddNumberToObject(object, "session", view.session) ||
            !cJSON_AddStringToObject(object, "pipe", view.pipe) ||
            !cJSON_AddStringToObject(object, "why", view.why))
            return false;
    }
    return list != NULL;
}

char *gm_control_status(struct gm_control *control)
{
    const struct gm_options *options = control->options;
    char *text = NULL, handover[GM_HANDOVER_SIZE];
    cJSON *config = config_object(options);
    struct gm_snapshot *snapshot = gm_machine_snapshot(control->machine);
    cJSON *machine = snapshot ? gm_view_status(snapshot, control->machine->journal) : NULL;
    cJSON *root = cJSON_CreateObject();
    double uptime = (double)(gm_now() - control->started) / (double)GM_S;

    if (!config || !machine || !root)
        goto out;
    if (!cJSON_AddNumberToObject(root, "schema", GM_STATUS_SCHEMA) ||
        !cJSON_AddStringToObject(root, "version", GM_VERSION) ||
        !cJSON_AddStringToObject(root, "handover", gm_handover(handover)) ||
        !cJSON_AddNumberToObject(root, "pid", getpid()) ||
        !cJSON_AddNumberToObject(root, "uptime_s", uptime) ||
        !cJSON_AddStringToObject(root, "socket", options->socket))
        goto out;
    if (!cJSON_AddItemToObject(root, "config", config))
        goto out;
    config = NULL;
    if (!add_places(control, root) || !add_waiters(control, root) ||
        !add_sharing(control, snapshot, root))
        goto out;
    if (!add_users(cJSON_GetObjectItemCaseSensitive(machine, "apps"), "uid", "user"))
        goto out;
    while (machine->child) { /* its members become the document's */
        cJSON *member = cJSON_DetachItemViaPointer(machine, machine->child);
        if (!cJSON_AddItemToObject(root, member->string, member)) {
            cJSON_Delete(member);
            goto out;
        }
    }
    text = cJSON_PrintUnformatted(root);
out:
    cJSON_Delete(root);
    cJSON_Delete(machine);
    free(snapshot);
    cJSON_Delete(config);
    return text;
}

char *gm_control_log(struct gm_control *control, uint64_t since)
{
    char *text = NULL;
    cJSON *log = gm_view_log(control->machine->journal, since);
    if (log && cJSON_AddNumberToObject(log, "schema", GM_LOG_SCHEMA) &&
        cJSON_AddNumberToObject(log, "pid", getpid()) &&
        cJSON_AddNumberToObject(log, "started_s", (double)control->started / (double)GM_S) &&
        add_users(cJSON_GetObjectItemCaseSensitive(log, "entries"), "by_uid", "by"))
        text = cJSON_PrintUnformatted(log);
    cJSON_Delete(log);
    return text;
}

char *gm_control_trace(struct gm_control *control, uint64_t since)
{
    char *text = NULL;
    struct gm_snapshot *snapshot = gm_machine_snapshot(control->machine);
    cJSON *trace = snapshot ? gm_tape_ask(&control->machine->journal->tape, snapshot, since,
                                          gm_now(), gm_wall_time())
                            : NULL;
    if (trace && cJSON_AddNumberToObject(trace, "schema", GM_TRACE_SCHEMA) &&
        cJSON_AddNumberToObject(trace, "pid", getpid()) &&
        cJSON_AddNumberToObject(trace, "started_s", (double)control->started / (double)GM_S))
        text = cJSON_PrintUnformatted(trace);
    cJSON_Delete(trace);
    free(snapshot);
    return text;
}

/* A sealed memfd that holds `text`, or -errno. */
static int sealed_memfd(const char *text, size_t length)
{
    int fd = memfd_create("gpumux-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    for (size_t done = 0; done < length;) {
        ssize_t n = write(fd, text + done, length - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int error = n < 0 ? -errno : -EIO;
            close(fd);
            return error;
        }
        done += (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int gm_control_seal(char *text, uint64_t *bytes)
{
    *bytes = text ? strlen(text) : 0;
    int fd = text ? sealed_memfd(text, *bytes) : -ENOMEM;
    cJSON_free(text);
    return fd;
}

struct gm_msg_trim_is gm_control_trim(struct gm_control *control, uid_t asker, bool is_admin)
{
    struct gm_trimmed trimmed;
    gm_machine_trim(control->machine, asker, is_admin, &trimmed);
    return (struct gm_msg_trim_is){
        .gpu = trimmed.gpu, .pinned = trimmed.pinned, .paged = trimmed.paged};
}

void gm_control_forget(struct gm_control *control, uid_t asker, bool is_admin,
                       const struct gm_msg_forget *body, struct gm_msg_forgotten *answer)
{
    const bool has_user = (body->selects & GM_SET_UID) != 0;
    const uid_t uid = has_user ? body->uid : asker;
    memset(answer, 0, sizeof *answer);
    if (!is_admin && uid != asker) {
        answer->is_refused = 1;
        snprintf(answer->text, sizeof answer->text, "only root may forget other users' programs");
        return;
    }
    answer->count = gm_past_forget(control->past, is_admin && !has_user, uid,
                                   (body->selects & GM_SET_COMMAND) != 0 ? body->command : NULL);
}

uint64_t gm_control_config(struct gm_control *control, bool is_admin,
                           const struct gm_msg_config *body, struct gm_msg_config_is *answer)
{
    *answer = (struct gm_msg_config_is){.is_refused = 1};
    if (!is_admin)
        snprintf(answer->text, sizeof answer->text,
                 "only root and the daemon's own user may have it read its configuration");
    else if (body->what != GM_CONFIG_CHECK && body->what != GM_CONFIG_RELOAD)
        snprintf(answer->text, sizeof answer->text, "it is neither to be checked nor reloaded");
    else {
        const uint64_t number =
            control->reload ? gm_reload_ask(control->reload, body->what == GM_CONFIG_CHECK) : 0;
        if (number == 0)
            snprintf(answer->text, sizeof answer->text,
                     "the configuration is being read at this moment: try again");
        return number;
    }
    return 0;
}

void gm_control_set(struct gm_control *control, uid_t asker, bool is_admin,
                    const struct gm_msg_set *body, struct gm_msg_set_is *answer)
{
    struct gm_set_request request = {
        .selects = body->selects,
        .pid = body->pid,
        .uid = body->uid,
        .command = body->command,
        .asker = asker,
        .is_admin = is_admin,
        .settings = {.has = body->settings,
                     .class = body->class < GM_CLASSES ? (uint8_t)body->class : GM_CLASSES,
                     .weight = body->weight,
                     .share = body->share,
                     .is_oversize = body->is_oversize == 1,
                     .cap = body->cap},
    };

    memset(answer, 0, sizeof *answer);
    const bool is_ahead = request.settings.has == GM_SET_AHEAD;
    if (request.selects == 0 || (request.selects & ~(uint32_t)GM_SET_SELECTS) ||
        request.settings.has == 0 || !gm_settings_set_paused(&request.settings, body->paused) ||
        !(is_ahead || gm_settings_are_legal(&request.settings))) {
        snprintf(answer->text, sizeof answer->text, "no setting has such a value");
        answer->is_refused = 1;
        return;
    }
    struct gm_set_done done = {0};
    answer->is_refused =
        gm_machine_set(control->machine, &request, &done, answer->text, sizeof answer->text) != 0;
    answer->changed = done.changed;
    if (!answer->is_refused)
        gm_view_reason(&done.later, "", "", answer->text, sizeof answer->text);
}
