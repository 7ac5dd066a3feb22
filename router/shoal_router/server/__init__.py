"""What clients and operators connect to: the client listener and its connections, and the admin port."""
