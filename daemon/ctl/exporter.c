/*
 * mux-ctl metrics: writes them once, or serves them over HTTP, by libmicrohttpd: GET /metrics, on a
 * port of 127.0.0.1 or on a Unix socket. One thread; a request takes as long as the daemon takes to
 * answer, 5 s at most. All requests that wait meanwhile, or come within a second, get that answer.
 * A daemon that is down is a metric, gpumux_up 0. Calls metrics.c, ask.c and say.c.
 *
 * A page in a browser could reach the port by a name of its own that it has the DNS answer with
 * 127.0.0.1, and read what it says. So a request must name this machine. The Unix socket is for its
 * owner and its group.
 *
 * Any program of this machine may connect, and trickle its request, or not read the answer. All
 * come from one address, so a limit for each would not tell them apart. A connection is for one
 * request, and when many are open, who is there longest makes room for who comes: who asks at once
 * is answered at once.
 */
#include "daemon/ctl/metrics.h"

#ifdef GM_HAS_MICROHTTPD
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"

#define CONNECTIONS 16u /* a new one beyond these ends the oldest */
/* Those that are ended go a moment later, and others come meanwhile: as many again may. */
#define CONNECTIONS_MOST (2 * CONNECTIONS)
#define FRESH_NS GM_S
#define SILENCE_S 10u /* a connection that says nothing for so long is closed */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              char *text, size_t length)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Connection", "close");
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static struct {
    char *text; /* what the daemon said last, as metrics; NULL: nothing yet */
    size_t length;
    uint64_t at; /* in ns, when it had */
} last;

/* False: out of memory. */
static bool ask_anew(const struct mux_options *options)
{
    struct mux_question ask;
    cJSON *status = NULL;
    free(last.text);
    last.text = NULL;
    mux_try_status(options, &ask, &status);
    FILE *file = open_memstream(&last.text, &last.length);
    bool is_whole = file && mux_write_metrics(file, status);
    is_whole = file && fclose(file) == 0 && is_whole;
    cJSON_Delete(status);
    if (!is_whole) {
        free(last.text);
        last.text = NULL;
    }
    last.at = gm_now();
    return is_whole;
}

static enum MHD_Result send_metrics(const struct mux_options *options,
                                    struct MHD_Connection *connection)
{
    if ((!last.text || gm_now() - last.at > FRESH_NS) && !ask_anew(options))
        return MHD_NO;
    return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", last.text,
                  last.length);
}

/* Whether the request asks for the address that is served. One without a Host is no browser's. */
static bool is_for_us(const struct mux_options *options, struct MHD_Connection *connection)
{
    static const char *const names[] = {"localhost", "127.0.0.1"};
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    char with_port[32];
    if (options->unix_path || !host)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(with_port, sizeof with_port, "%s:%u", names[i], options->port);
        if (strcasecmp(host, with_port) == 0 ||
            (options->port == 80 && strcasecmp(host, names[i]) == 0))
            return true;
    }
    return false;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    static char none[] = "there is only /metrics\n", other[] = "only GET\n";
    static char elsewhere[] = "ask for localhost or 127.0.0.1, with the port of --listen\n";
    (void)version, (void)data, (void)state;
    if (!is_for_us(arg, connection))
        return answer(connection, MHD_HTTP_FORBIDDEN, "text/plain", elsewhere, strlen(elsewhere));
    if (strcmp(method, "GET") != 0 || *size > 0)
        return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", other, strlen(other));
    if (strcmp(url, "/metrics") != 0)
        return answer(connection, MHD_HTTP_NOT_FOUND, "text/plain", none, strlen(none));
    return send_metrics(arg, connection);
}

/* Open connections, oldest first. All of this is the server's thread's. */
struct open {
    TAILQ_ENTRY(open) link;
    int fd;
};
static TAILQ_HEAD(opens, open) opens = TAILQ_HEAD_INITIALIZER(opens);
static unsigned n_open;

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)arg;
    struct open *open = *state;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        open = malloc(sizeof *open);
        *state = open;
        if (!open || !info) { /* nobody could end it later */
            if (info)
                shutdown(info->connect_fd, SHUT_RDWR);
            free(open);
            *state = NULL;
            return;
        }
        open->fd = info->connect_fd;
        if (n_open == CONNECTIONS) {
            struct open *oldest = TAILQ_FIRST(&opens);
            shutdown(oldest->fd, SHUT_RDWR);
            TAILQ_REMOVE(&opens, oldest, link);
            oldest->fd = -1;
            n_open--;
        }
        TAILQ_INSERT_TAIL(&opens, open, link);
        n_open++;
    } else if (open) {
        if (open->fd >= 0) {
            TAILQ_REMOVE(&opens, open, link);
            n_open--;
        }
        free(open);
        *state = NULL;
    }
}

