"""The paper's tables and figures, and the networks trained beside RP."""
