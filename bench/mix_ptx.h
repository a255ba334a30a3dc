/* The kernels of mix.cu as PTX text, NUL-terminated; the build makes mix_ptx.c from mix.ptx. */
#ifndef GM_BENCH_MIX_PTX_H
#define GM_BENCH_MIX_PTX_H

extern const char gm_mix_ptx[];

#endif
