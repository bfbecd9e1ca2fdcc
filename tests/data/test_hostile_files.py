"""Data files that are damaged or made to harm: our own error, soon, and nothing else is read."""

import io
import os
import struct
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest
import torch

from rl_training.api import convert_dataset
from rl_training.config import DatasetError, OutputError
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.hdf5 import reader


def load(path, **keys):
    return load_transition_dataset(path.suffix[1:], dataset_path=path, **keys)


@pytest.fixture
def fields(episodes):
    return episodes([30, 20, 10])


def write_hdf5(path, fields, **options):
    with h5py.File(path, "w") as file:
        for name, value in fields.items():
            file.create_dataset(name, data=value, **options)
    return path


# --- HDF5: nothing but the file itself is read


def external_storage(file, secret):
    file.create_dataset("obs", (60, 3), "f4", external=[(str(secret), 0, 720)])


def virtual_dataset(file, secret):
    layout = h5py.VirtualLayout((60, 3), "f4")
    layout[:] = h5py.VirtualSource(str(secret), "obs", (60, 3), "f4")
    file.create_virtual_dataset("obs", layout)


def external_link(file, secret):
    file["obs"] = h5py.ExternalLink(str(secret), "/obs")


def soft_link(file, secret):
    file["obs"] = h5py.SoftLink("/elsewhere/obs")


@pytest.mark.parametrize("point", [external_storage, virtual_dataset, external_link, soft_link])
def test_an_hdf5_that_points_elsewhere_is_refused_by_the_name_of_the_field(tmp_path, fields, point):
    secret = write_hdf5(tmp_path / "secret.hdf5", fields)
    rest = {name: value for name, value in fields.items() if name != "obs"}
    path = write_hdf5(tmp_path / "a.hdf5", rest)
    with h5py.File(path, "a") as file:
        point(file, secret)
    with pytest.raises(DatasetError, match=r"a\.hdf5: 'obs' is (a link|kept in other files)"):
        load(path)


@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": True}, {"chunks": (7,), "compression": "gzip", "shuffle": True}],
    ids=["contiguous", "chunked", "compressed"],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_all_layouts_of_hdf5_load_alike(tmp_path, fields, options, in_memory):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in fields.items():
            chunks = {"chunks": (7, *value.shape[1:])} if "compression" in options else {}
            file.create_dataset(name, data=value, **{**options, **chunks})
    assert load(path, in_memory=in_memory).sha256 == TransitionDataset(**fields).sha256


def test_other_byte_orders_and_number_types_of_hdf5_load_alike(tmp_path, fields):
    wide = {name: value.astype(">f8") for name, value in fields.items()}
    path = write_hdf5(tmp_path / "a.hdf5", wide)
    assert load(path).sha256 == TransitionDataset(**fields).sha256


def test_remarks_of_variable_length_are_read(tmp_path, fields):
    path = write_hdf5(tmp_path / "a.hdf5", {**fields, "actions": np.arange(60) % 3})
    with h5py.File(path, "a") as file:
        file.attrs["boundaries"] = "given"  # as our own files have it
        file.attrs["num_actions"] = 7
    assert load(path).num_actions == 7


@pytest.mark.parametrize("work", ["while True: pass", "import os; os.abort()"])
def test_a_library_that_hangs_or_crashes_is_a_damaged_file(tmp_path, fields, monkeypatch, work):
    worker = tmp_path / "worker.py"
    limited = reader._WORKER.read_text().replace("    import h5py\n", f"    {work}\n", 1)
    worker.write_text(limited)
    monkeypatch.setattr(reader, "_WORKER", worker)
    monkeypatch.setattr(reader, "WORK_SECONDS", 1)
    with pytest.raises(
        DatasetError, match=r"a\.hdf5 is damaged: libhdf5 crashed on it, or found no"
    ):
        load(write_hdf5(tmp_path / "a.hdf5", fields))


def test_a_small_hdf5_that_claims_to_be_huge_is_refused(tmp_path, fields):
    path = write_hdf5(tmp_path / "a.hdf5", fields)
    with h5py.File(path, "a") as file:
        file.create_dataset("extra", (10**12, 3), "f4", chunks=(1000, 3))
    with pytest.raises(DatasetError, match=r"a\.hdf5 has .* bytes and claims to hold"):
        load(path)


def test_chunks_that_would_be_unpacked_again_for_every_piece_are_refused(tmp_path, fields):
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in fields.items():
            file[name] = values
        del file["rewards"]
        file.create_dataset("rewards", (2**26,), "f4", chunks=(2**26,), compression=1)
    with pytest.raises(DatasetError, match=r"'rewards' is packed in pieces of more than 128 MB"):
        load_transition_dataset("hdf5", path)


