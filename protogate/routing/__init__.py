"""Rule, route, target."""
