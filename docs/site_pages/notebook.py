"""Convert a notebook with its stored outputs to Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def notebook_page(path: Path) -> str:
    """Return the cells of a notebook as Markdown: text, code, and the text that the code printed.

    Raises:
        ValueError: an output has no text, such as a picture.
    """
    parts: list[str] = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            if printed := "".join(_texts(cell["outputs"])).rstrip():
                parts.append(f"```text\n{_COLOUR.sub('', printed)}\n```")
    return "\n\n".join(parts) + "\n"


def _texts(outputs: list[Mapping[str, Any]]) -> Iterator[str]:
    for output in outputs:
        text = output.get("text") or output.get("data", {}).get("text/plain")
        if text is None:
            raise ValueError(
                f"the notebook has an output of type {output['output_type']} without text"
            )
        yield "".join(text)
