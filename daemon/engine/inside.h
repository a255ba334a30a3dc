/* clang-format off */
/*
 * What the engine's files offer each other, by file. daemon/views has its snapshot alone.
 *
 *   step.c           what comes from outside: each event enters there
 *   engine.c         the run loop: decision -> app states -> moves -> gates
 *   open.c           opening and closing
 *   gates.c          the gates of programs
 *   apps.c           messages of the shims: join, leave, ALLOC, FREE, WANT, DRAINED, DONE
 *   client.c         programs on all their GPUs: shared memory, and the gate
 *   groups.c         what runs together
 *   machine.c        the engines of all GPUs
 *   host.c           host memory of all GPUs
 *   waiting.c        allocations for which there is no room now
 *   spares.c         freed memory that programs keep: taken back when room is wanted
 *   room.c           what programs can have: asks core/room
 *   refusals.c       refusals of memory, and why
 *   idle.c           which apps are idle
 *   moves.c          planning, and carrying plans out
 *   copies.c         copies under way, and their ends
 *   release.c        frames and pages that a chunk lets go of
 *   shadows.c        copies of chunks that are on the GPU
 *   hashes.c         unchanged chunks are not copied out
 *   answers.c        what follows from the answers to batches
 *   chunks.c         the ends of copies, maps and unmaps; the end of freed chunks
 *   frames.c         making, passing on and destroying frames
 *   memory.c         how much memory is made, kept and given back; the budget
 *   batches.c        MAP, UNMAP and DROP messages and their answers
 *   places.c         what of programs is resident and what is mapped on the host
 *   caps.c           the most device memory that an app may occupy
 *   saving.c         the end of the daemon: giving programs their memory back
 *   shares.c         memory that several programs map: SHARE, OPEN, SHUT
 *   timeslices.c     how long each program's kernels keep the GPU
 *   turns.c          best-effort programs take turns beside a latency-critical one
 *   hints.c          holding others for a request that is announced
 *   stops.c          programs that stand still
 *   snapshot.c       what the views show
 *   states.c         the states of apps
 *   round.c          the time, and whether there is another round
 *   backoff.c        when to try again what failed
 *   deadlines.c      the timer: answers that do not come, retries
 *   feed.c           what the scheduler is told, and what it decided
 *   policy.c         settings of programs
 *   switches.c       how long switches took
 *   log.c            notes of decisions
 *   events.c         what happens: counted, and handed to the views
 *
 * Every event (a message, a timer, the end of a copy) changes the state and ends with
 * gm_engine_run, which goes round until nothing more can be done now. It never blocks.
 */
/* clang-format on */
#ifndef GM_DAEMON_ENGINE_INSIDE_H
#define GM_DAEMON_ENGINE_INSIDE_H

#include "daemon/engine/state.h"

/* engine.c */
void gm_engine_run(struct gm_engine *engine);
/* Numbers of batches of engine n begin at n times this. */
#define GM_ENGINE_BATCHES (1ull << 56)
/* Whose programs: all, or those of one user. */
struct gm_scope {
    bool is_all;
    uid_t uid;
};
static inline bool gm_engine_is_in(const struct gm_engine *engine, uint32_t app,
                                   const struct gm_scope *scope)
{
    return scope->is_all || engine->apps[app].uid == scope->uid;
}

/* step.c: for open.c */
void gm_engine_on_copies(void *engine);
void gm_engine_on_grown(void *engine);
void gm_engine_on_hashes(void *engine);
void gm_engine_on_host_copied(void *engine, uint32_t chunk, int error);
void gm_engine_on_timer(uv_timer_t *timer);

/* states.c */
/* The one setter of app states; false when the event is not legal in the app's state. */
bool gm_engine_turn(struct gm_engine *engine, uint32_t app, enum gm_app_event event);

/* round.c */
/* An event has come: read its time. */
void gm_engine_read_clock(struct gm_engine *engine);
/* What a plan follows from has changed, but for what the table knows of by itself. */
void gm_engine_replan(struct gm_engine *engine);
/* A plan is made. */
void gm_engine_planned(struct gm_engine *engine);
/* Go round once more. */
void gm_engine_again(struct gm_engine *engine);
/* Go round soon: something in another engine has changed. */
void gm_engine_call(struct gm_engine *engine);
/* In how many milliseconds `soon` is. At once, but not twice at one time of the loop: it runs all
 * timers that are due before it reads a socket, and engines may call each other. */
uint64_t gm_engine_soon_ms(struct gm_engine *engine);
/* A run begins: false, if one is under way, or none is to be any more. */
bool gm_engine_begin_run(struct gm_engine *engine);
void gm_engine_end_run(struct gm_engine *engine);
void gm_engine_begin_round(struct gm_engine *engine);

