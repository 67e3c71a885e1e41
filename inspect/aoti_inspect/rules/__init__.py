"""Rules: what can be wrong with a plugin, one generator function each.

`all_rules` imports the modules that hold them; importing this package alone costs nothing.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_inspect.rules.registry import Rule


def plugin_rules() -> dict[str, Rule]:
    """Import the rules about plugins and return what is registered, in the order of the codes.

    A plugin that comes by itself does not pay for the rules about packages.
    """
    from aoti_inspect.rules import (  # noqa: F401 - importing a module registers its rules
        container_api,
        cxx_runtime,
        cxx_versions,
        gpu_code,
        host_shims,
        identity,
        linkage,
        lost_features,
        processor,
        security,
        shim_libraries,
        system,
        weights,
    )
    from aoti_inspect.rules.registry import RULES

    return {code: RULES[code] for code in sorted(RULES)}


def all_rules() -> dict[str, Rule]:
    """Import every module of rules and return the rules by code, in the order of their codes."""
    from aoti_inspect.rules import (  # noqa: F401 - importing a module registers its rules
        package,
        package_program,
        package_security,
        package_weights,
    )

    return plugin_rules()
