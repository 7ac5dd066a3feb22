"""Where engines are and what the route table says, from Kubernetes or files. Tells a `Sink`; decides nothing."""
