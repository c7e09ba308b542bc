"""Compile the loops of an answer in a second process, the first time on a machine.

It takes as long as to read a graph of some size and to fit the pre-trained model to it, which happens meanwhile. The
machine code is kept where all later processes find it; so this one imports nothing heavy until it compiles.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import hire
from hire.util.files import cache_directory
from hire.util.processes import share

MARK = "ahead-"  # begins the name of an empty file: the loops of an answer are compiled
REFERENCE, HEAD = ("cell", "tissue"), "tissue"  # of the bundled dataset, which is answered on

_begun = False  # by this process: it has started another one, or is that one


def machine_code_folder() -> Path:
    """Where machine code is kept between processes."""
    chosen, package = os.environ.get("NUMBA_CACHE_DIR"), Path(hire.__file__).parent
    if chosen:
        return Path(chosen)
    return package / "__pycache__" if os.access(package, os.W_OK) else cache_directory()


def start_compiling() -> None:
    """Begin to compile in another process, unless that is done, or there is one processor, or no room to keep it.

    The process ends by itself, and no later than this one unless that is killed.
    """
    global _begun
    if _begun or not share().first or _processors() < 2 or "python" not in Path(sys.executable).name:
        return
    folder = machine_code_folder()
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if (folder / _mark()).exists() or not os.access(nearest, os.W_OK):
        return
    nothing = subprocess.DEVNULL
    try:
        compiler = subprocess.Popen(
            [sys.executable, "-P", "-c", "from hire.inference import ahead; ahead.compile_answers()"],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,  # an interruption is ours
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": _import_path()},
        )
    except OSError:  # no process can be started; the loops are compiled here, one after the other
        return
    _begun = True
    atexit.register(_stop, compiler)


def _import_path() -> str:
    """Where the process finds this package, wherever it has been imported from."""
    own, given = str(Path(hire.__file__).parents[1]), os.environ.get("PYTHONPATH")
    return own if not given else own + os.pathsep + given


def _processors() -> int:
    """How many of the processors are ours."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _stop(compiler: subprocess.Popen[bytes]) -> None:
    compiler.terminate()
    compiler.wait()


def _mark() -> str:
    """The name of the file that says that the loops are compiled, as they are now."""
    loops = sorted((Path(hire.__file__).parent / "systems" / "path").glob("*.py"))
    about = [platform.python_version(), platform.machine(), version("numba")]
    about += [f"{path.name} {path.stat().st_mtime_ns} {path.stat().st_size}" for path in loops]
    return MARK + hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]


def compile_answers() -> None:
    """Compile all loops of an answer: those that take longest and are needed last, then the rest."""
    global _begun
    _begun = True  # the answer below is not to start yet another process
    from hire.systems.path.tile_kernels import compile_tiles

    compile_tiles()
    from hire.inference.open import open_model

    open_model("umls-one", refit=False).teach([REFERENCE]).predict(HEAD)
    folder = machine_code_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for outdated in folder.glob(MARK + "*"):
        outdated.unlink(missing_ok=True)
    (folder / _mark()).touch()
