from __future__ import annotations

from aoti_inspect.facts.records import Weights


def weights(kind, *, size=0, required=None, magic=None, magic_ok=None, mutable=None):
    return Weights(kind, 4096, size, required, magic, magic_ok, mutable)


def test_external_weights(run):
    assert "weights from outside" in run("AOTI601", weights=weights("external")).only.message
    assert "49792" not in run("AOTI601", weights=weights("external", required=49792)).only.message
    assert "48.6 KiB of weights" in run("AOTI601", weights=weights("external", required=49792)).only.message
    assert "2688 bytes" in run("AOTI601", weights=weights("external", required=2688)).only.message


def test_weights_inside_or_none_at_all(run):
    for kind in ("embedded", "appended", "none"):
        assert run("AOTI601", weights=weights(kind)).silent


def test_appended_weights(run):
    good = weights("appended", size=5 << 30, magic=0x1234, magic_ok=True)
    finding = run("AOTI602", weights=good).only
    assert "5.0 GiB" in finding.message
    assert "strip" in finding.message
    assert run("AOTI603", weights=good).silent


def test_damaged_appended_weights(run):
    bad = weights("appended", size=1, magic=0x1234, magic_ok=False)
    finding = run("AOTI603", weights=bad).only
    assert finding.severity == "error"
    assert "0x1234" in finding.message
    assert run("AOTI602", weights=bad).silent


def test_weights_that_are_not_appended(run):
    assert run("AOTI602").silent
    assert run("AOTI603").silent


def test_mutable_weights(run):
    assert run("AOTI604", weights=weights("embedded", mutable=True)).only.severity == "info"
    assert run("AOTI604", weights=weights("embedded", mutable=False)).silent
    assert run("AOTI604", weights=weights("none", mutable=True)).silent
    assert run("AOTI604", weights=weights("embedded")).silent
