"""Deterministic orchestration, nothing else.

Modules here are imported anew for every run, within Temporal's sandbox: they are small,
and import nothing but the standard library, `temporalio`, `everturn` and the names of
activities.
"""
