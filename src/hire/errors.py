"""Errors for the person who reads them: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input."""

    message: str
    file: str | None = None
    line: int | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}: " if self.line is None else f"{self.file}:{self.line}: "
        return f"{where}{self.message}"


class HireError(Exception):
    """Bad input or an unusable environment; the command line prints it and exits with code 2."""

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problems = [Problem(message, None if file is None else str(file), line, remedy)]
        super().__init__(str(self.problems[0]))

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> HireError:
        """An error with several problems."""
        error = cls("")
        error.problems = list(problems)
        error.args = ("\n".join(map(str, error.problems)),)
        return error
