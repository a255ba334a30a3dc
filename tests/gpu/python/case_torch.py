"""Cases of the framework matrix: PyTorch and NVIDIA's libraries behind it. case.py says how they are run."""

import os
import queue
import socket
import sys
import threading

import case

# What these cases are about has to be said before torch is imported.
ALLOCATORS = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
if len(sys.argv) > 1 and sys.argv[1] in ALLOCATORS:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = ALLOCATORS[sys.argv[1]]

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    case.skip(f"not installed: {error}")

PIECE = 2**28  # bytes of a piece of held memory
ROW = 2**18


def checksum(tensor):
    """The tensor's bits as integers, each times an odd number of its place, summed: exact modulo 2**64."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.detach().contiguous().view(words).flatten().to(torch.int64)
    places = torch.arange(1, 2 * bits.numel(), 2, device=bits.device, dtype=torch.int64)
    return int((bits * places).sum()) % 2**64


def combine(*sums):
    value = 0
    for one in sums:
        value = (value * 1000003 + one) % 2**64
    return value


class Held:
    """Memory of random words, which each round sums up."""

    def __init__(self, arguments, device=None):
        self.device = device or arguments.device
        generator = torch.Generator(self.device).manual_seed(77)
        count = int(arguments.gib * 2**30) if self.device != "cpu" else 2**22
        self.pieces = []
        while count >= 8 * ROW:
            rows = min(count, PIECE) // (8 * ROW)
            self.pieces.append(torch.empty(rows, ROW, dtype=torch.int64, device=self.device)
                               .random_(generator=generator))
            count -= rows * ROW * 8

    def sum(self):
        return combine(*(checksum(piece.sum(1)) for piece in self.pieces))


def set_deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def imports():
    set_deterministic()


def ready(arguments):
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    elif not torch.cuda.is_available():
        raise case.Skip("PyTorch sees no GPU")


def make_net(arguments, seed=1, classes=100):
    """A small convolutional net with its optimizer, and a function that trains it some steps from the same state."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64),
        nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(),
        nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, classes)).to(arguments.device)
    return model


def train(model, state, batches):
    """Some steps from that state: the losses and the weights' sum."""
    model.load_state_dict(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=.01, momentum=.9)
    losses = []
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    return combine(checksum(losses), *(checksum(p) for p in model.parameters())), losses.tolist()


def copy_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def made_batches(arguments, seed=5, count=4, batch=32):
    generator = torch.Generator(arguments.device).manual_seed(seed)
    return [(torch.randn(batch, 3, 64, 64, device=arguments.device, generator=generator),
             torch.randint(0, 100, (batch,), device=arguments.device, generator=generator)) for _ in range(count)]


def training_round(arguments, held, model, seed=5):
    state, batches = copy_of(model), made_batches(arguments, seed)

    def one_round():
        result, losses = train(model, state, batches)
        return combine(result, held.sum()), losses

    return one_round


def eager(arguments):
    ready(arguments)
    return training_round(arguments, Held(arguments), make_net(arguments))


def allocator(arguments):
    """The same with another allocator, whose memory also comes and goes."""
    ready(arguments)
    held = Held(arguments)
    inner = training_round(arguments, held, make_net(arguments))

    def one_round():
        generator = torch.Generator(arguments.device).manual_seed(9)
        parts = []
        for size in (3, 70, 11, 150, 1, 40):
            temporary = torch.empty(size * 2**17, dtype=torch.int64, device=arguments.device)
            parts.append(checksum(temporary.random_(generator=generator)))
            del temporary
        if arguments.device != "cpu":
            torch.cuda.empty_cache()
        result, values = inner()
        return combine(result, *parts), values

    def extra():
        return {"backend": torch.cuda.get_allocator_backend()} if arguments.device != "cpu" else {}

    return one_round, extra


def compiled(arguments):
    ready(arguments)
    try:
        __import__("triton")
    except ImportError:
        raise case.Skip("torch.compile needs Triton, which is not installed") from None
    held, model = Held(arguments), make_net(arguments).eval()
    fast = torch.compile(model, dynamic=False)
    batches = made_batches(arguments)
    try:
        with torch.no_grad():
            fast(batches[0][0])
    except Exception as error:  # pylint: disable=broad-except
        text = f"{type(error).__name__}: {error}"
        if "compiler" in text.lower() or "gcc" in text.lower() or "Python.h" in text:
            raise case.Skip("torch.compile cannot compile here: " + " ".join(text.split())[:150]) from None
        raise

    def one_round():
        with torch.no_grad():
            found = torch.cat([fast(images) for images, _ in batches])
        return combine(checksum(found), held.sum()), found.flatten()[:8].tolist()

    return one_round


