"""`thdpack stats`: report on a dataset or raw sequences in the terminal, as HTML, JSON and CSV.

`gather/` counts the input and fills the `Report` of `model.py`. `render/` and `html/` display the
`Report`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.report.command import stats
    from pipeline.report.model import Report
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        command=("stats",),
        model=("Report",),
    )

__all__ = ["Report", "stats"]
