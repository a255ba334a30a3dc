"""Greedy decoding with a Llama-shaped model of random weights (bf16, about 15 GB by default).

For each seed: make the weights on the GPU, decode, and print every token with a checksum of its logits."""

import argparse
import time

import common
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def make_model(layers):
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def set_weights(model, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, 0.04, generator=generator)


def decode(model, seed, count):
    generator = torch.Generator("cpu").manual_seed(seed)
    ids = torch.randint(0, 32000, (1, 64), generator=generator).cuda()
    cache, tokens, sums = None, [], []
    for _ in range(count):
        out = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits = out.logits[:, -1, :]
        ids = logits.argmax(dim=-1, keepdim=True)
        tokens.append(int(ids))
        sums.append(common.checksum(logits))
    return tokens, sums


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--go")
    arguments = parser.parse_args()
    common.set_deterministic()
    common.wait_for_go(arguments.go)

    result = {"runs": {}}
    with torch.inference_mode():
        start = time.monotonic()
        model = make_model(arguments.layers)
        result["bytes"] = sum(p.numel() * p.element_size() for p in model.parameters())
        for seed in (int(s) for s in arguments.seeds.split(",")):
            set_weights(model, seed)
            torch.cuda.synchronize()
            begin = time.monotonic()
            tokens, sums = decode(model, seed, arguments.tokens)
            result["runs"][str(seed)] = {"tokens": tokens, "sums": sums}
            result["decode_s"] = round(time.monotonic() - begin, 2)
        result["all_s"] = round(time.monotonic() - start, 2)
    common.finish(result)


main()
