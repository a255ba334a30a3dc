/*
 * The file of records (daemon/profile/records.h has its form): one for each process, in the folder
 * that GPUMUX_PROFILE_RECORDS names, made with the first line. A program that replaces itself
 * (exec) has another one for each image. All that was written is in the file when a call returns,
 * so it stays however the program ends, and no forked child writes it again. Any thread; a lock of
 * its own, held across no call but those of the C library.
 */
#ifndef GM_PROFILER_WRITER_H
#define GM_PROFILER_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_pages {
    uint64_t from, to; /* numbers of pages, without `to` */
};

struct gm_written_launch {
    uint64_t hash; /* of the kernel */
    uint32_t registers;
    const char *name;
    uint32_t dimension[6];
    uint32_t bytes; /* of the arguments */
    const unsigned char *arguments;
    uint32_t n; /* pages that were touched: ascending, apart from each other */
    const struct gm_pages *pages;
};

void gm_writer_alloc(uint64_t from, uint64_t bytes);
void gm_writer_free(uint64_t from);

/* The kernel's own line comes with its first launch. */
void gm_writer_launch(const struct gm_written_launch *launch);

/* Sort and join in place; returns how many are left. */
uint32_t gm_writer_join(struct gm_pages *pages, uint32_t n);

#endif
