"""A wrong setting of an S3 store is one line that names the variable. Stores other than AWS need no
special settings."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest
from botocore.exceptions import CredentialRetrievalError

from pipeline.storage.probe import first_contact
from pipeline.storage.s3.endpoint import custom_endpoint
from pipeline.storage.s3.faults import is_temporary, refused_setting
from pipeline.storage.urls import file_system
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.stores.faulty_proxy import Faults
from tests.helpers.stores.object_store import ObjectStore, client, point_s3_at, put
from tests.helpers.stores.refused_commands import readers_of, refused

CHECKSUMS = ("request_checksum_calculation", "response_checksum_validation")


@pytest.mark.parametrize("endpoint", ["localhost:9000", "//localhost:9000", "s3://localhost:9000"])
def test_an_endpoint_without_a_scheme_is_explained(
    run: Run, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_s3_at(endpoint, monkeypatch)
    said = "is not an address: write http://localhost:9000 or https://localhost:9000"
    for words in readers_of("s3://bucket/x", tmp_path):
        assert refused(run, *words, code=2) == f"AWS_ENDPOINT_URL: {endpoint!r} {said}"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AWS_CA_BUNDLE", "/x.pem", "/x.pem: no such file: correct or unset this variable"),
        ("AWS_CA_BUNDLE", __file__, f"{__file__}: not a file of certificates in PEM format: "),
        ("AWS_ENDPOINT_URL", "http://here:99999", "'http://here:99999' is not an address (Port"),
        ("AWS_ENDPOINT_URL", "http://h:9\n", "'http://h:9\\n' is not an address (it contains a b"),
        ("AWS_ENDPOINT_URL", "http:/h:9", "'http:/h:9' is not an address: write http://h:9"),
        ("AWS_ENDPOINT_URL", "http://h:9?x=1", "the address has a query or a fragment (the part f"),
        ("AWS_ENDPOINT_URL", "http://h:9/#x", "the address has a query or a fragment (the part fr"),
        ("AWS_ENDPOINT_URL", "http://h/p/b/", "http://h/p/b/ ends with the bucket 'b', which the "),
        ("AWS_ENDPOINT_URL", "http://u:p@h:9", "credentials do not belong in the address: write h"),
        ("FSSPEC_S3", '{"anon": tru', "the value is not JSON (Expecting value: line 1 column 10"),
        ("FSSPEC_S3", "[1]", "the value is not an object of JSON: correct or unset this variable"),
        ("AWS_DEFAULT_REGION", "us east", "Provided region_name 'us east' doesn't match a supp"),
        ("AWS_PROFILE", "none", "The config profile (none) could not be found: correct or unset t"),
        ("AWS_CONFIG_FILE", "/", "/: cannot be read (Is a directory): correct the file's permis"),
        ("AWS_CONFIG_FILE", __file__, f"Unable to parse config file: {__file__}: correct the fil"),
        ("AWS_ACCESS_KEY_ID", "key\n", "the value contains a blank or a line break, which no key"),
        ("AWS_SECRET_ACCESS_KEY", " x", "the value contains a blank or a line break, which no key"),
        ("AWS_REQUEST_CHECKSUM_CALCULATION", "never", "Unsupported configuration value for reques"),
        ("AWS_MAX_ATTEMPTS", "x", "invalid literal for int() with base 10: 'x': correct or unset"),
        ("AWS_RETRY_MODE", "often", 'Invalid value provided to "mode": "often" must be one of: '),
        # the error also mentions the region of the tests, us-east-1
        ("AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "x", "S3 us-east-1 regional endpoint option x is"),
    ],
)
def test_a_wrong_setting_of_the_store_is_refused_at_once(
    run: Run, name: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_s3_at("http://127.0.0.1:9", monkeypatch)
    monkeypatch.setenv(name, value)
    line = refused(run, *readers_of("s3://b/x", tmp_path)[0], code=2)
    assert line.startswith(f"{name}: {said}")


def set_of_fsspec(name: str, value: str, patch: pytest.MonkeyPatch) -> None:
    """Set a variable of fsspec. fsspec reads its variables only when it is imported."""
    patch.setenv(name, value)
    patch.setitem(fsspec.config.conf, "s3", {})
    fsspec.config.set_conf_env(fsspec.config.conf, {name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CONFIG_KWARGS", '{"read_timeout": "x"}', "read_timeout in FSSPEC_S3_CONFIG_KWARGS: 'x'"),
        ("CONFIG_KWARGS", '{"max_pool_connections": 1.5}', "max_pool_connections in FSSPEC_S3_CO"),
        ("CONFIG_KWARGS", '{"s3": "x"}', "s3 in FSSPEC_S3_CONFIG_KWARGS: 'x' is not an object of"),
        ("CONFIG_KWARGS", '{"s3": {"addressing_style": "x"}}', "addressing_style in s3 in FSSPEC"),
        ("", '{"client_kwargs": "x"}', "client_kwargs in FSSPEC_S3: 'x' is not an object of JSON"),
    ],
)
def test_a_wrong_setting_of_fsspec_is_named(
    run: Run, name: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_s3_at("http://127.0.0.1:9", monkeypatch)
    set_of_fsspec("_".join(filter(None, ("FSSPEC_S3", name))), value, monkeypatch)
    line = refused(run, *readers_of("s3://b/x", tmp_path)[0], code=2)
    assert line.startswith(said)


def test_keys_of_fsspec_that_the_store_refuses_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    set_of_fsspec("FSSPEC_S3", '{"key": "k", "secret": "hunter2"}', monkeypatch)
    answer = OSError("answer")
    answer.__cause__ = cause = ValueError()
    cause.response = {"Error": {"Code": "SignatureDoesNotMatch"}}  # type: ignore[attr-defined]
    said = refused_setting(answer)
    assert said is not None
    assert said.endswith("correct key in FSSPEC_S3 and secret in FSSPEC_S3")


def test_anonymous_requests_that_the_store_forbids_name_the_setting(
    run: Run, proxied: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_of_fsspec("FSSPEC_S3_ANON", "yes", monkeypatch)
    client().pipe_file("s3://bucket/in.fasta", b">a\nMK\n", ACL="public-read")
    proxied.refuse = ("GET list-type",)  # everybody may read the input, but not list the bucket
    assert run("stats", "s3://bucket/in.fasta").returncode == 0
    proxied.refuse = ("GET bucket", "HEAD bucket")
    for words in readers_of("s3://bucket/x", tmp_path):
        line = refused(run, *words, code=2)
        assert "without credentials (AccessDenied): unset FSSPEC_S3_ANON" in line, words


def test_a_missing_right_to_list_or_to_read_is_named(run: Run, proxied: Faults) -> None:
    put("s3://bucket/in.fasta", b">a\nMK\n")
    proxied.refuse = ("GET list-type",)
    line = refused(run, "stats", "s3://bucket/*.fasta")
    assert line.startswith("s3://bucket/*.fasta: the right s3:ListBucket is missing; docs/guides")
    proxied.refuse = ("GET in.fasta",)
    line = refused(run, "stats", "s3://bucket/in.fasta")
    assert line.startswith("s3://bucket/in.fasta: the right to read (s3:GetObject) is missing, or")


@pytest.mark.parametrize(
    ("scheme", "status", "tls", "spoken"),
    [
        ("http", "200", False, "http"),
        ("http", "400", False, "http"),  # such as MinIO
        ("http", "400", True, "https"),
        ("http", "", True, "https"),
        ("http", "", False, "http"),
        ("https", "", True, "https"),
        ("https", "400", False, "http"),
        ("https", "", False, "https"),
    ],
)
def test_the_scheme_that_a_server_speaks_follows_from_its_answers_with_and_without_tls(
    scheme: str, status: str, tls: bool, spoken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_contact, "_http_status", lambda *_: status)
    monkeypatch.setattr(first_contact, "_speaks_tls", lambda *_: tls)
    assert first_contact._spoken.__wrapped__(scheme, "h", 1) == spoken


def test_only_endpoints_other_than_aws_get_our_checksum_settings_and_users_may_override_them(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings() -> tuple[object, ...]:
        fs, _ = file_system("s3://bucket/x")
        fs.connect(refresh=True)
        return tuple(getattr(fs.s3.meta.config, name) for name in CHECKSUMS)

    assert settings() == ("when_required", "when_required")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    assert settings() == ("when_supported", "when_required")
    own = {CHECKSUMS[1]: "when_supported", "read_timeout": 7}
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": own})
    assert settings() == ("when_supported", "when_supported")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.eu-central-1.amazonaws.com")
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION")
    monkeypatch.setitem(fsspec.config.conf, "s3", {})
    assert custom_endpoint() is None
    assert settings() == ("when_supported", "when_supported")


def test_a_missing_login_to_single_sign_on_names_the_command_that_logs_in(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "[sso-session corp]\nsso_region = us-east-1\nsso_start_url = https://corp.example\n"
        "[profile team]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = r\n"
    )
    point_s3_at("http://127.0.0.1:9", monkeypatch)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.setenv("HOME", str(tmp_path))  # no login here
    line = refused(run, *readers_of("s3://b/x", tmp_path)[0], code=2)
    assert "run `aws sso login`" in line


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "false: it failed, and printed no reason: correct this setting"),
        ("echo hunter2", "echo: it did not print JSON: correct this setting"),
        ("/no/such hunter2", "/no/such: it cannot be started: No such file or directory: correct"),
    ],
)
def test_a_command_that_prints_no_credentials_is_named_with_its_file(
    run: Run, command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {command}\n")
    point_s3_at("http://127.0.0.1:9", monkeypatch)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    line = refused(run, *readers_of("s3://b/x", tmp_path)[0], code=2)
    assert line.startswith(f"{config}: credential_process {said}")


def test_a_silent_service_of_credentials_is_a_temporary_fault() -> None:
    failed = CredentialRetrievalError(provider="iam-role", error_msg="timed out")
    assert is_temporary(failed)


class WebConsole(BaseHTTPRequestHandler):
    """Answers each request with a web page."""

    status = 200

    def do_GET(self) -> None:
        page = b"<!doctype html><html><body>Log in</body></html>"
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else page)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 (names that http.server expects)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class QuietServer(ThreadingHTTPServer):
    """Prints no traceback if a client ends its connection before it has read the answer."""

    def handle_error(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        (
            "AWS_ENDPOINT_URL",
            200,
            "with a web page, not as an S3 store. It may be the store's web console",
        ),
        ("AWS_ENDPOINT_URL_S3", 404, "with status 404 and no error code of S3"),
    ],
)
def test_a_server_that_is_no_object_store_is_not_taken_for_a_damaged_dataset(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, status: int, said: str
) -> None:
    point_s3_at("http://127.0.0.1:9", monkeypatch)
    monkeypatch.setattr(WebConsole, "status", status)
    with QuietServer(("127.0.0.1", 0), WebConsole) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
        commands: list[tuple[object, ...]] = [
            ("preprocess", REPO / "data" / "sample.fasta", "--out", "s3://bucket/x")
        ]
        if status == 200:  # 404 may also mean that the dataset is missing
            commands.append(("verify", "s3://bucket/x"))
        lines = [refused(run, *words, code=2) for words in commands]
        server.shutdown()
    for line in lines:
        assert said in line
        assert line.endswith(f"correct {name}")


class Elsewhere(WebConsole):
    """Redirects each request, and names no region."""

    def do_GET(self) -> None:
        answer = b"<Error><Code>PermanentRedirect</Code><Message>made</Message></Error>"
        self.send_response(301)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else answer)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 (names that http.server expects)


def test_an_endpoint_that_redirects_each_request_is_refused_at_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QuietServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        point_s3_at(f"http://127.0.0.1:{server.server_port}", monkeypatch)
        line = refused(run, "verify", "s3://bucket/x", code=2)
        server.shutdown()
    assert "another address (PermanentRedirect): correct AWS_ENDPOINT_URL" in line
