"""A whole cluster as plain processes of this machine: `make cluster`."""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

import platformdirs
from local_cluster import PORTS, ROLES, Addresses, Cluster, Topology
from local_temporal import build

from everturn.errors import EverturnError


def main() -> int:
    flags = _flags()
    ports = (0,) * flags.apis if flags.port == 0 else range(flags.port, flags.port + flags.apis)
    topology = Topology(
        folder=flags.folder,
        ports=tuple(ports),
        roles=tuple(flags.roles or ROLES),
        store=flags.store,
        redis=not flags.without_redis,
        temporal="embedded" if flags.embedded_temporal else "auto",
        script=flags.script,
        restarts=not flags.without_restarts,
    )
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {line}", file=sys.stderr, flush=True)

    try:
        if flags.build_temporal:
            asyncio.run(build(say))
            return 0
        cluster = Cluster(topology, say)
        asyncio.run(cluster.run(lambda found: print(told(found), flush=True)))
    except EverturnError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def told(found: Addresses) -> str:
    """Where everything is, and how to speak to it. No password: it is in the folder's files."""
    store = found.store_url.rpartition("@")[2] if "@" in found.store_url else found.store_url
    lines = [
        f"APIs      {' and '.join(found.apis)}",
        f"Temporal  {found.temporal}, {found.temporal_kind}",
        f"Store     {store}",
    ]
    if found.redis_url:
        lines.append(f"Redis     {found.redis_url.rpartition('@')[2]}")
    if found.model:
        lines.append(f"Model     {found.model}, from the script")
    lines += [
        f"Logs      {found.home.parent / 'logs'}",
        f"Try       everturn run --home {found.home} 'Say hello'",
        "End       Ctrl-C",
    ]
    return "\n".join(lines)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    add = parser.add_argument
    default = _folder()
    add("--folder", type=Path, default=default, help=f"where all its data is; {default}")
    add("--port", type=int, default=PORTS[0], help="of the first API; 0 takes free ones")
    add("--apis", type=int, default=len(PORTS), help="how many")
    add("--roles", nargs="+", metavar="ROLES", help=f"of each worker; {' '.join(ROLES)}")
    add("--store", choices=["postgres", "sqlite"], default="postgres")
    add("--without-redis", action="store_true", help="events and limits in the store")
    add("--embedded-temporal", action="store_true", help="on SQLite, whatever the cache has")
    add("--script", type=Path, help="a model that answers from this file, for trying")
    add("--without-restarts", action="store_true", help="leave dead what dies")
    add("--build-temporal", action="store_true", help="have Go build Temporal's server, and end")
    return parser.parse_args()


def _folder() -> Path:
    # PostgreSQL's user cannot pass through root's own folder.
    if os.getuid() == 0:
        return Path("/var/lib/everturn-cluster")
    return Path(platformdirs.user_data_dir("everturn-cluster"))


if __name__ == "__main__":
    sys.exit(main())
