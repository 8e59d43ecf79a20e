"""Every process that we start."""
