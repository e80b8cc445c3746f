"""Time and memory of products, runs and kernels, beside other libraries."""
