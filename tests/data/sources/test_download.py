from __future__ import annotations

import hashlib
import io
import random
import shutil
import stat
import struct
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st

from hire.data.published.checksums import KNOWN, KnownDataset, KnownFile
from hire.data.sources import download
from hire.data.sources.download import fetch, get_dataset, unpack
from hire.errors import HireError

BODY = random.Random(0).randbytes(300_000)


def known(content: bytes) -> KnownFile:
    return KnownFile(len(content), hashlib.sha256(content).hexdigest())


def tiny_dataset(contents: dict[str, bytes]) -> KnownDataset:
    files = {name: (known(content),) for name, content in contents.items()}
    return KnownDataset("tiny", "Tiny", "http://127.0.0.1:9/unreachable.zip", files)


CONTENTS = {
    "path_graph": random.Random(1).randbytes(70_000),
    "train_tasks.json": random.Random(2).randbytes(5_000),
    "ent2ids": b"a text that can be compressed " * 10,
}
TINY = tiny_dataset(CONTENTS)


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            archive.writestr(name, content, compress_type=method)
    return buffer.getvalue()


def whole(contents: dict[str, bytes] = CONTENTS, folder: str = "tiny/") -> list[tuple[str | zipfile.ZipInfo, bytes]]:
    return [(f"{folder}{name}", content) for name, content in contents.items()]


ARCHIVE = zipped(*whole(), ("tiny/embed/ent2vec", b"not wanted"), ("__MACOSX/ent2ids", b"resource fork"))


def contents_of(directory: Path) -> dict[str, bytes]:
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*")}


# ------------------------------------------------------------------------------------------- a server that misbehaves


