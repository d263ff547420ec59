"""Applications that are composed of several protocols, which know nothing of each other."""
