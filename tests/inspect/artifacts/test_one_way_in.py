"""One way in: a plugin has one audit by itself, in a folder and in a zip, and is opened once."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from aoti_abi.errors import AccessFailed, AotiError, InvalidArgument, NotFound
from aoti_inspect.artifacts import open_artifact
from aoti_inspect.artifacts.facts import facts_of, read_facts
from aoti_inspect.artifacts.formats import FORMATS, find_format
from aoti_inspect.artifacts.pte import read_pte
from aoti_inspect.artifacts.sidecars import Beside, NoFiles
from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import ArtifactAudit, Settings
from aoti_inspect.elf.read import open_elf
from aoti_inspect.facts.target import Target
from aoti_inspect.source import BufferSource, open_file

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SETTINGS = Settings(
    Target(machine="x86_64", glibc="2.41"), ("builtin", "torch==2.13"), frozenset(("builtin",))
)

NODES = json.dumps({"nodes": [{"node": {"target": "torch.ops.mylib.scale.default"}}]}).encode()
#: Calls an operator through the host.
PROXY = """
int aoti_torch_proxy_executor_call_function(void);
API int call(void) { return aoti_torch_proxy_executor_call_function(); }
"""


def sidecars(name: str, proxy_plugin: str) -> dict[str, bytes]:
    """Return the files of one case: a plugin and what lies beside it."""
    plugins, structured = FIXTURES / "plugins", FIXTURES / "structured"
    blob = (plugins / "mlp_blob.so").read_bytes()
    cases = {
        "metadata": {
            "mlp.so": (plugins / "mlp.so").read_bytes(),
            "mlp_metadata.json": (plugins / "mlp_metadata.json").read_bytes(),
        },
        "blob": {
            "mlp_blob.so": blob,
            "mlp_blob.blob": (plugins / "mlp_blob.blob").read_bytes(),
            "mlp_blob_metadata.json": (plugins / "mlp_blob_metadata.json").read_bytes(),
        },
        "weights.blob": {"m.so": blob, "m_weights.blob": (plugins / "mlp_blob.blob").read_bytes()},
        "short blob": {"m.so": blob, "m_weights.blob": b"x"},
        "needless blob": {"mlp.so": (plugins / "mlp.so").read_bytes(), "mlp.blob": b"x" * 64},
        "no blob": {"m.so": blob},
        "wrapper metadata": {
            "x.so": blob,
            "x.wrapper_metadata.json": b'{"AOTI_DEVICE_KEY": "cuda", "AOTI_MACHINE": "aarch64"}',
        },
        "first metadata damaged": {
            "x.so": blob,
            "x_metadata.json": b"[",
            "x.wrapper_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}',
        },
        "metadata too large": {"x.so": blob, "x_metadata.json": b" " * (1 << 20) + b"{}"},
        "operators": {"p.so": Path(proxy_plugin).read_bytes(), "p.json": NODES},
        "operators without list": {"p.so": Path(proxy_plugin).read_bytes()},
        "another json": {"p.so": Path(proxy_plugin).read_bytes(), "p.json": b'{"config": 1}'},
        "structured": {
            "affine.so": (structured / "affine.so").read_bytes(),
            "affine.blob": (structured / "affine.blob").read_bytes(),
        },
        "mutable": {"c.so": (plugins / "counter.so").read_bytes()},
    }
    return cases[name]


CASES = (
    "metadata",
    "blob",
    "weights.blob",
    "short blob",
    "needless blob",
    "no blob",
    "wrapper metadata",
    "first metadata damaged",
    "metadata too large",
    "operators",
    "operators without list",
    "another json",
    "structured",
    "mutable",
)


@pytest.fixture(scope="session")
def proxy_plugin(compile_library, smallest_source) -> str:
    """A plugin that calls an operator through its host."""
    return compile_library(smallest_source + PROXY)


def comparable(audit: ArtifactAudit, *places: str) -> object:
    """Return what an audit says, without where the plugin lies."""

    def plain(text: str) -> str:
        for place in places:
            text = text.replace(place, "")
        return text.replace("'p.so'", "'p'")  # a model is called after its file, or its member

    def findings(found: tuple) -> list:
        return [
            item._replace(
                message=plain(item.message),
                remedy=None if item.remedy is None else plain(item.remedy),
                symbols=tuple(plain(symbol) for symbol in item.symbols),
            )
            for item in found
        ]

    (plugin,) = audit.plugins
    elf = plugin.facts.elf
    return (
        findings(plugin.findings),
        findings(audit.findings),
        plugin.not_checked,
        audit.not_checked,
        plugin.verdicts,
        plugin.facts._replace(
            name="", elf=elf._replace(anomalies=tuple(plain(text) for text in elf.anomalies))
        ),
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("second_view", [False, True])
def test_a_plugin_has_one_audit_wherever_it_lies(tmp_path: Path, proxy_plugin, case, second_view):
    files = sidecars(case, proxy_plugin)
    (tmp_path / "folder").mkdir()
    for name, content in files.items():
        (tmp_path / "folder" / name).write_bytes(content)
    library = next(name for name in files if name.endswith(".so"))
    archives = []
    for label, compression in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        archives.append(str(tmp_path / f"{label}.zip"))
        with zipfile.ZipFile(archives[-1], "w", compression) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    settings = SETTINGS._replace(second_view=second_view)
    folder = str(tmp_path / "folder")
    alone = audit_path(f"{folder}/{library}", settings)
    assert (alone.kind, alone.error) == ("plugin", None)
    expected = comparable(alone, f"{folder}/")
    for path, place in ((folder, f"{folder}/"), *((path, f"{path}!") for path in archives)):
        found = audit_path(path, settings)
        assert found.error is None
        assert comparable(found, place) == expected, path
    codes = {finding.code for finding in alone.all_findings()}
    assert ("AOTI601" in codes) == (
        case in ("no blob", "wrapper metadata", "first metadata damaged", "metadata too large")
    )
    assert ("AOTI634" in codes) == (case == "short blob")
    assert ("AOTI635" in codes) == (case == "needless blob")
    assert ("AOTI647" in codes) == (case in ("operators without list", "another json"))


@pytest.mark.parametrize("case", CASES)
def test_weights_and_metadata_are_the_same_wherever_they_lie(tmp_path: Path, proxy_plugin, case):
    files = sidecars(case, proxy_plugin)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    library = next(name for name in files if name.endswith(".so"))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in files:
            archive.write(tmp_path / name, name)
    seen = []
    for path in (tmp_path / library, tmp_path / "all.zip"):
        with open_artifact(str(path)) as artifact:
            (model,) = artifact.models.values()
            plugin = model.plugin
            weights = plugin.weights
            seen.append(
                (
                    plugin.metadata,
                    plugin.extern_nodes is None,
                    model.proxy_operators,
                    (weights.kind, weights.size, weights.automatic),
                    bytes(weights.blob()) if weights.kind == "blob" else None,
                    bytes(plugin.read()),
                )
            )
    assert seen[0] == seen[1]


def test_a_plugin_is_opened_once_for_its_audit(opens_of):
    path = str(FIXTURES / "plugins" / "mlp_blob.so")
    with opens_of(path) as opens:
        assert audit_path(path, SETTINGS).error is None
    assert len(opens) == 1


def test_a_package_is_opened_once_for_its_audit(tmp_path: Path, opens_of):
    path = str(tmp_path / "m.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("mlp_blob.so", "mlp_blob.blob", "mlp.so"):
            archive.write(FIXTURES / "plugins" / name, name)
    with opens_of(path) as opens:
        assert len(audit_path(path, SETTINGS).plugins) == 2
    assert len(opens) == 1


def test_what_cannot_be_opened_has_one_wording_whatever_opens_it(tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "fifo")
    wrong = {
        str(tmp_path / "absent"): (NotFound, "no such file"),
        str(tmp_path / "fifo"): (InvalidArgument, "not a regular file: this is a pipe (FIFO)"),
        "/dev/null": (InvalidArgument, "not a regular file: this is a device"),
        str(tmp_path / "loop"): (AccessFailed, "cannot open"),
        "nul\0byte": (NotFound, "no file can have this name"),
    }

    def elf(path: str) -> None:
        with open_elf(path):
            pass

    for path, (kind, message) in wrong.items():
        for opener in (open_file, open_artifact, read_facts, elf):
            with pytest.raises(AotiError) as caught:
                opener(path)
            assert (type(caught.value), caught.value.message) == (kind, message), opener


@pytest.mark.parametrize("kept", [4000, 250_000])
def test_a_package_that_shrinks_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path, kept: int):
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(FIXTURES / "plugins" / "mlp.so", "mlp.so")
    with open_artifact(str(path)) as artifact:
        os.truncate(path, kept)
        with pytest.raises(AccessFailed, match="became shorter while it was read"):
            facts_of(artifact.plugins[0])


def test_a_program_that_shrinks_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path):
    path = shutil.copy(FIXTURES / "artifacts" / "aoti_two_keys.pte", tmp_path)
    with open_file(str(path)) as source:
        os.truncate(path, 20)
        with pytest.raises(AccessFailed, match="became shorter while it was read"):
            read_pte(source, Beside(NoFiles(), str(path)))


def test_each_format_has_a_reader_of_its_own():
    from importlib import import_module

    for entry in FORMATS:
        module, _, function = entry.reader.partition(":")
        assert callable(getattr(import_module(module), function))
        for offset, magic in entry.magics:
            assert find_format(bytes(offset) + magic) is entry
    suffixes = [suffix for entry in FORMATS for suffix in entry.suffixes]
    assert len(set(suffixes)) == len(suffixes)


def test_a_part_of_memory_is_memory(tmp_path: Path):
    whole = BufferSource(b"0123456789", "m")
    part = whole.part(3, 4, "m!p")
    assert (part.name, part.size, part.read(1, 99), bytes(part.view())) == ("m!p", 4, b"456", b"3456")
    assert part.location is None
    (tmp_path / "f").write_bytes(b"0123456789")
    with open_file(str(tmp_path / "f")) as file:
        part = file.part(3, 4, "f!p").part(1, 2, "f!p!q")
        assert (part.read(0, 99), bytes(part.view()), part.location.offset) == (b"45", b"45", 4)
