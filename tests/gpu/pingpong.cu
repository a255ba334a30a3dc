/*
 * A plain runtime-API program, linked with the static cudart: fills --gib GiB of device memory with a known
 * pattern, and each iteration verifies and rewrites every byte of it. Two of them that do not fit the budget
 * together make gpumux move all of their memory at every switch.
 *
 *     pingpong --gib N [--iterations N] [--seconds S] [--seed N] [--pieces N] [--ready FILE]
 *
 * The last line is PASS or FAIL with the mismatches; exit code 0, 1 (wrong data), 2 (usage), 3 (CUDA error).
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../programs/kernels.cu"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            printf("FAIL %s: error %d %s\n", #call, (int)error_, cudaGetErrorName(error_));        \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t next_seed(uint64_t seed)
{
    return seed * 6364136223846793005ull + 1442695040888963407ull;
}

int main(int argc, char **argv)
{
    double gib = 1, seconds = 0;
    uint64_t iterations = 0, seed = 1, pieces = 8;
    const char *ready = nullptr;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (!strcmp(argv[i], "--gib"))
            gib = atof(value);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(value);
        else if (!strcmp(argv[i], "--iterations"))
            iterations = strtoull(value, nullptr, 10);
        else if (!strcmp(argv[i], "--seed"))
            seed = strtoull(value, nullptr, 10);
        else if (!strcmp(argv[i], "--pieces"))
            pieces = strtoull(value, nullptr, 10);
        else if (!strcmp(argv[i], "--ready"))
            ready = value;
        else {
            fprintf(stderr, "pingpong: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    if (argc % 2 == 0 || gib <= 0 || pieces == 0) {
        fprintf(stderr, "pingpong: options take values; --gib and --pieces are positive\n");
        return 2;
    }
    if (iterations == 0 && seconds == 0)
        iterations = 1;

    const uint64_t words = (uint64_t)(gib * 1073741824.0) / 8 / pieces;
    std::vector<uint64_t *> memory(pieces);
    std::vector<uint64_t> seeds(pieces);
    unsigned long long *counter, wrong = 0;
    CHECK(cudaMalloc(&counter, sizeof(*counter)));
    CHECK(cudaMemset(counter, 0, sizeof(*counter)));
    for (uint64_t p = 0; p < pieces; p++) {
        seeds[p] = next_seed(seed + p * 1000003);
        CHECK(cudaMalloc(&memory[p], words * 8));
        gm_fill<<<1024, 256>>>(memory[p], words, seeds[p]);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    if (ready != nullptr) {
        FILE *file = fopen(ready, "w");
        if (file == nullptr) {
            printf("FAIL cannot make %s\n", ready);
            return 1;
        }
        fclose(file);
    }

    using clock = std::chrono::steady_clock;
    auto start = clock::now();
    auto elapsed = [&] { return std::chrono::duration<double>(clock::now() - start).count(); };
    uint64_t done = 0;
    while (done < iterations || elapsed() < seconds) {
        for (uint64_t p = 0; p < pieces; p++) {
            uint64_t next = next_seed(seeds[p]);
            gm_verify_refill<<<1024, 256>>>(memory[p], words, seeds[p], next, counter);
            CHECK(cudaGetLastError());
            seeds[p] = next;
        }
        CHECK(cudaMemcpy(&wrong, counter, sizeof(wrong), cudaMemcpyDeviceToHost));
        done++;
        if (wrong != 0)
            break;
    }
    for (uint64_t p = 0; p < pieces; p++) {
        gm_verify<<<1024, 256>>>(memory[p], words, seeds[p], counter);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaMemcpy(&wrong, counter, sizeof(wrong), cudaMemcpyDeviceToHost));
    double took = elapsed();
    for (uint64_t p = 0; p < pieces; p++)
        CHECK(cudaFree(memory[p]));
    CHECK(cudaFree(counter));
    printf("%s mismatches=%llu iterations=%llu bytes=%llu seconds=%.2f\n", wrong ? "FAIL" : "PASS", wrong,
           (unsigned long long)done, (unsigned long long)(words * 8 * pieces), took);
    return wrong != 0;
}
