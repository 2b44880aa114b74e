"""A Ray cluster of two nodes with one processor each on this machine; it ends when the standard input is closed.

RAY_TMPDIR=FOLDER python tests/loops/ray_nodes.py    # prints its address; FOLDER, a short path, holds its sockets
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

LOOPBACK = "127.0.0.2"
"""Ray takes the name 127.0.0.1 for the address of the machine, which a test does not listen on."""


def main() -> None:
    node = {"num_cpus": 1, "node_ip_address": LOOPBACK, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(**node)
        cluster.wait_for_nodes()
        sys.stdout.write(cluster.address + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
