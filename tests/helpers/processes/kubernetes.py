"""A cluster that runs the pods of indexed Jobs as processes, and a program that replaces `kubectl`.

The cluster knows the requests of deploy/kubernetes/preprocess.sh and refuses all others. It runs
the pods of a Job one after another, right after the script has first read the state of the Job. It
ignores images, resources and rights.
"""

from __future__ import annotations

import argparse
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.processes.started import start, stopping_at_change

_KUBECTL = """#!/bin/bash
# send the arguments and standard input to the cluster, print its answer
exec 3<> /dev/tcp/127.0.0.1/{port}
printf '%s\\0' "$#" "$@" "$([[ " $* " != *' -f - '* ]] || cat)" >&3
read -r code <&3
[ "$code" = 0 ] && exec cat <&3
cat <&3 >&2
exit "$code"
"""


class RequestError(Exception):
    """The cluster refuses a request."""


@dataclass
class Pod:
    """name and index; command: expanded command; code: exit code, None if the pod cannot start."""

    name: str
    index: int
    command: list[str]
    code: int | None
    log: str = ""
    waits_for: str = ""

    def state(self) -> str:
        """Return the fields that the script asks for."""
        phase = {None: "Pending", 0: "Succeeded"}.get(self.code, "Failed")
        ended = {None: "", 0: "Completed"}.get(self.code, "Error")
        code = "" if self.code is None else self.code
        return f"{self.name}|{self.index}|{phase}|{self.waits_for}||{ended}|{code}|"


@dataclass
class Job:
    """manifest; pods, the oldest first; done: number of indexes that succeeded; failed_index: index
    whose pods failed too often; condition: type and message of the last condition.
    """

    manifest: dict[str, Any]
    pods: list[Pod] = field(default_factory=list)
    done: int = 0
    failed_index: str = ""
    condition: tuple[str, str] = ("", "")

    def state(self) -> str:
        """Return the fields that the script asks for."""
        kind, message = self.condition
        types = {"Complete": "SuccessCriteriaMet Complete", "Failed": "FailureTarget Failed"}
        settings = self.manifest["metadata"]["labels"]["settings"]
        return f"{settings}|{self.done or ''}|{self.failed_index}|{types.get(kind, '')}|{message}"


