"""MCP servers: their processes and connections, and what agents have of them."""
