/*
 * A 7-point stencil on a 512 x 512 x N periodic grid, each plane of a block through shared memory.
 *
 * The cells are numbers modulo a prime. A plane wave whose factors are roots of unity modulo that
 * prime is an eigenvector of the stencil, so the field's component along it is multiplied by a
 * known number each step: compared with what the generator's field must have become. One wrong cell
 * changes the component for certain.
 */
#include "common.cuh"

constexpr unsigned NX = 512, NY = 512;
constexpr unsigned TX = 32, TY = 8,
                   DEPTH = 32; /* a block's tile, and how many planes it goes through */
constexpr uint64_t CENTER = 11, ALONG_X = 3, ALONG_Y = 5, ALONG_Z = 7;
constexpr int STEPS = 10;

__device__ static uint32_t at(const uint32_t *field, unsigned x, unsigned y, unsigned z)
{
    return field[((uint64_t)z * NY + y) * NX + x];
}

__global__ void step(const uint32_t *from, uint32_t *to, unsigned nz)
{
    __shared__ uint32_t plane[TY + 2][TX + 2];
    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned x = blockIdx.x * TX + tx, y = blockIdx.y * TY + ty;
    unsigned z = blockIdx.z * DEPTH, end = min(z + DEPTH, nz);
    uint32_t below = at(from, x, y, (z + nz - 1) % nz), here = at(from, x, y, z);
    for (; z < end; z++) {
        uint32_t above = at(from, x, y, (z + 1) % nz);
        plane[ty + 1][tx + 1] = here;
        if (ty == 0)
            plane[0][tx + 1] = at(from, x, (y + NY - 1) % NY, z);
        if (ty == TY - 1)
            plane[TY + 1][tx + 1] = at(from, x, (y + 1) % NY, z);
        if (tx == 0)
            plane[ty + 1][0] = at(from, (x + NX - 1) % NX, y, z);
        if (tx == TX - 1)
            plane[ty + 1][TX + 1] = at(from, (x + 1) % NX, y, z);
        __syncthreads();
        uint64_t value = CENTER * here + ALONG_Z * ((uint64_t)below + above);
        value += ALONG_X * ((uint64_t)plane[ty + 1][tx] + plane[ty + 1][tx + 2]);
        value += ALONG_Y * ((uint64_t)plane[ty][tx + 1] + plane[ty + 2][tx + 1]);
        to[((uint64_t)z * NY + y) * NX + x] = (uint32_t)(value % PRIME);
        __syncthreads(); /* before the plane is overwritten */
        below = here;
        here = above;
    }
}

/* A wave along one axis: root^i for all i < n, and how much both neighbours add to the eigenvalue.
 */
struct wave {
    uint64_t root, n;

    wave(uint64_t length, uint64_t random) : n(length)
    {
        uint64_t frequency = n < 2 ? 0 : 1 + random % (n - 1);
        root = modular_power(3, (PRIME - 1) / n * frequency);
    }
    uint64_t neighbours() const
    {
        return root + modular_power(root, n - 1);
    }
    uint32_t *table() const
    {
        std::vector<uint32_t> powers(n);
        for (uint64_t i = 0, power = 1; i < n; i++, power = power * root % PRIME)
            powers[i] = (uint32_t)power;
        uint32_t *memory = allocate<uint32_t>(n);
        upload(memory, powers);
        return memory;
    }
};

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "stencil", 1024);
    unsigned nz = (unsigned)std::max<uint64_t>(work.bytes() / (2 * sizeof(uint32_t) * NX * NY), 1);
    while ((PRIME - 1) % nz != 0) /* there must be a root of unity of this order */
        nz--;
    const uint64_t cells = (uint64_t)NX * NY * nz, seed = work.seed;
    uint32_t *field = allocate<uint32_t>(cells), *next = allocate<uint32_t>(cells);

    wave along_x(NX, mix(seed, 1)), along_y(NY, mix(seed, 2)), along_z(nz, mix(seed, 3));
    uint32_t *wx = along_x.table(), *wy = along_y.table(), *wz = along_z.table();
    uint64_t eigenvalue = (CENTER + ALONG_X * along_x.neighbours() +
                           ALONG_Y * along_y.neighbours() + ALONG_Z * along_z.neighbours()) %
                          PRIME;
    auto weight = [=] __device__(uint64_t i) -> uint64_t {
        uint64_t x = i % NX, y = i / NX % NY, z = i / NX / NY;
        return (uint64_t)wx[x] * wy[y] % PRIME * wz[z] % PRIME;
    };
    uint64_t component = sum(cells,
                             [=] __device__(uint64_t i) -> uint64_t {
                                 return mix(seed, i) % PRIME * weight(i) % PRIME;
                             }) %
                         PRIME;
    each(cells, [=] __device__(uint64_t i) { field[i] = (uint32_t)(mix(seed, i) % PRIME); });

    while (work.next()) {
        for (int i = 0; i < STEPS; i++) {
            step<<<dim3(NX / TX, NY / TY, divide_up(nz, DEPTH)), dim3(TX, TY)>>>(field, next, nz);
            CHECK(cudaGetLastError());
            std::swap(field, next);
            component = component * eigenvalue % PRIME;
        }
        const uint32_t *now = field;
        uint64_t found = sum(
            cells, [=] __device__(uint64_t i) -> uint64_t { return now[i] * weight(i) % PRIME; });
        same("the field's component", found % PRIME, component);
    }
    release(field, next, wx, wy, wz);
    return work.passed();
}
