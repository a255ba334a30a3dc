/*
 * `gpumuxd --drain`: have the daemon at a socket give all programs their memory back and end, and
 * wait for that. The other side of GIVE_BACK (session.c). Called by main; calls common/.
 */
#ifndef GM_DAEMON_SERVICE_GIVE_BACK_H
#define GM_DAEMON_SERVICE_GIVE_BACK_H

enum gm_back {
    GM_BACK_WHOLE = 0,  /* every program has all of its memory, or there was none */
    GM_BACK_FAILED = 1, /* it was refused, or the daemon does not answer or end */
    GM_BACK_LOST = 2,   /* the daemon has ended, and some programs have lost memory */
    GM_BACK_DOWN = 3,   /* no daemon runs there */
};

/* Says on standard output how far it is and what came of it, on standard error what is wrong.
 * Returns an enum gm_back, the exit code. */
int gm_have_given_back(const char *socket);

#endif
