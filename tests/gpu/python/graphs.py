"""CUDA graphs: captures one pass over large weights, replays it, and compares every replay with the eager pass."""

import argparse
import time

import common
import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=12)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--go")
    arguments = parser.parse_args()
    common.set_deterministic()
    common.wait_for_go(arguments.go)

    side = 8192
    layers = max(1, int(arguments.gib * 2**30 / (side * side * 2)))
    generator = torch.Generator("cuda").manual_seed(7)
    weights = [
        torch.empty(side, side, device="cuda", dtype=torch.bfloat16).normal_(0, side**-0.5, generator=generator)
        for _ in range(layers)
    ]
    static = torch.zeros(16, side, device="cuda", dtype=torch.bfloat16)

    def step(x):
        for weight in weights:
            x = torch.tanh(x @ weight)
        return x

    def fresh(i):
        source = torch.Generator("cuda").manual_seed(100 + i)
        return torch.randn(16, side, device="cuda", dtype=torch.bfloat16, generator=source)

    with torch.no_grad():
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(2):
                step(static)
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = step(static)
        expected = [common.checksum(step(fresh(i))) for i in range(8)]
        begin = time.monotonic()
        replays = wrong = 0
        while time.monotonic() - begin < arguments.seconds or replays < 16:
            static.copy_(fresh(replays % 8))
            graph.replay()
            wrong += common.checksum(output) != expected[replays % 8]
            replays += 1
    common.finish({"replays": replays, "wrong": wrong, "expected": expected})


main()
