/*
 * Memory that outlives the daemon: each "daemon" here is a process that is killed, with the driver
 * of simcuda, where memory lives as long as somebody has a descriptor of it. The next one takes
 * what it left, and finds in it what it had written.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/chunk.h"
#include "daemon/memory/files.h"
#include "daemon/memory/frames.h"

#define PATIENCE_MS 60000
#define GPU 3u /* as which the frames are kept */
#define WORDS 64u

static const struct gm_cuda cuda = {
#define GM_CUDA(symbol) .symbol = symbol,
#include "daemon/memory/cuda.def"
#undef GM_CUDA
};
static char folder[64], path[96];
static pid_t keeper;

/* In a process whose end tells. */
#define require(is)                                                                                \
    do {                                                                                           \
        if (!(is)) {                                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #is);                       \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void start(rlim_t files)
{
    keeper = fork();
    if (keeper == 0) {
        const struct rlimit limit = {files, files};
        setrlimit(RLIMIT_NOFILE, &limit);
        execl(GM_KEEPER, "gpumux-keeper", "--socket", path, (char *)NULL);
        _exit(127);
    }
    assert_true(keeper > 0);
}

static void stop(void)
{
    kill(keeper, SIGKILL);
    waitpid(keeper, NULL, 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/gm-outlives.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/keeper.sock", folder);
    start(1024);
    return setenv("SIMCUDA_DIR", folder, 1);
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    stop();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? 0 : -1;
}

/* ---- daemons ---- */

static struct {
    struct gm_kept *kept;
    struct gm_frames frames;
    CUcontext context;
} one;

static void begin(void)
{
    CUdevice device;
    require(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS);
    require(cuDevicePrimaryCtxRetain(&one.context, device) == CUDA_SUCCESS);
    require(cuCtxSetCurrent(one.context) == CUDA_SUCCESS);
    require(gm_kept_open(&one.kept) == 0);
    int error = -ENOENT;
    for (int i = 0; (error == -ENOENT || error == -ECONNREFUSED) && i < PATIENCE_MS; i++) {
        error = gm_kept_connect(one.kept, path);
        usleep(1000);
    }
    require(error == 0);
    require(gm_kept_take(one.kept) == 0);
    require(gm_frames_open(&one.frames, &cuda, device, 64) == 0);
    gm_frames_keep(&one.frames, one.kept, GPU);
}

/* Run it as a process that is then killed. */
static void daemon_is(void (*does)(void))
{
    const pid_t pid = fork();
    if (pid == 0) {
        begin();
        does();
        raise(SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void write_at(CUdeviceptr at, uint64_t bytes, uint32_t number)
{
    uint32_t words[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = number + i;
    require(cuMemcpyHtoD_v2(at, words, sizeof words) == CUDA_SUCCESS);
    require(cuMemcpyHtoD_v2(at + bytes - sizeof words, words, sizeof words) == CUDA_SUCCESS);
}

static bool is_at(CUdeviceptr at, uint64_t bytes, uint32_t number)
{
    uint32_t first[WORDS], last[WORDS];
    require(cuMemcpyDtoH_v2(first, at, sizeof first) == CUDA_SUCCESS);
    require(cuMemcpyDtoH_v2(last, at + bytes - sizeof last, sizeof last) == CUDA_SUCCESS);
    for (uint32_t i = 0; i < WORDS; i++)
        if (first[i] != number + i || last[i] != number + i)
            return false;
    return true;
}

static uint32_t count(enum gm_kept_kind kind)
{
    uint32_t n = 0, at = GM_NONE;
    while ((at = gm_kept_next(one.kept, kind, GPU, at)) != GM_NONE)
        n++;
    return n;
}

/* ---- frames ---- */

static uint64_t bytes_of(uint32_t frame)
{
    return gm_class_bytes(frame % GM_CHUNK_CLASSES);
}

static void makes_frames(void)
{
    for (uint32_t i = 0; i < 12; i++) {
        require(gm_frames_create(&one.frames, i, bytes_of(i)) == CUDA_SUCCESS);
        write_at(one.frames.handles[i].va, bytes_of(i), 1000 * i);
    }
    gm_frames_destroy(&one.frames, 4, bytes_of(4));
}

static void import_frame(uint32_t i, uint64_t *id)
{
    const int fd = gm_kept_claim(one.kept, GM_KEPT_FRAME, GPU, i, id);
    require(fd >= 0);
    require(gm_frames_import(&one.frames, i, bytes_of(i), fd, (uint32_t)*id) == CUDA_SUCCESS);
    require(one.frames.handles[i].id == *id);
    require(is_at(one.frames.handles[i].va, bytes_of(i), 1000 * i));
}

static void takes_frames(void)
{
    uint64_t id = 0, most = 0;
    require(count(GM_KEPT_FRAME) == 11);
    require(gm_kept_claim(one.kept, GM_KEPT_FRAME, GPU, 4, &id) == -1);
    for (uint32_t i = 0; i < 12; i++) {
        if (i == 4 || i == 9)
            continue;
        import_frame(i, &id);
        most = id > most ? id : most;
    }
    gm_kept_settle(one.kept); /* nobody's: 9 */
    require(gm_frames_create(&one.frames, 20, bytes_of(20)) == CUDA_SUCCESS);
    require(one.frames.handles[20].id > most); /* whoever has an old one is not mistaken */
    write_at(one.frames.handles[20].va, bytes_of(20), 20000);
    gm_frames_destroy(&one.frames, 5, bytes_of(5));
}

static void takes_them_again(void)
{
    uint64_t id;
    require(count(GM_KEPT_FRAME) == 10);
    for (uint32_t i = 0; i < 21; i++)
        if ((i < 12 && i != 4 && i != 5 && i != 9) || i == 20)
            import_frame(i, &id);
    require(count(GM_KEPT_FRAME) == 0);
}

static void test_frames(void **state)
{
    (void)state;
    daemon_is(makes_frames);
    daemon_is(takes_frames);
    daemon_is(takes_them_again);
}

/* Memory that is not of that size, and what is no memory: nothing is left of it. */
static void takes_what_is_none(void)
{
    uint64_t id;
    const uint32_t before = gm_files_count();
    int fd = gm_kept_claim(one.kept, GM_KEPT_FRAME, GPU, 0, &id);
    require(gm_frames_import(&one.frames, 0, GM_CHUNK_MAX, fd, 1) != CUDA_SUCCESS);
    require(gm_files_count() == before - 1);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    require(gm_frames_import(&one.frames, 1, GM_CHUNK_MIN, fd, 1) != CUDA_SUCCESS);
    require(gm_files_count() == before - 1);
}

static void finds_it_gone(void)
{
    require(gm_kept_next(one.kept, GM_KEPT_FRAME, GPU, GM_NONE) == 1);
}

static void test_no_frames(void **state)
{
    (void)state;
    daemon_is(makes_frames);
    daemon_is(takes_what_is_none);
    daemon_is(finds_it_gone);
}

/* The keeper can hold no more: no frame is made, and the reason is files. */
static void makes_too_many(void)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t n = 0;
    while (n < 64 && (result = gm_frames_create(&one.frames, n, GM_CHUNK_MIN)) == CUDA_SUCCESS)
        n++;
    require(n == 23 && result == CUDA_ERROR_OPERATING_SYSTEM);
    const uint32_t files = gm_files_count();
    size_t free_bytes, left, total;
    require(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
    require(gm_frames_create(&one.frames, n, GM_CHUNK_MIN) == CUDA_ERROR_OPERATING_SYSTEM);
    require(cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS && left == free_bytes);
    require(gm_files_count() == files);
    gm_frames_destroy(&one.frames, 0, GM_CHUNK_MIN);
    require(gm_frames_create(&one.frames, 30, GM_CHUNK_MIN) == CUDA_SUCCESS);
}

static void test_full(void **state)
{
    (void)state;
    stop();
    start(340);
    daemon_is(makes_too_many);
}

#define OUTLIVES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {OUTLIVES(test_frames), OUTLIVES(test_no_frames),
                                       OUTLIVES(test_full)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
