"""What a tier of the KV cache wins and what it costs."""
