"""Decompress an archive, and cut its text into sections, which map tasks read.

A section is a work file of about SECTION_BYTES of FASTA. It begins at a record, and ends before
another record. The cuts depend only on the text, so a rerun makes the same sections. The map task
removes its section.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, cast

from pipeline.build.tasks import MapTask
from pipeline.inputs.error_location import archive_errors, fasta_error
from pipeline.inputs.fasta.chunks import grown, last_boundary
from pipeline.inputs.fasta.line_numbers import FastaSyntaxError
from pipeline.inputs.source import Source
from pipeline.inputs.unpack.parallel_archive import open_archive

SECTION_BYTES = 48 << 20
"""Approximate size of a section. On many cores, larger sections leave cores idle at the end."""
STEP_BYTES = 8 << 20
"""Number of bytes to decompress before the executor looks after its workers."""
_MOST_WAITING: Final = 2
"""Maximum number of sections that wait to be written. They are in memory."""


@dataclass(slots=True)
class _Cutter:
    """Cuts a stream of text into sections.

    begin: position of the next section in the text
    rest: text that was read, but belongs to the next section
    spare: buffers of sections that were written
    """

    stream: BinaryIO
    section_bytes: int
    begin: int = 0
    rest: bytes = b""
    at_end: bool = False
    spare: list[bytearray] = field(default_factory=list)

    def next(self) -> Iterator[memoryview | None]:
        """Yield None after each step of reading, and finally the text of the next section.

        Raises:
            FastaSyntaxError: a record is too long.
        """
        size = max(self.section_bytes, 2 * len(self.rest))
        spare = self.spare.pop() if self.spare else b""
        buffer = spare if isinstance(spare, bytearray) and len(spare) == size else bytearray(size)
        filled = len(self.rest)
        buffer[:filled] = self.rest
        stop = -1
        while stop < 0:
            while filled < len(buffer) and not self.at_end:
                with memoryview(buffer)[filled : filled + STEP_BYTES] as view:
                    count = self.stream.readinto(view)  # type: ignore[attr-defined]
                filled += count
                self.at_end = not count
                yield None
            stop = filled if self.at_end else last_boundary(buffer, 1, filled)
            if stop < 0:
                buffer = grown(buffer, filled, self.begin)
        self.rest = bytes(memoryview(buffer)[stop:filled])
        self.begin += stop
        yield memoryview(buffer)[:stop]

    def reuse(self, text: memoryview) -> None:
        """Take back the buffer of a section that was written."""
        buffer = text.obj
        text.release()
        if isinstance(buffer, bytearray) and len(buffer) == self.section_bytes:
            self.spare.append(buffer)


def section_tasks(
    whole: MapTask,
    threads: int,
    finished: Callable[[MapTask], bool],
    on_bytes: Callable[[int], None],
) -> Iterator[MapTask | None]:
    """Yield a map task for each section of an archive, and None while no section is complete.

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
    written: deque[tuple[MapTask, Future[None]]] = deque()
    with (
        archive_errors(source),
        open(source.url, "rb", buffering=0) as file,
        closing(open_archive(cast(BinaryIO, file), source.compression, threads)) as stream,
        # a section is written while the next one is decompressed
        ThreadPoolExecutor(1, thread_name_prefix="thdpack-section") as writer,
    ):
        cutter = _Cutter(stream, SECTION_BYTES)
        number = reported = 0
        while not cutter.at_end:
            begin = cutter.begin
            for text in _with_line(source, cutter.next()):
                position = min(file.tell(), source.bytes)
                on_bytes(max(0, position - reported))
                reported = max(reported, position)
                if text is not None:
                    task = replace(whole, section=number, begin=begin, end=cutter.begin)
                    written.append((task, writer.submit(_write, task, text, finished, cutter)))
                    number += 1
                while written and (written[0][1].done() or len(written) > _MOST_WAITING):
                    yield _done(*written.popleft())
                yield None
        while written:
            yield _done(*written.popleft())


def _write(
    task: MapTask, text: memoryview, finished: Callable[[MapTask], bool], cutter: _Cutter
) -> None:
    """Write a section, unless an earlier run finished its task."""
    if not finished(task):
        with task.work.written(task.section_file, durable=False) as file:
            file.write(text)
    cutter.reuse(text)


def _done(task: MapTask, write: Future[None]) -> MapTask:
    """Return a task when its section is written.

    Raises:
        BuildError: the section cannot be written.
    """
    write.result()
    return task


def _with_line(source: Source, steps: Iterator[memoryview | None]) -> Iterator[memoryview | None]:
    """Turn errors of `_Cutter.next` into errors that name the line."""
    try:
        yield from steps
    except FastaSyntaxError as error:
        raise fasta_error(source, error) from error
