"""Every snippet on a page is run by a test, or RULES says why not.

A new snippet that no rule covers makes a test fail. Either run it in a test, or add a rule.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.helpers.pages import PAGES, snippets
from tests.helpers.processes.command_line import REPO

DOCS = "tests/e2e/cli/test_docs.py::"
GUIDES = "tests/e2e/cli/test_guides.py::"
SHOWN = "tests/e2e/site/test_shown_commands.py::"
CODE = f"{DOCS}test_the_code_on_a_page_runs"
MODELS = f"{DOCS}test_the_code_on_pages_that_use_a_model_runs"
PRINTED = f"{DOCS}test_commands_on_a_page_print_what_the_page_shows"
TRAINING = f"{SHOWN}test_training_commands_of_pages_run_with_a_tiny_model"
EXIST = f"{SHOWN}test_make_targets_variables_and_extras_on_pages_exist"
TASK_LIST = f"{SHOWN}test_builds_and_the_task_list_of_the_page_on_clusters_run"
PLAN = f"{SHOWN}test_the_commands_of_plan_on_all_pages_print_a_command"
BENCHMARKS = f"{SHOWN}test_benchmarks_on_pages_exist"
SYNOPSES = f"{SHOWN}test_the_synopses_of_the_page_on_commands_name_options_that_exist_and_run"
LINCLUST = "tests/e2e/build/named_files/test_linclust.py::"
PUSH = "tests/e2e/hub/test_push.py::test_a_pushed_dataset_reads_like_the_local_one"
SERVICE = "tests/e2e/service/test_service.py::test_sigterm_ends_an_idle_service_at_once"
QUICKSTART = "tests/e2e/training/test_quickstart.py::"
FINE_TUNING = f"{QUICKSTART}test_the_fine_tuning_quickstart_runs_from_fasta_to_embeddings"
MMSEQS = (
    f"{LINCLUST}test_each_family_is_a_cluster_and_the_number_of_workers_does_not_change_the_bytes"
)


class Rule(NamedTuple):
    """How commands are tested. The first rule whose patterns match a command applies to it."""

    pages: str
    """Regular expression for names of pages, without docs/ and .md."""
    commands: str
    """Regular expression for whole commands."""
    test: str
    """The test that runs the commands, or does what `note` says. Empty: no test."""
    note: str = ""
    """Reason why no test runs the commands as they are, and what `test` does instead."""


RULES = [
    # all pages
    Rule(".*", r"make .*", EXIST, "installs packages; CI and `make try-wheel` do the same"),
    Rule(".*", r"pip install (-e )?'.*'.*", EXIST, "bare_pythons.sh installs such extras"),
    Rule(".*", r"source \.venv/bin/activate", "", "changes only the shell"),
    Rule(".*", r"hf (download|auth) .*", "", "needs the Hugging Face Hub"),
    Rule(".*", r"aws s3 .*", "", "needs the AWS CLI"),
    Rule(".*", r"(apt-get install|mmseqs) .*", "", "needs another project's program"),
    Rule("benchmarks", r".*", BENCHMARKS, "takes minutes or hours; the modules exist"),
    # pages whose commands run in order
    Rule("guides/data", r"thdpack .*mmseqs:.*", MMSEQS, "where MMseqs2 is installed"),
    Rule("guides/data", r"thdpack push .*", PUSH, "pushes to a server on this machine"),
    Rule(
        "guides/data",
        r"thdpack preprocess … .*",
        "tests/e2e/cli/test_dry_runs.py::test_a_dry_run_gives_the_error_that_the_build_would_give",
        "a part of the command is left out",
    ),
    Rule(
        "guides/data", r"(thdpack|zcat) .*", f"{GUIDES}test_the_commands_of_the_guide_on_data_run"
    ),
    Rule(
        "guides/growing",
        r"thdpack .*",
        f"{GUIDES}test_the_commands_of_the_guide_on_growing_datasets_run",
    ),
    Rule(
        "guides/service", r"thdpack watch inbox --dataset \S+ +# until .*", SERVICE, "as a process"
    ),
    Rule(
        "guides/service",
        r"thdpack .*",
        f"{GUIDES}test_the_commands_of_the_guide_on_the_service_run",
    ),
    Rule("guides/inference", r"(thdpack|torchrun) .*MODEL .*", MODELS, "with names of files"),
    Rule("guides/inference", r"thdpack train .*", TRAINING),
    Rule("guides/inference", r"thdpack .*", MODELS),
    Rule("guides/training", r"torchrun --nnodes .*", TRAINING, "only parses the options"),
    Rule("guides/training", r"thdpack plan .*", PLAN),
    Rule("guides/training", r"run=.*aws s3 sync .*", "", "needs the AWS CLI"),
    Rule("README|guides/training|tutorial|coming-from", r"thdpack train .*", TRAINING),
    Rule("README|guides/training|coming-from", r"torchrun .*-m thdpack train .*", TRAINING),
    Rule("README", r"thdpack embed runs/first .*", MODELS, "the guide has the same command"),
    Rule("README|tutorial|quickstart-finetune", r"thdpack .*", PRINTED),
    Rule(
        "quickstart-pretrain",
        r"(thdpack|torchrun) .*",
        f"{DOCS}test_the_pre_training_quickstart_runs_from_s3_to_an_export",
    ),
    Rule("quickstart-pretrain|tutorial", r"(AutoModel|import torch).*", MODELS),
    Rule(
        "reference/statistics",
        r"thdpack .*",
        f"{SHOWN}test_the_commands_of_the_page_on_statistics_run",
    ),
    # clusters and other tools
    Rule(
        "guides/clusters",
        r"(RAY_AUTH_MODE=token )?ray (get-auth-token|start|stop).*",
        "",
        "run by hand; benchmarks/several_hosts.sh runs lines like these on two hosts",
    ),
    Rule("guides/clusters", r"(ssh|scp) .*", "", "needs a second machine"),
    Rule(
        "guides/clusters",
        r"thdpack preprocess .*--executor ray --ray-address FIRST.*",
        "tests/e2e/build/test_ray.py::test_nodes_that_share_only_an_object_store_give_the_same_bytes",
        "with the address of a cluster that the test starts",
    ),
    Rule(
        "guides/clusters",
        r"thdpack preprocess .*s3://.* --executor ray .*",
        "tests/e2e/build/test_ray.py::test_nodes_that_share_only_an_object_store_give_the_same_bytes",
        "with names of files",
    ),
    Rule(
        "guides/clusters",
        r"INPUTS=\S+ DATASET=\S+ +sbatch .*",
        "tests/e2e/build/test_task_list.py::"
        "test_the_sbatch_script_gives_the_same_bytes_with_fewer_array_elements_than_tasks",
        "with a program that stands in for Slurm",
    ),
    Rule(
        "guides/clusters",
        r"INPUTS=\S+ .* deploy/kubernetes/preprocess.sh",
        "tests/e2e/build/test_kubernetes.py::"
        "test_a_build_on_kubernetes_gives_the_same_bytes_after_failures",
        "with a program that stands in for Kubernetes",
    ),
    Rule("guides/clusters", r"kubectl create secret .*", "", "needs Kubernetes"),
    Rule(
        "guides/clusters",
        r"set -e\n.*",
        f"{DOCS}test_the_script_of_the_page_on_clusters_builds_a_dataset",
    ),
    Rule("guides/clusters|coming-from", r"thdpack .*", TASK_LIST),
    Rule("coming-from", r"torchrun .* train_fsdp2.py .*", "", "a command of another project"),
    Rule("coming-from", r"from convert .*", "", "needs BioNeMo's files"),
    Rule(
        "guides/frameworks",
        r"python examples/.*",
        "tests/e2e/reader/test_examples.py::test_each_example_resumes_and_its_losses_fall",
        "all scripts of examples/",
    ),
    Rule("guides/workflows", r"snakemake .*", "", "`make test-workflows` runs it"),
    Rule(
        "guides/workflows",
        r"include .*",
        "tests/unit/test_workflow_files.py::"
        "test_the_shell_code_of_the_nextflow_modules_writes_their_outputs",
        "only the modules' shell code, because Nextflow is not installed",
    ),
    # synopses, with words such as DATASET
    Rule("reference/cli", r"thdpack watch .*", SERVICE, "with names of files"),
    Rule("reference/cli", r"thdpack push .*", PUSH, "with names of files"),
    Rule(
        "reference/cli",
        r"thdpack stats DATASET --serve .*",
        "tests/e2e/report/test_serve.py::"
        "test_the_page_shows_progress_and_then_the_report_and_answers_nothing_else",
        "with names of files",
    ),
    Rule("reference/cli", r"thdpack score .*", MODELS, "with names of files"),
    Rule("reference/cli", r"thdpack plan .*", PLAN),
    Rule("reference/cli", r"thdpack (plan-tasks|run-task|commit) .*", TASK_LIST),
    Rule(
        "reference/cli",
        r"thdpack (append|compact) .*",
        f"{GUIDES}test_the_commands_of_the_guide_on_growing_datasets_run",
        "with names of files",
    ),
    Rule("reference/cli", r"thdpack .*", SYNOPSES),
    # not commands
    Rule("reference/format", r"DATASET/.*", "", "names of files"),
]
NOT_COMMANDS = (
    r"starting: .*|the model has the shape of .*|first, validating .*|(… |a?t?)?(more )?step.*|…"
    r"|done: .*|\^C|stopped by .*"
)
"""Output that pages show below commands."""


def rule_of(page: str, command: str) -> Rule | None:
    """Return the first rule that applies to a command of a page."""
    name = page.removeprefix("docs/").removesuffix(".md")
    for rule in RULES:
        if re.fullmatch(rule.pages, name) and re.fullmatch(rule.commands, command, flags=re.DOTALL):
            return rule
    return None


def shown(page: str) -> list[str]:
    """Return the commands of a page, without Python code, output, and README's file tree.

    test_every_page_with_python_code_is_run_by_a_test covers Python code in fences.
    """
    return [
        command
        for snippet in snippets(page)
        if snippet.language != "python" and not snippet.text.startswith("thdpack.py ")
        for command in snippet.commands
        if not re.fullmatch(NOT_COMMANDS, command, flags=re.DOTALL)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_each_snippet_of_a_page_has_a_test_or_a_reason(page: str) -> None:
    unknown = [command for command in shown(page) if rule_of(page, command) is None]
    assert not unknown, f"{page}: run these in a test, or add a rule to RULES: {unknown}"


def test_each_rule_applies_to_a_snippet_and_names_a_test_that_exists() -> None:
    used = {rule_of(page, command) for page in PAGES for command in shown(page)}
    assert not [rule for rule in RULES if rule not in used]
    for rule in RULES:
        assert rule.test or rule.note, rule
        if rule.test:
            file, _, name = rule.test.partition("::")
            assert f"def {name}(" in (REPO / file).read_text(), rule.test


def test_a_test_that_runs_commands_as_shown_reads_their_page() -> None:
    """A rule without a note says that the test takes its commands from the page."""
    for page in PAGES:
        for rule in {rule_of(page, command) for command in shown(page)}:
            if rule and rule.test and not rule.note and rule.pages != ".*":
                text = (REPO / rule.test.partition("::")[0]).read_text()
                assert f'"{page}"' in text, (page, rule)
