"""Take a screenshot of an HTML report, such as docs/images/report.png.

    thdpack preprocess data/sample.fasta --out data/sample --capacity 4096 --split train=1
    thdpack stats data/sample --html report.html
    python -m benchmarks.pictures.screenshot report.html docs/images/report.png --height 2126
    python -m benchmarks.pictures.screenshot report.html docs/images/report-dark.png \\
        --height 2126 --scheme dark

This needs Chromium. The pictures in docs/images were taken with the font Inter installed.
"""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from PIL import Image
from playwright.sync_api import sync_playwright


@dataclass(frozen=True, kw_only=True)
class Options:
    page: Annotated[Path, tyro.conf.Positional]
    """Page written by `thdpack stats --html`."""
    picture: Annotated[Path, tyro.conf.Positional]
    """PNG file to write."""
    scheme: Literal["light", "dark"] = "light"
    """Colour scheme."""
    width: int = 1240
    """Width of the browser window in CSS pixels."""
    until: str = "#plot-cost"
    """CSS selector of the last element in the picture."""
    height: int = 0
    """Maximum height of the picture, in pixels of the picture; 0 for no maximum."""
    scale: float = 1.5
    """Pixels of the picture per CSS pixel."""


def main(options: Options) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": options.width, "height": 900},
            color_scheme=options.scheme,
            device_scale_factor=options.scale,
        )
        page.goto(options.page.resolve().as_uri())
        bottom = page.locator(options.until).evaluate(
            "figure => figure.getBoundingClientRect().bottom + window.scrollY + 20"
        )
        drawn = page.screenshot(
            full_page=True, clip={"x": 0, "y": 0, "width": options.width, "height": bottom}
        )
        browser.close()
    picture = Image.open(io.BytesIO(drawn)).convert("RGB")
    if options.height:
        picture = picture.crop((0, 0, picture.width, min(options.height, picture.height)))
    # 128 colours are enough for flat areas and text, and make the file four times smaller
    picture.quantize(128, dither=Image.Dither.NONE).save(options.picture, optimize=True)


if __name__ == "__main__":
    main(tyro.cli(Options))
