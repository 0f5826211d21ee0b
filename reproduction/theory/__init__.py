"""What the limits say of the paper, with no network trained: functions, exponents, regimes."""
