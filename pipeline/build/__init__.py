"""The offline stage: map, reduce and commit, as tasks that any executor runs.

Start at `build_dataset.py`; `map_stage/` and `reduce_stage/` do the work.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.build.build_dataset import Built, build
    from pipeline.build.options import PreprocessOptions
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        build_dataset=(
            "Built",
            "build",
        ),
        options=("PreprocessOptions",),
    )

__all__ = ["Built", "PreprocessOptions", "build"]
