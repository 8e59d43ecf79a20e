"""A server of MCP whose tools are those of the table of kills: `phased_server.py FOLDER`.

Plain Python, so that it starts at once.
"""

import json
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = Path(sys.argv[1])
EFFECTS = ("pure", "idempotent", "keyed", "once")
SCHEMA = {"type": "object", "properties": {"stop": {"type": "string"}}}
_act = runpy.run_path(str(HERE / "acting.py"))["act"]
_writing = threading.Lock()


def answer(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "phased", "version": "1"},
            }
        case "tools/list":
            tools = [
                {"name": name, "description": "Do it.", "inputSchema": SCHEMA} for name in EFFECTS
            ]
            return {"tools": tools}
        case "tools/call":
            effect = params["name"]
            key = params["_meta"]["everturn/idempotency_key"]
            stop = params["arguments"].get("stop", "")
            for _ in _act(FOLDER, f"{effect}_mcp", effect, key, stop):
                time.sleep(0.01)
            return {"content": [{"type": "text", "text": "done"}]}
    raise LookupError


def serve(message: dict[str, Any]) -> None:
    told: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        told["result"] = answer(message)
    except LookupError:
        told["error"] = {"code": -32601, "message": "Method not found"}
    with _writing:
        print(json.dumps(told), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        threading.Thread(target=serve, args=(message,), daemon=True).start()
