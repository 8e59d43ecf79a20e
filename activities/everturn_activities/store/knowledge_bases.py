"""Which folders are searched for which workspace."""

from pathlib import Path

import sqlalchemy as sa

from everturn.errors import UsageError
from everturn_activities.knowledge import Base
from everturn_activities.store import schema
from everturn_activities.store.database import Database, Tx
from everturn_activities.store.statement import Statement, lock_table

BASES_MAX = 50

_b = schema.knowledge_bases
# Each turn whose profile lists knowledge asks this.
_OF_WORKSPACE = Statement(
    sa.select(_b)
    .where(_b.c.tenant == sa.bindparam("of_tenant"), _b.c.workspace == sa.bindparam("of_workspace"))
    .order_by(_b.c.name)
)


class SqlKnowledgeBases:
    """Each method is one transaction or one read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, tenant: str, workspace: str, name: str, folder: str) -> Base:
        """The base of that name, new or as it is; UsageError where it is of another folder."""

        def change(tx: Tx) -> Base:
            lock_table(tx.connection, _b)
            known = _all(tx.connection, tenant, workspace)
            for base in known:
                if base.name == name and str(base.folder) != folder:
                    raise UsageError(
                        f"Knowledge {name!r} is the folder {base.folder}; choose another name, or"
                        " remove that one first."
                    )
                if base.name == name:
                    return base
            if len(known) >= BASES_MAX:
                raise UsageError(
                    f"The workspace {workspace} has {len(known)} folders of knowledge, which is"
                    " the limit; remove one, or add a folder that holds several."
                )
            named = {"tenant": tenant, "workspace": workspace, "name": name, "folder": folder}
            tx.connection.execute(sa.insert(_b), {**named, "created_at": tx.now})
            return next(
                base for base in _all(tx.connection, tenant, workspace) if base.name == name
            )

        return await self._database.write(change)

    async def bases(self, tenant: str, workspace: str) -> list[Base]:
        return await self._database.read(lambda connection: _all(connection, tenant, workspace))

    async def remove(self, tenant: str, workspace: str, name: str) -> Base:
        """The base that was removed; UsageError where there is none of that name."""

        removed: list[Base] = []

        def change(tx: Tx) -> Base:
            for base in _all(tx.connection, tenant, workspace):
                if base.name == name:
                    tx.connection.execute(sa.delete(_b).where(_b.c.id == base.id))
                    removed.append(base)
                    return base
            if removed:
                return removed[-1]  # The answer to the COMMIT was lost.
            raise UsageError(f"The workspace {workspace} has no knowledge {name[:100]!r}.")

        return await self._database.write(change)


def _all(connection: sa.Connection, tenant: str, workspace: str) -> list[Base]:
    rows = _OF_WORKSPACE.all(connection, {"of_tenant": tenant, "of_workspace": workspace})
    return [Base(row.id, row.tenant, row.workspace, row.name, Path(row.folder)) for row in rows]
