"""Empirical tangent kernels (NTKs) of finite networks."""
