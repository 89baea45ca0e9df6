"""`--exclude` keeps exactly the records that a plain Python filter keeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.manifest import Manifest
from tests.helpers.data.corpus import fasta
from tests.helpers.oracles.exclusion_files import HEADERS, rows_of, write_files
from tests.helpers.oracles.slow_exclusion import Excluded, expected

LONG = "THDPACK_LONG" in os.environ
BuildHere = Callable[..., Manifest]
MAX_SEQ_LEN = 24
LONGEST = MAX_SEQ_LEN - 2
piece = st.text("AC", min_size=1, max_size=14)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[tuple[str, str]], Excluded]:
    """Return records and files of `--exclude`. All sequences consist of the same few pieces, so
    many sequences equal or contain another sequence."""
    pieces = draw(st.lists(piece, min_size=2, max_size=4))
    residues = st.lists(st.sampled_from(pieces), min_size=1, max_size=4).map("".join)
    made = draw(st.lists(residues, min_size=8, max_size=30))
    records = [(HEADERS[i % len(HEADERS)].format(i), text) for i, text in enumerate(made)]
    ids = st.sampled_from(["t1", "t10", "t2", "Z"])
    names = st.sampled_from(
        [
            name.format(i)
            for i in range(len(made))
            for name in ("P{}", "N{}_HUMAN", "plain{}", "t{}")
        ]
    )
    place = st.integers(1, 40)
    entries = st.lists(st.tuples(ids, residues), min_size=1, max_size=5)
    row = st.tuples(names, names, st.sampled_from([0.2, 0.3, 0.9]), place, place, place, place)
    return records, Excluded(
        fastas=draw(st.dictionaries(st.sampled_from(["a.fa", "b.fa"]), entries)),
        lists=draw(st.dictionaries(st.just("ids.txt"), st.lists(names, min_size=1, max_size=3))),
        tables=draw(st.dictionaries(st.just("m8"), st.lists(row, min_size=1, max_size=4))),
    )


@settings(
    max_examples=400 if LONG else 15,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    world=worlds(),
    dedup=st.sampled_from(["exact", "cropped", "none"]),
    long=st.sampled_from(["truncate", "split", "drop"]),
    where=st.sampled_from([None, "length > 9"]),
    whole=st.booleans(),
)
def test_exclude_keeps_what_a_plain_filter_keeps(
    build_here: BuildHere,
    world: tuple[list[tuple[str, str]], Excluded],
    dedup: str,
    long: str,
    where: str | None,
    whole: bool,
) -> None:
    records, excluded = world
    if dedup == "cropped":
        long = "truncate"
    records = [*records, ("end", "M" * 12)]  # no file matches this record, so a build keeps it
    early = [
        "too_long"
        if long == "drop" and len(residues) > LONGEST
        else "filtered"
        if where is not None and len(residues) <= 9
        else None
        for _, residues in records
    ]
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        (folder / "x.fasta").write_bytes(fasta(records))
        options: dict[str, Any] = {"dedup": dedup, "long": long, "where": where}
        options |= {"capacity": 64, "max_seq_len": MAX_SEQ_LEN}
        options["exclude"] = tuple(write_files(folder, excluded))
        patch.setattr("pipeline.build.build_plan.PARTITION_BYTES", 300)
        if not whole:
            patch.setattr("pipeline.inputs.find.TASK_BYTES", 200)
            patch.setattr("pipeline.inputs.find.PIECE_BYTES", 100)
            patch.setattr("pipeline.inputs.find.FEWEST_TASKS", 1)
            patch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 1)
            patch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 1)
        build_here(folder / "x.fasta", folder / "out", **options)
        found = rows_of(folder / "out")
        assert found == expected(records, early, excluded, dedup=dedup, longest=LONGEST)
