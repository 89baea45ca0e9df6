"""Trainer of ESM-2. It reads buckets (rows of packed sequences), and writes checkpoints and a
Hugging Face model.

Start reading at `train.py`. This is the only package that imports torch.
"""

import sys
from importlib.util import find_spec

# Check only for `python -m trainer.…`: while Python looks for the module, sys.argv is ["-m", …].
if sys.argv[:1] == ["-m"]:
    for _package in ("torch", "safetensors"):
        if find_spec(_package) is None:
            sys.exit(
                f"thdpack train: training needs {_package}: to install it, run `make train` or "
                "pip install -e '.[train]' in the repository"
            )
