"""Random damage that a bad disk or an attacker may cause: changed JSON values, changed bytes."""

from __future__ import annotations

import json
import os
import random
from typing import Any

SEED = int(os.environ.get("THDPACK_TEST_SEED", "0"))
OUTSIDE = (
    "../up",
    "../../precious",
    "/etc/hostname",
    "train/../../precious",
    "",
    ".",
    "..",
    "lock",
    "a\0b",
    "train/x",
    "~/x",
)
"""File names that point out of a folder, and other names that no file of a dataset has."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1 << 62,
    1 << 64,
    1 << 200,
    10**400,
    -(1 << 80),
    float("nan"),
    float("inf"),
    "x",
    "\ud800",
    [],
    [[]],
    {},
    {"a": 1},
    *OUTSIDE,
)
"""Values of every JSON type. Some are outside the range of every field."""
_TOKENS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"null",
    b"-",
    b"1e999",
    b"9" * 400,
    b'"\\ud800"',
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
)


def mutated(values: Any, rng: random.Random) -> Any:
    """Return a copy of JSON values, with one value removed, renamed, repeated or replaced."""
    changed = node = json.loads(json.dumps(values))
    while True:
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.85:
            node = node[key]
            continue
        kind = rng.randrange(10)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[rng.choice((*OUTSIDE, "more"))] = node.pop(key)
        elif kind == 2 and isinstance(node, list):
            node.append(rng.choice((node[key], *VALUES)))
        else:
            node[key] = rng.choice(VALUES)
        return changed


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one random change: a flipped bit, or bytes replaced, removed, copied,
    added or cut off.
    """
    while True:
        at, elsewhere = rng.randrange(len(content)), rng.randrange(len(content))
        piece = content[at : at + rng.choice((1, 4, 64))]
        kind = rng.randrange(7)
        if kind < 2:
            bit = 1 << rng.randrange(8)
            changed = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
        elif kind == 2:
            changed = content[:at] + rng.randbytes(len(piece)) + content[at + len(piece) :]
        elif kind == 3:
            changed = content[:at] + content[at + len(piece) :]
        elif kind == 4:
            changed = content[:elsewhere] + piece + content[elsewhere:]
        elif kind == 5:
            changed = content[:at] + rng.choice(_TOKENS) + content[at:]
        else:
            changed = content[:at]
        if changed != content:
            return changed
