"""Program of the process that opens one HDF5 file: lists its arrays, then sends rows on request.

A damaged file can make libhdf5 loop for ever or crash, so nothing else may depend on this process. It
limits its own memory, and its processor time per request. It is started as a script: it imports
neither torch nor the rest of the package, so that it is there within a tenth of a second.

It refuses everything through which a file can point to other files: external storage, virtual datasets
and links. It never reads values of variable length, whose heap may be damaged without end, except for
the remarks that our own files carry.

Answers are a line of JSON; after `{"bytes": n}` follow n bytes. Requests are lines of JSON:
`[name, start, stop]`.
"""

from __future__ import annotations

import json
import sys
from math import prod
from typing import Any, BinaryIO

MEMORY = (
    4 << 30
)  # address space; a chunk of a file has at most 4 GB unpacked, sensible ones a few MB
MAX_CHUNK = (
    128 << 20
)  # bytes unpacked; it is held until its last row is read, so that it is unpacked once
MAX_ARRAYS = 200_000
REMARKS = ("boundaries", "num_actions", "first_action")


class RefusedError(Exception):
    """Something that is not read, with the reason."""


def main() -> None:
    path, seconds, depth, *search_path = sys.argv[1:]
    sys.path[:] = search_path  # of the parent; without site, which would take as long as h5py
    limit_memory()
    limit_time(int(seconds))
    out = sys.stdout.buffer
    import h5py

    try:
        file = h5py.File(path, "r", rdcc_nbytes=MAX_CHUNK)
    except Exception:  # h5py has one for every mood of the library
        answer(out, {"error": "is not an HDF5 file, or is cut off"})
        return
    try:
        arrays: dict[str, Any] = {}
        others: list[str] = []
        collect(file, "", int(depth), arrays, others)
        listing = {name: describe(name, array) for name, array in arrays.items()}
        answer(out, {"arrays": listing, "others": others[:20], "remarks": read_remarks(file)})
    except RefusedError as error:
        answer(out, {"error": str(error)})
        return
    except Exception as error:
        answer(out, {"error": f"is damaged: {one_line(error)}"})
        return
    for line in sys.stdin.buffer:
        limit_time(int(seconds))
        name, start, stop = json.loads(line)
        send_rows(out, name, arrays[name], start, stop)


def limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        return  # Windows, or a limit that is lower already


def limit_time(seconds: int) -> None:
    """Let the system kill this process after so many more seconds of work; waiting does not count."""
    try:
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = int(usage.ru_utime + usage.ru_stime)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, hard))
    except (ImportError, ValueError, OSError):
        return


def collect(group: Any, prefix: str, depth: int, arrays: dict[str, Any], others: list[str]) -> None:
    """Gather the arrays of a group, and of groups in it down to `depth`; other content by name only."""
    import h5py

    for name in group:
        full = prefix + name
        if len(arrays) + len(others) >= MAX_ARRAYS:
            raise RefusedError(f"has more than {MAX_ARRAYS} entries")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise RefusedError(
                f"{full[:80]!r} is a link, which is not followed; copy the data into the file"
            )
        if name in ("infos", "metadata"):
            others.append(full[:80])
            continue
        item = group.get(name)
        if isinstance(item, h5py.Dataset):
            arrays[full] = item
        elif isinstance(item, h5py.Group) and depth > 0:
            collect(item, f"{full}/", depth - 1, arrays, others)
        else:
            others.append(full[:80])


def describe(name: str, array: Any) -> dict[str, Any]:
    """Shape and type; with `offset`, where the values lie in the file, if they can be read from there."""
    import h5py

    creation = array.id.get_create_plist()
    layout = creation.get_layout()
    if creation.get_external_count() or layout == h5py.h5d.VIRTUAL:
        raise RefusedError(
            f"{name[:80]!r} is kept in other files, which are not read; copy the data into the file"
        )
    if array.chunks is not None and array.id.get_type().get_size() * prod(array.chunks) > MAX_CHUNK:
        raise RefusedError(
            f"{name[:80]!r} is packed in pieces of more than {MAX_CHUNK >> 20} MB; save it in smaller chunks"
        )
    dtype = array.dtype
    shape = (0,) if array.shape is None else array.shape  # of h5py.Empty: a type without rows
    facts: dict[str, Any] = {"shape": [int(size) for size in shape], "offset": None}
    if dtype.kind not in "fiubcSO" or dtype.hasobject:
        return {**facts, "dtype": "O" if dtype.hasobject else f"V{dtype.itemsize}"}
    facts["dtype"] = dtype.str
    plain = layout == h5py.h5d.CONTIGUOUS and array.id.get_type() == h5py.h5t.py_create(dtype)
    if plain and dtype.kind in "fiub":
        facts["offset"] = array.id.get_offset()  # None before anything is written: fill values
    return facts


def read_remarks(file: Any) -> dict[str, Any]:
    """Read the single values that our own files carry as attributes."""
    remarks: dict[str, Any] = {}
    for key in REMARKS:
        if key not in file.attrs or file.attrs.get_id(key).shape != ():
            continue
        value = file.attrs[key]
        if isinstance(value, str):
            remarks[key] = value[:80]
        elif getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u"):
            remarks[key] = int(value)
    return remarks


def send_rows(out: BinaryIO, name: str, array: Any, start: int, stop: int) -> None:
    import numpy as np

    try:
        values = np.ascontiguousarray(array[start:stop])
    except Exception as error:
        answer(out, {"error": f"{name[:80]!r} is damaged: {one_line(error)}"})
        return
    answer(out, {"bytes": values.nbytes})
    out.write(values.view(np.uint8).data if values.size else b"")
    out.flush()


def answer(out: BinaryIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value).encode() + b"\n")
    out.flush()


def one_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


if __name__ == "__main__":
    main()