def graphs(arguments):
    """The training step as one CUDA graph."""
    ready(arguments)
    if arguments.device == "cpu":
        raise case.Skip("no CUDA graphs on the processor")
    held, model = Held(arguments), make_net(arguments)
    batches = made_batches(arguments)
    images, labels = (tensor.clone() for tensor in batches[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    begin = copy_of(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()

    def one_round():
        model.load_state_dict(begin)
        losses = []
        for batch in batches * 4:
            images.copy_(batch[0])
            labels.copy_(batch[1])
            graph.replay()
            losses.append(loss.detach().clone())
        losses = torch.stack(losses)
        return combine(checksum(losses), *(checksum(p) for p in model.parameters()), held.sum()), losses.tolist()

    return one_round


class Images(torch.utils.data.Dataset):
    """Made-up images, each from its own seed, made in worker processes."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(1000 + index)
        return torch.randn(3, 64, 64, generator=generator), index % 100


def loaders(arguments):
    """Data loaders with worker processes and pinned memory."""
    ready(arguments)
    held, model = Held(arguments), make_net(arguments)
    is_cuda = arguments.device != "cpu"
    loader = torch.utils.data.DataLoader(Images(), batch_size=64, num_workers=2, pin_memory=is_cuda,
                                         persistent_workers=True, multiprocessing_context="fork")
    state = copy_of(model)

    def batches():
        for images, labels in loader:
            if is_cuda and not images.is_pinned():
                raise RuntimeError("the loader's memory is not pinned")
            yield images.to(arguments.device, non_blocking=True), labels.to(arguments.device, non_blocking=True)

    def one_round():
        result, losses = train(model, state, batches())
        return combine(result, held.sum()), losses

    return one_round


def threads(arguments):
    """Two models in two threads, each on a stream of its own."""
    ready(arguments)
    held = Held(arguments)
    inners = [training_round(arguments, held, make_net(arguments, seed), seed) for seed in (1, 2)]

    def one_round():
        results, errors = [None, None], queue.SimpleQueue()

        def work(index):
            try:
                if arguments.device == "cpu":
                    results[index] = inners[index]()
                    return
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.default_stream())
                with torch.cuda.stream(stream):
                    results[index] = inners[index]()
                stream.synchronize()
            except Exception as error:  # pylint: disable=broad-except
                errors.put(error)

        workers = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if not errors.empty():
            raise errors.get()
        return combine(*(result for result, _ in results)), [value for _, values in results for value in values]

    return one_round


def oom(arguments):
    """Runs out of memory, catches it, and goes on."""
    ready(arguments)
    inner = training_round(arguments, Held(arguments), make_net(arguments))
    caught = []

    def one_round():
        if arguments.device != "cpu":
            hog, is_caught = [], False
            _, total = torch.cuda.mem_get_info()
            try:
                # As much as the card has, or what is said to be: never to be had beside what is held already.
                for _ in range(8):
                    hog.append(torch.empty(total // 7, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                is_caught = True
            if not is_caught:
                raise RuntimeError("more than all memory was to be had")
            caught.append(len(hog))
            del hog
            torch.cuda.empty_cache()
        return inner()

    return one_round, lambda: {"caught": len(caught)}


def child_of_ipc(requests, answers, device):
    """The other process: maps what it is sent, sums it up and adds to it."""
    set_deterministic()
    while True:
        tensor = requests.get()
        if tensor is None:
            return
        before = checksum(tensor)
        tensor.add_(1)
        if device != "cpu":
            torch.cuda.synchronize()
        del tensor
        answers.put(before)


def ipc(arguments):
    """A tensor shared with another process."""
    ready(arguments)
    import torch.multiprocessing as mp

    held = Held(arguments)
    context = mp.get_context("spawn")
    requests, answers = context.Queue(), context.Queue()
    child = context.Process(target=child_of_ipc, args=(requests, answers, arguments.device), daemon=True)
    child.start()

    def one_round():
        generator = torch.Generator(arguments.device).manual_seed(3)
        tensor = torch.empty(2**21, dtype=torch.int64, device=arguments.device).random_(generator=generator)
        if arguments.device == "cpu":
            tensor.share_memory_()
        mine = checksum(tensor)
        requests.put(tensor)
        theirs = answers.get(timeout=120)
        if theirs != mine:
            raise RuntimeError(f"the other process reads {theirs}, here it is {mine}")
        return combine(mine, checksum(tensor), held.sum()), [0]

    def extra():
        requests.put(None)
        child.join(60)
        return {"child": child.exitcode}

    return one_round, extra


def fft(arguments):
    """cuFFT: one, two and three dimensions, of sizes with odd factors too."""
    ready(arguments)
    held = Held(arguments)
    generator = torch.Generator(arguments.device).manual_seed(11)
    shapes = [(64, 2**16), (8, 1000, 900), (128, 128, 96)] if arguments.device != "cpu" else [(4, 256), (2, 20, 30)]
    inputs = [torch.randn(*shape, device=arguments.device, generator=generator) for shape in shapes]

    def one_round():
        sums, values = [held.sum()], []
        for tensor in inputs:
            found = torch.fft.fftn(tensor, dim=tuple(range(1, tensor.dim())))
            back = torch.fft.ifftn(found, dim=tuple(range(1, tensor.dim()))).real
            if not torch.allclose(back, tensor, atol=1e-4):
                raise RuntimeError("the inverse transform gives something else")
            sums.append(checksum(found))
            values.append(found.real.flatten()[1].item())
        return combine(*sums), values

    return one_round


def solver(arguments):
    """cuSOLVER and cuBLAS: LU, Cholesky, QR and eigenvalues."""
    ready(arguments)
    held = Held(arguments)
    side = 768 if arguments.device != "cpu" else 48
    generator = torch.Generator(arguments.device).manual_seed(12)
    a = torch.randn(side, side, device=arguments.device, generator=generator, dtype=torch.float64)
    spd = a @ a.T + side * torch.eye(side, device=arguments.device, dtype=torch.float64)
    b = torch.randn(side, 8, device=arguments.device, generator=generator, dtype=torch.float64)
    if arguments.device != "cpu":
        torch.backends.cuda.preferred_linalg_library("cusolver")

    def one_round():
        x = torch.linalg.solve(spd, b)
        if not torch.allclose(spd @ x, b, atol=1e-8):
            raise RuntimeError("the solution is none")
        lower = torch.linalg.cholesky(spd)
        q, r = torch.linalg.qr(a)
        values = torch.linalg.eigvalsh(spd)
        return (combine(*(checksum(t) for t in (x, lower, q, r, values)), held.sum()),
                [x[0, 0].item(), lower[-1, -1].item(), r[0, 0].item(), values[0].item()])

    return one_round


def nccl(arguments):
    """NCCL: collective operations of one rank."""
    ready(arguments)
    import torch.distributed as dist

    backend = "nccl" if arguments.device != "cpu" else "gloo"
    if not (dist.is_available() and (backend == "gloo" or dist.is_nccl_available())):
        raise case.Skip("this PyTorch has no NCCL")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    held = Held(arguments)
    model = nn.parallel.DistributedDataParallel(make_net(arguments))
    inner = training_round(arguments, held, model)

    def one_round():
        generator = torch.Generator(arguments.device).manual_seed(13)
        tensor = torch.randn(2**20, device=arguments.device, generator=generator)
        before = checksum(tensor)
        dist.all_reduce(tensor)
        gathered = [torch.empty_like(tensor)]
        dist.all_gather(gathered, tensor)
        dist.broadcast(tensor, 0)
        if not before == checksum(tensor) == checksum(gathered[0]):
            raise RuntimeError("a collective operation of one rank changed something")
        result, values = inner()
        return combine(before, result), values

    def extra():
        dist.destroy_process_group()
        return {"backend": backend}

    return one_round, extra


CASES = {"eager": eager, "compile": compiled, "graphs": graphs, "expandable": allocator, "async": allocator,
         "loaders": loaders, "threads": threads, "oom": oom, "ipc": ipc, "fft": fft, "solver": solver, "nccl": nccl}

if __name__ == "__main__":
    case.run(CASES, imports)
