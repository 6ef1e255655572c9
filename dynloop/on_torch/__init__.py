"""dynloop on PyTorch."""
