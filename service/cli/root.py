"""Runs a command, and converts errors into messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from tilewright.schedules.errors import TilewrightError
from tilewright.service.cli.fast_path import run_quickly
from tilewright.service.cli.output import Exit, drop_stdout, print_problem
from tilewright.service.errors import ExitCode, MissingExtra, ServiceError
from tilewright.service.problems import ProblemDetails, problem_of
from tilewright.service.resource_exhaustion import exhausted_resource

EXTRAS = {
    "numpy": "tune",
    "llvmlite": "tune",
    "xgboost": "tune",
    "sqlalchemy": "tune",
    "alembic": "tune",
    "fastapi": "server",
    "uvicorn": "server",
    "pydantic_settings": "server",
    "prometheus_client": "server",
    "structlog": "server",
    "matplotlib": "plot",
    "psycopg": "postgres",
    "distributed": "fleet",
}
"""The extra that installs each library."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code. Errors of Tilewright have no traceback."""
    as_json = "--json" in arguments
    try:
        if run_quickly(arguments):
            return ExitCode.DONE
        # Start-up: Typer takes longer to import than a fast command takes.
        return int(import_module("tilewright.service.cli.typer_app").run_tree(arguments))
    except TilewrightError as error:
        return _report(problem_of(exhausted_resource(error) or error), as_json=as_json)
    except Exit as end:
        return end.code
    except BrokenPipeError:
        drop_stdout()
        return ExitCode.DONE
    except (MemoryError, OSError, RuntimeError, ImportError) as error:
        return _report(problem_of(expected_error(error)), as_json=as_json)
    except KeyboardInterrupt:
        sys.stderr.write("\ntilewright: interrupted\n")
        return ExitCode.INTERRUPTED
    except SystemExit as error:
        # Typer and rich exit with 1 if the reader closed the pipe (`| head`): not a failure.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        drop_stdout()
        return ExitCode.DONE


def expected_error(error: Exception) -> ServiceError:
    """Return the error for exhausted resources or a missing library. Raise any other error
    again."""
    found = exhausted_resource(error)
    if found is not None:
        return found
    if not isinstance(error, ImportError):
        raise error
    return missing_extra(error)


def missing_extra(error: ImportError) -> MissingExtra:
    """Return the error with advice. If no extra installs the module, raise `error` again."""
    name = (error.name or "").split(".")[0]
    if name not in EXTRAS:
        raise error
    extra = EXTRAS[name]
    return MissingExtra(
        f"this command needs {name}, which is not installed",
        advice=f'Install it: pip install "tilewright[{extra}]"',
    )


def _report(problem: ProblemDetails, *, as_json: bool) -> int:
    print_problem(problem, as_json=as_json)
    return problem.exit_code
