/*
 * Reads the ledger of a running daemon as the next one would find it: stops the daemon at random
 * moments, which are those at which it could be killed, copies the ledger, lets it go on, and makes
 * a table of the copy.
 *
 *   gm_ledger_look PID TIMES       0: each was a table; 1: one was refused; 2: cannot look
 *   gm_ledger_look PID programs    prints the programs of the machine's ledger, one a line
 *
 * Prints how many were read, and the most chunks and frames, chunks on their way out, and copies
 * out that it saw.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/core/ledger_clients.h"
#include "daemon/core/table.h"
#include "daemon/core/table_adopt.h"

static int open_ledger(pid_t pid, const char *name)
{
    char path[600], target[256];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *files = opendir(path);
    const struct dirent *entry;
    while (files && (entry = readdir(files)) != NULL) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        const ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strstr(target, name))
            return open(path, O_RDONLY | O_CLOEXEC);
    }
    return -1;
}

/* All of its threads stand still. */
static bool stands_still(pid_t pid)
{
    char path[600], text[512];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    const struct dirent *entry;
    bool is_still = tasks != NULL;
    while (tasks && is_still && (entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
        FILE *file = fopen(path, "re");
        const char *end = file && fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
        is_still = end && end[2] == 'T';
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return is_still;
}

static void pause_for(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void *get(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        exit(2);
    return memory;
}

static uint32_t most_chunks, most_frames, most_out;
static uint64_t most_ended;

static void count(const struct gm_table *table, const struct gm_ledger *ledger, uint64_t ended)
{
    uint32_t chunks = 0, frames = 0, out = 0, allocation, ordinal;
    struct gm_ledger_place place;
    for (uint32_t i = 0; i < table->max_chunks; i++) {
        chunks += table->chunks[i].state != GM_CHUNK_UNUSED;
        out += gm_ledger_chunk(ledger, i, &allocation, &ordinal, &place) == GM_LEDGER_IS &&
               place.where == GM_LEDGER_OUT;
    }
    for (uint32_t i = 0; i < table->max_frames; i++)
        frames += table->frames[i].state != GM_FRAME_UNUSED;
    most_chunks = chunks > most_chunks ? chunks : most_chunks;
    most_frames = frames > most_frames ? frames : most_frames;
    most_out = out > most_out ? out : most_out;
    most_ended = ended > most_ended ? ended : most_ended;
}

static const char *look(void *memory, size_t bytes)
{
    const struct gm_ledger_head *head = memory;
    struct gm_ledger ledger;
    struct gm_ledger most = {.max_apps = 1u << 16, .max_chunks = 1u << 24, .max_frames = 1u << 24};
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        most.pages[tier] = 1u << 24;
    const char *wrong = gm_ledger_open(&ledger, memory, bytes, &most);
    if (wrong)
        return wrong;
    const uint32_t apps = (uint32_t)head->max_apps, chunks = (uint32_t)head->max_chunks,
                   frames = (uint32_t)head->max_frames, pages = 1u << 20;
    void *table_memory = get(gm_table_size(apps, chunks, frames));
    uint32_t *scratch = get(sizeof *scratch * gm_adoption_words(chunks, pages));
    struct gm_table *table = gm_table_init(table_memory, apps, chunks, frames, 0);
    struct gm_adoption adoption = {
        .from = &ledger, .ended = *gm_ledger_out(&ledger), .pages = pages, .scratch = scratch};
    wrong = gm_table_adopt(table, &adoption);
    if (wrong)
        printf("kind %d, slot %u: ", (int)adoption.kind, adoption.slot);
    else
        count(table, &ledger, adoption.ended);
    free(scratch);
    free(table_memory);
    return wrong;
}

/* As a daemon would that is to go on with them. */
static int print_programs(int fd)
{
    struct stat is;
    struct gm_clients clients;
    struct gm_client_record record;
    if (fd < 0 || fstat(fd, &is))
        return 2;
    void *memory = get((size_t)is.st_size);
    if (pread(fd, memory, (size_t)is.st_size, 0) != is.st_size)
        return 2;
    const char *wrong = gm_clients_open(&clients, memory, (size_t)is.st_size, 1u << 16);
    for (uint32_t id = 0; !wrong && id < clients.max_clients; id++) {
        const enum gm_ledger_outcome found = gm_clients_read(&clients, id, &record);
        if (found == GM_LEDGER_BROKEN)
            wrong = "a program is broken";
        if (found == GM_LEDGER_IS)
            printf("%u: pid=%u uid=%u started=%llu name=%s group=%s gpus=%x level=%u charged=%llu "
                   "has=%x paused=%u weight=%u gone=%u nonce=%d\n",
                   id, record.pid, record.uid, (unsigned long long)record.started, record.name,
                   record.group, record.engines, record.turns[0].level,
                   (unsigned long long)record.turns[0].charged_ns, record.admin.has,
                   record.admin.is_paused, record.admin.weight, record.is_gone,
                   (record.nonce[0] | record.nonce[1]) != 0);
    }
    if (wrong)
        printf("%s\n", wrong);
    free(memory);
    return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[2], "programs") == 0)
        return print_programs(open_ledger(atoi(argv[1]), "memfd:gpumux-clients"));
    const pid_t pid = argc == 3 ? atoi(argv[1]) : 0;
    const int times = argc == 3 ? atoi(argv[2]) : 0;
    struct stat is;
    const int fd = pid > 1 ? open_ledger(pid, "memfd:gpumux-ledger") : -1;
    if (fd < 0 || fstat(fd, &is)) {
        fprintf(stderr, "process %d has no ledger\n", (int)pid);
        return 2;
    }
    void *memory = get((size_t)is.st_size);
    srandom(33);
    for (int i = 0; i < times; i++) {
        pause_for(random() % 20000000);
        if (kill(pid, SIGSTOP))
            return 2;
        while (!stands_still(pid))
            pause_for(20000);
        const bool has_read = pread(fd, memory, (size_t)is.st_size, 0) == is.st_size;
        kill(pid, SIGCONT);
        const char *wrong = has_read ? look(memory, (size_t)is.st_size) : "it cannot be read";
        if (!wrong)
            continue;
        printf("ledger %d: %s\n", i, wrong);
        return 1;
    }
    printf("%d ledgers: at most %u chunks, %u frames, %u on their way out, %llu copies out\n",
           times, most_chunks, most_frames, most_out, (unsigned long long)most_ended);
    return 0;
}
