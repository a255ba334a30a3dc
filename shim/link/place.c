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
#include "common/wishes.h"

#define GM_PLACE_PATIENCE (500 * GM_SLOW * GM_MS) /* for the answer */

#define GM_PLACE_LONGEST (86400 * GM_S) /* --patience is no longer */

#define GM_PLACE_LIST "CUDA_VISIBLE_DEVICES"
#define GM_PLACE_PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define GM_PLACE_PART "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define GM_PLACE_DEFAULT_PIPE "/tmp/nvidia-mps"

extern char **environ;

/* Variables that are changed, and their values; NULL: it is not set. */
enum { LIST, PIPE, PART, N_VARIABLES };
static const char *const gm_place_names[N_VARIABLES] = {GM_PLACE_LIST, GM_PLACE_PIPE,
                                                        GM_PLACE_PART};
struct gm_place_values {
    const char *of[N_VARIABLES];
};

/* The user's, copies. Written once. */
static struct gm_place_values gm_place_own;

/* ---- the environment ---- */

/* Whether `entry` sets one of the variables. */
static bool gm_place_sets(const char *entry)
{
    for (uint32_t i = 0; i < N_VARIABLES; i++) {
        const size_t length = strlen(gm_place_names[i]);
        if (strncmp(entry, gm_place_names[i], length) == 0 && entry[length] == '=')
            return true;
    }
    return false;
}

/* The variables are these. False: out of memory. */
static bool gm_place_export(const struct gm_place_values *values)
{
    char **from = environ;
    size_t n = 0, at = 0;
    while (from != NULL && from[n] != NULL)
        n++;
    char **made = malloc((n + N_VARIABLES + 2) * sizeof(*made));
    if (made == NULL)
        return false;
    for (size_t i = 0; i < n && from[i] != NULL; i++) /* others may take some out meanwhile */
        if (!gm_place_sets(from[i]))
            made[at++] = from[i];
    for (uint32_t i = 0; i < N_VARIABLES; i++) {
        if (values->of[i] == NULL)
            continue;
        if (asprintf(&made[at], "%s=%s", gm_place_names[i], values->of[i]) < 0) {
            free(made); /* and leave what was added: that is never freed */
            return false;
        }
        at++;
    }
    made[at] = NULL;
    made[at + 1] = (char *)from; /* a tool that looks for what was lost finds it here */
    __atomic_store_n(&environ, made, __ATOMIC_RELEASE);
    return true;
}

void gm_place_undo(void)
{
    gm_place_export(&gm_place_own);
}

/* Keep the user's. False: out of memory. */
static bool gm_place_keep(void)
{
    for (uint32_t i = 0; i < N_VARIABLES; i++) {
        const char *set = getenv(gm_place_names[i]);
        gm_place_own.of[i] = set != NULL ? strdup(set) : NULL;
        if (set != NULL && gm_place_own.of[i] == NULL)
            return false;
    }
    return true;
}

/* The part of the multiprocessors, in thousandths, as the driver wants it: in percent. What the
 * user set stays if it is less. */
static const char *gm_place_part(uint32_t part, char text[16])
{
    const char *own = gm_place_own.of[PART];
    char *end;
    const double most = own != NULL ? strtod(own, &end) : 0;
    if (part == 0 || part > 1000 || (own != NULL && most > 0 && most * 10 <= part))
        return own;
    snprintf(text, 16, "%u.%u", part / 10, part % 10);
    return text;
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
    if (gm_place_own.of[PIPE] != NULL && gm_place_own.of[PIPE][0] != '\0')
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
    uint32_t flags = gm_place_own.of[LIST] != NULL ? GM_PLACE_HAS_LIST : 0;
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
 * folder of the MPS to join, or ""; *part what it may have of the multiprocessors there. */
static uint32_t gm_place_ask(int fd, const struct gm_tokens *tokens,
                             struct gm_place_entry entries[GM_DEVICES_VISIBLE],
                             char pipe[GM_PIPE_MAX], uint32_t *part)
{
    static uint64_t buffer[GM_WIRE_MAX / sizeof(uint64_t)];
    static struct gm_token_entry sent[GM_DEVICES_VISIBLE];
    struct gm_msg_place place = {.flags = gm_place_flags(),
                                 .class = gm_wishes_read_class(secure_getenv),
                                 .nodes = gm_nodes(),
                                 .need = gm_place_need()};
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
        if (placed->pipe[0] == '/') {
            memcpy(pipe, placed->pipe, GM_PIPE_MAX);
            *part = placed->part;
        }
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
    const char *const own = gm_place_own.of[LIST];
    if (own == NULL) {
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
    const size_t size = strlen(own) + 2;
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
    static struct gm_place_entry entries[GM_DEVICES_VISIBLE]; /* stacks may be small */
    static struct gm_tokens tokens;
    static char pipe[GM_PIPE_MAX];
    char part_text[16];
    uint32_t n = 0, part = 0;

    *has_mps = false;
    tokens.n = 0;
    pipe[0] = '\0';
    if (!gm_place_keep())
        return false;
    if (gm_place_own.of[LIST] != NULL)
        gm_tokens_cut(&tokens, gm_place_own.of[LIST]);
    const int fd = gm_sock_connect_any(NULL, 0);
    if (fd >= 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        n = gm_place_ask(fd, &tokens, entries, pipe, &part);
        close(fd);
    }
    char *list = n > 0 ? gm_place_list(&tokens, entries, n) : NULL;
    struct gm_place_values values = gm_place_own;
    if (list != NULL)
        values.of[LIST] = list;
    const bool joins = pipe[0] != '\0';
    if (joins) {
        values.of[PIPE] = pipe;
        values.of[PART] = gm_place_part(part, part_text);
    }
    const bool is_made = (list != NULL || joins) && gm_place_export(&values);
    *has_mps = joins && is_made;
    free(list);
    return is_made;
}
