"""Writer and reader for torch.distributed.checkpoint. The writer hashes files while it writes them.
The reader unpickles metadata safely: it accepts only a fixed list of classes.

The writer runs in a background thread during training. xxh3_128 takes a tenth of a second per GB
and releases the GIL.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import torch
import xxhash
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import Metadata
from torch.futures import Future

from pipeline.storage.atomic_write import sync_folder
from schemas.errors import CheckpointError
from trainer.checkpoints.atomic_write import write
from trainer.checkpoints.file_hashes import FileHash, write_hashes

_METADATA: Final = ".metadata"
_OF_METADATA: Final = frozenset(
    {
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),
        ("torch", "Size"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        *(
            ("torch.distributed.checkpoint.metadata", name)
            for name in ("ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta")
        ),
        *(
            ("torch.distributed.checkpoint.metadata", name)
            for name in ("TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING")
        ),
        ("torch.serialization", "_get_layout"),
        *(
            ("torch", str(dtype).removeprefix("torch."))
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64)
        ),
    }
)
"""All classes and functions to which the pickled metadata of our checkpoints refers, as (module,
name). Calls of these classes and functions have no side effects."""


class HashedWriter(FileSystemWriter):
    """Writes the tensors of one rank into a file. Rank 0 also writes the metadata, the files
    without tensors (`others`), and finally hashes.json.
    """

    def __init__(self, folder: Path, others: Mapping[str, bytes]) -> None:
        """Args:
        others: content of the files without tensors, by name. Only rank 0 writes these files.
        """
        # The tensors are in host memory already. With torch's default, the thread that writes them
        # would wait for all launched work of the GPU each time it has written 10 MB.
        super().__init__(folder, sync_files=True, per_thread_copy_ahead=0)
        self._folder, self._others = folder, others
        self.fs = self._files = _HashedFiles()

    def write_data(self, *arguments: Any, **options: Any) -> Any:
        """Write this rank's tensors. The results carry the hashes of the files to rank 0, where
        `finish` needs them.
        """
        try:
            written = _Results(super().write_data(*arguments, **options).wait())
        except Exception:
            # if a write fails, torch's own error says only that a file has the wrong size
            if self._files.error is not None:
                raise self._files.error from None
            raise
        written.hashes = dict(self._files.hashes)
        future: Future[Any] = Future()
        future.set_result(written)
        return future

    def finish(self, metadata: Metadata, results: list[Any]) -> None:
        """Write the metadata, the files without tensors and hashes.json. torch calls this on rank 0
        when the files of all ranks are on the disk.
        """
        super().finish(metadata, results)
        written = self._files.hashes
        hashes = {_METADATA: written[_METADATA + ".tmp"]}
        for of_rank in results:
            hashes.update(of_rank.hashes)
        for name, content in self._others.items():
            write(self._folder / name, content)
            hashes[name] = FileHash(len(content), xxhash.xxh3_128_hexdigest(content))
        write_hashes(self._folder, hashes)
        sync_folder(self._folder)


class CheckedReader(FileSystemReader):
    """Reads a checkpoint whose hashes have been verified.

    shapes: shape of each tensor by name; set by `read_metadata`.
    """

    shapes: Mapping[str, tuple[int, ...]]

    def read_metadata(self, *arguments: Any, **options: Any) -> Metadata:
        """Read the metadata.

        Raises:
            CheckpointError: the metadata cannot be read, names a file outside of the folder, or
                refers to a class or function that our checkpoints do not contain.
        """
        path = Path(self.path) / _METADATA
        try:
            with open(path, "rb") as file:
                metadata = _Unpickler(file).load()
            names = {info.relative_path for info in metadata.storage_data.values()}
            outside = [name for name in names if os.path.basename(name) != name]
            entries = metadata.state_dict_metadata.items()
            self.shapes = {key: tuple(getattr(entry, "size", ())) for key, entry in entries}
            metadata.storage_meta.load_id = self.load_id
        except Exception as error:  # unpickling damaged data may raise any exception
            raise CheckpointError(
                f"{path} cannot be read: {type(error).__name__}: {error}"
            ) from error
        if outside:
            raise CheckpointError(f"{path} names a file outside of its folder")
        return cast(Metadata, metadata)


class _Results(list[Any]):
    """Results that torch returns for the files of a rank, with the hash of each file by name."""

    hashes: dict[str, FileHash]


class _HashedFiles(FileSystem):
    """The local file system, with hashes.

    hashes: hash of each file written so far, by name.
    error: first error of a write; None if there was none.
    """

    def __init__(self) -> None:
        self.hashes: dict[str, FileHash] = {}
        self.error: OSError | None = None

    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        with super().create_stream(path, mode) as file:
            hashed = _HashedFile(file)
            try:
                yield cast(io.IOBase, hashed)
            finally:
                self.error = self.error or hashed.error
        self.hashes[os.path.basename(path)] = FileHash(hashed.bytes, hashed.hash.hexdigest())


class _HashedFile:
    """A file that is hashed while it is written from beginning to end."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.hash, self.bytes = xxhash.xxh3_128(), 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.hash.update(view)
        self.bytes += view.nbytes
        try:
            self._file.write(view)
        except OSError as error:
            self.error = error
            raise
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        # after an error, the garbage collector may call this when the file is already closed
        if not self._file.closed:
            self._file.flush()

    def fileno(self) -> int:
        """Flush, and return the descriptor for torch's fsync. torch does not flush the metadata
        file before it calls fsync."""
        self._file.flush()
        return int(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _OF_METADATA:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a checkpoint's metadata")
        return super().find_class(module, name)
