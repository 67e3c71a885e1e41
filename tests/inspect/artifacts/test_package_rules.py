"""Rules about packages: each finds what it is for, and nothing in a sound artifact."""

from __future__ import annotations

import io
import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path

import pytest

from aoti_abi.payload import Variant
from aoti_inspect.artifacts import open_artifact
from aoti_inspect.artifacts.artifact import Artifact, Model
from aoti_inspect.artifacts.external_weights import (
    BlobWeights,
    MissingWeights,
    TensorWeights,
    WeightTensor,
)
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.artifacts.plugin import ArtifactPlugin
from aoti_inspect.artifacts.program import Delegate
from aoti_inspect.auditing.artifact import audit_artifact
from aoti_inspect.auditing.result import ArtifactAudit, Settings
from aoti_inspect.facts.target import Target
from aoti_inspect.rules import package_rules, plugin_rules
from aoti_inspect.rules.registry import PackageContext, PluginContext, run_rules
from aoti_inspect.source import BufferSource

from .conftest import package_members, write_zip

SETTINGS = Settings(Target(), ())


def audit(artifact: Artifact) -> ArtifactAudit:
    with artifact:
        return audit_artifact(artifact, SETTINGS)


def codes(result: ArtifactAudit) -> set[str]:
    """Return the codes of package rules only: those of plain plugins have tests of their own."""
    found = {finding.code for finding in result.all_findings()}
    return {code for code in found if "AOTI610" <= code < "AOTI700" or code >= "AOTI750"}


def test_the_second_view_of_a_plugin_in_a_package(tmp_path: Path, plugin_bytes):
    """Without its section table the views differ, which is said only to who asks."""
    data = bytearray(plugin_bytes)
    data[40:48] = bytes(8)
    data[58:64] = bytes(6)
    path = write_zip(tmp_path / "m.pt2", package_members(bytes(data)))
    for second_view in (False, True):
        with open_artifact(path) as artifact:
            result = audit_artifact(artifact, SETTINGS._replace(second_view=second_view))
        found = {finding.code for finding in result.all_findings()}
        assert ("AOTI450" in found) is second_view


def of_members(tmp_path: Path, members: dict) -> set[str]:
    return codes(audit(open_artifact(write_zip(tmp_path / "m.pt2", members))))


def test_a_sound_package_has_no_findings(tmp_path, plugin_bytes):
    assert of_members(tmp_path, package_members(plugin_bytes)) == set()


def test_missing_models_and_libraries(tmp_path, plugin_bytes):
    assert of_members(tmp_path, {"x/archive_format": b"pt2", "x/models/m.json": b""}) == {"AOTI610"}
    assert of_members(tmp_path, package_members(None)) == {"AOTI611"}
    assert of_members(tmp_path, package_members(None, CMakeLists__txt=b"")) == {"AOTI612"}
    assert of_members(tmp_path, package_members(b"")) == {"AOTI613"}
    assert of_members(tmp_path, package_members(plugin_bytes, z__wrapper__so=plugin_bytes)) >= {"AOTI614"}


def test_missing_metadata(tmp_path, plugin_bytes):
    members = package_members(plugin_bytes)
    del members["model/data/aotinductor/model/abc.wrapper_metadata.json"]
    assert of_members(tmp_path, members) == {"AOTI615"}


def test_metadata_of_another_machine_are_an_error(tmp_path, plugin_bytes):
    """The ELF header is the authority, and the code is for instruction sets: it has none that are lacking."""
    foreign = "aarch64" if os.uname().machine != "aarch64" else "x86_64"
    metadata = json.dumps({"AOTI_DEVICE_KEY": "cpu", "AOTI_MACHINE": foreign, "AOTI_CPU_ISA": "AMX"}).encode()
    members = package_members(plugin_bytes)
    members["model/data/aotinductor/model/abc.wrapper_metadata.json"] = metadata
    path = write_zip(tmp_path / "isa.pt2", members)
    here = Target(machine=os.uname().machine, isa=frozenset({"AVX2"}))
    for target, expected in (
        (here, {"AOTI433": "error"}),
        (here._replace(isa=None), {"AOTI433": "error"}),
        (here._replace(isa=None, machine=None), {"AOTI433": "warning"}),
    ):
        with open_artifact(path) as artifact:
            result = audit_artifact(artifact, Settings(target, ()))
        found = {item.code: item.severity for item in result.all_findings()}
        assert {code: found.get(code) for code in expected} == expected
        assert ("AOTI421" in found) is ("AOTI421" in expected)


