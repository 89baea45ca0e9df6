"""Stand-in for the Hugging Face Hub on the loopback interface. It speaks the part of the HTTP API
that thdpack uses, with large files by the LFS protocol. It has no Xet storage.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.helpers.stores.byte_ranges import send_range

TOKEN = "hf_notarealtoken"
READ_ONLY = "hf_readonlytoken"
LARGE = (".arrow", ".parquet")
"""Suffixes of files that the hub stores as large files."""


@dataclass
class Repository:
    """A repository: the files of each commit, and the commit of each branch."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        seed = repr((sorted(files), branch, len(self.commits))).encode()
        sha = hashlib.sha1(seed).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        return sha

    def sha(self, revision: str) -> str | None:
        return self.branches.get(revision, revision if revision in self.commits else None)


@dataclass
class Hub:
    """State of the server.

    address: http:// address of the server.
    stored: large files by sha256.
    uploads: names of requests that uploaded a large file, in order.
    fail_after: number of large files after which the server refuses every upload.
    requests: method and path of each request.
    race: True to make another commit just before each commit of a client.
    """

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    uploads: list[str] = field(default_factory=list)
    fail_after: int | None = None
    requests: list[str] = field(default_factory=list)
    race: bool = False

    def environment(self, token: str = TOKEN) -> dict[str, str]:
        return {
            "HF_ENDPOINT": self.address,
            "HF_TOKEN": token,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }


