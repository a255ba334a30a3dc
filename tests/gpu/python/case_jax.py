"""Cases of the framework matrix: JAX, with its own preallocation. case.py says how they are run.

As it is by default, JAX takes three quarters of the GPU's memory at its start: how much that is, it asks the driver.
It is in the result (`limit_bytes`), beside what the driver said (`total_bytes`).
"""

import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true"
if "cpu" in sys.argv:
    os.environ["JAX_PLATFORMS"] = "cpu"

import case

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError as error:
    case.skip(f"not installed: {error}")


def ready(arguments):
    wanted = "cpu" if arguments.device == "cpu" else "gpu"
    if jax.devices()[0].platform != wanted:
        raise case.Skip(f"JAX sees only {jax.devices()[0].platform}")


def digest(*arrays):
    """Of the bits of all of them."""
    value = 0
    for array in arrays:
        words = np.ascontiguousarray(np.asarray(array)).reshape(-1).view(np.uint8)
        words = words[:words.size // 4 * 4].view(np.uint32).astype(np.uint64)
        places = np.arange(1, 2 * words.size, 2, dtype=np.uint64)
        value = (value * 1000003 + int((words * places).sum(dtype=np.uint64))) % 2**64
    return value


def hold(arguments):
    """Memory of random words, summed up on the GPU."""
    count = int(arguments.gib * 2**30) if arguments.device != "cpu" else 2**22
    keys = jax.random.split(jax.random.key(77), max(1, count // 2**27))
    pieces = [jax.random.bits(key, (min(count, 2**27) // 4,), jnp.uint32) for key in keys]

    @jax.jit
    def sum_of(piece):
        return (piece * (2 * jnp.arange(piece.size, dtype=jnp.uint32) + 1)).sum(dtype=jnp.uint32)

    return lambda: tuple(int(sum_of(piece)) for piece in pieces)


def extra_of(arguments):
    def extra():
        stats = jax.devices()[0].memory_stats() or {}
        return {"limit_bytes": stats.get("bytes_limit"), "peak_bytes": stats.get("peak_bytes_in_use"),
                "devices": jax.local_device_count()}

    del arguments
    return extra


def loss_of(weights, inputs, labels):
    hidden = inputs
    for matrix in weights[:-1]:
        hidden = jnp.tanh(hidden @ matrix)
    logits = hidden @ weights[-1]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, logits.shape[-1]), axis=-1))


def make(arguments, width=2048):
    width = width if arguments.device != "cpu" else 32
    keys = jax.random.split(jax.random.key(1), 6)
    weights = [jax.random.normal(key, (width, width)) * width**-.5 for key in keys[:4]]
    inputs = jax.random.normal(keys[4], (256, width))
    labels = jax.random.randint(keys[5], (256,), 0, width)
    return weights, inputs, labels


def jit(arguments):
    ready(arguments)
    weights, inputs, labels = make(arguments)
    held = hold(arguments)

    @jax.jit
    def step(weights):
        loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, labels)
        return loss, [matrix - .1 * gradient for matrix, gradient in zip(weights, gradients)]

    def one_round():
        now, losses = weights, []
        for _ in range(10):
            loss, now = step(now)
            losses.append(float(loss))
        return (digest(*now) * 31 + hash(held())) % 2**64, losses

    return one_round, extra_of(arguments)


def pmap(arguments):
    """pmap on one device, with a sum over its axis."""
    ready(arguments)
    weights, inputs, labels = make(arguments, 1024)
    held = hold(arguments)
    count = jax.local_device_count()

    def one(weights, inputs, labels):
        loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, labels)
        gradients = jax.lax.psum(gradients, "devices")
        return jax.lax.pmean(loss, "devices"), [w - .1 * g for w, g in zip(weights, gradients)]

    step = jax.pmap(one, axis_name="devices")
    spread = jax.tree.map(lambda array: jnp.stack([array] * count), (weights, inputs, labels))

    def one_round():
        now, losses = spread[0], []
        for _ in range(10):
            loss, now = step(now, spread[1], spread[2])
            losses.append(float(loss[0]))
        return (digest(*now) * 31 + hash(held())) % 2**64, losses

    return one_round, extra_of(arguments)


if __name__ == "__main__":
    case.run({"jit": jit, "pmap": pmap})
