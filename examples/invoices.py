"""A queue of letters: each becomes data that fits a schema, and a webhook tells of it.

Run it by `python examples/invoices.py`; examples/invoices/README.md tells what happens.
"""

import asyncio
import hmac
import json
import os
from dataclasses import dataclass, field

from offline import offline, run

from everturn.tasks import NewTask
from everturn.webhooks import Webhook, signed_headers

SECRET = "a-secret-that-only-we-and-the-receiver-know"


@dataclass
class Receiver:
    """Somebody else's server: it takes deliveries, and believes those alone that are signed."""

    deliveries: asyncio.Queue[tuple[str, str]] = field(default_factory=asyncio.Queue)
    """What it was told, each with the delivery's id, under which it may come again."""
    url: str = ""

    async def heard(self, count: int) -> list[str]:
        """What so many deliveries told, each once."""
        told: dict[str, str] = {}
        while len(told) < count:
            name, text = await self.deliveries.get()
            told[name] = text
        return sorted(told.values())

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._heed, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        return server

    async def _heed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        pairs = (line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        name, seconds = headers["webhook-id"], int(headers["webhook-timestamp"])
        signature = signed_headers(SECRET, name, seconds, body)["webhook-signature"]
        genuine = hmac.compare_digest(signature, headers["webhook-signature"])
        if genuine:
            told = json.loads(body)
            self.deliveries.put_nowait((name, f"{told['type']} of task {told['data']['task']}"))
        status = b"204 No Content" if genuine else b"401 Unauthorized"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()


async def read_invoices() -> None:
    receiver = Receiver()
    server = await receiver.listen()
    os.environ["INVOICES_SECRET"] = SECRET
    os.environ["EVERTURN_WEBHOOK_HOSTS"] = receiver.url.split("/")[2]
    async with server, offline("invoices") as (client, workspace):
        schema = json.loads((workspace / "invoice.schema.json").read_text())
        letters = (workspace / "letters.jsonl").read_text().splitlines()
        tasks = [
            NewTask(
                **json.loads(line),
                agent="clerk",
                workspace=str(workspace),
                output=schema,
                webhook=Webhook(url=receiver.url, secret="INVOICES_SECRET"),
            )
            for line in letters
        ]
        names = await client.submit_tasks(tasks)
        # Whoever is not sure that they came hands them in again: the same ids change nothing.
        assert await client.submit_tasks(tasks) == names
        for name in names:
            task = await client.wait_for_task(name)
            what = json.dumps(task.result) if task.state == "done" else task.reason
            print(f"{name}: {task.state}: {what}")
        for told in await receiver.heard(len(names)):
            print(f"webhook: {told}")


if __name__ == "__main__":
    run(read_invoices)
