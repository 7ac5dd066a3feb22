"""`python -m shoal_bench.hotpath`."""

import sys

from shoal_bench.hotpath.run import main

sys.exit(main())
