"""Rules: what can be wrong with a plugin or a package, one generator function each.

A module is named for the codes that it holds: ``aoti40x_loading`` has AOTI400 to AOTI409,
``aoti44x_45x_linkage`` AOTI440 to AOTI459. Importing this package alone imports none of them.
"""

from __future__ import annotations

from importlib import import_module

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_inspect.rules.registry import Rule

#: The modules with rules about plugins, alone or in their package; some have rules about packages too.
_PLUGIN_MODULES = (
    "aoti10x_entry_points",
    "aoti11x_lost_features",
    "aoti12x_13x_exports",
    "aoti20x_cxx_runtime",
    "aoti21x_cxx_versions",
    "aoti30x_host_functions",
    "aoti31x_34x_host_libraries",
    "aoti40x_loading",
    "aoti42x_processor",
    "aoti43x_file",
    "aoti44x_45x_linkage",
    "aoti50x_gpu_code",
    "aoti51x_cuda_libraries",
    "aoti60x_weights",
    "aoti63x_package_weights",
    "aoti64x_65x_program",
    "aoti70x_security",
)
#: The modules with rules about packages only: a plugin by itself does not pay for them.
_PACKAGE_MODULES = ("aoti61x_62x_package", "aoti75x_archive_security")


def plugin_rules() -> dict[str, Rule]:
    """Return the rules about a plugin, alone or in its package, in the order of their codes."""
    _import(_PLUGIN_MODULES)
    from aoti_inspect.rules.registry import PLUGIN_RULES

    return _by_code(PLUGIN_RULES)


def package_rules() -> dict[str, Rule]:
    """Return the rules about a package as a whole, in the order of their codes."""
    _import(_PLUGIN_MODULES + _PACKAGE_MODULES)
    from aoti_inspect.rules.registry import PACKAGE_RULES

    return _by_code(PACKAGE_RULES)


def all_rules() -> dict[str, Rule]:
    """Return every rule, in the order of their codes."""
    return _by_code({**plugin_rules(), **package_rules()})


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        import_module(f"{__name__}.{name}")


def _by_code(rules: dict[str, Rule]) -> dict[str, Rule]:
    return {code: rules[code] for code in sorted(rules)}