/* backoff.c */
/* It failed: no more of that for a while. */
void gm_engine_back_off(struct gm_engine *engine, enum gm_retry retry);
void gm_engine_went_well(struct gm_engine *engine, enum gm_retry retry);
static inline bool gm_engine_is_off(const struct gm_engine *engine, enum gm_retry retry)
{
    return engine->retries[retry].at > engine->now;
}
/* True once: the time to try again has come. */
bool gm_engine_retry_comes(struct gm_engine *engine, enum gm_retry retry);
/* Memory of the app came nearer, or it waits for nothing. */
void gm_engine_progressed(struct gm_engine *engine, uint32_t app);
/* The same for the loading of an app. */
void gm_engine_back_off_app(struct gm_engine *engine, uint32_t app);
void gm_engine_app_went_well(struct gm_engine *engine, uint32_t app);
static inline bool gm_engine_is_app_off(const struct gm_engine *engine, uint32_t app)
{
    return engine->apps[app].retry.at > engine->now;
}
bool gm_engine_app_retry_comes(struct gm_engine *engine, uint32_t app);
void gm_engine_retry_at_once(struct gm_engine *engine, uint32_t app);

/* gates.c */
/* Open the gate of an app that loads, and is whole. */
void gm_engine_open_gate(struct gm_engine *engine, uint32_t app);
/* Close the gate of a running app, and ask for its answer. */
void gm_engine_close_gate(struct gm_engine *engine, uint32_t app);
/* The answer to CLOSE; NULL: none came in time. */
void gm_engine_drained(struct gm_engine *engine, uint32_t app,
                       const struct gm_msg_drained *drained);
/* Close the gate of a running app for exchanges; the scheduler is not told. */
void gm_engine_hold(struct gm_engine *engine, uint32_t app);
/* It has answered CLOSE, or a batch. */
void gm_engine_heard(struct gm_engine *engine, uint32_t app);
/* It stood still: the time for its answers begins anew. */
void gm_engine_awaits_anew(struct gm_engine *engine, uint32_t app);
/* The scheduler wants the turn of an app that is held: it ends here. */
void gm_engine_release(struct gm_engine *engine, uint32_t app);

/* apps.c */
/* ALLOC, FREE, and the end of its session. */
void gm_engine_asked(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
void gm_engine_frees(struct gm_engine *engine, uint32_t app, const struct gm_msg_free *free_msg);
void gm_engine_app_left(struct gm_engine *engine, uint32_t app);
/* Answer ALLOC of a pending allocation, once. On failure the allocation is taken back. */
void gm_engine_answer_alloc(struct gm_engine *engine, uint32_t allocation, CUresult result);
void gm_engine_answer_allocs(struct gm_engine *engine, uint32_t app);
/* Commit what an ALLOC asks for. Else why it cannot be had now, and nothing has changed. */
enum gm_why gm_engine_commit(struct gm_engine *engine, uint32_t app,
                             const struct gm_msg_alloc *alloc);
void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t app, uint64_t cookie);
/* A spare of its program's is the daemon's again: as if FREE had come, but TAKEN is the answer. */
void gm_engine_take_back(struct gm_engine *engine, uint32_t allocation);
/* End the slots of GONE apps of which nothing is left. */
void gm_engine_bury(struct gm_engine *engine);
/* The process of a GONE app has ended, or is taken to have. */
void gm_engine_exited(struct gm_engine *engine, uint32_t app);
/* ... and with it all that had copies of what it had open. */
void gm_engine_copies_ended(struct gm_engine *engine, uint32_t app);
/* It has not, and was waited for long enough. */
void gm_engine_exit_late(struct gm_engine *engine, uint32_t app);
/* Its process has yet to end, or others have copies of what it had open. */
static inline bool gm_engine_is_left(const struct gm_app *app)
{
    return app->exit.poll || (app->client && app->client->copies);
}
/* Whether its process may have the frame mapped: until it has said that it dropped that, or ended.
 */
static inline bool gm_engine_may_reach(const struct gm_engine *engine, uint32_t id, uint32_t frame)
{
    const struct gm_app *app = &engine->apps[id];
    return gm_table_has_import(engine->table, id, frame) &&
           (app->state != GM_APP_GONE || gm_engine_is_left(app));
}
/* Release an app's shared memory, batches and watch; its table entries are not touched. */
void gm_engine_free_app(struct gm_engine *engine, uint32_t app);

/* ahead.c */
/* An allocation that nobody waits for (GM_ALLOC_AHEAD). False: refused, nothing changed. */
bool gm_engine_admit_ahead(struct gm_engine *engine, uint32_t app,
                           const struct gm_msg_alloc *alloc);
/* Those of `app` that are not there yet are refused. */
void gm_engine_call_off_ahead(struct gm_engine *engine, uint32_t app);

/* spares.c */
/* Bytes that `app` freed and keeps, as it says. */
uint64_t gm_engine_spare_bytes(const struct gm_engine *engine, uint32_t app);
/* Take back as many of them as make `least` bytes, or all. Returns how many bytes. */
uint64_t gm_engine_take_spares(struct gm_engine *engine, uint32_t app, uint64_t least);
void gm_engine_take_all_spares(struct gm_engine *engine);
/* Take those back that were there when GM_SPARES_KEEP_NS ago somebody looked. */
void gm_engine_age_spares(struct gm_engine *engine, uint32_t app);
/* `asker` is about to have `bytes`: take back the spares that are in the way. */
void gm_engine_make_room(struct gm_engine *engine, uint32_t asker, uint64_t bytes);

