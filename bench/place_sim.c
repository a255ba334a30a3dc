/*
 * place_sim FILE [GPUS]...: the mixes of bench/mixes.py on other numbers of GPUs (2, 4 and 8), in
 * simulated time (bench/place_model.h), by daemon/core/bind. FILE is a result of bench/mixes.py: it
 * has what each program takes alone, its kernels, the card and the mixes.
 *
 * place_sim --cells FILE: how many seconds each cell takes on as many GPUs as FILE has, as lines
 * "CELL SECONDS", for bench/mixes.py itself.
 *
 * The table says how often as fast as SA all programs end, for CASE's policy (case), for gpumux
 * with
 * --admit fit as it is, which knows each program's memory (gpumux), and for gpumux that knew the
 * kernels, too, as HuntKTm's Algorithm 1 wants (kernels); in time slices, and sharing the
 * multiprocessors. Where FILE has measured a cell on as many GPUs, its figure follows in brackets.
 *
 * Exit codes: 0 done, 1 FILE cannot be used, 2 wrong use.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "bench/place_model.h"
#include "common/size.h"

#define FILE_MAX (64l << 20)
#define KINDS_MAX 64
#define COLUMNS 6

struct kind {
    const char *name; /* of the file's text */
    struct gm_place_program program;
};

struct input {
    cJSON *file;
    struct gm_place_machine machine; /* as the file has it */
    struct kind kind[KINDS_MAX];
    uint32_t n_kinds;
};

static const struct column {
    const char *name, *side; /* of bench/mixes.py, where there is one */
    enum gm_place_policy policy;
    bool is_shared;
} columns[COLUMNS] = {
    {"case", "case", GM_PLACE_CASE, false},
    {"gpumux", "fit", GM_PLACE_UNKNOWN, false},
    {"kernels", NULL, GM_PLACE_KERNELS, false},
    {"case, shared", "case-mps", GM_PLACE_CASE, true},
    {"gpumux, shared", "fit-mps", GM_PLACE_UNKNOWN, true},
    {"kernels, shared", NULL, GM_PLACE_KERNELS, true},
};

/* ---- the file ---- */

_Noreturn static void fail(const char *file, const char *why)
{
    fprintf(stderr, "place_sim: %s: %s\n", file, why);
    exit(1);
}

static char *read_text(const char *file)
{
    FILE *in = fopen(file, "re");
    long size = -1;
    if (in != NULL && fseek(in, 0, SEEK_END) == 0)
        size = ftell(in);
    if (size < 0)
        fail(file, strerror(errno));
    char *text = size <= FILE_MAX ? malloc((size_t)size + 1) : NULL;
    if (text == NULL)
        fail(file, "it is too large");
    rewind(in);
    text[fread(text, 1, (size_t)size, in)] = '\0';
    fclose(in);
    return text;
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* A number from 0 to `most` that the file must have. */
static uint64_t number(const char *file, const cJSON *object, const char *key, double most)
{
    const cJSON *item = member(object, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= most))
        fail(file, key);
    return (uint64_t)item->valuedouble;
}

static uint64_t microseconds(const char *file, const cJSON *object, const char *key)
{
    const cJSON *item = member(object, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 1e7))
        fail(file, key);
    return (uint64_t)(item->valuedouble * 1000);
}

static void read_kind(const char *file, const cJSON *profile, struct kind *kind)
{
    const cJSON *name = member(profile, "kind");
    struct gm_place_program *program = &kind->program;
    if (!cJSON_IsString(name))
        fail(file, "a profile without its kind");
    kind->name = name->valuestring;
    program->start_us = microseconds(file, profile, "init_ms") +
                        microseconds(file, profile, "open_ms") +
                        microseconds(file, profile, "fill_ms");
    program->work_us = microseconds(file, profile, "work_ms");
    const uint64_t all = microseconds(file, profile, "alone_ms");
    const uint64_t before = program->start_us + program->work_us;
    program->end_us = all > before ? all - before : 0;
    program->needs.need = number(file, profile, "bytes", 1e15);
    program->needs.n_kernels = (uint32_t)number(file, profile, "streams", GM_BIND_KERNELS);
    for (uint32_t i = 0; i < program->needs.n_kernels; i++)
        program->needs.kernel[i] =
            (struct gm_bind_kernel){.blocks = number(file, profile, "blocks", INT32_MAX),
                                    .threads = (uint32_t)number(file, profile, "threads", 1024),
                                    .registers = (uint32_t)number(file, profile, "registers", 255),
                                    .shared = (uint32_t)number(file, profile, "shared", 1 << 20)};
}

