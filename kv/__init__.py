"""The paged KV cache. Import from its modules: `kv.content` alone is free of torch."""
