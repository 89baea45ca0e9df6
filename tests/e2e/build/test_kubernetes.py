"""deploy/kubernetes/preprocess.sh builds a dataset with Jobs, and resumes after failures."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import REPO, environment, preprocess
from tests.helpers.processes.kubernetes import Cluster, kubectl

SCRIPT = REPO / "deploy" / "kubernetes" / "preprocess.sh"
SIZES = {"task_bytes": 60_000, "partition_bytes": 60_000}
OPTIONS = ("--capacity", "2048", "--max-seq-len", "512")


def script(path: Path, **values: str) -> subprocess.Popen[str]:
    """Start the script with `kubectl` from a folder, and with values of variables."""
    env = {**environment(), "PATH": f"{path}:{os.environ['PATH']}", "POLL": "0.05", **values}
    pipe = subprocess.PIPE
    bash = shutil.which("bash")
    assert bash
    return subprocess.Popen([bash, SCRIPT], env=env, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster, whose `kubectl` is in tmp_path."""
    cluster = Cluster(tmp_path / "set", tmp_path, **SIZES)
    with kubectl(cluster, tmp_path):
        yield cluster


def test_a_build_on_kubernetes_gives_the_same_bytes_after_failures(
    tmp_path: Path, cluster: Cluster
) -> None:
    corpus = tmp_path / "my corpus"
    corpus.mkdir()
    for seed in range(2):
        (corpus / f"{seed}.fasta").write_bytes(fasta(made_records(300, seed=seed)))
    values = {
        "INPUTS": f"'{corpus}/*.fasta'",
        "DATASET": str(tmp_path / "set"),
        "OPTIONS": " ".join(OPTIONS),
        "IMAGE": "registry:5000/thdpack-cpu:0.1.0",
        "SECRET": "store",
        "CLAIM": "shared",
        "MOUNT": str(tmp_path),
        "NAMESPACE": "sets",
        "SIZE": "2",
    }

    waiting = script(tmp_path, **values)
    assert waiting.stderr is not None
    notice = waiting.stderr.readline()
    [plan] = cluster.jobs
    assert f"{plan}-0-0 does not start (CreateContainerConfigError)" in notice
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate()
    assert waiting.returncode == 130, said
    assert f"kubectl --namespace sets delete job {plan}" in said

    cluster.secrets["store"] = {}
    cluster.kills["map-1"] = [1, 1, 1, 1]
    failed = script(tmp_path, **values)
    printed, said = failed.communicate()
    assert failed.returncode == 1, said
    assert f"{plan} runs already; waiting for it" in printed
    failed_job = list(cluster.jobs)[-1]
    assert f"the Job {failed_job} failed" in said
    assert f"The pod {failed_job}-1-4 ended with Error. The last lines of its log:" in said
    assert f"kubectl --namespace sets logs {failed_job}-1-4" in said
    assert "run the same command again to resume" in said

    cluster.kills["map-1"] = [2]
    resumed = script(tmp_path, **values)
    printed, said = resumed.communicate()
    assert resumed.returncode == 0, said
    assert not cluster.kills["map-1"]
    stages = [job.manifest["metadata"]["name"].split("-")[1] for job in cluster.ever]
    assert stages == ["plan", "map", "plan", "map", "reduce", "commit"]
    map_job = cluster.jobs[failed_job]
    assert [pod.index for pod in map_job.pods] == [0, 1, 1]
    assert map_job.pods[1].code == -signal.SIGKILL
    assert "0 tasks run" not in map_job.pods[0].log
    assert "skipped, because an earlier run finished them" in map_job.pods[0].log
    assert "records in" in printed

    source = corpus / "*.fasta"
    whole = preprocess(source, tmp_path / "whole", *OPTIONS, **SIZES)
    assert digest(tmp_path / "set") == digest(whole)


def test_a_wrong_option_ends_the_build_with_the_log_of_the_plan(
    tmp_path: Path, cluster: Cluster
) -> None:
    """All characters of a word reach thdpack. The pod is not retried."""
    words = ["s3://b/$(HOME) *.fasta", "s3://b/$$x$", 's3://b/"q".fasta', "s3://b/back\\slash"]
    quoted = [f"'{word}'" for word in words]
    values = {"INPUTS": " ".join(quoted), "DATASET": "s3://b/set", "IMAGE": "thdpack"}
    ended = script(tmp_path, **values, OPTIONS="--capacty 5")
    _, said = ended.communicate()
    assert ended.returncode == 1, said
    [job] = cluster.jobs.values()
    [pod] = job.pods
    assert pod.command == [
        *("thdpack", "plan-tasks", *words, "--out", "s3://b/set", "--capacty", "5")
    ]
    assert "    thdpack plan-tasks: " in said
    assert "--capacity" in said
    assert f"kubectl logs {pod.name}" in said
    assert said.endswith("Correct INPUTS, OPTIONS or DATASET, and run the script again\n")
    assert "same command" not in said


