"""Starting Ray or connecting to it: the notice, a missing cluster, nodes that are refused."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.executors.executor import ExecutorRequest, SerialExecutor
from pipeline.executors.node_requirements import NodeRequirements, versions
from pipeline.executors.ray_connection import connect
from pipeline.executors.registry import EXECUTORS
from pipeline.storage.local_folder import LocalFolder
from schemas.errors import BuildError, OptionError


def test_without_a_local_cluster_the_error_names_our_option_instead_of_rays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance: set the `--address` flag")

    ray = SimpleNamespace(init=init, job_config=SimpleNamespace(JobConfig=lambda **settings: None))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(BuildError) as raised:
        connect(ray, "auto", None)
    assert str(raised.value).startswith("--ray-address auto: no Ray cluster runs on this machine")
    assert "`--address`" not in str(raised.value)


def test_a_failed_connection_names_the_machines_and_the_token_as_remedies() -> None:
    def init(**options: Any) -> None:
        raise ConnectionError("Failed to connect to Ray cluster")

    ray = SimpleNamespace(init=init, job_config=SimpleNamespace(JobConfig=lambda **settings: None))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(BuildError, match=r"where `ray start` ran.*RAY_AUTH_MODE=token"):
            connect(ray, address, None)


def test_an_address_without_a_port_is_refused_with_an_example() -> None:
    with pytest.raises(OptionError, match=r"expected auto or HOST:PORT, such as localhost:6379"):
        connect(None, "localhost", None)


def test_a_node_must_have_the_versions_of_the_driver_and_see_the_same_folder(
    tmp_path: Path,
) -> None:
    """The driver writes a file into the dataset's folder. A node that does not see this file is
    refused."""
    (tmp_path / "shared").touch()
    out = LocalFolder(tmp_path, tmp_path)
    NodeRequirements("shared", versions()).refuse_other(out)
    NodeRequirements(None, versions()).refuse_other(out)
    with pytest.raises(BuildError, match="does not see this folder"):
        NodeRequirements("other", versions()).refuse_other(out)
    with pytest.raises(
        BuildError,
        match=(
            r"has thdpack \d[\w.]+ \(code [0-9a-f]{16}\) with pyarrow \d[\w.]+, "
            "but the driver has thdpack 0 with"
        ),
    ):
        NodeRequirements("shared", "thdpack 0 with pyarrow 0").refuse_other(out)


def test_a_start_of_ray_on_this_machine_is_announced_because_it_takes_seconds(
    tmp_path: Path,
) -> None:
    kind = replace(EXECUTORS["ray"], open=lambda request: nullcontext(SerialExecutor()))
    request = ExecutorRequest(
        out=LocalFolder(tmp_path, tmp_path), workers=1, asked_workers=None, address=None
    )
    said: list[str] = []
    with kind.start(request, said.append):
        assert said == ["starting Ray on this machine, which takes several seconds"]
    with kind.start(replace(request, address="node0:6379"), said.append):
        assert len(said) == 1
