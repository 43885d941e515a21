#!/bin/bash
# fetch-canal-java.sh TREE POM: the jars of alibaba/canal for tests, by Maven, into TREE/jars. A second run does no work.
set -euo pipefail
TREE=${1:?tree}
POM=${2:?pom}
cmp -s "$POM" "$TREE/.done" && exit 0
NEW=$TREE.new.$$
trap 'rm -rf "$NEW"' EXIT
mkdir -p "$NEW"
mvn -B -q -f "$POM" dependency:copy-dependencies -DoutputDirectory="$NEW/jars" >"$NEW/log" 2>&1 || { tail -20 "$NEW/log" >&2; exit 1; }
cp "$POM" "$NEW/.done"
rm -rf "$TREE"
mv "$NEW" "$TREE"