/* waiting.c */
/* What an ALLOC asks for: have it, wait for it, or be refused. */
void gm_engine_admit(struct gm_engine *engine, uint32_t app, const struct gm_msg_alloc *alloc);
/* Retry the allocations that wait for room. */
void gm_engine_admit_waiting(struct gm_engine *engine);
/* Why an allocation of `app` waits, which does. */
enum gm_why gm_engine_waits_for(const struct gm_engine *engine, uint32_t app);
bool gm_engine_is_waiting_at(const struct gm_engine *engine, uint32_t app, uint64_t va);
/* `app` is gone. */
void gm_engine_forget_waiting(struct gm_engine *engine, uint32_t app);

/* features.c: put into the log what programs do without, each feature once. */
void gm_engine_note_features(struct gm_engine *engine);

/* refusals.c */
/* An allocation of `app` is refused, for the reason that was decided on. */
void gm_engine_refused(struct gm_engine *engine, uint32_t app, uint64_t bytes, enum gm_why reason);
/* Put into the log what programs were refused, once a second each. */
void gm_engine_note_refusals(struct gm_engine *engine);
/* `app` leaves: what is not in the log yet. */
void gm_engine_note_last_refusal(struct gm_engine *engine, uint32_t app);
/* When gm_engine_note_refusals has something to do though nothing happens. */
uint64_t gm_engine_refusals_due(const struct gm_engine *engine);

/* room.c */
/* Tell the scheduler what room there is: the budget, less what programs keep that do not answer. */
void gm_engine_update_room(struct gm_engine *engine);
/* Put on the ctl pages what the GPU has for each program and what it could allocate now. After
 * every change of what is committed or shared, before the program hears of it. */
void gm_engine_tell_room(struct gm_engine *engine);
/* ... of a client that is no app of this engine yet. */
void gm_engine_tell_newcomer(const struct gm_engine *engine, struct gm_client *client);
/* Read what programs and processes say, for the sums of users: once a round, and before an app asks
 * for memory or for a cap. */
void gm_engine_count_users(struct gm_engine *engine);
/* What core/room answers from; an app is its group. */
struct gm_room_input gm_engine_room_input(const struct gm_engine *engine, uint32_t app);
/* Bytes that can be mapped on the host, once other GPUs have given back what they only keep. */
uint64_t gm_engine_host_soon(const struct gm_engine *engine);
struct gm_room_sums gm_engine_sums(const struct gm_engine *engine, uint32_t app);
/* What all tiers can still hold. */
uint64_t gm_engine_left(const struct gm_engine *engine);
/* What a program that has nothing yet could allocate now. */
uint64_t gm_engine_newcomer_room(const struct gm_engine *engine, bool is_oversize);

/* idle.c */
/* Look which apps do something, and ask those running ones that seem not to. */
void gm_engine_sample(struct gm_engine *engine);
/* An app began to run, or was paused: its idleness is noticed in time although all were idle. */
void gm_engine_sample_soon(struct gm_engine *engine);
/* It did something just now. */
void gm_engine_was_active(struct gm_engine *engine, uint32_t app);
/* Its gate opens; for a turn of its own, or only after exchanges. */
void gm_engine_begin_work(struct gm_engine *engine, uint32_t app, bool is_turn);
/* It is new. */
void gm_engine_begin_idle(struct gm_engine *engine, uint32_t app);
/* It gave its turn back though it has work: it asks again in a while. */
void gm_engine_want_later(struct gm_engine *engine, uint32_t app);
/* Its group has it stand in line, or not any more. */
void gm_engine_stand_in_line(struct gm_engine *engine, uint32_t app, bool is_wanting);
/* False: it was idle, and has made no call since: no work of it is on the GPU. */
bool gm_engine_may_have_work(const struct gm_engine *engine, uint32_t id);
/* A thread of it waits at the closed gate. */
void gm_engine_wants(struct gm_engine *engine, uint32_t app);
/* The answer to QUERY. */
void gm_engine_quiet(struct gm_engine *engine, uint32_t app, const struct gm_msg_quiet *quiet);

/* The calls of it that have returned, as it says. */
uint64_t gm_engine_calls(const struct gm_app *app);
/* It has work that waits for its turn, as far as can be seen. */
bool gm_engine_awaits_turn(const struct gm_app *app);
/* It wants nothing now, whatever it does. */
void gm_engine_rests(struct gm_engine *engine, uint32_t app);

/* stops.c */
/* See who stands still, if it is time to, and do what follows from that. */
void gm_engine_find_stops(struct gm_engine *engine);
uint64_t gm_engine_stops_due(const struct gm_engine *engine);
/* Of one that stands still: how, which process, and what it keeps on the GPU. */
struct gm_reason gm_engine_why_stopped(const struct gm_engine *engine, uint32_t app);

