/*
 * The section .nv.info has a list of attributes: a byte for the form, one for the kind, then two
 * bytes: a value, or the size of what follows. The one of registers has two words: the index of the
 * function's symbol, and their number.
 */
#include "shim/profiler/cubin.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

#define FORM_SIZED 4 /* the last two bytes are the size of what follows */
#define KIND_REGISTERS 0x2f

struct elf {
    const unsigned char *at;
    size_t bytes;
    const Elf64_Shdr *sections;
    uint32_t n;
};

static bool is_inside(const struct elf *elf, uint64_t from, uint64_t bytes)
{
    return from <= elf->bytes && bytes <= elf->bytes - from;
}

static bool open_elf(struct elf *elf)
{
    const Elf64_Ehdr *head = (const void *)elf->at;
    if (!is_inside(elf, 0, sizeof *head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_shentsize != sizeof(Elf64_Shdr) ||
        head->e_shoff % 8 != 0 ||
        !is_inside(elf, head->e_shoff, (uint64_t)head->e_shnum * sizeof(Elf64_Shdr)))
        return false;
    elf->sections = (const void *)(elf->at + head->e_shoff);
    elf->n = head->e_shnum;
    return head->e_shstrndx < elf->n;
}

/* The string at `offset` of a section, or NULL. */
static const char *string_at(const struct elf *elf, uint32_t section, uint64_t offset)
{
    if (section >= elf->n ||
        !is_inside(elf, elf->sections[section].sh_offset, elf->sections[section].sh_size) ||
        offset >= elf->sections[section].sh_size)
        return NULL;
    const char *string = (const char *)elf->at + elf->sections[section].sh_offset + offset;
    return memchr(string, '\0', elf->sections[section].sh_size - offset) != NULL ? string : NULL;
}

static const char *symbol_name(const struct elf *elf, const Elf64_Shdr *symbols, uint64_t index)
{
    Elf64_Sym symbol;
    if (!is_inside(elf, symbols->sh_offset, symbols->sh_size) ||
        index >= symbols->sh_size / sizeof symbol)
        return NULL;
    memcpy(&symbol, elf->at + symbols->sh_offset + index * sizeof symbol, sizeof symbol);
    return string_at(elf, symbols->sh_link, symbol.st_name);
}

void gm_cubin_read(const void *code, size_t bytes,
                   void (*found)(void *arg, const char *name, uint32_t registers), void *arg)
{
    struct elf elf = {.at = code, .bytes = bytes};
    const Elf64_Shdr *info = NULL, *symbols = NULL;
    if (code == NULL || (uintptr_t)code % 8 != 0 || !open_elf(&elf))
        return;
    const uint32_t names = ((const Elf64_Ehdr *)code)->e_shstrndx;
    for (uint32_t i = 0; i < elf.n; i++) {
        const char *name = string_at(&elf, names, elf.sections[i].sh_name);
        if (name != NULL && strcmp(name, ".nv.info") == 0)
            info = &elf.sections[i];
        if (elf.sections[i].sh_type == SHT_SYMTAB)
            symbols = &elf.sections[i];
    }
    if (info == NULL || symbols == NULL || !is_inside(&elf, info->sh_offset, info->sh_size))
        return;
    const unsigned char *at = elf.at + info->sh_offset;
    for (uint64_t left = info->sh_size; left >= 4;) {
        const uint32_t size = at[0] == FORM_SIZED ? at[2] | (uint32_t)at[3] << 8 : 0;
        if (size > left - 4)
            return;
        if (at[0] == FORM_SIZED && at[1] == KIND_REGISTERS && size == 8) {
            uint32_t word[2];
            memcpy(word, at + 4, sizeof word);
            const char *name = symbol_name(&elf, symbols, word[0]);
            if (name != NULL && name[0] != '\0')
                found(arg, name, word[1]);
        }
        at += 4 + size;
        left -= 4 + size;
    }
}
