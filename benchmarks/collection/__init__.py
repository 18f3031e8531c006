"""Single operators and fused chains, raced against PyTorch eager and `torch.compile`."""