/* copies.c */
/* Whether one more copy can be submitted that way, beside those to come. */
bool gm_engine_has_room(const struct gm_engine *engine, enum gm_way way);
/* The chunk is being evicted and its owner has unmapped it: copy it out and free its frame. Late
 * answers may find no room in the mover: those chunks wait, as if their copies were under way. */
void gm_engine_copy_out(struct gm_engine *engine, uint32_t chunk);
/* Clear free frames that held data: memory that a program has not written reads as zero, and an
 * allocation is not to wait for that. */
void gm_engine_clear_frames(struct gm_engine *engine);
/* Once more: copy the chunk from pinned memory to the frame that it has, or clear that. */
void gm_engine_copy_in(struct gm_engine *engine, uint32_t chunk);
/* Clear the pages of the chunk, which is CLEARING. */
void gm_engine_clear_pages(struct gm_engine *engine, uint32_t chunk);
/* Begin to copy the chunk, settled below the GPU, to the pages at `to_page` of `to`. */
void gm_engine_copy_below(struct gm_engine *engine, uint32_t chunk, enum gm_tier to,
                          uint32_t to_page);
/* Bytes that are being copied in memory or, if one of the two is the disk, from and to it. */
uint64_t gm_engine_copied_below(const struct gm_engine *engine, unsigned from, unsigned to);
/* The copy of the chunk between tiers below the GPU has ended, well or not. */
void gm_engine_end_below(struct gm_engine *engine, uint32_t chunk);
/* Begin what brings the chunk into the frame that it has; `was`: that frame before. */
void gm_engine_bring(struct gm_engine *engine, uint32_t chunk, const struct gm_frame *was);
/* Bytes whose copies are under way, or begin when their owners have unmapped them and they are
 * hashed. */
uint64_t gm_engine_under_way(const struct gm_engine *engine, enum gm_way way);
/* A copy, or a clear, of the mover that has ended. */
struct gm_ended {
    enum gm_way way;
    uint64_t number;
    uint32_t chunk; /* GM_NONE: a free frame was cleared */
    CUresult result;
};
/* The next one; false: there is none. */
bool gm_engine_next_copy(struct gm_engine *engine, struct gm_ended *ended);
/* The next chunk whose copy out found no room in the mover, if there is some now; else GM_NONE. */
uint32_t gm_engine_next_late(struct gm_engine *engine);

/* release.c */
/* The chunk's pages are none of its own any more, nor its shadow. */
void gm_engine_free_pages(struct gm_engine *engine, uint32_t chunk);
/* The chunk's frame is nobody's any more; it is mapped nowhere, or its app is gone. */
void gm_engine_give_up_frame(struct gm_engine *engine, uint32_t chunk);

/* hashes.c */
/* shadows.c */
void gm_engine_open_hasher(struct gm_engine *engine, void (*on_hashes)(void *engine));
static inline bool gm_engine_can_hash(const struct gm_engine *engine)
{
    return engine->hasher && !engine->is_hashing_off;
}
/* The chunk is being evicted, its owner has unmapped it and it has pages: copy it out, if it has
 * changed. True: it has left, and nothing is copied. */
bool gm_engine_vacate(struct gm_engine *engine, uint32_t chunk);
/* Take the next hash that has ended: its chunk, and whether it has left. False: there is none. */
bool gm_engine_next_hash(struct gm_engine *engine, uint32_t *chunk, bool *has_left);

/* moves.c */

/* Whether things are no more as the plan takes them to be. */
bool gm_engine_is_plan_stale(const struct gm_engine *engine);
void gm_engine_plan(struct gm_engine *engine);
void gm_engine_move(struct gm_engine *engine);

/* Pinned bytes that hold data, without shadows. */
uint64_t gm_engine_pinned_used(const struct gm_engine *engine);
/* Take pinned pages for `bytes`, of shadows if need be; GM_NONE: there are too few. */
uint32_t gm_engine_take_pinned(struct gm_engine *engine, uint64_t bytes);
/* Drop the shadow that is used last. False: there is none. */
bool gm_engine_yield_shadow(struct gm_engine *engine);
/* Bytes for which shadows are to have pages: those that are kept, and that are lost. */
uint64_t gm_engine_wanted_shadows(const struct gm_engine *engine);
/* Drop the shadow of a chunk, those of an allocation or an app, all. */
void gm_engine_drop_shadow(struct gm_engine *engine, uint32_t chunk);
void gm_engine_drop_shadows(struct gm_engine *engine, uint32_t allocation);
void gm_engine_drop_shadows_of(struct gm_engine *engine, uint32_t app);
void gm_engine_drop_all_shadows(struct gm_engine *engine);
/* Pinned memory is not to grow by what is lost. */
void gm_engine_forget_lost(struct gm_engine *engine, const struct gm_scope *scope);
/* The chunk has settled on the GPU and its pages are of no other use: keep them, if they are of
 * this. */
void gm_engine_keep_shadow(struct gm_engine *engine, uint32_t chunk);
/* The app's gate opens: what it has on the GPU may change. */
void gm_engine_opened(struct gm_engine *engine, uint32_t app);

