"""``python -m aoti_executor``: the ``aoti-run`` command."""

import sys

from aoti_executor.cli import main

sys.exit(main())
