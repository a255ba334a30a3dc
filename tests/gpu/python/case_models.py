"""Cases of the framework matrix: models of transformers and timm, random weights. case.py says how they are run."""

import case
import case_torch as t

torch = t.torch


def generate(arguments):
    """generate() of transformers with a Llama-shaped model, greedy, and with sampling from a seed."""
    t.ready(arguments)
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise case.Skip(f"not installed: {error}") from None
    is_tiny = arguments.device == "cpu"
    config = LlamaConfig(
        vocab_size=1000, hidden_size=64 if is_tiny else 1024, intermediate_size=128 if is_tiny else 2816,
        num_hidden_layers=2 if is_tiny else 12, num_attention_heads=4 if is_tiny else 16, num_key_value_heads=4,
        max_position_embeddings=512, attn_implementation="eager", pad_token_id=0, eos_token_id=None, bos_token_id=1)
    torch.manual_seed(1)
    model = LlamaForCausalLM(config).to(arguments.device).eval()
    held = t.Held(arguments)
    prompt = torch.randint(2, 1000, (2, 24), generator=torch.Generator().manual_seed(2)).to(arguments.device)
    mask = torch.ones_like(prompt)

    def one_round():
        with torch.inference_mode():
            greedy = model.generate(prompt, attention_mask=mask, max_new_tokens=24, do_sample=False)
            torch.manual_seed(3)
            sampled = model.generate(prompt, attention_mask=mask, max_new_tokens=24, do_sample=True)
            logits = model(greedy).logits
        return (t.combine(t.checksum(greedy), t.checksum(sampled), t.checksum(logits), held.sum()),
                logits.flatten()[:8].float().tolist())

    return one_round


def timm_training(arguments):
    """Training of a model of timm, some steps from the same weights, with mixed precision."""
    t.ready(arguments)
    try:
        import timm
    except ImportError as error:
        raise case.Skip(f"not installed: {error}") from None
    torch.manual_seed(1)
    side = 32 if arguments.device == "cpu" else 128
    model = timm.create_model("resnet26", pretrained=False, num_classes=100).to(arguments.device).train()
    held, state = t.Held(arguments), t.copy_of(model)
    generator = torch.Generator(arguments.device).manual_seed(4)
    batches = [(torch.randn(16, 3, side, side, device=arguments.device, generator=generator),
                torch.randint(0, 100, (16,), device=arguments.device, generator=generator)) for _ in range(3)]

    def one_round():
        model.load_state_dict(state)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for images, labels in batches:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(arguments.device, dtype=torch.bfloat16):
                loss = t.F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().float())
        losses = torch.stack(losses)
        return (t.combine(t.checksum(losses), *(t.checksum(p) for p in model.parameters()), held.sum()),
                losses.tolist())

    return one_round


if __name__ == "__main__":
    case.run({"generate": generate, "timm": timm_training}, t.imports)
