"""Order of the rows of a log with episode ids: are the rows of an episode together?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.data.checks.column_checks import Finding
from rl_training.data.packing.flags import row_breaks

_MOSTLY = 0.5


def check_order(
    fields: Mapping[str, npt.NDArray[Any]], spellings: Mapping[str, str]
) -> Iterator[Finding]:
    """Find episodes whose rows are scattered among those of others, as several actors log them.

    Ids that come back are fine where files were joined that number their episodes alike.
    """
    ids = fields.get(spellings.get("episode_ids", ""))
    if ids is None or not len(ids):
        return
    ids = ids.reshape(-1)
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    ends = np.append(starts[1:], len(ids)) - 1
    by_id = np.argsort(ids[starts], kind="stable")
    same = ids[starts[by_id[1:]]] == ids[starts[by_id[:-1]]]
    earlier, later = ends[by_id[:-1][same]], starts[by_id[1:][same]]
    if not len(earlier):
        return
    obs, next_obs = (fields.get(spellings.get(name, "")) for name in ("obs", "next_obs"))
    scattered = 2 * len(starts) > len(ids)
    if not scattered and obs is not None and next_obs is not None and len(obs) == len(next_obs):
        reached, start = (table.reshape(len(table), -1) for table in (next_obs, obs))
        scattered = (~row_breaks(reached[earlier], start[later])).mean() > _MOSTLY
    if scattered:
        episodes = len(starts) - len(earlier)
        yield Finding(
            "error", "scattered-episodes",
            f"the rows of {episodes:,} episodes are in {len(starts):,} pieces, mixed with those of "
            "others: every piece would be an episode", int(later.min()),
            "sort the rows by episode, all fields alike: "
            "`values[np.argsort(episode_ids, kind='stable')]`",
        )  # fmt: skip
