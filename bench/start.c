/*
 * bench_start: a program that is there for one kernel, for bench/starts.py. It knows nothing of
 * gpumux.
 *
 *   start --bytes SIZE [--piece SIZE] [--from NS] [--hold FD]
 *
 * It opens the GPU, allocates --bytes in pieces of --piece (512 MiB), and runs a kernel on each
 * that writes its first word. Then it prints, in milliseconds since --from of the monotonic clock
 * (since it began, without that), when main() began, the driver was there, the context, and the
 * kernel's module; when the memory was there and the kernel had run:
 *
 *   main_ms=M init_ms=M context_ms=M open_ms=M memory_ms=M kernel_ms=M
 *
 * With the end of its input it frees all and ends. With --hold the memory is frames of its own
 * making, mapped at addresses of its own, and a descriptor of each goes over that socket before it
 * is mapped: what a client would do whose frames others hold.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/device.h"
#include "bench/report.h"

static struct gm_bench_device gpu;
static uint64_t bytes, piece = 512ull << 20, from, hold;
static CUdeviceptr *pieces;

/* The descriptor of a frame, to who holds it; one byte comes back. */
static void hand_over(int frame)
{
    char byte = 0, room[CMSG_SPACE(sizeof frame)] = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof frame);
    memcpy(CMSG_DATA(head), &frame, sizeof frame);
    if (sendmsg((int)hold, &message, 0) != 1 || read((int)hold, &byte, 1) != 1)
        gm_bench_fail(1, "nobody holds the frames");
    close(frame);
}

static CUdeviceptr make_own(uint64_t size)
{
    const CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.device};
    const CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .requestedHandleTypes =
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     .location = where};
    const CUmemAccessDesc access = {.location = where, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    int frame;
    GM_CU(&gpu, cuMemCreate, &handle, size, &how, 0);
    GM_CU(&gpu, cuMemExportToShareableHandle, &frame, handle,
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    hand_over(frame);
    GM_CU(&gpu, cuMemAddressReserve, &at, size, 0, 0, 0);
    GM_CU(&gpu, cuMemMap, at, size, 0, handle, 0);
    GM_CU(&gpu, cuMemSetAccess, at, size, &access, 1);
    GM_CU(&gpu, cuMemRelease, handle);
    return at;
}

static void free_own(CUdeviceptr at, uint64_t size)
{
    GM_CU(&gpu, cuMemUnmap, at, size);
    GM_CU(&gpu, cuMemAddressFree, at, size);
}

int main(int argc, char **argv)
{
    const uint64_t begun = gm_now();
    const struct gm_option options[] = {
        {"--bytes", GM_OPTION_SIZE, &bytes, 1, UINT64_MAX},
        {"--piece", GM_OPTION_SIZE, &piece, 2ull << 20, UINT64_MAX},
        {"--from", GM_OPTION_NUMBER, &from, 1, UINT64_MAX},
        {"--hold", GM_OPTION_NUMBER, &hold, 0, INT32_MAX},
    };
    const bool is_right =
        gm_options_take(argc, argv, options, sizeof(options) / sizeof(options[0]));
    piece &= ~((2ull << 20) - 1);
    const uint64_t n = is_right ? (bytes + piece - 1) / piece : 0;
    from = from > 0 ? from : begun;
    pieces = calloc(n, sizeof *pieces);
    if (n == 0 || pieces == NULL) {
        fprintf(stderr, "usage: start --bytes SIZE [--piece SIZE] [--from NS] [--hold FD]\n");
        return 2;
    }
    const char *why = gm_bench_open(&gpu);
    if (why != NULL)
        gm_bench_fail(3, "no CUDA driver: %s not found", why);
    CUfunction kernel;
    GM_CU(&gpu, cuModuleGetFunction, &kernel, gpu.module, "gm_fill");
    const double open_ms = gm_bench_ms_since(from);
    for (uint64_t i = 0; i < n; i++) {
        if (hold > 0)
            pieces[i] = make_own(piece);
        else
            GM_CU(&gpu, cuMemAlloc, &pieces[i], piece);
    }
    const double memory_ms = gm_bench_ms_since(from);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t words = 1, seed = i;
        void *args[] = {&pieces[i], &words, &seed};
        GM_CU(&gpu, cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
    }
    GM_CU(&gpu, cuCtxSynchronize, );
    const double kernel_ms = gm_bench_ms_since(from);
    printf("main_ms=%.3f init_ms=%.3f context_ms=%.3f open_ms=%.3f memory_ms=%.3f kernel_ms=%.3f\n",
           (double)(begun - from) / (double)GM_MS, (double)(gpu.initialized - from) / (double)GM_MS,
           (double)(gpu.has_context - from) / (double)GM_MS, open_ms, memory_ms, kernel_ms);
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    for (uint64_t i = 0; i < n; i++) {
        if (hold > 0)
            free_own(pieces[i], piece);
        else
            GM_CU(&gpu, cuMemFree, pieces[i]);
    }
    gm_bench_close(&gpu);
    free(pieces);
    return 0;
}
