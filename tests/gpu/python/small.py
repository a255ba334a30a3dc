"""A small PyTorch program: what it prints depends on its results alone."""

import common
import torch


def main():
    common.set_deterministic()
    generator = torch.Generator("cuda").manual_seed(3)
    a = torch.randn(2048, 2048, device="cuda", generator=generator)
    b = torch.randn(2048, 2048, device="cuda", generator=generator)
    model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).cuda()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.02, generator=generator)
    model(a).square().mean().backward()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        c = (a @ b).sort(dim=1).values
    stream.synchronize()
    common.finish(
        {
            "product": common.checksum(a @ b),
            "sorted": common.checksum(c),
            "gradient": [common.checksum(p.grad) for p in model.parameters()],
            "host": float(c.cpu().double().sum()).hex(),
        }
    )


main()
