"""`thdpack watch`: a service that appends the files of an inbox to a dataset."""

from __future__ import annotations

from importlib.util import find_spec

from pipeline.service.options import WatchOptions
from schemas.errors import OptionError
from schemas.text.phrases import install_command


def run_watch(options: WatchOptions) -> int:
    """Run the service, and return an exit code.

    Raises:
        ThdpackError: see `pipeline.service.watch`.
        OptionError: a package is missing.
    """
    needed = {
        "prometheus_client": options.serves_http,
        "jinja2": options.serves_http or not options.no_report,
        "polars": not options.no_report,
    }
    missing = [name for name, is_needed in needed.items() if is_needed and find_spec(name) is None]
    if missing:
        raise OptionError(
            f"watch needs {' and '.join(missing)}, not installed: {install_command('service')}. "
            "Without them, give --no-http --no-report"
        )
    from pipeline.service.watch import watch  # imported here, as in preprocess.py

    return watch(options)
