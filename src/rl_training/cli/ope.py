"""`ope` and `select`: judge policies by a log, without an environment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training import api
from rl_training.cli.console import JsonOption, PluginOption, note, say, say_json, show_notes
from rl_training.config import ConfigError

if TYPE_CHECKING:
    from rl_training.api import CardEstimate, FitOptions, Interval, ScoreCard

WIDTH = 90  # columns of a card

Dataset = Annotated[
    str,
    typer.Option(help="The log: a file (.npz, .pt, .hdf5), builtin:NAME or minari:NAME."),
]
Gamma = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Discount of the values (default: that of the training)."),
]
Stochastic = Annotated[
    bool, typer.Option("--stochastic", help="Judge drawn actions instead of the most likely ones.")
]
HeldOut = Annotated[
    bool,
    typer.Option("--held-out", help="Judge by the episodes that validation_fraction held out."),
]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]
Updates = Annotated[int | None, typer.Option(help="Gradient updates of fitted Q evaluation.")]
Members = Annotated[int | None, typer.Option(help="Members of its ensemble.")]
HiddenSizes = Annotated[
    str | None, typer.Option(help="Widths of its critics' hidden layers: 128,128.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the fits.")]
OutputDir = Annotated[
    Path, typer.Option(help="Directory of the fits; the same command takes them up again.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]


def ope(
    policies: Annotated[
        list[Path], typer.Argument(help="Checkpoints, or run directories (their last).")
    ],
    dataset: Dataset,
    gamma: Gamma = None,
    stochastic: Stochastic = False,
    held_out: HeldOut = False,
    confidence: Confidence = 0.9,
    updates: Updates = None,
    members: Members = None,
    hidden_sizes: HiddenSizes = None,
    seed: Seed = 0,
    output_dir: OutputDir = Path("runs/ope"),
    html: Annotated[
        Path | None, typer.Option(help="Write the card as a page; for several, a directory.")
    ] = None,
    quiet: Quiet = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Judge policies by a log: are they better than what made it, and how sure is that?"""
    show_notes(quiet)
    pages = _pages(html, policies)
    options = _fit_options(updates, members, hidden_sizes, seed)
    cards = []
    with _interruptible():
        for position, policy in enumerate(policies):
            card = api.judge(
                policy,
                dataset,
                gamma=gamma,
                stochastic=stochastic,
                held_out=held_out,
                confidence=confidence,
                options=options,
                output_dir=output_dir,
                progress_bar=not quiet,
            )
            cards.append(card)
            if pages:
                api.write_card(card.as_dict(), pages[position])
            if not json:
                if position:
                    say()
                _say_card(card)
    if json:
        documents = [card.as_dict() for card in cards]
        say_json(documents[0] if len(documents) == 1 else documents)
        return
    for page in pages:
        say(f"page        {page}")


