"""A Grafana dashboard of the metrics that Ray exports."""
