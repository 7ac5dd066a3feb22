"""When a request goes: the waiting queue, its order and limits, and `core.ServiceCore`, the facade of it all. Pure."""
