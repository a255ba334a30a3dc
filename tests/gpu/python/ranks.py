"""One job on several GPUs, for tests/gpu/groups.py: a process for each with NCCL (torch.multiprocessing), or one process on all
(--one). It knows nothing of gpumux.

Each GPU has --gib of matrices. A round multiplies by all of them, sums what all GPUs have every fourth time, and changes
every matrix. Sums are of integers: they are the same in any order, so the bits must be, too. The last line is JSON. With
--worker PROGRAM each process is that program (gm_worker), which needs no PyTorch, and whose GPUs have nothing to do with each other.
"""
import argparse
import faulthandler
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# A machine's other users lose their GPUs if multicast goes wrong.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")

SIZE = 8192  # of a matrix: 128 MiB of bfloat16
ONE = 65536.0  # in a sum: the values are at most 4, so those of many GPUs fit 32 bits


def say(text):
    print(f"{time.time():.2f} {os.getpid()} {text}", file=sys.stderr, flush=True)


def checksum(torch, tensor):
    words = tensor.detach().view(torch.int16).flatten()
    total = 0
    for part in words.split(1 << 24):  # pieces: the sums take little memory
        places = torch.arange(1, 2 * part.numel(), 2, device=part.device, dtype=torch.int64)
        total = (total * 31 + int((part.to(torch.int64) * places).sum())) % 2**63
    return total


class Part:
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
        self.sum = torch.empty(SIZE, SIZE, device=device, dtype=torch.int32)

    def multiply(self, index):
        matrix = self.matrices[index]
        self.torch.matmul(self.x, matrix, out=self.y)
        self.x, self.y = self.y, self.x
        self.x.clamp_(-4, 4)
        matrix.mul_(0.998).add_(self.x, alpha=2e-4 * SIZE**-0.5)

    def to_sum(self):
        self.sum.copy_(self.x.clamp_(-4, 4).mul_(ONE))

    def summed(self):
        self.x.copy_(self.sum).mul_(0.75 / ONE)

    def bits(self):
        return checksum(self.torch, self.x)

    def all_bits(self):
        return [checksum(self.torch, matrix) for matrix in self.matrices]


def wait_for(path):
    while path and not os.path.exists(path):
        time.sleep(0.02)


def work(parts, args, sum_up):
    """The rounds. What came out of each, and when each ended."""
    bits, ends = [], []
    for number in range(args.rounds):
        for index in range(len(parts[0].matrices)):
            for part in parts:
                part.multiply(index)
            if index % 4 == 3:
                sum_up()
        bits.append([part.bits() for part in parts])
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
    dist.init_process_group("nccl", init_method=f"file://{folder}/{args.name}.store", rank=rank, world_size=args.ranks,
                            timeout=timedelta(seconds=args.patience), device_id=torch.device("cuda", rank))
    part = Part(torch, torch.device("cuda", rank), args.seed * 10 + rank, args.gib)

    def sum_up():
        part.to_sum()
        dist.all_reduce(part.sum)
        part.summed()

    sum_up()
    torch.cuda.synchronize()
    say(f"rank {rank} has its memory, and NCCL its connections")
    open(os.path.join(folder, f"{args.name}.ready.{rank}"), "w", encoding="utf-8").close()
    wait_for(args.go)
    begun = time.time()
    bits, ends = work([part], args, sum_up)
    torch.cuda.synchronize()
    seconds = time.time() - begun
    result = {"rank": rank, "bits": [one[0] for one in bits], "matrices": part.all_bits(), "seconds": round(seconds, 2),
              "ends": ends, "uuid": str(torch.cuda.get_device_properties(rank).uuid)}
    with open(os.path.join(folder, f"{args.name}.{rank}.json"), "w", encoding="utf-8") as out:
        json.dump(result, out)
    say(f"rank {rank} is through")
    dist.destroy_process_group()


def one_main(args, folder):
    torch = prepare(args)
    parts = [Part(torch, torch.device("cuda", gpu), args.seed * 10 + gpu, args.gib) for gpu in range(args.ranks)]
    for gpu in range(args.ranks):
        torch.cuda.synchronize(gpu)
    for rank in range(args.ranks):
        open(os.path.join(folder, f"{args.name}.ready.{rank}"), "w", encoding="utf-8").close()
    say("has its memory")
    wait_for(args.go)
    begun = time.time()

    def sum_up():
        for part in parts:
            part.to_sum()
        sums = [part.sum.clone() for part in parts]
        for part in parts:
            for other, one in zip(parts, sums):
                if other is not part:
                    part.sum.add_(one.to(part.device))
        for part in parts:
            part.summed()

    bits, ends = work(parts, args, sum_up)
    results = []
    for gpu, part in enumerate(parts):
        torch.cuda.synchronize(gpu)
        results.append({"rank": gpu, "bits": [one[gpu] for one in bits], "matrices": part.all_bits(),
                        "seconds": round(time.time() - begun, 2), "ends": ends})
    return results


def worker_main(args, folder):
    """Each process is args.worker. Its memory is right, or it fails."""
    def command(rank):
        return [args.worker, "--bytes", str(int(args.gib * 2**30)), "--iterations", str(args.rounds), "--seed", str(args.seed * 10 + rank),
                "--ready", os.path.join(folder, f"{args.name}.ready.{rank}"), *(["--go", args.go] if args.go else [])]
    ranks = [subprocess.Popen(command(rank), env=dict(os.environ, CUDA_VISIBLE_DEVICES=str(rank)), stdout=subprocess.PIPE, text=True)
             for rank in range(args.ranks)]
    results = []
    for rank, process in enumerate(ranks):
        last = process.communicate()[0].strip().rpartition("\n")[2]
        if process.returncode != 0 or "mismatches=0" not in last.split():
            sys.exit(f"rank {rank} ended with {process.returncode}: {last}")
        results.append({"rank": rank, "bits": [args.rounds], "matrices": []})
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--go", help="begin when that file is there")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs, and processes")
    parser.add_argument("--worker", metavar="PROGRAM", help="no PyTorch: this program for each process")
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--patience", type=int, default=100, help="seconds that NCCL waits")
    parser.add_argument("--stacks", type=int, default=40, help="tell where each thread is, every so many seconds")
    args = parser.parse_args()
    if args.worker:
        results = worker_main(args, args.folder)
    elif args.one:
        results = one_main(args, args.folder)
    else:
        import torch.multiprocessing as mp
        mp.spawn(rank_main, args=(args, args.folder), nprocs=args.ranks, join=True)
        results = []
        for rank in range(args.ranks):
            with open(os.path.join(args.folder, f"{args.name}.{rank}.json"), encoding="utf-8") as text:
                results.append(json.load(text))
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
