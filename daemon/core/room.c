#include "daemon/core/room.h"

/* Caps leave GM_CAP_ROOM_LEFT of what can be mapped, and no more than one part in so many of it.
 * */
#define GM_CAP_ROOM_SHARE 8

/* Of the GPU, whatever the app's cap. */
static uint64_t gpu_limit(const struct gm_room_input *input)
{
    return gm_less(input->budget, input->fixed);
}

static uint64_t on_gpu(const struct gm_room_sums *sums)
{
    return gm_more(gm_more(sums->promised, sums->fixed), sums->driver);
}

/* What is left of a limit of `all`. */
static uint64_t left_of(uint64_t all, uint64_t taken)
{
    return all == UINT64_MAX ? all : gm_less(all, taken);
}

uint64_t gm_room_user_limit(const struct gm_room_input *input)
{
    const uint64_t others = gm_less(on_gpu(&input->user), on_gpu(&input->own));
    return left_of(input->user_gpu, gm_more(others, input->left_gpu));
}

uint64_t gm_room_cap_limit(const struct gm_room_input *input)
{
    const uint64_t limit = gm_least(input->cap, gm_room_user_limit(input));
    const uint64_t unevictable = gm_more(input->own.fixed, input->own.driver);
    return limit == UINT64_MAX ? limit : gm_chunk_floor(gm_less(limit, unevictable));
}

uint64_t gm_room_for_capped(const struct gm_room_input *input)
{
    const uint64_t part = input->host / GM_CAP_ROOM_SHARE;
    return gm_chunk_floor(input->host - gm_least(part, GM_CAP_ROOM_LEFT));
}

uint64_t gm_room_total(const struct gm_room_input *input)
{
    const uint64_t host = gm_less(input->host_alone, gm_room_on_host(0, input->own.programs));
    const uint64_t all = gm_more(input->budget, input->is_oversize ? host : 0);
    const uint64_t shared = gm_less(input->fixed, input->own.fixed);
    const uint64_t total = gm_less(gm_least(all, input->told), shared);
    return total > GM_CHUNK_MIN ? total : GM_CHUNK_MIN; /* none has 0 bytes */
}

/* Each of its programs may come to have something beyond. */
static uint64_t host_taken(const struct gm_room_input *input)
{
    return gm_room_on_host(gm_more(input->host_taken, input->own.beyond),
                           input->host_programs + input->own.programs);
}

/* ... of that, what cannot come back to the GPU. */
static uint64_t host_needed(const struct gm_room_input *input)
{
    return gm_less(host_taken(input), input->host_aside);
}

/* All of the host that the app may have a part of. */
static uint64_t host_for(const struct gm_room_input *input)
{
    return input->is_oversize ? input->host : gm_room_for_capped(input);
}

static uint64_t files_left(const struct gm_room_input *input)
{
    return left_of(input->files, gm_more(input->files_own, input->files_taken));
}

static uint64_t pinned_by_user(const struct gm_room_input *input)
{
    return gm_more(gm_more(input->user.promised, input->user.beyond), input->left_host);
}

/* The app may have no more than `bytes`: what is least of all rules bounds it. */
static void bound(struct gm_room *room, uint64_t bytes, enum gm_why why)
{
    if (bytes >= gm_more(room->gpu, room->host))
        return;
    room->gpu = gm_least(room->gpu, bytes);
    room->host = bytes - room->gpu;
    room->why = why;
}

/* By all rules but those of files and tiers. */
static struct gm_room room_by_rules(const struct gm_room_input *input)
{
    const struct gm_room_sums *own = &input->own;
    const uint64_t most = gpu_limit(input);
    struct gm_room room = {.gpu = gm_less(gm_least(most, gm_room_cap_limit(input)), own->promised),
                           .why = GM_WHY_BUDGET};
    if (input->is_oversize || (gm_room_is_capped(input) && input->is_host_mappable)) {
        room.host = gm_less(host_for(input), host_needed(input));
        room.why = GM_WHY_PINNED;
    }
    if (!input->is_oversize) /* what is beyond of it counts */
        bound(&room, gm_less(most, gm_more(own->promised, own->beyond)), GM_WHY_BUDGET);
    bound(&room, left_of(input->told, input->told_taken), GM_WHY_LIMIT);
    bound(&room, left_of(input->user_pinned, pinned_by_user(input)), GM_WHY_USER);
    room.gpu = gm_chunk_floor(room.gpu);
    room.host = gm_chunk_floor(room.host);
    return room;
}

/* Bytes that so many files are enough for, of `bytes`. */
static uint64_t with_files(uint64_t bytes, uint64_t files)
{
    if (files <= bytes / GM_CHUNK_MAX)
        return files * GM_CHUNK_MAX;
    while (gm_chunk_count(bytes) > files)
        bytes &= bytes - 1; /* without its smallest chunk */
    return bytes;
}

struct gm_room gm_room_of(const struct gm_room_input *input)
{
    struct gm_room room = room_by_rules(input);
    bound(&room, gm_chunk_floor(left_of(input->tiers, input->tiers_taken)), GM_WHY_FULL);
    bound(&room, with_files(gm_more(room.gpu, room.host), files_left(input)), GM_WHY_FILES);
    return room;
}

