/*
 * Replays the wire fuzzer's corpus without a fuzzer: every file, then a number of mutations of it
 * that depend on nothing but the seed and the file's name. Part of the normal test run.
 *
 *   fuzz_wire_replay [-n MUTATIONS] [-s SEED] FILE-OR-DIRECTORY...
 *
 * A file's name says what must come of it: "valid-*" decodes, "broken-*" does not and "<fault>" in
 * "broken-<fault>-*" is the number of the fault; other files only have to hold the properties.
 * Every message of wire.def must have a valid file, or the corpus is incomplete.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/wire.h"
#include "tests/fuzz/fuzz_wire.h"

#define INPUT_MAX (GM_FUZZ_HEAD + GM_WIRE_MAX + 64u)
#define FILES_MAX 4096u

static uint64_t seed = 1;
static unsigned long mutations = 2000;

/* What runs now, for on_death; formatted before, because a signal handler cannot. */
static char running[512];
static uint8_t input[INPUT_MAX];
static size_t input_size;

static bool row_seen[UINT16_MAX + 1];
static unsigned long n_files, n_inputs, n_failed;

/* A property did not hold, or a sanitizer found something: say in which input. */
static void on_death(void)
{
    if (write(STDERR_FILENO, running, strlen(running)) < 0)
        _exit(1);
}

static void on_abort(int number)
{
    (void)number;
    on_death();
    _exit(1);
}

/* Of the sanitizers' runtime, where there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t *state, uint64_t bound)
{
    return next_random(state) % bound;
}

/* One step away from the input: what goes wrong in real messages more than uniform noise. */
static void mutate(uint64_t *state)
{
    static const uint32_t words[] = {0,    1,     2,      16,         32,         33,        0x7f,
                                     0x80, 0xff,  0x7fff, 0x8000,     0xffff,     0x10000,   128,
                                     256,  16384, 16385,  0x7fffffff, 0x80000000, UINT32_MAX};
    size_t at = input_size > 0 ? below(state, input_size) : 0;
    switch (below(state, 8)) {
    case 0: /* a bit */
        if (input_size > 0)
            input[at] ^= (uint8_t)(1u << below(state, 8));
        break;
    case 1: /* a byte */
        if (input_size > 0)
            input[at] = (uint8_t)next_random(state);
        break;
    case 2: /* an aligned word of the message */
    case 3: {
        uint32_t word = words[below(state, sizeof(words) / sizeof(words[0]))];
        size_t width = below(state, 2) ? 4 : 2;
        if (input_size < GM_FUZZ_HEAD + width)
            break;
        size_t slots = (input_size - GM_FUZZ_HEAD) / width;
        size_t slot = below(state, below(state, 2) && slots > 6 ? 6 : slots);
        memcpy(input + GM_FUZZ_HEAD + slot * width, &word, width);
        break;
    }
    case 4: /* cut */
        input_size = at;
        break;
    case 5: { /* longer, perhaps with a length word that agrees */
        size_t more = 1 + below(state, 64);
        if (input_size + more > INPUT_MAX)
            break;
        for (size_t i = 0; i < more; i++)
            input[input_size + i] = (uint8_t)next_random(state);
        input_size += more;
        break;
    }
    case 6: /* another direction, state or number of fds */
        if (input_size >= GM_FUZZ_HEAD)
            input[below(state, GM_FUZZ_HEAD)] = (uint8_t)below(state, 40);
        break;
    default: /* make the length word true, so that what follows it is reached */
        if (input_size >= GM_FUZZ_HEAD + sizeof(struct gm_wire_header)) {
            uint32_t length = (uint32_t)(input_size - GM_FUZZ_HEAD);
            memcpy(input + GM_FUZZ_HEAD, &length, sizeof(length));
        }
        break;
    }
}

static void run_one(void)
{
    LLVMFuzzerTestOneInput(input, input_size);
    n_inputs++;
}

