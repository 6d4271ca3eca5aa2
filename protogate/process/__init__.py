"""The processes of a gateway: who runs, who opens the ports, and what the service manager hears of it."""