def test_reading_hdf5_imports_no_h5py_into_this_process(tmp_path, fields):
    path = write_hdf5(tmp_path / "a.hdf5", fields)
    script = (
        "import sys; from rl_training.data import load_transition_dataset\n"
        f"load_transition_dataset('hdf5', {str(path)!r})\n"
        "print('h5py' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr


# --- .pt


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_flipped_bit_in_the_values_of_a_pt_is_noticed(tmp_path, fields, in_memory):
    path = tmp_path / "a.pt"
    TransitionDataset(**fields).save(path)
    flip(path, path.read_bytes().index(fields["rewards"][3:6].tobytes()))
    with pytest.raises(DatasetError, match=r"a\.pt is damaged: Bad CRC-32.*save it again"):
        load(path, in_memory=in_memory)


def test_a_pt_without_checksums_says_how_to_save_it_again(tmp_path, fields):
    torch.serialization.set_crc32_options(False)
    try:
        TransitionDataset(**fields).save(tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with pytest.raises(DatasetError, match=r"set_crc32_options\(False\), save it again"):
        load(tmp_path / "a.pt")


@pytest.mark.parametrize(
    "obs",
    [
        torch.zeros(1).expand(10**11, 3),
        torch.sparse_coo_tensor(
            torch.zeros(2, 1, dtype=torch.long), torch.ones(1), (10**11, 3), check_invariants=True
        ),
    ],
    ids=["expanded", "sparse"],
)
def test_a_tensor_far_larger_than_its_file_is_refused(tmp_path, obs):
    torch.save({"obs": obs}, tmp_path / "a.pt")
    with pytest.raises(DatasetError, match=r"a\.pt has .* bytes and claims to hold 1,200\.0 GB"):
        load(tmp_path / "a.pt")


def test_nested_lists_in_a_pt_are_not_written_out(tmp_path, fields):
    bomb = [1.0] * 10
    for _ in range(12):
        bomb = [bomb] * 10
    torch.save({**{k: torch.from_numpy(v) for k, v in fields.items()}, "rewards": bomb},
               tmp_path / "a.pt")  # fmt: skip
    with pytest.raises(DatasetError, match=r"a\.pt: 'rewards' holds Python objects"):
        load(tmp_path / "a.pt")


def test_a_pt_whose_zip_directory_is_odd_is_named(tmp_path, fields):
    path = tmp_path / "a.pt"
    TransitionDataset(**fields).save(path)
    content = path.read_bytes()
    locator = content.index(b"PK\x06\x07")  # of the zip64 directory: its number of disks
    path.write_bytes(content[: locator + 16] + b"\x07" + content[locator + 17 :])
    with pytest.raises(DatasetError, match=r"a\.pt is not a \.pt file, or is cut off"):
        load(path)


# --- .npz


def npy(header, data=b"", version=1):
    text = header if isinstance(header, bytes) else repr(header).encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def described(shape, descr="<f4"):
    return {"descr": descr, "fortran_order": False, "shape": shape}


HEADERS = {
    "huge shape": npy(described((10**15, 3))),
    "negative": npy(described((-60,)), b"1234" * 60),
    "overflow": npy(described((2**62, 4)), b"1234"),
    "no shape": npy({"descr": "<f4", "fortran_order": False}),
    "4 GB header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 50_000,
    "nested": npy(b"(" * 9_000),
    "nested type": npy(described((1,), [("a", "<f4")] * 300)),
    "deep type": npy(
        b"{'descr': " + b"[" * 90 + b"]" * 90 + b", 'fortran_order': False, 'shape': ()}"
    ),
    "digits": npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b",)}"),
    "wide text": npy(described((), "<U1000000000")),
    "binary": npy(b"\xff\x00\xfe" * 30),
    "no magic": b"nothing of the kind",
    "cut": npy(described((60,)), b"1234" * 59),
    "too long": npy(described((60,)), b"1234" * 61),
}


@pytest.mark.parametrize("name", HEADERS)
def test_an_array_header_that_lies_is_a_damaged_file(tmp_path, fields, name):
    np.savez(tmp_path / "a.npz", **fields)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("dones.npy", HEADERS[name])
    with pytest.raises(DatasetError, match=r"a\.npz is damaged: .*dones") as caught:
        load(tmp_path / "a.npz")
    assert len(str(caught.value)) < 300


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_given_twice_is_named(tmp_path, fields):
    np.savez(tmp_path / "a.npz", **fields)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("obs.npy", b"")
    with pytest.raises(DatasetError, match=r"a\.npz holds 'obs\.npy' twice"):
        load(tmp_path / "a.npz")


def patched_directory(content, offset, value):
    """The archive with other bytes in the first entry of its directory."""
    entry = content.index(b"PK\x01\x02")
    return content[: entry + offset] + value + content[entry + offset + len(value) :]


@pytest.mark.parametrize(
    ("offset", "value", "expected"),
    [
        (8, b"\x01", "is encrypted"),
        (32, bytes([46 + len("actions.npy")]), "hides what follows"),  # the next entry as a comment
        (10, struct.pack("<H", 14), "packed in a way that NumPy does not use"),
        (24, struct.pack("<I", 2**31), "two sizes"),
        (20, struct.pack("<II", 2**32 - 2, 2**32 - 2), "claims to hold 4.3 GB"),
        (20, struct.pack("<II", 2**32 - 1, 2**32 - 1), "claims to hold 4.3 GB"),  # zip64, it says
    ],
)
def test_a_member_that_zip_tools_would_stumble_over_is_refused(
    tmp_path, fields, offset, value, expected
):
    np.savez(tmp_path / "a.npz", **fields)
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(patched_directory(content, offset, value))
    with pytest.raises(DatasetError, match=rf"a\.npz.*{expected}"):
        load(tmp_path / "a.npz")


def test_a_directory_of_a_million_members_is_not_read(tmp_path):
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 4) + bytes(16) + b"abcd"
    directory = entry * 1_000_000
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 9, 9, len(directory), 0, 0)
    (tmp_path / "a.npz").write_bytes(directory + end)
    script = (
        "import resource; from rl_training.data import load_transition_dataset\n"
        "used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: load_transition_dataset('npz', 'a.npz')\n"
        "except ValueError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 50_000)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60, cwd=tmp_path)  # fmt: skip
    assert "its directory is too long" in done.stdout, done.stderr
    assert done.stdout.endswith("True\n")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, fields):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("obs.npy", bytes(100 << 20))
    content = inner.getvalue()
    entry = content.index(b"PK\x01\x02")
    claimed = struct.pack("<I", 2**31)  # a stream of 100 MB that is said to unpack to 2 GB
    (tmp_path / "a.npz").write_bytes(content[: entry + 24] + claimed + content[entry + 28 :])
    with pytest.raises(DatasetError, match=r"claims to hold 2\.1 GB"):
        load(tmp_path / "a.npz")


