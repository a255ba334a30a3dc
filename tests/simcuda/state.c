/*
 * What processes share about each device: how much memory is taken, who holds which frame, how far
 * the copy engines are booked. One file a device in SIMCUDA_DIR, mapped by everybody.
 *
 * Locking: byte 0 of the file is the mutex (a POSIX record lock, which the kernel drops when the
 * holder dies), under a process-local mutex. Byte 1+slot is held by the process that owns that slot
 * for as long as it lives: taking away what a dead process had needs no guess about pids. The file
 * is opened once and close-on-exec, so an exec gives up the slot too. Record locks are not
 * inherited by fork.
 *
 * A frame is counted while a slot holds it. When the last slot lets go of a frame whose fd was
 * exported, the fd may still be open elsewhere (a keeper without CUDA), or mapped (a child that was
 * made with clone()): the frame becomes an orphan, and is counted until a look through /proc finds
 * its memfd nowhere.
 */
#include "tests/simcuda/device_file.h"
#include "tests/simcuda/sim.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STATE_MAGIC SIM_STATE_MAGIC
#define SLOTS SIM_STATE_SLOTS
#define NOBODY UINT32_MAX
#define FRAMES 32768u
#define INDEX_BITS 16u

struct state_frame {
    uint64_t id; /* 0: free; else serial << INDEX_BITS | index */
    uint64_t bytes;
    uint32_t is_exported;
    uint32_t maker; /* a slot; NOBODY: it died */
    uint64_t holders[SLOTS / 64];
};

struct state {
    uint64_t magic;
    uint32_t is_dirty; /* a holder of the lock died inside: `used` must be summed up again */
    uint32_t n_frames; /* no frame in use at this index or above */
    uint64_t serial;
    uint64_t used;
    uint64_t orphans;
    struct sim_state_slot slot[SLOTS];
    _Atomic uint64_t engine[2]; /* booked up to this monotonic time */
    struct state_frame frame[FRAMES];
};

_Static_assert(offsetof(struct state, used) == offsetof(struct sim_state_head, used) &&
                   offsetof(struct state, slot) == offsetof(struct sim_state_head, slot) &&
                   offsetof(struct state, magic) == offsetof(struct sim_state_head, magic),
               "device_file.h");

struct sim_device_state {
    int fd;
    uint32_t slot;
    struct state *shared;
    _Atomic uint64_t *crossed; /* the link, each way: a file of its own */
};
static struct sim_device_state devices[SIM_DEVICES_MAX];
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;

/* One fcntl on one byte. For F_GETLK, *is_held says whether another process holds it. */
static int lock_byte(int fd, int command, short type, off_t byte, bool *is_held)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do {
        result = fcntl(fd, command, &lock);
    } while (result != 0 && errno == EINTR);
    if (is_held != NULL)
        *is_held = lock.l_type != F_UNLCK;
    return result;
}

static void sum_up(struct state *s)
{
    s->used = 0;
    s->orphans = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        s->used += s->slot[i].is_used ? s->slot[i].bytes : 0;
    for (uint32_t i = 0; i < s->n_frames; i++) {
        const struct state_frame *f = &s->frame[i];
        if (f->id == 0)
            continue;
        s->used += f->bytes;
        uint64_t held = 0;
        for (uint32_t w = 0; w < SLOTS / 64; w++)
            held |= f->holders[w];
        s->orphans += held == 0;
    }
}

static void enter(struct sim_device_state *d)
{
    pthread_mutex_lock(&state_lock);
    lock_byte(d->fd, F_SETLKW, F_WRLCK, 0, NULL);
    if (d->shared->is_dirty)
        sum_up(d->shared);
    d->shared->is_dirty = 1;
}

static void leave(struct sim_device_state *d)
{
    d->shared->is_dirty = 0;
    lock_byte(d->fd, F_SETLK, F_UNLCK, 0, NULL);
    pthread_mutex_unlock(&state_lock);
}

/* ---- frames ---- */

