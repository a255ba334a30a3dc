/*
 * mux-ctl cdi: what a container needs to share the GPU, for Docker, Podman, containerd and CRI-O:
 * a document of the Container Device Interface (CDI). Calls find.c and say.c.
 *
 * Each of its two devices has all edits by itself, as the schema knows none beside them. Version
 * 0.3.0 has all that is needed, and a runtime may refuse a newer one than it needs. The GPU itself
 * is not among it: that is another document, NVIDIA's.
 */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sock.h"

/* Beside the library: a file that has the dynamic linker of a container load it. */
#define PRELOAD_FILE "gpumux/ld.so.preload"

/* Read-only: a socket can be connected to there all the same. */
static const char *const mount_options[] = {"ro", "nosuid", "nodev", "bind"};

/* The folder of `path`, and what is in it. False: `path` does not begin with a slash. */
static bool split(char *path, const char **name)
{
    char *slash = strrchr(path, '/');
    if (path[0] != '/' || slash == path)
        return false;
    *slash = '\0';
    *name = slash + 1;
    return true;
}

static bool add_mount(cJSON *mounts, const char *host, const char *container)
{
    cJSON *mount = cJSON_CreateObject();
    cJSON *options =
        cJSON_CreateStringArray(mount_options, sizeof mount_options / sizeof mount_options[0]);
    if (cJSON_AddStringToObject(mount, "hostPath", host) &&
        cJSON_AddStringToObject(mount, "containerPath", container) &&
        cJSON_AddItemToObject(mount, "options", options)) {
        options = NULL;
        if (cJSON_AddItemToArray(mounts, mount))
            return true;
    }
    cJSON_Delete(options);
    cJSON_Delete(mount);
    return false;
}

/* A device of this name: what both have, and what its own way of loading the library is. */
static bool add_device(cJSON *devices, const char *name, const char *shim, const char *sockets,
                       const char *preload)
{
    static const char *const env[] = {"LD_PRELOAD=" GM_CONTAINER_SHIM};
    cJSON *device = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(devices, device)) {
        cJSON_Delete(device);
        return false;
    }
    cJSON_AddStringToObject(device, "name", name);
    cJSON *edits = cJSON_AddObjectToObject(device, "containerEdits");
    cJSON *mounts = cJSON_AddArrayToObject(edits, "mounts");
    bool is_whole = edits && add_mount(mounts, shim, GM_CONTAINER_SHIM) &&
                    add_mount(mounts, sockets, GM_SOCKET_SYSTEM_FOLDER);
    if (preload) {
        is_whole = is_whole && add_mount(mounts, preload, "/etc/ld.so.preload");
    } else {
        cJSON *list = cJSON_CreateStringArray(env, 1);
        if (!cJSON_AddItemToObject(edits, "env", list)) {
            cJSON_Delete(list);
            is_whole = false;
        }
    }
    /* What kernels touch, for all users of the machine: it is where the library looks for it. */
    if (access(gm_profile_system(), F_OK) == 0)
        is_whole = is_whole && add_mount(mounts, gm_profile_system(), gm_profile_system());
    return is_whole;
}

int mux_cdi(const struct mux_options *options)
{
    char shim[PATH_MAX], preload[PATH_MAX + sizeof PRELOAD_FILE], sockets[PATH_MAX];
    const char *name, *socket = options->socket ? options->socket : getenv("GPUMUX_SOCKET");
    if (!mux_find(MUX_SHIM, "../shim/" MUX_SHIM, "GPUMUX_LIB", shim))
        return MUX_FAILED;
    snprintf(preload, sizeof preload, "%.*s" PRELOAD_FILE, (int)(strrchr(shim, '/') + 1 - shim),
             shim);
    if (access(preload, R_OK)) {
        mux_complain("cdi: %s: %s: install gpumux", preload, strerror(errno));
        return MUX_FAILED;
    }
    snprintf(sockets, sizeof sockets, "%s", socket && *socket ? socket : GM_SOCKET_SYSTEM);
    if (!split(sockets, &name) || strcmp(name, GM_SOCKET_NAME) != 0) {
        mux_complain("cdi: containers find the daemon as " GM_SOCKET_SYSTEM
                     ": its socket must be a whole path that ends in /" GM_SOCKET_NAME);
        return MUX_FAILED;
    }

    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cdiVersion", "0.3.0");
    cJSON_AddStringToObject(root, "kind", "gpumux.dev/gpu");
    cJSON *devices = cJSON_AddArrayToObject(root, "devices");
    char *text = NULL;
    if (add_device(devices, "env", shim, sockets, NULL) &&
        add_device(devices, "preload-file", shim, sockets, preload))
        text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) {
        mux_complain("out of memory");
        return MUX_FAILED;
    }
    puts(text);
    free(text);
    return mux_written("the document");
}
