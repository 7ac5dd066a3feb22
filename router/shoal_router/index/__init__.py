"""What each replica holds: canonical prompts, chain hashes, mirrors of the engines' caches, sessions. Pure."""
