/*
 * Tries on a real driver what the ledger rests on (core/ledger.h, OUT): a process copies frames
 * out, has the GPU count that in a page of a memfd, and lets the frames be overwritten by work that
 * waits for the copies' events. It is killed at random moments. Then, for every frame: what was
 * counted lies whole in host memory, and what was not counted is whole in the frame, which outlives
 * the process.
 *
 *   cc -O2 -I/usr/local/cuda/include -o out_counter tests/gpu/out_counter.c -lcuda && ./out_counter
 * [KILLS]
 *
 * Prints one line a hundred kills, and two tables last: what was wrong, and what the count costs
 * (copies out one after the other, an event behind each, with the count and without). Ends with 0
 * if nothing was wrong.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FRAMES 8u
#ifndef BYTES
#define BYTES (32ull << 20)
#endif
#define PAGE 4096u

static uint32_t *pages;             /* FRAMES * 2 of BYTES: each frame's last two copies */
static volatile uint64_t *counters; /* [0] copies out; [PAGE / 8] fills: a page each */

static void check(CUresult result, const char *what)
{
    const char *name = "?";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "out_counter: %s: %s\n", what, name);
    _exit(3);
}
#define OK(call) check(call, #call)

static void *shared(const char *name, size_t bytes)
{
    const int fd = memfd_create(name, 0);
    void *memory = fd < 0 || ftruncate(fd, (off_t)bytes)
                       ? MAP_FAILED
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        perror("out_counter: memfd");
        exit(2);
    }
    return memory;
}

static void send_fds(int socket, const int *fds)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int) * FRAMES)] __attribute__((aligned(16))) = {0};
    struct iovec part = {&byte, 1};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control};
    struct cmsghdr *at = CMSG_FIRSTHDR(&head);
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = SCM_RIGHTS;
    at->cmsg_len = CMSG_LEN(sizeof(int) * FRAMES);
    memcpy(CMSG_DATA(at), fds, sizeof(int) * FRAMES);
    if (sendmsg(socket, &head, 0) != 1)
        _exit(3);
}

static int take_fds(int socket, int *fds)
{
    char byte, control[CMSG_SPACE(sizeof(int) * FRAMES)] __attribute__((aligned(16)));
    struct iovec part = {&byte, 1};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control};
    if (recvmsg(socket, &head, 0) != 1 || !CMSG_FIRSTHDR(&head))
        return -1;
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&head)), sizeof(int) * FRAMES);
    return 0;
}

static CUdeviceptr map_handle(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr at;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
    OK(cuMemMap(at, BYTES, 0, handle, 0));
    OK(cuMemSetAccess(at, BYTES, &access, 1));
    return at;
}

static void enter(void)
{
    CUdevice device;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
}

/* The counters, as the GPU reaches them. */
static CUdeviceptr map_counters(void)
{
    CUdeviceptr at;
    OK(cuMemHostRegister((void *)(uintptr_t)counters, 2 * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&at, (void *)(uintptr_t)counters, 0));
    return at;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Microseconds a copy; *submit: of them until the call returned. */
static double copy_out(CUstream out, CUevent event, CUdeviceptr from, size_t bytes, int n,
                       CUdeviceptr at, double *submit)
{
    const double begin = now();
    for (int i = 0; i < n; i++) {
        OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)pages, from, bytes, out));
        if (at)
            OK(cuStreamWriteValue64(out, at, (uint64_t)i, 0));
        OK(cuEventRecord(event, out));
    }
    *submit = (now() - begin) / n * 1e6;
    OK(cuStreamSynchronize(out));
    return (now() - begin) / n * 1e6;
}