def _handler(hub: Hub) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._route()

        def do_HEAD(self) -> None:
            self._route()

        def do_POST(self) -> None:
            self._route()

        def do_PUT(self) -> None:
            self._route()

        def _route(self) -> None:
            method = self.command
            size = int(self.headers.get("Content-Length") or 0)
            if self.headers.get("Transfer-Encoding") == "chunked":
                self.body = b""
                while length := int(self.rfile.readline(), 16):
                    self.body += self.rfile.read(length)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                self.body = self.rfile.read(size)
            path = urlsplit(self.path).path
            hub.requests.append(f"{method} {unquote(path)}")
            if path == "/api/repos/create":
                return self._create()
            if path == "/api/validate-yaml":
                return self._json({"errors": [], "warnings": []})
            if match := re.fullmatch(r"/lfs/([0-9a-f]{64})", path):
                return self._put(match[1])
            if match := re.fullmatch(r"/(?:api/)?datasets/([^/]+/[^/]+?)(\.git)?(?:/(.*))?", path):
                return self._dataset(match[1], unquote(match[3] or ""))
            return self._error(404, "", f"no route {path}")

        def _dataset(self, name: str, rest: str) -> None:
            repository = hub.repositories.get(name)
            hidden = repository is not None and repository.private and not self._token()
            if repository is None or hidden:
                return self._error(404 if self._token() else 401, "RepoNotFound", "not found")
            word, _, rest = rest.partition("/")
            if word in ("", "revision"):
                sha = repository.sha(rest or "main")
                if sha is None:
                    return self._error(404, "RevisionNotFound", "Invalid rev id")
                facts = {"id": name, "sha": sha, "private": repository.private, "siblings": []}
                return self._json({**facts, "tags": [], "downloads": 0, "likes": 0})
            if word == "info":
                return self._batch()
            if word in ("preupload", "commit", "branch"):
                if self._token() != TOKEN:
                    return self._error(403, "", "Forbidden: you need write access")
                return getattr(self, f"_{word}")(repository, rest)  # type: ignore[no-any-return]
            revision, _, path = rest.partition("/")
            sha = repository.sha(revision)
            if sha is None:
                return self._error(404, "RevisionNotFound", "Invalid rev id")
            if word == "tree":
                return self._tree(repository.commits[sha], path.strip("/"))
            return self._resolve(repository.commits[sha], path, sha)

        def _token(self) -> str:
            return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

        def _create(self) -> None:
            asked = json.loads(self.body)
            name = f"{asked.get('organization') or 'user'}/{asked['name']}"
            if self._token() != TOKEN:
                code = 403 if self._token() else 401
                return self._error(code, "", "you have no right to create a repository")
            if name in hub.repositories:
                return self._error(409, "", "You already created this dataset repo", url=name)
            private = bool(asked.get("private") or asked.get("visibility") == "private")
            hub.repositories[name] = Repository(private=private)
            hub.repositories[name].commit("main", {".gitattributes": b"*.arrow filter=lfs\n"})
            return self._json({"url": f"{hub.address}/datasets/{name}"})

        def _branch(self, repository: Repository, name: str) -> None:
            if name in repository.branches:
                return self._error(409, "", "Reference already exists")
            repository.branches[name] = repository.branches["main"]
            return self._json({})

        def _preupload(self, repository: Repository, _: str) -> None:
            files = [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for each in json.loads(self.body)["files"]
            ]
            return self._json({"files": files})

        def _batch(self) -> None:
            objects: list[dict[str, Any]] = []
            for each in json.loads(self.body)["objects"]:
                entry = {"oid": each["oid"], "size": each["size"]}
                if each["oid"] not in hub.stored:
                    href = f"{hub.address}/lfs/{each['oid']}"
                    entry["actions"] = {"upload": {"href": href, "header": {}}}
                objects.append(entry)
            return self._json({"transfer": "basic", "objects": objects})

        def _put(self, oid: str) -> None:
            if hub.fail_after is not None and len(hub.uploads) >= hub.fail_after:
                return self._error(403, "", "the upload was cut")
            if hashlib.sha256(self.body).hexdigest() != oid:
                return self._error(400, "", "wrong sha256")
            hub.stored[oid] = self.body
            hub.uploads.append(oid)
            return self._json({})

        def _commit(self, repository: Repository, branch: str) -> None:
            lines = [json.loads(line) for line in self.body.splitlines()]
            head = repository.branches[branch]
            if hub.race:
                head = repository.commit(branch, {**repository.commits[head], "other": b"1"})
            if lines[0]["value"].get("parentCommit", head) != head:
                return self._error(412, "", "A commit has happened since")
            files = dict(repository.commits[head])
            for line in lines[1:]:
                value = line["value"]
                if line["key"] == "deletedFile":
                    del files[value["path"]]
                elif line["key"] == "lfsFile":
                    files[value["path"]] = hub.stored[value["oid"]]
                else:
                    files[value["path"]] = base64.b64decode(value["content"])
            sha = repository.commit(branch, files)
            name = next(name for name, each in hub.repositories.items() if each is repository)
            url = f"{hub.address}/datasets/{name}/commit/{sha}"
            return self._json({"success": True, "commitOid": sha, "commitUrl": url})

        def _tree(self, files: dict[str, bytes], folder: str) -> None:
            recursive = "recursive=true" in self.path.lower()
            prefix = f"{folder}/" if folder else ""
            found: dict[str, dict[str, Any]] = {}
            for name, content in files.items():
                if not name.startswith(prefix):
                    continue
                inner, slash, _ = name.removeprefix(prefix).partition("/")
                if slash:
                    place = prefix + inner
                    found[place] = {"type": "directory", "path": place, "oid": "0" * 40, "size": 0}
                    if not recursive:
                        continue
                blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
                entry: dict[str, Any] = {"type": "file", "path": name, "oid": blob}
                entry["size"] = len(content)
                if name.endswith(LARGE):
                    sha = hashlib.sha256(content).hexdigest()
                    entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 130}
                found[name] = entry
            if folder and not found:
                return self._error(404, "EntryNotFound", "no such folder")
            return self._json(list(found.values()))

        def _resolve(self, files: dict[str, bytes], name: str, sha: str) -> None:
            content = files.get(name)
            if content is None:
                return self._error(404, "EntryNotFound", "Entry not found")
            return send_range(self, content, "X-Repo-Commit", sha)

        def _error(self, status: int, code: str, text: str, **more: str) -> None:
            headers = {"X-Error-Message": text, **({"X-Error-Code": code} if code else {})}
            return self._json({"error": text, **more}, status, headers)

        def _json(
            self, value: object, status: int = 200, headers: dict[str, str] | None = None
        ) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    return Handler


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Start a hub without repositories, in threads of this process."""
    hub = Hub()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
