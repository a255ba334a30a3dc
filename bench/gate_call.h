/* The calls that bench/gate measures. They live in a shared library, as the real ones do. */
#ifndef GM_BENCH_GATE_CALL_H
#define GM_BENCH_GATE_CALL_H

/* An empty function with a launch's number of parameters, reached through a pointer in memory. */
int gm_bench_bare(void *function, unsigned x, unsigned y, unsigned z, void *stream, void **params);

/* The same between gm_gate_enter and gm_gate_leave: what a SUBMIT wrapper of shim/entry/wrap.c is.
 */
int gm_bench_gated(void *function, unsigned x, unsigned y, unsigned z, void *stream, void **params);

/* An empty ioctl, and the same behind the shim's: a request that is not the driver's, and a control
 * of the driver, of a group that is not known. The arguments mean nothing. */
int gm_bench_ioctl_bare(void *function, unsigned x, unsigned y, unsigned z, void *stream,
                        void **params);
int gm_bench_ioctl_other(void *function, unsigned x, unsigned y, unsigned z, void *stream,
                         void **params);
int gm_bench_ioctl_driver(void *function, unsigned x, unsigned y, unsigned z, void *stream,
                          void **params);

/* Attach the gate to an open page. False: not possible, or without membarrier (`is_fenced`). */
_Bool gm_bench_attach(_Bool is_fenced);

#endif
