"""Audit AOTInductor plugins without loading them.

The package imports nothing on its own: name the module you need (`aoti_inspect.elf.read`,
`aoti_inspect.facts.plugin`, `aoti_inspect.auditing.path`), so that a check of one file stays
within milliseconds.
"""
