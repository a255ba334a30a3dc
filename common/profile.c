/* Profiles: see profile.h. One pass over the text; a line is a list of words. */
#include "common/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

#define WORDS 8u
#define LINE (GM_PROFILE_NAME + 512u)

static const char *const dimensions[GM_DIMENSIONS] = {"gx", "gy", "gz", "bx", "by", "bz"};

static bool complain(char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool complain(char *why, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, size, format, list);
    va_end(list);
    gm_text_clean(why, size);
    return false;
}

/* ---- hash ---- */

static uint64_t add_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

static uint64_t add_number(uint64_t hash, uint64_t number)
{
    return add_bytes(hash, &number, sizeof number);
}

uint64_t gm_kernel_hash(const struct gm_kernel_facts *facts)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    hash = add_bytes(hash, facts->name, strlen(facts->name) + 1);
    hash = add_number(hash, facts->binary_version);
    hash = add_number(hash, facts->n);
    for (uint32_t i = 0; i < facts->n; i++) {
        hash = add_number(hash, facts->parameters[i].offset);
        hash = add_number(hash, facts->parameters[i].bytes);
    }
    return hash != 0 ? hash : 1;
}

/* ---- words ---- */

/* A whole number of digits of `base`, up to `most`, from *at on, which moves behind it. */
static bool take_number(const char **at, unsigned base, uint64_t most, uint64_t *value)
{
    const char *begin = *at;
    *value = 0;
    for (;; (*at)++) {
        const char c = **at;
        uint64_t digit = c >= '0' && c <= '9'                 ? (uint64_t)(c - '0')
                         : base == 16 && c >= 'a' && c <= 'f' ? (uint64_t)(c - 'a') + 10
                                                              : base;
        if (digit >= base)
            return *at > begin;
        if (__builtin_mul_overflow(*value, base, value) ||
            __builtin_add_overflow(*value, digit, value) || *value > most)
            return false;
    }
}

static bool whole_number(const char *word, unsigned base, uint64_t most, uint64_t *value)
{
    return take_number(&word, base, most, value) && *word == '\0';
}

static bool take_factor(const char **at, uint16_t *factor)
{
    uint64_t offset;
    for (uint16_t i = 0; i < GM_DIMENSIONS; i++)
        if (strncmp(*at, dimensions[i], 2) == 0) {
            *at += 2;
            *factor = (uint16_t)(GM_FACTOR_DIMENSION | i);
            return true;
        }
    const char kind = **at;
    if (kind != 'w' && kind != 'd')
        return false;
    (*at)++;
    /* The highest offsets stand for dimensions. */
    if (!take_number(at, 10, GM_FACTOR_DIMENSION - 1, &offset) || offset % 4 != 0)
        return false;
    *factor = (uint16_t)(offset | (kind == 'd' ? GM_FACTOR_LONG : GM_FACTOR_WORD));
    return true;
}

static bool parse_amount(const char *at, struct gm_amount *amount)
{
    const bool is_negative = *at == '-';
    uint64_t number;
    *amount = (struct gm_amount){.denominator = 1};
    at += is_negative;
    if (!take_number(&at, 10, INT64_MAX, &number))
        return false;
    amount->constant = is_negative ? -(int64_t)number : (int64_t)number;
    if (*at == '\0')
        return true;
    if (*at++ != '+' || !take_number(&at, 10, UINT32_MAX, &number))
        return false;
    amount->numerator = (uint32_t)number;
    if (*at++ != '/' || !take_number(&at, 10, UINT32_MAX, &number) || number == 0)
        return false;
    amount->denominator = (uint32_t)number;
    while (*at == '*' && amount->n < GM_FACTORS_MAX) {
        at++;
        if (!take_factor(&at, &amount->factor[amount->n++]))
            return false;
    }
    return *at == '\0' && amount->n > 0;
}

