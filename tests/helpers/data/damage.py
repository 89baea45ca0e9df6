"""Functions that damage a shard, and the word in thdpack's errors for each kind of damage."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = {
    "flipped": (flip, "damaged"),
    "cut": (cut, "truncated"),
    "empty": (empty, "truncated"),
    "gone": (Path.unlink, "missing"),
}
