"""Published datasets over HTTP: downloads that resume, untrusted archives, verified files."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hire.data.published.checksums import KnownDataset, dataset_named, differing, known_form
from hire.data.sources.http import request
from hire.errors import HireError
from hire.progress import track
from hire.util.files import atomic_directory, check_replaceable, explain_os_errors, sha256_of

if TYPE_CHECKING:
    import urllib3

BLOCK_BYTES = 1 << 16
MAX_ARCHIVE_BYTES = 8 << 30
MAX_BACKOFF_SECONDS = 60.0
LOCAL_HEADER_BYTES = 30  # before each member of a zip archive, without its name


def get_dataset(
    name: str, target: Path, *, url: str | None = None, archive: Path | None = None, overwrite: bool = False
) -> KnownDataset:
    """Put a known dataset into `target`: from its archive on the web, from a mirror's `url`, or from an `archive` file.

    A target that already contains the dataset, every file with a known checksum, is left unchanged.
    """
    dataset = dataset_named(name)
    if target.exists():
        different = _different_files(target, dataset)
        if not different:
            return dataset
        if not overwrite or not target.is_dir():
            raise HireError(
                f"already exists, but is not {dataset.title}: {', '.join(different)} missing or different",
                file=target,
                remedy="choose another path, or pass --overwrite" if target.is_dir() else "choose another path",
            )
        check_replaceable(target, overwrite, dataset.files)
    if archive is not None:
        unpack(archive, dataset, target, overwrite=overwrite)
        return dataset
    url = url or dataset.url
    if url is None:
        raise HireError(
            f"{dataset.title} is published as single files, not as an archive",
            remedy="put them into a directory, which hire data verify checks, or give an archive of them (--archive)",
        )
    fetched = fetch(url, target.parent / f".{name}.zip")
    try:
        unpack(fetched, dataset, target, overwrite=overwrite)
    finally:
        fetched.unlink()
    return dataset


def _different_files(directory: Path, dataset: KnownDataset) -> list[str]:
    checksums = {name: sha256_of(directory / name) for name in dataset.files if (directory / name).is_file()}
    return [name for name in dataset.files if name not in checksums] + differing(dataset, checksums)


def fetch(
    url: str,
    target: Path,
    *,
    timeout_seconds: float = 60.0,
    retries: int = 5,
    backoff_seconds: float = 0.5,
    max_bytes: int = MAX_ARCHIVE_BYTES,
) -> Path:
    """Download `url` to `target`; the bytes received so far are in `TARGET.part`, from which the next attempt resumes.

    `retries` limits consecutive attempts without progress: a connection that keeps failing but makes progress is never
    given up.
    """
    import urllib3

    part = _Part(target.with_name(f"{target.name}.part"), url)
    furthest = failures = 0
    with explain_os_errors(target), urllib3.PoolManager() as pool:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                try:
                    _download_rest(pool, part, timeout_seconds, max_bytes)
                    break
                except ValueError as error:  # also urllib3's LocationValueError
                    raise HireError(f"is not a valid URL ({error})", file=url, remedy="check the spelling") from error
                except (_RetryableError, urllib3.exceptions.HTTPError) as error:
                    # Progress is measured from the furthest point ever reached: a server that always starts over and
                    # always fails would otherwise be retried forever.
                    failures = 0 if part.size() > furthest else failures + 1
                    furthest = max(furthest, part.size())
                    if failures > retries:
                        raise HireError(
                            f"cannot be downloaded: {error} ({failures} attempts without progress)",
                            file=url,
                            remedy="check the connection and run the same command again to continue",
                        ) from error
                time.sleep(min(backoff_seconds * 2**failures, MAX_BACKOFF_SECONDS))
            part.path.replace(target)
        finally:
            if part.validator() is None:
                part.discard()
    return target


class _RetryableError(Exception):
    """An attempt failed in a way that another attempt may fix."""


class _Part:
    """The bytes received so far, with a note of which version of which file they belong to."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        self.note = path.with_name(f"{path.name}.json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self) -> str | None:
        """The server's identifier of that version, or None if there is nothing to resume."""
        try:
            note = json.loads(self.note.read_bytes())
            return str(note["validator"]) if note["url"] == self.url and self.size() else None
        except (OSError, ValueError, TypeError, KeyError):  # lost or damaged
            return None

    def begin(self, validator: str | None) -> None:
        self.discard()
        self.path.touch()
        if validator is not None:
            self.note.write_text(json.dumps({"url": self.url, "validator": validator}), encoding="utf-8")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def _download_rest(pool: urllib3.PoolManager, part: _Part, timeout_seconds: float, max_bytes: int) -> None:
    """One attempt: request what is missing and append it to the part."""
    validator = part.validator()
    offset = 0 if validator is None else part.size()
    headers = {} if validator is None else {"Range": f"bytes={offset}-", "If-Range": validator}
    options = {
        "headers": headers,
        "timeout": timeout_seconds,
        "decode_content": False,
        "enforce_content_length": False,  # checked below, with a clearer message
    }
    with closing(request(pool, "GET", part.url, **options)) as response:
        if response.status >= 500:
            raise _RetryableError(f"the server answered {response.status} {response.reason}")
        if response.status == 200:
            offset = 0
            part.begin(_validator(response))
            length = re.fullmatch(r"(\d{1,18})", response.headers.get("Content-Length", ""))
        elif response.status in (206, 416) and validator is not None:
            length = re.fullmatch(rf"bytes {offset}-\d+/(\d{{1,18}})", response.headers.get("Content-Range", ""))
            # Compare the validator again: not every server that supports Range respects If-Range.
            if length is None or _validator(response) not in (None, validator):
                part.discard()
                raise _RetryableError("the file changed on the server, or the server does not resume correctly")
        else:
            answer = f"the server answered {response.status} {response.reason}"
            raise HireError(
                answer, file=part.url, remedy="check the URL, or use a mirror (--url) or an archive file (--archive)"
            )
        total = int(length[1]) if length else None
        if total is not None and total > max_bytes:
            raise _too_long(part.url, max_bytes)
        end = max_bytes if total is None else total
        name = part.url.rpartition("/")[2]
        shown = track(f"Downloading {name}", total, before=offset, bytes_=True)
        with shown as advance, part.path.open("ab") as out:
            while offset <= end and (block := response.read1(BLOCK_BYTES)):
                out.write(block)
                offset += len(block)
                advance(len(block))
    if offset > end:
        part.discard()
        raise _too_long(part.url, end)
    if total is not None and offset < total:
        raise _RetryableError(f"the connection was lost after {offset:,} of {total:,} bytes")


