/*
 * The machine: the engines of all GPUs that the daemon shares, and the clients that use them. A
 * client is an app of the engine of each GPU that it uses, from its first ENTER, ALLOC or OPEN
 * there; where there is one GPU, from HELLO on. Engines know nothing of one another but for groups
 * (groups.h) and host memory (host.h).
 *
 * Made by main; called by sessions and control. Calls the engines. Loop thread only.
 */
#ifndef GM_DAEMON_ENGINE_MACHINE_H
#define GM_DAEMON_ENGINE_MACHINE_H

#include "daemon/engine/binds.h"
#include "daemon/engine/keep.h"
#include "daemon/engine/state/engine.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/host.h"

struct gm_machine {
    uv_loop_t *loop;
    struct gm_engine_outlet outlet;
    int lifeline; /* for WELCOME */
    struct gm_kept *kept;
    uint32_t max_apps;
    uint32_t n; /* engines */
    struct gm_engine *engines[GM_GPUS_MAX];
    struct gm_journal *journal;
    struct gm_client **clients; /* by id, those that are connected, or may be again */
    struct gm_groups groups;
    struct gm_binds binds;
    struct gm_host host;
    struct gm_keep keep;
    uint64_t copier_look_at; /* snapshot.c: gm_client_find_copier */
    bool is_stopping;
    uint32_t unsaved; /* engines that have yet to call on_saved */
    void (*on_saved)(void *arg);
    void *arg;
};

/* The CUDA numbers of all GPUs that there are. 0, or -errno with one line for a person in `why`. */
int gm_machine_find_gpus(uint32_t gpus[GM_GPUS_MAX], uint32_t *n, char *why, size_t why_size);

/* Whether what the configuration says of host memory can be had for `n` GPUs, which need not be
 * there, and open `host` by that. `is_in_group`: this process has the daemon's control group. 0, or
 * -errno with one line in `why`. */
int gm_machine_fit(struct gm_host *host, struct gm_engine_config *config, uint32_t n,
                   bool is_in_group, char *why, size_t why_size);

/*
 * Open `n` GPUs, by their CUDA numbers. `config` is that of each, but for its GPU and index, and
 * the host memory, which is for all. Returns 0, or -errno with one line for a person in `why`; then
 * nothing is left.
 */
int gm_machine_open(struct gm_machine *machine, uv_loop_t *loop,
                    const struct gm_engine_config *config, const uint32_t *gpus, uint32_t n,
                    char *why, size_t why_size);

/* How many more programs can join; -ESHUTDOWN: the daemon is about to end. */
int gm_machine_places(const struct gm_machine *machine);
/* How many places this user's programs have. One that has left keeps its place until its process
 * ends, or 5 s. */
uint32_t gm_machine_places_of(const struct gm_machine *machine, uid_t owner);
/* Each second: tell every program that the daemon is there (gm_ctl.beat). */
void gm_machine_beat(struct gm_machine *machine);

/* As the functions of the same names of engine.h, for all engines. */
void gm_machine_save(struct gm_machine *machine, void (*on_saved)(void *arg), void *arg);
/* Once it saves: how many programs have all of their memory, are to have it, and have lost some. */
void gm_machine_saved(const struct gm_machine *machine, uint32_t *whole, uint32_t *left,
                      uint32_t *lost);
/* What holds of all clients now outlives the daemon. */
void gm_machine_keep(struct gm_machine *machine);
void gm_machine_halt(struct gm_machine *machine);
void gm_machine_close(struct gm_machine *machine);
void gm_machine_message(struct gm_machine *machine, uint32_t id,
                        const struct gm_wire_message *message);
void gm_machine_leave(struct gm_machine *machine, uint32_t id, bool has_hung_up);
void gm_machine_tune(struct gm_machine *machine, const struct gm_engine_tuning *tuning);
/* The program has imported memory that process `exporter` says it exported. */
void gm_machine_imported(struct gm_machine *machine, uint32_t id, pid_t exporter);
void gm_machine_trim(struct gm_machine *machine, uid_t asker, bool is_admin,
                     struct gm_trimmed *trimmed);
bool gm_machine_is_trimming(const struct gm_machine *machine);
int gm_machine_set(struct gm_machine *machine, const struct gm_set_request *request,
                   struct gm_set_done *done, char *why, size_t why_size);

/* For absents.c. A client of a daemon before (gm_client_reopen) has its id, and is an app where it
 * has memory. It is the machine's now. 0; or -ENOENT: a GPU does not have it as that, and this
 * daemon cannot go on. */
int gm_machine_put(struct gm_machine *machine, struct gm_client *client,
                   const struct gm_client_record *record);
/* It does not come back: its process has ended (`is_over`), or says that it is another one now. */
void gm_machine_give_up(struct gm_machine *machine, uint32_t id, bool is_over);
/* Its program has come back: WELCOME, with what there is of each GPU. 0 or -errno. */
int gm_machine_welcome(struct gm_machine *machine, struct gm_client *client);
/* ... and it is an app again. */
void gm_machine_returned(struct gm_machine *machine, struct gm_client *client);

/*
 * A program said HELLO. Makes its shared memory, sends WELCOME through its session and returns 0
 * with its id; or -errno with one line in `why` (-ENOSPC: too many apps, -ESHUTDOWN: the daemon is
 * about to end, -EPERM: the group is another user's). `group`: the name of one; "": it runs by
 * itself. `who` is copied.
 */
int gm_machine_join(struct gm_machine *machine, const struct gm_newcomer *who, const char *group,
                    uint32_t *id, char *why, size_t why_size);

#endif