def select(
    policies: Annotated[
        list[Path],
        typer.Argument(help="Checkpoints, run directories (their last), directories of runs."),
    ],
    dataset: Dataset,
    by: Annotated[
        str, typer.Option(help="The estimator: fqe, pdis, wis, pdwis, dr or wdr.")
    ] = "fqe",
    best: Annotated[
        bool, typer.Option("--best", help="Print the path of the best checkpoint only.")
    ] = False,
    all_checkpoints: Annotated[
        bool, typer.Option("--all-checkpoints", help="Rank every checkpoint of the runs.")
    ] = False,
    gamma: Gamma = None,
    stochastic: Stochastic = False,
    held_out: HeldOut = False,
    confidence: Confidence = 0.9,
    updates: Updates = None,
    members: Members = None,
    hidden_sizes: HiddenSizes = None,
    seed: Seed = 0,
    output_dir: OutputDir = Path("runs/ope"),
    quiet: Quiet = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Rank policies by one estimator on a log, and say how far apart the first two are."""
    show_notes(quiet or best)
    if best and json:
        raise ConfigError("--best prints a path, --json a document: leave out one of them")
    with _interruptible():
        ranking = api.select(
            _checkpoints(policies, all_checkpoints),
            dataset,
            by=by,
            gamma=gamma,
            stochastic=stochastic,
            held_out=held_out,
            confidence=confidence,
            options=_fit_options(updates, members, hidden_sizes, seed),
            output_dir=output_dir,
            progress_bar=not (quiet or best),
        )
    if best:
        say(str(ranking.best.policy["path"]))
        return
    if json:
        say_json(ranking.as_dict())
        return
    _say_ranking(ranking)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Leave with the exit code of a signal if one has ended a fit."""
    try:
        yield
    except api.FitInterruptedError as error:
        note(str(error))
        raise typer.Exit(130) from None


def _fit_options(
    updates: int | None, members: int | None, hidden_sizes: str | None, seed: int
) -> FitOptions:
    values: dict[str, Any] = {"updates": updates, "members": members, "seed": seed}
    if hidden_sizes is not None:
        try:
            values["hidden_sizes"] = [int(word) for word in hidden_sizes.split(",") if word]
        except ValueError:
            raise ConfigError(
                f"--hidden-sizes {hidden_sizes!r}: write whole numbers with commas: 128,128"
            ) from None
    return api.FitOptions(**{key: value for key, value in values.items() if value is not None})


def _pages(html: Path | None, policies: Sequence[Path]) -> list[Path]:
    """Name a page for every policy, before any work is done."""
    if html is None:
        return []
    if len(policies) == 1:
        pages = [html / "card.html" if html.is_dir() else html]
    elif html.suffix == ".html" or html.is_file():
        raise ConfigError(f"--html {html}: for several policies, name a directory")
    else:
        pages = [html / f"card-{number}.html" for number in range(1, len(policies) + 1)]
    api.check_card(pages[0])
    return pages


def _checkpoints(policies: Sequence[Path], every: bool) -> list[Path]:
    runs = [run for path in policies for run in (api.runs_in(path) or [path])]
    listed = [
        step
        for run in runs
        for step in (api.checkpoints_of(run) if every else [api.find_checkpoint(run)])
    ]
    return list(dict.fromkeys(path.resolve() for path in listed))


def _say_card(card: ScoreCard) -> None:
    policy, log = card.policy, card.log
    say(f"policy      {policy['path'] or 'in memory'} ({policy['algo']}, {policy['acts']})")
    cut = f", {log['cut_episodes']:,} of them cut" if log["cut_episodes"] else ""
    say(f"log         {log['source']}: {log['rows']:,} rows, {log['episodes']:,} episodes{cut}")
    say(f"verdict     {card.verdict}")
    for reason in card.reasons:
        _say_wrapped("            ", reason)
    say()
    title = f"value at gamma {card.gamma:g}, {card.confidence:.0%} intervals"
    say(f"{title:<36}{'value':>9}{'low':>10}{'high':>10}  against the log")
    say(_line("the log itself", card.behaviour))
    for estimate in card.estimates:
        if estimate.estimate is not None:
            say(_line(estimate.label, estimate.estimate) + _against(estimate))
    for reason, labels in _reasons(card.estimates).items():
        # all but fitted Q evaluation weigh
        every = len(labels) == len(card.estimates) - 1
        names = "importance weighting" if every else ", ".join(labels)
        _say_wrapped(f"  {names} ", reason, indent=4)
    say()
    share, distance = card.support["unlike_share"], card.support["action_distance"]
    say(
        f"actions     {share:.1%} unlike any logged one, distance to the logged ones {distance:.3g}"
    )
    for text in card.notes:
        _say_wrapped("note        ", text)


def _say_wrapped(label: str, text: str, indent: int = 12) -> None:
    for line in textwrap.wrap(label + text, WIDTH, subsequent_indent=" " * indent):
        say(line)


def _line(label: str, interval: Interval) -> str:
    return f"  {label:<34}{interval.value:>9.4g}{interval.low:>10.4g}{interval.high:>10.4g}"


def _against(estimate: CardEstimate) -> str:
    difference = estimate.difference
    if difference is None:
        return ""
    return f"  {difference.value:+.4g} ({difference.low:+.4g} to {difference.high:+.4g})"


def _reasons(estimates: Sequence[CardEstimate]) -> dict[str, list[str]]:
    """Group estimators by why they do not apply or are not to be trusted."""
    reasons: dict[str, list[str]] = {}
    for estimate in estimates:
        if estimate.reason is not None:
            kind = "not to be trusted" if estimate.estimate else "not applicable"
            reasons.setdefault(f"({kind}: {estimate.reason})", []).append(estimate.label)
    return reasons


def _say_ranking(ranking: Any) -> None:
    say(f"by {api.estimator_label(ranking.estimator)}, gamma {ranking.cards[0].gamma:g}")
    for number, card in enumerate(ranking.cards, 1):
        estimate = card.estimate(ranking.estimator).estimate
        value = f"{'no estimate':>29}"
        if estimate is not None:
            value = f"{estimate.value:>9.4g}{estimate.low:>10.4g}{estimate.high:>10.4g}"
        say(f"{number:>3}{value}  {card.verdict:<20}  {card.policy['path']}")
    if ranking.gap is not None:
        answer = "apart" if ranking.is_clear else "not distinguishable"
        if not ranking.is_trusted:
            answer = "not to be trusted"
        say(f"first and second: {answer}, difference {ranking.gap}")
