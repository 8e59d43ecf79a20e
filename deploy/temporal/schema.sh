#!/bin/sh
# Makes or upgrades the tables of Temporal's two databases. Doing it again changes nothing.
set -eu
versions=/etc/temporal/schema/postgresql/v12
for database in temporal temporal_visibility; do
    temporal-sql-tool --database "$database" setup-schema --version 0.0
done
temporal-sql-tool --database temporal update-schema --schema-dir "$versions/temporal/versioned"
temporal-sql-tool --database temporal_visibility update-schema --schema-dir "$versions/visibility/versioned"
