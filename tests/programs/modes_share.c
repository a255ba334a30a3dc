/*
 * gm_worker's modes about memory that several processes have: one shares it, the others open it.
 * See worker.h. They meet in the file --signal, which every one of them maps, and write the memory
 * in turn: whose turn it is verifies what the one before wrote.
 */
#include "tests/programs/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/share.h"

#define MEMBERS_MAX 8u
#define BUFFERS_MAX 64u
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

struct gm_meeting {
    _Atomic uint32_t is_made; /* by the owner: all below is there */
    _Atomic uint32_t openers; /* that have come */
    _Atomic uint32_t closed;  /* ... and have closed everything */
    _Atomic uint32_t turn;    /* turns taken; the owner's first */
    _Atomic uint32_t is_over; /* no more turns */
    uint32_t members;         /* the owner and --threads openers */
    int32_t owner;            /* pid */
    uint32_t n;
    uint64_t bytes; /* of each buffer */
    uint64_t seed[BUFFERS_MAX];
    CUipcMemHandle handle[BUFFERS_MAX];
};

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2 * (long)GM_MS}, NULL);
}

static struct gm_meeting *meet(const struct gm_worker *worker)
{
    struct gm_meeting *meeting = MAP_FAILED;
    if (worker->signal == NULL)
        gm_fail(worker, "--signal is missing");
    int fd = open(worker->signal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof(*meeting)) == 0)
        meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || meeting == MAP_FAILED)
        gm_fail(worker, "%s: %s", worker->signal, strerror(errno));
    close(fd);
    return meeting;
}

static bool is_alive(const struct gm_meeting *meeting)
{
    return kill(meeting->owner, 0) == 0 || errno == EPERM;
}

/* Wait for the turn of member `me`. False: there are no more, or the owner is gone. */
static bool wait_for_turn(const struct gm_meeting *meeting, uint32_t me)
{
    while (atomic_load(&meeting->turn) % meeting->members != me) {
        if (atomic_load(&meeting->is_over) || !is_alive(meeting))
            return false;
        rest();
    }
    return !atomic_load(&meeting->is_over);
}

static void take_turn(struct gm_worker *worker, struct gm_meeting *meeting,
                      struct gm_buffer *buffers, const struct gm_counter *counter)
{
    for (uint32_t i = 0; i < meeting->n; i++) {
        buffers[i].seed = meeting->seed[i];
        gm_buffer_turn(worker, &buffers[i], counter, NULL);
    }
    worker->mismatches += gm_counter_read(worker, counter, NULL);
    for (uint32_t i = 0; i < meeting->n; i++)
        meeting->seed[i] = buffers[i].seed;
    worker->done++;
    atomic_fetch_add(&meeting->turn, 1);
}

/*
 * Share --allocs buffers of --bytes together with --threads openers, and take turns with them for
 * --iterations turns. Then:
 *
 *   share       wait until all have closed them, then free them
 *   share-free  free them while they are open, and wait until all have closed them
 *   share-only  the same as share, without turns
 *   share-stay  say so (the file --go), and do nothing any more until killed
 */
