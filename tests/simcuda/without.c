/*
 * SIMCUDA_WITHOUT: a driver that lacks some calls. The names are taken off this library's own table
 * of dynamic symbols when it is loaded, so that dlsym does not find them; cuGetProcAddress asks
 * sim_is_without(). Who was linked with the name and bound it before keeps it.
 */
#include "tests/simcuda/sim.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An entry is a symbol, or an API: then it means all of its forms. */
static bool names(const char *entry, size_t length, const char *symbol)
{
    if (strncmp(symbol, entry, length) != 0)
        return false;
    const char *rest = symbol + length;
    if (strncmp(rest, "_v", 2) == 0 && rest[2] >= '1' && rest[2] <= '9')
        rest += 3;
    return *rest == '\0' || strcmp(rest, "_ptds") == 0 || strcmp(rest, "_ptsz") == 0;
}

bool sim_is_without(const char *symbol)
{
    const char *text = getenv("SIMCUDA_WITHOUT");
    while (text != NULL && *text != '\0') {
        const size_t length = strcspn(text, ",");
        if (length > 0 && names(text, length, symbol))
            return true;
        text += length + (text[length] == ',');
    }
    return false;
}

static const void *at(uintptr_t base, uintptr_t value)
{
    return (const void *)(value < base ? base + value : value);
}

static void take_off(const ElfW(Sym) * table, const char *strings)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = (uintptr_t)table & ~(page - 1);
    const uintptr_t to = ((uintptr_t)strings + page - 1) & ~(page - 1);
    if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) != 0)
        return;
    /* The strings follow the symbols, as every linker puts them. */
    for (ElfW(Sym) *s = (ElfW(Sym) *)(uintptr_t)table; (const char *)(s + 1) <= strings; s++) {
        if (s->st_shndx != SHN_UNDEF && sim_is_without(strings + s->st_name)) {
            s->st_shndx = SHN_UNDEF;
            s->st_value = 0;
        }
    }
    mprotect((void *)from, to - from, PROT_READ);
}

static int look(struct dl_phdr_info *info, size_t size, void *here)
{
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Sym) *table = NULL;
    const char *strings = NULL;
    bool is_this = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD)
            is_this =
                is_this || ((uintptr_t)here >= start && (uintptr_t)here < start + header->p_memsz);
        if (header->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)start;
    }
    if (!is_this)
        return 0;
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB)
            table = at(info->dlpi_addr, dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_STRTAB)
            strings = at(info->dlpi_addr, dynamic->d_un.d_ptr);
    }
    if (table != NULL && (const char *)table < strings)
        take_off(table, strings);
    return 1;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("SIMCUDA_WITHOUT");
    if (text != NULL && *text != '\0')
        dl_iterate_phdr(look, (void *)(uintptr_t)begin);
}
