"""C{python -m protogate}."""

import sys

from protogate.cli import main

sys.exit(main())
