"""Rules AOTI750 to AOTI752: members that could reach outside of their package."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.rules.registry import about, package_rule
from aoti_inspect.wording import counted, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PackageContext, RuleResult


@package_rule("AOTI750", "unsafe-member-name", "error")
def unsafe_member_name(context: PackageContext) -> Iterator[RuleResult]:
    """A member's name leads outside of the directory that it would be extracted to.

    ## Why it matters
    Loaders that extract a package under its members' own names, PyTorch's among them, write wherever such
    a name says: over configuration, keys or programs.

    ## How it is checked
    Names that are absolute, climb with `..`, name a drive, or contain a backslash or NUL; and members
    that are symbolic links. Such members are not read here, and nothing is ever extracted under its own
    name.

    ## How to fix it
    Do not load the package with anything else. Packages that PyTorch writes have no such names.

    ## Reports it prevents
    Zip slip.
    """
    for fact in context.noted("refused-names"):
        first = [f"{name!r}: {reason}" for name, reason in zip(fact.names, fact.details, strict=True)][:3]
        message = f"{counted(len(fact.names), 'unsafe member name')} ({'; '.join(first)})"
        yield about(fact, message, "do not extract this archive; find out who made it")


@package_rule("AOTI751", "overlapping-members", "error")
def overlapping_members(context: PackageContext) -> Iterator[RuleResult]:
    """Members of the archive overlap.

    ## Why it matters
    That is how zip bombs are made, and how two readers are shown different content.

    ## How it is checked
    The range of bytes of each member, with its header, against the next one's.

    ## How to fix it
    Write the archive again with an ordinary tool.

    ## Reports it prevents
    A disk or memory that fills while an archive of a few kilobytes is extracted.
    """
    for fact in context.noted("shared-bytes"):
        number = counted(len(fact.names), "member")
        message = f"{number} share bytes with another one, as in a zip bomb: {some(fact.names)}"
        yield about(fact, message, "do not extract this archive; find out who made it")


@package_rule("AOTI752", "link-in-folder", "info")
def link_in_folder(context: PackageContext) -> Iterator[RuleResult]:
    """The folder has symbolic links, which the inspector does not follow.

    ## Why it matters
    Their targets may be anywhere. They were neither read nor checked, and a loader that follows the links
    loads what was not inspected.

    ## How it is checked
    The type of each entry of the folder.

    ## How to fix it
    Put the files themselves there.

    ## Reports it prevents
    A package that means something else on another machine.
    """
    for fact in context.noted("links"):
        message = f"{len(fact.names)} symbolic links are not followed: {', '.join(fact.names[:3])}"
        yield about(fact, message, "replace the links by the files themselves")
