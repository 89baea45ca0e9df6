"""thdpack works even if other packages, installed or in the current folder, have our names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from schemas.text.phrases import install_command
from tests.helpers.data.decoys import write_decoys
from tests.helpers.processes.command_line import REPO, environment

PACKAGES = ("packers", "pipeline", "schemas", "trainer")
DESCRIBED = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
OF_EXTRAS = ("torch", "safetensors", "transformers", "datasets", "jinja2", "polars", "s3fs", "ray")
BUILD = """
import sys
import Cython.Build
Cython.Build.cythonize = lambda modules, **options: []
sys.argv = ["setup.py", "sdist", "bdist_wheel"]
exec(compile(open("setup.py").read(), "setup.py", "exec"))
"""
"""Program that builds a source distribution, and a wheel without kernels, because compiling them
takes 15 seconds."""


def python(*words: object, where: Path, found: Path = REPO) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder `where`. It finds thdpack.py in the folder `found`."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=where,
        env={**environment(), "PYTHONPATH": str(found)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_work_in_a_folder_that_has_packages_with_our_names(
    tmp_path: Path, sample: Path
) -> None:
    write_decoys(tmp_path)
    for line in (
        f"preprocess {sample} --out made --workers 2",
        "verify made --workers 2",
        "stats made",
        "plan --data made --model esm2-8m --gpus 1xH200",
    ):
        done = python("-m", "thdpack", *line.split(), where=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif("THDPACK_LONG" not in os.environ, reason="takes 15 seconds; set THDPACK_LONG=1")
def test_torchrun_works_in_a_folder_that_has_packages_with_our_names(
    tmp_path: Path, many_shards: Path
) -> None:
    write_decoys(tmp_path)
    line = (
        "-P -m torch.distributed.run --nproc-per-node 2 -m thdpack train esm2-tiny --steps 1 "
        f"--warmup-steps 0 --buckets-per-step 2 --layers 1 --data {many_shards} --out run"
    )
    done = python(*line.split(), where=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "export" / "model.safetensors").exists()


WITHOUT_EXTRAS = f"""
import sys
class OnlyTheCore:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OF_EXTRAS}:
            raise ModuleNotFoundError(f"no module {{name}}", name=name)
sys.meta_path.insert(0, OnlyTheCore())
import thdpack
thdpack.main()
"""
"""Program that runs `thdpack` as if no pip extra were installed."""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "PRESET is missing: "),
        (("--help",), 0, "presets:"),
        (("-h",), 0, "presets:"),
        (("esm2-8m", "--help"), 0, "--learning-rate"),
        (("esm2-9m", "--help"), 2, "no preset esm2-9m: did you mean esm2-8m?"),
    ],
)
def test_the_help_of_train_works_without_pip_extras(
    tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = python("-c", WITHOUT_EXTRAS, "train", *words, where=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr


def test_training_without_torch_prints_one_line_that_names_the_extra(tmp_path: Path) -> None:
    done = python("-c", WITHOUT_EXTRAS, "train", "esm2-8m", "--data", "d", where=tmp_path)
    assert done.returncode == 2
    remedy = f"pip install -e '{REPO}[train]'"
    assert done.stderr == f"thdpack train: the command needs torch: {remedy}\n"


def schemas_of_another_project(folder: Path, text: str) -> Path:
    """Write a package with the name of ours, and return the file of its code."""
    path = folder / "schemas" / "__init__.py"
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_if_another_package_was_imported_before_ours_the_error_names_both(
    tmp_path: Path,
) -> None:
    theirs = schemas_of_another_project(tmp_path, "")
    done = python("-c", "import schemas, thdpack", where=tmp_path)
    assert done.returncode == 1
    [error] = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert str(theirs) in error
    assert str(REPO / "schemas" / "__init__.py") in error
    ours = "import thdpack, schemas; print(schemas.__file__)"
    assert python("-c", ours, where=tmp_path).stdout.strip() == str(
        REPO / "schemas" / "__init__.py"
    )


def test_if_python_would_import_another_package_the_error_of_pipeline_names_both(
    tmp_path: Path,
) -> None:
    theirs = schemas_of_another_project(tmp_path, "raise RuntimeError('imported')")
    done = python("-c", "import pipeline.reader", where=tmp_path)
    [error] = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert str(theirs) in error
    assert str(REPO / "schemas" / "__init__.py") in error
    assert "import thdpack before pipeline" in error
    assert python("-c", "import thdpack, pipeline.reader", where=tmp_path).returncode == 0


def test_thdpack_exports_the_readers_and_imports_them_at_first_use(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("raise RuntimeError('not ours')")
    program = """
