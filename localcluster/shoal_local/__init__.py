"""A real Kubernetes control plane whose Pods are local processes."""
