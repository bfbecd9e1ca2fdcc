"""Hostile configurations and datasets."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.faults.support.hostile import SPECIALS, Attack, Payload, pickled, put_special
from tests.support.data import make_fields

CONFIGS = [["config", "FILE"], ["train", "FILE", "--output-dir", "OUT", "--quiet"]]
DATA = [["data", "check", "FILE"], ["data", "info", "FILE"], ["data", "convert", "FILE", "OUT.npz"]]
BOMB = 2**33  # bytes of zeros, a few MB in a zip


def yaml_attacks() -> Iterator[Attack]:
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    merges = "b0: &b0 {k: 1}\n" + "".join(
        f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
    )
    texts = {
        "alias bomb": bomb,
        "alias bomb as options": bomb + "algo: bc\nalgo_kwargs: {hidden_sizes: *a11}\n",
        "merge bomb": merges,
        "own alias": "a: &a [*a]\nalgo: bc\n",
        "deep list": "a: " + "[" * 20_000,
        "deep map": "a: " + "{b: " * 20_000,
        "deep indent": "".join(" " * n + f"k{n}:\n" for n in range(3_000)),
        "many keys": "".join(f"k{n}: 1\n" for n in range(40_000)),
        "huge int": "algo: bc\nseed: " + "9" * 1_000_000,
        "huge hex": "algo: bc\nseed: 0x" + "f" * 5_000_000,
        "huge sexagesimal": "algo: bc\nseed: 1" + ":59" * 200_000,
        "long key": "? " + "k" * 2_000_000 + "\n: 1\n",
        "escape in key": '"\\e[2Jalgo": bc\n',
        "escape in value": 'algo: "\\e]0;title\\a"\n',
        "escape in alias": "a: *\x1b[2J\n",
        "null character": "algo: b\0c\n",
        "binary": "\xff\xfe\x00\x01" * 100,
        "list as key": "? [a, b]\n: 1\n",
        "map as key": "? {a: b}\n: 1\n",
    }
    for tag in ("apply:os.system", "apply:subprocess.getoutput"):
        texts[f"tag {tag}"] = f"algo: !!python/object/{tag} ['touch CANARY']\n"
    for tag in (
        "name:os.system",
        "module:os",
        "tuple [1]",
        "object:os.x {}",
        "object/new:os.system ['touch CANARY']",
    ):
        texts[f"tag {tag}"] = f"algo: !!python/{tag}\n"
    for name, text in texts.items():
        yield Attack(f"yaml {name}", partial(_yaml, text), CONFIGS)
    for special in SPECIALS:
        yield Attack(f"yaml file: {special}", partial(_special, "c.yaml", special), CONFIGS)


def _yaml(text: str, place: Path, victim: Path, canary: Path) -> Path:
    path = place / "c.yaml"
    path.write_text(text.replace("CANARY", str(canary)))
    return path


def _special(name: str, special: str, place: Path, victim: Path, canary: Path) -> Path:
    put_special(place / name, special, victim)
    return place / name


def dataset_attacks() -> Iterator[Attack]:
    for ending in ("npz", "pt", "hdf5"):
        for special in SPECIALS:
            yield Attack(f"{ending}: {special}", partial(_special, f"l.{ending}", special), DATA)
        yield Attack(
            f"{ending}: pickle", partial(_bytes, f"l.{ending}", lambda _, c: pickled(c)), DATA
        )
        yield Attack(f"{ending}: cut off", partial(_bytes, f"l.{ending}", _cut_off), DATA)
    builders: dict[str, Callable[[Path, Path], bytes]] = {
        "npz: object array": _object_npz,
        "npz: zip bomb": lambda *_: _zip_bomb(),
        "npz: header of 10^15 rows": lambda *_: _npz_with_header("(1000000000000000, 3)"),
        "npz: negative rows": lambda *_: _npz_with_header("(-5, 3)"),
        "npz: header with code": lambda _, c: _npz_with_header(f"open({str(c)!r}, 'w')"),
        "npz: names": lambda *_: _npz_names(),
        "pt: torch pickle": _torch_pickle,
        "pt: global": lambda *_: pickle.dumps(print),
    }
    for name, build in builders.items():
        yield Attack(name, partial(_bytes, f"l.{name.split(':')[0]}", build), DATA)
    for name, trick in {
        "external link": _external_link, "external storage": _external_storage, "virtual": _virtual,
        "soft link to itself": _own_link, "10^15 rows": _huge_rows, "names": _escape_names,
    }.items():  # fmt: skip
        yield Attack(f"hdf5: {name}", partial(_hdf5, trick), DATA)


def _bytes(
    name: str, make: Callable[[Path, Path], bytes], place: Path, victim: Path, canary: Path
) -> Path:
    (place / name).write_bytes(make(victim, canary))
    return place / name


def _cut_off(victim: Path, canary: Path) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **make_fields(50))
    return buffer.getvalue()[:-100]


def _object_npz(victim: Path, canary: Path) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, observations=np.array([Payload(canary)], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _zip_bomb() -> bytes:
    buffer, chunk = io.BytesIO(), b"\0" * 2**24
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("observations", "next_observations"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(_npy_header(f"({BOMB // 12}, 3)"))
                for _ in range(8):  # less than the header says: enough to see what is tried
                    member.write(chunk)
    return buffer.getvalue()


def _npy_header(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def _npz_with_header(shape: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in make_fields(2):
            archive.writestr(f"{name}.npy", _npy_header(shape) + b"\0" * 24)
    return buffer.getvalue()


def _npz_names() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("../../x.npy", "\x1b[2J.npy", "/etc/passwd.npy", "obs.npy"):
            archive.writestr(name, _npy_header("(2, 3)") + b"\0" * 24)
    return buffer.getvalue()


def _torch_pickle(victim: Path, canary: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"observations": Payload(canary)}, buffer)
    return buffer.getvalue()


# -- HDF5 ------------------------------------------------------------------------------------------


def _hdf5(trick: Callable[[Any, Path], None], place: Path, victim: Path, canary: Path) -> Path:
    import h5py

    with h5py.File(place / "l.hdf5", "w") as file:
        for name, values in make_fields(40).items():
            if name != "rewards":
                file[name] = values
        trick(file, victim)
    return place / "l.hdf5"


def _external_link(file: Any, victim: Path) -> None:
    import h5py

    with h5py.File(f"{victim}.hdf5", "w") as other:
        other["rewards"] = np.zeros(40, np.float32)
    file["rewards"] = h5py.ExternalLink(f"{victim}.hdf5", "rewards")


def _external_storage(file: Any, victim: Path) -> None:
    file.create_dataset("rewards", (40,), "u1", external=[(str(victim), 0, 40)])


def _virtual(file: Any, victim: Path) -> None:
    import h5py

    _external_link(file, victim)
    del file["rewards"]
    layout = h5py.VirtualLayout((40,), "f4")
    layout[:] = h5py.VirtualSource(f"{victim}.hdf5", "rewards", (40,))
    file.create_virtual_dataset("rewards", layout)


def _own_link(file: Any, victim: Path) -> None:
    import h5py

    file["rewards"] = h5py.SoftLink("/rewards")


def _huge_rows(file: Any, victim: Path) -> None:
    file.create_dataset("rewards", (10**15,), "f4", chunks=(1024,))


def _escape_names(file: Any, victim: Path) -> None:
    file["\x1b[2J"] = np.zeros(40, np.float32)
