"""`thdpack card`: write croissant.json and README.md."""

from __future__ import annotations

from pipeline.cli.report_options import CardOptions
from pipeline.report.card.write_card import write_card
from schemas.text.redact import without_credentials


def run_card(options: CardOptions) -> int:
    """Write both files, print their names, and return an exit code.

    Raises:
        ThdpackError: the dataset cannot be read, or a file cannot be written.
    """
    for name in write_card(options.dataset, out=options.out, overwrite=options.overwrite):
        print(f"wrote {without_credentials(name)}")
    return 0