GOOD = {"INPUTS": "s3://b/a.fasta", "DATASET": "s3://b/set", "IMAGE": "thdpack"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"INPUTS": ""}, "set INPUTS, DATASET and IMAGE, for example: INPUTS="),
        ({"IMAGE": ""}, "set INPUTS, DATASET and IMAGE, for example: INPUTS="),
        ({"PATH": ""}, "kubectl is not in PATH"),
        ({"DATASET": "sets/a"}, "DATASET is a local path, sets/a, and pods cannot see"),
        ({"INPUTS": "s3://b/a @/l.txt"}, "INPUTS is a local path, /l.txt, and pods cannot see"),
        ({"DATASET": "/sets/a", "CLAIM": "c"}, "DATASET is /sets/a, but pods see the claim c at"),
        ({"INPUTS": "'s3://b/a"}, "INPUTS has a quote without its partner: 's3://b/a"),
        ({"SIZE": "0"}, "SIZE is '0', expected a whole number from 1"),
        ({"POLL": "abc"}, "POLL is 'abc', expected seconds"),
        ({"MEMORY": "4"}, "MEMORY is '4', expected a size such as 2Gi or 500Mi"),
        ({"COMMIT_MEMORY": "8GB"}, "COMMIT_MEMORY is '8GB', expected a size such as 2Gi"),
        ({"MOUNT": "data"}, "MOUNT is 'data', expected the path of a folder from /, such as"),
        ({"MOUNT": "/"}, "MOUNT is '/', expected the path of a folder from /, such as /data"),
        ({"MOUNT": '/a"b'}, "MOUNT is '/a\"b', expected a path without double quotes"),
        ({"MOUNT": "/scratch"}, "MOUNT is /scratch, but pods keep their own files in /scratch"),
        ({"INPUTS": " "}, "set INPUTS, DATASET and IMAGE, for example: INPUTS="),
        ({"INPUTS": "-"}, "INPUTS is -, and pods cannot read the standard input"),
        ({"INPUTS": "s3:///a"}, "INPUTS is s3:///a, a URL without a bucket: write s3://BUCKET/"),
        ({"DATASET": "s3://b/a\r"}, "DATASET contains a carriage return"),
        ({"DATASET": "/data/../a", "CLAIM": "c"}, "DATASET is /data/../a, but pods see the claim"),
        ({"IMAGE": 'a"b'}, "IMAGE is 'a\"b', expected an image such as registry/thdpack-cpu"),
        ({"IMAGE": "a b"}, "IMAGE is 'a b', expected an image such as registry/thdpack-cpu"),
        ({"IMAGE": "a\nb"}, "IMAGE contains a newline, a tab or another control character"),
        ({"SECRET": "a_b"}, "SECRET is 'a_b', expected a name in Kubernetes"),
        ({"SERVICE_ACCOUNT": "a b"}, "SERVICE_ACCOUNT is 'a b', expected a name in Kubernetes"),
        ({"CLAIM": "a/b"}, "CLAIM is 'a/b', expected a name in Kubernetes"),
        ({"NAMESPACE": "--all"}, "NAMESPACE is '--all', expected a name in Kubernetes"),
        ({"SIZE": "9" * 20}, f"SIZE is {'9' * 20}, expected at most 999999"),
        ({"OPTIONS": "--exclude /l"}, "--exclude in OPTIONS is a local path, /l, and pods cannot"),
        (
            {"OPTIONS": "--sample_clusters=l"},
            "--sample-clusters in OPTIONS is a local path, l, and",
        ),
        ({"OPTIONS": "--clusters mmseqs:0.5"}, "OPTIONS has --clusters mmseqs:0.5, but MMseqs2"),
        ({"OPTIONS": "--dry-run"}, "OPTIONS has --dry-run, but this script needs the plan"),
        ({"OPTIONS": "--seed 1 --log_json"}, "OPTIONS has --log_json, but this script needs"),
        ({"OPTIONS": "--help"}, "OPTIONS has --help, but this script needs the plan"),
        ({"OPTIONS": "--workers=2"}, "OPTIONS has --workers, but Jobs run the tasks"),
        ({"OPTIONS": "--out x"}, "OPTIONS has --out: remove it, and set DATASET instead"),
    ],
)
def test_a_script_that_cannot_run_says_in_one_line_what_to_do(
    tmp_path: Path, values: dict[str, str], said: str
) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho called; exit 1\n")
    (tmp_path / "kubectl").chmod(0o755)
    ended = script(tmp_path, **{**GOOD, **values})
    printed, errors = ended.communicate()
    assert ended.returncode == 2, errors
    assert errors.startswith(f"preprocess.sh: {said}")
    assert errors.count("\n") == 1
    assert not printed


