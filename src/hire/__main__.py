"""The command `hire`, also as `python -m hire`."""

import os
import sys


def main() -> None:
    """Run the command line; an interruption while it is still being loaded is no traceback either."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's: products are small, threads only wait for one another
    try:
        from hire.cli import main as run
        from hire.util.processes import started_together
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    if started_together() == 1:
        run()
        return
    code = 0
    try:
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of the connections to other processes may abort an interpreter that takes itself apart


if __name__ == "__main__":
    main()
