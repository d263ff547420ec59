"""The contract between processes: requests, events, cards, states. Free of torch and of Ray."""
