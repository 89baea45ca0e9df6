"""A wrong setting of an S3 store is one line that names the variable. Stores other than AWS need no
special settings."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from pipeline.storage.probe import first_contact
from pipeline.storage.s3.settings import custom_endpoint
from pipeline.storage.urls import file_system
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.stores.object_store import ObjectStore, point_s3_at
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


class WebConsole(BaseHTTPRequestHandler):
    """Answers each request with a web page."""

    def do_GET(self) -> None:
        page = b"<!doctype html><html><body>Log in</body></html>"
        self.send_response(200)
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


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_server_that_is_no_object_store_is_not_taken_for_a_damaged_dataset(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    point_s3_at("http://127.0.0.1:9", monkeypatch)
    with QuietServer(("127.0.0.1", 0), WebConsole) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
        build = ("preprocess", REPO / "data" / "sample.fasta", "--out", "s3://bucket/x")
        lines = [refused(run, *words, code=2) for words in (("verify", "s3://bucket/x"), build)]
        server.shutdown()
    for line in lines:
        assert "with a web page, not as an S3 store. It may be the store's web con" in line
        assert line.endswith(f"correct {name}")