static void free_frame(struct state *s, struct state_frame *f)
{
    s->used -= f->bytes;
    if (f->maker != NOBODY)
        s->slot[f->maker].made -= f->bytes;
    f->id = 0;
    while (s->n_frames > 0 && s->frame[s->n_frames - 1].id == 0)
        s->n_frames--;
}

static struct state_frame *find_frame(struct state *s, uint64_t id)
{
    struct state_frame *f = &s->frame[id & (FRAMES - 1)];
    return f->id == id ? f : NULL;
}

/* One holder less: the frame is freed, or an orphan, when it was the last. */
static void drop_holder(struct state *s, struct state_frame *f, uint32_t slot)
{
    f->holders[slot / 64] &= ~(1ull << slot % 64);
    for (uint32_t w = 0; w < SLOTS / 64; w++) {
        if (f->holders[w] != 0)
            return;
    }
    if (f->is_exported)
        s->orphans++;
    else
        free_frame(s, f);
}

static void add_frame(struct state *s, uint32_t index, uint64_t id, uint64_t bytes, uint32_t slot)
{
    struct state_frame *f = &s->frame[index];
    memset(f, 0, sizeof *f);
    f->bytes = bytes;
    f->holders[slot / 64] = 1ull << slot % 64;
    f->id = id;
    f->maker = slot;
    s->slot[slot].made += bytes;
    s->used += bytes;
    if (index >= s->n_frames)
        s->n_frames = index + 1;
}

/* ---- taking back ---- */

static void free_slot(struct state *s, uint32_t slot)
{
    s->used -= s->slot[slot].bytes;
    memset(&s->slot[slot], 0, sizeof s->slot[slot]);
    for (uint32_t i = s->n_frames; i-- > 0;) {
        struct state_frame *f = &s->frame[i];
        if (f->id != 0 && f->maker == slot)
            f->maker = NOBODY;
        if (f->id != 0 && (f->holders[slot / 64] >> slot % 64 & 1) != 0)
            drop_holder(s, f, slot);
    }
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Mark the orphan that this link of /proc/PID/fd shows, if it is one. */
static void note_link(const char *link, unsigned device, uint64_t *ids, bool *is_open, size_t n)
{
    unsigned long long hash, id;
    unsigned on;
    if (sscanf(link, "/memfd:simcuda-%16llx-d%u-%llx", &hash, &on, &id) != 3 ||
        hash != sim_options.dir_hash || on != (unsigned)sim_options.number[device])
        return;
    const uint64_t key = id;
    const uint64_t *found = bsearch(&key, ids, n, sizeof *ids, compare_ids);
    if (found != NULL)
        is_open[found - ids] = true;
}

static void scan_process(const char *pid, unsigned device, uint64_t *ids, bool *is_open, size_t n)
{
    char path[64], link[128];
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const ssize_t length = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        if (length <= 0)
            continue;
        link[length] = '\0';
        note_link(link, device, ids, is_open, n);
    }
    closedir(dir);
}

/* The same of what it has mapped: a child of clone() has that of its parent. */
static void scan_maps(const char *pid, unsigned device, uint64_t *ids, bool *is_open, size_t n)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *link = strstr(line, "/memfd:simcuda-");
        if (link != NULL)
            note_link(link, device, ids, is_open, n);
    }
    if (file != NULL)
        fclose(file);
}

/* Free the orphans whose memfd no process has open or mapped. */
static void free_orphans(struct state *s, unsigned device)
{
    uint64_t *ids = sim_alloc(sizeof *ids * s->orphans);
    bool *is_open = sim_alloc(sizeof *is_open * s->orphans);
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_frames && n < s->orphans; i++) {
        uint64_t held = s->frame[i].id == 0;
        for (uint32_t w = 0; w < SLOTS / 64; w++)
            held |= s->frame[i].holders[w];
        if (held == 0)
            ids[n++] = s->frame[i].id;
    }
    qsort(ids, n, sizeof *ids, compare_ids);
    DIR *proc = opendir("/proc");
    if (proc != NULL) {
        for (const struct dirent *entry; (entry = readdir(proc)) != NULL;) {
            if (isdigit((unsigned char)entry->d_name[0]))
                scan_process(entry->d_name, device, ids, is_open, n);
            if (isdigit((unsigned char)entry->d_name[0]))
                scan_maps(entry->d_name, device, ids, is_open, n);
        }
        closedir(proc);
        for (size_t i = 0; i < n; i++) {
            struct state_frame *f = find_frame(s, ids[i]);
            if (!is_open[i] && f != NULL) {
                s->orphans--;
                free_frame(s, f);
            }
        }
    }
    free(is_open);
    free(ids);
}

