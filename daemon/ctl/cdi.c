/*
 * mux-ctl cdi: what a container needs to share the GPU, for Docker, Podman, containerd and CRI-O:
 * a document of the Container Device Interface (CDI), which it writes, installs or removes.
 * doctor.c asks whether the installed one is still right. Calls find.c, replace.c and say.c.
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
#include <sys/stat.h>
#include <unistd.h>

#include "common/sock.h"

#define KIND "gpumux.dev/gpu"
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

/* The document for containers that find the daemon's socket in the folder `sockets`. NULL, after
 * one line in `why`: it cannot be made. */
static cJSON *make_document(const char *sockets, char *why, size_t size)
{
    char shim[PATH_MAX], preload[PATH_MAX + sizeof PRELOAD_FILE];
    if (!mux_seek(MUX_SHIM, "../shim/" MUX_SHIM, "GPUMUX_LIB", shim, why, size))
        return NULL;
    snprintf(preload, sizeof preload, "%.*s" PRELOAD_FILE, (int)(strrchr(shim, '/') + 1 - shim),
             shim);
    if (access(preload, R_OK)) {
        snprintf(why, size, "cdi: %s: %s: install gpumux", preload, strerror(errno));
        return NULL;
    }
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cdiVersion", "0.3.0");
    cJSON_AddStringToObject(root, "kind", KIND);
    cJSON *devices = cJSON_AddArrayToObject(root, "devices");
    if (add_device(devices, "env", shim, sockets, NULL) &&
        add_device(devices, "preload-file", shim, sockets, preload))
        return root;
    cJSON_Delete(root);
    snprintf(why, size, "out of memory");
    return NULL;
}

/* What is at MUX_CDI_FILE: ours, which the caller deletes. NULL, with errno: it cannot be read;
 * EILSEQ: it is somebody else's. */
static cJSON *read_installed(void)
{
    static char text[64 << 10];
    FILE *file = fopen(MUX_CDI_FILE, "re");
    if (!file)
        return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cJSON *root = cJSON_Parse(text);
    if (strcmp(mux_word(root, "kind"), KIND) == 0)
        return root;
    cJSON_Delete(root);
    errno = EILSEQ;
    return NULL;
}

bool mux_cdi_is_stale(char *why, size_t size)
{
    cJSON *installed = read_installed();
    const cJSON *device =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(installed, "devices"), 0);
    const cJSON *edits = cJSON_GetObjectItemCaseSensitive(device, "containerEdits"), *mount;
    const char *sockets = "-";
    why[0] = '\0';
    if (!installed)
        return false;
    cJSON_ArrayForEach(mount, cJSON_GetObjectItemCaseSensitive(edits, "mounts"))
    {
        if (strcmp(mux_word(mount, "containerPath"), GM_SOCKET_SYSTEM_FOLDER) == 0)
            sockets = mux_word(mount, "hostPath");
    }
    cJSON *now = make_document(sockets, why, size);
    const bool is_stale = now && !cJSON_Compare(now, installed, true);
    cJSON_Delete(now);
    cJSON_Delete(installed);
    return is_stale;
}

static int complain_of_file(int error)
{
    mux_complain("cdi: " MUX_CDI_FILE ": %s",
                 error == EILSEQ ? "it is not of gpumux, and stays" : mux_file_error(error));
    return MUX_FAILED;
}

static int install_document(const char *text)
{
    char folder[] = MUX_CDI_FILE;
    struct mux_file file;
    cJSON *installed = read_installed();
    if (!installed && errno != ENOENT)
        return complain_of_file(errno);
    cJSON_Delete(installed);
    *strrchr(folder, '/') = '\0';
    mkdir(folder, 0755); /* what is wrong with it, the file says */
    if (!mux_begin_file(&file, MUX_CDI_FILE, 0644))
        return complain_of_file(errno);
    const bool is_good = fprintf(file.file, "%s\n", text) > 0;
    if (!mux_end_file(&file, is_good))
        return complain_of_file(errno);
    puts("wrote " MUX_CDI_FILE);
    return mux_written("what was done");
}

static int remove_document(void)
{
    cJSON *installed = read_installed();
    const bool is_none = !installed && errno == ENOENT;
    if (!is_none && (!installed || unlink(MUX_CDI_FILE) != 0)) {
        const int error = errno;
        cJSON_Delete(installed);
        return complain_of_file(error);
    }
    cJSON_Delete(installed);
    puts(is_none ? "there is no " MUX_CDI_FILE : "removed " MUX_CDI_FILE);
    return mux_written("what was done");
}

int mux_cdi(const struct mux_options *options)
{
    char sockets[PATH_MAX], why[PATH_MAX + 128];
    const char *name, *socket = options->socket ? options->socket : getenv("GPUMUX_SOCKET");
    if (options->is_installed && options->is_removed) {
        mux_complain("cdi: --install or --remove, not both");
        return MUX_FAILED;
    }
    if (options->is_removed)
        return remove_document();
    snprintf(sockets, sizeof sockets, "%s", socket && *socket ? socket : GM_SOCKET_SYSTEM);
    if (!split(sockets, &name) || strcmp(name, GM_SOCKET_NAME) != 0) {
        mux_complain("cdi: containers find the daemon as " GM_SOCKET_SYSTEM
                     ": its socket must be a whole path that ends in /" GM_SOCKET_NAME);
        return MUX_FAILED;
    }
    cJSON *root = make_document(sockets, why, sizeof why);
    char *text = root ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!text) {
        mux_complain("%s", root ? "out of memory" : why);
        return MUX_FAILED;
    }
    if (!options->is_installed)
        puts(text);
    const int code = options->is_installed ? install_document(text) : mux_written("the document");
    free(text);
    return code;
}