def test_a_cpu_plugin_with_metadata_for_a_gpu(tmp_path, plugin_bytes):
    members = package_members(plugin_bytes)
    members["model/data/aotinductor/model/abc.wrapper_metadata.json"] = b'{"AOTI_DEVICE_KEY": "cuda"}'
    found = audit(open_artifact(write_zip(tmp_path / "cuda.pt2", members))).all_findings()
    assert any("neither calls CUDA" in item.message for item in found if item.code == "AOTI433")


def test_files_called_libraries_that_are_none(tmp_path):
    for content, what in (
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    ):
        result = audit(open_artifact(write_zip(tmp_path / "x.whl", {"pkg/lib.so.2": content})))
        (finding,) = [item for item in result.findings if item.code == "AOTI618"]
        assert finding.symbols == ("pkg/lib.so.2",)
        assert what in finding.message


def test_artifacts_without_plugins(tmp_path, artifacts):
    assert codes(audit(open_artifact(str(artifacts / "portable.pte")))) == {"AOTI616"}
    assert of_members(tmp_path, {"a.txt": b""}) == {"AOTI616"}


def test_members_that_cannot_be_read(tmp_path, plugin_bytes):
    assert of_members(tmp_path, package_members(b"\x7fELF damaged")) == {"AOTI617"}


def test_stray_bytes_and_layout(tmp_path, plugin_bytes):
    path = Path(write_zip(tmp_path / "m.pt2", package_members(plugin_bytes, prefix="")))
    result = audit(open_artifact("m.pt2", content=b"#!" + path.read_bytes() + b"!"))
    assert codes(result) == {"AOTI621", "AOTI622"}
    assert len([finding for finding in result.findings if finding.code == "AOTI621"]) == 2


def test_two_members_with_one_name(plugin_bytes):
    buffer = io.BytesIO()
    members = [*package_members(plugin_bytes).items()] * 2
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(name, content)
    assert codes(audit(open_artifact("m.pt2", content=buffer.getvalue()))) == {"AOTI620"}


def test_weights_that_are_named_and_missing(tmp_path, artifacts):
    program = shutil.copy(artifacts / "aoti_fqn3_external.pte", tmp_path)
    assert "AOTI630" in codes(audit(open_artifact(program)))


def test_a_blob_of_another_name(tmp_path, plugin_bytes):
    assert of_members(tmp_path, package_members(plugin_bytes, other__blob=b"")) == {"AOTI631"}


def test_keys_and_payloads_of_programs(artifacts):
    two = (artifacts / "handmade_two_keys.pte").read_bytes()
    assert "AOTI642" in codes(
        audit(open_artifact("x", content=two.replace(b"aaa_so_blob\n", b"zzz_so_blob\n")))
    )
    assert "AOTI643" in codes(audit(open_artifact(str(artifacts / "handmade_malformed_payload.pte"))))
    later = (artifacts / "aoti_fqn3_external.pte").read_bytes().replace(b"ETCUDAFQN3", b"ETCUDAFQN9")
    assert "AOTI644" in codes(audit(open_artifact("x", content=later)))


