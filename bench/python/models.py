"""The models of the benches, of random weights: a decoder, the training of models of images, a stack of convolutions, an
inference, and reading a model file.

Each works in rounds of as many units, all from the same state: a round's checksum depends on its input alone, so that
every round can be compared with the same one computed elsewhere. Settings under which two runs agree to the bit are
the caller's (actor.py). They know nothing of gpumux.

A stack of convolutions that is smaller than wanted holds ballast to make up for it: buffers of random words, all of which it reads,
sums up and compares in each unit.
"""

import functools
import math
import os

import torch
from torch import nn
from torch.nn import functional as F

PIECE = 2**30  # of the ballast
ROW = 2**18    # words of the ballast that are summed up as one


def checksum(tensor):
    """The tensor's bits as integers, each times an odd number of its place, summed: exact modulo 2**64."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.detach().contiguous().view(words).flatten().to(torch.int64)
    places = torch.arange(1, 2 * bits.numel(), 2, device=bits.device, dtype=torch.int64)
    return (bits * places).sum()


def to_int(tensor):
    """A checksum as a number that the other side reads: not negative."""
    return int(tensor) % 2**63


def record(step):
    """What `step` launches, as a CUDA graph; it has run twice before, so that nothing is left to prepare."""
    with torch.inference_mode():
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    return graph


class Ballast:
    """So many bytes of random words, in pieces, and their sum."""

    def __init__(self, device, count, seed):
        generator = torch.Generator(device).manual_seed(seed)
        self.pieces = []
        while count >= 2**21:
            rows = min(count, PIECE) // (8 * ROW)
            piece = torch.empty(rows, ROW, dtype=torch.int64, device=device)
            self.pieces.append(piece.random_(generator=generator))
            count -= piece.nbytes
        self.right = 0
        self.right = self.wrong()

    def wrong(self):
        """Reads all of it: 0 while it is what it was. Swapped rows change it, too."""
        return sum((checksum(piece.sum(1)) for piece in self.pieces), start=0) - self.right


class Decoder:
    """
    Greedy decoding by a Llama-shaped model in fp16. A round is a prompt and as many tokens; a unit is a token, and
    each is waited for. As many layers as the bytes hold.
    """

    def __init__(self, place, count):
        hidden, ffn, self.heads, vocab = (64, 128, 4, 256) if place.is_tiny else (4096, 11008, 32, 32000)
        self.place, self.units, self.vocab = place, place.units, vocab
        context = place.prompt + place.units
        layer_bytes = (4 * hidden * hidden + 3 * hidden * ffn + 2 * hidden * context) * place.dtype.itemsize
        layers = max(1, (count - 2 * vocab * hidden * place.dtype.itemsize) // layer_bytes)
        generator = torch.Generator(place.device).manual_seed(place.seed)

        def weight(rows, columns):
            tensor = torch.empty(rows, columns, dtype=place.dtype, device=place.device)
            return tensor.normal_(0, columns**-.5, generator=generator)

        self.embedding, self.head = weight(vocab, hidden), weight(vocab, hidden)
        self.layers = [(weight(3 * hidden, hidden), weight(hidden, hidden), weight(2 * ffn, hidden),
                        weight(hidden, ffn)) for _ in range(layers)]
        size = hidden // self.heads
        self.cache = torch.zeros(layers, 2, self.heads, context, size, dtype=place.dtype, device=place.device)
        angles = torch.outer(torch.arange(context, dtype=torch.float64),
                             10000.0**(-torch.arange(0, size, 2, dtype=torch.float64) / size))
        angles = torch.cat((angles, angles), dim=1)
        self.cosine, self.sine = (table.to(place.dtype).to(place.device) for table in (angles.cos(), angles.sin()))
        self.position, self.ids, self.sums, self.last = 0, None, None, None

    def rotate(self, x, until):
        first, second = x.chunk(2, dim=-1)
        at = slice(self.position, until)
        return x * self.cosine[at] + torch.cat((-second, first), dim=-1) * self.sine[at]

    def logits(self, ids):
        """Of the last of these tokens, which come after those that went before."""
        until = self.position + ids.numel()
        x = F.embedding(ids, self.embedding)
        width = (x.shape[1],)
        for number, (attention, mixed, gate_up, down) in enumerate(self.layers):
            q, k, v = F.linear(F.rms_norm(x, width), attention).view(ids.numel(), 3, self.heads, -1).permute(1, 2, 0, 3)
            keys, values = self.cache[number]
            keys[:, self.position:until] = self.rotate(k, until)
            values[:, self.position:until] = v
            found = F.scaled_dot_product_attention(self.rotate(q, until)[None], keys[None, :, :until],
                                                   values[None, :, :until], is_causal=ids.numel() > 1)
            x = x + F.linear(found[0].transpose(0, 1).reshape(x.shape), mixed)
            gate, up = F.linear(F.rms_norm(x, width), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        self.position = until
        return F.linear(F.rms_norm(x[-1:], width), self.head)

    def begin(self, given):
        generator = torch.Generator("cpu").manual_seed((self.place.seed * 1000003 + given) % 2**63)
        self.ids = torch.randint(0, self.vocab, (self.place.prompt,), generator=generator).to(self.place.device)
        self.position = 0
        self.sums = torch.zeros((), dtype=torch.int64, device=self.place.device)

    def unit(self):
        with torch.inference_mode():
            logits = self.logits(self.ids)
            self.sums = self.sums * 3 + checksum(logits)
            self.ids = logits.argmax(dim=-1)
            int(self.ids)  # waits for it
        self.last = logits

    def sum(self):
        if not bool(self.last.isfinite().all()):
            raise RuntimeError("the logits are not finite")
        return to_int(self.sums)


class GraphDecoder(Decoder):
    """
    The same model, but each token after a prompt is one CUDA graph: it waits for the GPU, and hardly for the processor
    that launches. Its shapes never change: attention covers the whole cache, and what lies behind the token is masked.
    """

    def __init__(self, place, count):
        super().__init__(place, count)
        context, device = self.cache.shape[3], place.device
        self.places = torch.arange(context, device=device)
        self.at, self.token = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.total = torch.zeros((), dtype=torch.int64, device=device)
        self.found = torch.zeros(1, self.vocab, dtype=place.dtype, device=device)
        self.replay = self.step if place.is_tiny else record(self.step).replay

    def step(self):
        """From the token in `token` at `at` to the next in both; every call launches the same kernels."""
        x = F.embedding(self.token, self.embedding)
        width, size = (x.shape[1],), self.cache.shape[4]
        cosine, sine = self.cosine.index_select(0, self.at), self.sine.index_select(0, self.at)
        is_here, is_later = ((self.places == self.at)[None, :, None], (self.places > self.at)[None, None, :])

        def rotate(x):
            first, second = x.chunk(2, dim=-1)
            return x * cosine + torch.cat((-second, first), dim=-1) * sine

        for number, (attention, mixed, gate_up, down) in enumerate(self.layers):
            q, k, v = F.linear(F.rms_norm(x, width), attention).view(1, 3, self.heads, size).permute(1, 2, 0, 3)
            keys, values = self.cache[number]
            keys.copy_(torch.where(is_here, rotate(k), keys))
            values.copy_(torch.where(is_here, v, values))
            scores = (rotate(q) @ keys.transpose(1, 2)) * size**-.5
            found = scores.masked_fill(is_later, float("-inf")).softmax(dim=-1) @ values
            x = x + F.linear(found.transpose(0, 1).reshape(x.shape), mixed)
            gate, up = F.linear(F.rms_norm(x, width), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        logits = F.linear(F.rms_norm(x, width), self.head)
        self.total.mul_(3).add_(checksum(logits))
        self.found.copy_(logits)
        self.token.copy_(logits.argmax(dim=-1))
        self.at.add_(1)

    def unit(self):
        if self.position == 0:  # a prompt, whose shapes are its own
            super().unit()
            self.total.copy_(self.sums)
            self.at.fill_(self.position)
            self.token.copy_(self.ids)
            self.sums, self.last = self.total, self.found
            return
        with torch.inference_mode():
            self.replay()
            int(self.token)  # waits for it
        self.position += 1


class Block(nn.Module):
    """A bottleneck block of a ResNet."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.past = nn.Identity() if stride == 1 and inputs == 4 * width else nn.Sequential(
            nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return F.relu(self.body(x) + self.past(x))