char *gm_amount_format(const struct gm_amount *amount, char *text)
{
    snprintf(text, GM_AMOUNT_TEXT, "%" PRId64, amount->constant);
    if (amount->n > 0)
        gm_text_add(text, GM_AMOUNT_TEXT, "+%u/%u", amount->numerator, amount->denominator);
    for (uint32_t i = 0; i < amount->n; i++) {
        const uint16_t factor = amount->factor[i];
        if ((factor & 0xfff8) == GM_FACTOR_DIMENSION)
            gm_text_add(text, GM_AMOUNT_TEXT, "*%s", dimensions[factor & 7]);
        else
            gm_text_add(text, GM_AMOUNT_TEXT, "*%c%u", factor & GM_FACTOR_LONG ? 'd' : 'w',
                        factor & 0x7fffu);
    }
    return text;
}

/* ---- parsing ---- */

struct reader {
    struct gm_profile *profile;
    uint32_t room; /* for kernels */
    uint32_t line;
    bool is_over; /* the end was read */
    char *why;
    size_t why_size;
};

#define FAIL(reader, ...) complain((reader)->why, (reader)->why_size, __VA_ARGS__)

/* Split the line at single blanks. 0: it is too long, or has too many words. */
static uint32_t split(char *line, char *words[WORDS])
{
    uint32_t n = 0;
    for (char *at = line; at != NULL; n++) {
        if (n == WORDS)
            return 0;
        words[n] = at;
        at = strchr(at, ' ');
        if (at != NULL)
            *at++ = '\0';
    }
    return n;
}

static bool read_kernel(struct reader *reader, char **words)
{
    struct gm_profile *profile = reader->profile;
    uint64_t registers, missed, excess;
    struct gm_profile_kernel kernel = {0};
    if (strlen(words[1]) != 16 || !whole_number(words[1], 16, UINT64_MAX, &kernel.hash) ||
        !whole_number(words[2], 10, 65535, &registers) ||
        !whole_number(words[3], 10, UINT64_MAX, &kernel.launches) ||
        !whole_number(words[4], 10, UINT16_MAX, &missed) ||
        !whole_number(words[5], 10, UINT16_MAX, &excess) ||
        !whole_number(words[6], 10, UINT64_MAX, &kernel.unnamed) || words[7][0] == '\0' ||
        strlen(words[7]) > GM_PROFILE_NAME || !gm_text_is_legal(words[7], strlen(words[7]) + 1))
        return FAIL(reader, "line %u is not a kernel", reader->line);
    if (profile->n == GM_PROFILE_KERNELS)
        return FAIL(reader, "it has more than %u kernels", GM_PROFILE_KERNELS);
    if (profile->n == reader->room) {
        const uint32_t room = reader->room > 0 ? 2 * reader->room : 64;
        struct gm_profile_kernel *more = realloc(profile->kernels, room * sizeof *more);
        if (more == NULL)
            return FAIL(reader, "no memory");
        profile->kernels = more;
        reader->room = room;
    }
    kernel.registers = (uint32_t)registers;
    kernel.missed = (uint16_t)missed;
    kernel.excess = (uint16_t)excess;
    kernel.name = strdup(words[7]);
    if (kernel.name == NULL)
        return FAIL(reader, "no memory");
    profile->kernels[profile->n++] = kernel;
    return true;
}

