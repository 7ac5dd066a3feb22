"""The node agent: one process that plays the kubelet of every node, with Pods as local processes."""
