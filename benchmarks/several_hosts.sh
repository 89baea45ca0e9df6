#!/bin/bash
# Try torchrun and Ray on two hosts that share a folder, on one Linux machine, as root:
#     benchmarks/several_hosts.sh /path/to/shared/folder proteins.fasta
# Each "host" has a network, a hostname, process ids and a /tmp of its own (namespaces of Linux). It
# reaches the other host only through a virtual cable. They share cores, memory and disk, so this is
# a test of addresses, rendezvous and lost hosts, and no measurement of speed.
set -euo pipefail

[ $# -eq 2 ] || { echo "usage: several_hosts.sh FOLDER FASTA" >&2 && exit 2; }
SHARED=$(realpath "$1") FASTA=$(realpath "$2")
case "$SHARED/ $FASTA" in
/tmp/* | *" /tmp/"*) echo "each host has its own /tmp: name other folders" >&2 && exit 2 ;;
esac
BIN=$(cd "$(dirname "$0")/../.venv/bin" && pwd)
export PATH=$BIN:$PATH OMP_NUM_THREADS=1 RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN

on_host() { # NUMBER COMMAND: run a command on a host; all its processes end with it
    ip netns exec "thdpack$1" unshare --uts --mount --pid --fork --kill-child --mount-proc \
        bash -c 'hostname "node$0"; mount -t tmpfs tmpfs /tmp
            printf "127.0.0.1 localhost\n10.77.0.1 node0\n10.77.0.2 node1\n" > /tmp/hosts
            mount --bind /tmp/hosts /etc/hosts; cd "$1"; eval "$2"' "$1" "$SHARED" "$2"
}
remove() { for i in 0 1; do ip netns delete "thdpack$i" 2> /dev/null || true; done; }
wait_for() { # SECONDS COMMAND...: repeat a command until it succeeds
    local left=$1
    until "${@:2}"; do
        sleep 1
        ((left -= 1)) || { echo "gave up: ${*:2}" >&2 && return 1; }
    done
}

remove
end() {
    [ "$?" -eq 0 ] || echo "failed: see the logs in $SHARED" >&2
    kill $(jobs -p) 2> /dev/null || true
    remove
}
trap end EXIT
for i in 0 1; do ip netns add "thdpack$i"; done
ip link add cable0 netns thdpack0 type veth peer name cable1 netns thdpack1
for i in 0 1; do
    ip -n "thdpack$i" addr add "10.77.0.$((i + 1))/24" dev "cable$i"
    ip -n "thdpack$i" link set "cable$i" up
    ip -n "thdpack$i" link set lo up
done
cd "$SHARED"
rm -rf whole small run ray started joined stopped ./*.log

echo "1. torchrun on two hosts, two ranks each"
thdpack preprocess "$FASTA" --out whole > whole.log 2>&1
thdpack preprocess "$FASTA" --out small --capacity 2048 --max-seq-len 512 > small.log 2>&1
TRAIN="torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint node0:29500 \
    -m thdpack train esm2-8m --data small --out run --buckets-per-step 4 --checkpoint-every 2 \
    --cache-dir /tmp/cache --timeout-minutes 1 --steps"
on_host 0 "$TRAIN 6" > train0.log 2>&1 & FIRST=$!
on_host 1 "$TRAIN 6" > train1.log 2>&1
wait $FIRST
grep -h "starting:\|done:" train0.log

echo "2. one of the hosts dies; the other one ends with the name of the lost rank"
on_host 0 "$TRAIN 400" > lost0.log 2>&1 & FIRST=$!
on_host 1 "$TRAIN 400" > lost1.log 2>&1 & SECOND=$!
wait_for 120 grep -q "step 8 " lost0.log
kill -KILL "$(pgrep -P $SECOND)"
BEGAN=$SECONDS
wait $FIRST && echo "the run did not notice the lost host" >&2 && exit 1
echo "the other host ended after $((SECONDS - BEGAN)) s"
grep -hoE "ranks? [0-9a-z ,]+ (do|does) not answer" lost0.log | sort -u
thdpack train esm2-8m --data small --out run --buckets-per-step 4 --steps 400 --dry-run | head -1

echo "3. a build on a Ray cluster of two hosts"
RAY="--num-cpus 1 --object-store-memory 200000000 --disable-usage-stats"
on_host 1 "until [ -e started ]; do sleep 1; done
    ray start --address node0:6379 --node-ip-address 10.77.0.2 $RAY && touch joined
    until [ -e stopped ]; do sleep 1; done; ray stop --force" > ray1.log 2>&1 &
on_host 0 "ray start --head --node-ip-address 10.77.0.1 --port 6379 --include-dashboard=false $RAY
    touch started; until [ -e joined ]; do sleep 1; done; sleep 3; ray status
    thdpack preprocess '$FASTA' --out ray --executor ray --ray-address node0:6379
    touch stopped; ray stop --force" > ray0.log 2>&1
wait
echo "nodes: $(grep -c '^ 1 node_' ray0.log)"
diff -r whole ray && echo "the same bytes as a build on this machine"
