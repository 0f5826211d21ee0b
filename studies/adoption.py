"""What adopting a plan costs: lines of a training program, by diff.

The programs are the recipes of docs/how-to. Lines that a plan adds end in ``# added``, those that
it replaces in ``# was: CODE``; everything before ``<!-- adopted -->`` is the program. Without
these lines the program is the plain one: it is run, too, to show that it is whole.

    python -m studies.adoption            count, and run every plain program that can run here
"""

import contextlib
import difflib
import os
import re
import tempfile
from pathlib import Path

PAGES = Path(__file__).parents[1] / "docs" / "how-to"
TITLES = {
    "nanogpt": "nanoGPT",
    "nanochat": "nanochat (Muon and AdamW)",
    "hf-trainer": "transformers' Trainer",
    "trl": "TRL",
    "accelerate": "Accelerate",
    "lightning": "Lightning",
    "timm": "timm",
    "torchtitan": "torchtitan's containers",
}

WITH_MUP = [
    ("import math\n", "import math\n\nimport mup\n"),
    ("v, is_causal=True)", "v, is_causal=True, scale=2 / k.shape[-1])"),
    (
        "self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)",
        "self.lm_head = mup.MuSharedReadout(self.wte.weight, bias=False)",
    ),
    ("        if tied:\n            self.wte.weight = self.lm_head.weight\n", ""),
    (
        "        for name, p in self.named_parameters():\n",
        "\n    def init_weights(self, config):\n        for name, p in self.named_parameters():\n",
    ),
    ("nn.init.normal_(p, std=std)", "mup.init.normal_(p, std=std)"),
    ("torch.optim.AdamW(\n", "mup.MuAdamW(\n"),
    (
        "model = GPT(GPTConfig(**model_args))\n",
        "model = GPT(GPTConfig(**model_args))\n"
        'base = GPT(GPTConfig(**{**model_args, "n_embd": 16}))\n'
        'delta = GPT(GPTConfig(**{**model_args, "n_embd": 32}))\n'
        "mup.set_base_shapes(model, base, delta=delta)\n"
        "model.init_weights(GPTConfig(**model_args))\n",
    ),
    (
        "(0.9, 0.95))\n",
        "(0.9, 0.95))\n"
        "for param_group in optimizer.param_groups:\n"
        '    param_group["lr_factor"] = param_group["lr"] / learning_rate\n',
    ),
    ('param_group["lr"] = lr\n', 'param_group["lr"] = lr * param_group["lr_factor"]\n'),
]
"""What mup 1.0.0 asks for in nanoGPT's program, by its README: edits of the plain program."""

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def program(page: Path) -> str:
    """The code of a recipe up to where resuming begins."""
    text, marker, _ = page.read_text(encoding="utf-8").partition("<!-- adopted -->")
    if not marker:
        raise ValueError(f"Expected <!-- adopted --> in {page}, after the training program.")
    return "\n".join(_BLOCK.findall(text))


def plain(code: str) -> str:
    """The program without what a plan adds."""
    lines = []
    for line in code.splitlines():
        if "# added" in line or line == "import depthmup":
            continue
        _, was, before = line.partition("# was: ")
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(indent + before if was else line)
    return "\n".join(lines)


def with_mup(code: str) -> str:
    """nanoGPT's plain program under mup: width alone, the model edited.

    Raises:
        ValueError: the program has changed, and an edit no longer fits it.
    """
    for before, after in WITH_MUP:
        if code.count(before) != 1:
            raise ValueError(f"Expected {before!r} once in the plain program of nanoGPT.")
        code = code.replace(before, after)
    return code


def cost(before: str, after: str) -> tuple[int, int]:
    """Lines added and lines replaced, empty ones and comments aside.

    Example:
        >>> cost("a\\nb\\nc", "a\\nB\\nc\\nd")
        (1, 1)
    """
    one, two = (
        [line for line in code.splitlines() if line.strip() and not line.strip().startswith("#")]
        for code in (before, after)
    )
    added = replaced = 0
    for kind, i, j, m, n in difflib.SequenceMatcher(a=one, b=two, autojunk=False).get_opcodes():
        if kind != "equal":
            replaced += j - i
            added += max(0, (n - m) - (j - i))
    return added, replaced


def table() -> str:
    """The costs of all recipes, as Markdown."""
    rows = ["| trainer | lines added | lines replaced |", "| --- | --- | --- |"]
    for name, title in TITLES.items():
        code = program(PAGES / f"{name}.md")
        added, replaced = cost(plain(code), code)
        rows.append(f"| [{title}](../how-to/{name}.md) | {added} | {replaced} |")
        if name == "nanogpt":
            added, replaced = cost(plain(code), with_mup(plain(code)))
            rows.append(f"| the same with mup, for width alone | {added} | {replaced} |")
    return "\n".join(rows)


def run(code: str) -> None:
    """Execute a program in a folder of its own."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            exec(compile(code, "plain", "exec"), {"__name__": "plain"})
        finally:
            os.chdir(here)


if __name__ == "__main__":
    print(table())
    programs = {name: plain(program(PAGES / f"{name}.md")) for name in TITLES}
    programs["nanogpt with mup"] = with_mup(programs["nanogpt"])
    for name, code in programs.items():
        try:
            with contextlib.redirect_stdout(None):
                run(code)
            print(f"the plain program of {name} runs")
        except (ImportError, RuntimeError) as problem:
            print(f"the plain program of {name} did not run here: {problem}")
