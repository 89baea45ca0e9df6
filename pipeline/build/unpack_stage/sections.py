"""Decompress an archive, and cut its text into sections, which map tasks read.

A section is a work file of about SECTION_BYTES of FASTA. It begins at a record, and ends before
another record. The cuts depend only on the text, so a rerun makes the same sections. The map task
removes its section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import BinaryIO, Final, cast

from pipeline.build.tasks import MapTask
from pipeline.inputs.error_location import archive_errors, fasta_error
from pipeline.inputs.fasta.chunks import grown, last_boundary
from pipeline.inputs.fasta.line_numbers import FastaSyntaxError
from pipeline.inputs.unpack.parallel_archive import open_archive

SECTION_BYTES: Final = 48 << 20
"""Approximate size of a section. On many cores, larger sections leave cores idle at the end."""
_STEP: Final = 8 << 20
"""Number of bytes to decompress before the executor looks after its workers."""


def section_tasks(
    whole: MapTask,
    threads: int,
    finished: Callable[[MapTask], bool],
    on_bytes: Callable[[int], None],
    *,
    section_bytes: int = SECTION_BYTES,
) -> Iterator[MapTask | None]:
    """Yield a map task for each section of an archive, and None while a section is incomplete.

    Args:
        whole: map task of the whole archive.
        threads: number of threads that may decompress.
        finished: function that returns whether an earlier run finished a task. The section of such
            a task is not written.
        on_bytes: function that is called with the number of compressed bytes read since the last
            call.
    Raises:
        InputError: the archive is damaged, or cannot be read.
        BuildError: a section cannot be written.
    """
    source = whole.source
    with (
        archive_errors(source),
        open(source.url, "rb", buffering=0) as file,
        closing(open_archive(cast(BinaryIO, file), source.compression, threads)) as stream,
    ):
        buffer = bytearray(section_bytes)
        filled = begin = number = reported = 0
        at_end = False
        while not at_end:
            while filled < len(buffer):
                view = memoryview(buffer)[filled : filled + _STEP]
                count = stream.readinto(view)  # type: ignore[attr-defined]
                view.release()
                at_end = not count
                filled += count
                position = min(file.tell(), source.bytes)
                on_bytes(max(0, position - reported))
                reported = max(reported, position)
                if at_end:
                    break
                yield None
            stop = filled if at_end else last_boundary(buffer, 1, filled)
            if stop < 0:
                try:
                    buffer = grown(buffer, filled, begin)
                except FastaSyntaxError as error:
                    raise fasta_error(source, error) from error
                continue
            task = replace(whole, section=number, begin=begin, end=begin + stop)
            if not finished(task):
                with task.work.written(task.section_file, durable=False) as text:
                    text.write(memoryview(buffer)[:stop])
            yield task
            number, begin = number + 1, begin + stop
            rest = bytes(buffer[stop:filled])
            if len(buffer) != section_bytes:
                buffer = bytearray(max(section_bytes, 2 * len(rest)))
            buffer[: len(rest)] = rest
            filled = len(rest)
