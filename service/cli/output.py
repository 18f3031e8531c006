"""Output of commands: one JSON document on stdout, or text."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.service.cli.facts import Rows, plain
from tilewright.service.errors import CannotWrite, ExitCode
from tilewright.service.problems import ProblemDetails

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPE_COLUMNS = 120


class Exit(Exception):  # noqa: N818  # no error: the command has printed everything
    """Ends a command with this exit code."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results. With `as_json`, stdout gets exactly one JSON document."""

    as_json: bool = False

    @property
    def live(self) -> bool:
        """Whether to draw moving progress: on a terminal, not in CI, not with JSON."""
        return not self.as_json and sys.stderr.isatty() and not os.environ.get("CI")

    def console(self) -> Console:
        """Return a console for results on stdout. It uses colours only on a terminal."""
        from rich.console import Console

        return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)

    def notes(self) -> Console:
        """Return a console for progress and remarks on stderr, so that stdout has only results."""
        from rich.console import Console

        return Console(
            highlight=False, stderr=True, width=None if sys.stderr.isatty() else PIPE_COLUMNS
        )

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Show a spinner during the block, if stderr is a terminal."""
        if not self.live:
            yield
            return
        with self.notes().status(text):
            yield

    def result(
        self,
        document: Any,
        human: RenderableType | Callable[[], RenderableType] | None = None,
    ) -> None:
        """Print `document` as JSON, or `human`. If `human` is a function, its result is printed;
        None prints nothing."""
        if self.as_json:
            self.print_json(document)
            return
        if callable(human):
            human = human()
        if human is not None:
            with flushed_stdout():
                self.console().print(human, crop=False)  # a long command must be complete

    def facts(self, document: Any, rows: Callable[[], Rows]) -> None:
        """Print `document` as JSON, or `rows`. rich is imported only if colours are possible."""
        if self.as_json or sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
            self.result(
                document, lambda: import_module("tilewright.service.cli.render").facts(rows())
            )
        else:
            self.text(document, plain(rows()))

    def text(self, document: Any, text: str) -> None:
        """Print `document` as JSON, or `text` unchanged."""
        if self.as_json:
            self.print_json(document)
        else:
            with flushed_stdout():
                sys.stdout.write(text if text.endswith("\n") else text + "\n")

    def print_json(self, document: Any) -> None:
        with flushed_stdout():
            sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")

    def remark(self, text: str) -> None:
        """Print one line to stderr, or nothing with `as_json`."""
        if not self.as_json:
            sys.stderr.write(text + "\n")


@contextmanager
def flushed_stdout() -> Iterator[None]:
    """Flush stdout at the end of the block. Raise CannotWrite if writing fails. If the reader has
    closed the pipe (`| head`), raise BrokenPipeError, which `root.run` handles."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()  # buffered output must not fail again at exit
        raise CannotWrite(f"cannot write the output: {error.strerror or error}") from error


def drop_stdout() -> None:
    """Discard all later output to stdout."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.close(null)


def print_problem(problem: ProblemDetails, *, as_json: bool) -> None:
    """Print a problem on stderr; with `as_json`, also as a document on stdout."""
    if as_json:
        Output(as_json=True).print_json(problem.to_cli_json())
    where = f" (at {problem.pointer})" if problem.pointer and as_json else ""
    sys.stderr.write(f"tilewright: {problem.detail}{where}\n")
    if problem.advice and problem.advice not in problem.detail:
        sys.stderr.write(f"  {problem.advice}\n")
