"""Starting Ray or connecting to it: the notice, a missing cluster, nodes that are refused."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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

HTTP2_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""First bytes of each server of HTTP/2, such as Ray's."""


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


def test_the_error_for_a_ray_that_does_not_start_here_names_no_address() -> None:
    def init(**options: Any) -> None:
        raise RuntimeError("the node\ntimed out")

    ray = SimpleNamespace(init=init, job_config=SimpleNamespace(JobConfig=lambda **settings: None))
    said = r"^Ray did not start on this machine \(the node timed out\): use --executor processes"
    with pytest.raises(BuildError, match=said):
        connect(ray, None, 1)


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """Start a server that answers the first bytes of one client; return its HOST:PORT."""

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(100)
            client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_failed_connection_names_the_machines_and_the_token_and_hides_the_lines_of_ray(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def init(**options: Any) -> None:
        os.write(2, b"gcs_client.cc:210: Failed to get cluster ID\n")
        raise ConnectionError("Failed to connect to Ray cluster")

    ray = SimpleNamespace(init=init, job_config=SimpleNamespace(JobConfig=lambda **settings: None))
    monkeypatch.delenv("RAY_BACKEND_LOG_LEVEL", raising=False)
    for shown in ("", "gcs_client.cc:210: Failed to get cluster ID\n"):
        with (
            server(HTTP2_SETTINGS) as address,
            pytest.raises(
                BuildError,
                match=r"where `ray start` ran.*RAY_AUTH_MODE=token.*RAY_BACKEND_LOG_LEVEL=info",
            ),
        ):
            connect(ray, address, None)
        assert capfd.readouterr().err == shown
        monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "info")


def test_ray_prints_no_messages_of_the_cluster_because_standard_output_is_for_log_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray")
    worker = ray._private.worker
    monkeypatch.setattr(ray, "init", lambda **options: None)
    monkeypatch.setattr(worker, "_worker_logs_enabled", True)
    monkeypatch.delenv("RAY_BACKEND_LOG_LEVEL", raising=False)
    for shown in (True, False):
        worker.print_worker_logs({"pid": "raylet", "lines": ["Raylet is terminated"]}, sys.stdout)
        assert bool(capsys.readouterr().out) == shown
        connect(ray, None, 1)


def test_a_program_other_than_ray_is_refused_because_ray_would_retry_for_minutes() -> None:
    with (
        server(b"HTTP/1.0 400 Bad Request\r\n\r\n") as address,
        pytest.raises(BuildError, match=r"does not answer as Ray does: give the HOST:PORT that"),
    ):
        connect(None, address, None)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("localhost", r"^--ray-address localhost: expected auto or HOST:PORT, such as localhost:6"),
        (":6379", r"^--ray-address :6379: expected auto or HOST:PORT, such as head:6379$"),
        ("ray://node0:10001", r"addresses with ray:// are not supported: run the build on a mach"),
        ("auto", r"^--ray-address auto \(RAY_ADDRESS=http://node0:8265\): addresses with http://"),
    ],
)
def test_an_address_of_another_form_is_refused_with_an_example(
    monkeypatch: pytest.MonkeyPatch, address: str, said: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://node0:8265")
    with pytest.raises(OptionError, match=said):
        connect(None, address, None)


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
