#include "shim/link/requests.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/locks.h"
#include "common/shm.h"
#include "shim/link/post.h"
#include "shim/link/work.h"

enum gm_request_state {
    GM_REQUEST_WAITING,
    GM_REQUEST_ANSWERED,
    GM_REQUEST_LATE, /* no daemon came in time */
    GM_REQUEST_LOST, /* none will come */
};

/* A message that asks: each begins with its cookie. */
union gm_question {
    uint64_t cookie;
    struct gm_msg_enter enter;
    struct gm_msg_alloc alloc;
    struct gm_msg_free free;
    struct gm_msg_share share;
    struct gm_msg_open open;
    struct gm_msg_shut shut;
};

/* Linked while it waits. On the stack of the thread that waits; or, for what must be said some day
 * and nobody waits for, on the heap. */
struct gm_request {
    union gm_question question;
    enum gm_msg_type type, answer; /* the message, and the one that answers it */
    enum gm_request_state state;
    bool is_sent; /* to this daemon, or to one before */
    bool is_kept; /* on the heap */
    uint64_t bytes;
    int32_t result;
    struct gm_msg_shared *shared; /* gets SHARED; NULL for other requests */
    pthread_cond_t is_done;
    struct gm_request *next;
};

static const struct gm_request_calls *gm_request_calls; /* written before the link thread starts */
static uint32_t gm_request_gpus;
static _Atomic bool gm_request_has_daemon; /* it is not GONE; written with the lock */

/* Guards what follows. */
static struct gm_lock gm_request_lock = GM_LOCK_INITIALIZER(GM_LOCK_LINK);
static enum gm_requests_mode {
    GM_REQUESTS_GONE,   /* there is no daemon, for good */
    GM_REQUESTS_UP,     /* it is there */
    GM_REQUESTS_AWAIT,  /* it is awaited, and with it the answers */
    GM_REQUESTS_REFUSE, /* ... for too long */
} gm_request_mode;
static struct gm_request *gm_request_list; /* in the order of cookies */
static struct gm_request **gm_request_tail = &gm_request_list;
static uint64_t gm_request_cookie;
/* Open requests of gm_link_alloc_ahead. */
static struct gm_link_ahead {
    struct gm_msg_alloc alloc; /* cookie 0: none */
} gm_link_aheads[GM_LINK_AHEAD];

bool gm_link_has_daemon(void)
{
    return atomic_load_explicit(&gm_request_has_daemon, memory_order_acquire);
}

/* With the lock: the last one on the list, which is sent if somebody reads it. The post's lock
 * comes after this one. */
static void gm_request_add(struct gm_request *request)
{
    request->question.cookie = ++gm_request_cookie;
    request->next = NULL;
    *gm_request_tail = request;
    gm_request_tail = &request->next;
    request->is_sent = gm_request_mode == GM_REQUESTS_UP;
    if (request->is_sent)
        gm_post_send(request->type, &request->question);
}

/* With the lock: take the request at *place from the list. */
static struct gm_request *gm_request_take(struct gm_request **place)
{
    struct gm_request *request = *place;
    *place = request->next;
    if (gm_request_tail == &request->next)
        gm_request_tail = place;
    return request;
}

/* With the lock: nobody waits for it any more, and it is said when a daemon is there. Without
 * memory for that it never is. */
static void gm_request_keep(const struct gm_request *request)
{
    struct gm_request *kept = malloc(sizeof(*kept));
    if (kept == NULL)
        return;
    *kept = *request;
    kept->is_kept = true;
    kept->state = GM_REQUEST_WAITING;
    gm_request_add(kept);
}

/* What must be said some day: memory that the program does not have any more. */
static bool gm_request_gives_back(const struct gm_request *request)
{
    return request->type == GM_MSG_FREE || request->type == GM_MSG_SHUT;
}

