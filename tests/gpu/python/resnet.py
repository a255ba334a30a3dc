"""ResNet-152 training on made-up images, deterministic: prints every loss, and the weights' checksum."""

import argparse
import time

import common
import torch
from torch import nn


def make_model():
    try:
        from torchvision.models import resnet152

        return resnet152(weights=None)
    except ImportError:
        import timm

        return timm.create_model("resnet152", pretrained=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--go")
    arguments = parser.parse_args()
    common.set_deterministic()
    torch.manual_seed(arguments.seed)
    model = make_model()  # on the CPU, before the GPU is touched: the same weights everywhere
    common.wait_for_go(arguments.go)

    begin = time.monotonic()
    model = model.cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator("cuda").manual_seed(arguments.seed)
    losses = []
    for _ in range(arguments.steps):
        images = torch.randn(arguments.batch, 3, 224, 224, device="cuda", generator=generator)
        labels = torch.randint(0, 1000, (arguments.batch,), device="cuda", generator=generator)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().item().hex())
    common.finish(
        {
            "losses": losses,
            "weights": sum(common.checksum(p) for p in model.parameters()),
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "seconds": round(time.monotonic() - begin, 2),
        }
    )


main()
