"""What operators ask a running gateway: is it alive, is it ready, what did it count."""
