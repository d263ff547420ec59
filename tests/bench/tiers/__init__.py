"""A tier of the KV cache, measured: the time that it saves, and the time that it costs."""
