"""When there is more work than a process can do: measure, shed, accept no more."""
