"""A small multiplexed protocol for protogate: what a codec of somebody else's looks like."""
