"""The command `hire`. Heavy imports happen inside the commands, so that --help is instant."""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
from contextlib import ExitStack, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import click

from hire import __version__, progress
from hire.cli.compare import compare
from hire.cli.data import data
from hire.cli.demo import demo
from hire.cli.doctor import doctor
from hire.cli.predict import calibrate, explain, predict
from hire.cli.reproduce import reproduce
from hire.cli.review import review
from hire.cli.serve import serve
from hire.cli.train import evaluate, pretrain, systems, train
from hire.errors import HireError
from hire.util.memory import check_address_limit
from hire.util.processes import joined, share, started_together

EXIT_BAD_INPUT = 2
NO_WORK = {"-h", "--help", "--version"}
TOGETHER = {"train", "pretrain", "evaluate", "calibrate", "predict"}  # what several processes can do
OUT_OF_MEMORY = "error: out of memory\n       close other programs, or use a smaller graph, dimension or batch"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="hire")
def hire() -> None:
    """Few-shot knowledge graph completion: teach a relation from a handful of examples.

    \b
    Example:
      hire demo                                  train on the bundled dataset and predict
      hire data build graph.nt -o my-graph       build a dataset from your own graph
      hire train my-graph -o runs/my-graph
      hire evaluate runs/my-graph --shots 3
      hire compare my-graph --budget 20          which system is best on it?
      hire serve runs/my-graph                   web page and HTTP API
      hire predict runs/my-graph --references examples.tsv --head "Marie Curie"
    """
    progress.show(share().first)


hire.add_command(data)
hire.add_command(demo)
hire.add_command(pretrain)
hire.add_command(train)
hire.add_command(systems)
hire.add_command(evaluate)
hire.add_command(compare)
hire.add_command(reproduce)
hire.add_command(serve)
hire.add_command(review)
hire.add_command(calibrate)
hire.add_command(predict)
hire.add_command(explain)
hire.add_command(doctor)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; bad input ends with a short message and exit code 2, never with a traceback."""
    signal.signal(signal.SIGTERM, _interrupt)
    if sys.stdout is None:  # closed by the caller
        sys.stdout = io.StringIO()
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):  # names may contain what the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        with suppress(OSError, ValueError):  # it may be closed
            faulthandler.enable(sys.__stderr__)  # a crash in compiled code has a last word, too
    try:
        if not NO_WORK & set(sys.argv[1:] if arguments is None else arguments):
            check_address_limit()
            _run(sys.argv[1:] if arguments is None else arguments)
        else:
            hire.main(arguments, prog_name="hire", standalone_mode=False)
        sys.stdout.flush()  # here, where it can still be told what went wrong
    except SystemExit as end:
        if end.code == 1:  # not ours: click and rich end so when the reader of our output has exited
            _discard_output()
            sys.exit(0)
        raise
    except HireError as error:
        for problem in error.problems:
            click.echo(f"error: {problem}", err=True)
            if problem.remedy:
                click.echo(f"       {problem.remedy}", err=True)
        sys.exit(EXIT_BAD_INPUT)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        click.echo("error: interrupted; run again with --resume to continue, where the command has it", err=True)
        sys.exit(EXIT_BAD_INPUT)
    except MemoryError:
        click.echo(OUT_OF_MEMORY, err=True)
        sys.exit(EXIT_BAD_INPUT)
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # how the tensor library says it
            raise
        click.echo(OUT_OF_MEMORY, err=True)
        sys.exit(EXIT_BAD_INPUT)
    except UnicodeEncodeError as error:
        click.echo(f"error: {ascii(error.object)[:200]} is not valid UTF-8\n       encode it as UTF-8", err=True)
        sys.exit(EXIT_BAD_INPUT)
    except BrokenPipeError:  # the reader of our output, such as `head`, has exited
        _discard_output()
        sys.exit(0)
    except OSError as error:
        # For example a full disk behind standard output, a name that is too long, a folder without permission.
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {where}{(error.strerror or str(error)).lower()}", err=True)
        _discard_output()
        sys.exit(EXIT_BAD_INPUT)


def _run(arguments: list[str]) -> None:
    """Run a command; of several processes that torchrun has started, the first one tells what it does."""
    if any("\0" in argument for argument in arguments):  # not from a shell; as a path, it is no error of the system
        raise HireError("an argument has a NUL character", remedy="leave it out")
    if started_together() > 1 and not TOGETHER & set(arguments[:1]):
        remedy = f"start it without torchrun; several processes can do hire {', '.join(sorted(TOGETHER))}"
        raise HireError(f"hire {' '.join(arguments[:1])} is for a single process", remedy=remedy)
    try:
        with joined() as own, ExitStack() as stack:
            if not own.first:
                stack.enter_context(redirect_stdout(stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))))
            try:
                hire.main(arguments, prog_name="hire", standalone_mode=False)
            except click.Abort:  # what click makes of it
                raise KeyboardInterrupt from None
    except BaseException:
        if started_together() > 1:  # torchrun ends the others when the first has ended, but they end by themselves
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise


def _discard_output() -> None:
    """Discard what is still to be printed, so that nothing fails at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _interrupt(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt
