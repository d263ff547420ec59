"""Trains the demo that sees, on two cores: `python -m serve_app.demo.training.vision`."""

from serve_app.demo.training.vision.train import main

if __name__ == "__main__":
    main()
