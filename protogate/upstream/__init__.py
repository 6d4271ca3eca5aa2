"""Endpoints, pools and connections of the services behind the gateway."""
