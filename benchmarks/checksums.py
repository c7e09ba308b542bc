"""How fast checksums are, over a file that is in the page cache, as `hire` reads it.

python benchmarks/checksums.py
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hire.util.checksums import BLOCK_BYTES, file_checksum

SIZE = 256 << 20
ROUNDS = 5


def by_blocks(path: Path, update: Callable[[bytes], object]) -> None:
    """Give a file to a function, block by block."""
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(BLOCK_BYTES):
            update(block)


def main() -> None:
    """Print gigabytes per second of processor time, the best of some rounds."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(os.urandom(SIZE))
        for name, read in (
            ("XXH3 (128 bits)", lambda: file_checksum(path)),
            ("CRC-32", lambda: by_blocks(path, zlib.crc32)),
            ("SHA-256", lambda: by_blocks(path, hashlib.sha256().update)),
            ("BLAKE2b", lambda: by_blocks(path, hashlib.blake2b().update)),
        ):
            times = []
            for _ in range(ROUNDS):
                start = time.process_time()
                read()
                times.append(time.process_time() - start)
            print(f"{name:16} {SIZE / min(times) / 1e9:6.2f} GB/s")


if __name__ == "__main__":
    main()
