/* What must outlive the daemon: see kept.h. */
#include "daemon/memory/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/keeper/client.h"
#include "daemon/keeper/held.h"

struct mark {
    uint64_t *word; /* NULL: none */
    uint64_t value;
};

struct gm_kept {
    struct gm_keeper keeper;
    struct gm_held put;   /* descriptors of their owners */
    struct gm_held taken; /* ... that nobody has claimed: this table's */
    bool is_left;         /* there never was a connection, or it was closed on purpose */
    bool is_behind;       /* the keeper was not told of something that was put or dropped */
    bool is_new;          /* the daemon starts, and there was nothing of one before */
    struct mark marks[GM_KEPT_MARKS];
};

/* Many items, told in as few messages as they fit in. */
struct batch {
    struct gm_keeper_item items[GM_KEEPER_FDS];
    int fds[GM_KEEPER_FDS];
    uint32_t n;
};

static struct gm_keeper_item key_of(enum gm_kept_kind kind, uint32_t gpu, uint32_t slot)
{
    const uint8_t none = GM_KEEPER_GPUS; /* is no key, as what is too large for one */
    return (struct gm_keeper_item){
        .kind = (uint8_t)kind, .gpu = gpu < none ? (uint8_t)gpu : none, .slot = slot};
}

int gm_kept_open(struct gm_kept **kept)
{
    *kept = calloc(1, sizeof **kept);
    if (!*kept)
        return -ENOMEM;
    (*kept)->keeper.fd = -1;
    (*kept)->is_left = true;
    return 0;
}

/* Close what nobody has claimed; and have the keeper do so, too? */
static void clear_taken(struct gm_kept *kept, bool is_dropped)
{
    struct gm_keeper_item item, items[GM_KEEPER_FDS];
    const struct gm_keeper_item *behind = NULL;
    uint32_t n = 0;
    for (; gm_held_next(&kept->taken, behind, &item) >= 0; behind = &item) {
        close(gm_held_drop(&kept->taken, &item));
        if (!is_dropped)
            continue;
        items[n++] = item;
        if (n == GM_KEEPER_FDS) {
            gm_keeper_drop(&kept->keeper, items, n);
            n = 0;
        }
    }
    if (n > 0)
        gm_keeper_drop(&kept->keeper, items, n);
}

void gm_kept_close(struct gm_kept *kept)
{
    if (!kept)
        return;
    gm_kept_disconnect(kept);
    clear_taken(kept, false);
    gm_held_free(&kept->put);
    gm_held_free(&kept->taken);
    free(kept);
}

/* ---- marks ---- */

static void set_behind(struct gm_kept *kept, bool is_behind)
{
    kept->is_behind = is_behind;
    for (uint32_t i = 0; i < GM_KEPT_MARKS; i++)
        if (kept->marks[i].word)
            __atomic_store_n(kept->marks[i].word, is_behind ? 0 : kept->marks[i].value,
                             __ATOMIC_SEQ_CST);
}

/* Something was put or dropped: was the keeper told? */
static void look(struct gm_kept *kept)
{
    if (kept->keeper.fd < 0 && !kept->is_left && !kept->is_behind)
        set_behind(kept, true);
}

void gm_kept_mark(struct gm_kept *kept, uint64_t *word, uint64_t value)
{
    for (uint32_t i = 0; kept && i < GM_KEPT_MARKS; i++) {
        if (kept->marks[i].word)
            continue;
        kept->marks[i] = (struct mark){.word = word, .value = value};
        __atomic_store_n(word, kept->is_behind ? 0 : value, __ATOMIC_SEQ_CST);
        return;
    }
}

void gm_kept_unmark(struct gm_kept *kept, const uint64_t *word)
{
    for (uint32_t i = 0; kept && i < GM_KEPT_MARKS; i++)
        if (kept->marks[i].word == word)
            kept->marks[i].word = NULL;
}

/* ---- the connection ---- */

static int put_batch(struct gm_kept *kept, struct batch *batch)
{
    const uint32_t n = batch->n;
    batch->n = 0;
    return n > 0 ? gm_keeper_put(&kept->keeper, batch->items, batch->fds, n) : 0;
}

int gm_kept_connect(struct gm_kept *kept, const char *path)
{
    struct gm_keeper_item item;
    struct batch batch = {.n = 0};
    gm_kept_lose(kept);
    int error = gm_keeper_open(&kept->keeper, path);
    if (error)
        return error;
    kept->is_left = false;
    int fd = gm_held_next(&kept->put, NULL, &item);
    for (; fd >= 0 && error == 0; fd = gm_held_next(&kept->put, &item, &item)) {
        batch.items[batch.n] = item;
        batch.fds[batch.n++] = fd;
        if (batch.n == GM_KEEPER_FDS)
            error = put_batch(kept, &batch);
    }
    if (error == 0)
        error = put_batch(kept, &batch);
    if (error) {
        gm_kept_lose(kept);
        look(kept); /* it may hold a part */
    }
    return error;
}

