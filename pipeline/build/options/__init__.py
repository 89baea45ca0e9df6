"""Options of `thdpack preprocess`, and the checks of their values.

`DatasetOptions` determine the content of a dataset. `PreprocessOptions` add the options of a build.
"""

from pipeline.build.options.dataset_options import DatasetOptions
from pipeline.build.options.preprocess_options import PreprocessOptions

__all__ = ["DatasetOptions", "PreprocessOptions"]
