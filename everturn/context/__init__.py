"""What a model is sent: a composed context is a value."""
