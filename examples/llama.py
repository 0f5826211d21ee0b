"""A small Llama of transformers on bytes of Python source: does its learning rate transfer?

depthmup transfer --model examples/llama.py:make --base 64x2 --depths 2 4 8 16 --schemes completep
                  --target 64x64 --out runs/llama        # some six minutes on two cores
"""

import inspect

import numpy as np
import torch
import transformers

MODULES = [inspect, torch.nn.functional, transformers.modeling_utils]
TEXT = "".join(inspect.getsource(module) for module in MODULES)
BYTES = torch.from_numpy(np.frombuffer(TEXT.encode(), dtype=np.uint8).astype(np.int64))
LENGTH, EXAMPLES = 64, 8


def make(width: int, depth: int) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=depth,
        num_attention_heads=width // 16,  # more heads of the same size
        num_key_value_heads=width // 32,
        head_dim=16,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def batch(generator: torch.Generator) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    starts = torch.randint(0, len(BYTES) - LENGTH, (EXAMPLES, 1), generator=generator)
    windows = BYTES[starts + torch.arange(LENGTH + 1)]
    return {"input_ids": windows[:, :-1]}, windows[:, 1:]