static bool read_argument(struct reader *reader, enum gm_profile_how how, char **words)
{
    struct gm_profile *profile = reader->profile;
    struct gm_profile_argument argument = {.how = how};
    struct gm_template *template = &argument.template;
    uint64_t offset;
    if (profile->n == 0)
        return FAIL(reader, "line %u belongs to no kernel", reader->line);
    struct gm_profile_kernel *kernel = &profile->kernels[profile->n - 1];
    if (kernel->n == GM_PROFILE_ARGUMENTS)
        return FAIL(reader, "kernel %.100s has more than %u arguments", kernel->name,
                    GM_PROFILE_ARGUMENTS);
    if (!whole_number(words[1], 10, GM_ARGUMENT_BYTES - 8, &offset) || offset % 8 != 0 ||
        (kernel->n > 0 && offset <= kernel->arguments[kernel->n - 1].template.offset) ||
        (how == GM_PROFILE_TOUCH &&
         (!parse_amount(words[2], &template->from) || !parse_amount(words[3], &template->bytes) ||
          !parse_amount(words[4], &template->stride) || !parse_amount(words[5], &template->count))))
        return FAIL(reader, "line %u is not what kernel %.100s touches", reader->line,
                    kernel->name);
    template->offset = (uint16_t)offset;
    struct gm_profile_argument *more =
        realloc(kernel->arguments, (kernel->n + 1) * sizeof *kernel->arguments);
    if (more == NULL)
        return FAIL(reader, "no memory");
    kernel->arguments = more;
    kernel->arguments[kernel->n++] = argument;
    return true;
}

static bool read_line(struct reader *reader, char *line)
{
    static const struct {
        const char *name;
        uint32_t words;
    } kinds[] = {{"kernel", 8}, {"touch", 6}, {"none", 2}, {"other", 2}, {"end", 2}};
    char *words[WORDS];
    uint64_t number;
    const uint32_t n = split(line, words);
    if (reader->line == 1) {
        if (n != 2 || strcmp(words[0], "gpumux-profile") != 0 ||
            !whole_number(words[1], 10, UINT32_MAX, &number))
            return FAIL(reader, "it is not a profile");
        if (number != GM_PROFILE_VERSION)
            return FAIL(reader, "it is a profile of version %u, and this gpumux reads version %u",
                        (uint32_t)number, GM_PROFILE_VERSION);
        return true;
    }
    uint32_t kind = 0;
    while (kind < 5 && (n != kinds[kind].words || strcmp(words[0], kinds[kind].name) != 0))
        kind++;
    if (kind == 5 || reader->is_over)
        return FAIL(reader, "line %u is not known", reader->line);
    if (kind == 0)
        return read_kernel(reader, words);
    if (kind < 4)
        return read_argument(reader, (enum gm_profile_how)(kind - 1), words);
    if (!whole_number(words[1], 10, GM_PROFILE_KERNELS, &number) || number != reader->profile->n)
        return FAIL(reader, "it has %u kernels and says something else", reader->profile->n);
    reader->is_over = true;
    return true;
}

static int compare(const void *a, const void *b)
{
    const struct gm_profile_kernel *left = a, *right = b;
    return left->hash < right->hash ? -1 : left->hash > right->hash;
}

static bool read_all(struct reader *reader, const char *text, size_t bytes)
{
    char line[LINE];
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : LINE;
        reader->line++;
        if (length >= LINE || memchr(text + at, '\0', length) != NULL)
            return FAIL(reader, "line %u is too long, or cut", reader->line);
        memcpy(line, text + at, length);
        line[length] = '\0';
        if (!read_line(reader, line))
            return false;
        at += length + 1;
    }
    return reader->is_over || FAIL(reader, "it is cut, or empty");
}

bool gm_profile_parse(const char *text, size_t bytes, struct gm_profile *profile, char *why,
                      size_t why_size)
{
    struct reader reader = {.profile = profile, .why = why, .why_size = why_size};
    *profile = (struct gm_profile){0};
    bool is_good = bytes <= GM_PROFILE_BYTES ? read_all(&reader, text, bytes)
                                             : FAIL(&reader, "it is too large");
    if (is_good && profile->n > 1)
        qsort(profile->kernels, profile->n, sizeof *profile->kernels, compare);
    for (uint32_t i = 1; is_good && i < profile->n; i++)
        if (profile->kernels[i].hash == profile->kernels[i - 1].hash)
            is_good = FAIL(&reader, "kernel %.100s is there twice", profile->kernels[i].name);
    if (!is_good)
        gm_profile_free(profile);
    return is_good;
}

