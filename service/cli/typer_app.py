"""The Typer application with its commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import typer
from typer import exceptions as typer_errors

from tilewright.service.errors import ExitCode, UsageProblem

MODULES: dict[str, tuple[str, ...]] = {
    "tuning": ("tune", "best", "bench", "explain", "verify"),
    "show": ("show", "emit"),
    "serve": ("serve", "monitoring-dir"),
    "jobs": ("submit", "status", "watch", "cancel"),
    "locking": ("lock", "fetch", "cmake-dir"),
    "database": ("export", "import", "db"),
    "keys": ("keys",),
    "machine": ("doctor", "ops", "target"),
    "fleet": ("worker", "fleet"),
}
"""The commands of each module of this package, in the order of the help text."""


def build(command: str = "") -> typer.Typer:
    """Return the application with the commands of the module that has `command`. If there is no
    such module, import all of them."""
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
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if version:
            from importlib.metadata import version as version_of

            sys.stdout.write(f"tilewright {version_of('tilewright')}\n")
            raise typer.Exit(ExitCode.DONE)

    chosen = [name for name, commands in MODULES.items() if command in commands]
    for name in chosen or MODULES:
        import_module(f"tilewright.service.cli.{name}").add_commands(app)
    return app


def run_tree(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code. Raise UsageProblem if the arguments are invalid."""
    app = build(arguments[0] if arguments else "")
    try:
        code = app(args=list(arguments), prog_name="tilewright", standalone_mode=False)
    except typer_errors.TyperException as error:
        return _usage(error)
    sys.stdout.flush()
    return int(code or ExitCode.DONE)


def _usage(error: typer_errors.TyperException) -> int:
    format_message = getattr(error, "format_message", None)
    message = format_message() if format_message else str(error)
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(message + "\n")
        return ExitCode.USAGE
    path = context.command_path if context is not None else "tilewright"
    advice = f"See `{path} --help`."
    raise UsageProblem(message.strip(), advice=advice) from error
