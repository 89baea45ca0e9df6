"""The dataset card (README.md) has the manifest's numbers and a header for the Hugging Face Hub."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.manifest_entries import NamedFileEntry
from schemas.records import Status
from tests.helpers.data.corpus import read_manifest
from tests.helpers.processes.command_line import Run


def header(dataset: Path) -> dict[str, Any]:
    """Return the YAML header of README.md."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    _, text, _ = (dataset / "README.md").read_text().split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_the_release_the_licence_and_the_digest_are_stated(run: Run, dataset: Path) -> None:
    assert run("card", dataset).returncode == 0
    text = (dataset / "README.md").read_text()
    assert "| release of the inputs | <code>UniRef50/2026_04</code> |" in text
    assert "| licence of the inputs | <code>CC-BY-4.0</code> |" in text
    assert f"| <code>{read_manifest(dataset).digest}</code> |" in text
    assert header(dataset)["license"] == "cc-by-4.0"
    assert header(dataset)["pretty_name"] == "UniRef50/2026_04, packed"


def test_the_readme_has_the_numbers_of_the_manifest(run: Run, dataset: Path) -> None:
    assert run("card", dataset).returncode == 0
    text, manifest = (dataset / "README.md").read_text(), read_manifest(dataset)
    for status in Status:
        count = manifest.records_by_status[status]
        assert f"| {status.replace('_', ' ')} | {count:,} |" in text
    for split, totals in manifest.splits.items():
        shards = len(manifest.shards[split])
        assert f"| {split} | {shards} | {totals.buckets:,} | {totals.sequences:,} |" in text
    assert "--exclude-identity" not in text  # nothing was excluded
    for name, value in manifest.options.items():
        if name.startswith("exclude"):
            continue
        shown = "not given" if value is None else f"<code>{value}</code>"
        shown = {True: "given", False: "not given"}[value] if isinstance(value, bool) else shown
        assert f"| <code>--{name.replace('_', '-')}</code> | {shown} |" in text
    for entry in manifest.inputs:
        assert f"| {entry.bytes:,} | {entry.records:,} | `{entry.xxh3_128}` |" in text
    assert header(dataset)["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": split, "path": [f"{split}/{manifest.build}-*.arrow"]}
                for split in ("train", "valid", "test")
            ],
        }
    ]


def test_the_card_lists_the_files_named_by_options_and_at_most_200_inputs(
    run: Run, dataset: Path
) -> None:
    manifest = read_manifest(dataset)
    many = tuple(replace(manifest.inputs[0], name=f"{i}\n# x") for i in range(300))
    named = NamedFileEntry(
        option="exclude", name="test|set.fa", bytes=1234, rows=5, xxh3_128="0" * 32
    )
    changed = replace(manifest, named_files=(*manifest.named_files, named), inputs=many)
    (dataset / "manifest.json").write_text(changed.to_json())
    assert run("card", dataset).returncode == 0
    text = (dataset / "README.md").read_text()
    assert "| `--metadata` | <code>table.parquet</code> |" in text
    assert f"<code>test&#124;set.fa</code> | 1,234 | 5 | `{'0' * 32}` |" in text
    assert len(re.findall(r"^\| <code>\d+&#92;n&#35; x</code>", text, re.MULTILINE)) == 200
    assert "`manifest.json` lists all 300 inputs." in text


@pytest.mark.parametrize(
    ("licence", "lines"),
    [
        (None, {}),
        ("odbl-1.0", {"license": "odbl"}),
        ("Ask: Jo's lab", {"license": "other", "license_name": "ask-jo-s-lab"}),
        (
            "https://example.org/terms",
            {
                "license": "other",
                "license_name": "https-example.org-terms",
                "license_link": "https://example.org/terms",
            },
        ),
    ],
)
def test_every_licence_is_written_as_the_hub_expects_it(
    run: Run, dataset: Path, licence: str | None, lines: dict[str, str]
) -> None:
    manifest = read_manifest(dataset)
    changed = replace(manifest, options={**manifest.options, "license": licence})
    (dataset / "manifest.json").write_text(changed.to_json())
    assert run("card", dataset).returncode == 0
    found = header(dataset)
    assert {key: found[key] for key in found if key.startswith("license")} == lines
