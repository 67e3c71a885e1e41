"""Audit AOTInductor plugins without loading them.

The package imports nothing on its own: name the module you need (`aoti_inspect.elf.read`,
`aoti_inspect.plugin`, `aoti_inspect.audit`), so that a check of one file stays within milliseconds.
"""
