"""The status page: what the service does, the queue, the last generations, rejected files.

The page has no script and loads no other file. It loads itself again every few seconds. Jinja2
escapes every name that comes from a file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment

from pipeline.report.web.page_templates import page_templates
from pipeline.service.status import Status
from schemas import __version__

REFRESH_SECONDS: Final = 5
_GENERATIONS_SHOWN: Final = 20
_REJECTIONS_SHOWN: Final = 50


def status_page(status: Status) -> str:
    """Return the page as HTML."""
    return (
        _environment()
        .get_template("status.html.jinja")
        .render(
            status=status,
            generations=tuple(reversed(status.generations))[:_GENERATIONS_SHOWN],
            rejections=tuple(reversed(status.rejections))[:_REJECTIONS_SHOWN],
            version=__version__,
            refresh=REFRESH_SECONDS,
        )
    )


@cache
def _environment() -> Environment:
    return page_templates(Path(__file__).with_name("templates"))
