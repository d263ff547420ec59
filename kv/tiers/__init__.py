"""Slower memory that keeps pages of the KV cache longer."""
