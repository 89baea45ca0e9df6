"""Earlier generations of a dataset are read as if the dataset had not grown.

Each build, append or compaction leaves a new state of the dataset, called a generation.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.reader import Mixture, ShardReader
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import ManifestError, NoGenerationError, StateError
from tests.helpers.data.damage import flip
from tests.helpers.data.grown import GENERATIONS, Grown, append, grown
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.reading import tokens
from tests.helpers.stores.stores import http_store

NUMBERS = range(1, GENERATIONS + 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    return grown(tmp_path_factory.mktemp("grown"))


@pytest.fixture
def dataset(made: Grown, tmp_path: Path) -> Path:
    """Return a copy of the dataset that a test may modify."""
    return shutil.copytree(made.dataset, tmp_path / "dataset")


def read(url: Path | str, generation: int | str | None = None) -> list[bytes]:
    with ShardReader(url, generation=generation) as reader:
        return tokens(reader, 2 * len(reader))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_and_a_digest_read_the_dataset_as_it_was(made: Grown, number: int) -> None:
    expected = read(made.copies[number - 1])
    digest = read_manifest(made.copies[number - 1]).digest
    for generation in (number, str(number), digest):
        assert read(made.dataset, generation) == expected
    assert expected != read(made.copies[number % GENERATIONS])


def test_the_latest_generation_is_read_by_default(made: Grown) -> None:
    expected = read(made.copies[-1])
    assert read(made.dataset) == read(made.dataset, "latest") == expected


@pytest.mark.parametrize("number", NUMBERS)
def test_a_web_server_serves_earlier_generations(made: Grown, tmp_path: Path, number: int) -> None:
    expected = read(made.copies[number - 1])
    with http_store(made.dataset) as url:
        with ShardReader(url, generation=number, cache_dir=tmp_path / "cache") as reader:
            assert tokens(reader, len(expected)) == expected
        with pytest.raises(NoGenerationError, match=rf"no generation {GENERATIONS + 1}; "):
            read_manifest(url, GENERATIONS + 1)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_an_open_reader_keeps_its_generation_while_the_dataset_grows(
    run: Run, made: Grown, dataset: Path, tmp_path: Path, prefetch: int, cached: bool
) -> None:
    """`thdpack gc` also removes the manifests of all earlier generations."""
    for number in (GENERATIONS - 1, GENERATIONS):
        expected = read(made.copies[number - 1])
        cache = tmp_path / "cache" if cached else None
        options = {"prefetch": prefetch, "cache_dir": cache}
        with (
            ShardReader(dataset, generation=number, **options) as reader,
            ShardReader(dataset, generation=number, **options) as other,
        ):
            found = tokens(reader, 3)
            append(dataset, seed=10 + number)
            done = run("gc", dataset, "--grace", "0s", "--delete")
            assert done.returncode == 0, done.stderr
            assert not list((dataset / "generations").glob("*.json"))
            found += tokens(reader, len(expected) - 3)
            assert found == expected
            other.load_state_dict({**reader.state_dict(), "position": 5})
            assert tokens(other, 5) == expected[5:10]
            assert reader.manifest.generation == number
        shutil.rmtree(dataset)
        shutil.copytree(made.dataset, dataset)


def test_the_readers_of_a_mixture_keep_their_generations(made: Grown, dataset: Path) -> None:
    copies, number = made.copies, GENERATIONS
    with Mixture([(copies[0], 2), (copies[-1], 1)], seed=3) as mixture:
        expected, state = tokens(mixture, 100), mixture.state_dict()
    pairs = [(dataset, 2), (f"{dataset}/", 1)]
    with Mixture(pairs, seed=3, generations=(1, "latest")) as mixture:
        digests = [manifest.digest for manifest in mixture.manifests]
        assert digests == [read_manifest(copies[0]).digest, read_manifest(copies[-1]).digest]
        found = tokens(mixture, 10)
        append(dataset, seed=20)
        assert found + tokens(mixture, 90) == expected
    with Mixture(pairs, seed=3, generations=digests) as mixture:
        mixture.load_state_dict({**state, "position": 40})
        assert tokens(mixture, 60) == expected[40:]
    with Mixture(pairs, seed=3) as mixture, pytest.raises(StateError, match="another dataset"):
        mixture.load_state_dict(state)
    assert read_manifest(dataset).generation == number + 1
    with pytest.raises(ValueError, match="generations names 1 generation for 2 datasets"):
        Mixture(pairs, generations=[2])


def test_a_state_names_the_generation_to_open(made: Grown) -> None:
    with ShardReader(made.dataset, generation=2) as reader:
        expected = tokens(reader, 30)
        state = {**reader.state_dict(), "position": 10}
    with ShardReader(made.dataset) as reader:
        with pytest.raises(StateError, match=r"generation 2 of .*: open it with generation=2$"):
            reader.load_state_dict(state)
        assert "generation=3" in repr(reader)
    with ShardReader(made.dataset, generation=state["manifest"]) as reader:
        reader.load_state_dict(state)
        assert tokens(reader, 20) == expected[10:]


def test_the_error_for_a_generation_that_never_existed_names_those_that_exist(
    made: Grown, dataset: Path
) -> None:
    with pytest.raises(NoGenerationError, match=r"no generation 4; the dataset has generations 1 "):
        read_manifest(dataset, 4)
    with pytest.raises(NoGenerationError, match=rf"no generation with the digest {'a' * 32}; "):
        read_manifest(dataset, "a" * 32)
    with pytest.raises(NoGenerationError, match=r"no generation 2; .* has only generation 1$"):
        read_manifest(made.copies[0], 2)
    with pytest.raises(ValueError, match=r"^generation is 0, expected"):
        ShardReader(dataset, generation=0)


def test_the_error_for_a_removed_generation_names_the_others(dataset: Path) -> None:
    digest = read_manifest(dataset, 2).digest
    (dataset / "generations" / "2.json").unlink()
    for generation in (2, digest):
        with pytest.raises(NoGenerationError, match=r"2 was removed.*generations 1, 3$"):
            read_manifest(dataset, generation)
    assert read_manifest(dataset, 1).generation == 1
    shutil.rmtree(dataset / "generations")
    with pytest.raises(NoGenerationError, match=r"1 was removed.*the latest generation is 3$"):
        read_manifest(dataset, 1)


def test_a_stray_or_damaged_manifest_is_not_read_as_an_earlier_generation(
    made: Grown, dataset: Path
) -> None:
    path = dataset / "generations" / "2.json"
    for stray in (dataset / "generations" / "1.json", dataset / "manifest.json"):
        shutil.copy(stray, path)
        with pytest.raises(ManifestError, match=r"2\.json: not the manifest of generation 2"):
            ShardReader(dataset, generation=2)
    shutil.copy(made.dataset / "generations" / "2.json", path)
    flip(path)
    with pytest.raises(ManifestError, match=r"generations/2\.json"):
        read_manifest(dataset, 2)


@pytest.mark.parametrize("number", NUMBERS)
def test_commands_print_what_they_printed_at_that_generation(
    run: Run, made: Grown, number: int
) -> None:
    copy = made.copies[number - 1]
    for words in (
        ("inspect",),
        ("inspect", "--bucket", "3"),
        ("inspect", "--record", "made7"),
        ("verify",),
        ("verify", "--deep"),
        ("stats", "--json"),
        ("stats", "--read-tokens", "--json"),
    ):
        name, *options = words
        then = run(name, copy, *options)
        now = run(name, made.dataset, "--generation", number, *options)
        assert then.returncode == now.returncode == 0, now.stderr
        assert now.stdout.replace(str(made.dataset), str(copy)) == then.stdout
    for word in ("x", 0):
        refused = run("inspect", made.dataset, "--generation", word)
        assert refused.returncode == 2
        assert f"--generation is {word}, expected the number" in refused.stderr


def test_verify_of_an_earlier_generation_ignores_damage_of_later_files(
    run: Run, made: Grown, dataset: Path
) -> None:
    old = {entry.name for entry in read_manifest(made.copies[0]).files()}
    new = next(entry for entry in read_manifest(dataset).files() if entry.name not in old)
    flip(dataset / new.name)
    assert run("verify", dataset, "--generation", 1, "--deep").returncode == 0
    damaged = run("verify", dataset)
    assert damaged.returncode == 1
    assert new.name in damaged.stdout


def test_stats_compares_two_generations_of_one_dataset(run: Run, made: Grown) -> None:
    data = made.dataset
    words = ("--generation", 1, "--generation", 2, "--json")
    found = json.loads(run("stats", data, data, *words).stdout)
    expected = json.loads(run("stats", *made.copies[:2], "--json").stdout)
    for side in ("a", "b"):
        assert found[side]["manifest_digest"] == expected[side]["manifest_digest"]
    assert found["related"] == "child"
    for inputs, said in (
        ((data, data), "names 1 generation for 2 datasets"),
        ((data.parent / "first.fasta",), "--generation is for datasets, but no input is a"),
    ):
        refused = run("stats", *inputs, "--generation", 1)
        assert refused.returncode == 2
        assert said in refused.stderr


def test_bench_reader_reads_the_generation_that_it_is_given(run: Run, made: Grown) -> None:
    words = ("bench-reader", made.dataset, "--seconds", "0.05", "--log-json", "--generation")
    assert run(*words, 1).returncode == 0
    assert "no generation 9; " in run(*words, 9).stderr
