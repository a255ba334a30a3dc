/*
 * MPS: cuInit joins the control daemon that listens in CUDA_MPS_PIPE_DIRECTORY (mps_control.c).
 * Where none was ever started the program runs as usual, as NVIDIA's manual says; where one has
 * died, refuses it, or whose server is not ready, it does not start. A client has no channels of
 * its own, and as many multiprocessors as CUDA_MPS_ACTIVE_THREAD_PERCENTAGE said then. (What lies
 * in /tmp/nvidia-mps is not looked at: it may be a real one.)
 */
#include "tests/simcuda/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

CUresult sim_mps_join(void)
{
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char answer[8] = "";
    if (pipe == NULL || pipe[0] == '\0' ||
        snprintf(at.sun_path, sizeof at.sun_path, "%s/control", pipe) >= (int)sizeof at.sun_path)
        return CUDA_SUCCESS;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    const bool is_there = connect(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    if (!is_there && errno == ENOENT) {
        close(fd);
        return CUDA_SUCCESS;
    }
    if (!is_there || write(fd, "client\n", 7) != 7 || read(fd, answer, sizeof answer - 1) <= 0 ||
        strcmp(answer, "ok\n") != 0) {
        close(fd);
        return strcmp(answer, "not\n") == 0 ? CUDA_ERROR_MPS_SERVER_NOT_READY
                                            : CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    sim_options.has_mps = true; /* the connection stays until the process ends */
    sim_options.has_no_channels = true;
    const char *part = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const double percent = part != NULL ? strtod(part, NULL) : 0;
    sim_options.mps_percent = percent > 0 && percent < 100 ? percent : 100;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/parts", pipe);
    FILE *parts = sim_options.mps_percent < 100 ? fopen(at.sun_path, "ae") : NULL; /* for tests */
    if (parts != NULL) {
        fprintf(parts, "%d %g\n", (int)getpid(), percent);
        fclose(parts);
    }
    return CUDA_SUCCESS;
}