/* Take the socket of one that was killed away. False, after one line: there is something else. One
 * of another kind, or of somebody who listens, stays: bind fails. */
static bool make_room(const struct sockaddr_un *path)
{
    struct stat found;
    if (lstat(path->sun_path, &found) != 0)
        return true; /* nothing; or bind says what is wrong */
    if (!S_ISSOCK(found.st_mode)) {
        mux_complain("metrics: --unix: %s exists, and is no socket", path->sun_path);
        return false;
    }
    const int other = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (other >= 0 && connect(other, (const void *)path, sizeof *path) != 0 &&
        errno == ECONNREFUSED)
        unlink(path->sun_path);
    if (other >= 0)
        close(other);
    return true;
}

/* A socket that listens, or -1 after one line. */
static int listen_at(const struct mux_options *options)
{
    const int yes = 1;
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in port = {.sin_family = AF_INET,
                               .sin_port = htons(options->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const bool is_unix = options->unix_path != NULL;
    const struct sockaddr *address = is_unix ? (void *)&path : (void *)&port;
    const socklen_t length = is_unix ? sizeof path : sizeof port;
    char where[160];
    if (is_unix && strlen(options->unix_path) >= sizeof path.sun_path) {
        mux_complain("metrics: --unix: a path has at most %zu bytes", sizeof path.sun_path - 1);
        return -1;
    }
    snprintf(where, sizeof where, "127.0.0.1:%u", options->port);
    if (is_unix) {
        snprintf(path.sun_path, sizeof path.sun_path, "%s", options->unix_path);
        snprintf(where, sizeof where, "%s", options->unix_path);
        if (!make_room(&path))
            return -1;
    }
    const int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !is_unix)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const mode_t mask = umask(0117); /* for its owner and its group; there is one thread yet */
    const bool is_bound = fd >= 0 && bind(fd, address, length) == 0;
    umask(mask);
    if (is_bound && listen(fd, CONNECTIONS) == 0)
        return fd;
    mux_complain("metrics: cannot listen at %s: %s", where, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

static int serve(const struct mux_options *options)
{
    sigset_t ends;
    int signal = 0;
    const int fd = listen_at(options);
    if (fd < 0)
        return MUX_FAILED;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* the server's thread has that from here */
    struct MHD_Daemon *server =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request,
                         (void *)options, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                         CONNECTIONS_MOST, MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_S,
                         MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL, MHD_OPTION_END);
    if (!server) {
        mux_complain("metrics: the server does not start");
        close(fd);
        return MUX_FAILED;
    }
    sigwait(&ends, &signal);
    MHD_stop_daemon(server);
    free(last.text);
    last.text = NULL;
    if (options->unix_path)
        unlink(options->unix_path);
    return MUX_OK;
}
#else
static int serve(const struct mux_options *options)
{
    mux_complain("%s: this mux-ctl was built without libmicrohttpd (libmicrohttpd-dev): it writes "
                 "metrics to standard output only",
                 options->name);
    return MUX_FAILED;
}
#endif

int mux_metrics(const struct mux_options *options)
{
    cJSON *status;
    if (options->port > 0 && options->unix_path) {
        mux_complain("metrics: --listen or --unix, not both: start a second one for the other");
        return MUX_FAILED;
    }
    if (options->port > 0 || options->unix_path)
        return serve(options);
    const int code = mux_get_status(options, &status);
    if (code) { /* who collects a file shall know it, too */
        mux_write_metrics(stdout, NULL);
        return code;
    }
    const bool is_whole = mux_write_metrics(stdout, status);
    cJSON_Delete(status);
    if (!is_whole && !ferror(stdout)) {
        mux_complain("out of memory");
        return MUX_FAILED;
    }
    return mux_written("the metrics");
}
