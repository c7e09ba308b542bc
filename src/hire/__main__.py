"""The command `hire`, also as `python -m hire`."""

import sys


def main() -> None:
    """Run the command line; an interruption while it is still being loaded is no traceback either."""
    try:
        from hire.cli import main as run
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    run()


if __name__ == "__main__":
    main()