int gm_kept_take(struct gm_kept *kept)
{
    struct gm_keeper_item items[GM_KEEPER_FDS], last;
    int fds[GM_KEEPER_FDS], n = 0, error = 0;
    const struct gm_keeper_item *behind = NULL;
    clear_taken(kept, false);
    while (error == 0 && (n = gm_keeper_take(&kept->keeper, behind, items, fds)) > 0) {
        for (int i = 0; i < n; i++) {
            if (error == 0 && (!gm_held_reserve(&kept->taken, &items[i]) ||
                               !gm_held_reserve(&kept->put, &items[i])))
                error = -ENOMEM;
            if (error == 0 && gm_held_fd(&kept->put, &items[i]) < 0)
                gm_held_put(&kept->taken, &items[i], fds[i]);
            else
                close(fds[i]);
        }
        last = items[n - 1];
        behind = &last;
    }
    if (error == 0 && n < 0)
        error = n;
    if (error)
        clear_taken(kept, false);
    kept->is_new = error == 0 && kept->taken.n + kept->put.n == 0;
    return error;
}

bool gm_kept_is_connected(const struct gm_kept *kept)
{
    return kept && kept->keeper.fd >= 0;
}

int gm_kept_watch(const struct gm_kept *kept)
{
    if (!gm_kept_is_connected(kept))
        return -ENOTCONN;
    const int fd = fcntl(kept->keeper.fd, F_DUPFD_CLOEXEC, 0);
    return fd >= 0 ? fd : -errno;
}

void gm_kept_lose(struct gm_kept *kept)
{
    gm_keeper_close(&kept->keeper);
}

void gm_kept_disconnect(struct gm_kept *kept)
{
    if (!kept)
        return;
    kept->is_left = true;
    gm_keeper_close(&kept->keeper);
}

void gm_kept_end(struct gm_kept *kept)
{
    if (kept)
        gm_keeper_end(&kept->keeper);
}

/* What a daemon before had there is nobody's. A keeper that was lost right now is told by
 * gm_kept_connect. */
int gm_kept_put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                uint64_t id, int fd)
{
    struct gm_keeper_item item = key_of(kind, gpu, slot);
    item.id = id;
    if (!kept)
        return 0;
    if (!gm_held_is_key(&item))
        return -ERANGE;
    if (!gm_held_reserve(&kept->put, &item))
        return -ENOMEM;
    int error = kept->keeper.fd >= 0 ? gm_keeper_put(&kept->keeper, &item, &fd, 1) : 0;
    if (error && error != -ENOTCONN && kept->is_new) { /* nobody loses anything: go on without it */
        kept->is_left = true;
        gm_keeper_end(&kept->keeper);
        error = 0;
    }
    look(kept);
    if (error && error != -ENOTCONN)
        return error;
    const int before = gm_held_drop(&kept->taken, &item);
    if (before >= 0)
        close(before);
    gm_held_drop(&kept->put, &item);
    gm_held_put(&kept->put, &item, fd);
    return 0;
}

void gm_kept_drop(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot)
{
    const struct gm_keeper_item item = key_of(kind, gpu, slot);
    if (!kept || !gm_held_is_key(&item) || gm_held_drop(&kept->put, &item) < 0)
        return;
    gm_keeper_drop(&kept->keeper, &item, 1);
    look(kept);
}

uint32_t gm_kept_room(const struct gm_kept *kept)
{
    if (!gm_kept_is_connected(kept))
        return UINT32_MAX;
    return kept->keeper.room + kept->put.n + kept->taken.n;
}

int gm_kept_claim(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                  uint64_t *id)
{
    struct gm_keeper_item item = key_of(kind, gpu, slot);
    if (!kept || !gm_held_is_key(&item) || gm_held_fd(&kept->taken, &item) < 0)
        return -1;
    item.id = *id = gm_held_id(&kept->taken, &item);
    const int fd = gm_held_drop(&kept->taken, &item);
    gm_held_drop(&kept->put, &item);
    gm_held_put(&kept->put, &item, fd);
    return fd;
}

uint32_t gm_kept_next(const struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu,
                      uint32_t after)
{
    /* GM_NONE is one less than 0. */
    const struct gm_keeper_item behind = key_of(kind, gpu, after);
    struct gm_keeper_item item;
    if (!kept || behind.kind >= GM_KEEPER_KINDS || behind.gpu >= GM_KEEPER_GPUS ||
        gm_held_next(&kept->taken, &behind, &item) < 0 || item.kind != behind.kind ||
        item.gpu != behind.gpu)
        return GM_NONE;
    return item.slot;
}

uint32_t gm_kept_highest(const struct gm_kept *kept, enum gm_kept_kind kind)
{
    uint64_t highest = 0;
    for (uint32_t gpu = 0; gpu < GM_KEEPER_GPUS; gpu++)
        for (uint32_t slot = gm_kept_next(kept, kind, gpu, GM_NONE); slot != GM_NONE;
             slot = gm_kept_next(kept, kind, gpu, slot)) {
            const struct gm_keeper_item item = key_of(kind, gpu, slot);
            const uint64_t id = gm_held_id(&kept->taken, &item);
            if (id > highest && id < UINT32_MAX)
                highest = id;
        }
    return (uint32_t)highest;
}

void gm_kept_settle(struct gm_kept *kept)
{
    if (!kept)
        return;
    clear_taken(kept, true);
    kept->is_new = false;
    if (kept->keeper.fd >= 0)
        set_behind(kept, false);
}
