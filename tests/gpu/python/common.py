"""What the PyTorch programs of the GPU tests share. They know nothing of gpumux."""

import json
import os
import sys
import time

# Before torch: what makes two runs of the same program agree to the bit.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402


def set_deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def checksum(tensor):
    """The tensor's bits as integers, each times an odd number of its place, summed: exact modulo 2**64, so
    independent of the order of summation."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.detach().contiguous().view(words).flatten().to(torch.int64)
    places = torch.arange(1, 2 * bits.numel(), 2, device=bits.device, dtype=torch.int64)
    return int((bits * places).sum())


def wait_for_go(path):
    """Imports are done: wait for the test runner to let this program use the GPU."""
    if path is None:
        return
    open(path + ".imported", "w").close()
    while not os.path.exists(path):
        time.sleep(0.02)


def finish(result):
    """One line of JSON, the last of standard output."""
    print(json.dumps(result), flush=True)
    sys.exit(0)
