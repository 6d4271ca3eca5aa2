"""What operators see: counters, records, logs."""
