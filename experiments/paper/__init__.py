"""The paper's tables and figures, and the networks trained for comparison."""
