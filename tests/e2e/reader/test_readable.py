"""Readable output in a Python session: sequences of a bucket, repr, tracebacks and help."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable
from dataclasses import fields
from itertools import islice
from pathlib import Path
from pydoc import plain, render_doc
from traceback import format_exception

import pytest

from pipeline.reader import ShardReader
from pipeline.reader.adapters import merge
from pipeline.reader.mixture import Mixture
from pipeline.reader.reader_options import ReaderOptions
from schemas.errors import ThdpackError
from schemas.vocabulary import ESM2
from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import preprocess


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readable")
    (folder / "made.fasta").write_bytes(fasta([*made_records(120), ("odd", "MK1T")]))
    limits = ("--capacity", "1024", "--max-seq-len", "512", "--length-multiple", "4")
    words = (*limits, "--split", "train=1", "--dedup", "none", "--long", "drop")
    return preprocess(folder / "made.fasta", folder / "out", *words)


def test_sequences_of_a_bucket_are_the_residues_of_its_records(dataset: Path) -> None:
    texts = [*(text.upper().removesuffix("*") for _, text in made_records(120)), "MK1T"]
    residues = ["".join(c if c in ESM2.letters else "?" for c in text) for text in texts]
    seen = 0
    with ShardReader(dataset) as reader:
        for number in range(len(reader)):
            found = reader[number].sequences()
            ordinals = reader.records(number)
            assert len(found) == len(ordinals) == reader[number].num_seqs
            assert [residues[ordinal] for ordinal in ordinals] == found
            seen += len(found)
        pair = list(islice(reader, 2))
        assert merge(pair).sequences() == [*pair[0].sequences(), *pair[1].sequences()]
        at = [reader.number_at(bucket.position) for bucket in pair]
        assert [reader[number].sequences() for number in at] == [b.sequences() for b in pair]
        with pytest.raises(IndexError):
            reader.records(len(reader))
    assert seen == len([text for text in residues if len(text) <= 510])


def test_the_repr_of_a_reader_shows_its_dataset_and_position(dataset: Path) -> None:
    with ShardReader(dataset, rank=1, world_size=2) as reader:
        next(reader)
        start = f"ShardReader({str(dataset)!r}, split='train', buckets={len(reader)}, rank=1, "
        assert repr(reader) == f"{start}world_size=2, position=2)"
    assert repr(reader).endswith("position=2, closed)")
    with Mixture([(dataset, 0.75)]) as mixture:
        assert repr(mixture).startswith(f"Mixture([({str(dataset)!r}, 1)], split='train', rank=0")
    with Mixture([(dataset, 0.7), (dataset, 0.5)]) as mixture:
        assert f"[({str(dataset)!r}, 7), ({str(dataset)!r}, 5)]" in repr(mixture)


def test_the_repr_of_a_bucket_is_one_line_that_names_the_method_that_decodes(
    dataset: Path,
) -> None:
    with ShardReader(dataset) as reader:
        bucket = list(islice(reader, 2))[1]
        tokens = f"{bucket.num_seqs} sequences, {bucket.num_tokens:,} of 1,024 tokens"
        assert repr(bucket) == f"Bucket({tokens}, position 1, epoch 0; .sequences() decodes)"
        chosen = reader[reader.number_at(1)]
        assert repr(chosen) == f"Bucket({tokens}; .sequences() decodes)"


def test_a_mixture_accepts_a_dict_and_the_error_for_other_types_says_so(dataset: Path) -> None:
    with Mixture({str(dataset): 0.7}) as mixture, Mixture([(dataset, 7)]) as pairs:
        assert next(mixture).sequences() == next(pairs).sequences()
        assert mixture.state_dict() == pairs.state_dict()
    for wrong in ("data/a", ["data/a"], [("a", 1, 2)], {"a", "b"}):
        with pytest.raises(ValueError, match=r"expected \(url, weight\) pairs or a dict"):
            Mixture(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("opened", "last"),
    [
        (lambda d: ShardReader(d / "nowhere"), "there is no such folder"),
        (lambda d: ShardReader(d / "train"), "no manifest.json"),
        (lambda d: ShardReader(d / "manifest.json"), "a file, not a dataset"),
        (lambda d: ShardReader("unknown://data"), "cannot open unknown://"),
        (lambda d: ShardReader("http://127.0.0.1:1/data"), "nothing answers"),
        (lambda d: Mixture([(d, "a lot")]), "is not a number"),
        (lambda d: next(ShardReader(d)), "missing"),
        (lambda d: next(ShardReader(d, prefetch=0)), "missing"),
    ],
)
def test_an_error_of_a_reader_has_a_single_traceback(
    dataset: Path, tmp_path: Path, opened: Callable[[Path], object], last: str
) -> None:
    copy = tmp_path / "out"
    shutil.copytree(dataset, copy)
    for shard in (copy / "train").iterdir():
        shard.unlink()
    with pytest.raises((ThdpackError, ValueError)) as raised:
        opened(copy)
    shown = "".join(format_exception(raised.value))
    assert last in shown.splitlines()[-1]
    assert shown.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize("reader", [ShardReader, Mixture])
def test_the_help_of_a_reader_explains_each_of_its_arguments_and_no_others(
    reader: type[ShardReader | Mixture],
) -> None:
    assert documented(reader).keys() == inspect.signature(reader).parameters.keys()
    shown = plain(render_doc(reader))
    methods = shown.partition("__init__(self")[2].partition("\n |  __")[0]
    assert "digest" not in methods
    assert "ReaderOptions" not in str(inspect.getdoc(reader))


def test_the_two_readers_explain_their_common_arguments_in_the_same_words() -> None:
    common = {field.name for field in fields(ReaderOptions)}
    first, second = (
        {name: line for name, line in documented(reader).items() if name in common}
        for reader in (ShardReader, Mixture)
    )
    assert first == second != {}


def documented(reader: type[ShardReader | Mixture]) -> dict[str, str]:
    """Return the text of each argument in a class's docstring, by name."""
    args = str(inspect.getdoc(reader)).partition("Args:\n")[2].partition("\nRaises:")[0]
    return dict(re.findall(r"^    (\w+): ((?:.|\n     )+)", args, flags=re.MULTILINE))
