/* The environment is changed by exchanging the whole array (environ), which is never freed: other
 * threads may be reading it, and setenv may free what they read. */
#include "shim/link/place.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/appname.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/nodes.h"
#include "common/size.h"
#include "common/sock.h"
#include "common/visible.h"
#include "common/wire.h"

#define GM_PLACE_PATIENCE (500 * GM_SLOW * GM_MS) /* for the answer */

#define GM_PLACE_LONGEST (86400 * GM_S) /* --patience is no longer */

#define GM_PLACE_LIST "CUDA_VISIBLE_DEVICES"
#define GM_PLACE_PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define GM_PLACE_DEFAULT_PIPE "/tmp/nvidia-mps"

extern char **environ;

/* The user's, copies; NULL: there is none. Written once. */
static char *gm_place_own, *gm_place_own_pipe;

/* ---- the environment ---- */

/* Whether `entry` sets the variable `name`. */
static bool gm_place_sets(const char *entry, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* The list and the folder of MPS are these; NULL: none is set. False: out of memory. */
static bool gm_place_export(const char *list, const char *pipe)
{
    char **from = environ, *added[2] = {NULL, NULL};
    size_t n = 0, at = 0;
    while (from != NULL && from[n] != NULL)
        n++;
    char **made = malloc((n + 4) * sizeof(*made));
    if (made == NULL || (list != NULL && asprintf(&added[0], GM_PLACE_LIST "=%s", list) < 0) ||
        (pipe != NULL && asprintf(&added[1], GM_PLACE_PIPE "=%s", pipe) < 0)) {
        free(made);
        return false;
    }
    for (size_t i = 0; i < n && from[i] != NULL; i++) /* others may take some out meanwhile */
        if (!gm_place_sets(from[i], GM_PLACE_LIST) && !gm_place_sets(from[i], GM_PLACE_PIPE))
            made[at++] = from[i];
    for (size_t i = 0; i < 2; i++)
        if (added[i] != NULL)
            made[at++] = added[i];
    made[at] = NULL;
    made[at + 1] = (char *)from; /* a tool that looks for what was lost finds it here */
    __atomic_store_n(&environ, made, __ATOMIC_RELEASE);
    return true;
}

void gm_place_undo(void)
{
    gm_place_export(gm_place_own, gm_place_own_pipe);
}

/* ---- the question ---- */

/* Launchers that give each process a device by its number among those of the machine. */
static bool gm_place_is_ranked(void)
{
    static const char *const names[] = {
        "LOCAL_RANK",                 /* torchrun, DeepSpeed, Accelerate */
        "OMPI_COMM_WORLD_LOCAL_RANK", /* Open MPI */
        "SLURM_LOCALID",              /* srun */
        "MPI_LOCALRANKID",            /* MPICH, Intel MPI */
        "MV2_COMM_WORLD_LOCAL_RANK",  /* MVAPICH2 */
        "PALS_LOCAL_RANKID",          /* HPE */
        "FLUX_TASK_LOCAL_ID",
        "JSM_NAMESPACE_LOCAL_RANK",
        "HOROVOD_LOCAL_RANK",
        "GPUMUX_GROUP", /* ranks that somebody starts by hand */
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0')
            return true;
    }
    return false;
}

/* Whether the user runs MPS: the driver joins that by itself. A socket of another type than that of
 * the control daemon says "wrong type" if it lives, and "refused" if it does not. */
static bool gm_place_has_mps(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = GM_PLACE_DEFAULT_PIPE "/control"};
    struct stat found;
    if (gm_place_own_pipe != NULL && gm_place_own_pipe[0] != '\0')
        return true;
    if (lstat(GM_PLACE_DEFAULT_PIPE, &found) != 0 || !S_ISDIR(found.st_mode) ||
        found.st_uid != geteuid())
        return false;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool is_alive = fd >= 0 && (connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 ||
                                      errno == EPROTOTYPE);
    if (fd >= 0)
        close(fd);
    return is_alive;
}

static uint32_t gm_place_flags(void)
{
    const char *wish = getenv("GPUMUX_PLACE"), *order = getenv("CUDA_DEVICE_ORDER");
    uint32_t flags = gm_place_own != NULL ? GM_PLACE_HAS_LIST : 0;
    if (order != NULL && strcmp(order, "PCI_BUS_ID") == 0)
        flags |= GM_PLACE_BY_BUS;
    if (gm_place_is_ranked())
        flags |= GM_PLACE_IS_RANKED;
    if (gm_place_has_mps())
        flags |= GM_PLACE_HAS_MPS;
    if (wish == NULL || wish[0] == '\0')
        return flags;
    if (strcmp(wish, "off") == 0)
        return flags | GM_PLACE_SAYS_OFF;
    if (strcmp(wish, "order") == 0)
        return flags | GM_PLACE_SAYS_ORDER;
    gm_log(GM_LOG_WARN, "GPUMUX_PLACE is not off or order: going on without it");
    return flags;
}

/* GPUMUX_NEED, in bytes. */
static uint64_t gm_place_need(void)
{
    const char *text = getenv("GPUMUX_NEED");
    uint64_t bytes = 0;
    if (text != NULL && text[0] != '\0' && gm_parse_size(text, &bytes) != 0)
        gm_log(GM_LOG_WARN, "GPUMUX_NEED is no size: going on without it");
    return bytes;
}

static bool gm_place_wait(int fd, uint64_t until)
{
    for (uint64_t now = gm_now(); now < until; now = gm_now()) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, (int)((until - now) / GM_MS) + 1) > 0)
            return true;
    }
    return false;
}