RESNETS = {"resnet50": (3, 4, 6, 3), "resnet152": (3, 8, 36, 3)} # of width 64, with 1000 classes


def make_resnet(counts, width, classes):
    parts = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
             nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate(counts):
        for number in range(count):
            parts.append(Block(inputs, width << stage, 2 if stage > 0 and number == 0 else 1))
            inputs = 4 * width << stage
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Convolutions(nn.Module):
    """Group normalisation, then a convolution, twice, beside a way past them."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.parts = nn.ModuleList((nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1),
                                    nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)))
        self.past = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        found = x
        for norm, convolution in zip(self.parts[::2], self.parts[1::2]):
            found = convolution(F.silu(norm(found)))
        return found + self.past(x)


class Unet(nn.Module):
    """The shape of the models that make images: down to a quarter of the side and up again, with ways across."""

    def __init__(self, channels):
        super().__init__()
        first, second, third = channels
        self.enter = nn.Conv2d(4, first, 3, padding=1)
        self.down = nn.ModuleList((Convolutions(first, first), Convolutions(first, second),
                                   Convolutions(second, third)))
        self.middle = nn.ModuleList((Convolutions(third, third), Convolutions(third, third)))
        self.up = nn.ModuleList((Convolutions(2 * third, second), Convolutions(2 * second, first),
                                 Convolutions(2 * first, first)))
        self.leave = nn.Conv2d(first, 4, 3, padding=1)

    def forward(self, x):
        x = self.enter(x)
        across = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else F.avg_pool2d(x, 2))
            across.append(x)
        for block in self.middle:
            x = block(x)
        for number, block in enumerate(self.up):
            x = block(torch.cat((x if number == 0 else F.interpolate(x, scale_factor=2), across.pop()), dim=1))
        return self.leave(x)


class Denoising:
    """Steps of making an image by convolutions in fp16, from noise of the input's seed; a unit is a step."""

    def __init__(self, place, count):
        channels, batch, side = ((8, 16, 16), 1, 16) if place.is_tiny else ((320, 640, 1280), 32, 64)
        self.place, self.units = place, place.units
        generator = torch.Generator(place.device).manual_seed(place.seed)
        with torch.device(place.device):
            self.model = Unet(channels).to(place.dtype)
        for module in self.model.modules():
            if isinstance(module, nn.Conv2d):
                fan_in = module.in_channels * module.kernel_size[0]**2
                module.weight.data.normal_(0, fan_in**-.5, generator=generator)
                module.bias.data.zero_()
        self.shape = batch, 4, side, side
        self.ballast, self.count = None, count
        self.x, self.sums = None, None

    def begin(self, given):
        if self.ballast is None and self.x is not None:
            self.ballast = Ballast(self.place.device, self.count - self.place.used_bytes(), self.place.seed + 1)
        generator = torch.Generator(self.place.device).manual_seed((self.place.seed * 1000003 + given) % 2**63)
        self.x = torch.empty(self.shape, dtype=self.place.dtype, device=self.place.device).normal_(generator=generator)
        self.sums = torch.zeros((), dtype=torch.int64, device=self.place.device)

    def unit(self):
        with torch.inference_mode():
            self.x = (self.x - .1 * self.model(self.x)).clamp(-8, 8)
            self.sums = self.sums * 3 + checksum(self.x) + (self.ballast.wrong() if self.ballast else 0)
            if not bool(self.x.isfinite().all()):  # waits for it
                raise RuntimeError("the image is not finite")

    def sum(self):
        return to_int(self.sums)