/* Whether the file's name and what became of it agree. */
static bool verdict_is_expected(const char *name)
{
    int fault = gm_fuzz_wire_fault(input, input_size);
    if (strncmp(name, "valid-", 6) == 0) {
        if (fault != GM_WIRE_OK) {
            fprintf(stderr, "%s: does not decode: %s\n", name,
                    fault < 0 ? "not a message" : gm_wire_fault_text((enum gm_wire_fault)fault));
            return false;
        }
        struct gm_wire_header header;
        memcpy(&header, input + GM_FUZZ_HEAD, sizeof(header));
        row_seen[header.type] = true;
    } else if (strncmp(name, "broken-", 7) == 0) {
        long expected = strtol(name + 7, NULL, 10);
        if (fault != expected) {
            fprintf(stderr, "%s: fault %d (%s), not %ld\n", name, fault,
                    fault < 0 ? "not a message" : gm_wire_fault_text((enum gm_wire_fault)fault),
                    expected);
            return false;
        }
    }
    return true;
}

static bool replay_file(const char *path)
{
    static uint8_t original[INPUT_MAX];
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    size_t size = fread(original, 1, sizeof(original), file);
    bool is_whole = !ferror(file) && fgetc(file) == EOF;
    fclose(file);
    if (!is_whole) {
        fprintf(stderr, "%s: unreadable or longer than %u bytes\n", path, INPUT_MAX);
        return false;
    }

    memcpy(input, original, size);
    input_size = size;
    snprintf(running, sizeof(running), "in %s as it is\n", path);
    n_files++;
    run_one();
    if (!verdict_is_expected(name))
        return false;

    uint64_t of_file = seed;
    for (const char *c = name; *c != '\0'; c++)
        of_file = of_file * 1099511628211ull ^ (uint8_t)*c;
    for (unsigned long i = 0; i < mutations; i++) {
        uint64_t state = of_file + i * 0x632be59bd9b4e019ull;
        snprintf(running, sizeof(running), "in mutation %lu of %s with seed %llu\n", i, path,
                 (unsigned long long)seed);
        memcpy(input, original, size);
        input_size = size;
        for (uint64_t steps = 1 + below(&state, 5); steps > 0; steps--)
            mutate(&state);
        run_one();
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool replay_directory(const char *path)
{
    static char *names[FILES_MAX];
    size_t n = 0;
    bool all_good = true;
    DIR *directory = opendir(path);
    if (directory == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        if (n == FILES_MAX || asprintf(&names[n], "%s/%s", path, entry->d_name) < 0) {
            fprintf(stderr, "%s: too many files\n", path);
            exit(1);
        }
        n++;
    }
    closedir(directory);
    qsort(names, n, sizeof(names[0]), by_name);
    for (size_t i = 0; i < n; i++) {
        if (!replay_file(names[i])) {
            n_failed++;
            all_good = false;
        }
        free(names[i]);
    }

#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    if (!row_seen[type]) {                                                                         \
        fprintf(stderr, "%s: no valid-* file is a %s message\n", path, #NAME);                     \
        all_good = false;                                                                          \
    }
#include "common/wire.def"
#undef GM_MSG
    return all_good;
}

int main(int argc, char **argv)
{
    bool all_good = true;
    int option;
    while ((option = getopt(argc, argv, "n:s:")) != -1) {
        if (option == 'n')
            mutations = strtoul(optarg, NULL, 10);
        else if (option == 's')
            seed = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    if (optind == argc) {
        fprintf(stderr, "usage: %s [-n MUTATIONS] [-s SEED] FILE-OR-DIRECTORY...\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(on_death);
    for (int i = optind; i < argc; i++) {
        struct stat st;
        bool is_directory = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode);
        all_good &= is_directory ? replay_directory(argv[i]) : replay_file(argv[i]);
    }
    printf("%lu files, %lu inputs, seed %llu: %s\n", n_files, n_inputs, (unsigned long long)seed,
           all_good ? "all properties hold" : "failed");
    return all_good ? 0 : 1;
}
