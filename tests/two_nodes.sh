#!/usr/bin/env bash
# Two machines as two network namespaces of this one, joined by a pair of virtual interfaces, with one torchrun in each:
#
#   tests/two_nodes.sh COMMAND ...        such as: tests/two_nodes.sh -m hire train umls-one -o /tmp/run
#
# Needs root and iproute2; ends with 77 and a reason where that is not to be had. PYTHON chooses the interpreter.
set -euo pipefail

name="hire$$"
first="$name-a" second="$name-b"
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip > /dev/null || skip "ip is not here (Debian: apt-get install iproute2)"
ip netns add "$first" 2> /dev/null || skip "this system does not allow network namespaces"
trap 'ip netns del "$first" 2> /dev/null; ip netns del "$second" 2> /dev/null || true' EXIT
ip netns add "$second"
ip link add "veth0" netns "$first" type veth peer name "veth0" netns "$second" 2> /dev/null || skip "no virtual interfaces"
ip -n "$first" address add 10.111.0.1/24 dev veth0
ip -n "$second" address add 10.111.0.2/24 dev veth0
for node in "$first" "$second"; do
  ip -n "$node" link set lo up
  ip -n "$node" link set veth0 up
done

node() { # RANK NAMESPACE COMMAND ...
  local rank=$1 namespace=$2
  shift 2
  GLOO_SOCKET_IFNAME=veth0 ip netns exec "$namespace" "${PYTHON:-python3}" -m torch.distributed.run --nnodes 2 \
    --node-rank "$rank" --nproc-per-node 1 --master-addr 10.111.0.1 --master-port 29500 "$@"
}
node 1 "$second" "$@" &
other=$!
node 0 "$first" "$@"
wait "$other"
