"""Other routers that Shoal is measured against: installed from hashed locks, started on the same engines."""
