"""Build a dataset in three stages: map, reduce and commit.

Each stage runs a list of tasks, for example in processes of this machine. Start reading at
`build_dataset.py`. The code of the tasks is in `map_stage/` and `reduce_stage/`. Some options add
tasks between these stages: `search_stage/` runs MMseqs2, `link_stage/` looks up clusters, and
`draw_stage/` finds the members of clusters (the kept records in them).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.build.assemble_manifest import Built
    from pipeline.build.build_dataset import build
    from pipeline.build.options import PreprocessOptions
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        assemble_manifest=("Built",),
        build_dataset=("build",),
        options=("PreprocessOptions",),
    )

__all__ = ["Built", "PreprocessOptions", "build"]
