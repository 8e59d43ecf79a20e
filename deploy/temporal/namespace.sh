#!/bin/sh
# Makes the namespace of Everturn's workflows. Doing it again changes nothing.
set -eu
until temporal operator cluster health; do
    sleep 1
done
temporal operator namespace describe --namespace "$NAMESPACE" >/dev/null 2>&1 ||
    temporal operator namespace create --namespace "$NAMESPACE" --retention "$RETENTION"
