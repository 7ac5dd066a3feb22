"""`python -m shoal_bench.router`."""

import sys

from shoal_bench.router.bench import main

sys.exit(main())
