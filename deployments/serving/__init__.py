"""Helpers of applications under Serve: how they drain and fail, and tasks that outlive requests."""
