#!/bin/sh
# Runs once, when the server's volume is new: who may do what in which database.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
    --set everturn="$EVERTURN_DB_PASSWORD" --set temporal="$TEMPORAL_DB_PASSWORD" <<'SQL'
CREATE ROLE everturn LOGIN PASSWORD :'everturn';
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE everturn OWNER everturn;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE everturn, temporal, temporal_visibility FROM PUBLIC;
SQL
