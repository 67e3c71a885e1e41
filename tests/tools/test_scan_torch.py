"""The scanner as a program: from wheels and folders to tables, without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import packages
import pytest
import scan_torch
from container_check import differences
from packages import ScanError, obtain, requirement
from releases import Release, device_of, scan, wanted
from shim_tables import Scan

from aoti_abi.container_api import CONTAINER_API
from aoti_abi.versions import KNOWN_TORCH

INDUCTOR = "torch/include/torch/csrc/inductor"
ROOT = Path(__file__).resolve().parents[2]


def interface(version: str) -> list[str]:
    number = scan_torch.minor(version).split(".")
    return [
        f.signature
        for f in CONTAINER_API.values()
        if not f.generated and list(map(int, f.since.split("."))) <= list(map(int, number))
    ]


def torch_files(version: str, **changes: str) -> dict[str, str]:
    """What a wheel of PyTorch has, as far as it is read; ``changes`` replace texts by their file's name."""
    functions = interface(version)
    files = {
        "torch/version.py": f"__version__ = '{version}+cpu'\ndebug = False\n",
        f"{INDUCTOR}/aoti_torch/c/shim.h": (
            "AOTI_TORCH_EXPORT E aoti_torch_a(int x);\n"
            "#ifdef USE_CUDA\nAOTI_TORCH_EXPORT E aoti_torch_b();\n#endif\n"
            "AOTI_TORCH_EXPORT E aoti_torch_cpu_c();\n"
        ),
        f"{INDUCTOR}/aoti_torch/generated/c_shim_cuda.h": "AOTI_TORCH_EXPORT E aoti_torch_cuda_d();\n",
        "torch/include/torch/csrc/stable/c/shim.h": "AOTI_TORCH_EXPORT E torch_e();\n",
        f"{INDUCTOR}/aoti_runtime/interface.h": "".join(f"AOTI_API {text};\n" for text in functions),
        "torch/_inductor/codegen/aoti_runtime/interface.cpp": "".join(f"{text} {{}}\n" for text in functions),
        "torch/include/ATen/ATen.h": "AOTI_TORCH_EXPORT E never_read();\n",
    }
    return {path: changes.get(Path(path).name.replace(".", "_"), text) for path, text in files.items()}


def executorch_files(version: str, *, library: bool = True) -> dict[str, str]:
    files = {
        "executorch/version.py": f'__version__ = "{version}+cpu"\n',
        "executorch/backends/cuda/cuda_backend.py": (
            '{"at::_ops::sort_stable::call": None, "aoti_torch_cuda_x": 1}'
        ),
    }
    if library:
        files["executorch/data/lib/aoti_cuda_shims.lib"] = (
            "!<arch>\n\0__imp_aoti_torch_y\0aoti_torch_y\0aoti_cuda_shims.dll\0\x80"
        )
    return files


