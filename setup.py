"""Compile the kernels and install the packages. All other settings are in pyproject.toml."""

from pathlib import Path

import pyarrow
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.install_lib import install_lib

KERNELS = (
    "packers.balanced_kernel",
    "packers.baselines_kernel",
    "pipeline.build.arrays.bucket_kernel",
    "pipeline.inputs.fasta_kernel",
    "pipeline.inputs.headers.header_kernel",
    "pipeline.inputs.headers.unpack_kernel",
    "pipeline.build.arrays.hash_kernel",
    "pipeline.build.exclusion.containment_kernel",
    "pipeline.build.filters.complexity_kernel",
    "pipeline.build.hash_index.sort_kernel",
    "pipeline.build.named_files.clusters.cluster_kernel",
    "pipeline.build.spill.spill_kernel",
    "pipeline.build.verify.sequence_kernel",
)
# Cython's code for memoryviews, compiled once. It would otherwise be in each kernel, and compiling
# the kernels would take almost four times as long. Cython generates the C file.
SHARED = "packers.memoryviews"
INCLUDE = [pyarrow.get_include()]  # for xxhash.h; see pipeline/build/arrays/xxhash.pxd
FOLDER = "thdpack_packages"  # thdpack.py looks for this folder


class InstallLib(install_lib):
    """Install the packages of a wheel into a separate folder. Editable installs do not use this.

    If our packages were directly in site-packages, our `trainer` and another project's `trainer`
    could overwrite each other. See docs/decisions/0014-import-names.md.
    """

    def install(self) -> list[str]:
        """Copy the built packages, and write the .pth file that puts their folder on sys.path."""
        built, site = Path(self.build_dir), Path(self.install_dir)
        packages = sorted({name.partition(".")[0] for name in self.distribution.packages})
        copied = [
            file
            for package in packages
            for file in self.copy_tree(str(built / package), str(site / FOLDER / package))
        ]
        command, _ = self.copy_file(str(built / "thdpack.py"), str(site))
        path_file = site / "thdpack.pth"
        path_file.write_text(f"{FOLDER}\n")
        return [*copied, command, str(path_file)]


def extension(name: str, suffix: str) -> Extension:
    """Describe how to compile `name`. Debug symbols would double the size of the wheel."""
    source = f"{name.replace('.', '/')}{suffix}"
    return Extension(name, [source], include_dirs=INCLUDE, extra_compile_args=["-O3", "-g0"])


setup(
    cmdclass={"install_lib": InstallLib},
    ext_modules=cythonize(
        [extension(SHARED, ".c"), *(extension(name, ".pyx") for name in KERNELS)],
        shared_utility_qualified_name=SHARED,
    ),
    options={"build_ext": {"parallel": len(KERNELS) + 1}},
)
