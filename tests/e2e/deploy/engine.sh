#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A private Docker engine for the container tests, on Debian 12 as root, for machines where none is running.
#
#   engine.sh start          fetch what is missing, start the engine, provide the base image (does nothing when an engine answers)
#   engine.sh run CMD ...    run CMD where published ports are reachable and `docker` talks to this engine; builds get the
#                            machine's own certificate authorities as EXTRA_CA_CERTIFICATES, unless that is set
#   engine.sh status         tell what is running; exit code 0 when an engine answers
#   engine.sh stop           end the engine's processes, mounts, cgroups and network; downloads and images stay for the next start
#   engine.sh clean          stop, then remove everything
#
# Nothing is installed on the machine: packages are unpacked below REPUT_ENGINE_DIR (default: $TMPDIR/reput-engine or
# /tmp/reput-engine). Everything comes from the Debian archive that apt is configured for. The engine lives in its own network
# namespace, so its bridges and address translation never meet the machine's own; slirp4netns gives the namespace a way out.
# The base image is pulled; where no registry answers, a stand-in of the same name is made from Debian packages.
# shellcheck disable=SC2016  # what stands in single quotes is for another program to expand
set -eu

dir=${REPUT_ENGINE_DIR:-${TMPDIR:-/tmp}/reput-engine}
namespace=reput-engine
base_image=python:3.11-slim-bookworm
socket=$dir/docker.sock
apt_root=$dir/trixie

