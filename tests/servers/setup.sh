#!/bin/bash
# setup.sh [mariadb] [mysql] [mariadb-10.5] [mariadb-11.8] [zookeeper]
# Gets the servers of the tests and prints their versions. On Debian 12, root gets MariaDB and ZooKeeper through apt (nothing
# is started); everybody else gets MariaDB 10.11, ZooKeeper and Java from Debian 12, and all get MySQL from Debian unstable and two
# other releases of MariaDB from Debian 11 and 13, as unpacked trees in
# CANAL_SERVER_CACHE (default ~/.cache/canal-servers) with links to them in .servers. A second run does no work;
# CANAL_SERVER_REFRESH=1 gets the trees anew.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
CACHE=${CANAL_SERVER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/canal-servers}
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$CACHE" "$ROOT/.servers"
CACHE=$(cd "$CACHE" && pwd)

retry() {
    local try
    for try in 1 2 3; do
        "$@" && return 0
        echo "try $try failed: $*" >&2
        sleep $((try * 5))
    done
    return 1
}

tree_version() { # TREE PROGRAM: run it with --version through the tree's own loader
    local tree=$1 program=$1/usr/sbin/$2 arch loader
    arch=$(uname -m)-linux-gnu
    loader=$(ls "$tree/usr/lib/$arch"/ld-linux-*.so.* "$tree/lib/$arch"/ld-linux-*.so.* 2>/dev/null | head -1)
    [ -n "$loader" ] && "$loader" --library-path "$tree/lib/$arch:$tree/usr/lib/$arch" "$program" --version
}

tree() { # NAME PROGRAM SUITE PACKAGE...
    local name=$1 program=$2 tree=$CACHE/$1 version
    shift 2
    exec 9>"$CACHE/.lock-$name" # two checkouts may be set up at once
    flock 9
    [ -z "${CANAL_SERVER_REFRESH:-}" ] || rm -rf "$tree"
    retry "$HERE/fetch-tree.sh" "$tree" "$@"
    if ! version=$(tree_version "$tree" "$program"); then
        rm -rf "$tree" # unstable may be in the middle of a transition: the next run tries again
        echo "$name from Debian $1 does not run" >&2
        exit 1
    fi
    flock -u 9
    ln -sfn "$tree" "$ROOT/.servers/$name"
    echo "$name: $version"
}

debian_12() { grep -qs '^VERSION_ID="12"' /etc/os-release && grep -qs '^ID=debian' /etc/os-release; }

apt_install() { # with the services told not to start
    local policy=/usr/sbin/policy-rc.d made=
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        made=1
    fi
    local code=0
    DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 install -y -qq \
        --no-install-recommends "$@" >"$CACHE/apt.log" 2>&1 || code=$?
    [ -z "$made" ] || rm -f $policy
    [ $code = 0 ] || tail -20 "$CACHE/apt.log" >&2
    return $code
}

mariadb() {
    if debian_12 && [ "$(id -u)" = 0 ] && ! command -v mariadbd >/dev/null; then
        retry apt-get update -qq && retry apt_install mariadb-server mariadb-client
    fi
    if debian_12 && command -v mariadbd >/dev/null && command -v mariadb-binlog >/dev/null; then
        rm -f "$ROOT/.servers/mariadb"
        echo "mariadb: $(mariadbd --version)"
    else # the last two only for the plugins and mariadb-binlog in them
        tree mariadb mariadbd bookworm mariadb-server-core mariadb-client-core -- mariadb-server mariadb-client
    fi
}

mysql() { tree mysql mysqld sid mysql-server-core mysql-client-core; }

zookeeper_version() { # USR: its jars say it, without Java
    [ -e "$1/share/java/zookeeper.jar" ] && basename "$(readlink -f "$1/share/java/zookeeper.jar")" .jar
}

zookeeper() {
    local jars=/usr/share/java/zookeeper.jar tree=$CACHE/zookeeper version link
    if debian_12 && [ "$(id -u)" = 0 ] && ! { [ -e $jars ] && command -v java >/dev/null; }; then
        retry apt-get update -qq && retry apt_install libzookeeper-java liblog4j1.2-java libslf4j-java openjdk-17-jre-headless
    fi
    if debian_12 && [ -e $jars ] && command -v java >/dev/null; then
        rm -f "$ROOT/.servers/zookeeper"
        echo "zookeeper: $(zookeeper_version /usr), system's"
        return
    fi
    exec 9>"$CACHE/.lock-zookeeper"
    flock 9
    [ -z "${CANAL_SERVER_REFRESH:-}" ] || rm -rf "$tree"
    retry "$HERE/fetch-tree.sh" "$tree" bookworm libzookeeper-java liblog4j1.2-java libslf4j-java openjdk-17-jre-headless
    find "$tree" -type l -lname '/*' | while read -r link; do # Java's settings, and jars in other folders
        case $(readlink "$link") in
        "$tree"/*) ;;
        *) ln -sfn "$tree$(readlink "$link")" "$link" ;;
        esac
    done
    version=$(zookeeper_version "$tree/usr")
    "$tree"/usr/lib/jvm/java-17-*/bin/java -version 2>/dev/null || { echo "Java from Debian 12 does not run" >&2; exit 1; }
    flock -u 9
    ln -sfn "$tree" "$ROOT/.servers/zookeeper"
    echo "zookeeper: $version"
}

for kind in "${@:-mariadb mysql mariadb-10.5 mariadb-11.8 zookeeper}"; do
    for name in $kind; do
        case $name in
        mariadb) mariadb ;;
        mysql) mysql ;;
        mariadb-10.5) tree mariadb-10.5 mariadbd bullseye mariadb-server-core-10.5 mariadb-client-core-10.5 ;;
        mariadb-11.8) tree mariadb-11.8 mariadbd trixie mariadb-server-core mariadb-client-core ;;
        zookeeper) zookeeper ;;
        *) echo "unknown server: $name" >&2; exit 2 ;;
        esac
    done
done
