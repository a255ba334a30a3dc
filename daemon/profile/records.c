/* Records: see records.h. The allocations that live at a line are a sorted list. */
#include "daemon/profile/records.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/profile.h"

#define KERNELS_MOST GM_PROFILE_KERNELS
#define LAUNCHES_MOST (1u << 24)
#define ADDRESS_MOST (1ull << 47)

struct reader {
    struct gm_records *records;
    uint32_t *kernels; /* of this file's index: that of all records */
    uint32_t n_kernels;
    struct gm_span *allocs; /* ascending */
    size_t n_allocs, room_allocs;
    size_t room_launches, room_runs;
    struct gm_launch *launch; /* the last one; NULL: none yet */
    uint32_t line;
    char *why;
    size_t why_size;
};

static bool fail(struct reader *reader, const char *what)
{
    snprintf(reader->why, reader->why_size, "line %u: %s", reader->line, what);
    return false;
}

/* Make room for one more. */
static bool grow(void **list, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return true;
    const size_t more = *room > 0 ? 2 * *room : 16;
    void *bigger = reallocarray(*list, more, size);
    if (bigger == NULL)
        return false;
    *list = bigger;
    *room = more;
    return true;
}

/* The next word, up to a blank or the end. */
static char *next(char **at)
{
    char *word = *at;
    if (word == NULL)
        return NULL;
    *at = strchr(word, ' ');
    if (*at != NULL)
        *(*at)++ = '\0';
    return word[0] != '\0' ? word : NULL;
}

static bool number(char **at, int base, uint64_t most, uint64_t *value)
{
    const char *word = next(at);
    char *end;
    if (word == NULL || strspn(word, "0123456789abcdef") != strlen(word) ||
        strlen(word) > (base == 16 ? 16 : 19))
        return false;
    *value = strtoull(word, &end, base);
    return *end == '\0' && *value <= most;
}

/* ---- allocations ---- */

