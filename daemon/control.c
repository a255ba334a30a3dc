/* Control: see control.h. */
#include "daemon/control.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/sock.h"
#include "common/text.h"

void gm_control_init(struct gm_control *control, const struct gm_options *options,
                     struct gm_engine *engine)
{
    memset(control, 0, sizeof *control);
    control->options = options;
    control->engine = engine;
    control->started = gm_now();
}

/* The name of `uid`, or its number as text. Valid until the next call. */
static const char *user_name(struct gm_control *control, uid_t uid)
{
    size_t slot = uid % GM_CONTROL_USERS;
    char *name = control->users[slot].name;
    size_t size = sizeof control->users[slot].name;
    char buffer[4096];
    struct passwd entry, *found = NULL;

    if (name[0] && control->users[slot].uid == uid)
        return name;
    if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found && found->pw_name[0])
        snprintf(name, size, "%s", found->pw_name);
    else
        snprintf(name, size, "%u", uid);
    gm_text_clean(name, size);
    control->users[slot].uid = uid;
    return name;
}

/* One member for each option, in the unit that its name ends with. Returns NULL without memory. */
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
#define ADD_CHOICE(member) cJSON_AddNumberToObject(object, #member, options->member)
#define ADD_PATH(member) cJSON_AddStringToObject(object, #member, options->member)
#define ADD_LEVEL(member)                                                                          \
    cJSON_AddStringToObject(object, #member, gm_options_level_name(options->member))
#define ADD_FLAG(member) cJSON_AddBoolToObject(object, #member, options->member)

static cJSON *config_object(const struct gm_options *options)
{
    cJSON *object = cJSON_CreateObject();
    if (!object)
        return NULL;
#define GM_OPTION(name, member, kind, argument, place, min, max, otherwise, help)                  \
    if (!ADD_##kind(member))                                                                       \
        goto fail;
#include "daemon/options.def"
#undef GM_OPTION
    return object;
fail:
    cJSON_Delete(object);
    return NULL;
}

static bool add_users(struct gm_control *control, cJSON *apps)
{
    cJSON *app;
    cJSON_ArrayForEach(app, apps)
    {
        const cJSON *uid = cJSON_GetObjectItemCaseSensitive(app, "uid");
        if (!cJSON_IsNumber(uid))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(app, "user");
        if (!cJSON_AddStringToObject(app, "user", user_name(control, (uid_t)uid->valuedouble)))
            return false;
    }
    return true;
}

char *gm_control_status(struct gm_control *control)
{
    const struct gm_options *options = control->options;
    char *text = NULL;
    cJSON *config = config_object(options);
    cJSON *engine = gm_engine_status(control->engine);
    cJSON *root = cJSON_CreateObject();
    double uptime = (double)(gm_now() - control->started) / (double)GM_S;

    if (!config || !engine || !root)
        goto out;
    if (!cJSON_AddNumberToObject(root, "schema", GM_STATUS_SCHEMA) ||
        !cJSON_AddStringToObject(root, "version", GM_VERSION) ||
        !cJSON_AddNumberToObject(root, "pid", getpid()) ||
        !cJSON_AddNumberToObject(root, "uptime_s", uptime) ||
        !cJSON_AddStringToObject(root, "socket", options->socket))
        goto out;
    if (!cJSON_AddItemToObject(root, "config", config))
        goto out;
    config = NULL;
    if (!add_users(control, cJSON_GetObjectItemCaseSensitive(engine, "apps")))
        goto out;
    while (engine->child) { /* the engine's members become the document's */
        cJSON *member = cJSON_DetachItemViaPointer(engine, engine->child);
        if (!cJSON_AddItemToObject(root, member->string, member)) {
            cJSON_Delete(member);
            goto out;
        }
    }
    text = cJSON_PrintUnformatted(root);
out:
    cJSON_Delete(root);
    cJSON_Delete(engine);
    cJSON_Delete(config);
    return text;
}

/* A memfd with `length` bytes of `text` that nobody can change. Returns it or -errno. */
static int sealed_memfd(const char *text, size_t length)
{
    int fd = memfd_create("gpumux-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
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

void gm_control_answer(struct gm_control *control, struct gm_session *session)
{
    char *text = gm_control_status(control);
    int fd = text ? sealed_memfd(text, strlen(text)) : -ENOMEM;
    if (fd < 0) {
        char why[128];
        snprintf(why, sizeof why, "the status cannot be made: %s", strerror(-fd));
        gm_session_end(session, GM_REFUSE_FULL, why);
    } else {
        struct gm_msg_status_is body = {.bytes = strlen(text)};
        gm_session_send(session, GM_MSG_STATUS_IS, &body, NULL, 0, &fd, 1);
        close(fd);
    }
    cJSON_free(text);
}
