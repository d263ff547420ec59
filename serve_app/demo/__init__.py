"""The demo model: a tiny Llama trained from scratch on text that this package generates."""
