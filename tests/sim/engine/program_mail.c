/*
 * The connection of a program: messages arrive late, but in order, in both directions.
 */
#include "tests/sim/engine/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/windows.h"

/* While RESUME is on its way, it may be because the program has no work: then it is as good as
 * quiet. */
bool program_may_go_on(const struct program *p)
{
    bool is_told = false;
    for (const struct mail *mail = p->inbox; mail; mail = mail->next)
        is_told = is_told || mail->type == GM_MSG_RESUME;
    return !is_told && atomic_load(&p->stat->moving) == GM_MOVING_FREE;
}

static size_t body_size(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return sizeof(struct gm_msg_##name);
#include "common/wire.def"
#undef GM_MSG
    }
    fail("no such message: %d", (int)type);
}

static size_t entry_size(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return sizeof(struct entry);
#include "common/wire.def"
#undef GM_MSG
    }
    fail("no such message: %d", (int)type);
}

static const char *down_name(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return "program %lu gets " #NAME " (%lu entries)";
#include "common/wire.def"
#undef GM_MSG
    }
    return "?";
}

static const char *up_name(enum gm_msg_type type)
{
    switch (type) {
#define GM_MSG(number, NAME, name, direction, states, entry, max_entries, max_fds)                 \
    case GM_MSG_##NAME:                                                                            \
        return "program %lu says " #NAME " (%lu)";
#include "common/wire.def"
#undef GM_MSG
    }
    return "?";
}

static struct mail *new_mail(uint64_t life, enum gm_msg_type type, const void *body,
                             const void *entries, uint32_t count)
{
    const size_t bytes = count * entry_size(type);
    struct mail *mail = calloc(sizeof *mail + bytes + 8, 1); /* as in program_new_content() */
    require(mail, "no memory");
    mail->life = life;
    mail->step = machine.steps;
    mail->type = type;
    mail->count = count;
    memcpy(mail->body, body, body_size(type));
    if (bytes > 0)
        memcpy(mail->entries, entries, bytes);
    return mail;
}

uint64_t program_behind(uint64_t *last, uint64_t usual)
{
    const uint64_t at = machine.now + chance_time(usual);
    *last = at > *last ? at : *last;
    return *last;
}

void program_free_mail(struct mail *mail)
{
    for (int i = 0; i < mail->n_fds; i++)
        handle_unref(mail->fds[i]);
    free(mail);
}

static void on_up(void *arg, uint64_t number, uint64_t is_lie)
{
    struct mail *mail = arg;
    struct program *p = &machine.programs[number];
    if (p->session && p->session->life == mail->life && !machine.is_lost && machine.is_up &&
        p->link == mail->link) {
        const struct gm_wire_message message = {.type = (uint16_t)mail->type,
                                                .body = mail->body,
                                                .entries = mail->count ? mail->entries : NULL,
                                                .count = mail->count};
        trace(up_name(mail->type), p->number, *(uint64_t *)(void *)mail->body % 1000000, 0);
        gm_machine_message(&machine.daemon, p->app, &message);
        require(!is_lie || !p->is_connected, "program %u answered what it was not asked, and stays",
                p->number);
    }
    free(mail);
}

static void send_up(struct program *p, enum gm_msg_type type, const void *body, bool is_lie)
{
    if (!p->is_connected)
        return;
    struct mail *mail = new_mail(p->life, type, body, NULL, 0);
    mail->link = p->link;
    machine_at(program_behind(&p->up_at, 30 * GM_US), on_up, mail, p->number, is_lie);
}

void program_say(struct program *p, enum gm_msg_type type, const void *body)
{
    send_up(p, type, body, false);
}

void program_lie(struct program *p, enum gm_msg_type type, const void *body)
{
    send_up(p, type, body, true);
}

/* The next message arrives, whichever it was scheduled for. */
static void on_down(void *arg, uint64_t a, uint64_t b)
{
    struct program *p = arg;
    struct mail *mail = p->inbox;
    if (!mail)
        return; /* it was cut off */
    if (mail->life == p->life && p->is_connected && machine.now < program_silent_until(p)) {
        machine_at(program_silent_until(p), on_down, p, a, b);
        return;
    }
    p->inbox = mail->next;
    if (!p->inbox)
        p->inbox_end = NULL;
    if (p->life == mail->life && p->is_connected) {
        trace(down_name(mail->type), p->number, mail->count, 0);
        program_answer(p, mail);
    }
    program_free_mail(mail);
}

int program_send(struct gm_session *session, enum gm_msg_type type, const void *body,
                 const void *entries, uint32_t count, const int *fds, int n_fds)
{
    struct program *p = session->program;
    if (p->life != session->life || !p->is_connected)
        return p->session == session && p->is_connected ? 0 : -EPIPE; /* nobody reads it */
    struct mail *mail = new_mail(p->life, type, body, entries, count);
    if (type == GM_MSG_WELCOME) {
        p->ctl = mmap(NULL, sizeof *p->ctl, PROT_READ, MAP_SHARED, fds[0], 0);
        p->stat = mmap(NULL, GM_STAT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
        p->stat_fd = machine.has_deaths ? dup(fds[1]) : 0;
        require(p->ctl != MAP_FAILED && p->stat != MAP_FAILED, "no shared memory");
    } else {
        for (int i = 0; i < n_fds; i++) {
            mail->fds[i] = handle_of_fd(fds[i]);
            handle_ref(mail->fds[i]);
        }
        mail->n_fds = n_fds;
    }
    if (p->inbox)
        p->inbox_end->next = mail;
    else
        p->inbox = mail;
    p->inbox_end = mail;
    machine_at(program_behind(&p->down_at, 30 * GM_US), on_down, p, 0, 0);
    return 0;
}
