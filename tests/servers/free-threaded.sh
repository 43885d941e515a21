#!/bin/bash
# free-threaded.sh VENV: a virtual environment of a free-threaded Python with what the tests in it need. Debian has no such
# Python: it is built, once and in some minutes, of Debian 13's source into CANAL_SERVER_CACHE (default ~/.cache/canal-servers).
# The libraries whose headers it needs are installed where this is root's.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
VENV=${1:?environment}
CACHE=${CANAL_SERVER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/canal-servers}
TREE=$CACHE/python-3.13t
PYTHON=$TREE/bin/python3.13t
mkdir -p "$CACHE"
exec 9>"$CACHE/.lock-python-3.13t" # two checkouts may be set up at once
flock 9
if [ ! -e "$TREE/.done" ]; then
    NEEDED=(libc6-dev gcc make xz-utils libssl-dev zlib1g-dev libsqlite3-dev libffi-dev)
    if [ "$(id -u)" = 0 ] && ! dpkg-query -W "${NEEDED[@]}" >/dev/null 2>&1; then
        apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${NEEDED[@]}" >/dev/null
    fi
    echo "building a free-threaded Python"
    "$HERE/fetch-tree.sh" "$CACHE/python-3.13-source" trixie --source python3.13
    WORK=$(mktemp -d)
    trap 'rm -rf "$WORK"' EXIT
    tar -xf "$CACHE"/python-3.13-source/*.orig.tar.xz -C "$WORK" --strip-components=1
    rm -rf "$TREE"
    (
        cd "$WORK"
        ./configure -q --disable-gil --disable-test-modules --prefix="$TREE" CFLAGS=-O2
        make -s -j"$(nproc)"
        make -s install
    ) >"$WORK/log" 2>&1 || { tail -30 "$WORK/log" >&2; exit 1; }
    "$PYTHON" -c 'import ssl, sqlite3, ctypes, zlib' || { echo "it lacks one of these: install ${NEEDED[*]}" >&2; exit 1; }
    touch "$TREE/.done"
fi
flock -u 9
"$PYTHON" --version
[ "$VENV/.done" -nt "$0" ] && exit 0
rm -rf "$VENV"
"$PYTHON" -m venv "$VENV"
# Without cryptography, for passwords over an open connection, which has no wheel for it and is no C.
PIP=("$VENV/bin/python" -m pip --disable-pip-version-check -q install --only-binary ":all:")
"${PIP[@]}" 'setuptools>=77' wheel 'Cython>=3.1' attrs pymysql kazoo pytest pytest-timeout hypothesis rich tzdata pyarrow
# It has no wheel for it either. Without isolation its build asks for no cffi, which has none, and makes the part in C.
"${PIP[@]}" --no-binary zstandard --no-build-isolation zstandard
touch "$VENV/.done"
