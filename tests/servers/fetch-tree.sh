#!/bin/bash
# fetch-tree.sh TREE SUITE PACKAGE... [-- EXTRA...]
# fetch-tree.sh TREE SUITE --source PACKAGE
# Unpacks Debian packages of SUITE, with all they depend on, into the folder TREE. Needs no root: apt runs with a state
# of its own, and the system's packages are not touched. EXTRA packages come without what they depend on.
# With --source TREE holds the files of one source package, as they come.
# Nothing in TREE is configured or started; its programs run through the loader in the tree itself.
set -euo pipefail
TREE=${1:?tree}
SUITE=${2:?suite}
shift 2
PACKAGES=() EXTRA=() SOURCE=
if [ "${1:-}" = --source ]; then SOURCE=${2:?package}; shift 2; fi
while [ $# -gt 0 ]; do
    if [ "$1" = -- ]; then shift; EXTRA=("$@"); break; fi
    PACKAGES+=("$1")
    shift
done
[ -e "$TREE/.done" ] && exit 0

# The Debian mirror this machine already uses.
MIRROR=${CANAL_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(SUITE)' 2>/dev/null |
    awk '$2 == "Debian" && $3 !~ /security/ {print $1; exit}')}
if [ -z "$MIRROR" ]; then # before the first "apt-get update"
    MIRROR=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        awk '/^URIs:/ {print $2} /^deb / {for (i = 2; i <= NF; i++) if ($i ~ /^(https?|mirror)/) print $i}' |
        grep -E '/debian/?$' | head -1 || true)
fi
[ -n "$MIRROR" ] || { echo "no Debian mirror in the apt sources of this machine: set CANAL_DEBIAN_MIRROR" >&2; exit 1; }
KEYRING=$(ls /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp 2>/dev/null | head -1 || true)
[ -n "$KEYRING" ] || { echo "the package debian-archive-keyring is missing" >&2; exit 1; }

APT=$(mktemp -d)
NEW=$TREE.new.$$
trap 'rm -rf "$APT" "$NEW"' EXIT
mkdir -p "$APT"/state/lists/partial "$APT"/cache/archives/partial
: >"$APT/state/status"
echo "deb${SOURCE:+-src} [signed-by=$KEYRING] $MIRROR $SUITE main" >"$APT/sources.list"
# Of the machine's own settings only how to fetch (a proxy, certificates); its hooks are for its own cache.
apt-config dump 2>/dev/null | grep '^Acquire::' >"$APT/apt.conf" || true
cat >>"$APT/apt.conf" <<CONF
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::State "$APT/state";
Dir::State::status "$APT/state/status";
Dir::Cache "$APT/cache";
Dir::Log "$APT";
Dir::Etc::sourcelist "$APT/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "$(dpkg --print-architecture)";
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
APT::Keep-Downloaded-Packages "true";
Debug::NoLocking "true";
Acquire::Languages "none";
Acquire::Retries "5";
CONF
export APT_CONFIG=$APT/apt.conf

apt-get update -qq
if [ -n "$SOURCE" ]; then
    mkdir -p "$NEW"
    (cd "$NEW" && apt-get source -qq --download-only "$SOURCE") >"$APT/log" 2>&1 || { tail -20 "$APT/log" >&2; exit 1; }
    echo "$SUITE" >"$NEW/.done"
    rm -rf "$TREE"
    mv "$NEW" "$TREE"
    exit 0
fi
apt-get install -y -qq --download-only "${PACKAGES[@]}" >"$APT/log" 2>&1 || { tail -20 "$APT/log" >&2; exit 1; }
if [ ${#EXTRA[@]} -gt 0 ]; then
    (cd "$APT/cache/archives" && apt-get download -qq "${EXTRA[@]}") >"$APT/log" 2>&1 || { tail -20 "$APT/log" >&2; exit 1; }
fi
mkdir -p "$NEW"
for package in "$APT"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$NEW"
    basename "$package" >>"$NEW/.debs"
done
echo "$SUITE" >"$NEW/.done"
rm -rf "$TREE"
mv "$NEW" "$TREE"
