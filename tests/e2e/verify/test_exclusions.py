"""`thdpack verify --deep` finds records that break the rules of `--exclude`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.data.damaged_datasets import OpenDataset, laws, leave_out

OPTIONS = ("--exclude", "test.fasta", "--exclude", "ids.txt")
MATCH = ("exclusion", "match", "match_file")
WITHOUT = (
    "was excluded, but exclusion, match or match_file is null, or --exclude names no such file"
)
NOT_EXCLUDED = "has exclusion, match or match_file although it was not excluded"
KEPT = "kept although a record with the same residues is excluded"


@pytest.fixture(name="dataset")
def _dataset(opened: Callable[..., OpenDataset]) -> OpenDataset:
    dataset = opened(*OPTIONS)
    excluded = dataset.all(status="excluded")
    assert [(row["id"], *(row[name] for name in MATCH)) for row in excluded] == [
        ("same3", "equal", "entry", "test.fasta"),
        ("same4", "listed", "same4", "ids.txt"),
    ]
    return dataset


@pytest.mark.parametrize("name", MATCH)
def test_an_excluded_record_with_a_null_exclusion_match_or_match_file_is_found(
    dataset: OpenDataset, name: str
) -> None:
    dataset.all(status="excluded")[0][name] = None
    assert laws(dataset) == {WITHOUT}


@pytest.mark.parametrize(("name", "value"), [("exclusion", "odd"), ("match_file", "other.fasta")])
def test_an_unknown_kind_of_match_or_an_unknown_file_is_found(
    dataset: OpenDataset, name: str, value: str
) -> None:
    dataset.all(status="excluded")[0][name] = value
    assert laws(dataset) == {WITHOUT}


@pytest.mark.parametrize("name", MATCH)
@pytest.mark.parametrize("status", ["kept", "duplicate"])
def test_a_record_that_names_a_match_but_was_not_excluded_is_found(
    dataset: OpenDataset, name: str, status: str
) -> None:
    dataset.all(status=status)[0][name] = dataset.all(status="excluded")[0][name]
    assert laws(dataset) == {NOT_EXCLUDED}


@pytest.mark.parametrize("kind", ["equal", "listed"])
def test_a_kept_record_with_the_residues_of_an_excluded_record_is_found(
    dataset: OpenDataset, kind: str
) -> None:
    excluded = dataset.all(exclusion=kind)[0]
    row = dataset.all(status="kept")[1]
    excluded["hash"], excluded["residues"] = row["hash"], row["residues"]
    assert laws(dataset) == {KEPT}


def test_hashes_that_are_equal_only_in_their_last_eight_bytes_count_as_different(
    dataset: OpenDataset,
) -> None:
    excluded = dataset.all(status="excluded")[0]
    excluded["hash"] = bytes(8) + dataset.all(status="kept")[1]["hash"][8:]
    assert laws(dataset) == set()


def test_an_excluded_record_in_a_bucket_is_found(dataset: OpenDataset) -> None:
    row, excluded = dataset.all(id="same5")[0], dataset.all(status="excluded")[0]
    leave_out(row, "excluded")
    row.update({name: excluded[name] for name in MATCH})
    found = laws(dataset)
    assert "FILE holds a record that was not kept" in found
    assert not found & {WITHOUT, NOT_EXCLUDED, KEPT}
