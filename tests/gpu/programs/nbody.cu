/*
 * Many clusters of 256 bodies that attract each other, all pairs, one block a cluster with its
 * positions in shared memory.
 *
 * Positions and velocities are whole numbers. The pull of one body on another is computed in float,
 * rounded to whole numbers, and exactly opposite to the other's, so that each cluster's momentum
 * never changes and its center moves on a straight line: known for every step from the generator,
 * to the bit. Some clusters are simulated on the CPU too and must agree in every position and
 * velocity.
 */
#include "common.cuh"

constexpr unsigned BODIES = 256;
constexpr int STEPS = 4, FOLLOWED = 3; /* clusters simulated on the CPU */
constexpr float STRENGTH = 1e12f, SOFTENING = 1e9f;

struct alignas(16) body {
    uint32_t position[3], velocity[3]; /* modulo 2^32; differences are signed */
    uint32_t zero[2];
};

__host__ __device__ static body first_state(uint64_t seed, uint64_t i)
{
    body b = {};
    for (unsigned axis = 0; axis < 3; axis++) {
        b.position[axis] = (uint32_t)(mix(seed, i * 6 + axis) % (1 << 21));
        b.velocity[axis] = (uint32_t)(mix(seed, i * 6 + 3 + axis) % 512) - 256;
    }
    return b;
}

__global__ void step(body *bodies)
{
    __shared__ uint32_t at[3][BODIES];
    unsigned me = threadIdx.x;
    body own = bodies[(uint64_t)blockIdx.x * BODIES + me];
    for (int axis = 0; axis < 3; axis++)
        at[axis][me] = own.position[axis];
    __syncthreads();
    for (unsigned other = 0; other < BODIES; other++) {
        float dx = __int2float_rn((int)(at[0][other] - own.position[0]));
        float dy = __int2float_rn((int)(at[1][other] - own.position[1]));
        float dz = __int2float_rn((int)(at[2][other] - own.position[2]));
        float square =
            __fadd_rn(__fadd_rn(__fmul_rn(dx, dx), __fmul_rn(dy, dy)), __fmul_rn(dz, dz));
        square = __fadd_rn(square, SOFTENING);
        float pull = __fdiv_rn(__fdiv_rn(STRENGTH, square), __fsqrt_rn(square));
        own.velocity[0] += (uint32_t)__float2int_rn(__fmul_rn(pull, dx));
        own.velocity[1] += (uint32_t)__float2int_rn(__fmul_rn(pull, dy));
        own.velocity[2] += (uint32_t)__float2int_rn(__fmul_rn(pull, dz));
    }
    for (int axis = 0; axis < 3; axis++)
        own.position[axis] += own.velocity[axis];
    bodies[(uint64_t)blockIdx.x * BODIES + me] = own;
}

/* The same step on the CPU: each pair once, what one gets the other gives. */
static void step_on_cpu(std::vector<body> &cluster)
{
    for (unsigned i = 0; i < BODIES; i++) {
        for (unsigned j = i + 1; j < BODIES; j++) {
            float distance[3], square = 0;
            for (int axis = 0; axis < 3; axis++) {
                distance[axis] =
                    (float)(int32_t)(cluster[j].position[axis] - cluster[i].position[axis]);
                square += distance[axis] * distance[axis];
            }
            square += SOFTENING;
            float pull = STRENGTH / square / sqrtf(square);
            for (int axis = 0; axis < 3; axis++) {
                uint32_t change = (uint32_t)lrintf(pull * distance[axis]);
                cluster[i].velocity[axis] += change;
                cluster[j].velocity[axis] -= change;
            }
        }
    }
    for (body &b : cluster)
        for (int axis = 0; axis < 3; axis++)
            b.position[axis] += b.velocity[axis];
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "nbody", 512);
    const uint64_t count = work.bytes() / sizeof(body), clusters = count / BODIES, seed = work.seed;
    body *bodies = allocate<body>(count);
    each(count, [=] __device__(uint64_t i) { bodies[i] = first_state(seed, i); });

    std::vector<body> followed[FOLLOWED];
    uint64_t number[FOLLOWED];
    for (int f = 0; f < FOLLOWED; f++) {
        number[f] = mix(seed + 1, f) % clusters;
        for (unsigned i = 0; i < BODIES; i++)
            followed[f].push_back(first_state(seed, number[f] * BODIES + i));
    }

    while (work.next()) {
        for (int i = 0; i < STEPS; i++) {
            step<<<(unsigned)clusters, BODIES>>>(bodies);
            CHECK(cudaGetLastError());
        }
        const uint32_t steps = (uint32_t)(work.rounds * STEPS);
        verify("momentum and center of the clusters", clusters * 3, [=] __device__(uint64_t i) {
            uint64_t cluster = i / 3, axis = i % 3;
            uint32_t momentum = 0, center = 0, zero = 0;
            for (uint64_t b = cluster * BODIES; b < (cluster + 1) * BODIES; b++) {
                uint32_t velocity = (uint32_t)(mix(seed, b * 6 + 3 + axis) % 512) - 256;
                momentum += bodies[b].velocity[axis] - velocity;
                center +=
                    bodies[b].position[axis] - (uint32_t)(mix(seed, b * 6 + axis) % (1 << 21));
                center -= steps * velocity;
                zero |= bodies[b].zero[0] | bodies[b].zero[1];
            }
            return momentum == 0 && center == 0 && zero == 0;
        });
        for (int f = 0; f < FOLLOWED; f++) {
            for (int i = 0; i < STEPS; i++)
                step_on_cpu(followed[f]);
            std::vector<body> found = fetch(bodies + number[f] * BODIES, BODIES);
            if (memcmp(found.data(), followed[f].data(), BODIES * sizeof(body)))
                fail("round %llu: cluster %llu is not where the CPU has it",
                     (unsigned long long)work.rounds, (unsigned long long)number[f]);
        }
    }
    release(bodies);
    return work.passed();
}
