"""Probes on trained networks, of what the paper says about features, gradients and limits."""
