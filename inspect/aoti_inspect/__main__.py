"""``python -m aoti_inspect``."""

import sys

from aoti_inspect.cli import main

sys.exit(main())
