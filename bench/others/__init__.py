"""
Gateways of other people, each configured to do what protogate does in the same row.

One file each, with C{arguments(folder, port, plan)}: writes a configuration into the folder, and returns the command.

Rules
- One worker, thread or P: all of them run on one core.
- An access log, written to a file, by each one's own default format and with buffering where it has that.
- Kept-alive connections to the upstream, without an end.
- Where it has several ways to do a thing, the fastest is taken: a map or a tree, not a list.
"""
