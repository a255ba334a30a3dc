/*
 * Work in a process of its own, with a time limit: a driver that hangs never comes back from a
 * call, and a thread inside one would keep mux-ctl from ending. The process starts with the first
 * work, and stays for the next; it goes with mux-ctl, and has none of its files. One that is late
 * is killed and left behind, and no other one starts before it has ended.
 *
 * Called by driver.c. One thread.
 */
#ifndef GM_DAEMON_CTL_APART_H
#define GM_DAEMON_CTL_APART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mux_apart {
    void (*work)(unsigned char what, void *memory);
    size_t size;  /* of the memory that both have */
    void *memory; /* NULL: none yet */
    pid_t pid;    /* 0: there is no process */
    int fd;       /* to it, while it is not late */
    bool is_late;
    bool has_ended; /* the last one that did not do its work: it had ended, or there was none */
};

/* The memory that both have, all zero at first; NULL: there is none left. Its place is another one
 * after a process was late. */
void *mux_apart_memory(struct mux_apart *apart);

/* Have `work` called with `what` there, and wait for its end. False: it was not done within
 * `limit` ns, or cannot be. */
bool mux_apart_do(struct mux_apart *apart, unsigned char what, uint64_t limit);

#endif