/* Take back what nobody has any more. Under the lock. */
static void reap(struct sim_device_state *d)
{
    struct state *s = d->shared;
    for (uint32_t i = 0; i < SLOTS; i++) {
        bool is_held = true;
        if (s->slot[i].is_used && i != d->slot &&
            lock_byte(d->fd, F_GETLK, F_WRLCK, 1 + (off_t)i, &is_held) == 0 && !is_held)
            free_slot(s, i);
    }
    if (s->orphans > 0)
        free_orphans(s, (unsigned)(d - devices));
}

/* ---- opening ---- */

static bool take_slot(struct sim_device_state *d)
{
    struct state *s = d->shared;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (lock_byte(d->fd, F_SETLK, F_WRLCK, 1 + (off_t)i, NULL) != 0)
            continue;
        if (s->slot[i].is_used)
            free_slot(s, i); /* its owner is dead */
        s->slot[i].is_used = 1;
        s->slot[i].pid = (uint32_t)getpid();
        d->slot = i;
        return true;
    }
    return false;
}

static bool open_link(struct sim_device_state *d, const char *path)
{
    const size_t bytes = 2 * sizeof *d->crossed;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    d->crossed = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        d->crossed = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return d->crossed != MAP_FAILED;
}

static CUresult open_device(int device)
{
    struct sim_device_state *d = &devices[device];
    char path[sizeof sim_options.dir + 32];
    snprintf(path, sizeof path, SIM_LINK_FILE, sim_options.dir, sim_options.number[device]);
    if (!open_link(d, path))
        goto no_file;
    snprintf(path, sizeof path, SIM_DEVICE_FILE, sim_options.dir, sim_options.number[device]);
    d->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (d->fd < 0)
        goto no_file;
    if (lock_byte(d->fd, F_SETLKW, F_WRLCK, 0, NULL) != 0 ||
        ftruncate(d->fd, (off_t)sizeof(struct state)) != 0)
        goto no_file;
    d->shared = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
    if (d->shared == MAP_FAILED)
        goto no_file;
    if (d->shared->magic == 0)
        d->shared->magic = STATE_MAGIC;
    if (d->shared->magic != STATE_MAGIC) {
        fprintf(stderr, "simcuda: %s: of another version\n", path);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    lock_byte(d->fd, F_SETLK, F_UNLCK, 0, NULL);
    enter(d);
    const bool has_slot = take_slot(d);
    leave(d);
    if (!has_slot)
        fprintf(stderr, "simcuda: %s: %u processes are here already\n", path, SLOTS);
    return has_slot ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
no_file:
    fprintf(stderr, "simcuda: %s: %s\n", path, strerror(errno));
    return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult sim_state_open(void)
{
    for (int i = 0; i < sim_options.devices; i++) {
        if (devices[i].shared != NULL)
            continue;
        const CUresult result = open_device(i);
        if (result != CUDA_SUCCESS) {
            if (devices[i].fd >= 0)
                close(devices[i].fd);
            devices[i] = (struct sim_device_state){.fd = -1};
            return result;
        }
    }
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

/* Is there room? Under the lock; takes back what the dead had before it says no. */
static bool has_room(struct sim_device_state *d, uint64_t bytes)
{
    const uint64_t memory = sim_options.memory[d - devices];
    for (int attempt = 0; attempt < 2; attempt++) {
        const uint64_t used = d->shared->used;
        if (used <= memory && bytes <= memory - used)
            return true;
        if (attempt == 0)
            reap(d);
    }
    return false;
}

CUresult sim_memory_take(int device, uint64_t bytes)
{
    struct sim_device_state *d = &devices[device];
    enter(d);
    const bool fits = has_room(d, bytes);
    if (fits) {
        d->shared->slot[d->slot].bytes += bytes;
        d->shared->used += bytes;
    }
    leave(d);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_memory_own(int device, uint64_t *bytes, uint64_t *frames)
{
    struct sim_device_state *d = &devices[device];
    enter(d);
    reap(d);
    *bytes = d->shared->slot[d->slot].bytes;
    *frames = d->shared->slot[d->slot].made;
    leave(d);
}

void sim_memory_give(int device, uint64_t bytes)
{
    struct sim_device_state *d = &devices[device];
    enter(d);
    d->shared->slot[d->slot].bytes -= bytes;
    d->shared->used -= bytes;
    leave(d);
}

void sim_memory_info(int device, uint64_t *free_bytes, uint64_t *total)
{
    struct sim_device_state *d = &devices[device];
    enter(d);
    reap(d);
    const uint64_t used = d->shared->used;
    leave(d);
    *total = sim_options.memory[device];
    *free_bytes = used < *total ? *total - used : 0;
}

CUresult sim_frame_add(int device, uint64_t bytes, uint64_t *id)
{
    struct sim_device_state *d = &devices[device];
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    enter(d);
    struct state *s = d->shared;
    if (has_room(d, bytes)) {
        uint32_t index = s->n_frames;
        for (uint32_t i = 0; index >= FRAMES && i < FRAMES; i++) {
            if (s->frame[i].id == 0)
                index = i;
        }
        if (index < FRAMES) {
            *id = ++s->serial << INDEX_BITS | index;
            add_frame(s, index, *id, bytes, d->slot);
            result = CUDA_SUCCESS;
        }
    }
    leave(d);
    return result;
}

void sim_frame_hold(int device, uint64_t id, uint64_t bytes)
{
    struct sim_device_state *d = &devices[device];
    enter(d);
    struct state *s = d->shared;
    struct state_frame *f = find_frame(s, id);
    if (f == NULL) {
        const uint32_t index = (uint32_t)(id & (FRAMES - 1));
        if (s->frame[index].id == 0) {
            add_frame(s, index, id, bytes, d->slot);
            s->frame[index].is_exported = 1;
        }
    } else {
        uint64_t held = 0;
        for (uint32_t w = 0; w < SLOTS / 64; w++)
            held |= f->holders[w];
        s->orphans -= held == 0;
        f->holders[d->slot / 64] |= 1ull << d->slot % 64;
    }
    leave(d);
}

void sim_frame_drop(int device, uint64_t id)
{
    struct sim_device_state *d = &devices[device];
    enter(d);
    struct state_frame *f = find_frame(d->shared, id);
    if (f != NULL && (f->holders[d->slot / 64] >> d->slot % 64 & 1) != 0)
        drop_holder(d->shared, f, d->slot);
    leave(d);
}

void sim_frame_exported(int device, uint64_t id)
{
    struct sim_device_state *d = &devices[device];
    enter(d);
    struct state_frame *f = find_frame(d->shared, id);
    if (f != NULL)
        f->is_exported = 1;
    leave(d);
}

uint64_t sim_frame_number(void)
{
    struct sim_device_state *d = &devices[0];
    enter(d);
    const uint64_t id = ++d->shared->serial << INDEX_BITS;
    leave(d);
    return id;
}

/* ---- the link ---- */

void sim_link_count(int device, int engine, uint64_t bytes)
{
    atomic_fetch_add(&devices[device].crossed[engine], bytes);
}

uint64_t sim_engine_book(int device, int engine, uint64_t bytes)
{
    _Atomic uint64_t *booked = &devices[device].shared->engine[engine];
    const uint64_t ns = (uint64_t)((double)bytes * 1e9 / (double)sim_options.copy_rate);
    uint64_t until = atomic_load(booked);
    uint64_t end;
    do {
        const uint64_t now = sim_now();
        end = (until > now ? until : now) + ns;
    } while (!atomic_compare_exchange_weak(booked, &until, end));
    return end;
}
