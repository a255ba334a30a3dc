/*
 * The entry of a C library function that the shim exports. It jumps to the C library's function, so
 * that this sees the caller's return address, unless the shim has to decide. Assembly, because no C
 * compiler guarantees a jump. Used by dlsym.c and dlopen.c.
 *
 * GM_FRONT(name, look, rest)
 *
 *   look  checks the arguments, keeps them, and falls through or jumps:
 *   1     to gm_NAME_real; if that is NULL,
 *   2     to the address that gm_NAME_pick(first argument, second argument) returns
 *   rest  more code of `look`; it may use other labels
 */
#ifndef GM_SHIM_FRONT_H
#define GM_SHIM_FRONT_H

#if defined(__x86_64__)

#define GM_FRONT_TYPE "@function"
#define GM_FRONT_LANDING "    endbr64\n"
#define GM_FRONT_JUMP(name)                                                                        \
    "1:  movq gm_" name "_real(%rip), %rax\n"                                                      \
    "    testq %rax, %rax\n"                                                                       \
    "    je 2f\n"                                                                                  \
    "    jmp *%rax\n"                                                                              \
    "2:  pushq %rdi\n"                                                                             \
    "    .cfi_adjust_cfa_offset 8\n"                                                               \
    "    pushq %rsi\n"                                                                             \
    "    .cfi_adjust_cfa_offset 8\n"                                                               \
    "    subq $8, %rsp\n" /* the stack is 16-aligned at a call */                                  \
    "    .cfi_adjust_cfa_offset 8\n"                                                               \
    "    call gm_" name "_pick\n"                                                                  \
    "    addq $8, %rsp\n"                                                                          \
    "    .cfi_adjust_cfa_offset -8\n"                                                              \
    "    popq %rsi\n"                                                                              \
    "    .cfi_adjust_cfa_offset -8\n"                                                              \
    "    popq %rdi\n"                                                                              \
    "    .cfi_adjust_cfa_offset -8\n"                                                              \
    "    jmp *%rax\n"

#elif defined(__aarch64__)

#define GM_FRONT_TYPE "%function"
#define GM_FRONT_LANDING "    hint #34\n" /* bti c */
#define GM_FRONT_JUMP(name)                                                                        \
    "1:  adrp x16, gm_" name "_real\n"                                                             \
    "    ldr x16, [x16, #:lo12:gm_" name "_real]\n"                                                \
    "    cbz x16, 2f\n"                                                                            \
    "    br x16\n"                                                                                 \
    "2:  stp x29, x30, [sp, #-32]!\n"                                                              \
    "    .cfi_def_cfa_offset 32\n"                                                                 \
    "    .cfi_offset x29, -32\n"                                                                   \
    "    .cfi_offset x30, -24\n"                                                                   \
    "    stp x0, x1, [sp, #16]\n"                                                                  \
    "    mov x29, sp\n"                                                                            \
    "    bl gm_" name "_pick\n"                                                                    \
    "    mov x16, x0\n"                                                                            \
    "    ldp x0, x1, [sp, #16]\n"                                                                  \
    "    ldp x29, x30, [sp], #32\n"                                                                \
    "    .cfi_restore x29\n"                                                                       \
    "    .cfi_restore x30\n"                                                                       \
    "    .cfi_def_cfa_offset 0\n"                                                                  \
    "    br x16\n"

#else
#error "write the front for this architecture"
#endif

#define GM_FRONT(name, look, rest)                                                                 \
    __asm__(".text\n"                                                                              \
            ".p2align 4\n"                                                                         \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", " GM_FRONT_TYPE "\n" #name ":\n"                                     \
            "    .cfi_startproc\n" GM_FRONT_LANDING look GM_FRONT_JUMP(#name) rest                 \
            "    .cfi_endproc\n"                                                                   \
            ".size " #name ", . - " #name "\n")

#endif
