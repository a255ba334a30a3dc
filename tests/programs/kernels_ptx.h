/* The kernels of kernels.cu as PTX text, NUL-terminated; the build makes kernels_ptx.c from kernels.ptx. */
#ifndef GM_TESTS_KERNELS_PTX_H
#define GM_TESTS_KERNELS_PTX_H

extern const char gm_kernels_ptx[];

#endif
