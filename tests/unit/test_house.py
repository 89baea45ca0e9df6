"""Rules of the code base: origin of packages, allowed imports, names of modules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.helpers.processes.ranks import Job


@pytest.mark.parametrize("package", ["schemas", "packers", "pipeline", "trainer"])
def test_packages_come_from_this_repo(package: str) -> None:
    module = __import__(package)
    assert Path(str(module.__file__)).parent == REPO / package


def imported(*statements: str) -> list[set[str]]:
    """Run statements one after another in one new process; return the modules loaded after each."""
    show = "print(*sys.modules)"
    code = "import sys\n" + "".join(f"{statement}\n{show}\n" for statement in statements)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_preprocessing_and_the_command_line_import_no_heavy_packages() -> None:
    cli, manifest, worker, build, report = imported(
        "import pipeline.cli.main",
        "import schemas.manifest",
        "import pipeline.build.map_stage.partition_records, pipeline.build.task_markers, "
        "pipeline.build.reduce_stage.reduce_partition, pipeline.build.verify.check_shards",
        "import pipeline.build.verify.verify_dataset, pipeline.build.build_dataset, "
        "pipeline.cli.inspect_dataset",
        "import pipeline.report.gather.fasta, pipeline.report.command, "
        "pipeline.report.render.terminal",
    )
    assert not cli & {"numpy", "pyarrow", "fsspec", "Bio", "xxhash", "polars"}
    assert not manifest & {"pyarrow", "numpy"}
    assert "pipeline.build.task_markers" in worker
    assert "pyarrow.compute" not in worker
    assert not build & {"torch", "numba", "polars", "datasets", "transformers"}
    assert not report & {"polars", "torch"}


@pytest.mark.parametrize(
    "words",
    [
        ["preprocess", "a.fasta", "--out", "data"],
        ["append", "data", "a.fasta", "--exclude", "b", "--exclude", "c"],
        ["watch", "inbox", "--dataset", "data"],
        ["compact", "data", "a.fasta"],
        ["stats", "data"],
    ],
)
def test_reading_a_command_line_does_not_import_typeguard(words: list[str]) -> None:
    """tyro imports it to check some defaults. The import takes 60 ms."""
    [found] = imported(f"from pipeline.cli.arguments import parsed; parsed({words})")
    assert "tyro" in found
    assert "typeguard" not in found


def test_builds_and_verify_load_neither_pandas_nor_pyarrow_compute(tmp_path: Path) -> None:
    """Many functions of pyarrow import pandas if it is installed. The import takes 0.2 s."""
    pytest.importorskip("pandas")
    found = imported(f"""
import pipeline.build.build_dataset
from tests.conftest import InThisProcess
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import PlainReporter
pipeline.executors.processes.ProcessExecutor = InThisProcess
options = PreprocessOptions(inputs=("data/sample.fasta",), out={str(tmp_path / "out")!r})
pipeline.build.build_dataset.build(options, PlainReporter())
from pipeline.build.verify.verify_dataset import verify_dataset
assert verify_dataset(options.out, deep=True) == []
""")[-1]
    assert {
        "pipeline.build.reduce_stage.reduce_partition",
        "pipeline.build.verify.compare_shard",
    } <= found
    assert not found & {"pandas", "pyarrow.compute", "torch"}


def test_reading_loads_neither_pandas_nor_pyarrow_compute(many_shards: Path) -> None:
    [found] = imported(
        f"from pipeline.reader import ShardReader; next(ShardReader({str(many_shards)!r}))"
    )
    assert "pipeline.reader.bucket_checks" in found
    assert not found & {"pandas", "pyarrow.compute", "torch"}


def test_no_module_is_a_catch_all() -> None:
    names = {
        path.stem
        for package in ("schemas", "packers", "pipeline", "trainer")
        for path in (REPO / package).rglob("*.py")
    }
    assert not names & {"utils", "helpers", "misc", "common"}


def test_tests_named_in_the_guarantees_exist() -> None:
    """If the page names a test without its file, the test is in the file that was named last."""
    page = (REPO / "docs" / "guarantees.md").read_text()
    named, file = set(), ""
    for found in re.findall(
        r"`(?:((?:e2e|unit|golden|property|gpu)/[\w/]+\.py)::)?(test_\w+)`", page
    ):
        file = found[0] or file
        named.add((file, found[1]))
    assert len(named) > 100
    missing = [
        (file, test)
        for file, test in sorted(named)
        if f"def {test}(" not in (REPO / "tests" / file).read_text()
    ]
    assert not missing


def test_there_is_one_training_script_and_it_is_short() -> None:
    loops = [path for path in (REPO / "trainer").glob("*.py") if path.name.startswith("train")]
    assert [path.name for path in loops] == ["train.py"]
    assert len(loops[0].read_text().splitlines()) <= 250


def test_importing_the_trainer_loads_neither_transformer_engine_nor_transformers() -> None:
    [config] = imported("import trainer.config")
    assert "torch" not in config
    # the job is forked from a process that has imported trainer.train
    loaded = set(Job("import sys; print(*sys.modules)", []).finish().split())
    assert {"torch", "trainer.train"} <= loaded
    assert not loaded & {
        "transformer_engine",
        "transformers",
        "datasets",
        "numba",
        "polars",
        "packers",
        "wandb",
    }
    # torch may import triton, but our code imports it only in the kernels
    assert not [name for name in loaded if name.startswith("trainer.kernels.")]
