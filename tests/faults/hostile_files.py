"""Files made by an attacker, given to every verb that takes such a file.

Nothing may be executed, hang, fill the memory, write outside of its place or reach the terminal
with escape sequences. Each verb runs in a process with a time limit and an address-space limit.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rl_training.cli.main import main
from tests.faults.hostile_checkpoints import checkpoint_attacks, run_directory_attacks
from tests.faults.hostile_data import dataset_attacks, yaml_attacks
from tests.faults.support.hostile import Attack
from tests.faults.support.processes import Child, Ended
from tests.faults.support.twins import Twin, profile_values
from tests.faults.support.verdicts import Case, Tally, Verdict

PRECIOUS = "precious\n"
LIMIT = 30.0
# how the command line reports an exception that is not one of the package's own
_FOREIGN = re.compile(r"\(--debug shows where\)|Traceback \(most recent call last\)")


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    twin = Twin(base, "tiny", profile_values("tiny", base))
    attacks = [
        *checkpoint_attacks(twin.run), *run_directory_attacks(), *yaml_attacks(), *dataset_attacks(),
    ]  # fmt: skip
    names = [attack.name for attack in attacks]
    assert len({*names}) == len(names), "every attack has a name of its own"
    for attack in rng.sample(attacks, 8) if quick else attacks:
        yield Case(attack.name, partial(attempt, attack, twin.run), timeout=300)


def attempt(attack: Attack, run: Path, work: Path) -> Tally:
    """Build the file anew for each verb, and look at what came of it."""
    tally = Tally()
    for number, verb in enumerate(attack.verbs):
        directory = work / str(number)
        directory.mkdir()
        victim, canary = directory / "victim", directory / "canary"
        victim.write_text(PRECIOUS)
        place = directory / "place"
        if attack.needs_run:
            shutil.copytree(run, place, symlinks=True)
        else:
            place.mkdir()
        target = attack.build(place, victim, canary)
        words = [
            word.replace("FILE", str(target)).replace("OUT", str(directory / "out"))
            for word in verb
        ]
        ended = Child(
            partial(main, words),
            directory / "output",
            limited=True,
            environment={"HOME": str(directory)},
        ).wait(LIMIT)
        verdict, note = judge(ended, victim, canary, directory)
        tally.add(verdict, f"{' '.join(verb)}: {note}" if note else "")
    return tally


def judge(ended: Ended, victim: Path, canary: Path, directory: Path) -> tuple[Verdict, str]:
    if canary.exists():
        return Verdict.EXECUTED, "the payload ran"
    if ended.code is None:
        return Verdict.HANG, f"no end after {LIMIT:.0f} s"
    if not victim.is_file() or victim.is_symlink() or victim.read_text() != PRECIOUS:
        return Verdict.OTHER, "a file outside was changed"
    if ended.code < 0 or _FOREIGN.search(ended.output):
        return Verdict.FOREIGN, f"({ended.code}) {ended.tail}"
    if b"\x1b" in (directory / "output").read_bytes():
        return Verdict.OTHER, "an escape sequence reached the terminal"
    if ended.code == 0:
        return Verdict.SURVIVED, ""
    if ended.code in (1, 2) and ended.output.strip():
        return Verdict.REFUSED, ""
    return Verdict.OTHER, f"exit code {ended.code}: {ended.tail}"


def verbs_with(*verbs: str) -> Sequence[Sequence[str]]:
    return [verb.split(" ") for verb in verbs]
