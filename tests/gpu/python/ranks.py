"""One job on two GPUs, for tests/gpu/groups.py: two processes with NCCL (torch.multiprocessing), or one process on both
(--one). It knows nothing of gpumux.

Each GPU has --gib of matrices. A round multiplies by all of them, sums what both GPUs have every fourth time, and changes
every matrix. Sums of two are the same in either order, so the bits must be, too. The last line is JSON.
"""
import argparse
import faulthandler
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# A machine's other users lose their GPUs if multicast goes wrong.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")

SIZE = 8192  # of a matrix: 128 MiB of bfloat16


def say(text):
    print(f"{time.time():.2f} {os.getpid()} {text}", file=sys.stderr, flush=True)


def checksum(torch, tensor):
    words = tensor.detach().view(torch.int16).flatten()
    total = 0
    for part in words.split(1 << 24):  # pieces: the sums take little memory
        places = torch.arange(1, 2 * part.numel(), 2, device=part.device, dtype=torch.int64)
        total = (total * 31 + int((part.to(torch.int64) * places).sum())) % 2**63
    return total


class Half:
    """What one GPU has of the job."""

    def __init__(self, torch, device, seed, gib):
        self.torch, self.device = torch, device
        generator = torch.Generator(device).manual_seed(seed)
        count = max(1, int(gib * 2**30) // (2 * SIZE * SIZE))
        self.matrices = []
        for _ in range(count):
            matrix = torch.empty(SIZE, SIZE, device=device, dtype=torch.bfloat16)
            matrix.normal_(std=SIZE**-0.5, generator=generator)
            self.matrices.append(matrix)
        self.x = torch.empty(SIZE, SIZE, device=device, dtype=torch.bfloat16).normal_(generator=generator)
        self.y = torch.empty_like(self.x)

    def multiply(self, index):
        matrix = self.matrices[index]
        self.torch.matmul(self.x, matrix, out=self.y)
        self.x, self.y = self.y, self.x
        self.x.clamp_(-4, 4)
        matrix.mul_(0.998).add_(self.x, alpha=2e-4 * SIZE**-0.5)

    def summed(self):
        self.x.mul_(0.75)

    def bits(self):
        return checksum(self.torch, self.x)

    def all_bits(self):
        return [checksum(self.torch, matrix) for matrix in self.matrices]


def wait_for(path):
    while path and not os.path.exists(path):
        time.sleep(0.02)


def work(halves, args, sum_up):
    """The rounds. What came out of each, and when each ended."""
    bits, ends = [], []
    for number in range(args.rounds):
        for index in range(len(halves[0].matrices)):
            for half in halves:
                half.multiply(index)
            if index % 4 == 3:
                sum_up()
        bits.append([half.bits() for half in halves])
        ends.append(round(time.time(), 3))
        if number % 10 == 0:
            say(f"round {number} of {args.rounds}")
    return bits, ends


def prepare(args):
    faulthandler.enable()
    faulthandler.dump_traceback_later(args.stacks, repeat=True)  # what it hangs in
    import torch
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch


def rank_main(rank, args, folder):
    torch = prepare(args)
    import torch.distributed as dist
    from datetime import timedelta
    say(f"rank {rank}: {torch.__version__}, NCCL {torch.cuda.nccl.version()}, {torch.cuda.device_count()} GPUs")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/{args.name}.store", rank=rank, world_size=2,
                            timeout=timedelta(seconds=args.patience), device_id=torch.device("cuda", rank))
    half = Half(torch, torch.device("cuda", rank), args.seed * 10 + rank, args.gib)
    dist.all_reduce(half.x)
    half.summed()
    torch.cuda.synchronize()
    say(f"rank {rank} has its memory, and NCCL its connections")
    open(os.path.join(folder, f"{args.name}.ready.{rank}"), "w", encoding="utf-8").close()
    wait_for(args.go)
    begun = time.time()

    def sum_up():
        dist.all_reduce(half.x)
        half.summed()

    bits, ends = work([half], args, sum_up)
    torch.cuda.synchronize()
    seconds = time.time() - begun
    result = {"rank": rank, "bits": [one[0] for one in bits], "matrices": half.all_bits(), "seconds": round(seconds, 2),
              "ends": ends, "uuid": str(torch.cuda.get_device_properties(rank).uuid)}
    with open(os.path.join(folder, f"{args.name}.{rank}.json"), "w", encoding="utf-8") as out:
        json.dump(result, out)
    say(f"rank {rank} is through")
    dist.destroy_process_group()


def one_main(args, folder):
    torch = prepare(args)
    halves = [Half(torch, torch.device("cuda", gpu), args.seed * 10 + gpu, args.gib) for gpu in range(2)]
    for gpu in range(2):
        torch.cuda.synchronize(gpu)
    for rank in range(2):
        open(os.path.join(folder, f"{args.name}.ready.{rank}"), "w", encoding="utf-8").close()
    say("has its memory")
    wait_for(args.go)
    begun = time.time()

    def sum_up():
        first, second = halves
        there, here = first.x.to(second.device), second.x.to(first.device)
        first.x.add_(here)
        second.x.add_(there)
        first.summed()
        second.summed()

    bits, ends = work(halves, args, sum_up)
    results = []
    for gpu, half in enumerate(halves):
        torch.cuda.synchronize(gpu)
        results.append({"rank": gpu, "bits": [one[gpu] for one in bits], "matrices": half.all_bits(),
                        "seconds": round(time.time() - begun, 2), "ends": ends})
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--go", help="begin when that file is there")
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--patience", type=int, default=100, help="seconds that NCCL waits")
    parser.add_argument("--stacks", type=int, default=40, help="tell where each thread is, every so many seconds")
    args = parser.parse_args()
    if args.one:
        results = one_main(args, args.folder)
    else:
        import torch.multiprocessing as mp
        mp.spawn(rank_main, args=(args, args.folder), nprocs=2, join=True)
        results = []
        for rank in range(2):
            with open(os.path.join(args.folder, f"{args.name}.{rank}.json"), encoding="utf-8") as text:
                results.append(json.load(text))
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
