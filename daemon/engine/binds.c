/* Bound programs: see binds.h. */
#include "daemon/engine/binds.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/sums.h"
#include "daemon/core/room.h"
#include "daemon/core/snapshot.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/room.h"

/* What an app wants of the GPU's time is known after so long. */
#define GM_BIND_KNOWN_NS (1 * GM_S)

static int attribute(const struct gm_engine *engine, CUdevice_attribute which)
{
    int value = 0;
    return engine->cuda.cuDeviceGetAttribute(&value, which, engine->device) == CUDA_SUCCESS &&
                   value > 0
               ? value
               : 0;
}

static struct gm_bind_chip chip_of(const struct gm_engine *engine)
{
    struct gm_bind_chip chip = {
        .multiprocessors = (uint32_t)attribute(engine, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        .blocks = (uint32_t)attribute(engine, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
        .threads = (uint32_t)attribute(engine, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
        .registers =
            (uint32_t)attribute(engine, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
        .shared =
            (uint32_t)attribute(engine, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    };
    if (chip.multiprocessors == 0) /* a program of which nothing is known must fill it */
        chip.multiprocessors = 1;
    return chip;
}

int gm_binds_open(struct gm_binds *binds, struct gm_engine *const *engines, uint32_t n_engines,
                  uint32_t max_apps)
{
    const struct gm_cuda *cuda = &engines[0]->cuda;
    int count = 0;
    *binds = (struct gm_binds){.engines = engines,
                               .n_engines = n_engines,
                               .max_apps = max_apps,
                               .max = max_apps + GM_BINDS_MORE};
    binds->bound = calloc(binds->max, sizeof *binds->bound);
    if (!binds->bound)
        return -ENOMEM;
    for (uint32_t i = 0; i < binds->n_engines; i++)
        binds->chips[i] = chip_of(binds->engines[i]);
    if (cuda->cuDeviceGetCount(&count) != CUDA_SUCCESS || count > (int)GM_DEVICES_VISIBLE)
        return 0; /* no device is known by name: every order stays */
    for (; binds->devices.n < (uint32_t)count; binds->devices.n++) {
        CUdevice device;
        CUuuid uuid;
        if (cuda->cuDeviceGet(&device, (int)binds->devices.n) != CUDA_SUCCESS ||
            cuda->cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS)
            break;
        __builtin_memcpy(binds->devices.uuid[binds->devices.n], uuid.bytes, sizeof uuid.bytes);
    }
    if (binds->devices.n < (uint32_t)count)
        binds->devices.n = 0;
    return 0;
}

void gm_binds_close(struct gm_binds *binds)
{
    free(binds->bound);
    binds->bound = NULL;
}

/* ---- who is bound ---- */

/* A process of another name space of pids has the number 0: nobody would see its end. */
static bool is_over(const struct gm_binding *bound)
{
    return bound->pid <= 0 || (kill(bound->pid, 0) != 0 && errno == ESRCH);
}

/* Forget those whose processes have ended. */
static void sweep(struct gm_binds *binds)
{
    for (uint32_t i = binds->n; i-- > 0;)
        if (is_over(&binds->bound[i]))
            binds->bound[i] = binds->bound[--binds->n];
}

static struct gm_binding *find(const struct gm_binds *binds, pid_t pid)
{
    for (uint32_t i = 0; i < binds->n; i++)
        if (binds->bound[i].pid == pid)
            return &binds->bound[i];
    return NULL;
}

static bool sees(const struct gm_binding *bound, uint32_t device)
{
    for (uint32_t i = 0; i < bound->n; i++)
        if (bound->device[i] == device)
            return true;
    return false;
}

/* One of the same program that sees the same devices. Processes of one program share its devices
 * out by their numbers, so all must have them in the same order. */
static const struct gm_binding *find_family(const struct gm_binds *binds,
                                            const struct gm_place_request *request)
{
    for (uint32_t i = 0; i < binds->n; i++) {
        const struct gm_binding *bound = &binds->bound[i];
        bool is_same = bound->family == request->family && bound->uid == request->uid &&
                       bound->pid != request->pid && bound->n == request->n;
        for (uint32_t k = 0; k < request->n && is_same; k++)
            is_same = sees(bound, request->device[k]);
        if (is_same)
            return bound;
    }
    return NULL;
}

/* Remember it. One user's programs take three quarters of the places at most, as in the session's
 * bounds; who finds none is bound all the same, and counts when it is there. */
static void note(struct gm_binds *binds, const struct gm_binding *bound)
{
    struct gm_binding *its = find(binds, bound->pid);
    uint32_t of_user = 0;
    for (uint32_t i = 0; i < binds->n; i++)
        of_user += binds->bound[i].owner == bound->owner;
    const uint64_t at = its ? its->at : bound->at; /* of its first question */
    if (!its && binds->n < binds->max && of_user < binds->max - binds->max / 4)
        its = &binds->bound[binds->n++];
    if (!its)
        return;
    *its = *bound;
    its->at = at;
}

/* ---- what is on each GPU ---- */

/* Thousandths of the time that it wants. Of one that has just come nothing is known: all. */
static uint32_t time_of(const struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_account account;
    if (!gm_engine_account(engine, id, &account))
        return GM_BIND_WHOLE;
    const uint64_t wanted = (account.run_ns + account.wait_ns) / GM_MS;
    const uint64_t all = wanted + account.idle_ns / GM_MS;
    return all < GM_BIND_KNOWN_NS / GM_MS ? GM_BIND_WHOLE
                                          : (uint32_t)(wanted * GM_BIND_WHOLE / all);
}

/* The user's row; else the one that ends first. */
static uint32_t owing_of(const struct gm_binds *binds, uid_t owner)
{
    uint32_t its = 0;
    for (uint32_t i = 0; i < GM_BIND_OWING; i++) {
        if (binds->owing[i].owner == owner)
            return i;
        if (binds->owing[i].until < binds->owing[its].until)
            its = i;
    }
    return its;
}

/* What it was bound with counts for so long, while its user is believed; then it is what it has. */
static bool is_on_its_way(const struct gm_binds *binds, const struct gm_binding *bound,
                          uint64_t now)
{
    const struct gm_bind_owing *owing = &binds->owing[owing_of(binds, bound->owner)];
    return bound->gpu != GM_BIND_NONE && now - bound->at < GM_BIND_WAY_NS &&
           (owing->owner != bound->owner ||
            gm_less(owing->until, now) < GM_BIND_WAY_NS * GM_BIND_OWED);
}

/* What it says that it will need is no more than the GPU has. */
static struct gm_bind_program believe(const struct gm_binding *bound, const struct gm_bind_gpu *gpu)
{
    struct gm_bind_program program = bound->program;
    program.need = gm_least(program.need, gpu->budget);
    return program;
}

/* The app as it is there; at first, at least what it was bound with, if that was for this GPU. */
static struct gm_bind_program app_on(const struct gm_binds *binds, uint32_t gpu, uint32_t id,
                                     struct gm_binding *bound, const struct gm_bind_gpu *there)
{
    const struct gm_engine *engine = binds->engines[gpu];
    struct gm_bind_program program = {0};
    const uint64_t needed = gm_room_promised(engine->table, id) + engine->table->apps[id].fixed;
    if (bound && bound->gpu == gpu && is_on_its_way(binds, bound, gm_now())) {
        program = believe(bound, there);
        bound->is_held = needed < program.need / 2;
    }
    if (needed > program.need)
        program.need = needed;
    program.time = time_of(engine, id);
    return program;
}

/* Count an app on all GPUs where it is. Returns whether it is on any. */
static bool count_app(const struct gm_binds *binds, uint32_t id, struct gm_bind_gpu *gpus,
                      struct gm_binding **its)
{
    bool is_there = false;
    *its = NULL;
    for (uint32_t i = 0; i < binds->n_engines; i++) {
        const struct gm_app *app = &binds->engines[i]->apps[id];
        if (app->state == GM_APP_UNUSED)
            continue;
        struct gm_sched_account account;
        if (!is_there)
            *its = find(binds, app->pid);
        is_there = true;
        if (*its && gm_engine_account(binds->engines[i], id, &account) && account.run_ns > 0)
            (*its)->has_run = true;
        const struct gm_bind_program program = app_on(binds, i, id, *its, &gpus[i]);
        gm_bind_take(&gpus[i], &program);
    }
    return is_there;
}

/* Whether one that is on its way to the same GPU, too, and was counted, stands for this one: of the
 * same program, or, for who is of another user, of the same user. So a user who says much, or
 * often, takes one GPU's worth from the others' view. */
static bool is_represented(const struct gm_binds *binds, uint32_t index, const uid_t *asks)
{
    const struct gm_binding *bound = &binds->bound[index];
    for (uint32_t i = 0; i < index; i++) {
        const struct gm_binding *other = &binds->bound[i];
        if (other->is_coming && other->owner == bound->owner && other->gpu == bound->gpu &&
            ((asks && bound->owner != *asks) || other->family == bound->family))
            return true;
    }
    return false;
}

/* Nobody knows how long a start takes that has not computed yet: it counts for a while. */
static bool is_starting(const struct gm_binding *bound, pid_t but, uint64_t now)
{
    return bound->gpu != GM_BIND_NONE && bound->pid != but && !bound->has_run &&
           now - bound->at < GM_BIND_HELD_NS;
}

/* Each GPU as it is for a program of user `asks` (NULL: for whoever waits), without its process
 * `but`. */
static void describe(const struct gm_binds *binds, pid_t but, const uid_t *asks,
                     struct gm_bind_gpu gpus[GM_GPUS_MAX])
{
    const uint64_t now = gm_now();
    for (uint32_t i = 0; i < binds->n; i++)
        binds->bound[i].is_there = binds->bound[i].is_held = binds->bound[i].has_run = false;
    for (uint32_t i = 0; i < binds->n_engines; i++)
        gpus[i] = (struct gm_bind_gpu){.chip = binds->chips[i],
                                       .budget = gm_engine_offered(binds->engines[i])};
    for (uint32_t id = 0; id < binds->max_apps; id++) {
        struct gm_binding *its;
        if (count_app(binds, id, gpus, &its) && its)
            its->is_there = true;
    }
    for (uint32_t i = 0; i < binds->n; i++) {
        struct gm_binding *bound = &binds->bound[i];
        bound->is_coming =
            !bound->is_there && bound->pid != but && is_on_its_way(binds, bound, now);
        if (is_starting(bound, but, now))
            gpus[bound->gpu].starting++;
        if (!bound->is_coming || is_represented(binds, i, asks))
            continue;
        const struct gm_bind_program program = believe(bound, &gpus[bound->gpu]);
        bound->is_held = program.need > 0;
        gm_bind_take(&gpus[bound->gpu], &program);
    }
}

/* ---- placing ---- */

/* The index of the machine's GPU that has this number; GM_BIND_NONE: it is not shared. */
static uint32_t gpu_of(const struct gm_binds *binds, uint32_t device)
{
    for (uint32_t i = 0; i < binds->n_engines; i++)
        if (binds->engines[i]->config.gpu == (int)device)
            return i;
    return GM_BIND_NONE;
}

/* The place of a device in the program's order. */
static uint32_t place_of(const struct gm_place_request *request, uint32_t device)
{
    uint32_t at = 0;
    while (at < request->n && request->device[at] != device)
        at++;
    return at;
}

/* The chosen GPU, then the others that are shared, those with most left first, then the rest as it
 * was. */
static void put_in_order(const struct gm_binds *binds, const struct gm_bind_gpu *gpus,
                         const struct gm_place_request *request, uint64_t allowed,
                         struct gm_place_answer *answer)
{
    uint32_t at = 0;
    for (uint32_t next = answer->gpu; next != GM_BIND_NONE;) {
        answer->order[at++] = place_of(request, (uint32_t)binds->engines[next]->config.gpu);
        allowed &= ~(1ull << next);
        next = gm_bind_choose(gpus, binds->n_engines, allowed, &request->program).gpu;
    }
    for (uint32_t i = 0; i < request->n; i++)
        if (gpu_of(binds, request->device[i]) == GM_BIND_NONE)
            answer->order[at++] = i;
}

/* A bit for each GPU that it may be bound to: one whose order stays takes its first. */
static uint64_t allowed_to(const struct gm_binds *binds, const struct gm_place_request *request)
{
    const uint32_t n = request->as_is != GM_WHY_NONE && request->n > 0 ? 1 : request->n;
    uint64_t allowed = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t gpu = gpu_of(binds, request->device[i]);
        allowed |= gpu != GM_BIND_NONE ? 1ull << gpu : 0;
    }
    return allowed;
}

/* Whether another user's program waits for room on the GPU where this one holds some. */
static bool is_awaited(const struct gm_binds *binds, const struct gm_binding *bound,
                       const struct gm_waiting *waiting, uint32_t n)
{
    for (uint32_t i = 0; bound->is_held && i < n; i++)
        if (waiting[i].request.owner != bound->owner &&
            (allowed_to(binds, &waiting[i].request) >> bound->gpu & 1) != 0)
            return true;
    return false;
}

/* A user owes the time for which its programs kept others waiting since the last look: once,
 * however many they are. */
static void charge(struct gm_binds *binds, const struct gm_waiting *waiting, uint32_t n)
{
    const uint64_t now = gm_now();
    const uint64_t owed = gm_least(now - binds->looked_at, 2 * GM_BIND_LOOK_NS) * GM_BIND_OWED;
    binds->looked_at = now;
    for (uint32_t i = 0; i < binds->n; i++) {
        const uid_t owner = binds->bound[i].owner;
        struct gm_bind_owing *owing = &binds->owing[owing_of(binds, owner)];
        if ((owing->owner == owner && owing->charged_at == now) ||
            !is_awaited(binds, &binds->bound[i], waiting, n))
            continue;
        const uint64_t left = owing->owner == owner ? gm_less(owing->until, now) : 0;
        *owing =
            (struct gm_bind_owing){.owner = owner, .until = now + left + owed, .charged_at = now};
    }
}

/* The GPU and the order for a program whose GPUs may be put in order. */
static void choose(const struct gm_binds *binds, const struct gm_bind_gpu *gpus,
                   const struct gm_place_request *request, struct gm_place_answer *answer)
{
    const struct gm_binding *family = find_family(binds, request);
    const uint64_t allowed = allowed_to(binds, request);
    if (family) {
        for (uint32_t i = 0; i < request->n; i++)
            answer->order[i] = place_of(request, family->device[i]);
        answer->gpu = family->gpu;
        answer->why = GM_WHY_BIND_FAMILY;
        return;
    }
    const struct gm_bind_choice choice =
        gm_bind_choose(gpus, binds->n_engines, allowed, &request->program);
    answer->gpu = choice.gpu;
    answer->why = choice.gpu != GM_BIND_NONE ? choice.why : GM_WHY_BIND_ELSEWHERE;
    put_in_order(binds, gpus, request, allowed, answer);
}

void gm_binds_place(struct gm_binds *binds, const struct gm_place_request *request,
                    struct gm_place_answer *answer)
{
    struct gm_bind_gpu gpus[GM_GPUS_MAX];
    struct gm_binding bound = {.pid = request->pid,
                               .family = request->family,
                               .uid = request->uid,
                               .owner = request->owner,
                               .n = request->n,
                               .at = gm_now(),
                               .program = request->program,
                               .need_from = request->need_from};
    *answer = (struct gm_place_answer){.gpu = GM_BIND_NONE, .why = request->as_is};
    for (uint32_t i = 0; i < request->n; i++)
        answer->order[i] = i;
    sweep(binds);
    describe(binds, request->pid, &request->owner, gpus);
    if (request->as_is == GM_WHY_NONE)
        choose(binds, gpus, request, answer);
    else if (request->n > 0) /* most programs take their first */
        answer->gpu = gpu_of(binds, request->device[0]);
    if (answer->gpu != GM_BIND_NONE)
        answer->device = binds->engines[answer->gpu]->config.gpu;
    bound.gpu = answer->gpu;
    bound.why = answer->why;
    for (uint32_t i = 0; i < request->n; i++) {
        bound.device[i] = (uint8_t)request->device[answer->order[i]];
        answer->is_changed = answer->is_changed || answer->order[i] != i;
    }
    note(binds, &bound);
}

void gm_binds_leave(struct gm_binds *binds, pid_t pid)
{
    struct gm_binding *its = find(binds, pid);
    if (its)
        *its = binds->bound[--binds->n];
}

bool gm_binds_has_family(const struct gm_binds *binds, const struct gm_place_request *request)
{
    return find_family(binds, request) != NULL;
}

uint32_t gm_binds_next(struct gm_binds *binds, struct gm_waiting *waiting, uint32_t n,
                       uint64_t patience_ns)
{
    const uint64_t now = gm_now();
    struct gm_bind_gpu gpus[GM_GPUS_MAX];
    struct gm_bind_waiter waiters[GM_BIND_WAITERS];
    sweep(binds);
    describe(binds, 0, NULL, gpus);
    charge(binds, waiting, n);
    for (uint32_t i = 0; i < n; i++) {
        waiters[i] = (struct gm_bind_waiter){.uid = waiting[i].request.owner,
                                             .need = waiting[i].request.program.need,
                                             .took_ns = waiting[i].request.program.took_ns,
                                             .allowed = allowed_to(binds, &waiting[i].request),
                                             .since = waiting[i].since};
        const bool was_fit = waiting[i].fits_since != 0;
        const bool is_fit = gm_bind_fits(gpus, binds->n_engines, &waiters[i]);
        waiting[i].fits_since = !is_fit ? 0 : was_fit ? waiting[i].fits_since : now;
        waiters[i].fits_since = waiting[i].fits_since;
    }
    return gm_bind_next(gpus, binds->n_engines, waiters, n, now, patience_ns);
}

/* The part of what it has that it needs: what is cold of it may lie on the host. */
static uint64_t part_of(const struct gm_table *table, uint32_t id, uint64_t bytes)
{
    const uint64_t all = table->apps[id].committed;
    const uint64_t needed = gm_room_promised(table, id) + table->apps[id].fixed;
    if (all == 0 || needed >= all)
        return bytes;
    return bytes / GM_BIND_WHOLE * (needed / (all / GM_BIND_WHOLE + 1));
}

/* How long it was there without waiting. */
static uint64_t took(const struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_account account;
    return gm_engine_account(engine, id, &account) ? account.run_ns + account.idle_ns : 0;
}

void gm_binds_usage(const struct gm_binds *binds, uint32_t id, struct gm_bind_usage *usage)
{
    *usage = (struct gm_bind_usage){0};
    for (uint32_t i = 0; i < binds->n_engines; i++) {
        const struct gm_engine *engine = binds->engines[i];
        if (engine->apps[id].state == GM_APP_UNUSED || engine->table->apps[id].most <= usage->most)
            continue;
        usage->most = engine->table->apps[id].most;
        usage->needed = part_of(engine->table, id, usage->most);
        usage->time = time_of(engine, id);
        usage->took_ns = took(engine, id);
    }
}

void gm_binds_show(const struct gm_binds *binds, uint32_t gpu, struct gm_snapshot_app *app)
{
    const struct gm_binding *bound = find(binds, app->pid);
    const bool is_moved = bound && bound->gpu != gpu && bound->gpu != GM_BIND_NONE;
    app->need = bound ? bound->program.need : 0;
    app->need_from = bound ? bound->need_from : GM_NEED_UNKNOWN;
    app->placed = !bound ? GM_WHY_NONE : is_moved ? GM_WHY_BIND_ITSELF : bound->why;
}