def folder_of(path: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return str(path)


def wheel_of(path: Path, files: dict[str, str]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return str(path)


def test_a_wheel_and_its_folder_say_the_same(tmp_path: Path) -> None:
    files = torch_files("2.14.1")
    folder, wheel = folder_of(tmp_path / "torch", files), wheel_of(tmp_path / "torch.whl", files)
    release = scan(obtain(wheel, wanted))
    assert release == scan(obtain(folder, wanted))
    assert release.scan.release == "2.14.1"
    assert {name: shim.device for name, shim in release.scan.shims.items()} == {
        "aoti_torch_a": "common",
        "aoti_torch_b": "cuda",
        "aoti_torch_cpu_c": "cpu",
        "aoti_torch_cuda_d": "cuda",
        "torch_e": "common",
    }
    assert differences(release) == []


def test_tables_are_written_checked_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    first = folder_of(tmp_path / "a", torch_files("2.13.0"))
    second = folder_of(
        tmp_path / "b", torch_files("2.14.1", c_shim_cuda_h="AOTI_TORCH_EXPORT E aoti_torch_cuda_d(int n);")
    )
    slim = folder_of(tmp_path / "c", executorch_files("1.4.0"))
    options = ["--data", str(data)]
    assert scan_torch.main([*options, "--check", first]) == 1
    assert not list(data.iterdir()), "--check writes nothing"
    assert scan_torch.main([*options, first]) == 0
    assert scan_torch.main([*options, second, slim]) == 0
    assert (data / "signatures.tsv").read_text().splitlines()[4] == (
        "aoti_torch_cuda_d\tE aoti_torch_cuda_d()\t2.14\tE aoti_torch_cuda_d(int n)"
    )
    assert (data / "executorch_shims.tsv").read_text() == (
        "# ExecuTorch\t1.4.0\naoti_torch_cuda_sort_stable\t1.4\t\t\n"
        "aoti_torch_cuda_x\t1.4\t\t\naoti_torch_y\t1.4\t\t\n"
    )
    assert scan_torch.main([*options, "--check", first, second, slim]) == 0
    capsys.readouterr()
    (data / "shims.tsv").write_text((data / "shims.tsv").read_text().replace("2.13\t\tcuda", "2.14\t\tcuda"))
    assert scan_torch.main([*options, "--check", first]) == 1
    assert "shims.tsv is out of date" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "names a release"),
        ({"torch/version.py": "__version__ = 'unknown'\n"}, "names a release"),
        ({"torch/version.py": "__version__ = '2.14.0'\n"}, "holds no headers"),
        (torch_files("2.14.0", c_shim_cuda_h="", shim_h="AOTI_TORCH_EXPORT E f();"), "lacks c_shim_cuda.h"),
        (
            torch_files("2.14.0", c_shim_cuda_h="AOTI_TORCH_EXPORT E torch_e(int x);"),
            "declares torch_e twice",
        ),
        ({"executorch/version.py": "__version__ = '1.0.0'\n"}, "no CUDA backend"),
        (executorch_files("1.5.0", library=False), "no import library"),
    ],
)
def test_what_cannot_be_scanned_is_said_and_nothing_written(
    files: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    good = folder_of(tmp_path / "good", torch_files("2.13.0"))
    bad = wheel_of(tmp_path / "bad.whl", files)
    assert scan_torch.main(["--data", str(tmp_path / "data"), good, bad]) == 2
    assert words in capsys.readouterr().err
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("name", ["absent.whl", "text.whl"])
def test_what_is_no_wheel_is_said(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.whl").write_text("no zip")
    assert scan_torch.main(["--data", str(tmp_path), str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert name in error
    assert "give a wheel" in error


def test_a_wheel_without_the_list_is_compared_with_the_table(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "executorch_shims.tsv").write_text(
        "# ExecuTorch\t1.5.0\naoti_torch_cuda_sort_stable\t1.5\t\t\n"
        "aoti_torch_cuda_x\t1.5\t\t\naoti_torch_z\t1.5\t\t\n"
    )
    release = folder_of(tmp_path / "a", executorch_files("1.5.1", library=False))
    assert scan_torch.main(["--data", str(data), release]) == 0
    assert (data / "executorch_shims.tsv").read_text().startswith("# ExecuTorch\t1.5.1\n")
    assert "aoti_torch_z\t1.5" in (data / "executorch_shims.tsv").read_text()
    (data / "executorch_shims.tsv").write_text("# ExecuTorch\t1.5.0\naoti_torch_z\t1.5\t\t\n")
    assert scan_torch.main(["--data", str(data), release]) == 2


def test_a_source_checkout_of_executorch_is_read() -> None:
    files = executorch_files("1.5.0", library=False)
    files["executorch/backends/aoti/common_shims_slim.h"] = "AOTI_SHIM_EXPORT E aoti_torch_s(Tensor* t);"
    files["executorch/backends/cuda/runtime/shims/rand.h"] = "AOTI_SHIM_EXPORT E aoti_torch_cuda_rand();"
    files["executorch/backends/aoti/common_shims.h"] = "AOTI_SHIM_EXPORT E aoti_torch_of_another_library();"
    release = scan({name: text for name, text in files.items() if wanted(name)})
    assert release.complete
    assert release.scan.shims.keys() == {
        "aoti_torch_s", "aoti_torch_cuda_rand", "aoti_torch_cuda_sort_stable", "aoti_torch_cuda_x"
    }  # fmt: skip


def of_container(version: str, declared: list[str], emitted: list[str]) -> Release:
    functions = {text.partition("(")[0].split()[-1]: text for text in declared}
    return Release("torch", Scan(version, {}), functions, frozenset(emitted), complete=True)


def test_each_difference_of_the_container_api_is_told() -> None:
    newest = f"{KNOWN_TORCH[-1]}.0"
    declared = interface(newest)
    names = [text.partition("(")[0].split()[-1] for text in declared]
    assert differences(of_container(newest, declared, names)) == []
    added = of_container(
        newest, [*declared, "AOTIRuntimeError AOTInductorNew(size_t n)"], [*names, "AOTInductorNew"]
    )
    assert differences(added) == [
        f'AOTInductorNew is not in the table; add: _f("AOTInductorNew", "{KNOWN_TORCH[-1]}", "size_t n"),'
    ]
    (gone,) = differences(of_container(newest, declared, names[1:]))
    assert gone.startswith(f"{names[0]} is no longer emitted")
    changed = of_container(newest, [declared[0].replace("(", "(int first, "), *declared[1:]], names)
    (text,) = differences(changed)
    assert text.startswith(f"{names[0]} is declared as AOTIRuntimeError {names[0]}(int first, ")
    (early,) = differences(
        of_container("2.12.0", interface("2.12.0"), [*map(_name, interface("2.12.0")), names[0]])
    )
    assert early == f"{names[0]} is emitted by 2.12 already; the table says since 2.13"


def _name(signature: str) -> str:
    return signature.partition("(")[0].split()[-1]


def test_a_change_of_the_container_api_fails_the_scan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "AOTIRuntimeError AOTInductorModelContainerNew(size_t n)"
    functions = [*interface("2.13.0"), more]
    files = torch_files(
        "2.13.0",
        interface_h="".join(f"AOTI_API {text};\n" for text in functions),
        interface_cpp="".join(f"{text} {{}}\n" for text in functions),
    )
    (tmp_path / "data").mkdir()
    assert scan_torch.main(["--data", str(tmp_path / "data"), folder_of(tmp_path / "a", files)]) == 1
    assert '_f("AOTInductorModelContainerNew", "2.13", "size_t n"),' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("2.9", "torch==2.9.*"),
        ("2.9.1", "torch==2.9.1"),
        ("torch==2.9", "torch==2.9.*"),
        ("executorch==1.5.1", "executorch==1.5.1"),
        ("2", None),
        ("torch", None),
        ("numpy==2.0", None),
        ("torch==2.9; rm", None),
        ("./2.9", None),
        ("--index-url=x", None),
    ],
)
def test_which_words_are_versions(source: str, expected: str | None) -> None:
    assert requirement(source) == expected


def test_small_wheels_are_tried_first_and_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        tried.append(command)
        if any("macosx" in word for word in command):
            return subprocess.CompletedProcess(command, 1, "", "No matching distribution")
        folder = next(word for word in command if word.startswith("--dest=")).removeprefix("--dest=")
        wheel_of(Path(folder) / "torch.whl", torch_files("2.14.1"))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.subprocess, "run", run)
    files = obtain("2.14", wanted)
    assert scan(files).scan.release == "2.14.1"
    assert len(tried) == 2
    assert all(command[-1] == "torch==2.14.*" for command in tried)
    folder = next(word for word in tried[-1] if word.startswith("--dest=")).removeprefix("--dest=")
    assert not Path(folder).exists()


def test_a_download_that_hangs_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(packages.subprocess, "run", run)
    assert scan_torch.main(["--check", "99.0"]) == 2
    assert "did not get torch==99.0.* within" in capsys.readouterr().err


def test_a_table_is_never_half_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", str(tmp_path)]
    assert scan_torch.main([*options, folder_of(tmp_path / "a", torch_files("2.13.0"))]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.tsv")}
    strange = torch_files("2.14.0", c_shim_cuda_h="AOTI_TORCH_EXPORT E aoti_torch_cuda_d(int \u00e4);")
    assert scan_torch.main([*options, folder_of(tmp_path / "b", strange)]) == 2
    assert "ascii" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.tsv")} == before


def test_pips_own_words_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no such release\n")

    monkeypatch.setattr(packages.subprocess, "run", run)
    with pytest.raises(ScanError, match="ERROR: no such release"):
        obtain("99.0", wanted)


@pytest.mark.parametrize(
    ("path", "name", "guard", "device"),
    [
        ("c/shim.h", "aoti_torch_clone", None, "common"),
        ("c/shim.h", "aoti_torch_cuda_guard_set_index", "cuda", "cuda"),
        ("c/shim.h", "aoti_torch_cpu_wrapped", None, "cpu"),
        ("c/shim_mkldnn.h", "aoti_torch_cpu_mkldnn", None, "cpu"),
        ("c/shim_xpu.h", "aoti_torch_create_xpu_guard", "xpu", "xpu"),
        ("generated/c_shim_aten.h", "aoti_torch_aten_full", None, "common"),
        ("generated/c_shim_mps.h", "aoti_torch_mps_mm_out", None, "mps"),
        ("c/shim_deprecated.h", "aoti_torch_old", None, "common"),
    ],
)
def test_the_device_of_a_function(path: str, name: str, guard: str | None, device: str) -> None:
    from c_declarations import Declaration

    assert device_of(path, Declaration(name, "", guard)) == device


def test_the_program_runs_from_anywhere(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "scan_torch.py"), "--check", "nothing"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.startswith("scan_torch.py: cannot read nothing")) == (2, True)
    assert "Traceback" not in done.stderr
