"""A case of the framework matrix: kernels in Triton, with PyTorch's memory. case.py says how it is run."""

import case
import case_torch as t

torch = t.torch

try:
    import triton
    import triton.language as tl
except ImportError as error:
    case.skip(f"not installed: {error}")


@triton.jit
def softmax_kernel(out, source, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    is_in = at < columns
    values = tl.load(source + row * columns + at, mask=is_in, other=-float("inf"))
    raised = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, raised / tl.sum(raised, axis=0), mask=is_in)


@triton.jit
def matmul_kernel(a, b, c, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, SIDE, BLOCK):
        left = tl.load(a + rows[:, None] * SIDE + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * SIDE + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * SIDE + columns[None, :], total)


def kernels(arguments):
    t.ready(arguments)
    if arguments.device == "cpu":
        raise case.Skip("no Triton on the processor")
    held = t.Held(arguments)
    generator = torch.Generator("cuda").manual_seed(21)
    wide = torch.randn(4096, 3000, device="cuda", generator=generator)
    a, b = (torch.randn(1024, 1024, device="cuda", generator=generator).half() for _ in range(2))

    def one_round():
        out, c = torch.empty_like(wide), torch.empty(1024, 1024, device="cuda")
        softmax_kernel[(4096,)](out, wide, 3000, BLOCK=4096)
        matmul_kernel[(16, 16)](a, b, c, SIDE=1024, BLOCK=64)
        if not torch.allclose(out, wide.softmax(1), atol=1e-6) or not torch.allclose(c, (a.float() @ b.float()),
                                                                                    atol=.1, rtol=.01):
            raise RuntimeError("a kernel computed something else than PyTorch")
        return t.combine(t.checksum(out), t.checksum(c), held.sum()), [out[0, 0].item(), c[0, 0].item()]

    return one_round


if __name__ == "__main__":
    case.run({"triton": kernels}, t.imports)
