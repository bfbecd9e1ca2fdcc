"""Application: verbs, `--version`, and errors as one or two lines with an exit code."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rl_training import api
from rl_training.cli import (
    benchmark,
    compare,
    data,
    doctor,
    ope,
    policy,
    report,
    show,
    signals,
    sweep,
    train,
    tune,
    watch,
)
from rl_training.cli.console import note, say, show_notes, stdout_for_result
from rl_training.config import RLTrainingError, RunError
from rl_training.imports import working_directory

USER_ERROR, RUN_FAILED = 2, 1

app = typer.Typer(
    name="rl-training",
    help="Train, evaluate and use policies from logged data, a simulator, or both.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("train")(train.train)
app.command("resume")(train.resume)
app.command("sweep")(sweep.sweep)
app.command("watch")(watch.watch)
app.command("benchmark")(benchmark.benchmark)
app.command("tune")(tune.tune)
app.command("eval")(policy.evaluate)
app.command("predict")(policy.predict)
app.add_typer(data.app, name="data")
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("ope")(ope.ope)
app.command("select")(ope.select)
app.command("list")(show.list_known)
app.command("explain")(show.explain)
app.command("config")(show.config)
app.command("doctor")(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        from rl_training import __version__

        say(f"rl-training {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show tracebacks of errors; write the batch if training diverges."
        ),
    ] = False,
) -> None:
    working_directory()  # an error now, in plain words, if it is gone
    show_notes(debug=debug)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± is no reason to fail
    # --debug is welcome anywhere, not only before the verb
    words = (["--debug"] if debug else []) + [word for word in words if word != "--debug"]
    try:
        with stdout_for_result("--json" in words):
            code = app(args=words, prog_name="rl-training", standalone_mode=False)
        # typer turns the interrupt of a signal into a code without a word
        return signals.exit_code() if signals.came() else int(code or 0)
    except RLTrainingError as error:
        return _fail(error, RUN_FAILED if isinstance(error, RunError) else USER_ERROR, debug)
    except (KeyboardInterrupt, typer.Abort):
        return signals.exit_code()
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except SystemExit as ended:  # click's answer to a reader that has gone, as `head` does
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return signals.exit_code() if signals.came() else 0
    except Exception as error:
        # usage errors: later versions of typer have a copy of click's classes, so not by class
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            note(_usage(error, words))
            return int(error.exit_code)
        return signals.exit_code() if signals.came() else _fail(error, RUN_FAILED, debug)


def _usage(error: Any, words: Sequence[str]) -> str:
    """Return what to write instead of a command that cannot be parsed, or where to read it."""
    assignment = _meant_assignment(getattr(error, "option_name", None), words)
    if assignment is not None:
        return f"error: options of a configuration are written key=value: {assignment}"
    name = next((word for word in words if not word.startswith("-")), "")
    if name in api.packaged_configs() or name.endswith((".yaml", ".yml")):
        return f"error: the verb comes first: rl-training train {name}"
    text, context = error.format_message().rstrip(), getattr(error, "ctx", None)
    if text.startswith("Usage:"):  # a group without a verb: its help
        return str(text)
    return f"error: {text} (see {context.command_path} --help)" if context else f"error: {text}"


def _meant_assignment(option: str | None, words: Sequence[str]) -> str | None:
    """Return `tau=0.1` for `--tau 0.1`, if that is an option of configurations."""
    if option is None or not {"train", "config"} & set(words[:2]):
        return None
    key = option.strip("-").replace("-", "_")
    if not any(key in group.options.model_fields for group in api.option_groups(key).values()):
        return None
    for word, following in zip(words, [*words[1:], "VALUE"], strict=True):
        if word == option:
            return f"{key}={'VALUE' if following.startswith('-') else following}"
        if word.startswith(f"{option}="):
            return f"{key}={word.removeprefix(f'{option}=')}"
    return None


def _fail(error: Exception, code: int, debug: bool) -> int:
    if debug:
        note("".join(traceback.format_exception(error)).rstrip("\n"))
        return code
    if isinstance(error, RLTrainingError):
        note(f"error: {error}")
    else:
        note(f"error: {type(error).__name__}: {error} (--debug shows where)")
    return code
