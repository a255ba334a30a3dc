/*
 * What the benches in C share: the head of a JSON result, which says on what machine, when, from
 * what commit and by what command it was measured (bench/results/README.md), and their options.
 */
#ifndef GM_BENCH_REPORT_H
#define GM_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/samples.h"

/* "name": {"median": ..., "p10": ..., "p90": ...} without anything behind it. */
void gm_report_spread(FILE *out, const char *name, struct gm_spread spread);

/*
 * The machine as a JSON object: GPU and driver (null without one), processor, memory, kernel,
 * distribution. No name or address of the machine is in it.
 */
void gm_report_machine(FILE *out, const char *gpu, int cuda_version);

/* An option with a value, or a flag. A number or a size is within `least` and `most`. */
struct gm_option {
    const char *name; /* "--rounds" */
    enum { GM_OPTION_NUMBER, GM_OPTION_SIZE, GM_OPTION_TEXT, GM_OPTION_FLAG } kind;
    void *value; /* uint64_t, uint64_t, const char *, bool: left alone if not given */
    uint64_t least, most;
};

/* Take all options behind argv[0]. False: there is one that is not in the table, or has no such
 * value. */
bool gm_options_take(int argc, char **argv, const struct gm_option *options, size_t count);

/* Open FILE ("-": standard output) and write the opening brace and the members that every result
 * has, each with a comma. NULL, with a line on stderr, if it cannot be written. */
FILE *gm_report_open(const char *file, const char *bench, int argc, char **argv, const char *gpu,
                     int cuda_version);

/* Write the closing brace. 0, or -1 with a line on stderr if not everything was written. */
int gm_report_close(FILE *out, const char *file);

#endif
