"""The compiled kernels. Everything else is in pyproject.toml."""

import pyarrow
from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = (
    "packers.balanced_kernel",
    "packers.baselines_kernel",
    "pipeline.build.arrays.bucket_kernel",
    "pipeline.inputs.fasta_kernel",
    "pipeline.build.arrays.hash_kernel",
    "pipeline.build.spill.spill_kernel",
)
INCLUDE = [pyarrow.get_include()]  # for xxhash.h; see hash_kernel.pyx

setup(
    ext_modules=cythonize(
        [
            Extension(
                name,
                [f"{name.replace('.', '/')}.pyx"],
                include_dirs=INCLUDE,
                extra_compile_args=["-O3"],
            )
            for name in KERNELS
        ]
    ),
    options={"build_ext": {"parallel": len(KERNELS)}},
)