/* The first that ends behind `va`. */
static size_t alloc_at(const struct reader *reader, uint64_t va)
{
    size_t low = 0, high = reader->n_allocs;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (reader->allocs[middle].to > va)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static const struct gm_span *alloc_of(const struct reader *reader, uint64_t va)
{
    const size_t at = alloc_at(reader, va);
    return at < reader->n_allocs && reader->allocs[at].from <= va ? &reader->allocs[at] : NULL;
}

/* What ended unseen makes room for what comes. */
static bool read_alloc(struct reader *reader, char *at)
{
    uint64_t from, bytes;
    if (!number(&at, 16, ADDRESS_MOST, &from) || !number(&at, 10, ADDRESS_MOST, &bytes) ||
        at != NULL || bytes == 0)
        return fail(reader, "not an allocation");
    if (!grow((void **)&reader->allocs, reader->n_allocs, &reader->room_allocs,
              sizeof *reader->allocs))
        return fail(reader, "no memory");
    const size_t first = alloc_at(reader, from);
    size_t last = first;
    while (last < reader->n_allocs && reader->allocs[last].from < from + bytes)
        last++;
    memmove(&reader->allocs[first + 1], &reader->allocs[last],
            (reader->n_allocs - last) * sizeof *reader->allocs);
    reader->n_allocs = reader->n_allocs - (last - first) + 1;
    reader->allocs[first] = (struct gm_span){from, from + bytes};
    return true;
}

static bool read_free(struct reader *reader, char *at)
{
    uint64_t from;
    if (!number(&at, 16, ADDRESS_MOST, &from) || at != NULL)
        return fail(reader, "not an allocation");
    const size_t first = alloc_at(reader, from);
    if (first < reader->n_allocs && reader->allocs[first].from == from) {
        reader->n_allocs--;
        memmove(&reader->allocs[first], &reader->allocs[first + 1],
                (reader->n_allocs - first) * sizeof *reader->allocs);
    }
    return true;
}

/* ---- kernels and launches ---- */

static bool read_kernel(struct reader *reader, char *at)
{
    struct gm_records *records = reader->records;
    uint64_t index, hash, registers;
    if (!number(&at, 10, KERNELS_MOST - 1, &index) || index != reader->n_kernels ||
        !number(&at, 16, UINT64_MAX, &hash) || !number(&at, 10, 65535, &registers))
        return fail(reader, "not a kernel");
    const char *name = next(&at);
    if (name == NULL || at != NULL)
        return fail(reader, "not a kernel's name");
    uint32_t known = 0;
    while (known < records->n_kernels && records->kernels[known].hash != hash)
        known++;
    void *more = reallocarray(reader->kernels, reader->n_kernels + 1, sizeof *reader->kernels);
    if (more == NULL)
        return fail(reader, "no memory");
    reader->kernels = more;
    if (known == records->n_kernels) {
        if (known == KERNELS_MOST)
            return fail(reader, "too many kernels");
        more = reallocarray(records->kernels, known + 1, sizeof *records->kernels);
        if (more == NULL)
            return fail(reader, "no memory");
        records->kernels = more;
        char *copy = strndup(name, GM_PROFILE_NAME);
        if (copy == NULL)
            return fail(reader, "no memory");
        records->kernels[records->n_kernels++] =
            (struct gm_recorded_kernel){hash, (uint32_t)registers, copy};
    } else if (records->kernels[known].registers == 0) { /* not known where it was seen first */
        records->kernels[known].registers = (uint32_t)registers;
    } else if (registers != 0 && records->kernels[known].registers != registers) {
        return fail(reader, "a kernel whose code is another than in the records before");
    }
    reader->kernels[reader->n_kernels++] = known;
    return true;
}

static bool read_arguments(struct reader *reader, const char *word, struct gm_launch *launch)
{
    const size_t digits = strcmp(word, "-") != 0 ? strlen(word) : 0;
    if (digits % 2 != 0 || digits / 2 > GM_ARGUMENT_BYTES ||
        strspn(word, "0123456789abcdef") < digits)
        return fail(reader, "not arguments");
    unsigned char *bytes = malloc(digits / 2 + 1);
    if (bytes == NULL)
        return fail(reader, "no memory");
    for (size_t i = 0; i < digits; i += 2) {
        const char pair[3] = {word[i], word[i + 1], '\0'};
        bytes[i / 2] = (unsigned char)strtoul(pair, NULL, 16);
    }
    launch->arguments.at = bytes;
    launch->arguments.bytes = (uint32_t)(digits / 2);
    size_t room = 0;
    for (uint32_t offset = 0; offset + 8 <= launch->arguments.bytes; offset += 8) {
        uint64_t value;
        memcpy(&value, bytes + offset, sizeof value);
        const struct gm_span *alloc = value != 0 ? alloc_of(reader, value) : NULL;
        if (alloc == NULL)
            continue;
        if (!grow((void **)&launch->pointers, launch->n_pointers, &room, sizeof *launch->pointers))
            return fail(reader, "no memory");
        launch->pointers[launch->n_pointers++] = (struct gm_pointer){offset, value, *alloc};
    }
    return true;
}

static bool read_launch(struct reader *reader, char *at)
{
    struct gm_records *records = reader->records;
    uint64_t index, dimension;
    if (!number(&at, 10, UINT32_MAX, &index) || index >= reader->n_kernels)
        return fail(reader, "a launch of no kernel");
    struct gm_launch launch = {.kernel = reader->kernels[index]};
    for (uint32_t i = 0; i < GM_DIMENSIONS; i++) {
        if (!number(&at, 10, UINT32_MAX, &dimension))
            return fail(reader, "not a launch");
        launch.arguments.dimension[i] = (uint32_t)dimension;
    }
    const char *arguments = next(&at);
    if (arguments == NULL || at != NULL)
        return fail(reader, "not a launch");
    if (records->n_launches == LAUNCHES_MOST)
        return fail(reader, "too many launches");
    if (!grow((void **)&records->launches, records->n_launches, &reader->room_launches,
              sizeof launch))
        return fail(reader, "no memory");
    reader->launch = &records->launches[records->n_launches++];
    reader->room_runs = 0;
    *reader->launch = launch;
    return read_arguments(reader, arguments, reader->launch);
}

/* Cut at the ends of allocations. */
static bool read_touch(struct reader *reader, char *at)
{
    struct gm_launch *launch = reader->launch;
    uint64_t page, count;
    if (!number(&at, 16, (ADDRESS_MOST >> GM_PAGE_SHIFT) - 1, &page) ||
        !number(&at, 10, ADDRESS_MOST >> GM_PAGE_SHIFT, &count) || at != NULL || count == 0 ||
        launch == NULL)
        return fail(reader, "not what a launch touched");
    const struct gm_span all = {page << GM_PAGE_SHIFT, (page + count) << GM_PAGE_SHIFT};
    for (size_t i = alloc_at(reader, all.from);
         i < reader->n_allocs && reader->allocs[i].from < all.to; i++) {
        const struct gm_span alloc = reader->allocs[i];
        /* Whole pages: a small allocation shares them with others. */
        struct gm_span part = {alloc.from & ~(uint64_t)(GM_PAGE_BYTES - 1),
                               (alloc.to + GM_PAGE_BYTES - 1) & ~(uint64_t)(GM_PAGE_BYTES - 1)};
        part.from = part.from > all.from ? part.from : all.from;
        part.to = part.to < all.to ? part.to : all.to;
        struct gm_run *before = launch->n_runs > 0 ? &launch->runs[launch->n_runs - 1] : NULL;
        if (before != NULL && part.from < before->at.to) {
            if (before->alloc.from > alloc.from || part.from < before->at.from)
                return fail(reader, "what a launch touched is not in order");
            part.from = before->at.to; /* a page of two allocations is the first one's */
        }
        if (part.from >= part.to)
            continue;
        if (before != NULL && before->at.to == part.from && before->alloc.from == alloc.from) {
            before->at.to = part.to;
            continue;
        }
        if (!grow((void **)&launch->runs, launch->n_runs, &reader->room_runs, sizeof *launch->runs))
            return fail(reader, "no memory");
        launch->runs[launch->n_runs++] = (struct gm_run){part, alloc};
    }
    return true;
}

static bool read_line(struct reader *reader, char *line)
{
    static const struct {
        const char *name;
        bool (*read)(struct reader *reader, char *at);
    } kinds[] = {{"touch", read_touch},
                 {"launch", read_launch},
                 {"alloc", read_alloc},
                 {"free", read_free},
                 {"kernel", read_kernel}};
    char *at = line;
    const char *word = next(&at);
    uint64_t version;
    if (reader->line == 1) {
        if (word == NULL || strcmp(word, "gpumux-records") != 0 ||
            !number(&at, 10, UINT32_MAX, &version))
            return fail(reader, "these are no records");
        return version == GM_RECORDS_VERSION || fail(reader, "records of another version");
    }
    for (size_t i = 0; word != NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(word, kinds[i].name) == 0)
            return kinds[i].read(reader, at);
    return fail(reader, "not a record");
}

bool gm_records_read(FILE *file, struct gm_records *records, char *why, size_t why_size)
{
    struct reader reader = {.records = records,
                            .room_launches = records->n_launches, /* full: it grows at once */
                            .why = why,
                            .why_size = why_size};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool is_good = true, is_whole = true;
    while (is_good && is_whole && (length = getline(&line, &room, file)) > 0) {
        reader.line++;
        is_whole = line[length - 1] == '\n'; /* else the program was killed there */
        if (is_whole) {
            line[length - 1] = '\0';
            is_good = strlen(line) == (size_t)length - 1 ? read_line(&reader, line)
                                                         : fail(&reader, "not text");
        }
    }
    if (is_good && (reader.line == 0 || (reader.line == 1 && !is_whole)))
        is_good = fail(&reader, "these are no records");
    free(line);
    free(reader.allocs);
    free(reader.kernels);
    return is_good;
}

void gm_records_free(struct gm_records *records)
{
    for (uint32_t i = 0; i < records->n_kernels; i++)
        free(records->kernels[i].name);
    for (uint32_t i = 0; i < records->n_launches; i++) {
        free((void *)(uintptr_t)records->launches[i].arguments.at);
        free(records->launches[i].pointers);
        free(records->launches[i].runs);
    }
    free(records->kernels);
    free(records->launches);
    *records = (struct gm_records){0};
}
