"""What an operator watches, as a Grafana dashboard on the metrics that Ray exports."""
