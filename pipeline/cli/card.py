"""`thdpack card`: write croissant.json and README.md."""

from __future__ import annotations

import sys
from typing import Final

from pipeline.cli.options.report_options import CardOptions
from pipeline.report.card.stated import Stated, stated_by
from pipeline.report.card.write_card import write_card
from pipeline.storage.read_manifest import read_manifest
from schemas.licenses import license_hint
from schemas.text.redact import without_credentials

_STATED: Final = {
    "--license": "the licence of the inputs",
    "--source-release": "the release of the inputs",
}
_BOTH: Final = "the licence and the release of the inputs"


def run_card(options: CardOptions) -> int:
    """Write both files, print their names, and return an exit code.

    Raises:
        ThdpackError: the dataset cannot be read, or a file cannot be written.
        OptionError: the dataset was built with another licence or release.
    """
    given = Stated(source_release=options.source_release, license=options.license)
    for name in write_card(
        options.dataset, out=options.out, overwrite=options.overwrite, given=given
    ):
        print(f"wrote {without_credentials(name)}")
    if hint := license_hint(options.license):
        print(hint, file=sys.stderr)
    stated = stated_by(read_manifest(options.dataset), given)
    values = {"--license": stated.license, "--source-release": stated.source_release}
    if missing := [option for option, text in values.items() if text is None]:
        print(
            f"the card does not state {_STATED[missing[0]] if len(missing) == 1 else _BOTH}: to "
            f"state it, run this command with {' and '.join(missing)}",
            file=sys.stderr,
        )
    return 0
