"""``python -m aoti_inspect``."""

from aoti_inspect.command import main

main()