class Cluster:
    """Cluster of one namespace.

    jobs: Jobs by name.
    ever: all Jobs that were created, the oldest first.
    secrets: environment variables of each Secret. Pods that need another Secret wait for it.
    kills: by stage and index, for each attempt in turn the change in `dataset` before which the pod
        gets SIGKILL (see `stopping_at_change`).
    """

    def __init__(self, dataset: Path, scratch: Path, **sizes: int) -> None:
        self.jobs: dict[str, Job] = {}
        self.ever: list[Job] = []
        self.secrets: dict[str, dict[str, str]] = {}
        self.kills: dict[str, list[int]] = {}
        self._dataset, self._scratch, self._sizes = dataset, scratch, sizes

    def answer(self, words: list[str], text: str) -> str:
        """Return the output of `kubectl WORDS`.

        Raises:
            RequestError: the request is wrong or unknown.
        """
        parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
        parser.add_argument("words", nargs="+")
        parser.add_argument("--ignore-not-found", action="store_true")
        for name in ("-f", "-o", "--selector", "--sort-by", "--cascade", "--tail", "--namespace"):
            parser.add_argument(name)
        options, unknown = parser.parse_known_args(words)
        match options.words:
            case ["create"] if not unknown and options.f == "-":
                return self._create(yaml.safe_load(text))
            case ["get", "job", name] if not unknown and options.ignore_not_found:
                if name not in self.jobs:
                    return ""
                state = self.jobs[name].state()
                self._run(self.jobs[name])
                return state
            case ["get", "pods"] if not unknown:
                job = self.jobs[options.selector.removeprefix("job-name=")]
                return "".join(f"{pod.state()}\n" for pod in job.pods)
            case ["delete", "job", name] if options.cascade == "foreground" and name in self.jobs:
                del self.jobs[name]
                return f'job.batch "{name}" deleted\n'
            case ["logs", name] if not unknown:
                pods = [pod for job in self.jobs.values() for pod in job.pods]
                [log] = [pod.log for pod in pods if pod.name == name]
                return "".join(log.splitlines(keepends=True)[-int(options.tail or 1_000_000) :])
        raise RequestError(f"error: unknown request: {words}\n")

    def _create(self, manifest: dict[str, Any]) -> str:
        name = manifest["metadata"]["name"]
        if name in self.jobs:
            raise RequestError(f'Error from server (AlreadyExists): jobs "{name}" already exists\n')
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", name), name
        self.jobs[name] = Job(manifest)
        self.ever.append(self.jobs[name])
        return f"job.batch/{name} created\n"

    def _run(self, job: Job) -> None:
        """Run the pods of a Job, unless it has ended or its Secret is missing."""
        spec = job.manifest["spec"]
        if job.condition[0]:
            return
        job.pods = [pod for pod in job.pods if pod.code is not None]
        [ends] = [rule["onExitCodes"] for rule in spec["podFailurePolicy"]["rules"][1:]]
        for index in range(spec["completions"]):
            failures = 0
            while (pod := self._pod(job, index)).code != 0:
                if pod.code is None:
                    return
                failures += 1
                if pod.code in ends["values"]:
                    job.condition = "Failed", f"pod {pod.name} matches the rule FailJob"
                    return
                if failures > spec["backoffLimitPerIndex"]:
                    assert spec["maxFailedIndexes"] == 0
                    job.failed_index = str(index)
                    job.condition = "Failed", "Job has exceeded the specified maximal number"
                    return
            job.done += 1
        job.condition = "Complete", ""

    def _pod(self, job: Job, index: int) -> Pod:
        """Run one pod, and wait for its end."""
        name = f"{job.manifest['metadata']['name']}-{index}"
        container = job.manifest["spec"]["template"]["spec"]["containers"][0]
        env = {each["name"]: each["value"] for each in container["env"]}
        env |= {"JOB_COMPLETION_INDEX": str(index)}
        command = [_expanded(word, env) for word in container["command"] + container["args"]]
        pod = Pod(f"{name}-{len(job.pods)}", index, command, code=None)
        job.pods.append(pod)
        for source in container.get("envFrom", []):
            if source["secretRef"]["name"] not in self.secrets:
                pod.waits_for = "CreateContainerConfigError"
                return pod
            env |= self.secrets[source["secretRef"]["name"]]
        env = {key: str(self._scratch) if env[key] == "/scratch" else env[key] for key in env}
        setup = f"import os; os.environ.update({env!r})"
        moments = self.kills.get(f"{name.split('-')[1]}-{index}", [])
        if moments:
            setup += f"; {stopping_at_change(moments[0], self._dataset)}"
        assert command[0] == "thdpack"
        process = start(*command[1:], setup=setup, **self._sizes)
        if moments:
            del moments[0]
            process.wait_until_stopped()
            process.kill()
        pod.log = process.communicate()
        pod.code = process.returncode
        return pod


def _expanded(word: str, env: dict[str, str]) -> str:
    """Replace $(NAME) and $$ as Kubernetes does."""
    return re.sub(
        r"\$(?:\$|\((\w+)\))",
        lambda found: env.get(found[1], found[0]) if found[1] else "$",
        word,
    )


@contextmanager
def kubectl(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Write a program `kubectl` to a folder. Yield its path; it works until the context ends."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            count = int(self._word())
            words, text = [self._word() for _ in range(count)], self._word()
            try:
                answer = f"0\n{cluster.answer(words, text)}"
            except RequestError as error:
                answer = f"1\n{error}"
            self.wfile.write(answer.encode())

        def _word(self) -> str:
            found = b""
            while (byte := self.rfile.read(1)) != b"\0":
                found += byte
            return found.decode()

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        path = folder / "kubectl"
        path.write_text(_KUBECTL.format(port=server.server_address[1]))
        path.chmod(0o755)
        try:
            yield path
        finally:
            server.shutdown()
            thread.join()
