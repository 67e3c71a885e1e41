"""What readers note about an artifact as a whole. Whether it matters is decided by rules."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    #: Each is looked for by a rule under `aoti_inspect.rules`; see there what it means for a loader.
    FactKind = Literal[
        "absent-named-data",
        "absent-weight-files",
        "blob-of-other-name",
        "bundle-without-plugins",
        "bytes-after",
        "bytes-before",
        "control-characters",
        "later-end-record",
        "library-without-bytes",
        "links",
        "marker-absent",
        "marker-unknown",
        "metadata-absent",
        "model-without-library",
        "no-common-folder",
        "no-compiled-models",
        "no-elf",
        "payload-of-unknown-version",
        "payload-undecodable",
        "payload-without-plugin",
        "program-without-plugins",
        "refused-names",
        "repeated-key",
        "repeated-method",
        "repeated-names",
        "several-blobs",
        "several-folders",
        "several-libraries",
        "shared-bytes",
        "sources-only",
        "unreadable",
        "weight-of-other-size",
    ]


class PackageFact(NamedTuple):
    """One thing about an artifact that is not about one of its plugins.

    Attributes:
        kind: what it is.
        names: the members, keys or files concerned.
        subject: the model, method, member or key that it is about; empty if it is the whole.
        details: what else was read, in an order that each kind has; raw text of the file may be in it.
        numbers: what was counted or measured, likewise.
        within: the member that holds the artifact, for one that was found in another.
    """

    kind: FactKind
    names: tuple[str, ...] = ()
    subject: str = ""
    details: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    within: str = ""
