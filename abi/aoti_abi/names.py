"""The two name spaces of a container's constants, kept apart by the type checker (behaviour L4).

Extraction and reports speak of original FQNs (``layers.0.weight``); every update call takes internal names
(``layers_0_weight``) in the very same C struct, and silently ignores a key that it does not know. Only the
container's own table relates them: ``GetConstantName`` and ``GetConstantOriginalFQN`` of one index.
"""

from __future__ import annotations

from typing import NewType

#: A constant's name inside the plugin's generated code; unique in a container. Update calls take it.
InternalName = NewType("InternalName", str)

#: A constant's name in the Python module; several constants may share one. Extraction returns it.
FQN = NewType("FQN", str)