def _too_long(url: str, end: int) -> HireError:
    return HireError(f"is larger than {end:,} bytes", file=url, remedy="try a mirror")


def _validator(response: urllib3.BaseHTTPResponse) -> str | None:
    etag = response.headers.get("ETag")
    # A weak ETag does not promise the same bytes, so it cannot be used to resume.
    return response.headers.get("Last-Modified") if etag is None or etag.startswith("W/") else etag


def unpack(archive: Path, dataset: KnownDataset, target: Path, *, overwrite: bool = False) -> None:
    """Unpack a known dataset's files, in whatever folder of a zip archive, into the new directory `target`."""
    with _explain_zip_errors(archive), zipfile.ZipFile(archive) as zipped:
        members = _wanted_members(archive, zipped, dataset)
        with atomic_directory(target, overwrite=overwrite, ours=dataset.files) as directory:
            for name, member in members.items():
                with zipped.open(member) as stream, (directory / name).open("wb") as out:
                    _copy_checked(archive, name, stream, out, dataset)


@contextmanager
def _explain_zip_errors(archive: Path) -> Iterator[None]:
    try:
        with explain_os_errors(archive):
            yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise _bad_archive(archive, f"is not a complete zip archive ({error})") from error


def _bad_archive(archive: Path, what: str) -> HireError:
    return HireError(what, file=archive, remedy="download the published archive again")


def _wanted_members(archive: Path, zipped: zipfile.ZipFile, dataset: KnownDataset) -> dict[str, zipfile.ZipInfo]:
    """The members that contain the dataset's files; an error if anything about the archive is suspicious."""
    end = 0
    for member in sorted(zipped.infolist(), key=lambda member: member.header_offset):
        if danger := _danger(member):
            raise _bad_archive(archive, f"is unsafe: its member {member.orig_filename!r} is {danger}")
        if member.header_offset < end:
            raise _bad_archive(archive, f"is unsafe: its member {member.orig_filename!r} overlaps another")
        end = member.header_offset + LOCAL_HEADER_BYTES + member.compress_size
    if end > zipped.start_dir:
        raise _bad_archive(archive, "is not a complete zip archive (its members extend beyond its end)")

    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in zipped.infolist():
        *folders, name = member.filename.split("/")
        if name not in dataset.files or "__MACOSX" in folders:
            continue
        if name in wanted:
            raise _bad_archive(archive, f"has two members named {name}: {wanted[name].filename}, {member.filename}")
        if member.flag_bits & 1:
            raise _bad_archive(archive, f"its member {member.filename} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _bad_archive(
                archive, f"its member {member.filename} has an unknown compression ({member.compress_type})"
            )
        wanted[name] = member
    if missing := [name for name in dataset.files if name not in wanted]:
        raise _bad_archive(archive, f"is not an archive of {dataset.title}: missing {', '.join(missing)}")
    return wanted


def _danger(member: zipfile.ZipInfo) -> str | None:
    """Why unpacking a member could write outside of the target directory, or None."""
    name = member.orig_filename
    if "\\" in name or "\0" in name:
        return "named with a backslash or NUL character"
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        return "an absolute path"
    if ".." in name.split("/"):
        return "a path with .."
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a link or a device"
    return None


def _copy_checked(archive: Path, name: str, stream: IO[bytes], out: IO[bytes], dataset: KnownDataset) -> None:
    """Copy at most the size of the largest known form of a file, and make sure that it is a known form."""
    forms = dataset.files[name]
    digest, size, longest = hashlib.sha256(), 0, max(known.size for known in forms)
    while block := stream.read(BLOCK_BYTES):
        size += len(block)
        if size > longest:
            raise _bad_archive(archive, f"its member {name} is larger than the expected {longest:,} bytes")
        digest.update(block)
        out.write(block)
    if known_form(dataset, name, digest.hexdigest()) is None:
        expected = " or ".join(f"{known.size:,} bytes with SHA-256 {known.sha256}" for known in forms)
        found = f"{size:,} bytes with SHA-256 {digest.hexdigest()}"
        raise _bad_archive(archive, f"its member {name} is not the published file: expected {expected}, found {found}")
