"""In options and in manifests, the release and the licence of the inputs must be one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.build.options import PreprocessOptions
from schemas.errors import ManifestError
from schemas.licenses import LICENSES, license_hint, spdx_identifier
from schemas.manifest import Manifest

REFUSED = {
    "": "is empty",
    "  ": "is empty",
    "x" * 201: "has 201 characters, expected at most 200",
    "two\nlines": "expected one line",
    "tab\there": "expected one line",
    "\x1b[31mred": "expected one line",
    "mirrored\u202etext": "expected one line",
    "not UTF-8: \udcff": "expected one line",
}


@pytest.mark.parametrize("name", ["source_release", "license"])
@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_is_not_one_short_line_is_refused(name: str, text: str) -> None:
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(ValueError, match=f"{option} .*{REFUSED[text]}"):
        PreprocessOptions(inputs=("x",), out="y", **{name: text})  # type: ignore[arg-type]


def test_a_manifest_whose_licence_or_release_is_not_one_short_line_is_refused(
    build_here: Callable[..., Manifest], tmp_path: Path
) -> None:
    (tmp_path / "x.fasta").write_bytes(b">a\nMKTAYIAK\n")
    manifest = build_here(tmp_path / "x.fasta", tmp_path / "out", license="Ünlimited, © 2026")
    read = Manifest.from_json(manifest.to_json(), where="m")
    assert (read.license, read.source_release) == ("Ünlimited, © 2026", None)
    for text in REFUSED:
        if "\udcff" in text:
            continue  # a lone surrogate makes the JSON invalid, which is another error
        for name in ("license", "source_release"):
            changed = replace(manifest, options={**manifest.options, name: text})
            with pytest.raises(ManifestError, match=f"options: .*{name}"):
                Manifest.from_json(changed.to_json(), where="m")
    without = {
        key: value
        for key, value in manifest.options.items()
        if key not in ("license", "source_release")
    }
    assert (
        Manifest.from_json(replace(manifest, options=without).to_json(), where="m").license is None
    )


@pytest.mark.parametrize("identifier", LICENSES)
def test_an_spdx_identifier_is_recognised_in_any_case_and_gives_no_hint(identifier: str) -> None:
    for text in (identifier, identifier.lower(), identifier.upper()):
        assert spdx_identifier(text) == identifier
        assert license_hint(text) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("CC BY 4.0", "CC-BY-4.0"),
        ("cc-by-4", "CC-BY-4.0"),
        ("CC_BY_SA 4.0", "CC-BY-SA-4.0"),
        ("CC0 1.0", "CC0-1.0"),
        ("ODbL 1.0", "ODbL-1.0"),
        ("Apache 2", "Apache-2.0"),
        ("CC-BY-9.0", None),
        ("see LICENSE.txt", None),
        ("LicenseRef-ours", None),
    ],
)
def test_only_a_near_miss_of_an_spdx_identifier_gives_a_hint(text: str, meant: str | None) -> None:
    hint = license_hint(text)
    assert (meant is None) == (hint is None)
    assert hint is None or f"did you mean {meant}," in hint