/* A copy, a map or an unmap of the chunk has ended: take the steps this allows. */
void gm_engine_settle(struct gm_engine *engine, uint32_t chunk);
/* A chunk whose allocation is freed, or whose app is gone, is put away as far as possible now. */
void gm_engine_retire(struct gm_engine *engine, uint32_t chunk);
/* The chunk's app does not answer. If the chunk waits to be unmapped and copied out, the pinned
 * pages that were set aside for it are others' now. When it is unmapped after all, it is mapped
 * again. */
void gm_engine_forgo_pages(struct gm_engine *engine, uint32_t chunk);
/* The mover's copies that have ended since. */
void gm_engine_take_copies(struct gm_engine *engine);
/* Try again what failed of copies in and mappings, if it is time. */
void gm_engine_try_failed(struct gm_engine *engine);
/* The hashes that have ended since. */
void gm_engine_take_hashes(struct gm_engine *engine);
/* A copy between host tiers ended: gm_stores_done. */
void gm_engine_copied_host(struct gm_engine *engine, uint32_t chunk, int error);

/* frames.c */
/* A free frame more in `pool`, if that is easily had. */
bool gm_engine_make_free_frame(struct gm_engine *engine, uint32_t pool, unsigned class);
/* A new frame in the budget for `chunk`, used by nobody; GM_NONE: not now. */
uint32_t gm_engine_make_frame(struct gm_engine *engine, const struct gm_chunk *chunk);
/* `frame` is nobody's any more and ends as soon as no copy reads it, no shim holds an import and,
 * if `exit_of` is an app, that app's process is gone with whatever it still ran on the GPU. */
void gm_engine_condemn(struct gm_engine *engine, uint32_t frame, uint32_t exit_of);
/* An ended program left this condemned frame behind: a copy of what it had open lives on in another
 * process. */
bool gm_engine_is_left_behind(const struct gm_engine *engine, uint32_t frame);
/* Bytes that a program which does not answer keeps from the others. */
uint64_t gm_engine_kept(const struct gm_engine *engine, uint32_t app);
/* Condemn free frames as long as more than `kept` bytes of frames are there to stay. */
void gm_engine_give_back_frames(struct gm_engine *engine, uint64_t kept);
/* ... of this user, and of users who have no program. */
void gm_engine_give_back_frames_of(struct gm_engine *engine, uid_t uid, uint64_t kept);
/* Destroy condemned frames that nothing holds back. */
/* A run of the engine begins: as many frames may be made as in any. */
void gm_engine_begin_frames(struct gm_engine *engine);
/* Why the driver refused the last frame, once; NONE: it did not. */
enum gm_why gm_engine_take_refusal(struct gm_engine *engine);
/* Condemned frames may end now though nothing more is heard of them. */
void gm_engine_reap_soon(struct gm_engine *engine);
void gm_engine_reap(struct gm_engine *engine);
/* Destroy the free frames of users that have no app any more: their pools are needed. */
void gm_engine_drop_idle_pools(struct gm_engine *engine);

/* memory.c */
/* Pinned memory has grown, or was refused. */
void gm_engine_pinned_grew(struct gm_engine *engine);
/* What gm_engine_trim does. */
void gm_engine_trim_memory(struct gm_engine *engine, uid_t asker, struct gm_trimmed *trimmed);
/* The budget of the GPU as programs are told it, and as allocations are admitted by it. One that
 * was given is an upper limit, of which the device may have less now. */
static inline uint64_t gm_engine_offered(const struct gm_engine *engine)
{
    return engine->is_budget_auto ? engine->table->budget : engine->config.budget;
}
/* Have memory made as it is needed now; after any change of what is committed or of the budget. */
void gm_engine_want_memory(struct gm_engine *engine);
/* Give back what was not needed lately; and when there may be some without any event. */
void gm_engine_give_back(struct gm_engine *engine);
uint64_t gm_engine_give_back_at(const struct gm_engine *engine);
/* The budget has room for what the app needs, whatever the device has. */
void gm_engine_need_budget(struct gm_engine *engine, uint32_t app);
/* Let the budget follow what the device has. `refused`: why no more frames can be made than there
 * are; NONE: they can. */
void gm_engine_follow_budget(struct gm_engine *engine, enum gm_why refused);
/* The same for a frame that was refused in a move, when the moves are made: it frees spares, which
 * the plan still names. */
void gm_engine_follow_refusal(struct gm_engine *engine);
/* Other GPUs may have taken pinned memory, or given it back: plan and grow by what is left. */
void gm_engine_follow_host(struct gm_engine *engine);
/* ... if it is time to. */
void gm_engine_check_budget(struct gm_engine *engine);
/* The app is paused, and its memory is to leave the GPU. */
bool gm_engine_is_vacating(const struct gm_engine *engine, uint32_t app);
/* From now on the budget is all that the device has left, whatever the option says. */
void gm_engine_take_device(struct gm_engine *engine);

/* batches.c */
/* Into the batch of this kind: a chunk (MAP, UNMAP) or a frame (DROP). */
void gm_engine_batch(struct gm_engine *engine, uint32_t app, enum gm_batch_kind kind,
                     uint32_t item);