@dataclass
class Answer:
    """How one request is answered; by default as it should be."""

    status: int | None = None
    location: str | None = None
    breaks_off_after: int | None = None  # bytes of this answer's body
    stalls: bool = False  # instead of closing the connection
    announces: int | None = None  # as Content-Length
    chunked: bool = False
    encoding: str | None = None
    extra: bytes = b""
    repeated: int = 1  # how often the body comes
    body: bytes | None = None  # from now on
    etag: str | None = None  # from now on


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = body
        self.etag: str | None = '"one"'
        self.last_modified: str | None = None
        self.knows_ranges = True
        self.minds_if_range = True
        self.script: list[Answer] = []
        self.always: Answer = Answer()
        self.asked: list[tuple[str | None, str | None]] = []  # Range, If-Range
        self.bytes_sent = 0
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/data/archive.zip"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.server
        wanted, guard = self.headers.get("Range"), self.headers.get("If-Range")
        site.asked.append((wanted, guard))
        answer = site.script.pop(0) if site.script else site.always
        site.body = site.body if answer.body is None else answer.body
        site.etag = site.etag if answer.etag is None else answer.etag
        if len(site.asked) > 50:
            answer = Answer(status=410)  # a client that never gives up must fail its test, not hang it
        if answer.status is not None:
            self.send_response(answer.status)
            if answer.location is not None:
                self.send_header("Location", answer.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        current = guard in (site.etag, site.last_modified) or not site.minds_if_range
        if wanted and site.knows_ranges and current:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(site.body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(site.body) - 1}/{len(site.body)}")
        else:
            self.send_response(200)
        body = site.body[start:]
        if site.etag is not None:
            self.send_header("ETag", site.etag)
        if site.last_modified is not None:
            self.send_header("Last-Modified", site.last_modified)
        if answer.announces is not None or not answer.chunked:
            self.send_header("Content-Length", str(len(body) if answer.announces is None else answer.announces))
        if answer.encoding is not None:
            self.send_header("Content-Encoding", answer.encoding)
        if answer.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        body = body[: answer.breaks_off_after] + answer.extra
        for _ in range(answer.repeated):
            site.bytes_sent += len(body)  # before the client can have seen the last byte
            self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n" if answer.chunked else body)
        if answer.chunked:
            self.wfile.write(b"0\r\n\r\n")
        if answer.stalls:
            self.wfile.flush()
            site.released.wait(10)
        if answer.breaks_off_after is not None or answer.announces is not None:
            self.close_connection = True


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(BODY) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


def quick(site: Site, work: Path, **options: Any) -> Path:
    return fetch(site.url, work / "file", **{"backoff_seconds": 0.001, "timeout_seconds": 5.0, **options})


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


PART = {"file.part", "file.part.json"}

# ----------------------------------------------------------------------------------------------------------- fetching


def test_a_file_is_fetched_whole_and_alone(site: Site, work: Path) -> None:
    assert quick(site, work / "new" / "folder") == work / "new" / "folder" / "file"
    assert contents_of(work / "new" / "folder") == {"file": BODY}
    assert site.asked == [(None, None)]


def test_a_download_that_breaks_off_goes_on_where_it_stopped(site: Site, work: Path) -> None:
    site.script = [Answer(breaks_off_after=size) for size in (70_000, 1, 50_000, 100_000)]
    quick(site, work, retries=0)
    assert contents_of(work) == {"file": BODY}
    assert [wanted for wanted, _ in site.asked] == [None, *(f"bytes={n}-" for n in (70_000, 70_001, 120_001, 220_001))]
    assert {guard for _, guard in site.asked[1:]} == {'"one"'}
    assert site.bytes_sent == len(BODY)


def test_bytes_are_kept_as_they_come(site: Site, work: Path) -> None:
    site.script = [Answer(encoding="gzip", breaks_off_after=1000), Answer(encoding="gzip")]
    quick(site, work, retries=0)
    assert contents_of(work) == {"file": BODY}


def test_a_weak_etag_is_not_taken_as_a_guard(site: Site, work: Path) -> None:
    site.etag, site.last_modified = 'W/"one"', formatdate(0, usegmt=True)
    site.script = [Answer(breaks_off_after=1000)]
    quick(site, work)
    assert contents_of(work) == {"file": BODY}
    assert site.asked[1] == ("bytes=1000-", site.last_modified)


def test_a_server_without_ranges_starts_over(site: Site, work: Path) -> None:
    site.knows_ranges = False
    site.script = [Answer(breaks_off_after=100_000), Answer(breaks_off_after=200_000)]
    quick(site, work)
    assert contents_of(work) == {"file": BODY}
    assert site.bytes_sent == 300_000 + len(BODY)


def test_a_server_that_always_starts_over_and_breaks_off_is_given_up(site: Site, work: Path) -> None:
    site.knows_ranges = False
    site.always = Answer(breaks_off_after=100_000)
    with pytest.raises(HireError, match="was lost after 100,000 of 300,000 bytes"):
        quick(site, work, retries=2)
    assert len(site.asked) == 1 + 3
    assert names(work) == PART


def test_a_file_without_a_version_is_never_resumed(site: Site, work: Path) -> None:
    site.etag = None
    site.script = [Answer(breaks_off_after=100_000)]
    quick(site, work)
    assert contents_of(work) == {"file": BODY}
    assert site.asked == [(None, None)] * 2

    site.always = Answer(breaks_off_after=100_000)
    with pytest.raises(HireError):
        quick(site, work / "again", retries=0)
    assert names(work / "again") == set()


@pytest.mark.parametrize("minds_if_range", [True, False])
def test_a_file_that_changed_meanwhile_starts_over(site: Site, work: Path, minds_if_range: bool) -> None:
    site.minds_if_range = minds_if_range
    newer = random.Random(3).randbytes(250_000)
    site.script = [Answer(breaks_off_after=100_000), Answer(body=newer, etag='"two"')]
    quick(site, work)
    assert contents_of(work) == {"file": newer}
    assert site.asked[1] == ("bytes=100000-", '"one"')


def test_a_server_that_falls_silent_is_asked_again_after_the_time_out(site: Site, work: Path) -> None:
    site.script = [Answer(breaks_off_after=100_000, stalls=True), Answer(breaks_off_after=0, stalls=True)]
    start = time.monotonic()
    quick(site, work, timeout_seconds=0.2)
    assert 0.4 <= time.monotonic() - start < 8  # two times of 5 s without it
    assert contents_of(work) == {"file": BODY}
    assert [wanted for wanted, _ in site.asked] == [None, "bytes=100000-", "bytes=100000-"]


def test_an_overloaded_server_is_asked_again_with_growing_patience(
    site: Site, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    site.script = [Answer(status=503)] * 3
    quick(site, work, retries=3, backoff_seconds=1)
    assert contents_of(work) == {"file": BODY}
    assert pauses == [2, 4, 8]


def test_only_tries_in_a_row_without_progress_are_counted(site: Site, work: Path) -> None:
    site.script = [Answer(status=500), Answer(status=500), Answer(breaks_off_after=10)] * 3
    quick(site, work, retries=2)
    assert contents_of(work) == {"file": BODY}


def test_a_server_that_stays_broken_is_given_up(site: Site, work: Path) -> None:
    site.always = Answer(status=503)
    with pytest.raises(HireError, match="503 Service Unavailable") as error:
        quick(site, work, retries=2)
    assert "run the same command again" in str(error.value.problems[0].remedy)
    assert len(site.asked) == 3
    assert names(work) == set()


def test_a_refusal_is_final_but_keeps_what_has_arrived(site: Site, work: Path) -> None:
    site.script = [Answer(breaks_off_after=100_000), Answer(status=404)]
    with pytest.raises(HireError, match="404 Not Found") as error:
        quick(site, work)
    assert error.value.problems[0].file == site.url
    assert len(site.asked) == 2
    assert names(work) == PART


def test_nobody_there(work: Path) -> None:
    with pytest.raises(HireError, match="2 attempts without progress"):
        fetch("http://127.0.0.1:9/file", work / "file", retries=1, backoff_seconds=0)
    assert names(work) == set()


@pytest.mark.parametrize("announced", [len(BODY) + 1, len(BODY) * 2])
def test_a_body_shorter_than_announced_is_an_error(site: Site, work: Path, announced: int) -> None:
    site.always = Answer(announces=announced)
    with pytest.raises(HireError, match=f"was lost after 300,000 of {announced:,} bytes|does not resume correctly"):
        quick(site, work, retries=1)
    assert names(work) <= PART


@pytest.mark.parametrize(
    ("script", "announced"),
    [
        ([Answer(chunked=True, announces=1000)], "1,000"),
        ([Answer(breaks_off_after=1000), Answer(chunked=True, extra=b"and more")], "300,000"),
    ],
)
def test_a_body_longer_than_announced_is_an_error(site: Site, work: Path, script: list[Answer], announced: str) -> None:
    site.script = list(script)
    with pytest.raises(HireError, match=f"larger than {announced} bytes"):
        quick(site, work)
    assert names(work) == set()


def test_no_more_is_taken_than_allowed(site: Site, work: Path) -> None:
    assert quick(site, work, max_bytes=len(BODY)).read_bytes() == BODY
    with pytest.raises(HireError, match="larger than 299,999 bytes"):
        quick(site, work / "announced", max_bytes=len(BODY) - 1)
    site.script = [Answer(chunked=True), Answer(chunked=True, repeated=300)]
    assert quick(site, work, max_bytes=len(BODY)).read_bytes() == BODY
    with pytest.raises(HireError, match="larger than 200,000 bytes"):
        quick(site, work / "unannounced", max_bytes=200_000)
    assert site.bytes_sent < 150 * len(BODY)  # what the network buffers does not count
    assert names(work) == {"file", "announced", "unannounced"}
    assert len(site.asked) == 4


def test_redirects_are_followed_with_the_range(site: Site, work: Path) -> None:
    site.script = [
        Answer(status=302, location="/elsewhere"),
        Answer(breaks_off_after=1000),
        Answer(status=307, location=site.url),
    ]
    quick(site, work)
    assert contents_of(work) == {"file": BODY}
    assert [wanted for wanted, _ in site.asked] == [None, None, "bytes=1000-", "bytes=1000-"]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/file", "http://[bad/"])
def test_a_redirect_to_anywhere_else_is_refused(site: Site, work: Path, location: str) -> None:
    site.script = [Answer(status=302, location=location)]
    with pytest.raises(HireError, match=r"redirects to .*, which is not followed|not a valid URL"):
        quick(site, work)
    assert len(site.asked) == 1
    assert names(work) == set()


def test_a_redirect_from_https_to_http_is_refused(site: Site, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def redirect(*_: object, **__: object) -> urllib3.HTTPResponse:
        return urllib3.HTTPResponse(b"", {"Location": site.url}, 302)

    monkeypatch.setattr(urllib3.PoolManager, "request", redirect)
    with pytest.raises(HireError, match=r"redirects to http://.*, which is not followed"):
        fetch("https://127.0.0.1/file", work / "file")
    assert names(work) == set()


def test_redirects_in_a_circle_are_an_error(site: Site, work: Path) -> None:
    site.always = Answer(status=302, location=site.url)
    with pytest.raises(HireError, match="more than 10 redirects"):
        quick(site, work)
    assert len(site.asked) == 11


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "archive.zip", "http://", "http://127.0.0.1:99999/", "http://[x/"]
)
def test_an_address_that_is_no_web_address_is_refused(work: Path, url: str) -> None:
    with pytest.raises(HireError) as error:
        fetch(url, work / "file")
    assert error.value.problems[0].file == url
    assert error.value.problems[0].remedy
    assert names(work) == set()


@pytest.mark.parametrize(
    "damage", [None, b"{", b"[]", b"{}", b'{"url": "http://127.0.0.1/other", "validator": "\\"one\\""}']
)
def test_an_interrupted_download_resumes_unless_its_note_is_damaged(
    site: Site, work: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    @contextmanager
    def interrupted(*_: object, **__: object) -> Iterator[Callable[[float], None]]:
        done = 0.0

        def advance(more: float) -> None:
            nonlocal done
            done += more
            if done > 100_000:
                raise KeyboardInterrupt

        yield advance

    with monkeypatch.context() as patch:
        patch.setattr(download, "track", interrupted)
        with pytest.raises(KeyboardInterrupt):
            quick(site, work)
    assert names(work) == PART
    arrived = (work / "file.part").read_bytes()
    assert 100_000 < len(arrived) < len(BODY)
    assert BODY.startswith(arrived)

    if damage is not None:
        (work / "file.part.json").write_bytes(damage)
    quick(site, work)
    assert contents_of(work) == {"file": BODY}
    assert site.asked[1:] == [(f"bytes={len(arrived)}-", '"one"') if damage is None else (None, None)]


# ---------------------------------------------------------------------------------------------------------- unpacking


@pytest.fixture
def archive(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "archive.zip"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [ARCHIVE, zipped(*whole(folder="")), zipped(*whole(folder="a/b/"), method=zipfile.ZIP_STORED), b"prefix" + ARCHIVE],
)
def test_exactly_the_known_files_are_taken_out(work: Path, archive: Callable[[bytes], Path], content: bytes) -> None:
    unpack(archive(content), TINY, work / "tiny")
    assert contents_of(work / "tiny") == CONTENTS
    assert names(work) == {"tiny", *(f"tiny/{name}" for name in CONTENTS)}


@pytest.mark.parametrize("content", [CONTENTS["ent2ids"], b"a shorter form", b"a longer form" * 100])
def test_any_known_form_of_a_file_is_taken(work: Path, archive: Callable[[bytes], Path], content: bytes) -> None:
    contents = {**CONTENTS, "ent2ids": content}
    forms = (*TINY.files["ent2ids"], known(b"a shorter form"), known(b"a longer form" * 100))
    dataset = KnownDataset("tiny", "Tiny", "", {**TINY.files, "ent2ids": forms})
    unpack(archive(zipped(*whole(contents))), dataset, work / "tiny")
    assert contents_of(work / "tiny") == contents


def test_a_directory_is_replaced_only_when_told_to(work: Path, archive: Callable[[bytes], Path]) -> None:
    (work / "tiny").mkdir()
    (work / "tiny" / "mine").touch()
    with pytest.raises(HireError, match="already exists"):
        unpack(archive(ARCHIVE), TINY, work / "tiny")
    with pytest.raises(HireError, match="is not a dataset"):
        unpack(archive(ARCHIVE), TINY, work / "tiny", overwrite=True)
    assert names(work) == {"tiny", "tiny/mine"}
    (work / "tiny" / "ent2ids").touch()
    unpack(archive(ARCHIVE), TINY, work / "tiny", overwrite=True)
    assert contents_of(work / "tiny") == CONTENTS


def directory_record(content: bytes, position: int, layout: str, value: int) -> bytes:
    """The archive with one field of ent2ids' record in the central directory changed."""
    changed = bytearray(content)
    record = changed.rindex(b"tiny/ent2ids") - 46
    assert changed[record : record + 4] == b"PK\x01\x02"
    struct.pack_into(layout, changed, record + position, value)
    return bytes(changed)


def special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


COMPRESSED = ARCHIVE.index(b"tiny/ent2ids") + len("tiny/ent2ids")
BOMB = zipped(*whole({**CONTENTS, "ent2ids": bytes(50_000_000)}))

HOSTILE = {
    "upwards": (zipped(*whole(), ("../evil", b"")), "'../evil' is a path with .."),
    "upwards inside": (zipped(*whole(), ("tiny/../../evil", b"")), "a path with .."),
    "absolute": (zipped(*whole(), ("/abs", b"")), "'/abs' is an absolute path"),
    "drive": (zipped(*whole(), ("C:x", b"")), "'C:x' is an absolute path"),
    "drive with a backslash": (zipped(*whole(), ("C:\\x", b"")), "backslash"),
    "backslash": (zipped(*whole(), ("..\\evil", b"")), "backslash"),
    "zero byte": (ARCHIVE.replace(b"embed/ent2vec", b"embed/ent\0vec"), "NUL character"),
    "symbolic link": (
        zipped(*whole(), (special("link", stat.S_IFLNK | 0o777), b"/etc")),
        "'link' is a link or a device",
    ),
    "wanted symbolic link": (zipped((special("ent2ids", stat.S_IFLNK), CONTENTS["ent2ids"])), "is a link or a device"),
    "device": (zipped(*whole(), (special("device", stat.S_IFCHR | 0o666), b"")), "is a link or a device"),
    "bomb": (BOMB, "ent2ids is larger than the expected 300 bytes"),
    "bomb that lies": (directory_record(BOMB, 24, "<I", 300), "not a complete zip archive .*CRC"),
    "wanted twice": (
        zipped(*whole(), ("other/ent2ids", b"")),
        "two members named ent2ids: tiny/ent2ids, other/ent2ids",
    ),
    "encrypted": (directory_record(ARCHIVE, 8, "<H", 1), "tiny/ent2ids is encrypted"),
    "compression that nobody knows": (directory_record(ARCHIVE, 10, "<H", 77), r"unknown compression \(77\)"),
    "compression that is not taken": (zipped(*whole(), method=zipfile.ZIP_LZMA), r"unknown compression \(14\)"),
    "overlapping": (directory_record(ARCHIVE, 42, "<I", 10), "overlaps"),
    "beyond the end": (directory_record(ARCHIVE, 20, "<I", 2_000_000_000), "overlaps"),
    "last beyond the end": (
        directory_record(zipped(*whole()), 20, "<I", 2_000_000_000),
        "not a complete zip archive .*beyond its end",
    ),
    "newer": (directory_record(ARCHIVE, 6, "<H", 99), "not a complete zip archive .*version"),
    "no name": (
        directory_record(directory_record(ARCHIVE, 8, "<H", 0x800), 46, "<B", 0xFF),
        "not a complete zip archive .*decode",
    ),
    "cut member": (directory_record(ARCHIVE, 20, "<I", 5), "not a complete zip archive"),
    "broken compression": (
        ARCHIVE[:COMPRESSED] + b"\xff" + ARCHIVE[COMPRESSED + 1 :],
        "not a complete zip archive .*decompressing",
    ),
    "truncated": (ARCHIVE[:-100], "not a complete zip archive"),
    "half": (ARCHIVE[: len(ARCHIVE) // 2], "not a complete zip archive"),
    "wrong checksum": (directory_record(ARCHIVE, 16, "<I", 0), "not a complete zip archive .*CRC"),
    "damaged": (ARCHIVE[:1000] + bytes(100) + ARCHIVE[1100:], "not a complete zip archive .*CRC"),
    "no zip": (b"<html>Not found</html>", "not a complete zip archive"),
    "empty": (b"", "not a complete zip archive"),
    "file missing": (zipped(*whole()[:2]), "not an archive of Tiny: missing ent2ids"),
    "other bytes": (
        zipped(*whole({**CONTENTS, "ent2ids": b"other"})),
        "ent2ids is not the published file: expected 300 bytes with SHA-256 "
        f"{TINY.files['ent2ids'][0].sha256}, found 5 bytes with SHA-256 {known(b'other').sha256}",
    ),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_bad_archive_leaves_nothing_behind(
    work: Path, archive: Callable[[bytes], Path], content: bytes, message: str
) -> None:
    path = archive(content)
    with pytest.raises(HireError, match=message) as error:
        unpack(path, TINY, work / "tiny")
    assert error.value.problems[0].file == str(path)
    assert error.value.problems[0].remedy
    assert names(work) == set()
    assert names(work.parent) == {"work", "archive.zip"}


def test_a_bomb_is_not_inflated(work: Path, archive: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    inflated = written = 0
    read, rmtree = zipfile.ZipExtFile.read, shutil.rmtree

    def counting_read(self: zipfile.ZipExtFile, size: int | None = -1) -> bytes:
        nonlocal inflated
        block = read(self, size)
        inflated += len(block)
        return block

    def counting_rmtree(path: Path, **options: Any) -> None:
        nonlocal written
        written += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        rmtree(path, **options)

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counting_read)
    monkeypatch.setattr(shutil, "rmtree", counting_rmtree)
    with pytest.raises(HireError, match="larger than"):
        unpack(archive(BOMB), TINY, work / "tiny")
    rest = len(CONTENTS["path_graph"]) + len(CONTENTS["train_tasks.json"])
    assert rest <= written <= rest + 300
    assert inflated <= rest + download.BLOCK_BYTES


@pytest.mark.parametrize("name", ["missing.zip", "work"])
def test_an_archive_that_cannot_be_opened_is_named(work: Path, name: str) -> None:
    with pytest.raises(HireError) as error:
        unpack(work.parent / name, TINY, work / "tiny")
    assert error.value.problems[0].file == str(work.parent / name)
    assert names(work) == set()


SMALL_CONTENTS = {"path_graph": b"a\tr\tb\n" * 9, "train_tasks.json": b"{}", "ent2ids": bytes(range(40))}
SMALL = tiny_dataset(SMALL_CONTENTS)
SMALL_ARCHIVE = zipped(*whole(SMALL_CONTENTS, "s/"))
EDITS = st.lists(
    st.tuples(st.integers(0, len(SMALL_ARCHIVE)), st.integers(0, 4), st.binary(max_size=4)), min_size=1, max_size=4
)


@given(EDITS)
@settings(max_examples=100, deadline=None)
def test_a_mutated_archive_gives_the_right_files_or_an_error(edits: list[tuple[int, int, bytes]]) -> None:
    content = SMALL_ARCHIVE
    for start, removed, added in edits:
        content = content[:start] + added + content[start + removed :]
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder, "archive.zip"), Path(folder, "tiny")
        path.write_bytes(content)
        try:
            unpack(path, SMALL, target)
        except HireError:
            assert names(Path(folder)) == {"archive.zip"}
        else:
            assert contents_of(target) == SMALL_CONTENTS


# ----------------------------------------------------------------------------------------------------------- together


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, site: Site) -> KnownDataset:
    dataset = KnownDataset("tiny", "Tiny", site.url, TINY.files)
    monkeypatch.setitem(KNOWN, "tiny", dataset)
    site.body = ARCHIVE
    return dataset


def test_a_dataset_is_fetched_once(site: Site, work: Path, tiny: KnownDataset) -> None:
    assert get_dataset("tiny", work / "data" / "here") is tiny
    assert contents_of(work / "data" / "here") == CONTENTS
    assert names(work / "data") == {"here", *(f"here/{name}" for name in CONTENTS)}
    (work / "data" / "here" / "mine").touch()
    assert get_dataset("tiny", work / "data" / "here", overwrite=True) is tiny
    assert (work / "data" / "here" / "mine").exists()
    assert len(site.asked) == 1


def test_a_mirror_or_an_archive_of_ones_own_serves_as_well(
    site: Site, work: Path, tiny: KnownDataset, archive: Callable[[bytes], Path]
) -> None:
    get_dataset("tiny", work / "own", archive=archive(ARCHIVE))
    assert site.asked == []
    assert archive(ARCHIVE).exists()
    site.script = [Answer(status=404)]
    with pytest.raises(HireError, match="404"):
        get_dataset("tiny", work / "mirrored", url=f"{site.url}?mirror")
    get_dataset("tiny", work / "mirrored", url=f"{site.url}?mirror")
    assert contents_of(work / "own") == contents_of(work / "mirrored") == CONTENTS


def test_a_dataset_without_an_archive_is_not_downloaded_but_unpacked(
    work: Path, monkeypatch: pytest.MonkeyPatch, archive: Callable[[bytes], Path]
) -> None:
    monkeypatch.setitem(KNOWN, "tiny", KnownDataset("tiny", "Tiny", None, TINY.files))
    with pytest.raises(HireError, match="Tiny is published as single files"):
        get_dataset("tiny", work / "tiny")
    get_dataset("tiny", work / "tiny", archive=archive(ARCHIVE))
    assert contents_of(work / "tiny") == CONTENTS


@pytest.mark.usefixtures("tiny")
def test_a_directory_with_something_else_is_not_replaced_unasked(site: Site, work: Path) -> None:
    get_dataset("tiny", work / "tiny")
    (work / "tiny" / "ent2ids").write_bytes(b"edited")
    (work / "tiny" / "path_graph").unlink()
    with pytest.raises(HireError, match=r"already exists, .* Tiny: path_graph, ent2ids missing or different"):
        get_dataset("tiny", work / "tiny")
    assert len(site.asked) == 1
    get_dataset("tiny", work / "tiny", overwrite=True)
    assert contents_of(work / "tiny") == CONTENTS


@pytest.mark.usefixtures("tiny")
def test_a_file_in_the_way_is_told_before_anything_is_fetched(site: Site, work: Path) -> None:
    (work / "tiny").touch()
    with pytest.raises(HireError, match="already exists"):
        get_dataset("tiny", work / "tiny", overwrite=True)
    assert site.asked == []
    assert names(work) == {"tiny"}


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(body=zipped(*whole({**CONTENTS, "ent2ids": b"wrong"}))), "ent2ids is not the published file"),
        (Answer(body=BODY), "not a complete zip archive"),
        (Answer(announces=1000), "not a complete zip archive"),
        (Answer(status=410), "410 Gone"),
    ],
)
def test_a_wrong_download_is_thrown_away(site: Site, work: Path, answer: Answer, message: str) -> None:
    site.script = [answer]
    with pytest.raises(HireError, match=message):
        get_dataset("tiny", work / "tiny")
    assert names(work) == set()
    site.body = ARCHIVE
    get_dataset("tiny", work / "tiny")
    assert contents_of(work / "tiny") == CONTENTS
    assert site.asked[1] == (None, None)


def test_an_unknown_dataset_is_an_error(work: Path) -> None:
    with pytest.raises(HireError, match="unknown published dataset 'tiny'"):
        get_dataset("tiny", work / "tiny")
    assert names(work) == set()
