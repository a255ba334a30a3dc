/* What single apps are promised, in fixed settings. */
#ifndef GM_TESTS_SIM_PROMISES_H
#define GM_TESTS_SIM_PROMISES_H

/* Checks all of them; prints a line for each. What is not so ends the program. */
void promises_run(void);

#endif