/* Tell the chunk's app to map the frame it has, or to unmap it. */
void gm_engine_map(struct gm_engine *engine, uint32_t chunk);
/* answers.c */
void gm_engine_batch_done(struct gm_engine *engine, uint32_t app, uint64_t batch, int32_t result);

/* chunks.c */
/* Frames for whose DROP `app` owes an answer will not end while it is silent; and its evictions do
 * not keep pinned memory from others. */
void gm_engine_note_silence(struct gm_engine *engine, uint32_t app, bool is_silent);
/* The connection of `app` ended: its unanswered batches are void. */
void gm_engine_void_batches(struct gm_engine *engine, uint32_t app);
void gm_engine_unmap(struct gm_engine *engine, uint32_t chunk);
/* The answer to batch `number` has come: take it from the queue; it is the caller's to free. NULL:
 * it was not asked, or the app cannot unmap, and its session ends. */
struct gm_batch *gm_engine_take_answer(struct gm_engine *engine, uint32_t app, uint64_t number,
                                       int32_t result);
/* Of an app that has left: the next batch without an answer, which is the caller's to free (NULL:
 * there is none); and the next chunk for which there was no batch (GM_NONE). */
struct gm_batch *gm_engine_take_unanswered(struct gm_engine *engine, uint32_t app);
uint32_t gm_engine_take_unsent(struct gm_engine *engine, uint32_t app);
/* Send what is in the batches. */
void gm_engine_flush(struct gm_engine *engine);
/* Have the app show that it is there, with an empty batch: memory moved for a stopped one is stuck.
 */
void gm_engine_ping(struct gm_engine *engine, uint32_t app);
/* Queues of a new app. */
void gm_engine_open_batches(struct gm_app *app);
void gm_engine_close_batches(struct gm_app *app);
/* Have `app` map (OPEN) or unmap (SHUT) `n` places of what it opens. False: there is no memory for
 * it. */
bool gm_engine_send_places(struct gm_engine *engine, enum gm_batch_kind kind, struct gm_open *open,
                           const uint32_t *places, uint32_t n);

/* shares.c */
/* What a program asks. */
void gm_engine_share(struct gm_engine *engine, uint32_t app, const struct gm_msg_share *share);
void gm_engine_open_share(struct gm_engine *engine, uint32_t app, const struct gm_msg_open *open);
/* Whether `app` has opened something at `va`. */
bool gm_engine_has_open(const struct gm_engine *engine, uint32_t app, uint64_t va);
void gm_engine_shut(struct gm_engine *engine, uint32_t app, const struct gm_msg_shut *shut);
/* A batch of places is answered. */
void gm_engine_places_done(struct gm_engine *engine, const struct gm_batch *batch, int32_t result);
/* The owner frees the allocation at `va`, or is gone: nobody can open it any more. */
void gm_engine_unshare(struct gm_engine *engine, uint32_t owner, uint64_t va);
/* The owner's chunk has given `frame` up, which is part of a share. */
void gm_engine_leave_share(struct gm_engine *engine, uint32_t frame);
/* `app` is gone, with all that it had opened. */
void gm_engine_forget_opens(struct gm_engine *engine, uint32_t app);
/* Bytes that the app shares, and that it has open of others'. */
uint64_t gm_engine_shared_bytes(const struct gm_engine *engine, uint32_t app);
uint64_t gm_engine_opened_bytes(const struct gm_engine *engine, uint32_t app);
void gm_engine_close_shares(struct gm_engine *engine);

/* deadlines.c */
void gm_engine_check_deadlines(struct gm_engine *engine);
/* Set the timer to the next thing that time alone brings about. */
void gm_engine_arm_timer(struct gm_engine *engine);

/* feed.c */
/* The daemon is about to end: the first `n` of `set` are to run, whatever the scheduler says. The
 * memory stays the caller's. */
void gm_engine_decide(struct gm_engine *engine, uint32_t *set, uint32_t n);
/* Whether the app is to have its turn now. */
bool gm_engine_is_chosen(const struct gm_engine *engine, uint32_t app);
/* Make the scheduler. 0, -ENOMEM or -EINVAL; its memory is freed with the tables. */
int gm_engine_open_sched(struct gm_engine *engine);
/* Tell the scheduler what happened. */
void gm_engine_feed(struct gm_engine *engine, enum gm_sched_event_kind kind, uint32_t app,
                    uint64_t bytes);
/* The app is idle, and was for `ago_ns` already. */
void gm_engine_feed_idle(struct gm_engine *engine, uint32_t app, uint64_t ago_ns);
/* What holds for it now. */
void gm_engine_feed_policy(struct gm_engine *engine, uint32_t app,
                           const struct gm_sched_policy *policy);
/* It stands by until all of its group could have their turns, or does not. */
void gm_engine_tie(struct gm_engine *engine, uint32_t app, bool is_tied);
/* It has its turn, or could have it and is tied. */
bool gm_engine_is_ready(const struct gm_engine *engine, uint32_t app);
/* One of those that are one app to the scheduler wants its turn. */
bool gm_engine_unit_wants(const struct gm_engine *engine, const struct gm_app *app);
/* As the functions of core/sched.h: of the unit of the app; `ahead` names an app. */
bool gm_engine_account(const struct gm_engine *engine, uint32_t app,
                       struct gm_sched_account *account);
