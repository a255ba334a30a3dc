#include "shim/link/post.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/locks.h"
#include "common/sock.h"
#include "shim/link/work.h"

/* A message for which the socket had no room. */
struct gm_letter {
    struct gm_letter *next;
    size_t length;
    uint64_t bytes[16]; /* no message without entries is longer */
};

static _Atomic int gm_post_socket = -1;
static struct stat gm_post_file; /* of it: a program may close files that it does not know */
static _Atomic bool gm_post_is_open;

/* Guards what follows. */
static struct gm_lock gm_post_lock = GM_LOCK_INITIALIZER(GM_LOCK_POST);
static struct gm_letter *gm_post_letters; /* in order */
static struct gm_letter **gm_post_end = &gm_post_letters;

/* Whether our number is still that of our file. */
static bool gm_post_has_file(void)
{
    struct stat now;
    return gm_post_socket >= 0 && fstat(gm_post_socket, &now) == 0 &&
           now.st_ino == gm_post_file.st_ino && now.st_dev == gm_post_file.st_dev;
}

void gm_post_open(int fd)
{
    if (gm_post_has_file() && dup3(fd, gm_post_socket, O_CLOEXEC) >= 0)
        close(fd);
    else
        gm_post_socket = fd;
    fstat(gm_post_socket, &gm_post_file);
    gm_post_is_open = true;
}

int gm_post_fd(void)
{
    return gm_post_socket;
}

/* With the lock: keep a message until the socket has room. 0 or -errno. */
static int gm_post_keep(enum gm_msg_type type, const void *body)
{
    struct gm_letter *letter = malloc(sizeof(*letter));
    if (letter == NULL)
        return -ENOMEM;
    letter->next = NULL;
    letter->length = gm_wire_encode(letter->bytes, sizeof(letter->bytes), type, body, NULL, 0);
    *gm_post_end = letter;
    gm_post_end = &letter->next;
    return 0;
}

/* The link thread sees it, and ends every request. */
static void gm_post_break(void)
{
    shutdown(gm_post_socket, SHUT_RDWR);
}

void gm_post_send(enum gm_msg_type type, const void *body)
{
    int error = -EAGAIN;
    if (!gm_post_is_open)
        return;
    gm_lock(&gm_post_lock);
    const bool is_first = gm_post_letters == NULL;
    if (is_first)
        error = gm_sock_send_message(gm_post_socket, type, body, NULL, 0, NULL, 0);
    const bool is_kept = gm_sock_is_full(error);
    if (is_kept && gm_post_is_open)
        error = gm_post_keep(type, body);
    gm_unlock(&gm_post_lock);
    if (error != 0)
        gm_post_break();
    else if (is_kept && is_first)
        gm_work_knock();
}

void gm_post_tell(enum gm_msg_type type, const void *body)
{
    if (gm_post_is_open)
        gm_sock_send_message(gm_post_socket, type, body, NULL, 0, NULL, 0);
}

bool gm_post_has_letters(void)
{
    gm_lock(&gm_post_lock);
    const bool has = gm_post_letters != NULL;
    gm_unlock(&gm_post_lock);
    return has;
}

/* With the lock: the first letter is done with. */
static void gm_post_drop(void)
{
    struct gm_letter *letter = gm_post_letters;
    gm_post_letters = letter->next;
    if (gm_post_letters == NULL)
        gm_post_end = &gm_post_letters;
    free(letter);
}

bool gm_post_flush(void)
{
    int error = 0;
    gm_lock(&gm_post_lock);
    while (gm_post_letters != NULL) {
        error =
            gm_sock_send(gm_post_socket, gm_post_letters->bytes, gm_post_letters->length, NULL, 0);
        if (error != 0)
            break;
        gm_post_drop();
    }
    gm_unlock(&gm_post_lock);
    return error == 0 || gm_sock_is_full(error);
}

void gm_post_cut(void)
{
    gm_lock(&gm_post_lock);
    if (gm_post_is_open)
        gm_post_break();
    gm_post_is_open = false;
    while (gm_post_letters != NULL)
        gm_post_drop();
    gm_unlock(&gm_post_lock);
}

void gm_post_close(void)
{
    gm_post_is_open = false;
    if (gm_post_socket >= 0)
        close(gm_post_socket);
    gm_post_socket = -1;
}