/* With the lock: the result of a request that no daemon answered in time. */
static int gm_request_late(const struct gm_request *request)
{
    if (gm_request_mode == GM_REQUESTS_GONE)
        return -ENOTCONN;
    if (gm_request_gives_back(request)) {
        gm_request_keep(request);
        return GM_LINK_LATER;
    }
    if (request->type != GM_MSG_ALLOC)
        return -ENOTCONN;
    return request->is_sent ? -ETIMEDOUT : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Ask, and wait for the answer. 0, a CUresult, GM_LINK_LATER, -ENOTCONN, or -ETIMEDOUT. */
static int gm_request(struct gm_request *request)
{
    int result = -ENOTCONN;
    gm_lock(&gm_request_lock);
    if (gm_request_mode == GM_REQUESTS_GONE)
        goto unlock;
    if (gm_request_mode == GM_REQUESTS_REFUSE) {
        result = gm_request_late(request);
        goto unlock;
    }
    pthread_cond_init(&request->is_done, NULL);
    gm_request_add(request);
    while (request->state == GM_REQUEST_WAITING)
        gm_lock_wait(&request->is_done, &gm_request_lock);
    if (request->state == GM_REQUEST_LATE)
        result = gm_request_late(request);
    else if (request->state == GM_REQUEST_ANSWERED)
        result = request->result >= 0 ? request->result : CUDA_ERROR_UNKNOWN;
    pthread_cond_destroy(&request->is_done);
unlock:
    gm_unlock(&gm_request_lock);
    return result;
}

void gm_link_enter(int gpu)
{
    static _Atomic bool has_entered[GM_GPUS_MAX];
    if (gm_request_gpus < 2 || gpu < 0 || gpu >= (int)gm_request_gpus ||
        atomic_load_explicit(&has_entered[gpu], memory_order_acquire))
        return;
    struct gm_request request = {
        .type = GM_MSG_ENTER, .answer = GM_MSG_ENTERED, .question.enter = {.gpu = (uint32_t)gpu}};
    if (gm_request(&request) == 0)
        atomic_store_explicit(&has_entered[gpu], true, memory_order_release);
}

int gm_link_alloc(uint64_t va, uint64_t bytes, uint32_t gpu)
{
    struct gm_request request = {.type = GM_MSG_ALLOC,
                                 .answer = GM_MSG_ALLOCATED,
                                 .question.alloc = {.va = va, .bytes = bytes, .gpu = gpu}};
    return gm_request(&request);
}

int gm_link_alloc_ahead(uint64_t va, uint64_t bytes, uint32_t gpu)
{
    gm_lock(&gm_request_lock);
    struct gm_link_ahead *ahead = gm_link_aheads;
    while (ahead < gm_link_aheads + GM_LINK_AHEAD && ahead->alloc.cookie != 0)
        ahead++;
    const bool is_on = gm_request_mode == GM_REQUESTS_UP && ahead < gm_link_aheads + GM_LINK_AHEAD;
    if (is_on) {
        ahead->alloc = (struct gm_msg_alloc){.cookie = ++gm_request_cookie,
                                             .va = va,
                                             .bytes = bytes,
                                             .gpu = gpu,
                                             .flags = GM_ALLOC_AHEAD};
        gm_post_send(GM_MSG_ALLOC, &ahead->alloc); /* the link thread tells the result */
    }
    gm_unlock(&gm_request_lock);
    return is_on ? 0 : -ENOTCONN;
}

struct gm_link_range {
    uint64_t va;
    uint64_t bytes;
};

static CUresult gm_link_release(void *argument)
{
    const struct gm_link_range *range = argument;
    return gm_request_calls->release(range->va, range->bytes);
}

/* FREE or SHUT: by the daemon, or here after a loss for good. */
static int gm_link_give_back(struct gm_request *request, uint64_t va, uint64_t bytes)
{
    request->bytes = bytes;
    int result = gm_request(request);
    if (result != -ENOTCONN)
        return result;
    struct gm_link_range range = {.va = va, .bytes = bytes};
    return (int)gm_work_run(gm_link_release, &range);
}

int gm_link_free(uint64_t va, uint64_t bytes)
{
    struct gm_request request = {
        .type = GM_MSG_FREE, .answer = GM_MSG_FREED, .question.free = {.va = va}};
    return gm_link_give_back(&request, va, bytes);
}

int gm_link_share(uint64_t va, struct gm_msg_shared *shared)
{
    struct gm_request request = {.type = GM_MSG_SHARE,
                                 .answer = GM_MSG_SHARED,
                                 .question.share = {.va = va},
                                 .shared = shared};
    return gm_request(&request);
}

int gm_link_open_share(uint64_t va, const struct gm_share_name *name)
{
    struct gm_request request = {.type = GM_MSG_OPEN,
                                 .answer = GM_MSG_OPENED,
                                 .question.open = {.va = va,
                                                   .bytes = name->bytes,
                                                   .nonce = {name->nonce[0], name->nonce[1]},
                                                   .share = name->share,
                                                   .gpu = name->gpu}};
    return gm_request(&request);
}

int gm_link_shut_share(uint64_t va, uint64_t bytes)
{
    struct gm_request request = {
        .type = GM_MSG_SHUT, .answer = GM_MSG_SHUT_IS, .question.shut = {.va = va}};
    return gm_link_give_back(&request, va, bytes);
}

/* ---- the link thread ---- */

/* The answer to a request came. False: there is no such request. */
static bool gm_request_answer(enum gm_msg_type answer, uint64_t cookie, int32_t result,
                              const struct gm_msg_shared *shared)
{
    bool is_known = false;
    gm_lock(&gm_request_lock);
    for (struct gm_request **place = &gm_request_list; *place != NULL; place = &(*place)->next) {
        struct gm_request *request = *place;
        if (request->question.cookie != cookie || request->answer != answer)
            continue;
        gm_request_take(place);
        request->result = result;
        if (request->shared != NULL && shared != NULL)
            *request->shared = *shared;
        request->state = GM_REQUEST_ANSWERED;
        if (request->is_kept)
            free(request);
        else
            pthread_cond_signal(&request->is_done); /* with the lock: then the request is gone */
        is_known = true;
        break;
    }
    gm_unlock(&gm_request_lock);
    return is_known;
}

/* The answer to the request ahead *cookie (NULL: any) came. False: there is none. */
static bool gm_link_end_ahead(const uint64_t *cookie, int result)
{
    struct gm_msg_alloc found = {0};
    gm_lock(&gm_request_lock);
    for (uint32_t i = 0; i < GM_LINK_AHEAD && found.cookie == 0; i++) {
        struct gm_link_ahead *ahead = &gm_link_aheads[i];
        if (ahead->alloc.cookie == 0 || (cookie != NULL && ahead->alloc.cookie != *cookie))
            continue;
        found = ahead->alloc;
        ahead->alloc.cookie = 0;
    }
    gm_unlock(&gm_request_lock);
    if (found.cookie == 0)
        return false;
    gm_request_calls->ahead_came(found.va, found.bytes, result);
    return true;
}

bool gm_requests_answer(const struct gm_wire_message *message)
{
    const void *body = message->body;
    switch (message->type) {
    case GM_MSG_ALLOCATED: {
        const struct gm_msg_allocated *allocated = body;
        const int result = allocated->result >= 0 ? allocated->result : CUDA_ERROR_UNKNOWN;
        if (gm_link_end_ahead(&allocated->cookie, result))
            return true;
        return gm_request_answer(GM_MSG_ALLOCATED, allocated->cookie, allocated->result, NULL);
    }
    case GM_MSG_ENTERED: {
        const struct gm_msg_entered *entered = body;
        return gm_request_answer(GM_MSG_ENTERED, entered->cookie, entered->result, NULL);
    }
    case GM_MSG_FREED: {
        const struct gm_msg_freed *freed = body;
        return gm_request_answer(GM_MSG_FREED, freed->cookie, freed->result, NULL);
    }
    case GM_MSG_SHARED: {
        const struct gm_msg_shared *shared = body;
        return gm_request_answer(GM_MSG_SHARED, shared->cookie, shared->result, shared);
    }
    case GM_MSG_OPENED: {
        const struct gm_msg_opened *opened = body;
        return gm_request_answer(GM_MSG_OPENED, opened->cookie, opened->result, NULL);
    }
    case GM_MSG_SHUT_IS: {
        const struct gm_msg_shut_is *shut = body;
        return gm_request_answer(GM_MSG_SHUT_IS, shut->cookie, shut->result, NULL);
    }
    default:
        return false;
    }
}

/* With the lock. */
static void gm_request_turn(enum gm_requests_mode mode)
{
    gm_request_mode = mode;
    atomic_store(&gm_request_has_daemon, mode != GM_REQUESTS_GONE);
}

void gm_requests_open(const struct gm_request_calls *calls, uint32_t n_gpus)
{
    gm_request_calls = calls;
    gm_request_gpus = n_gpus;
    gm_request_turn(GM_REQUESTS_UP);
}

void gm_requests_await(void)
{
    gm_lock(&gm_request_lock);
    gm_request_turn(GM_REQUESTS_AWAIT);
    gm_unlock(&gm_request_lock);
}

void gm_requests_refuse(void)
{
    gm_lock(&gm_request_lock);
    gm_request_turn(GM_REQUESTS_REFUSE);
    for (struct gm_request **place = &gm_request_list; *place != NULL;) {
        if ((*place)->is_kept) {
            place = &(*place)->next;
            continue;
        }
        struct gm_request *request = gm_request_take(place);
        request->state = GM_REQUEST_LATE;
        pthread_cond_signal(&request->is_done);
    }
    gm_unlock(&gm_request_lock);
}

void gm_requests_go_on(void)
{
    gm_lock(&gm_request_lock);
    gm_request_turn(GM_REQUESTS_UP);
    for (struct gm_request *request = gm_request_list; request != NULL; request = request->next) {
        request->is_sent = true;
        gm_post_send(request->type, &request->question);
    }
    for (uint32_t i = 0; i < GM_LINK_AHEAD; i++)
        if (gm_link_aheads[i].alloc.cookie != 0)
            gm_post_send(GM_MSG_ALLOC, &gm_link_aheads[i].alloc);
    gm_unlock(&gm_request_lock);
}

void gm_requests_lose(void)
{
    gm_lock(&gm_request_lock);
    gm_request_turn(GM_REQUESTS_GONE);
    gm_unlock(&gm_request_lock);
}

void gm_requests_end(void)
{
    struct gm_request *kept = NULL, *next;
    gm_lock(&gm_request_lock);
    while (gm_request_list != NULL) {
        struct gm_request *request = gm_request_take(&gm_request_list);
        if (request->is_kept) {
            request->next = kept;
            kept = request;
            continue;
        }
        request->state = GM_REQUEST_LOST;
        pthread_cond_signal(&request->is_done);
    }
    gm_unlock(&gm_request_lock);
    for (; kept != NULL; kept = next) {
        next = kept->next;
        gm_request_calls->release(kept->type == GM_MSG_FREE ? kept->question.free.va
                                                            : kept->question.shut.va,
                                  kept->bytes);
        free(kept);
    }
    while (gm_link_end_ahead(NULL, -ENOTCONN))
        continue;
}

void gm_requests_close(void)
{
    gm_request_turn(GM_REQUESTS_GONE);
}

uint64_t gm_requests_cookie(void)
{
    gm_lock(&gm_request_lock);
    const uint64_t cookie = gm_request_cookie;
    gm_unlock(&gm_request_lock);
    return cookie;
}