uint64_t gm_engine_expected(const struct gm_engine *engine, uint32_t app);
bool gm_engine_is_later(const struct gm_engine *engine, uint32_t a, uint32_t b);

/* policy.c */
/* What gm_engine_set does. */
int gm_engine_apply_set(struct gm_engine *engine, const struct gm_set_request *request,
                        struct gm_set_done *done, char *why, size_t why_size);
/* Have the scheduler know what holds for the app. Returns that. */
struct gm_sched_policy gm_engine_apply_policy(struct gm_engine *engine, uint32_t app);
/* Root, or the user whose daemon it is. */
bool gm_engine_is_admin(uid_t uid);
/* It is paused by a setting, its own or that of another of its group. */
bool gm_engine_is_paused(const struct gm_engine *engine, uint32_t app);
/* Who paused it, as text ends: "alice", "the rule command=train* paused". Returns `text`. */
char *gm_engine_pauser(const struct gm_engine *engine, uint32_t app, char *text, size_t size);
/* The rule from which it has a setting (enum gm_set_setting). False: from none. */
bool gm_engine_rule_of(const struct gm_engine *engine, uint32_t app, uint32_t setting, char *text,
                       size_t size);
/* The rule that bounds the GPU memory of all programs of its user. False: none does. */
bool gm_engine_total_rule_of(const struct gm_engine *engine, uint32_t app, char *text, size_t size);
/* The class that holds for it. */
enum gm_sched_class gm_engine_class(const struct gm_engine *engine, uint32_t app);
/* A new app's policy, known to the scheduler: what rules say of it, and its own wishes. */
void gm_engine_first_policy(struct gm_engine *engine, uint32_t app, const struct gm_wishes *wishes);
/* Set whether a new client may have more memory than the budget, as rules and its wishes have it.
 */
void gm_engine_judge_oversize(const struct gm_engine *engine, struct gm_client *client);
/* Whether the app may now. False where the GPU cannot map host memory. */
bool gm_engine_is_oversize(const struct gm_engine *engine, uint32_t app);

/* events.c */
/* Something happened: count it and hand it to the views. */
void gm_engine_emit(struct gm_engine *engine, const struct gm_event *event);
/* ... of an event without fields. */
void gm_engine_happened(struct gm_engine *engine, uint32_t app, enum gm_event_kind kind);
/* A copy of the chunk begins, or has ended; it goes where the chunk's state says. */
void gm_engine_tell_copy(struct gm_engine *engine, uint32_t chunk);
void gm_engine_tell_copied(struct gm_engine *engine, uint32_t chunk, bool has_failed);
/* What changes in the table is emitted. */
void gm_engine_watch_table(struct gm_engine *engine);

/* log.c */
/* `app` does not run any more: it yielded, or ended (`has_left`). */
void gm_engine_note_leaver(struct gm_engine *engine, uint32_t app, bool has_left);
/* `app` is about to run; `took`: if that is a switch, else NULL. */
void gm_engine_note_switch(struct gm_engine *engine, uint32_t app, const struct gm_switch *took);
/* `app` was refused memory, `n` times since the last note of that. */
void gm_engine_note_refusal(struct gm_engine *engine, uint32_t app, const struct gm_reason *refusal,
                            uint64_t n);
/* Levels that changed by themselves. */
/* The app is new. */
void gm_engine_begin_notes(struct gm_engine *engine, uint32_t app);
void gm_engine_note_levels(struct gm_engine *engine);
/* `by` changed what is said of `app`; its level now is no news. */
void gm_engine_note_set(struct gm_engine *engine, uint32_t app, uid_t by,
                        const struct gm_settings *said, const struct gm_sched_policy *policy);

/* switches.c */
/* `app` was chosen: its switch begins. */
void gm_engine_begin_switch(struct gm_engine *engine, uint32_t app);
/* A step begins, and ends: what has passed, and what is under way until the next. */
void gm_engine_pass(struct gm_engine *engine);
void gm_engine_look_under_way(struct gm_engine *engine);
/* Its gate opens: write down where the time went. */
void gm_engine_record_switch(struct gm_engine *engine, uint32_t app);

/* places.c */
/* What an app's launches used. */
void gm_engine_uses(struct gm_engine *engine, uint32_t app, const struct gm_use_entry *entries,
                    uint32_t n);
/* Places for the chunks of a new allocation. */
void gm_engine_place_new(struct gm_engine *engine, uint32_t allocation);
/* The app is quiet or will soon be: its chunks are to get new places then. */
void gm_engine_begin_places(struct gm_app *app);
/* The allocation ends: nothing waits for its places. */
void gm_engine_forget_newest(struct gm_engine *engine, uint32_t allocation);
/* Its gate may be closed for exchanges at once. */
void gm_engine_hold_at_once(struct gm_engine *engine, uint32_t app);
void gm_engine_want_places(struct gm_engine *engine, uint32_t app);
/* The app may have less on the GPU than it has: it has freed memory on the host, and another member
 * of its group has the room. It gets new places at once. */
