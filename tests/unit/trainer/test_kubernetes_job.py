"""The Job deploy/kubernetes/train.yaml."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from torch.distributed.elastic.rendezvous.utils import _parse_rendezvous_config
from torch.distributed.run import get_args_parser

from trainer.config import parse

TRAIN = Path(__file__).parents[3] / "deploy" / "kubernetes" / "train.yaml"


@pytest.mark.parametrize("index", ["0", "1"])
def test_the_kubernetes_job_starts_torchrun_with_options_that_exist(
    tmp_path: Path, index: str
) -> None:
    """The pods find each other, and the first pod runs the rendezvous."""
    service, job = yaml.safe_load_all(TRAIN.read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    torchrun.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": index}
    subprocess.run([*container["command"], *container["args"]], env=env, check=True)
    parsed = get_args_parser().parse_args((tmp_path / "words").read_text().splitlines())
    assert int(parsed.nnodes) == spec["completions"] == spec["parallelism"]
    assert int(parsed.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    host = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert parsed.rdzv_endpoint == f"{host}:29500"
    assert _parse_rendezvous_config(parsed.rdzv_conf) == {"is_host": "1" if index == "0" else "0"}
    assert pod["subdomain"] == service["metadata"]["name"]
    label = "batch.kubernetes.io/job-name"
    assert service["spec"]["selector"] == {label: job["metadata"]["name"]}
    assert parsed.training_script == "thdpack"
    options = parse(parsed.training_script_args[1:])
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/" + options.data.cache_dir.split("/")[1], "/dev/shm"} <= mounts
    [seconds] = [
        each["value"]
        for each in container["env"]
        if each["name"] == "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    ]
    assert int(seconds) < pod["terminationGracePeriodSeconds"]
