"""Audit AOTInductor plugins without loading them.

    import aoti_inspect

    audit = aoti_inspect.audit("model.so", hosts=["torch==2.13"], target="glibc=2.35")
    for finding in audit.all_findings():
        print(finding.code, finding.severity, finding.message)

Public is what ``__all__`` lists: `audit` for a verdict, `read_facts` for what can be read from one shared
library, `open_artifact` for what a package holds, and the records that they return. Modules may change with
any version. Each name is imported when it is first asked for, so that importing the package costs nothing.
"""

from __future__ import annotations

from aoti_abi.face import lazy_face
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.artifacts.facts import read_facts
    from aoti_inspect.artifacts.read import open_artifact
    from aoti_inspect.auditing.audit import audit
    from aoti_inspect.auditing.result import ArtifactAudit, PluginAudit
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.findings import Finding, HostVerdict, NotChecked

    __version__: str

__all__ = [
    "Artifact",
    "ArtifactAudit",
    "Finding",
    "HostVerdict",
    "NotChecked",
    "PluginAudit",
    "PluginFacts",
    "Target",
    "__version__",
    "audit",
    "open_artifact",
    "read_facts",
]

__getattr__ = lazy_face(
    __name__,
    {
        "Artifact": "artifacts.artifact",
        "ArtifactAudit": "auditing.result",
        "Finding": "findings",
        "HostVerdict": "findings",
        "NotChecked": "findings",
        "PluginAudit": "auditing.result",
        "PluginFacts": "facts.records",
        "Target": "facts.target",
        "audit": "auditing.audit",
        "open_artifact": "artifacts.read",
        "read_facts": "artifacts.facts",
    },
)