say() { printf 'engine: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

use_private_engine() {
    PATH=$dir/root/usr/bin:$dir/root/usr/sbin:$dir/root/sbin:$PATH
    LD_LIBRARY_PATH=$dir/root/usr/lib/$(uname -m)-linux-gnu
    XTABLES_LIBDIR=$LD_LIBRARY_PATH/xtables
    DOCKER_HOST=unix://$socket
    DOCKER_CONFIG=$dir/docker-config
    DOCKER_BUILDKIT=0 # the BuildKit client is a plug-in that Debian 12 does not have; the builder of the engine itself is enough
    export PATH LD_LIBRARY_PATH XTABLES_LIBDIR DOCKER_HOST DOCKER_CONFIG DOCKER_BUILDKIT
}

is_running() { # FILE WORD: the process of that pid file is alive and its command line holds WORD
    [ -s "$1" ] && tr '\0' ' ' <"/proc/$(cat "$1")/cmdline" 2>/dev/null | grep -q -- "$2"
}

answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

fetch_packages() {
    [ -e "$dir/root/.complete" ] && return
    say "fetching the engine's packages"
    rm -rf "$dir/root" "$dir/archives"
    mkdir -p "$dir/root" "$dir/archives/partial"
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends --reinstall --download-only -o Debug::NoLocking=1 -o "Dir::Cache::archives=$dir/archives" \
        containerd docker.io iptables mmdebstrap runc slirp4netns tini >"$dir/apt.log" 2>&1 || die "apt-get failed, see $dir/apt.log"
    for package in "$dir"/archives/*.deb; do dpkg -x "$package" "$dir/root"; done
    for command in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
        ln -sf xtables-nft-multi "$dir/root/usr/sbin/$command"
    done
    touch "$dir/root/.complete"
}

fetch_compose() { # Debian 12 has no compose v2; the binary of Debian 13 needs nothing but the C library that Debian 12 has
    plugin=$dir/docker-config/cli-plugins/docker-compose
    [ -x "$plugin" ] && return
    say "fetching docker compose"
    rm -rf "$apt_root"
    mkdir -p "$apt_root/lists/partial" "$apt_root/cache/archives/partial" "$apt_root/unpacked" "$dir/docker-config/cli-plugins"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | head -n 1)
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s trixie main\n' "${mirror:-http://deb.debian.org/debian}" >"$apt_root/sources.list"
    set -- -o "Dir::Etc::sourcelist=$apt_root/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt_root/lists" \
        -o "Dir::Cache=$apt_root/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none
    apt-get "$@" update -qq
    (cd "$apt_root" && apt-get "$@" download -qq docker-compose)
    dpkg -x "$apt_root"/docker-compose_*.deb "$apt_root/unpacked"
    cp "$(find "$apt_root/unpacked" -type f -name docker-compose -perm -u+x | head -n 1)" "$plugin"
    rm -rf "$apt_root"
}

# Without CAP_SYS_RESOURCE a process can neither raise its limits nor lower its OOM score: ask runc for what is allowed.
write_runc_wrapper() {
    cat >"$dir/runc-within-limits" <<WRAPPER
#!/usr/bin/env python3
import json, os, pathlib, resource, sys

arguments = sys.argv[1:]
if {"create", "run"} & set(arguments):
    bundle = "."
    for index, argument in enumerate(arguments):
        if argument in ("--bundle", "-b"):
            bundle = arguments[index + 1]
        elif argument.startswith("--bundle="):
            bundle = argument.partition("=")[2]
    path = pathlib.Path(bundle, "config.json")
    config = json.loads(path.read_text())
    process = config["process"]
    own_score = int(pathlib.Path("/proc/self/oom_score_adj").read_text())
    process["oomScoreAdj"] = max(process.get("oomScoreAdj", own_score), own_score)
    for limit in process.get("rlimits", []):
        hard = resource.getrlimit(getattr(resource, limit["type"]))[1]
        if hard != resource.RLIM_INFINITY:
            limit["hard"], limit["soft"] = min(limit["hard"], hard), min(limit["soft"], hard)
    path.write_text(json.dumps(config))
os.execv("$dir/root/usr/sbin/runc", ["runc", *arguments])
WRAPPER
    chmod 755 "$dir/runc-within-limits"
}

start_network() {
    is_running "$dir/slirp4netns.pid" slirp4netns && return
    ip netns list | grep -qw "$namespace" && ip netns delete "$namespace"
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
    rm -f "$dir/network-ready"
    mkfifo "$dir/network-ready"
    exec 8<>"$dir/network-ready" # held here: what is written to a pipe that nobody has open any more is lost
    slirp4netns --configure --mtu=1400 --disable-host-loopback --netns-type=path --ready-fd=3 "/run/netns/$namespace" tap0 \
        3>&8 8>&- >"$dir/slirp4netns.log" 2>&1 &
    echo $! >"$dir/slirp4netns.pid"
    timeout 20 head -c 1 <&8 >/dev/null || die "the network did not start, see $dir/slirp4netns.log"
    exec 8>&-
}

start_engine() {
    is_running "$dir/dockerd.pid" dockerd && return
    rm -f "$dir/dockerd.pid" "$socket"
    # nsenter, not "ip netns exec": the latter mounts a fresh /sys, which hides the cgroups
    nsenter --net="/run/netns/$namespace" setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/dockerd.pid" \
        --host "$DOCKER_HOST" --dns 10.0.2.3 --cgroup-parent /reput-engine --add-runtime "within-limits=$dir/runc-within-limits" \
        --default-runtime within-limits >"$dir/dockerd.log" 2>&1 &
    tries=60
    until answers; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { tail -n 20 "$dir/dockerd.log" >&2; die "the engine did not start, see $dir/dockerd.log"; }
        sleep 1
    done
}

provide_base_image() {
    docker image inspect "$base_image" >/dev/null 2>&1 && return
    timeout 60 docker pull -q "$base_image" >/dev/null 2>&1 && return
    say "no registry answers: making a stand-in for $base_image from Debian packages"
    (
        unset LD_LIBRARY_PATH # mmdebstrap's chroot has its own libraries
        mmdebstrap --quiet --variant=apt --include=ca-certificates,netbase,python3,python3-dev,python3-pip,python3-venv,tzdata \
            --customize-hook='ln -s python3 "$1/usr/bin/python"' --customize-hook='rm -rf "$1"/usr/share/doc/* "$1"/usr/share/man/*' \
            bookworm "$dir/base.tar" >"$dir/mmdebstrap.log" 2>&1
    ) || die "mmdebstrap failed, see $dir/mmdebstrap.log"
    docker import --change 'CMD ["python3"]' --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$dir/base.tar" "$base_image" >/dev/null
    rm -f "$dir/base.tar"
}

start() {
    if [ ! -e "$dir/dockerd.pid" ] && command -v docker >/dev/null && answers; then
        say "an engine is running already"
        return
    fi
    [ "$(id -u)" = 0 ] || die "no Docker engine answers, and starting one needs root"
    command -v apt-get >/dev/null || die "no Docker engine answers, and starting one needs a Debian machine"
    mkdir -p "$dir"
    chmod 755 "$dir"
    fetch_packages
    fetch_compose
    write_runc_wrapper
    use_private_engine
    start_network
    start_engine
    provide_base_image
    say "ready: engine $(docker version --format '{{.Server.Version}}'), compose $(docker compose version --short)"
}

end_process() { # FILE WORD
    if is_running "$1" "$2"; then
        pid=$(cat "$1")
        kill "$pid"
        tries=300
        while [ -d "/proc/$pid" ] && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
        [ ! -d "/proc/$pid" ] || kill -KILL "$pid"
    fi
    rm -f "$1"
}

stop() {
    [ -d "$dir" ] || return 0
    end_process "$dir/dockerd.pid" dockerd
    end_process "$dir/slirp4netns.pid" slirp4netns
    grep -o " $dir/[^ ]*" /proc/self/mounts | sort -r | while read -r mounted; do umount -l "$mounted"; done
    ip netns list 2>/dev/null | grep -qw "$namespace" && ip netns delete "$namespace"
    find /sys/fs/cgroup -depth -type d -path '*/reput-engine*' -exec rmdir {} + 2>/dev/null || true
    rm -rf "$dir/exec" "$dir/network-ready" "$socket"
    say "stopped"
}

case ${1:-} in
start) start ;;
run)
    shift
    if is_running "$dir/dockerd.pid" dockerd; then
        use_private_engine
        EXTRA_CA_CERTIFICATES=${EXTRA_CA_CERTIFICATES-$(cat /usr/local/share/ca-certificates/*.crt 2>/dev/null || true)}
        export EXTRA_CA_CERTIFICATES
        exec nsenter --net="/run/netns/$namespace" "$@"
    fi
    exec "$@"
    ;;
status)
    if is_running "$dir/dockerd.pid" dockerd; then
        use_private_engine
        say "private engine in $dir"
    fi
    answers || die "no engine answers"
    docker version --format 'engine {{.Server.Version}}'
    ;;
stop) stop ;;
clean)
    stop
    rm -rf "$dir"
    ;;
*) sed -n '5,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
