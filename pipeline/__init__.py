"""Turn protein FASTA into shards, and read shards. Nothing here imports torch.

`python -m pipeline` runs the `thdpack` command.
"""

import os
from importlib.util import find_spec


def _refuse_other_packages() -> None:
    """Check that `packers` and `schemas` are ours. Other projects have packages of these names.

    The other packages are only found here, not imported.

    Raises:
        ImportError: Python finds another project's package. The message names both files.
    """
    for name in ("packers", "schemas"):
        ours = os.path.join(os.path.dirname(os.path.dirname(__file__)), name, "__init__.py")
        spec = find_spec(name)
        found = spec.origin if spec is not None else None
        if found is not None and os.path.realpath(found) != os.path.realpath(ours):
            raise ImportError(
                f"thdpack needs {ours}, but Python finds {found} first: "
                "import thdpack before pipeline, and do not use both packages in one program"
            )


_refuse_other_packages()
