"""Time and memory of products, runs and kernels, compared with other libraries."""
