"""Run a piece of code in a process of its own and tell what it took."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# Private memory is what a process has for itself; pages of mapped files are told apart, which the system can take back
# and which processes share.
_EPILOGUE = """
import json as _json, resource as _resource
_rollup = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
_kilobytes = lambda name: int(_rollup[name].split()[0])
print(_json.dumps({
    "seconds": seconds,
    "peak_mib": _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss / 1024,
    "private_mib": _kilobytes("Anonymous") / 1024,
    "mapped_mib": (_kilobytes("Rss") - _kilobytes("Anonymous")) / 1024,
    "result": result,
}))
"""


def measure(code: str) -> dict[str, Any]:
    """Run code that sets `seconds` and `result` in a fresh interpreter; return both with its memory."""
    done = subprocess.run([sys.executable, "-c", code + _EPILOGUE], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
