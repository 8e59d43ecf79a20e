"""Doors: what every request passes, and one protocol a module."""