static void read_input(const char *file, struct input *input)
{
    char *text = read_text(file);
    const cJSON *one;
    input->file = cJSON_Parse(text);
    free(text);
    const cJSON *gpu = cJSON_GetArrayItem(member(input->file, "gpus"), 0);
    if (gpu == NULL || !cJSON_IsObject(member(input->file, "mixes")))
        fail(file, "this is no result of bench/mixes.py, or one of an older");
    input->machine = (struct gm_place_machine){
        .n_gpus = (uint32_t)number(file, input->file, "n_gpus", GM_PLACE_GPUS),
        .card = number(file, input->file, "card", 1e15),
        .crowd = GM_PLACE_CROWD,
        .space_us = GM_PLACE_SPACE_US,
        .chip = {.multiprocessors = (uint32_t)number(file, gpu, "multiprocessors", 1e6),
                 .blocks = (uint32_t)number(file, gpu, "blocks", 1e6),
                 .threads = (uint32_t)number(file, gpu, "threads", 1e6),
                 .registers = (uint32_t)number(file, gpu, "registers", 1e9),
                 .shared = (uint32_t)number(file, gpu, "shared", 1e9)}};
    if (input->machine.chip.multiprocessors == 0)
        fail(file, "multiprocessors");
    cJSON_ArrayForEach(one, member(input->file, "profiles"))
    {
        if (input->n_kinds == KINDS_MAX)
            fail(file, "it has too many profiles");
        read_kind(file, one, &input->kind[input->n_kinds++]);
    }
}

/* The programs of a mix. Returns how many. */
static uint32_t read_mix(const char *file, const struct input *input, const cJSON *mix,
                         struct gm_place_program *programs)
{
    uint32_t n = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, mix)
    {
        uint32_t k = 0;
        while (k < input->n_kinds && cJSON_IsString(one) &&
               strcmp(input->kind[k].name, one->valuestring) != 0)
            k++;
        if (!cJSON_IsString(one) || k == input->n_kinds || n == GM_PLACE_PROGRAMS)
            fail(file, "a mix has too many programs, or one without a profile");
        programs[n++] = input->kind[k].program;
    }
    if (n == 0)
        fail(file, "a mix without programs");
    return n;
}

/* What was measured: how long all took; 0: nobody did. */
static double measured(const struct input *input, const char *mix, const char *side)
{
    static const char *const lists[] = {"known", "rows"};
    char cell[128];
    snprintf(cell, sizeof cell, "%s-%s", mix, side ? side : "");
    for (size_t i = 0; i < 2; i++) {
        const cJSON *row;
        cJSON_ArrayForEach(row, member(input->file, lists[i]))
        {
            const cJSON *name = member(row, "cell"), *total = member(row, "total_s");
            if (cJSON_IsString(name) && cJSON_IsNumber(total) &&
                strcmp(name->valuestring, cell) == 0)
                return total->valuedouble;
        }
    }
    return 0;
}

/* ---- the table ---- */

static double seconds(uint64_t us)
{
    return (double)us / 1e6;
}

