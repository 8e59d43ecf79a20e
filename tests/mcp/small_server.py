"""A server of MCP on stdin and stdout, whose tools are what a file says when they are asked for.

Run as `small_server.py FOLDER`: `tools.json` there has the tools, `log` takes what it receives, and
a call of `wait` ends once `on` exists. Where `resources.json` is there it has those. What a prompt
says differs each time that it is asked for. It is plain Python, so that it starts at once.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
_writing = threading.Lock()
_count = 0
_answers: dict[str, dict[str, Any]] = {}


def asked(question: str) -> dict[str, Any]:
    """What the client's person says."""
    name = f"q-{threading.get_ident()}"
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    params = {"message": question, "requestedSchema": schema}
    send({"id": name, "method": "elicitation/create", "params": params})
    while name not in _answers:
        time.sleep(0.01)
    return _answers.pop(name)


def send(message: dict[str, Any]) -> None:
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def called(params: dict[str, Any]) -> str:
    global _count
    token = params.get("_meta", {}).get("progressToken")
    match params["name"]:
        case "die":
            os._exit(1)
        case "wait":
            body = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            send({"method": "notifications/progress", "params": body})
            while not (FOLDER / "on").exists():
                time.sleep(0.02)
            return "waited"
        case "child":
            # It outlives this process, unless somebody sees to it.
            code = "import time; time.sleep(600)"
            subprocess.Popen([sys.executable, "-c", code, str(FOLDER)], start_new_session=True)
            return "born"
        case "count":
            _count += 1
            return f"count {_count}"
        case "ask":
            return "heard " + json.dumps(asked("Which size?").get("result"), sort_keys=True)
        case "secret":
            return f"{os.environ.get('SECRET')} {os.environ.get('OTHER')}"
        case "fail":
            raise ValueError("it did not work")
    return "said " + json.dumps(params.get("arguments", {}))


def held() -> dict[str, Any]:
    return {"resources": {}} if (FOLDER / "resources.json").exists() else {}


def resources() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "resources.json").read_text())
    return found


def prompt(params: dict[str, Any]) -> list[dict[str, Any]]:
    global _count
    _count += 1
    arguments = params.get("arguments", {})
    match params["name"]:
        case "show":
            uri = next(iter(resources()))
            shown = {"uri": uri, **resources()[uri]}
            image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
            return [
                {"type": "text", "text": "Look at this."},
                {"type": "resource", "resource": shown},
                image,
            ]
        case "hang":
            time.sleep(600)
    how = arguments.get("how", "kindly")
    return [{"type": "text", "text": f"Greet {arguments['who']} {how}, the time {_count}."}]


def answer(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}, "prompts": {}, **held()},
                "serverInfo": {"name": "small", "version": (FOLDER / "version").read_text()},
            }
        case "tools/list":
            return {"tools": json.loads((FOLDER / "tools.json").read_text())}
        case "prompts/list":
            arguments = [{"name": "who", "required": True}, {"name": "how"}]
            greet = {"name": "greet", "description": "Greets.", "arguments": arguments}
            return {"prompts": [greet, {"name": "show"}, {"name": "hang"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": one} for one in prompt(params)]}
        case "resources/list":
            return {"resources": [{"uri": uri, "name": uri[7:]} for uri in resources()]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "note:///{name}", "name": "notes"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], **resources()[params["uri"]]}]}
        case "tools/call":
            try:
                return {"content": [{"type": "text", "text": called(params)}]}
            except ValueError as error:
                return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    raise LookupError


def serve(message: dict[str, Any]) -> None:
    try:
        send({"id": message["id"], "result": answer(message)})
    except KeyError as error:
        send({"id": message["id"], "error": {"code": -32002, "message": f"no {error}"}})
    except LookupError:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    with (FOLDER / "log").open("a") as log:
        log.write(line)
    message = json.loads(line)
    if "method" not in message:
        _answers[str(message["id"])] = message
    elif "id" in message:
        threading.Thread(target=serve, args=(message,), daemon=True).start()
