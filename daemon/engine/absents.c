#include "daemon/engine/absents.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/apps.h"

/* No daemon has so many programs: more are no ledger. */
#define CLIENTS_MOST (1u << 16)

struct gm_absent {
    struct gm_absents *all;
    struct gm_client *client;
    struct gm_client_record record;
    struct gm_lost lost;
    char refusal[160]; /* why it cannot come back; "": it can */
};

/* What is found at the start, for the log. */
struct census {
    uint32_t taken, cut, ended, broken;
    char names[256];
};

/* ---- the ledger of the daemon before ---- */

/* A copy, which the caller frees; NULL: it is none. 0, or -errno: it cannot be read now. */
static int copy_of(int fd, void **out, size_t *bytes)
{
    struct stat is;
    size_t got = 0;
    int error = 0;
    *out = NULL;
    if (fstat(fd, &is) != 0)
        return -errno;
    if (is.st_size <= 0 || (uint64_t)is.st_size > gm_clients_size(CLIENTS_MOST))
        return 0;
    *bytes = (size_t)is.st_size;
    char *copy = aligned_alloc(GM_LEDGER_PAGE, (*bytes | (GM_LEDGER_PAGE - 1)) + 1);
    if (!copy)
        return -ENOMEM;
    while (got < *bytes) {
        const ssize_t n = pread(fd, copy + got, *bytes - got, (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            error = -errno;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    if (got == *bytes)
        *out = copy;
    else
        free(copy);
    return error;
}

/* The process that a pidfd is of; 0: it has ended. 0, or -errno: that cannot be read now. */
static int pid_of(int lease, pid_t *pid)
{
    char path[64], line[128];
    int found = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", lease);
    FILE *file = fopen(path, "re");
    if (!file)
        return -errno;
    while (found == 0 && fgets(line, sizeof line, file))
        sscanf(line, "Pid: %d", &found);
    fclose(file);
    *pid = found > 0 ? found : 0;
    return 0;
}

static bool has_ended(int lease)
{
    struct pollfd look = {.fd = lease, .events = POLLIN};
    return poll(&look, 1, 0) > 0;
}

/* A pidfd of the process with this number; *fd is -1: there is none. 0 or -errno. */
static int open_process(uint32_t pid, int *fd)
{
    *fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    const bool is_none = *fd < 0 && (errno == ESRCH || errno == EINVAL || errno == ENOENT);
    return *fd >= 0 || is_none ? 0 : -errno;
}

/*
 * Whether the process of the pidfd is the one of the record. A lease was kept with the record, so
 * the number is enough where a start could not be read, be it when the program came or now: a
 * process may hide it. 0; or -errno: that cannot be read now.
 */
static int compare(const struct gm_machine *machine, const struct gm_client_record *record, int fd,
                   bool is_lease, bool *is_it)
{
    pid_t pid = 0;
    int error = pid_of(fd, &pid);
    if (error)
        return error;
    const uint64_t started = pid == 0 ? 0 : machine->outlet.started(pid);
    if (!is_lease && pid != 0 && started == 0 && record->started != 0 && !has_ended(fd))
        error = -EAGAIN;
    *is_it = pid == (pid_t)record->pid &&
             (is_lease ? gm_starts_agree(started, record->started) : started == record->started);
    return error;
}

/*
 * The process of a record. A lease is of the very one, whatever the record says; without one it is
 * looked for by its number and its start. *lease becomes a pidfd of it, with *is_it; or -1: it has
 * ended. Not *is_it: the lease is of another process, so the record is none. 0; or -errno: the
 * system cannot say now.
 */
static int find_process(const struct gm_machine *machine, const struct gm_client_record *record,
                        int *lease, bool *is_it)
{
    const bool has_lease = *lease >= 0;
    int error = has_lease ? 0 : open_process(record->pid, lease);
    if (error || *lease < 0)
        return error;
    error = compare(machine, record, *lease, has_lease, is_it);
    if (error == 0 && (has_ended(*lease) || (!*is_it && !has_lease))) {
        close(*lease);
        *lease = -1;
    }
    return error;
}

/* Of a program of which nothing is known but its process: it may have memory mapped, so that waits
 * for its end. Its user is known to the GPUs' ledgers. 0; or -errno: that cannot be read now. */
static int make_record(const struct gm_machine *machine, uint32_t id, int lease,
                       struct gm_client_record *record)
{
    pid_t pid = 0;
    const int error = pid_of(lease, &pid);
    *record = (struct gm_client_record){.pid = (uint32_t)pid, .group_of = id, .is_gone = 1};
    snprintf(record->name, sizeof record->name, "?");
    record->started = machine->outlet.started(pid);
    for (uint32_t i = 0; i < machine->n; i++) {
        const struct gm_table *table = machine->engines[i]->table;
        if (table->apps[id].is_used)
            record->uid = table->pools[table->apps[id].pool].uid;
    }
    return error;
}

/* A GPU's ledger says that this one has memory, or had some that it may have mapped. */
static bool has_memory(const struct gm_machine *machine, uint32_t id)
{
    for (uint32_t i = 0; i < machine->n; i++) {
        const struct gm_table *table = machine->engines[i]->table;
        if (table->apps[id].is_used && table->apps[id].committed > 0)
            return true;
        for (uint32_t k = 0; table->apps[id].is_used && k < table->max_frames; k++)
            if (gm_table_has_import(table, id, k))
                return true;
    }
    return false;
}

/* ---- who comes back ---- */

/* It is absent no more: its GPUs hear of the end of its process. */
static void end_absent(struct gm_absent *absent)
{
    struct gm_absents *all = absent->all;
    all->of[absent->lost.app] = NULL;
    gm_client_await(absent->client, all->machine->loop, gm_engine_on_exit, NULL);
    free(absent);
}

static void give_up(struct gm_absent *absent, bool is_over)
{
    struct gm_machine *machine = absent->all->machine;
    const uint32_t id = absent->lost.app;
    end_absent(absent);
    gm_machine_give_up(machine, id, is_over);
}

static void on_ended(void *absent, struct gm_client *client)
{
    (void)client;
    give_up(absent, true);
}

/* Whom it ran with, of those that are here already. */
static const struct gm_client *partner_of(const struct gm_absents *absents, uint32_t id,
                                          const struct gm_client_record *record)
{
    for (uint32_t other = 0; other < id; other++) {
        const struct gm_absent *absent = absents->of[other];
        if (absent && gm_clients_are_together(id, record, other, &absent->record))
            return absent->client;
    }
    return NULL;
}

/* One whose memory it had mapped, or that had its own, of those that are here already. */
static void restore_kin(const struct gm_absents *absents, const struct gm_absent *absent)
{
    for (uint32_t other = 0; other < absent->lost.app; other++) {
        const struct gm_absent *kin = absents->of[other];
        if (!kin || !gm_clients_are_kin(absent->lost.app, &absent->record, other, &kin->record))
            continue;
        gm_group_restore_kin(absent->client, kin->client);
        return;
    }
}

/* Why it cannot come back; "": it can. */
static void judge(const struct gm_machine *machine, struct gm_absent *absent, bool has_words)
{
    const struct gm_client_record *record = &absent->record;
    if (record->is_gone)
        snprintf(absent->refusal, sizeof absent->refusal, "its session had ended before");
    if (!has_words)
        snprintf(absent->refusal, sizeof absent->refusal,
                 "the memory that it shared with the daemon before is lost");
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        const struct gm_table *table = i < machine->n ? machine->engines[i]->table : NULL;
        const struct gm_table_app *app = table ? &table->apps[absent->lost.app] : NULL;
        if ((record->engines & 1u << i) != 0 && (!app || !app->is_used))
            snprintf(absent->refusal, sizeof absent->refusal,
                     "what it had on GPU %" PRIu32 " is lost: see the log of gpumuxd", i);
        else if (app && app->is_used && table->pools[app->pool].uid != record->uid)
            snprintf(absent->refusal, sizeof absent->refusal,
                     "the ledger of GPU %" PRIu32 " says that it is another user's", i);
    }
}

static uint32_t frames_of(const struct gm_machine *machine, uint32_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < machine->n; i++)
        if (machine->engines[i]->table->apps[id].is_used)
            n += machine->engines[i]->table->max_frames;
    return n;
}

static void close_both(int stat, int lease)
{
    if (stat >= 0)
        close(stat);
    if (lease >= 0)
        close(lease);
}

/* Take this one over. `stat` and `lease` are this function's. 0; or -errno, and then it is not, and
 * the keeper holds on to what it has: another start may do better. */
static int take_over(struct gm_absents *absents, uint32_t id, const struct gm_client_record *record,
                     int stat, int lease)
{
    struct gm_machine *machine = absents->machine;
    struct gm_absent *absent = calloc(1, sizeof *absent);
    struct gm_client *client = NULL;
    int error = -ENOMEM;
    if (!absent) {
        close_both(stat, lease);
        return error;
    }
    const int opened = gm_client_reopen(&client, id, record, stat, lease, machine->kept, gm_now());
    if (opened < 0) {
        error = opened;
        goto no_client;
    }
    *absent = (struct gm_absent){.all = absents, .client = client, .record = *record};
    absent->lost = (struct gm_lost){.app = id,
                                    .pid = client->pid,
                                    .started = client->started,
                                    .uid = client->uid,
                                    .nonce = {client->nonce[0], client->nonce[1]},
                                    .name = client->name,
                                    .since = client->lost_at,
                                    .most_holds = frames_of(machine, id)};
    judge(machine, absent, opened == 0);
    absent->lost.refusal = absent->refusal[0] ? absent->refusal : NULL;
    client->is_cut = absent->refusal[0] != '\0';
    error = gm_group_restore(&machine->groups, client, partner_of(absents, id, record),
                             record->group, record->is_group_said != 0 && record->is_gone == 0);
    if (error)
        goto no_group;
    error = gm_client_await(client, machine->loop, on_ended, absent);
    if (error)
        goto no_group;
    absents->of[id] = absent;
    restore_kin(absents, absent);
    return gm_machine_put(machine, client, record);

no_group:
    gm_client_undo_reopen(client);
no_client:
    free(absent);
    return error;
}

/* ---- the start ---- */

static void note(struct census *census, const struct gm_absent *absent)
{
    if (absent->refusal[0]) {
        census->cut++;
        return;
    }
    gm_text_add(census->names, sizeof census->names, "%s%s (pid %d)", census->taken > 0 ? ", " : "",
                absent->client->name, (int)absent->client->pid);
    census->taken++;
}

/* The program of this id, of which the ledger says `outcome`. */
static int find_one(struct gm_absents *absents, uint32_t id, enum gm_ledger_outcome outcome,
                    struct gm_client_record *record, struct census *census)
{
    struct gm_kept *kept = absents->machine->kept;
    uint64_t unused;
    bool is_it = false;
    int stat = gm_kept_claim(kept, GM_KEPT_STAT, 0, id, &unused);
    int lease = gm_kept_claim(kept, GM_KEPT_LEASE, 0, id, &unused);
    int error = 0;
    if (outcome == GM_LEDGER_IS)
        error = find_process(absents->machine, record, &lease, &is_it);
    else if (lease >= 0 && (has_ended(lease) ||
                            (outcome == GM_LEDGER_NONE && !has_memory(absents->machine, id)))) {
        close(lease); /* it had nothing yet, or has nothing any more */
        lease = -1;
    }
    if (error == 0 && lease >= 0 && !is_it)
        error = make_record(absents->machine, id, lease, record);
    if (error) {
        close_both(stat, lease);
        return error;
    }
    if (lease < 0) {
        gm_kept_drop(kept, GM_KEPT_STAT, 0, id);
        gm_kept_drop(kept, GM_KEPT_LEASE, 0, id);
        close_both(stat, lease);
        census->ended += outcome == GM_LEDGER_IS;
        census->broken += outcome == GM_LEDGER_BROKEN;
        return 0;
    }
    census->broken += !is_it;
    error = take_over(absents, id, record, stat, lease);
    if (error == 0)
        note(census, absents->of[id]);
    return error;
}

static void tell(struct gm_machine *machine, const struct census *census, const char *wrong,
                 uint64_t since)
{
    struct gm_note restart = {.restart = {.taken = census->taken,
                                          .cut = census->cut,
                                          .ended = census->ended,
                                          .broken = census->broken,
                                          .took_ns = gm_now() - since}};
    snprintf(restart.restart.names, sizeof restart.restart.names, "%s", census->names);
    snprintf(restart.restart.wrong, sizeof restart.restart.wrong, "%s", wrong ? wrong : "");
    gm_engine_emit(
        machine->engines[0],
        &(struct gm_event){.kind = GM_EVENT_RESTARTED, .app = GM_NONE, .restarted.note = &restart});
}

/* All that the ledger of the daemon before has. */
static int find_all(struct gm_absents *absents, int fd, uint64_t since, char *why, size_t why_size)
{
    struct gm_machine *machine = absents->machine;
    struct gm_clients clients = {0};
    struct gm_client_record record;
    struct census census = {0};
    size_t bytes = 0;
    void *copy;
    int error = copy_of(fd, &copy, &bytes);
    if (error) { /* another start may do better: the keeper holds on */
        snprintf(why, why_size, "the ledger of programs cannot be read now: %s", strerror(-error));
        return error;
    }
    const char *wrong = copy ? gm_clients_open(&clients, copy, bytes, CLIENTS_MOST)
                             : "the ledger of programs cannot be read";
    for (uint32_t id = 0; id < machine->max_apps && error == 0; id++) {
        enum gm_ledger_outcome outcome = GM_LEDGER_BROKEN;
        if (!wrong)
            outcome =
                id < clients.max_clients ? gm_clients_read(&clients, id, &record) : GM_LEDGER_NONE;
        error = find_one(absents, id, outcome, &record, &census);
    }
    free(copy);
    if (error)
        snprintf(why, why_size, "a program of the daemon before cannot be taken over: %s",
                 strerror(-error));
    else
        tell(machine, &census, wrong, since);
    return error;
}

/* ---- REJOIN ---- */

static const struct gm_lost *find(void *arg, uint32_t app)
{
    const struct gm_absents *absents = arg;
    return app < absents->machine->max_apps && absents->of[app] ? &absents->of[app]->lost : NULL;
}

static void replace(void *arg, pid_t pid)
{
    struct gm_absents *absents = arg;
    for (uint32_t id = 0; id < absents->machine->max_apps; id++)
        if (absents->of[id] && absents->of[id]->lost.pid == pid)
            give_up(absents->of[id], has_ended(absents->of[id]->client->lease));
}

static bool is_known(uint32_t flags)
{
    const uint32_t both = GM_REJOIN_IS_OPEN | GM_REJOIN_IS_QUIET;
    return (flags & ~(both | GM_REJOIN_IS_PARKED)) == 0 && (flags & both) != both;
}

/* What it holds of each GPU that it uses. */
static void free_holds(struct gm_holdings *has[GM_GPUS_MAX])
{
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        gm_engine_free_holds(has[i]);
}

/* Whether all that it holds is on a GPU that it uses, and can be as it says. 0, and the caller has
 * it; or -errno. */
static int read_holds(const struct gm_client *client, const struct gm_rejoiner *who,
                      bool is_running, struct gm_holdings *has[GM_GPUS_MAX], char *why,
                      size_t why_size)
{
    int error = 0;
    for (uint32_t i = 0; i < who->n; i++)
        if (who->holds[i].gpu >= GM_GPUS_MAX || !client->engines[who->holds[i].gpu]) {
            snprintf(why, why_size, "it holds memory of a GPU that it does not use");
            return -EPROTO;
        }
    for (uint32_t i = 0; i < GM_GPUS_MAX && error == 0; i++)
        if (client->engines[i])
            error = gm_engine_read_holds(client->engines[i], client->id, who->holds, who->n,
                                         is_running, &has[i], why, why_size);
    if (error)
        free_holds(has);
    return error;
}

/* Its gate was opened, and it did not hear that its parked work goes on. */
static void go_on(struct gm_machine *machine, struct gm_client *client)
{
    const struct gm_msg_resume message = {.epoch = client->epoch};
    gm_client_go_on(client);
    machine->outlet.send(client->session, GM_MSG_RESUME, &message, NULL, 0, NULL, 0);
}

/* Make it an app again. -EPROTO: what it says cannot be. */
static int take_back(struct gm_absent *absent, const struct gm_rejoiner *who, char *why,
                     size_t why_size)
{
    struct gm_machine *machine = absent->all->machine;
    struct gm_client *client = absent->client;
    const uint32_t flags = who->body->flags;
    const bool is_parked = (flags & GM_REJOIN_IS_PARKED) != 0;
    const bool is_open = (flags & GM_REJOIN_IS_OPEN) != 0;
    /* Work may run: it ran on, or its CLOSE had no answer. */
    const bool is_running = is_open || (!is_parked && (flags & GM_REJOIN_IS_QUIET) == 0);
    if (!is_known(flags)) {
        snprintf(why, why_size, "it says of itself what cannot be");
        return -EPROTO;
    }
    struct gm_holdings *has[GM_GPUS_MAX] = {NULL};
    int error = read_holds(client, who, is_running, has, why, why_size);
    if (error)
        return error;
    if (!gm_client_return(client, who->session, who->body)) {
        snprintf(why, why_size, "it says of itself what cannot be");
        error = -EPROTO;
        goto done;
    }
    error = gm_machine_welcome(machine, client);
    if (error) {
        gm_client_lose(client, absent->lost.since);
        snprintf(why, why_size, "WELCOME cannot be sent: %s", strerror(-error));
        goto done;
    }
    end_absent(absent);
    if (is_open && is_parked)
        go_on(machine, client);
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        if (has[i])
            gm_engine_return(client->engines[i], client->id, has[i]);
    gm_machine_returned(machine, client);
done:
    free_holds(has);
    return error;
}

/* Its own library takes a refusal for good, and each check looks at all frames: one is enough. */
static int rejoin(void *arg, const struct gm_lost *lost, const struct gm_rejoiner *who, char *why,
                  size_t why_size)
{
    struct gm_absents *absents = arg;
    struct gm_absent *absent = absents->of[lost->app];
    const int error = take_back(absent, who, why, why_size);
    if (error == -EPROTO) {
        snprintf(absent->refusal, sizeof absent->refusal, "it came back once, and %s", why);
        absent->lost.refusal = absent->refusal;
        absent->client->is_cut = true;
    }
    return error;
}

/* ---- */

int gm_absents_open(struct gm_absents *absents, struct gm_machine *machine, uint64_t since,
                    char *why, size_t why_size)
{
    uint64_t unused;
    *absents = (struct gm_absents){
        .takeover = {.arg = absents, .find = find, .rejoin = rejoin, .replace = replace},
        .machine = machine,
        .of = calloc(machine->max_apps, sizeof *absents->of)};
    if (!absents->of) {
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    const int before = gm_kept_claim(machine->kept, GM_KEPT_CLIENTS, 0, 0, &unused);
    int error = before >= 0 ? find_all(absents, before, since, why, why_size) : 0;
    for (uint32_t i = 0; i < machine->n && error == 0; i++) {
        error = gm_engine_awaited(machine->engines[i]);
        if (error)
            snprintf(why, why_size, "what ended programs had on GPU %" PRIu32 " stays: %s", i,
                     strerror(-error));
    }
    if (error == 0) { /* it is whole: now it takes the place of the one before */
        gm_kept_mark(machine->kept, gm_clients_made(&machine->keep.clients), GM_CLIENTS_MAGIC);
        error = gm_kept_put(machine->kept, GM_KEPT_CLIENTS, 0, 0, 0, machine->keep.fd);
        if (error)
            snprintf(why, why_size, "the ledger of programs cannot be kept: %s", strerror(-error));
    }
    if (before >= 0)
        close(before);
    if (error)
        gm_absents_close(absents);
    return error;
}

uint32_t gm_absents_count(const struct gm_absents *absents)
{
    uint32_t n = 0;
    for (uint32_t id = 0; absents->of && id < absents->machine->max_apps; id++)
        n += absents->of[id] && !absents->of[id]->lost.refusal;
    return n;
}

void gm_absents_close(struct gm_absents *absents)
{
    for (uint32_t id = 0; absents->of && id < absents->machine->max_apps; id++)
        if (absents->of[id])
            end_absent(absents->of[id]);
    free(absents->of);
    absents->of = NULL;
}
