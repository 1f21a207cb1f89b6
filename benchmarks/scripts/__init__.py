"""Stock PyTorch programs that benchmarks start as processes of their own."""
