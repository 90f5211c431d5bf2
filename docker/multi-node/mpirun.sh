#!/bin/bash
# Serve one model on the nodes of a hostfile, one process per GPU:
#   docker/multi-node/mpirun.sh hosts 16
# Every node needs the same installation and the same paths. Rank 0 serves, on the first host. If a process dies, mpirun
# ends all of them and this script ends with an error: run it under a supervisor that starts it anew.
set -euo pipefail

hostfile=$1
world_size=$2
config=$(cd "$(dirname "$0")" && pwd)/server.toml

exec mpirun --hostfile "$hostfile" -n "$world_size" \
    llm-server serve --config "$config"
