"""Artifacts as people have them: plugins, PyTorch packages, ExecuTorch programs, folders, archives.

`open_artifact` opens any of them; what it gives is described in `aoti_inspect.artifacts.artifact`.
"""

from __future__ import annotations

from aoti_inspect.artifacts.artifact import Artifact
from aoti_inspect.artifacts.read import open_artifact

__all__ = ["Artifact", "open_artifact"]