/* Ask. Returns the entries of the answer, which are in `entries`; 0: the order stays. `pipe` is the
 * folder of the MPS to join, or "". */
static uint32_t gm_place_ask(int fd, const struct gm_tokens *tokens,
                             struct gm_place_entry entries[GM_DEVICES_VISIBLE],
                             char pipe[GM_PIPE_MAX])
{
    static uint64_t buffer[GM_WIRE_MAX / sizeof(uint64_t)];
    struct gm_token_entry sent[GM_DEVICES_VISIBLE];
    struct gm_msg_place place = {
        .flags = gm_place_flags(), .nodes = gm_nodes(), .need = gm_place_need()};
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS], n_fds = 0;

    memset(sent, 0, sizeof(sent));
    for (uint32_t i = 0; i < tokens->n; i++)
        memcpy(sent[i].text, tokens->token[i].at, tokens->token[i].length);
    gm_appname_own((char *)buffer, sizeof(buffer), place.name);
    if ((place.flags & GM_PLACE_SAYS_OFF) == 0)
        place.family = gm_appname_family((char *)buffer, sizeof(buffer), place.name);
    if (gm_sock_send_message(fd, GM_MSG_PLACE, &place, sent, tokens->n, NULL, 0) != 0)
        return 0;
    for (uint64_t wait_ns = 0;;) {
        if (!gm_place_wait(fd, gm_now() + wait_ns + GM_PLACE_PATIENCE)) {
            gm_log(GM_LOG_INFO, "GPUs stay in their order: the daemon does not answer");
            return 0;
        }
        const ssize_t length = gm_sock_receive(fd, buffer, sizeof(buffer), fds, &n_fds);
        for (int i = 0; i < n_fds; i++)
            close(fds[i]);
        if (length <= 0 ||
            gm_wire_decode(buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_NEW, &message) !=
                GM_WIRE_OK ||
            message.type != GM_MSG_PLACED)
            return 0;
        const struct gm_msg_placed *placed = message.body;
        if (placed->text[0] != '\0')
            gm_log(GM_LOG_INFO, "%.*s", (int)sizeof(placed->text), placed->text);
        if (placed->sharing[0] != '\0')
            gm_log(GM_LOG_INFO, "%.*s", (int)sizeof(placed->sharing), placed->sharing);
        if (placed->pipe[0] == '/')
            memcpy(pipe, placed->pipe, GM_PIPE_MAX);
        if (placed->wait_ns == 0)
            break;
        if (wait_ns != 0 || placed->wait_ns > GM_PLACE_LONGEST)
            return 0;
        wait_ns = placed->wait_ns;
    }
    if (message.count > 0)
        memcpy(entries, message.entries, message.count * sizeof(*entries));
    return message.count;
}

/* Whether the entries have each of the first tokens once. */
static bool gm_place_is_order(const struct gm_place_entry *entries, uint32_t n, uint32_t tokens)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (entries[i].token >= n || entries[i].token >= tokens ||
            (seen >> entries[i].token & 1) != 0)
            return false;
        seen |= 1ull << entries[i].token;
    }
    return true;
}

/* The new list, in memory of its own; NULL: there is none. */
static char *gm_place_list(const struct gm_tokens *tokens, const struct gm_place_entry *entries,
                           uint32_t n)
{
    uint32_t order[GM_DEVICES_VISIBLE];
    if (gm_place_own == NULL) {
        char *list = malloc(n * GM_UUID_TEXT + 1);
        size_t at = 0;
        for (uint32_t i = 0; list != NULL && i < n; i++) {
            if (i > 0)
                list[at++] = ',';
            gm_uuid_format(entries[i].uuid, list + at);
            at += GM_UUID_TEXT - 1;
        }
        return list;
    }
    const size_t size = strlen(gm_place_own) + 2;
    char *list = malloc(size);
    if (list == NULL || !gm_place_is_order(entries, n, tokens->n)) {
        free(list);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = entries[i].token;
    if (gm_tokens_write(tokens, order, n, list, size) == 0) {
        free(list);
        return NULL;
    }
    return list;
}

bool gm_place(bool *has_mps)
{
    struct gm_place_entry entries[GM_DEVICES_VISIBLE];
    struct gm_tokens tokens = {.n = 0};
    char pipe[GM_PIPE_MAX] = "";
    uint32_t n = 0;

    *has_mps = false;
    const char *set = getenv(GM_PLACE_LIST), *set_pipe = getenv(GM_PLACE_PIPE);
    gm_place_own = set != NULL ? strdup(set) : NULL;
    gm_place_own_pipe = set_pipe != NULL ? strdup(set_pipe) : NULL;
    if ((set != NULL && gm_place_own == NULL) || (set_pipe != NULL && gm_place_own_pipe == NULL))
        return false;
    if (set != NULL)
        gm_tokens_cut(&tokens, gm_place_own);
    const int fd = gm_sock_connect_any(NULL, 0);
    if (fd >= 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        n = gm_place_ask(fd, &tokens, entries, pipe);
        close(fd);
    }
    char *list = n > 0 ? gm_place_list(&tokens, entries, n) : NULL;
    const bool joins = pipe[0] != '\0';
    const bool is_made =
        (list != NULL || joins) &&
        gm_place_export(list != NULL ? list : gm_place_own, joins ? pipe : gm_place_own_pipe);
    *has_mps = joins && is_made;
    free(list);
    return is_made;
}