bool gm_profile_read(const char *path, struct gm_profile *profile, char *why, size_t why_size)
{
    struct stat stat;
    char *text = NULL;
    bool is_good = false;
    *profile = (struct gm_profile){0};
    /* Not blocked by a pipe that somebody has put there. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return complain(why, why_size, "%s", strerror(errno));
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        complain(why, why_size, "it is not a plain file");
    } else if ((stat.st_uid != 0 && stat.st_uid != geteuid()) ||
               (stat.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        complain(why, why_size, "others may write it");
    } else if (stat.st_size > (off_t)GM_PROFILE_BYTES) {
        complain(why, why_size, "it is too large");
    } else if ((text = malloc((size_t)stat.st_size + 1)) == NULL) {
        complain(why, why_size, "no memory");
    } else {
        size_t had = 0;
        ssize_t got = 1;
        while (had < (size_t)stat.st_size && got > 0) {
            got = read(fd, text + had, (size_t)stat.st_size - had);
            had += got > 0 ? (size_t)got : 0;
        }
        is_good = gm_profile_parse(text, had, profile, why, why_size);
    }
    free(text);
    close(fd);
    return is_good;
}

const struct gm_profile_kernel *gm_profile_find(const struct gm_profile *profile, uint64_t hash)
{
    const struct gm_profile_kernel key = {.hash = hash};
    return profile->n > 0
               ? bsearch(&key, profile->kernels, profile->n, sizeof *profile->kernels, compare)
               : NULL;
}

void gm_profile_free_kernel(struct gm_profile_kernel *kernel)
{
    free(kernel->arguments);
    free(kernel->name);
    *kernel = (struct gm_profile_kernel){0};
}

void gm_profile_free(struct gm_profile *profile)
{
    for (uint32_t i = 0; i < profile->n; i++)
        gm_profile_free_kernel(&profile->kernels[i]);
    free(profile->kernels);
    *profile = (struct gm_profile){0};
}

/* ---- writing ---- */

static void write_kernel(FILE *file, const struct gm_profile_kernel *kernel)
{
    char from[GM_AMOUNT_TEXT], bytes[GM_AMOUNT_TEXT], stride[GM_AMOUNT_TEXT], count[GM_AMOUNT_TEXT];
    fprintf(file, "kernel %016" PRIx64 " %u %" PRIu64 " %u %u %" PRIu64 " %s\n", kernel->hash,
            kernel->registers, kernel->launches, kernel->missed, kernel->excess, kernel->unnamed,
            kernel->name);
    for (uint32_t i = 0; i < kernel->n; i++) {
        const struct gm_template *template = &kernel->arguments[i].template;
        if (kernel->arguments[i].how == GM_PROFILE_TOUCH)
            fprintf(file, "touch %u %s %s %s %s\n", template->offset,
                    gm_amount_format(&template->from, from),
                    gm_amount_format(&template->bytes, bytes),
                    gm_amount_format(&template->stride, stride),
                    gm_amount_format(&template->count, count));
        else
            fprintf(file, "%s %u\n", kernel->arguments[i].how == GM_PROFILE_NONE ? "none" : "other",
                    template->offset);
    }
}

bool gm_profile_write(FILE *file, const struct gm_profile *profile)
{
    fprintf(file, "gpumux-profile %u\n", GM_PROFILE_VERSION);
    for (uint32_t i = 0; i < profile->n; i++)
        write_kernel(file, &profile->kernels[i]);
    fprintf(file, "end %u\n", profile->n);
    return fflush(file) == 0 && !ferror(file);
}

const char *gm_profile_system(void)
{
    return GM_PROFILE_SYSTEM;
}

bool gm_profile_folder(char *(*getenv_like)(const char *), char *path, size_t size)
{
    const char *config = getenv_like("XDG_CONFIG_HOME"), *home = getenv_like("HOME");
    int length;
    if (config != NULL && config[0] == '/')
        length = snprintf(path, size, "%s/gpumux/profiles", config);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, size, "%s/.config/gpumux/profiles", home);
    else
        return false;
    return length > 0 && (size_t)length < size;
}
