"""shapes.py llama|experts|gathers [UNITS]: small PyTorch programs whose launches tests/gpu/accuracy.sh judges.

  llama    a decoder in the shape of Llama, from transformers, with a key-value cache of all its context, allocated ahead
  experts  layers of eight experts, of which each token goes through two: which, the data tells
  gathers  rows of a large table, chosen by numbers in device memory; a scatter; a sort; a strided view
"""
import sys

import torch


def llama(units):
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.cache_utils import StaticCache

    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                         num_key_value_heads=8, vocab_size=32000, max_position_embeddings=2048)
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    try:
        cache = StaticCache(config=config, max_cache_len=2048)
    except TypeError: # older transformers
        cache = StaticCache(config, 1, 2048, "cuda", torch.float16)
    tokens = torch.randint(0, 32000, (1, 64), device="cuda")
    at = torch.arange(64, device="cuda")
    for step in range(units):
        logits = model(tokens, past_key_values=cache, cache_position=at, use_cache=True).logits
        tokens = logits[:, -1:].argmax(-1)
        at = at[-1:] + 1


def experts(units):
    width, hidden, count = 1024, 4096, 8
    layers = [[(torch.randn(width, hidden, device="cuda", dtype=torch.float16) / 32,
                torch.randn(hidden, width, device="cuda", dtype=torch.float16) / 64) for expert in range(count)]
              for layer in range(6)]
    gates = [torch.randn(width, count, device="cuda", dtype=torch.float16) for layer in layers]
    for step in range(units):
        x = torch.randn(32, width, device="cuda", dtype=torch.float16)
        for layer, gate in zip(layers, gates):
            weights, chosen = torch.topk((x @ gate).softmax(-1), 2)
            out = torch.zeros_like(x)
            for number, (up, down) in enumerate(layer):
                token, slot = torch.where(chosen == number)
                if token.numel() > 0:
                    y = torch.relu(x[token] @ up) @ down
                    out.index_add_(0, token, y * weights[token, slot, None])
            x = torch.nn.functional.layer_norm(x + out, (width,))


def gathers(units):
    table = torch.randn(1 << 18, 512, device="cuda")
    sums = torch.zeros(1 << 18, device="cuda")
    for step in range(units):
        rows = torch.randint(0, 1 << 18, (4096,), device="cuda")
        picked = table[rows]
        sums.index_add_(0, rows, picked.sum(1))
        sums.scatter_(0, rows, picked[:, 0])
        torch.sort(sums[: 1 << 16])
        torch.nn.functional.embedding(rows[:64], table).sum()
        table[::8].sum()


if __name__ == "__main__":
    with torch.no_grad():
        {"llama": llama, "experts": experts, "gathers": gathers}[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 12)
    torch.cuda.synchronize()
    print("ok", sys.argv[1])