def test_wide_arrays_in_fortran_order_load_in_one_pass(tmp_path, episodes):
    fields = episodes([30], obs_dim=400)
    np.savez_compressed(tmp_path / "a.npz", **{k: np.asfortranarray(v) for k, v in fields.items()})
    assert load(tmp_path / "a.npz").sha256 == TransitionDataset(**fields).sha256


# --- paths


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda p: p.symlink_to("/dev/null"), lambda p: p.symlink_to("no")]
)
def test_only_regular_files_are_replaced_by_a_conversion(tmp_path, fields, make):
    np.savez(tmp_path / "a.npz", **fields)
    make(tmp_path / "b.npz")
    with pytest.raises(OutputError, match=r"cannot write .*b\.npz: it is not a regular file"):
        convert_dataset(str(tmp_path / "a.npz"), tmp_path / "b.npz", overwrite=True)
    assert os.path.lexists(tmp_path / "b.npz")


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_leftovers_of_killed_processes_are_removed_and_those_of_living_ones_are_not(
    tmp_path, fields
):
    dead, living = (tmp_path / f".a.npz.{pid}.tmp" for pid in (dead_process(), os.getppid()))
    other = tmp_path / f".b.npz.{dead_process()}.tmp"
    for path in (dead, living, other):
        path.write_bytes(b"half a file")
    TransitionDataset(**fields).save(tmp_path / "a.npz")
    assert [path.exists() for path in (dead, living, other)] == [False, True, True]


def test_leftovers_in_the_cache_are_removed(tmp_path, fields, private_cache):
    np.savez(tmp_path / "a.npz", **fields)
    load(tmp_path / "a.npz", in_memory=False)
    packed = next((private_cache / "packed").glob("*.bin"))
    leftover = packed.with_name(f".{packed.name}.{dead_process()}.tmp")
    leftover.write_bytes(b"half a file")
    os.utime(tmp_path / "a.npz", (1, 1))  # so that it is packed again
    load(tmp_path / "a.npz", in_memory=False)
    assert not leftover.exists()


@pytest.mark.parametrize("ending", [".bin", ".json"])
def test_a_fifo_in_the_cache_is_replaced_and_not_read(tmp_path, fields, private_cache, ending):
    np.savez(tmp_path / "a.npz", **fields)
    load(tmp_path / "a.npz", in_memory=False)
    path = next((private_cache / "packed").glob(f"*{ending}"))
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(UserWarning, match="not a regular file"):
        dataset = load(tmp_path / "a.npz", in_memory=False)
    assert dataset.sha256 == TransitionDataset(**fields).sha256


def test_data_larger_than_the_memory_names_the_option(tmp_path, fields, monkeypatch):
    np.savez(tmp_path / "a.npz", **fields)
    monkeypatch.setattr(os, "sysconf", lambda name: 10)
    with pytest.raises(DatasetError, match=r"a\.npz does not fit .*dataset_in_memory: false"):
        load(tmp_path / "a.npz")


def test_a_remark_of_absurd_size_is_refused(tmp_path, fields):
    np.savez(tmp_path / "a.npz", **{**fields, "actions": np.arange(60) % 3}, num_actions=2**60)
    with pytest.raises(DatasetError, match="too many choices"):
        load(tmp_path / "a.npz")
