"""Import numpy without its threads for linear algebra.

numpy starts a thread for each core when it is imported, which takes 50 ms of CPU time on two cores.
thdpack multiplies no large matrices, so it does not need these threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_THREADS: Final = "OPENBLAS_NUM_THREADS"
"""Environment variable that OpenBLAS, a library in numpy, reads when it is loaded."""


@contextmanager
def no_numpy_threads() -> Iterator[None]:
    """Let numpy start no threads if it is imported in this context, or by a process that starts in
    it. A number of threads that the user has set is kept."""
    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_THREADS]  # other processes, such as hooks of `thdpack watch`, may need more
