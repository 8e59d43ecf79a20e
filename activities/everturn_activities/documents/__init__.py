"""Documents that a context holds: those of a workspace, nested AGENTS.md, and resources."""
