/* What the files of programs share (program*.c): see program.c. */
#ifndef GM_TESTS_SIM_PROGRAM_H
#define GM_TESTS_SIM_PROGRAM_H

#include "tests/sim/engine/machine.h"

struct mail {
    struct mail *next;
    uint64_t life, link, step;
    enum gm_msg_type type;
    uint32_t count;
    int n_fds, fds[GM_WIRE_FDS]; /* handles */
    _Alignas(8) char body[256];
    _Alignas(8) char entries[];
};

/* What few programs do: one of so many times. */
static inline bool is_odd(unsigned of)
{
    return !machine.is_calm && !machine.is_ending && draw(&machine.odd, of) == 0;
}

/* program_mail.c: a message to the daemon, if there is a connection; a lie must end the session. */
void program_say(struct program *p, enum gm_msg_type type, const void *body);
void program_lie(struct program *p, enum gm_msg_type type, const void *body);
/* When what follows all that is on its way arrives: *last moves on. */
uint64_t program_behind(uint64_t *last, uint64_t usual);
void program_free_mail(struct mail *mail);

/* program_memory.c: what is mapped, imported and asked for. */
struct mapping *program_at(struct program *p, uint64_t va);
bool program_is_in_use(const struct program *p, const struct mapping *at);
void program_map(struct program *p, struct mapping *at, int handle, uint32_t page);
void program_unmap(struct mapping *at);
/* Whole memory is mapped and unmapped: its first page stands for it. */
void program_note_mapped(struct program *p, int handle, bool is_shared);
uint32_t *program_import(struct program *p, uint32_t frame); /* NULL: it does not have it */
void program_add_import(struct program *p, uint32_t frame, int handle);
void program_drop_import(struct program *p, uint32_t frame);
struct content *program_new_content(uint32_t pages);
struct region *program_new_region(struct program *p, uint32_t gpu, uint32_t pages,
                                  enum region_state state); /* NULL: no addresses are left */
void program_end_region(struct program *p, struct region *region);
struct region *program_find_region(struct program *p, enum region_state state, uint64_t cookie);
struct region *program_any_region(struct program *p, enum region_state state); /* NULL: none */
void program_forget_memory(struct program *p);

/* program_answers.c: a message has arrived. */
void program_answer(struct program *p, const struct mail *mail);
uint64_t program_silent_until(const struct program *p); /* when it answers again */

/* program_asks.c: what it asks the daemon for. */
uint32_t program_pages(const struct program *p, uint32_t gpu);
uint32_t program_bare_gpu(const struct program *p); /* it uses, and has none on it; GPUS: none */
void program_ask_for(struct program *p, uint32_t gpu, uint32_t pages);
void program_ask_for_memory(struct program *p, uint32_t gpu);
void program_change_memory(struct program *p);

/* program_work.c: it goes on living, about `usual` from now. */
void program_wake(struct program *p, uint64_t usual);

/* program_team.c */
void program_leave_team(struct program *p);
void program_begin_team(struct program *p);

/* program.c: its process ends after `time`, if that is not too long. */
void program_end_process(struct program *p, uint64_t time, bool executes);

#endif
