"""The paged KV cache. Import from its modules: `kv.hashing` alone is free of torch."""
