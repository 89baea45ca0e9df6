"""Files that run `thdpack watch` start commands that exist, with ports and probes that agree."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli.arguments import parsed
from pipeline.service.options import WatchOptions
from tests.conftest import REPO

FOLDER = REPO / "deploy" / "service"
CONTAINERS = REPO / "deploy" / "containers"
PORT = WatchOptions(inbox="x", dataset="y").port


def watch_options(words: list[str]) -> WatchOptions:
    """Return the options that words of a command line, without `thdpack`, give."""
    options = parsed(words)
    assert isinstance(options, WatchOptions)
    return options


def image_of_the_service() -> str:
    """Return the lines of the container file that define the target `service`."""
    return (CONTAINERS / "cpu.Containerfile").read_text().split(" AS service\n")[1]


def entrypoint() -> list[str]:
    [words] = re.findall(r"^ENTRYPOINT \[(.*)\]$", image_of_the_service(), flags=re.MULTILINE)
    return re.findall(r'"([^"]*)"', words)


def test_the_container_serves_on_its_exposed_port() -> None:
    text = image_of_the_service()
    program, *words = entrypoint()
    assert program == "thdpack"
    options = watch_options([*words, "/data/inbox", "--dataset", "/data/dataset"])
    assert (options.host, options.port) == ("0.0.0.0", PORT)
    assert f"EXPOSE {PORT}\n" in text
    assert f"http://127.0.0.1:{PORT}/healthz" in text


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_container_does_not_run_as_root_and_can_write_to_the_mounted_folder(name: str) -> None:
    text = (CONTAINERS / f"{name}.Containerfile").read_text()
    assert re.search(r"^USER 10001$", text, flags=re.MULTILINE)
    for command in re.findall(r"docker run(?:.*\\\n)*.*", text):
        assert '--user "$(id -u):$(id -g)"' in command


def test_compose_starts_the_service_after_its_store() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    options = watch_options([*entrypoint()[1:], *services["watch"]["command"]])
    for each in (options.inbox, options.dataset):
        assert each.startswith("s3://corpora/")
    assert f"127.0.0.1:{PORT}:{PORT}" in services["watch"]["ports"]
    for name, service in services.items():
        assert set(service.get("depends_on", {})) < set(services), name
    [first] = services["first"]["command"]
    known, made = first.split(" || ")
    # without exec, the shell would not pass SIGTERM on to a build
    for command in (known, made.removeprefix("exec ")):
        program, *words = shlex.split(command)
        assert program == "thdpack"
        parsed(words)
    assert made.startswith("exec ")
    assert options.dataset in first
    access = services["watch"]["environment"]
    store = services["store"]["environment"]
    assert access["AWS_ACCESS_KEY_ID"] == store["MINIO_ROOT_USER"]
    assert access["AWS_SECRET_ACCESS_KEY"] == store["MINIO_ROOT_PASSWORD"]
    # compose refuses to start without the secret
    assert store["MINIO_ROOT_PASSWORD"].startswith("${STORE_SECRET:?set it to ")
    build = services["watch"]["build"]
    assert (FOLDER / build["context"]).resolve() == REPO
    assert (REPO / build["dockerfile"]).is_file()
    assert build["target"] == "service"


def test_kubernetes_probes_the_ports_and_paths_of_the_service() -> None:
    manifests = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    deployment, service = manifests
    pod: dict[str, Any] = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    watch_options([*entrypoint()[1:], *container["args"]])
    [port] = container["ports"]
    assert port["containerPort"] == PORT
    server = (REPO / "pipeline/service/web/server.py").read_text()
    for probe in ("livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == port["name"]
        assert f'"{asked["path"]}"' in server
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert deployment["spec"]["replicas"] == 1
    # the Pod Security Standard `restricted` of Kubernetes requires these settings
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_service_is_installed_from_the_checkout_and_its_documentation_exists() -> None:
    unit = (FOLDER / "thdpack-watch.service").read_text()
    assert "cp -r . /opt/thdpack-src;" in unit
    [page] = re.findall(r"^Documentation=file:///opt/thdpack-src/(.*)$", unit, flags=re.MULTILINE)
    assert (REPO / page).is_file()
    for path in (*FOLDER.iterdir(), *CONTAINERS.iterdir()):
        assert not re.search(r"[ '\"]thdpack\[", path.read_text()), path


def test_the_systemd_unit_is_valid(tmp_path: Path) -> None:
    unit = (FOLDER / "thdpack-watch.service").read_text()
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign] # names keep their case
    parser.read_string(unit)
    program, *words = shlex.split(parser["Service"]["ExecStart"])
    assert program == "/opt/thdpack/bin/thdpack"
    options = watch_options(words)
    allowed = parser["Service"]["ReadWritePaths"]
    assert options.inbox.startswith(allowed)
    assert options.dataset.startswith(allowed)
    assert parser["Service"]["KillMode"] == "mixed"
    # another start does not change a wrong option
    assert parser["Service"]["RestartPreventExitStatus"] == "2"
    # or systemd would stop the service, which counts how often an append crashes
    assert parser["Service"]["OOMPolicy"] == "continue"
    assert f"--out {options.dataset}" in unit  # the steps at the top build the dataset
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # the program must exist on the machine that checks the unit
    path = tmp_path / "thdpack-watch.service"
    path.write_text(unit.replace(program, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    assert done.returncode == 0, done.stderr
    assert "thdpack-watch" not in done.stderr
