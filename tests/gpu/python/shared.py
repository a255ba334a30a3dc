"""Tensors handed between two processes by torch.multiprocessing: each changes them in turn, in place."""

import argparse

import common
import torch
import torch.multiprocessing as mp


def other(inbox, outbox):
    """Add one to what comes, and say what it was."""
    while True:
        tensors = inbox.get()
        if tensors is None:
            return
        before = [common.checksum(tensor) for tensor in tensors]
        for tensor in tensors:
            tensor.add_(1)
        torch.cuda.synchronize()
        outbox.put(before)
        del tensors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mib", type=int, default=512, help="of each of four tensors")
    arguments = parser.parse_args()
    common.set_deterministic()
    context = mp.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=other, args=(there, back))
    process.start()
    generator = torch.Generator("cuda").manual_seed(11)
    tensors = [torch.randint(0, 1 << 20, (arguments.mib << 17,), device="cuda", dtype=torch.int64, generator=generator)
               for _ in range(4)]
    wrong = 0
    for _ in range(arguments.rounds):
        before = [common.checksum(tensor) for tensor in tensors]
        expected = [tensor + 1 for tensor in tensors]
        torch.cuda.synchronize()
        there.put(tensors)
        wrong += back.get(timeout=120) != before
        wrong += sum(not torch.equal(tensor, right) for tensor, right in zip(tensors, expected))
        del expected
    result = {"wrong": wrong, "sums": [common.checksum(tensor) for tensor in tensors]}
    there.put(None)
    process.join(60)
    result["other"] = process.exitcode
    common.finish(result)


if __name__ == "__main__":
    main()
