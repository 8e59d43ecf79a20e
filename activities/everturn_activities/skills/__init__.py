"""Skills on disk: where they lie, which of them count, and what they say."""
