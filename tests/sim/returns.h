/* Who comes back from a rest: what it is promised, and what nobody gains by resting. */
#ifndef GM_TESTS_SIM_RETURNS_H
#define GM_TESTS_SIM_RETURNS_H

/* Checks all of it; prints a table. What is not so ends the program. */
void returns_run(void);

#endif