# Of training these: the images' side, and about how many MiB a step takes for itself and for each image. A batch that was found
# by trying would not be the same everywhere.
VISION = {"resnet152": (224, 700, 280), "resnet50": (224, 500, 95), "vgg19": (224, 1700, 120), "inception_v3": (299, 300, 130),
          "densenet201": (224, 250, 220)}


class Vision:
    """
    Training of a known model of images, of random weights, in fp32, on made-up images; a unit is a step, of as many images
    as the bytes hold, about.
    """

    def __init__(self, place, count, name):
        side, own, an_image = VISION[name]
        batch = max(2, int((count / 2**20 - own) // an_image))
        if place.is_tiny:
            side, batch = 32, 2
        self.place, self.units = place, place.units
        torch.manual_seed(place.seed)
        self.model = known_model(name, place.is_tiny).to(place.device).train()
        generator = torch.Generator(place.device).manual_seed(place.seed)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=.001, momentum=.9)
        self.state = [tensor for tensor in self.model.state_dict().values() if tensor.is_floating_point()]
        self.first = [tensor.clone() for tensor in self.state]
        self.images = torch.empty((batch, 3, side, side), device=place.device).normal_(generator=generator)
        self.labels = torch.randint(0, 10, (batch,), device=place.device, generator=generator)
        self.sums = None

    def begin(self, given):
        with torch.no_grad():
            torch._foreach_copy_(self.state, self.first)
            for state in self.optimizer.state.values():
                state["momentum_buffer"].zero_()
        torch.manual_seed(given) # some drop a part at random
        self.sums = torch.full((), given, dtype=torch.int64, device=self.place.device)

    def unit(self):
        loss = F.cross_entropy(self.model(self.images), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.sums = self.sums * 3 + checksum(loss)
        if not math.isfinite(loss.item()): # waits for it
            raise RuntimeError("the loss is not finite")

    def sum(self):
        return to_int(self.sums + checksum(self.state[0]) + checksum(self.state[-1]))


class AfterBatch(Vision):
    """
    Training of a ResNet-152 behind one batch that was so much larger that it took about `spare` bytes more: PyTorch keeps
    that memory, and most of it is not used again.
    """

    def __init__(self, place, count):
        super().__init__(place, count, "resnet152")
        few, times = (self.images, self.labels), 2 + int(place.spare / 2**20 / VISION["resnet152"][2] / len(self.images))
        self.images, self.labels = self.images.repeat(times, 1, 1, 1), self.labels.repeat(times)
        self.begin(0)
        self.unit()
        self.images, self.labels = few


def known_model(name, is_tiny):
    if is_tiny:
        return make_resnet((1, 1, 1, 1), 8, 10)
    if name in RESNETS:
        return make_resnet(RESNETS[name], 64, 1000)
    try:
        import torchvision

        # The Inception model's second head is of no use here.
        options = {"aux_logits": False, "init_weights": True} if name == "inception_v3" else {}
        return getattr(torchvision.models, name)(weights=None, **options)
    except ImportError:
        pass
    try:
        import timm

        return timm.create_model(name, pretrained=False)
    except ImportError:
        print("absent neither torchvision nor timm", flush=True)
        raise SystemExit(0) from None


class Inference:
    """A ResNet-50 in fp16; a unit is one image, whose kernels are launched one by one."""

    def __init__(self, place, _count):
        side = 32 if place.is_tiny else 224
        self.place, self.units = place, place.units
        torch.manual_seed(place.seed)
        self.model = known_model("resnet50", place.is_tiny).eval().to(device=place.device, dtype=place.dtype)
        generator = torch.Generator("cpu").manual_seed(place.seed)
        self.image = torch.randn(1, 3, side, side, generator=generator).to(device=place.device, dtype=place.dtype)
        self.last = None

    def begin(self, given):
        pass

    def unit(self):
        with torch.inference_mode():
            self.last = self.model(self.image)
        self.place.synchronize()

    def sum(self):
        return to_int(checksum(self.last))


class Loading:
    """A unit reads a file as a model's tensors onto the GPU, one after the other, as loaders of mapped model files do."""

    PIECES = (2**28, 2**26, 2**24, 2**24, 2**13)  # again and again: an embedding, layers, norms

    def __init__(self, place, _count):
        self.place, self.units, self.last = place, 1, 0

    def begin(self, given):
        pass

    def unit(self):
        words = torch.from_file(self.place.file, shared=False, size=os.path.getsize(self.place.file) // 8, dtype=torch.int64)
        at, tensors = 0, []
        while at < len(words):
            piece = words[at:at + self.PIECES[len(tensors) % len(self.PIECES)] // 8]
            tensors.append(piece.to(self.place.device))
            at += len(piece)
        self.last = sum(int(tensor.sum()) for tensor in tensors) % 2**63
        del tensors
        if not self.place.is_tiny:
            torch.cuda.empty_cache()

    def sum(self):
        return self.last


MODELS = {"after-batch": AfterBatch, "decoder": Decoder, "decoder-graphs": GraphDecoder, "denoising": Denoising, "inference": Inference,
          "loading": Loading, "training": functools.partial(Vision, name="resnet152"),
          **{name: functools.partial(Vision, name=name) for name in VISION}}
