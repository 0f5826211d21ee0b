"""Plan a transformers model, train it, and load the checkpoint into the plain class.

    pip install -e '.[hf]'
    python examples/transformers_model.py

Everything is built from configurations with random weights; nothing is downloaded.
"""

import tempfile

import torch
import transformers

import depthmup


def make(width: int, depth: int) -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=depth,
        num_attention_heads=width // 16,  # more heads of the same size
        num_key_value_heads=width // 32,
        head_dim=16,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def batch(generator: torch.Generator) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Arithmetic progressions of bytes."""
    start, step = torch.randint(0, 256, (2, 8, 1), generator=generator)
    ids = (start + (step % 7) * torch.arange(32)) % 256
    return {"input_ids": ids}, ids


def main(steps: int = 30) -> list[float]:
    torch.manual_seed(0)
    base, model = make(32, 2), make(128, 8)
    inputs, _ = batch(torch.Generator().manual_seed(0))

    plan = depthmup.plan(
        model, base=base, scheme="completep", optimizer="adamw", example_inputs=inputs
    )
    print(plan)
    plan.initialize(model)
    optimizer = torch.optim.AdamW(
        plan.param_groups(model, lr=1e-2, weight_decay=0.1, vector_weight_decay=0.0), lr=1e-2
    )

    generator, losses = torch.Generator().manual_seed(1), []
    for step in range(steps):
        inputs, labels = batch(generator)
        loss = model(**inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        plan.clip_grad_norm_(model, 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step:3d}  loss {losses[-1]:.4f}")

    # Every multiplier is folded into a weight: the plain class computes the same, without us.
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        plain = transformers.LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        assert torch.equal(plain(**inputs).logits, model.eval()(**inputs).logits)
    print("the checkpoint gives the same logits in the plain class")
    return losses


if __name__ == "__main__":
    main()