static void share(struct gm_worker *worker, bool is_freeing, bool is_staying, bool has_turns)
{
    struct gm_meeting *meeting = meet(worker);
    const char *ready = worker->ready, *go = worker->go;
    struct gm_counter counter;
    worker->ready = worker->go = NULL; /* it is ready when it has shared, and waits for nobody */
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    gm_counter_make(worker, &counter);
    if (worker->allocs > BUFFERS_MAX || worker->threads + 1 > MEMBERS_MAX)
        gm_fail(worker, "too many");
    GM_CU(worker, cuStreamSynchronize, NULL);
    meeting->members = worker->threads + 1;
    meeting->owner = (int32_t)getpid();
    meeting->n = worker->allocs;
    meeting->bytes = buffers[0].bytes;
    for (uint32_t i = 0; i < worker->allocs; i++) {
        meeting->seed[i] = buffers[i].seed;
        GM_CU(worker, cuIpcGetMemHandle, &meeting->handle[i], buffers[i].at);
    }
    atomic_store(&meeting->is_made, 1);
    worker->ready = ready;
    gm_say_ready(worker);

    while (has_turns && gm_is_more(worker, worker->done) && wait_for_turn(meeting, 0))
        take_turn(worker, meeting, buffers, &counter);
    /* The last turn is an opener's: none of them is in the middle of one after it. */
    while (atomic_load(&meeting->turn) % meeting->members != 0)
        rest();
    while (is_staying) {
        int fd = go == NULL ? -1 : open(go, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
        pause();
    }
    atomic_store(&meeting->is_over, 1);
    if (is_freeing)
        gm_buffers_free(worker, buffers);
    while (atomic_load(&meeting->closed) < worker->threads)
        rest();
    if (!is_freeing)
        gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
    munmap(meeting, sizeof(*meeting));
}

void gm_mode_share(struct gm_worker *worker)
{
    const char *mode = worker->mode;
    share(worker, strcmp(mode, "share-free") == 0, strcmp(mode, "share-stay") == 0,
          strcmp(mode, "share-only") != 0);
}

static void expect(const struct gm_worker *worker, CUresult result, CUresult expected,
                   const char *what)
{
    if (result != expected)
        gm_fail(worker, "%s: error %d, expected %d", what, (int)result, (int)expected);
}

static struct gm_buffer *open_all(struct gm_worker *worker, const struct gm_meeting *meeting)
{
    struct gm_buffer *buffers = calloc(meeting->n, sizeof(*buffers));
    if (buffers == NULL)
        gm_fail(worker, "no host memory");
    worker->bytes = meeting->n * meeting->bytes;
    for (uint32_t i = 0; i < meeting->n; i++) {
        CUdeviceptr again = 0;
        buffers[i].bytes = meeting->bytes;
        GM_CU(worker, cuIpcOpenMemHandle, &buffers[i].at, meeting->handle[i], LAZY);
        GM_CU(worker, cuIpcOpenMemHandle, &again, meeting->handle[i], LAZY);
        if (again != buffers[i].at)
            gm_fail(worker, "opened again it is elsewhere");
        expect(worker, worker->cu.cuMemFree(again), CUDA_ERROR_INVALID_VALUE,
               "free what is opened");
    }
    return buffers;
}

static void close_all(struct gm_worker *worker, const struct gm_meeting *meeting,
                      struct gm_buffer *buffers)
{
    for (uint32_t i = 0; i < meeting->n; i++) {
        GM_CU(worker, cuIpcCloseMemHandle, buffers[i].at);
        GM_CU(worker, cuIpcCloseMemHandle, buffers[i].at);
        expect(worker, worker->cu.cuIpcCloseMemHandle(buffers[i].at), CUDA_ERROR_INVALID_VALUE,
               "close it once too often");
    }
    free(buffers);
}

/* A forked child has nothing open, and disturbs nothing by ending. */
static void fork_beside(const struct gm_worker *worker, const struct gm_buffer *buffer)
{
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(worker->cu.cuIpcCloseMemHandle(buffer->at) == CUDA_SUCCESS);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        gm_fail(worker, "the forked child ended with %d", status);
}

/* Close and open again while a capture is open, when nothing can be waited for. */
static void close_in_capture(const struct gm_worker *worker, const struct gm_meeting *meeting,
                             const struct gm_buffer *buffers)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr again = 0;
    GM_CU(worker, cuStreamCreate, &stream, 1);
    GM_CU(worker, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (uint32_t i = 0; i < meeting->n; i++) {
        GM_CU(worker, cuIpcCloseMemHandle, buffers[i].at);
        GM_CU(worker, cuIpcCloseMemHandle, buffers[i].at);
        GM_CU(worker, cuIpcOpenMemHandle, &again, meeting->handle[i], LAZY);
        if (again != buffers[i].at)
            gm_fail(worker, "closed and opened in a capture it is elsewhere");
        GM_CU(worker, cuIpcCloseMemHandle, again);
        GM_CU(worker, cuIpcOpenMemHandle, &again, meeting->handle[i], LAZY);
        GM_CU(worker, cuIpcOpenMemHandle, &again, meeting->handle[i], LAZY);
    }
    GM_CU(worker, cuStreamEndCapture, stream, &graph);
    GM_CU(worker, cuGraphDestroy, graph);
    GM_CU(worker, cuStreamDestroy, stream);
}

/*
 * Open what is shared and take turns, until there are no more or the owner is gone. Then verify it
 * all, at least once and until --go is there, and close it.
 */
void gm_mode_open(struct gm_worker *worker)
{
    struct gm_meeting *meeting = meet(worker);
    struct gm_counter counter;
    const char *go = worker->go;
    while (!atomic_load(&meeting->is_made))
        rest();
    gm_counter_make(worker, &counter);
    const uint32_t me = 1 + atomic_fetch_add(&meeting->openers, 1);
    struct gm_buffer *buffers = open_all(worker, meeting);
    worker->go = NULL;
    if (strcmp(worker->mode, "open-fork") == 0)
        fork_beside(worker, &buffers[0]);
    if (strcmp(worker->mode, "open-capture") == 0)
        close_in_capture(worker, meeting, buffers);
    gm_say_ready(worker);
    while (wait_for_turn(meeting, me))
        take_turn(worker, meeting, buffers, &counter);
    bool is_last;
    do {
        is_last = go == NULL || access(go, F_OK) == 0;
        for (uint32_t i = 0; i < meeting->n; i++) {
            buffers[i].seed = meeting->seed[i];
            gm_buffer_verify(worker, &buffers[i], &counter, NULL);
        }
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
        worker->done++;
        rest();
    } while (!is_last);
    close_all(worker, meeting, buffers);
    atomic_fetch_add(&meeting->closed, 1);
    gm_counter_free(worker, &counter);
    munmap(meeting, sizeof(*meeting));
}

struct racer {
    struct gm_worker *worker;
    const struct gm_meeting *meeting;
    uint32_t number;
};

static void *race(void *argument)
{
    const struct racer *racer = argument;
    const struct gm_meeting *meeting = racer->meeting;
    struct gm_worker *worker = racer->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    for (uint64_t round = 0; round < worker->iterations; round++) {
        uint32_t i = (uint32_t)((round + racer->number) % meeting->n);
        uint64_t word = 0, at = gm_mix(round, racer->number) % (meeting->bytes / 8);
        CUdeviceptr base = 0;
        GM_CU(worker, cuIpcOpenMemHandle, &base, meeting->handle[i], LAZY);
        GM_CU(worker, cuMemcpyDtoH, &word, base + 8 * at, 8);
        if (word != gm_mix(meeting->seed[i], at))
            atomic_fetch_add(&worker->mismatches, 1);
        GM_CU(worker, cuIpcCloseMemHandle, base);
    }
    return NULL;
}

/* --threads threads open and close what is shared, each --iterations times, all at once. */
void gm_mode_open_race(struct gm_worker *worker)
{
    struct gm_meeting *meeting = meet(worker);
    struct racer racers[64];
    pthread_t threads[64];
    while (!atomic_load(&meeting->is_made))
        rest();
    if (worker->threads > 64)
        gm_fail(worker, "too many threads");
    gm_say_ready(worker);
    for (uint32_t i = 0; i < worker->threads; i++) {
        racers[i] = (struct racer){worker, meeting, i};
        if (pthread_create(&threads[i], NULL, race, &racers[i]) != 0)
            gm_fail(worker, "no thread");
    }
    for (uint32_t i = 0; i < worker->threads; i++)
        pthread_join(threads[i], NULL);
    worker->done = worker->iterations;
    atomic_fetch_add(&meeting->closed, 1);
    munmap(meeting, sizeof(*meeting));
}

/* A name that gpumux made, with something else in it. */
static CUipcMemHandle forged(const CUipcMemHandle *handle, uint64_t nonce, uint64_t bytes,
                             uint32_t by)
{
    struct gm_share_name name;
    CUipcMemHandle result = *handle;
    memcpy(&name, handle, sizeof(name));
    name.nonce[0] ^= nonce;
    name.bytes += bytes;
    name.share += by;
    gm_share_seal(&name);
    memcpy(&result, &name, sizeof(name));
    return result;
}

static void misuse_handles(const struct gm_worker *worker, const struct gm_buffer *buffer,
                           CUdeviceptr small)
{
    CUipcMemHandle handle, again, garbage;
    CUdeviceptr at = 0;
    const struct gm_driver *cu = &worker->cu;
    GM_CU(worker, cuIpcGetMemHandle, &handle, buffer->at);
    GM_CU(worker, cuIpcGetMemHandle, &again, buffer->at + 4096);
    if (memcmp(&handle, &again, sizeof(handle)) != 0)
        gm_fail(worker, "an address inside has another handle");
    memset(&garbage, 0xa5, sizeof(garbage));
    expect(worker, cu->cuIpcOpenMemHandle(&at, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT,
           "open its own");
    expect(worker, cu->cuIpcOpenMemHandle(&at, handle, 0), CUDA_ERROR_INVALID_VALUE, "flags 0");
    expect(worker, cu->cuIpcOpenMemHandle(NULL, handle, LAZY), CUDA_ERROR_INVALID_VALUE, "NULL");
    expect(worker, cu->cuIpcOpenMemHandle(&at, garbage, LAZY), CUDA_ERROR_INVALID_VALUE, "garbage");
    expect(worker, cu->cuIpcOpenMemHandle(&at, forged(&handle, 1, 0, 0), LAZY),
           CUDA_ERROR_INVALID_VALUE, "a wrong nonce");
    expect(worker, cu->cuIpcOpenMemHandle(&at, forged(&handle, 0, 2u << 20, 0), LAZY),
           CUDA_ERROR_INVALID_VALUE, "a wrong size");
    expect(worker, cu->cuIpcOpenMemHandle(&at, forged(&handle, 0, 0, 99), LAZY),
           CUDA_ERROR_INVALID_VALUE, "a wrong number");
    expect(worker, cu->cuIpcCloseMemHandle(buffer->at), CUDA_ERROR_INVALID_VALUE, "close its own");
    expect(worker, cu->cuIpcCloseMemHandle(4096), CUDA_ERROR_INVALID_VALUE, "close nothing");
    expect(worker, cu->cuIpcGetMemHandle(&handle, 4096), CUDA_ERROR_INVALID_VALUE, "share nothing");
    expect(worker, cu->cuIpcGetMemHandle(NULL, buffer->at), CUDA_ERROR_INVALID_VALUE, "into NULL");
    /* the driver's own memory is the driver's to share */
    GM_CU(worker, cuIpcGetMemHandle, &again, small);
    if (memcmp(&handle, &again, sizeof(uint64_t)) == 0)
        gm_fail(worker, "small memory got a name of gpumux");
    expect(worker, cu->cuIpcOpenMemHandle(&at, again, LAZY), CUDA_ERROR_INVALID_CONTEXT,
           "open small memory in its own process");
}

/* What must be refused, and as the driver does; the last of it is memory that will move. */
void gm_mode_misuse(struct gm_worker *worker)
{
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    CUdeviceptr small;
    int fd = -1;
    GM_CU(worker, cuMemAlloc, &small, 64 << 10);
    GM_CU(worker, cuStreamSynchronize, NULL);
    gm_say_ready(worker);
    misuse_handles(worker, &buffers[0], small);
    for (uint32_t i = 0; i < worker->allocs; i++)
        expect(worker,
               worker->cu.cuMemGetHandleForAddressRange(&fd, buffers[i].at, 4096,
                                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
               CUDA_ERROR_NOT_SUPPORTED, "a dma-buf");
    GM_CU(worker, cuMemGetHandleForAddressRange, &fd, small, 4096,
          CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    close(fd);
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
    GM_CU(worker, cuMemFree, small);
    gm_buffers_free(worker, buffers);
    worker->done = 1;
}

#define ROUNDS_MAX 1000u
#define BOX_BYTES (2u << 20)

/* What two programs that are tied share: words that their GPU work writes and waits for. */
struct gm_tie {
    _Atomic uint32_t members; /* that have come */
    _Atomic uint32_t is_made[2], closed;
    uint32_t reserved[12];
    uint32_t word[2][ROUNDS_MAX]; /* of each member, by round: 1 when its work is there */
    CUipcMemHandle box[2];        /* ranks: of device memory with the words that each waits for */
};

/* Where a member writes its words, and where it waits for the other's. */
struct gm_tie_end {
    CUdeviceptr own, theirs;
};

static struct gm_tie_end tie_on_host(const struct gm_worker *worker, struct gm_tie *tie,
                                     uint32_t me)
{
    CUdeviceptr at;
    GM_CU(worker, cuMemHostRegister, tie, sizeof(*tie), CU_MEMHOSTREGISTER_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &at, tie, 0);
    at += offsetof(struct gm_tie, word);
    return (struct gm_tie_end){.own = at + me * sizeof(tie->word[0]),
                               .theirs = at + (1 - me) * sizeof(tie->word[0])};
}

/* Each waits in its own memory, and writes into the other's, which it has open. */
static struct gm_tie_end tie_by_handles(const struct gm_worker *worker, struct gm_tie *tie,
                                        uint32_t me)
{
    struct gm_tie_end end;
    GM_CU(worker, cuMemAlloc, &end.theirs, BOX_BYTES);
    GM_CU(worker, cuMemsetD32, end.theirs, 0, BOX_BYTES / 4);
    GM_CU(worker, cuCtxSynchronize);
    GM_CU(worker, cuIpcGetMemHandle, &tie->box[me], end.theirs);
    atomic_store(&tie->is_made[me], 1);
    while (!atomic_load(&tie->is_made[1 - me]))
        rest();
    GM_CU(worker, cuIpcOpenMemHandle, &end.own, tie->box[1 - me], LAZY);
    return end;
}

static void name_tie(const struct gm_worker *worker, uint32_t member, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(name->sun_path, sizeof(name->sun_path), "%s.%u", worker->signal, member);
}

/* The descriptor of each goes to the other by a socket, as NCCL's do. */
static void send_fd(const struct gm_worker *worker, uint32_t to, int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec one = {.iov_base = &(char){0}, .iov_len = 1};
    struct sockaddr_un name;
    name_tie(worker, to, &name);
    struct msghdr message = {.msg_name = &name,
                             .msg_namelen = sizeof(name),
                             .msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    control.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (from < 0 || sendmsg(from, &message, 0) != 1)
        gm_fail(worker, "%s: %s", name.sun_path, strerror(errno));
    close(from);
}

static int receive_fd(const struct gm_worker *worker, int at)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec one = {.iov_base = &(char){0}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    int fd;
    if (recvmsg(at, &message, MSG_CMSG_CLOEXEC) != 1 || CMSG_FIRSTHDR(&message) == NULL)
        gm_fail(worker, "no descriptor came");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static CUdeviceptr map_handle(const struct gm_worker *worker, CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    GM_CU(worker, cuMemAddressReserve, &at, BOX_BYTES, 0, 0, 0);
    GM_CU(worker, cuMemMap, at, BOX_BYTES, 0, handle, 0);
    GM_CU(worker, cuMemSetAccess, at, BOX_BYTES, &access, 1);
    GM_CU(worker, cuMemRelease, handle);
    return at;
}

/* The same by handles that each exports: cuMemExportToShareableHandle. */
static struct gm_tie_end tie_by_exports(const struct gm_worker *worker, struct gm_tie *tie,
                                        uint32_t me)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}};
    CUmemGenericAllocationHandle handle, imported;
    struct gm_tie_end end;
    struct sockaddr_un name;
    int fd = -1;
    const int at = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    name_tie(worker, me, &name);
    unlink(name.sun_path);
    if (at < 0 || bind(at, (const struct sockaddr *)&name, sizeof(name)) != 0)
        gm_fail(worker, "%s: %s", name.sun_path, strerror(errno));
    GM_CU(worker, cuMemCreate, &handle, BOX_BYTES, &prop, 0);
    GM_CU(worker, cuMemExportToShareableHandle, &fd, handle,
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    end.theirs = map_handle(worker, handle);
    GM_CU(worker, cuMemsetD32, end.theirs, 0, BOX_BYTES / 4);
    GM_CU(worker, cuCtxSynchronize);
    atomic_store(&tie->is_made[me], 1);
    while (!atomic_load(&tie->is_made[1 - me]))
        rest();
    send_fd(worker, 1 - me, fd);
    close(fd);
    fd = receive_fd(worker, at);
    GM_CU(worker, cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)fd,
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    close(at);
    end.own = map_handle(worker, imported);
    return end;
}

static void untie(const struct gm_worker *worker, struct gm_tie *tie, const struct gm_tie_end *end)
{
    if (strcmp(worker->mode, "tied") == 0) {
        GM_CU(worker, cuMemHostUnregister, tie);
    } else if (strcmp(worker->mode, "ranks") == 0) {
        GM_CU(worker, cuIpcCloseMemHandle, end->own);
        atomic_fetch_add(&tie->closed, 1);
        while (atomic_load(&tie->closed) % 2 != 0)
            rest();
        GM_CU(worker, cuMemFree, end->theirs);
    } else {
        GM_CU(worker, cuMemUnmap, end->own, BOX_BYTES);
        GM_CU(worker, cuMemUnmap, end->theirs, BOX_BYTES);
        GM_CU(worker, cuMemAddressFree, end->own, BOX_BYTES);
        GM_CU(worker, cuMemAddressFree, end->theirs, BOX_BYTES);
    }
}

static struct gm_tie_end tie_up(const struct gm_worker *worker, struct gm_tie *tie, uint32_t me)
{
    if (strcmp(worker->mode, "tied") == 0)
        return tie_on_host(worker, tie, me);
    return strcmp(worker->mode, "ranks") == 0 ? tie_by_handles(worker, tie, me)
                                              : tie_by_exports(worker, tie, me);
}

/*
 * Two programs, each of whose rounds waits on the GPU for the other's: as NCCL does, or an event of
 * another process. They meet in the file --signal. Neither ends unless both go on. Their words are
 *
 *   tied    in that file, which both have registered
 *   ranks   in device memory of each, which the other one has open
 *   imports ... or has imported
 */
void gm_mode_tied(struct gm_worker *worker)
{
    const char *ready = worker->ready, *go = worker->go;
    worker->ready = worker->go = NULL; /* it is ready when it has met the other */
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    struct gm_counter counter;
    struct gm_tie *tie = MAP_FAILED;
    if (worker->signal == NULL || worker->iterations > ROUNDS_MAX)
        gm_fail(worker, "--signal is missing, or more than 1000 rounds are too many");
    int fd = open(worker->signal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof(*tie)) == 0)
        tie = mmap(NULL, sizeof(*tie), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || tie == MAP_FAILED)
        gm_fail(worker, "%s: %s", worker->signal, strerror(errno));
    close(fd);
    const uint32_t me = atomic_fetch_add(&tie->members, 1) % 2;
    gm_counter_make(worker, &counter);
    const struct gm_tie_end end = tie_up(worker, tie, me);
    worker->ready = ready;
    worker->go = go;
    gm_say_ready(worker);
    for (; worker->done < worker->iterations; worker->done++) {
        CUdeviceptr theirs = end.theirs + worker->done * 4;
        void *args[] = {&theirs};
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        GM_CU(worker, cuStreamWriteValue32, NULL, end.own + worker->done * 4, 1, 0);
        gm_launch(worker, GM_KERNEL_SPIN_UNTIL, NULL, args);
        GM_CU(worker, cuStreamSynchronize, NULL);
    }
    worker->mismatches += gm_counter_read(worker, &counter, NULL);
    untie(worker, tie, &end);
    munmap(tie, sizeof(*tie));
    gm_counter_free(worker, &counter);
    gm_buffers_free(worker, buffers);
}
