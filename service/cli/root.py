"""The command tree, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import typer
from typer import exceptions as typer_errors

from schedules.errors import TilewrightError
from service.cli.output import drop_stdout, print_problem
from service.errors import MissingExtra, Problem, UsageProblem, problem_of
from service.exit_codes import ExitCode

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
"""Which extra brings an import name."""


MODULES: dict[str, tuple[str, ...]] = {
    "tuning": ("tune", "best", "bench", "verify"),
    "looking": ("show", "emit"),
    "serving": ("serve",),
    "jobs": ("submit", "status", "watch", "cancel"),
    "locking": ("lock", "fetch", "cmake-dir"),
    "keeping": ("export", "import", "db"),
    "keys": ("keys",),
    "machine": ("doctor", "ops", "target"),
    "fleet": ("worker", "fleet"),
}
"""Which module of this package brings which commands, in the order help lists them."""


def build(command: str = "") -> typer.Typer:
    """The application with the commands of the module that brings `command`; with all of them
    for anything else. What is not built costs no start-up time."""
    app = typer.Typer(
        name="tilewright",
        help="Finds the fastest correct schedule for a tensor expression on this machine, "
        "and keeps it.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def root(
        version: bool = typer.Option(False, "--version", help="Print the version and leave."),
    ) -> None:
        if version:
            from importlib.metadata import version as version_of

            sys.stdout.write(f"tilewright {version_of('tilewright')}\n")
            raise typer.Exit(ExitCode.DONE)

    chosen = [name for name, commands in MODULES.items() if command in commands]
    for name in chosen or MODULES:
        import_module(f"service.cli.{name}").add_commands(app)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code. Errors of ours are one line, never a traceback."""
    as_json = "--json" in arguments
    try:
        app = build(arguments[0] if arguments else "")
        code = app(args=list(arguments), prog_name="tilewright", standalone_mode=False)
        sys.stdout.flush()
        return int(code or ExitCode.DONE)
    except typer_errors.TyperException as error:
        return _usage(error, as_json=as_json)
    except TilewrightError as error:
        return _tell(problem_of(error), as_json=as_json)
    except ImportError as error:
        return _tell(problem_of(missing_extra(error)), as_json=as_json)
    except KeyboardInterrupt:
        sys.stderr.write("\ntilewright: interrupted\n")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        drop_stdout()
        return ExitCode.DONE
    except SystemExit as error:
        # Typer and rich leave with 1 where the reader left (`| head`), which is no failure.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        drop_stdout()
        return ExitCode.DONE


def missing_extra(error: ImportError) -> MissingExtra:
    """The error as advice; raised again if the module is not one an extra brings."""
    name = (error.name or "").split(".")[0]
    if name not in EXTRAS:
        raise error
    extra = EXTRAS[name]
    return MissingExtra(
        f"this command needs {name}, which is not installed",
        advice=f'Install it: pip install "tilewright[{extra}]"',
    )


def _usage(error: typer_errors.TyperException, *, as_json: bool) -> int:
    format_message = getattr(error, "format_message", None)
    message = format_message() if format_message else str(error)
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(message + "\n")
        return ExitCode.USAGE
    path = context.command_path if context is not None else "tilewright"
    advice = f"See `{path} --help`."
    return _tell(problem_of(UsageProblem(message.strip(), advice=advice)), as_json=as_json)


def _tell(problem: Problem, *, as_json: bool) -> int:
    print_problem(problem, as_json=as_json)
    return problem.exit_code