struct gm_room_input gm_room_alone(const struct gm_room_input *input)
{
    struct gm_room_input alone = *input;
    alone.host = input->host_alone;
    alone.host_taken = alone.host_aside = alone.files_taken = 0;
    alone.host_programs = 0;
    alone.tiers = UINT64_MAX;
    return alone;
}

enum gm_why gm_room_refuses(const struct gm_room_input *input, uint64_t bytes)
{
    const struct gm_room room = room_by_rules(input);
    if (bytes > gm_more(room.gpu, room.host))
        return room.why;
    if (gm_chunk_count(bytes) > files_left(input))
        return GM_WHY_FILES;
    return bytes <= left_of(input->tiers, input->tiers_taken) ? GM_WHY_NONE : GM_WHY_FULL;
}

struct gm_reason gm_room_reason(const struct gm_room_input *input, enum gm_why why)
{
    struct gm_reason reason = {.why = why, .limit = input->tiers, .taken = input->tiers_taken};
    if (why == GM_WHY_BUDGET) {
        reason.limit = input->budget;
        reason.taken = gm_less(input->fixed, input->own.fixed);
    } else if (why == GM_WHY_PINNED) {
        reason.limit = input->host;
        reason.taken = host_needed(input);
    } else if (why == GM_WHY_LIMIT) {
        reason.limit = input->told;
        reason.taken = input->told_taken;
    } else if (why == GM_WHY_USER) {
        reason.limit = input->user_pinned;
        reason.taken = pinned_by_user(input);
    }
    reason.taken = gm_least(reason.taken, reason.limit);
    return reason;
}

uint64_t gm_room_to_lay_aside(const struct gm_room_input *input, uint64_t cold, uint64_t beyond)
{
    const uint64_t room = input->is_host_mappable ? gm_room_for_capped(input) : 0;
    return gm_least(gm_less(cold, beyond), gm_less(room, host_taken(input)));
}

uint64_t gm_room_spare_files(const struct gm_room_input *input)
{
    return left_of(files_left(input), input->files_to_keep);
}

uint64_t gm_room_within_files(uint32_t chunks, uint64_t spare)
{
    return chunks <= spare ? UINT64_MAX : spare * GM_CHUNK_MIN;
}

uint64_t gm_room_to_reclaim(const struct gm_room_input *input, uint64_t beyond)
{
    return beyond > 0 ? gm_less(gm_more(host_taken(input), beyond), host_for(input)) : 0;
}

uint64_t gm_room_to_give_up(const struct gm_room_input *input)
{
    return gm_least(gm_less(input->own.promised, gm_room_cap_limit(input)),
                    gm_less(gm_room_for_capped(input), host_needed(input)));
}

uint64_t gm_room_to_take_up(const struct gm_room_input *input)
{
    const uint64_t most = gm_least(gpu_limit(input), gm_room_cap_limit(input));
    return gm_least(gm_less(most, input->own.promised),
                    gm_less(input->own.beyond, input->own.held));
}

bool gm_room_may_occupy(const struct gm_room_input *input, uint64_t bytes, bool has_part)
{
    const struct gm_room_sums *own = &input->own, *user = &input->user;
    const uint64_t limit = gm_room_cap_limit(input);
    /* What it was promised it may have, though pinned memory has no room for more of it. */
    const uint64_t part = gm_more(own->promised, own->bend);
    const uint64_t most = limit > part ? limit : part;
    const uint64_t needed = gm_more(gm_more(user->promised, user->fixed), input->left_gpu);
    return (has_part || gm_more(own->device, bytes) <= gm_more(most, own->fixed)) &&
           gm_more(gm_more(user->device, bytes), input->left_gpu) <=
               (input->user_gpu > needed ? input->user_gpu : needed);
}

bool gm_room_may_fix(const struct gm_room_input *input, uint64_t bytes)
{
    /* What is beyond as it is cold may be needed again, and what is fixed stays fixed. */
    const bool may_lack = input->is_oversize || gm_room_is_capped(input);
    const uint64_t aside = may_lack ? 0 : gm_less(input->own.beyond, input->own.held);
    const uint64_t own = gm_more(input->own.promised, aside);
    return gm_more(gm_more(own, input->fixed), bytes) <= input->budget;
}

bool gm_room_may_hold(const struct gm_room_input *input, uint64_t bytes)
{
    return gm_more(host_needed(input), bytes) <= input->host;
}

/* The budget that leaves `kept` bytes of the device, in whole chunks. */
static uint64_t budget_beside(const struct gm_room_device *device, uint64_t kept)
{
    return gm_chunk_floor(gm_less(device->available, kept));
}

uint64_t gm_room_next_budget(const struct gm_room_device *device)
{
    const uint64_t reserve = device->reserve, now = device->budget;
    uint64_t next = now;
    if (device->available < now + reserve / 4)
        next = budget_beside(device, reserve / 2);
    else if (device->available > now + reserve + reserve / 2 ||
             budget_beside(device, reserve) >= device->most)
        next = budget_beside(device, reserve);
    next = gm_least(next, device->most);
    return next > device->least ? next : device->least;
}
