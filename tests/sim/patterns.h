/* The three ways in which people share a GPU (Nixie), under several policies. */
#ifndef GM_TESTS_SIM_PATTERNS_H
#define GM_TESTS_SIM_PATTERNS_H

/* Runs them, prints a table and checks its order. What is not so ends the program. */
void patterns_run(void);

#endif
