"""Make clients of s3:// quicker to create. Importing this module is enough.

For each client, botocore reads its description of S3 from JSON files. This takes 60 ms. With this
module, a process reads each file once, and processes that it forks later need not read them again.
"""

from __future__ import annotations

import functools
from typing import Any

import s3fs
from botocore.loaders import JSONFileLoader

_load_file = JSONFileLoader.load_file


@functools.cache
def _loaded(path: str) -> Any:
    return _load_file(JSONFileLoader(), path)


JSONFileLoader.load_file = lambda self, path: _loaded(path)
s3fs.S3FileSystem(
    key="any", secret="any", endpoint_url="http://127.0.0.1", skip_instance_cache=True
).connect()
