"""`make cluster`: the whole topology on this machine, started again whatever is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import cluster_folder, workspace_of
from local_cluster import Addresses, Cluster, Topology
from systems import processes_of, until

from everturn.client import Client
from everturn_workers import up_record
from everturn_workers.home import prepare
from everturn_workers.locks import try_lock

LOCAL = Path(__file__).parents[2] / "deploy" / "local"


async def answer(found: Addresses, api: int, session: str, text: str) -> str:
    """What the scripted model says in a turn that is asked for at that API."""
    async with Client(found.apis[api], kept_alive=True) as client:
        workspace = found.home.parent / "workspace"
        await client.create_session(session, workspace=str(workspace))
        accepted = await client.send(session, text, id=f"{session}-at-{api}")
        return (await client.wait(session, accepted.id, accepted.cursor)).text


@pytest.mark.long
async def test_a_cluster_works_on_whatever_of_it_was_killed():
    with cluster_folder() as folder:
        workspace_of(folder)
        script = folder / "script.json"
        script.write_text(json.dumps({"replies": [{"text": "Here I am."}]}))
        said: list[str] = []
        topology = Topology(
            folder, ports=(0, 0), roles=("turns,models", "tools"), store="sqlite", script=script
        )
        async with Cluster(topology, said.append) as cluster:
            found = cluster.addresses
            assert found is not None
            assert await answer(found, 0, "before", "Are you there?") == "Here I am."

            for child in cluster.children.values():
                assert child.process is not None
                child.process.kill()

            for name in cluster.children:
                line = f"The {name} is back."
                await until(lambda line=line: line in said)  # type: ignore[misc]
            assert await answer(found, 1, "before", "And now?") == "Here I am."
        assert processes_of(folder) == {}


def test_a_cluster_says_in_a_sentence_that_its_folder_is_in_use():
    with cluster_folder() as folder:
        held = try_lock(up_record.lock_path(prepare(folder / "home")))
        assert held is not None
        command = [sys.executable, str(LOCAL), "--folder", str(folder), "--port", "0"]

        ran = subprocess.run(command, capture_output=True, text=True, check=False)

        os.close(held)
        assert ran.returncode == 1
        assert ran.stderr == (
            f"Another cluster works in {folder} already; use that one, end it, or name another"
            " folder with --folder.\n"
        )
