#include "shim/link/requests.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/locks.h"
#include "common/shm.h"
#include "shim/link/post.h"
#include "shim/link/work.h"

enum gm_request_state { GM_REQUEST_WAITING, GM_REQUEST_ANSWERED, GM_REQUEST_LOST };

/* On the stack of the thread that waits; linked while it waits. */
struct gm_request {
    uint64_t cookie;
    enum gm_msg_type answer; /* the message that answers it */
    enum gm_request_state state;
    int32_t result;
    struct gm_msg_shared *shared; /* gets SHARED; NULL for other requests */
    pthread_cond_t is_done;
    struct gm_request *next;
};

static const struct gm_request_calls *gm_request_calls; /* written before the link thread starts */
static uint32_t gm_request_gpus;
static _Atomic bool gm_request_is_up;

/* Guards what follows. */
static struct gm_lock gm_request_lock = GM_LOCK_INITIALIZER(GM_LOCK_LINK);
static struct gm_request *gm_request_list;
static uint64_t gm_request_cookie;
/* Open requests of gm_link_alloc_ahead. */
static struct gm_link_ahead {
    uint64_t cookie; /* 0: none */
    uint64_t va, bytes;
} gm_link_aheads[GM_LINK_AHEAD];

bool gm_link_is_up(void)
{
    return atomic_load_explicit(&gm_request_is_up, memory_order_acquire);
}

/* Put the request on the list. False: lost. */
static bool gm_request_begin(struct gm_request *request, enum gm_msg_type answer,
                             struct gm_msg_shared *shared)
{
    *request = (struct gm_request){.answer = answer, .state = GM_REQUEST_WAITING, .shared = shared};
    pthread_cond_init(&request->is_done, NULL);
    gm_lock(&gm_request_lock);
    bool is_on = gm_link_is_up();
    if (is_on) {
        request->cookie = ++gm_request_cookie;
        request->next = gm_request_list;
        gm_request_list = request;
    }
    gm_unlock(&gm_request_lock);
    if (!is_on)
        pthread_cond_destroy(&request->is_done);
    return is_on;
}

/* Wait for the answer to a request that was sent. 0, a CUresult, or -ENOTCONN. */
static int gm_request_end(struct gm_request *request)
{
    gm_lock(&gm_request_lock);
    while (request->state == GM_REQUEST_WAITING)
        gm_lock_wait(&request->is_done, &gm_request_lock);
    gm_unlock(&gm_request_lock);
    pthread_cond_destroy(&request->is_done);
    if (request->state == GM_REQUEST_LOST)
        return -ENOTCONN;
    return request->result >= 0 ? request->result : CUDA_ERROR_UNKNOWN;
}

void gm_link_enter(int gpu)
{
    static _Atomic bool has_entered[GM_GPUS_MAX];
    struct gm_request request;
    if (gm_request_gpus < 2 || gpu < 0 || gpu >= (int)gm_request_gpus ||
        atomic_load_explicit(&has_entered[gpu], memory_order_acquire) ||
        !gm_request_begin(&request, GM_MSG_ENTERED, NULL))
        return;
    struct gm_msg_enter enter = {.cookie = request.cookie, .gpu = (uint32_t)gpu};
    gm_post_send(GM_MSG_ENTER, &enter);
    if (gm_request_end(&request) == 0)
        atomic_store_explicit(&has_entered[gpu], true, memory_order_release);
}

int gm_link_alloc(uint64_t va, uint64_t bytes, uint32_t gpu)
{
    struct gm_request request;
    if (!gm_request_begin(&request, GM_MSG_ALLOCATED, NULL))
        return -ENOTCONN;
    struct gm_msg_alloc alloc = {.cookie = request.cookie, .va = va, .bytes = bytes, .gpu = gpu};
    gm_post_send(GM_MSG_ALLOC, &alloc);
    return gm_request_end(&request);
}