void gm_engine_fit_places(struct gm_engine *engine, uint32_t app);
/* Each round: new places for who is quiet, gates that close for that, and the next step of chunks
 * that are to be mapped on the host. */
void gm_engine_place(struct gm_engine *engine);
void gm_engine_map_on_host(struct gm_engine *engine);
/* Tell what of programs that run is read over the link, when that has changed. */
void gm_engine_note_places(struct gm_engine *engine);
/* Whether the gate of a loaded app waits for chunks that leave. */
bool gm_engine_is_placing(const struct gm_engine *engine, uint32_t app);
/* The app's gate opens, or it is paused: what has not got to its new place stays. `is_over`: its
 * turn is over. */
void gm_engine_end_placing(struct gm_engine *engine, uint32_t app, bool is_over);
/* When the gate of a loaded app opens in any case. */
uint64_t gm_engine_placing_due(const struct gm_engine *engine, uint32_t app);
/* An app whose gate was closed for exchanges did not drain. */
void gm_engine_hold_failed(struct gm_engine *engine, uint32_t app);
/* Pinned pages for a chunk that leaves the GPU; GM_NONE: none now. */
uint32_t gm_engine_take_pages(struct gm_engine *engine, const struct gm_chunk *chunk);

/* Bytes that the app has on the GPU or is to have there, and that it may have, beside what is
 * fixed.
 */
uint64_t gm_engine_bytes_for_gpu(const struct gm_engine *engine, uint32_t app);
uint64_t gm_engine_places_room(const struct gm_engine *engine, uint32_t app);

/* caps.c */
/* The cap that counts for the app; 0: none. */
uint64_t gm_engine_cap(const struct gm_engine *engine, uint32_t app);
/* Whether it may occupy less of the GPU than the budget, by a cap or a total for its user. */
bool gm_engine_is_capped(const struct gm_engine *engine, uint32_t app);
/* Whether a chunk of it may come to the GPU now. */
bool gm_engine_may_occupy(const struct gm_engine *engine, uint32_t app, uint64_t bytes);
/* Why it may not have all of its memory there; NONE: it may. */
struct gm_reason gm_engine_why_capped(const struct gm_engine *engine, uint32_t app);
/* Bytes of it that must leave the GPU. */
uint64_t gm_engine_above_cap(const struct gm_engine *engine, uint32_t app);
/* What of the app is beyond the GPU follows from its memory and its cap: after a change of either.
 */
void gm_engine_fit(struct gm_engine *engine, uint32_t app);
/* Each round: what changes without an event. */
void gm_engine_follow_caps(struct gm_engine *engine);
/* Its cap is `bytes` from now on; 0: it has none. */
void gm_engine_set_cap(struct gm_engine *engine, uint32_t app, uint64_t bytes);
/* Whether it can have that cap: 0, or -errno with one line in `why`. */
int gm_engine_check_cap(const struct gm_engine *engine, uint32_t app, uint64_t bytes, char *why,
                        size_t why_size);
/* Whether pinned memory has room for what is beyond that cap of all `selected` apps (by id), in
 * whole groups. Likewise. */
int gm_engine_check_room(const struct gm_engine *engine, const bool *selected, uint64_t bytes,
                         char *why, size_t why_size);

/* saving.c */
/* What gm_engine_save does. */
void gm_engine_begin_saving(struct gm_engine *engine, void (*on_saved)(void *arg), void *arg);
/* While the daemon is about to end: decide whose gates are to be open. */
void gm_engine_choose_saved(struct gm_engine *engine);
/* When it must be looked at again, whatever happens. */
/* The daemon did not run for so long. */
void gm_engine_put_off_end(struct gm_engine *engine, uint64_t ns);
uint64_t gm_engine_saving_due(const struct gm_engine *engine);

/* timeslices.c */
/* Tell programs their timeslices, as far as these are others now. */
void gm_engine_tell_timeslices(struct gm_engine *engine);

/* turns.c */
/* Give the next best-effort program its turn, if it is time. */
void gm_engine_take_turns(struct gm_engine *engine);
uint64_t gm_engine_turn_due(const struct gm_engine *engine);

/* hints.c */
/* Whether the work of a running program can be made to stand still; and do so, in `in_ns` for
 * `for_ns`. */
bool gm_engine_can_hold(const struct gm_engine *engine, uint32_t app);
void gm_engine_send_hold(struct gm_engine *engine, uint32_t app, uint64_t in_ns, uint64_t for_ns);
/* EXPECT. True: the engine must look again at gm_engine_hints_due. */
bool gm_engine_expect(struct gm_engine *engine, uint32_t app, const struct gm_msg_expect *expect);
/* Hold programs for the hints whose time has come. */
void gm_engine_follow_hints(struct gm_engine *engine);
uint64_t gm_engine_hints_due(const struct gm_engine *engine);

#endif