static void measure(void)
{
    CUstream out;
    CUevent event;
    CUdeviceptr from;
    enter();
    const CUdeviceptr at = map_counters();
    OK(cuMemHostRegister(pages, FRAMES * 2 * BYTES, 0));
    OK(cuMemAlloc(&from, BYTES));
    OK(cuMemsetD32(from, 1, BYTES / 4));
    OK(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    printf("\n| bytes | us a copy | of them to submit | us with the count | to submit |\n");
    for (size_t bytes = 2 << 20; bytes <= BYTES; bytes *= 4) {
        double plain = 1e9, counted = 1e9, submit = 0, submit_counted = 0;
        for (int round = 0; round < 7; round++) { /* the best of them */
            double one, other;
            const double a = copy_out(out, event, from, bytes, 200, 0, &one);
            const double b = copy_out(out, event, from, bytes, 200, at, &other);
            if (a < plain)
                plain = a, submit = one;
            if (b < counted)
                counted = b, submit_counted = other;
        }
        printf("| %zu | %.2f | %.2f | %.2f | %.2f |\n", bytes, plain, submit, counted,
               submit_counted);
    }
}

/* Number n is of frame (n - 1) % FRAMES, which then holds n everywhere. */
static void work(int socket)
{
    CUstream out, in;
    CUevent copied[FRAMES], filled[FRAMES];
    CUdeviceptr frames[FRAMES];
    int fds[FRAMES];
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    enter();
    OK(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr count_at = map_counters();
    OK(cuMemHostRegister(pages, FRAMES * 2 * BYTES, 0));
    for (uint32_t i = 0; i < FRAMES; i++) {
        CUmemGenericAllocationHandle handle;
        OK(cuMemCreate(&handle, BYTES, &prop, 0));
        OK(cuMemExportToShareableHandle(&fds[i], handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        0));
        frames[i] = map_handle(handle);
        OK(cuEventCreate(&copied[i], CU_EVENT_DISABLE_TIMING));
        OK(cuEventCreate(&filled[i], CU_EVENT_DISABLE_TIMING));
        OK(cuMemsetD32Async(frames[i], i + 1, BYTES / 4, in));
        OK(cuEventRecord(filled[i], in));
    }
    OK(cuStreamSynchronize(in));
    counters[PAGE / 8] = FRAMES;
    send_fds(socket, fds);
    for (uint64_t n = 1;; n++) {
        const uint32_t i = (uint32_t)((n - 1) % FRAMES);
        uint32_t *to = pages + (i * 2 + (n - 1) / FRAMES % 2) * (BYTES / 4);
        OK(cuStreamWaitEvent(out, filled[i], 0));
        OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, frames[i], BYTES, out));
        OK(cuStreamWriteValue64(out, count_at, n, 0));
        OK(cuEventRecord(copied[i], out));
        OK(cuStreamWaitEvent(in, copied[i], 0));
        OK(cuMemsetD32Async(frames[i], (unsigned)(n + FRAMES), BYTES / 4, in));
        OK(cuStreamWriteValue64(in, count_at + PAGE, n + FRAMES, 0));
        OK(cuEventRecord(filled[i], in));
        if (n % 64 == 0)
            OK(cuStreamSynchronize(in)); /* not too many at once */
    }
}

/* How many words are not `n`. */
static uint64_t wrong_words(const uint32_t *words, uint64_t n)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < BYTES / 4; i++)
        wrong += words[i] != (uint32_t)n;
    return wrong;
}

/* In a process of its own. Returns how many frames were wrong. */
static int look(const int *fds)
{
    const uint64_t out = counters[0], fills = counters[PAGE / 8];
    int wrong = 0;
    enter();
    uint32_t *copy;
    OK(cuMemHostAlloc((void **)&copy, BYTES, 0));
    for (uint32_t i = 0; i < FRAMES; i++) {
        CUmemGenericAllocationHandle handle;
        OK(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fds[i],
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        const CUdeviceptr at = map_handle(handle);
        OK(cuMemcpyDtoH(copy, at, BYTES));
        /* The last that was counted of this frame, and the next. */
        const uint64_t last = out > i ? out - (out - i - 1) % FRAMES : 0;
        const uint64_t next = last ? last + FRAMES : i + 1;
        if (last) {
            const uint64_t bad =
                wrong_words(pages + (i * 2 + (last - 1) / FRAMES % 2) * (BYTES / 4), last);
            if (bad)
                printf("frame %u: copy %lu was counted, and %lu words of it are not there\n", i,
                       (unsigned long)last, (unsigned long)bad);
            wrong += bad != 0;
        }
        const uint64_t bad = fills >= next ? wrong_words(copy, next) : 0;
        if (bad)
            printf("frame %u: %lu was not copied yet, and %lu words of it are overwritten\n", i,
                   (unsigned long)next, (unsigned long)bad);
        wrong += bad != 0;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    const int kills = argc > 1 ? atoi(argv[1]) : 1000;
    unsigned long wrong = 0, copies = 0, middle = 0;
    pages = shared("out-counter-pages", FRAMES * 2 * BYTES);
    counters = shared("out-counter", 2 * PAGE);
    srandom(33);
    for (int kill_number = 1; kill_number <= kills; kill_number++) {
        int sockets[2], fds[FRAMES], status = 0;
        counters[0] = counters[PAGE / 8] = 0;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
            return 2;
        fflush(stdout);
        const pid_t worker = fork();
        if (worker == 0) {
            close(sockets[0]);
            work(sockets[1]);
        }
        close(sockets[1]);
        if (take_fds(sockets[0], fds)) {
            fprintf(stderr, "out_counter: the worker does not begin\n");
            return 2;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000 + random() % 60000000}, NULL);
        kill(worker, SIGKILL);
        waitpid(worker, &status, 0);
        copies += counters[0];
        middle += counters[0] + FRAMES != counters[PAGE / 8];
        const pid_t looker = fork();
        if (looker == 0) {
            const int bad = look(fds);
            fflush(stdout);
            _exit(bad);
        }
        waitpid(looker, &status, 0);
        wrong += WIFEXITED(status) ? (unsigned)WEXITSTATUS(status) : 100;
        for (uint32_t i = 0; i < FRAMES; i++)
            close(fds[i]);
        close(sockets[0]);
        if (kill_number % 100 == 0)
            printf("%d kills, %lu wrong\n", kill_number, wrong);
    }
    printf("\n| kills | in the middle of a frame | copies counted | frames wrong |\n| %d | %lu | "
           "%lu | "
           "%lu |\n",
           kills, middle, copies, wrong);
    fflush(stdout);
    const pid_t measurer = fork();
    if (measurer == 0) {
        measure();
        fflush(stdout);
        _exit(0);
    }
    waitpid(measurer, NULL, 0);
    return wrong != 0;
}