static void show(const char *file, const struct input *input, uint32_t n_gpus)
{
    double sums[COLUMNS] = {0};
    uint32_t n_mixes = 0;
    const bool is_same = n_gpus == input->machine.n_gpus;
    const cJSON *mix;
    printf("\n%u GPUs     SA, s (idle)   ", n_gpus);
    for (int c = 0; c < COLUMNS; c++)
        printf("%17s", columns[c].name);
    printf("\n");
    cJSON_ArrayForEach(mix, member(input->file, "mixes"))
    {
        struct gm_place_program programs[GM_PLACE_PROGRAMS];
        struct gm_place_machine machine = input->machine;
        struct gm_place_result alone, result;
        const uint32_t n = read_mix(file, input, mix, programs);
        machine.n_gpus = n_gpus;
        if (!gm_place_run(&machine, GM_PLACE_SA, programs, n, &alone) || alone.total_us == 0)
            fail(file, "a program that is larger than the card");
        const double idle = 1 - (double)alone.busy_us / (double)alone.total_us / n_gpus;
        const double measured_sa = is_same ? measured(input, mix->string, "sa") : 0;
        printf("%-6s%10.1f (%2.0f %%)     ", mix->string, seconds(alone.total_us), idle * 100);
        for (int c = 0; c < COLUMNS; c++) {
            char text[32], beside[16] = "";
            machine.is_shared = columns[c].is_shared;
            gm_place_run(&machine, columns[c].policy, programs, n, &result);
            const double times = (double)alone.total_us / (double)result.total_us;
            const double was = measured_sa > 0 ? measured(input, mix->string, columns[c].side) : 0;
            if (was > 0)
                snprintf(beside, sizeof beside, " (%.2f)", measured_sa / was);
            snprintf(text, sizeof text, "%.2f%s", times, beside);
            printf("%17s", text);
            sums[c] += times;
        }
        printf("\n");
        n_mixes++;
    }
    printf("mean                       ");
    for (int c = 0; c < COLUMNS; c++)
        printf("%17.2f", sums[c] / (n_mixes > 0 ? n_mixes : 1));
    printf("\n");
}

/* A cell takes so long in the model. */
static void forecast(const char *file, const struct input *input)
{
    struct gm_place_program programs[GM_PLACE_PROGRAMS];
    struct gm_place_machine machine = input->machine;
    struct gm_place_result result;
    const cJSON *mix;
    cJSON_ArrayForEach(mix, member(input->file, "mixes"))
    {
        const uint32_t n = read_mix(file, input, mix, programs);
        if (!gm_place_run(&machine, GM_PLACE_SA, programs, n, &result))
            fail(file, "a program that is larger than the card");
        printf("%s-sa %.3f\n", mix->string, seconds(result.total_us));
        for (int c = 0; c < COLUMNS; c++) {
            machine.is_shared = columns[c].is_shared;
            if (columns[c].side && gm_place_run(&machine, columns[c].policy, programs, n, &result))
                printf("%s-%s %.3f\n", mix->string, columns[c].side, seconds(result.total_us));
        }
        machine.is_shared = false;
    }
}

int main(int argc, char **argv)
{
    static struct input input;
    static char *usual[] = {"2", "4", "8"};
    char **counts = argc > 2 ? argv + 2 : usual;
    if (argc == 3 && strcmp(argv[1], "--cells") == 0) {
        read_input(argv[2], &input);
        forecast(argv[2], &input);
        cJSON_Delete(input.file);
        return 0;
    }
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: place_sim FILE [GPUS]...\n       place_sim --cells FILE\n");
        return 2;
    }
    read_input(argv[1], &input);
    printf("times SA's rate, simulated; in the paper CASE has 2.02, and HuntKTm 2.47 and 2.69\n");
    for (int i = 0; i < (argc > 2 ? argc - 2 : 3); i++) {
        uint64_t n;
        if (gm_parse_number(counts[i], &n) != 0 || n == 0 || n > GM_PLACE_GPUS) {
            fprintf(stderr, "place_sim: %s is no number of GPUs\n", counts[i]);
            return 2;
        }
        show(argv[1], &input, (uint32_t)n);
    }
    cJSON_Delete(input.file);
    return 0;
}