import sys
import thdpack
assert dir(thdpack) == ["Mixture", "ShardDataset", "ShardReader", "__version__"]
assert not {"numpy", "pyarrow", "pipeline", "schemas"} & set(sys.modules)
from thdpack import *
from pipeline.reader import *
import pipeline.reader
assert "torch" not in sys.modules
assert thdpack.ShardDataset is pipeline.reader.ShardDataset
import schemas
assert thdpack.__version__ == schemas.__version__ == __version__
assert (Mixture, ShardReader) == (pipeline.reader.Mixture, pipeline.reader.ShardReader)
from thdpack import Reader
"""
    done = python("-c", program, where=tmp_path)
    assert "ImportError: cannot import name 'Reader' from 'thdpack'" in done.stderr, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel without kernels, from a copy of the repo that contains one generated C file.

    The source distribution is in the same folder.
    """
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*DESCRIBED, "thdpack.py"):
        shutil.copy(REPO / name, folder)
    for package in (*PACKAGES, "tests"):
        left_out = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
        shutil.copytree(REPO / package, folder / package, ignore=left_out)
    (folder / "packers" / "balanced_kernel.c").write_text("generated")
    done = python("-c", BUILD, where=folder, found=folder)
    assert done.returncode == 0, done.stderr
    [path] = (folder / "dist").glob("*.whl")
    return path


def test_a_wheel_has_our_packages_in_one_folder_and_no_generated_c_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        described = {name.partition(".dist-info/")[2] for name in archive.namelist()} - {""}
        assert archive.read("thdpack.pth") == b"thdpack_packages\n"
        [commands] = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert b"thdpack = thdpack:main" in archive.read(commands)
    assert described >= {"METADATA", "entry_points.txt", "licenses/LICENSE"}
    files = [path for package in PACKAGES for path in (REPO / package).rglob("*.*")]
    expected = {
        f"thdpack_packages/{path.relative_to(REPO)}"
        for path in files
        if path.suffix in (".py", ".pyi", ".typed", ".jinja", ".css", ".js")
    }
    assert {f"thdpack_packages/{package}/py.typed" for package in PACKAGES} < expected
    assert names == {"thdpack.py", "thdpack.pth", *expected}


def test_a_source_distribution_has_the_sources_of_the_kernels_and_no_generated_c_files(
    wheel: Path,
) -> None:
    [path] = wheel.parent.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kernels = {
        path.relative_to(REPO).as_posix()
        for package in PACKAGES
        for path in (REPO / package).rglob("*.p[xy][xdi]")
    }
    assert {Path(name).suffix for name in kernels} == {".pyx", ".pxd", ".pyi"}
    assert names >= {*DESCRIBED, "thdpack.py", "schemas/py.typed", *kernels}
    assert not [name for name in names if name.endswith(".c") or name.startswith("tests")]


def test_an_installed_wheel_hides_a_module_named_trainer_only_after_import_thdpack(
    wheel: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "trainer.py").write_text("")
    program = (
        f"import site; site.addsitedir({str(site)!r})\n"
        "{}import pipeline, trainer; print(pipeline.__file__, trainer.__file__)"
    )
    ours = site / "thdpack_packages"
    for first, trainer in (
        ("", site / "trainer.py"),
        ("import thdpack; ", ours / "trainer" / "__init__.py"),
    ):
        done = python("-c", program.format(first), where=tmp_path, found=tmp_path)
        assert done.stdout.split() == [str(ours / "pipeline" / "__init__.py"), str(trainer)]


def test_the_command_that_installs_an_extra_suits_a_checkout_and_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPO)
    assert install_command("report") == "pip install -e '.[report]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("report") == f"pip install -e '{REPO}[report]'"
    monkeypatch.setattr("schemas.text.phrases._ROOT", tmp_path)
    assert install_command("report") == 'pip install "thdpack[report]"'
