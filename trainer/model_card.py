"""README.md of an exported model: a model card of the Hugging Face Hub.

The YAML header tells the Hub which library loads the model, and from which data it was trained.
The card states no licence, because only the user knows it. A card that was edited is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import xxhash

from pipeline.planning.mixture import datasets_of
from schemas import __version__
from schemas.text.redact import without_credentials
from trainer.checkpoints.atomic_write import write
from trainer.config import TrainOptions

NAME: Final = "README.md"
_SIGNATURE: Final = re.compile(r"\n<!-- thdpack-model-card:([0-9a-f]{32}) -->\n$")
_HUB_DATASET: Final = re.compile(r"hf://datasets/([^/@]+/[^/@]+)")
_HUB_CACHE: Final = re.compile(r"/models--([^/]+?)--([^/]+)/snapshots/")
_TAGS: Final = ("biology", "esm", "esm2", "protein", "thdpack")


def write_card(folder: Path, text: str) -> None:
    """Write the card of an exported model. A card that was edited is kept."""
    path = folder / NAME
    if path.is_file() and _was_edited(path.read_text(errors="replace")):
        return
    digest = xxhash.xxh3_128_hexdigest(text.encode())
    write(path, f"{text}\n<!-- thdpack-model-card:{digest} -->\n")


def _was_edited(text: str) -> bool:
    """Return whether the text differs from what `write_card` wrote."""
    match = _SIGNATURE.search(text)
    return match is None or xxhash.xxh3_128_hexdigest(text[: match.start()].encode()) != match[1]


def model_card(
    options: TrainOptions,
    *,
    digests: tuple[str, ...],
    step: int,
    tokens: int | None,
    loss: float | None,
) -> str:
    """Return the text of the card.

    Args:
        digests: digest of the manifest of each dataset, in the order of --data.
        step: number of steps of the exported model.
        tokens: number of tokens that the model was trained on, without padding; None if unknown.
        loss: validation loss of the exported model; None if this process did not measure it.
    """
    return "\n".join(_lines(options, digests, step, tokens, loss))


def step_row(step: int) -> str:
    """Return the line of a card that tells the number of steps of the model."""
    return f"| steps | {step:,} |"


def base_model(init_from: str) -> str | None:
    """Return the hub's name of the model in a folder of the hub's cache; None for other folders."""
    match = _HUB_CACHE.search(f"{Path(init_from).absolute()}/") if init_from else None
    return f"{match[1]}/{match[2]}" if match else None


def _lines(
    options: TrainOptions,
    digests: tuple[str, ...],
    step: int,
    tokens: int | None,
    loss: float | None,
) -> Iterator[str]:
    urls = [without_credentials(url) for url in datasets_of(options.data.data)]
    hub = dict.fromkeys(match[1] for url in urls if (match := _HUB_DATASET.match(url)))
    base = base_model(options.output.init_from)
    yield "---"
    yield "library_name: transformers"
    yield "pipeline_tag: fill-mask"
    yield "# license: add the licence of this model, such as `license: mit`"
    yield "tags:"
    yield from (f"- {tag}" for tag in _TAGS)
    if hub:
        yield "datasets:"
        yield from (f"- {json.dumps(name)}" for name in hub)
    if base:
        yield f"base_model: {json.dumps(base)}"
    yield "---\n"
    yield "# ESM-2 protein language model\n"
    yield f"A masked language model, trained by thdpack {__version__}.\n"
    yield "It loads with transformers:\n"
    yield "```python\nfrom transformers import AutoModelForMaskedLM, AutoTokenizer\n"
    yield 'model = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")'
    yield 'tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")\n```\n'
    yield "## Training\n\n| dataset | digest of its manifest |\n|---|---|"
    yield from (
        f"| `{_cell(url)}` | `{digest}` |" for url, digest in zip(urls, digests, strict=True)
    )
    yield "\n| measure | value |\n|---|---|"
    yield step_row(step)
    if tokens is not None:
        yield f"| tokens, without padding | {tokens:,} |"
    measured = "see metrics.jsonl of the run" if loss is None else f"{loss:.4f}"
    yield f"| validation loss | {measured} |"
    yield "\n<details><summary>Options of the run</summary>\n\n```json"
    yield without_credentials(options.to_json()).strip().replace("```", "` ` `")
    yield "```\n\n</details>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
