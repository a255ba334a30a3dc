/*
 * Profiles: files with the templates of kernels (templates.h). Text, a line for each fact:
 *
 *   gpumux-profile 1
 *   kernel HASH REGISTERS LAUNCHES MISSED EXCESS UNNAMED NAME
 *   touch OFFSET FROM BYTES STRIDE COUNT
 *   none OFFSET
 *   other OFFSET
 *   end KERNELS
 *
 * A kernel's lines follow its own. `touch` is a template; `none`: the kernel gets an address there
 * and does not touch what lies behind it; `other`: it does, but no template says how much. HASH is
 * gm_kernel_hash, in 16 hexadecimal digits. REGISTERS of a thread, 0: not known. LAUNCHES that were
 * seen. MISSED and EXCESS tell how good the templates are: the bytes that launches touched beside
 * what was predicted, and the predicted bytes that they did not touch, in parts per 10,000 of what
 * they touched; 65535: not known. UNNAMED: the most bytes that a launch touched though no argument
 * leads there. NAME is the mangled one, cut at GM_PROFILE_NAME bytes. An amount is CONSTANT or
 * CONSTANT+NUMERATOR/DENOMINATOR*FACTOR..., with the factors gx gy gz bx by bz, w8 (the word of 4
 * bytes at offset 8) and d8 (8 bytes).
 *
 * Nothing in such a file is trusted: a file that has one wrong line, another version or no end is
 * ignored as a whole. What it says costs speed at most.
 *
 * Who reads: the shim and mux-ctl. Calls the C library only.
 */
#ifndef GM_COMMON_PROFILE_H
#define GM_COMMON_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/templates.h"

#define GM_PROFILE_VERSION 1u
#define GM_PROFILE_SUFFIX ".profile"
#define GM_PROFILE_BYTES (16u << 20) /* of a file */
#define GM_PROFILE_KERNELS 65536u    /* of a file */
#define GM_PROFILE_ARGUMENTS 64u     /* touch, none and other lines of a kernel */
#define GM_PROFILE_NAME 2047u
#define GM_PROFILE_UNKNOWN UINT16_MAX

enum gm_profile_how { GM_PROFILE_TOUCH, GM_PROFILE_NONE, GM_PROFILE_OTHER };

/* An argument that is an address. */
struct gm_profile_argument {
    enum gm_profile_how how;
    struct gm_template template; /* NONE, OTHER: its offset alone */
};

struct gm_profile_kernel {
    uint64_t hash;
    uint64_t launches, unnamed;
    uint32_t registers;
    uint16_t missed, excess;
    uint32_t n;
    struct gm_profile_argument *arguments; /* ascending by offset */
    char *name;
};

struct gm_profile {
    uint32_t n;
    struct gm_profile_kernel *kernels; /* ascending by hash, each hash once */
};

/* What the driver says of a kernel, and what its hash is made of. Each costs one cheap call, once
 * for a kernel. Not its code: a program hands that over in files of many kernels, compressed, of
 * which the driver chooses one and may compile it anew. What changes in the code shows in the
 * registers only, which a profile keeps beside; and that is enough, as a wrong template costs speed
 * and no result. */
struct gm_kernel_facts {
    const char *name;
    uint32_t binary_version; /* of its code */
    uint32_t n;              /* parameters */
    const struct gm_kernel_parameter {
        uint32_t offset, bytes;
    } * parameters;
};

/* FNV-1a of them, never 0. */
uint64_t gm_kernel_hash(const struct gm_kernel_facts *facts);

/* Parse `bytes` at `text`. False, with one line in `why`, and *profile is empty: it is no profile
 * of this version. gm_profile_free frees what it got. */
bool gm_profile_parse(const char *text, size_t bytes, struct gm_profile *profile, char *why,
                      size_t why_size);

/* The same for a file. It must be a plain file of at most GM_PROFILE_BYTES, which nobody but its
 * owner may write, and the owner root or this user. */
bool gm_profile_read(const char *path, struct gm_profile *profile, char *why, size_t why_size);

/* NULL: there is none. */
const struct gm_profile_kernel *gm_profile_find(const struct gm_profile *profile, uint64_t hash);

/* Write what gm_profile_parse reads. False: the file could not be written; errno says why. */
bool gm_profile_write(FILE *file, const struct gm_profile *profile);

/* Frees all that it points to; it is empty then. */
void gm_profile_free(struct gm_profile *profile);
void gm_profile_free_kernel(struct gm_profile_kernel *kernel);

/* An amount as the file has it. Returns `text`, of GM_AMOUNT_TEXT bytes. */
#define GM_AMOUNT_TEXT 96u
char *gm_amount_format(const struct gm_amount *amount, char *text);

/* The user's folder of profiles, or false: there is none. `getenv_like` is getenv, or
 * secure_getenv in a library. */
bool gm_profile_folder(char *(*getenv_like)(const char *), char *path, size_t size);

/* The system's folder, where this build is installed: share/gpumux/profiles. */
const char *gm_profile_system(void);

#endif