def test_keys_that_are_there_twice(artifacts):
    data = str(artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd")
    artifact = open_artifact(str(artifacts / "aoti_legacy_external.pte"), data=(data, data))
    assert "AOTI640" in codes(audit(artifact))


def test_methods_that_are_not_one_plugin(artifacts):
    result = audit(open_artifact(str(artifacts / "aoti_target_device.pte")))
    finding = next(finding for finding in result.findings if finding.code == "AOTI645")
    assert finding.symbols == ("et_copy::_d2h_copy.out", "et_copy::_h2d_copy.out")


def test_custom_operators(tmp_path, plugin_bytes):
    nodes = json.dumps({"nodes": [{"node": {"target": "mylib::scale"}}]}).encode()
    path = write_zip(tmp_path / "m.pt2", package_members(plugin_bytes, abc__wrapper__json=nodes))
    result = audit(open_artifact(path))
    finding = next(finding for finding in result.findings if finding.code == "AOTI646")
    assert "mylib::scale" in finding.message


def test_a_missing_list_of_operators(tmp_path, compile_library, smallest_source):
    source = f"""{smallest_source}
    extern int aoti_torch_proxy_executor_call_function(void);
    API int AOTInductorModelContainerGetNumConstants(void)
    {{ return aoti_torch_proxy_executor_call_function(); }}
    """
    library = compile_library(source, name="proxy.so")
    assert "AOTI647" in codes(audit(open_artifact(library)))
    Path(tmp_path / "proxy.so").write_bytes(Path(library).read_bytes())
    Path(tmp_path / "proxy.json").write_text('{"nodes": [{"node": {"target": "mylib::op"}}]}')
    assert "AOTI647" not in codes(audit(open_artifact(str(tmp_path / "proxy.so"))))


def test_unsafe_names_and_links(tmp_path, plugin_bytes):
    assert of_members(tmp_path, package_members(plugin_bytes) | {"model/../../x": b""}) == {"AOTI750"}
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.so").write_bytes(plugin_bytes)
    (tmp_path / "folder" / "b.so").symlink_to("a.so")
    assert codes(audit(open_artifact(str(tmp_path / "folder")))) == {"AOTI752"}


# Rules that look at a plugin and its place together: the plugin's facts are real, the place is made to fit.


class InMemory:
    """Bytes, or just their number, as content of an artifact."""

    name, location = "b", None

    def __init__(self, data: bytes = b"", size: int | None = None):
        self.data, self.size = data, len(data) if size is None else size

    def open(self) -> BufferSource:
        return BufferSource(self.data, self.name)

    def view(self) -> memoryview:
        return memoryview(self.data)


class Stored:
    """Tensors without their bytes."""

    def __init__(self, *tensors: WeightTensor):
        self._tensors = tensors

    def tensors(self) -> tuple[WeightTensor, ...]:
        return self._tensors


def blob(size: int) -> BlobWeights:
    return BlobWeights(InMemory(size=size), automatic=True)


def placed(path: str, **place) -> Artifact:
    plugin = ArtifactPlugin("m", "m", InMemory(Path(path).read_bytes()), **place)
    return Artifact("m", "pt2", {"m": Model("m", (plugin,))})


@pytest.fixture(scope="session")
def blob_plugin() -> str:
    """A real plugin whose 2688 bytes of weights are outside."""
    return str(Path(__file__).resolve().parents[3] / "fixtures" / "plugins" / "mlp_blob.so")


@pytest.mark.parametrize(("size", "severity"), [(2687, "error"), (2688, None), (2689, "warning")])
def test_the_size_of_a_blob(blob_plugin, size, severity):

    required = read_facts(blob_plugin).weights.required
    assert required
    result = audit(placed(blob_plugin, weights=blob(required + size - 2688)))
    found = [finding.severity for finding in result.all_findings() if finding.code == "AOTI634"]
    assert found == ([severity] if severity else [])
    assert "AOTI601" not in {finding.code for finding in result.all_findings()}


def test_W1_named_weights_that_are_missing(blob_plugin, smallest_plugin):
    assert codes(audit(placed(blob_plugin, weights=MissingWeights("k")))) == {"AOTI633"}


def test_weights_that_change_nothing():
    embedded = str(Path(__file__).resolve().parents[3] / "fixtures" / "plugins" / "mlp.so")
    assert codes(audit(placed(embedded, weights=blob(1)))) >= {"AOTI635"}


CONSTANT = WeightTensor("layer.weight", "float32", (3, 4), (4, 1), 0, "cpu", "k", 48)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sizes": (4, 4), "storage_nbytes": 64}, "sizes (3, 4) and (4, 4)"),
        ({"strides": (1, 3)}, "strides (4, 1) and (1, 3)"),
        ({"dtype": "int32"}, "dtype float32 and int32"),
        ({}, None),
        ({"fqn": "other.weight", "dtype": "int32"}, None),
    ],
)
def test_constants_of_one_name_that_differ(smallest_plugin, changes, words):
    content = InMemory(Path(smallest_plugin).read_bytes())

    def method(name: str, tensor: WeightTensor) -> Model:
        weights = TensorWeights("t", Stored(tensor), size=0, automatic=True)
        delegate = Delegate(0, "CudaBackend", (), None, ())
        return Model(name, (ArtifactPlugin(name, name, content, weights=weights, delegate=delegate),))

    models = {"one": method("one", CONSTANT), "two": method("two", CONSTANT._replace(**changes))}
    found = [item for item in audit(Artifact("m.pte", "pte", models)).findings if item.code == "AOTI637"]
    assert len(found) == (words is not None)
    for finding in found:
        assert finding.symbols == ("layer.weight",)
        assert "between methods 'one' and 'two'" in finding.message
        assert words in finding.message


def test_weights_that_pytorch_does_not_bind(blob_plugin):
    tensors = TensorWeights("t", Stored(), size=0, automatic=False)
    assert codes(audit(placed(blob_plugin, weights=tensors))) == {"AOTI636"}


