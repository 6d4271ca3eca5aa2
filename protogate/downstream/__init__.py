"""Accept connections and hand them to a codec."""