int gm_link_alloc_ahead(uint64_t va, uint64_t bytes, uint32_t gpu)
{
    struct gm_msg_alloc alloc = {.va = va, .bytes = bytes, .gpu = gpu, .flags = GM_ALLOC_AHEAD};
    gm_lock(&gm_request_lock);
    struct gm_link_ahead *ahead = gm_link_aheads;
    while (ahead < gm_link_aheads + GM_LINK_AHEAD && ahead->cookie != 0)
        ahead++;
    bool is_on = gm_link_is_up() && ahead < gm_link_aheads + GM_LINK_AHEAD;
    if (is_on) {
        alloc.cookie = ++gm_request_cookie;
        *ahead = (struct gm_link_ahead){alloc.cookie, va, bytes};
    }
    gm_unlock(&gm_request_lock);
    if (!is_on)
        return -ENOTCONN;
    gm_post_send(GM_MSG_ALLOC, &alloc); /* the link thread tells the result */
    return 0;
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

int gm_link_free(uint64_t va, uint64_t bytes)
{
    struct gm_request request;
    if (gm_request_begin(&request, GM_MSG_FREED, NULL)) {
        struct gm_msg_free message = {.cookie = request.cookie, .va = va};
        gm_post_send(GM_MSG_FREE, &message);
        int result = gm_request_end(&request);
        if (result != -ENOTCONN)
            return result;
    }
    struct gm_link_range range = {.va = va, .bytes = bytes};
    return (int)gm_work_run(gm_link_release, &range);
}

int gm_link_share(uint64_t va, struct gm_msg_shared *shared)
{
    struct gm_request request;
    if (!gm_request_begin(&request, GM_MSG_SHARED, shared))
        return -ENOTCONN;
    struct gm_msg_share share = {.cookie = request.cookie, .va = va};
    gm_post_send(GM_MSG_SHARE, &share);
    return gm_request_end(&request);
}

int gm_link_open_share(uint64_t va, const struct gm_share_name *name)
{
    struct gm_request request;
    if (!gm_request_begin(&request, GM_MSG_OPENED, NULL))
        return -ENOTCONN;
    struct gm_msg_open open = {.cookie = request.cookie,
                               .va = va,
                               .bytes = name->bytes,
                               .nonce = {name->nonce[0], name->nonce[1]},
                               .share = name->share,
                               .gpu = name->gpu};
    gm_post_send(GM_MSG_OPEN, &open);
    return gm_request_end(&request);
}

int gm_link_shut_share(uint64_t va, uint64_t bytes)
{
    struct gm_request request;
    if (gm_request_begin(&request, GM_MSG_SHUT_IS, NULL)) {
        struct gm_msg_shut message = {.cookie = request.cookie, .va = va};
        gm_post_send(GM_MSG_SHUT, &message);
        int result = gm_request_end(&request);
        if (result != -ENOTCONN)
            return result;
    }
    struct gm_link_range range = {.va = va, .bytes = bytes};
    return (int)gm_work_run(gm_link_release, &range);
}

/* ---- the link thread ---- */

/* Link thread: the answer to a request came. False: there is no such request. */
static bool gm_request_answer(enum gm_msg_type answer, uint64_t cookie, int32_t result,
                              const struct gm_msg_shared *shared)
{
    bool is_known = false;
    gm_lock(&gm_request_lock);
    for (struct gm_request **place = &gm_request_list; *place != NULL; place = &(*place)->next) {
        struct gm_request *request = *place;
        if (request->cookie != cookie || request->answer != answer)
            continue;
        *place = request->next;
        request->result = result;
        if (request->shared != NULL && shared != NULL)
            *request->shared = *shared;
        request->state = GM_REQUEST_ANSWERED;
        pthread_cond_signal(&request->is_done); /* with the lock: then the request is gone */
        is_known = true;
        break;
    }
    gm_unlock(&gm_request_lock);
    return is_known;
}

/* Link thread: the answer to the request ahead *cookie (NULL: any) came. False: there is none. */
static bool gm_link_end_ahead(const uint64_t *cookie, int result)
{
    struct gm_link_ahead found = {0};
    gm_lock(&gm_request_lock);
    for (uint32_t i = 0; i < GM_LINK_AHEAD && found.cookie == 0; i++) {
        struct gm_link_ahead *ahead = &gm_link_aheads[i];
        if (ahead->cookie == 0 || (cookie != NULL && ahead->cookie != *cookie))
            continue;
        found = *ahead;
        ahead->cookie = 0;
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

void gm_requests_open(const struct gm_request_calls *calls, uint32_t n_gpus)
{
    gm_request_calls = calls;
    gm_request_gpus = n_gpus;
    atomic_store(&gm_request_is_up, true);
}

void gm_requests_lose(void)
{
    atomic_store(&gm_request_is_up, false);
}

void gm_requests_end(void)
{
    gm_lock(&gm_request_lock);
    while (gm_request_list != NULL) {
        struct gm_request *request = gm_request_list;
        gm_request_list = request->next;
        request->state = GM_REQUEST_LOST;
        pthread_cond_signal(&request->is_done);
    }
    gm_unlock(&gm_request_lock);
    while (gm_link_end_ahead(NULL, -ENOTCONN))
        continue;
}

void gm_requests_close(void)
{
    atomic_store(&gm_request_is_up, false);
}