def test_a_variant_without_its_code(smallest_plugin):
    assert codes(audit(placed(smallest_plugin, variant=Variant("k", 90, 90)))) == {"AOTI649"}
    assert codes(audit(placed(smallest_plugin, variant=Variant("k")))) == set()


def test_a_gpu_delegate_with_a_cpu_plugin(smallest_plugin):
    delegate = Delegate(0, "CudaBackend", (), None, ())
    assert codes(audit(placed(smallest_plugin, delegate=delegate))) == {"AOTI650"}


def test_cubins_that_the_package_lost(tmp_path, compile_library, smallest_source):
    source = f"""{smallest_source}
    int cuModuleLoad(void **module, const char *path);
    const char *const paths[] = {{"/tmp/me/ab/first.cubin", "/tmp/me/cd/second.cubin"}};
    API int AOTInductorModelContainerGetNumConstants(void **m) {{ return cuModuleLoad(m, paths[(long)m]); }}
    """
    library = Path(compile_library(source, name="cubins.so")).read_bytes()

    def found(**members: bytes) -> list[tuple[str, ...]]:
        result = audit(open_artifact(write_zip(tmp_path / "m.pt2", package_members(library, **members))))
        return [item.symbols for item in result.all_findings() if item.code == "AOTI505"]

    assert found() == [("/tmp/me/ab/first.cubin", "/tmp/me/cd/second.cubin")]
    assert found(first__cubin=b"x") == [("/tmp/me/cd/second.cubin",)]
    assert found(first__cubin=b"x", second__cubin=b"x") == []


def test_two_cxx_libraries_in_one_package(tmp_path, plugin_bytes):
    from aoti_inspect.artifacts.facts import facts_of

    def check(facts):
        context = PackageContext(artifact, Target(), facts)
        return [finding.code for finding in run_rules(context, package_rules())[0]]

    with open_artifact(write_zip(tmp_path / "m.pt2", package_members(plugin_bytes))) as artifact:
        facts = facts_of(artifact.model().plugin)
        both = (
            facts._replace(cxx_runtime="libstdc++", name="a"),
            facts._replace(cxx_runtime="libc++", name="b"),
        )
        assert check(both) == ["AOTI648"]
        assert check(both[:1]) == []


def test_every_kind_of_fact_has_a_rule():
    """What a reader notes and no rule looks for would be found and never shown."""
    import re

    from aoti_inspect.artifacts import package_fact

    path = Path(package_fact.__file__)
    kinds = set(re.findall(r'^        "([a-z-]+)",$', path.read_text(), re.MULTILINE))
    assert len(kinds) > 20
    readers = "".join(other.read_text() for other in path.parent.glob("*.py") if other != path)
    rules = "".join(other.read_text() for other in (path.parents[1] / "rules").glob("aoti*.py"))
    assert {kind for kind in kinds if f'"{kind}"' not in rules} == set()
    assert {kind for kind in kinds if f'"{kind}"' not in readers} == set()


def test_an_audit_leaves_the_artifact_as_it_was(tmp_path, plugin_bytes):
    artifact = open_artifact(write_zip(tmp_path / "m.pt2", package_members(b"\x7fELF damaged")))
    before = artifact.facts
    assert "AOTI617" in codes(audit(artifact))
    assert artifact.facts == before


def test_a_finding_says_which_artifact_in_another_it_is_about(tmp_path, plugin_bytes):
    inner = Path(write_zip(tmp_path / "inner.pt2", package_members(None))).read_bytes()
    result = audit(open_artifact(write_zip(tmp_path / "x.whl", {"p/inner.pt2": inner})))
    (finding,) = [item for item in result.findings if item.code == "AOTI611"]
    assert finding.message.startswith("p/inner.pt2: model ")


def test_rules_about_a_plugin_in_its_package_say_nothing_about_a_plugin_by_itself(smallest_plugin):
    from aoti_inspect.artifacts.facts import read_facts

    rules = {code: rule for code, rule in plugin_rules().items() if "AOTI610" <= code < "AOTI700"}
    assert len(rules) == 7
    assert run_rules(PluginContext(read_facts(smallest_plugin), Target()), rules) == ([], [])


def test_a_package_without_the_weights_that_its_plugin_needs(tmp_path, blob_plugin):
    library = Path(blob_plugin).read_bytes()
    for blobs, expected in (({}, ["error"]), ({"abc__wrapper_weights__blob": bytes(2688)}, [])):
        path = write_zip(tmp_path / "m.pt2", package_members(library, **blobs))
        found = audit(open_artifact(path)).all_findings()
        assert [item.severity for item in found if item.code == "AOTI601"] == expected
