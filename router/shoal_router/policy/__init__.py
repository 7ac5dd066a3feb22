"""Which replica a request goes to: timing, live load, cost, choice. Pure; every call is told the time."""