def test_without_a_cluster_the_script_says_in_one_line_how_to_see_the_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\nprintf 'E1\\nNo route\\n' >&2; exit 1\n")
    (tmp_path / "kubectl").chmod(0o755)
    ended = script(tmp_path, **GOOD)
    _, errors = ended.communicate()
    assert ended.returncode == 1
    assert errors == (
        "preprocess.sh: kubectl cannot read Jobs (No route). Check the cluster and your "
        "rights with: kubectl get jobs. Then run the same command again\n"
    )


PLAN = "thdpack-plan-2061912764"
"""Name of the Job that plans the build of GOOD."""
FAILS = "echo 'Error (Forbidden)' >&2; exit 1"
AGAIN = "run the same command again"
UNPLANNED = "Repair the cause. No task has started. Run this script again"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"create -f": FAILS},
            f"kubectl did not create the Job {PLAN} (Error (Forbidden)). Repair the cause (your "
            "rights: kubectl auth can-i create jobs). No task has started. Run this script again",
        ),
        (
            {"get pods": "echo 'p|0|Failed||||1|'", "get job": "echo '|||Failed|too many'"},
            f"the Job {PLAN} failed: too many. For the whole log, run: kubectl logs p. {UNPLANNED}",
        ),
        (
            {"get pods": "echo 'p|0|Failed|||||Evicted'", "get job": "echo '|||Failed|too many'"},
            f"the Job {PLAN} failed, because a pod was evicted, for example because it needed more "
            f"disk space than the sizeLimit in {SCRIPT.with_name('job.yaml')}. To see why, run: "
            f"kubectl describe pod p. {UNPLANNED}",
        ),
        (
            {"get pods": "echo 'p|0|Succeeded||||0|'", "logs p": FAILS},
            f"kubectl cannot read the log of the Job {PLAN} (Error (Forbidden)). Check your rights "
            f"with: kubectl auth can-i get pods --subresource=log. Then {AGAIN}",
        ),
        (
            {"get pods": ":"},
            f"kubectl cannot read the log of the Job {PLAN} (its pod was deleted). Check your "
            f"rights with: kubectl auth can-i get pods --subresource=log. Then {AGAIN}",
        ),
        (
            {"get pods": "echo 'p|0|Succeeded||||0|'", "logs p": "echo hello"},
            f"the log of the Job {PLAN} names no plan. Set IMAGE to the image of "
            "deploy/containers/cpu.Containerfile, target cpu, and run the script again",
        ),
    ],
)
def test_a_failure_ends_with_a_line_that_says_how_to_go_on(
    tmp_path: Path, parts: dict[str, str], said: str
) -> None:
    answers = {"create -f": "cat > made", "get job": "echo '|1||Complete|'", **parts}
    stand_in(tmp_path, {**answers, "get job": f"[ ! -e made ] || {answers['get job']}"})
    ended = script(tmp_path, **GOOD)
    _, errors = ended.communicate()
    assert ended.returncode == 1
    assert errors.splitlines()[-1] == f"preprocess.sh: {said}"


def test_a_pod_that_waits_for_its_image_is_reported_once_for_each_reason(tmp_path: Path) -> None:
    """The reason alternates between two states until the Job is deleted."""
    wait = "echo x >> looks; n=$(wc -l < looks); [ $n -lt 8 ] || rm made; "
    wait += 'r=(ErrImagePull ImagePullBackOff); echo "p|0|Pending|${r[n % 2]}||||"'
    answers = {"create -f": "cat > made", "get job": "[ ! -e made ] || echo '||||'"}
    stand_in(tmp_path, {**answers, "get pods": wait})
    ended = script(tmp_path, **GOOD)
    _, errors = ended.communicate()
    assert ended.returncode == 1
    assert errors.count("ErrImagePull") == errors.count("ImagePullBackOff") == 1
    assert "To see why, run: kubectl describe pod p. If a setting is wrong, press Ctrl-C" in errors
    assert errors.endswith(f"the Job {PLAN} was deleted. {AGAIN.capitalize()} to resume\n")


def test_a_job_that_runs_with_other_settings_is_replaced(tmp_path: Path) -> None:
    answers = {
        "create -f": "cat > made",
        "delete job": ": > deleted",
        "get job": "if [ -e made ]; then :; elif [ ! -e deleted ]; then echo 'old||||'; fi",
    }
    stand_in(tmp_path, answers)
    printed, errors = script(tmp_path, **GOOD, SECRET="store").communicate()
    assert printed.startswith(f"{PLAN} runs with other settings; replacing it\n{PLAN} started")
    labels = yaml.safe_load((tmp_path / "made").read_text())["metadata"]["labels"]
    assert labels["settings"].isdigit(), errors


def stand_in(folder: Path, answers: dict[str, str]) -> None:
    """Write a program `kubectl` that runs the shell code of its first two words in `folder`."""
    cases = "".join(f'"{words}") {code} ;;\n' for words, code in answers.items())
    program = folder / "kubectl"
    program.write_text(f'#!/bin/bash\ncd {folder}\ncase "$1 $2" in\n{cases}esac\n')
    program.chmod(0o755)
