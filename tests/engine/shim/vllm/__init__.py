"""Stand-in for the package whose custom operators SGLang's generic path calls: see _custom_ops."""
